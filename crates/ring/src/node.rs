//! A node: what is opened, the threads of its loops, and how they end.

use crate::NodeError;
use crate::event_loop::EventLoop;
use crate::here::{Here, Shared};
use crate::metrics::Metrics;
use crate::options::{NodeOptions, Place};
use crate::slots::Slots;
use atoll_disk::{FileDisk, Mode};
use atoll_engine::{Engine, Options};
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
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<Result<(), NodeError>>>,
    /// Locked for as long as the node has the folder.
    _lock: Option<File>,
}

/// The file of the store in its folder, and the one that says who has it.
const STORE_FILE: &str = "ring.atoll";
const LOCK_FILE: &str = "ring.lock";

impl Node {
    /// Opens the store, listens, and answers from then on, on threads of its own.
    ///
    /// # Errors
    /// [`NodeError`]: options that make no sense, an address or a folder that cannot be used, a damaged store.
    pub fn start(options: NodeOptions) -> Result<Self, NodeError> {
        options.validate()?;
        let listen = |source| NodeError::Listen { address: options.listen, source };
        let (engine, lock) = open(&options)?;
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            clock: options.clock.clone(),
            limits: options.limits.clone(),
            token: options.token.clone(),
            loops: options.loops,
        });
        let mut node = Self {
            address,
            engine,
            stop: Arc::default(),
            wakers: Vec::new(),
            threads: Vec::new(),
            _lock: lock,
        };
        node.begin_loop(listener, shared, &options)?;
        Ok(node)
    }

    fn begin_loop(
        &mut self,
        listener: TcpListener,
        shared: Arc<Shared>,
        options: &NodeOptions,
    ) -> Result<(), NodeError> {
        let system = |action| move |source| NodeError::System { action, source };
        let slots = Slots::open(&self.engine, options.persistence())?;
        let metrics = Arc::new(Metrics::default());
        let now = shared.clock.now();
        let here = Here { shared, slots, metrics, now, tickets: 0 };
        let (event_loop, waker) =
            EventLoop::new(Some(listener), here, self.stop.clone()).map_err(system("make an event loop"))?;
        let thread = std::thread::Builder::new().name("atoll-ring-0".to_owned());
        let thread = thread.spawn(move || event_loop.run()).map_err(system("begin a thread"))?;
        self.wakers.push(waker);
        self.threads.push(thread);
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, closes the store, and waits until that is done.
    ///
    /// # Errors
    /// [`NodeError`]: why a loop ended before, or the store could not be closed as it should.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), NodeError> {
        self.stop.store(true, Ordering::Release);
        for waker in &self.wakers {
            // A loop that is not woken wakes up with its next tick.
            let _ = waker.wake();
        }
        let ended = self.threads.drain(..).map(|thread| thread.join().unwrap_or(Err(NodeError::Loop)));
        let ended = ended.fold(Ok(()), Result::and);
        ended.and(self.engine.close_shared().map_err(NodeError::from))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a node did not stop as it should");
        }
    }
}

/// Opens the store, and takes its folder for this process.
fn open(options: &NodeOptions) -> Result<(Engine, Option<File>), NodeError> {
    let engine = Options { memory_bytes: options.memory_bytes, ..Options::default() };
    let Place::Folder(folder) = &options.place else { return Ok((Engine::in_memory(engine)?, None)) };
    let lock = take(folder)?;
    let disk = FileDisk::open(&folder.join(STORE_FILE), Mode::Create)?;
    Ok((Engine::open(Arc::new(disk), engine)?, Some(lock)))
}

fn take(folder: &Path) -> Result<File, NodeError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| NodeError::Folder { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join(LOCK_FILE);
    let lock = File::create(&path).map_err(failed(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(NodeError::InUse { path: folder.to_owned() }),
        Err(error) => Err(failed(&path)(error.into())),
    }
}
