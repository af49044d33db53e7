//! A node: opens the store, runs the thread of its loop, and ends it.

use crate::NodeError;
use crate::access::AccessList;
use crate::address::{HostPort, NodeName};
use crate::copies::GatheringRoom;
use crate::event_loop::EventLoop;
use crate::loop_state::{Choices, LoopState, Shared};
use crate::metrics;
use crate::options::{ConnectionLimits, NodeOptions, SlotStorage};
use crate::periodic_sync::PeriodicSync;
use crate::slots::Slots;
use crate::table::SlotTable;
use crate::{alone, file_limit, folder, others, reliance};
use atoll_disk::{FileDisk, Mode, RING_FILE, STORE_FILE, make_folder};
use atoll_engine::{Durability, Engine, Options, WriteBatch};
use atoll_keyspace::SLOTS;
use atoll_replica::{Survived, Table};
use mio::Waker;
use mio::net::TcpListener;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A running node. It stops when this is dropped.
pub struct Node {
    address: SocketAddr,
    engine: Engine,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<Result<(), NodeError>>>,
    periodic_sync: Option<PeriodicSync>,
    metrics_door: Option<metrics::Door>,
    /// Locked while the node has the folder.
    _lock: Option<File>,
}

/// The file in a node's folder whose lock marks the folder as in use.
const LOCK_FILE: &str = "ring.lock";

impl Node {
    /// Opens the store, listens, and serves from then on, on threads of its own.
    ///
    /// # Errors
    /// [`NodeError`]: invalid options, an address or a folder that cannot be used, a damaged store.
    pub fn start(options: NodeOptions) -> Result<Self, NodeError> {
        options.validate()?;
        let opened = open(&options)?;
        Self::start_on(opened, options, GatheringRoom::default())
    }

    /// Starts on an open store.
    fn start_on(
        (engine, lock): (Engine, Option<File>),
        options: NodeOptions,
        gathering: GatheringRoom,
    ) -> Result<Self, NodeError> {
        let listen = |source| NodeError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let system = |source| NodeError::System { action: "ask for random bytes", source };
        folder::take(&engine, options.persistence(), options.others.as_ref().map(|others| others.me))?;
        let name = name(&engine)?;
        let survived = reliance::judge(&engine, options.persistence())?;
        let run_id = NodeName::random().map_err(system)?;
        let told = options.announce.clone().unwrap_or_else(|| address.into());
        let table = match &options.others {
            None => alone::seen(alone::table(name, told.clone(), &engine)?),
            Some(others) => SlotTable::of(Arc::new(Table::empty(SLOTS.into())), others.me),
        };
        let connections_max = file_limit::make_room_for(options.limits.connections_max);
        let chosen = Choices {
            clock: options.clock.clone(),
            limits: ConnectionLimits { connections_max, ..options.limits.clone() },
            token: options.token.clone(),
            access: options.access.clone().map(AccessList::begin).transpose()?,
            tls: options.tls.clone(),
            name,
            run_id,
            address,
            memory_bytes: options.memory_bytes,
            persistence: options.persistence(),
            keeps: options.keeps(),
            hints: options.hints.clone(),
            in_sync_min: options.others.as_ref().map_or(1, |others| others.options.in_sync_min),
            setup: options.setup.clone(),
            gathering,
        };
        let shared = Arc::new(Shared::new(chosen, table));
        let mut node = Self {
            address,
            engine,
            shared: shared.clone(),
            stop: Arc::default(),
            wakers: Vec::new(),
            threads: Vec::new(),
            periodic_sync: None,
            metrics_door: None,
            _lock: lock,
        };
        node.begin_loop(listener, shared, (&options, survived), told)?;
        node.open_metrics(&options)?;
        if options.keeps() && options.others.is_none() {
            let (periodic_sync, thread) = PeriodicSync::begin(node.engine.clone(), node.shared.clone())?;
            node.periodic_sync = Some(periodic_sync);
            node.threads.push(thread);
        }
        Ok(node)
    }

    fn begin_loop(
        &mut self,
        listener: TcpListener,
        shared: Arc<Shared>,
        (options, survived): (&NodeOptions, Survived),
        clients: HostPort,
    ) -> Result<(), NodeError> {
        let system = |action| move |source| NodeError::System { action, source };
        let (poll, waker) = EventLoop::poll().map_err(system("make an event loop"))?;
        let metrics = shared.metrics.clone();
        let slots = match &options.others {
            None => {
                let mut slots = Slots::open(
                    &self.engine,
                    (shared.chosen.persistence, shared.chosen.keeps),
                    shared.chosen.memory_bytes,
                    metrics,
                )?;
                slots.follow(&shared.table().table().keyspaces)?;
                slots
            }
            Some(others) => {
                let line = (poll.registry(), waker.clone());
                others::join(others, (&self.engine, survived), &shared, clients, line)?
            }
        };
        let here = LoopState::new(shared, slots);
        let event_loop = EventLoop::new(poll, Some(listener), here, self.stop.clone())
            .map_err(system("make an event loop"))?;
        let thread = std::thread::Builder::new().name("atoll-ring-loop".to_owned());
        let ending = Ending(self.shared.clone());
        let run = move || {
            let _ending = ending;
            event_loop.run().inspect_err(|error| tracing::error!(%error, "an event loop failed"))
        };
        let thread = thread.spawn(run).map_err(system("begin a thread"))?;
        self.wakers.push(waker);
        self.threads.push(thread);
        Ok(())
    }

    /// If other machines can reach the address, scrapers have to show the token, and to encrypt it if the
    /// node has a certificate.
    fn open_metrics(&mut self, options: &NodeOptions) -> Result<(), NodeError> {
        let Some(listen) = options.metrics else { return Ok(()) };
        let guard = match listen.ip().is_loopback() {
            true => metrics::Guard::default(),
            false => metrics::Guard {
                token: options.token.clone(),
                tls: options.tls.as_ref().map(|tls| tls.clients.clone()),
            },
        };
        self.shared.is_metered.store(true, Ordering::Release);
        let shared = self.shared.clone();
        let tells = Arc::new(move || metrics::text(&shared));
        self.metrics_door = Some(metrics::Door::open(listen, guard, options.clock.clone(), tells)?);
        Ok(())
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name by which clients know it.
    #[must_use]
    pub fn name(&self) -> NodeName {
        self.shared.chosen.name
    }

    /// Its counters, in the format of Prometheus.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        metrics::text(&self.shared)
    }

    /// Where it serves these over HTTP, if anywhere.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_door.as_ref().map(metrics::Door::address)
    }

    /// Sets the table that clients are told of, unless a newer one is known.
    pub fn set_table(&self, table: SlotTable) {
        self.shared.set_table(table);
    }

    /// A handle to wait for the end of its loop. It ends because of a failure, which [`Node::stop`] returns,
    /// or because the node was stopped.
    #[must_use]
    pub fn ending(&self) -> NodeEnding {
        NodeEnding(self.shared.clone())
    }

    /// Ends all connections, closes the store, and waits until both are done.
    ///
    /// # Errors
    /// [`NodeError`]: why the loop had ended, or why the store could not be closed cleanly.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), NodeError> {
        self.stop.store(true, Ordering::Release);
        for waker in &self.wakers {
            // A loop that cannot be woken sees the flag at its next tick.
            let _ = waker.wake();
        }
        self.periodic_sync = None;
        self.metrics_door = None;
        let ended = self.threads.drain(..).map(|thread| thread.join().unwrap_or(Err(NodeError::Loop)));
        let ended = ended.fold(Ok(()), Result::and);
        let noted = if self.engine.is_closed() { Ok(()) } else { reliance::note_clean_end(&self.engine) };
        ended.and(noted).and(self.engine.close_shared().map_err(NodeError::from))
    }
}

/// A handle to wait for the end of a node.
pub struct NodeEnding(Arc<Shared>);

impl NodeEnding {
    /// Waits until the node ends.
    pub fn wait(&self) {
        self.0.wait_for_end();
    }
}

/// Reports the end of a loop when dropped, so that a panic reports it as well.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.tell_end();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a node did not stop as it should");
        }
    }
}

/// The name kept in the store; a new store gets a new name.
fn name(engine: &Engine) -> Result<NodeName, NodeError> {
    let tree = engine.tree(reliance::NODE)?;
    if let Some(kept) = tree.get(b"name")? {
        let kept = kept.to_buffer()?;
        return NodeName::new(&kept).ok_or(NodeError::Corrupt { what: "the name of the node" });
    }
    let system = |source| NodeError::System { action: "ask for random bytes", source };
    let name = NodeName::random().map_err(system)?;
    let mut batch = WriteBatch::new();
    batch.put(&tree, b"name", name.as_str().as_bytes());
    engine.write(&batch, Durability::Synced)?;
    Ok(name)
}

/// Opens the store, and claims its folder for this process.
fn open(options: &NodeOptions) -> Result<(Engine, Option<File>), NodeError> {
    // The loop prefetches for many requests at once; a copy of a record would be one more cache miss to wait
    // for.
    let engine = Options { memory_bytes: options.memory_bytes, hot_bytes: Some(0), ..Options::default() };
    let SlotStorage::Folder(folder) = &options.place else { return Ok((Engine::in_memory(engine)?, None)) };
    if folder.join(STORE_FILE).exists() && !folder.join(RING_FILE).exists() {
        return Err(NodeError::OfStore { path: folder.clone() });
    }
    let lock = take(folder)?;
    let disk = FileDisk::open(&folder.join(RING_FILE), Mode::Create)?;
    Ok((Engine::open(Arc::new(disk), engine)?, Some(lock)))
}

fn take(folder: &Path) -> Result<File, NodeError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| NodeError::Folder { path, source }
    };
    make_folder(folder).map_err(failed(folder))?;
    let path = folder.join(LOCK_FILE);
    let lock = File::create(&path).map_err(failed(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(NodeError::InUse { path: folder.to_owned() }),
        Err(error) => Err(failed(&path)(error.into())),
    }
}

#[cfg(test)]
mod tests;
