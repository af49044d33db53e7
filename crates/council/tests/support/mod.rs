//! Groups on this machine, and the events that their nodes receive.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, clippy::panic)]

pub mod proxy;

use atoll_council::{Council, CouncilError, CouncilEvent, CouncilOptions, Listen};
use atoll_replica::{GroupOptions, Incarnation, Moment, NodeId, Survived, Table};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long any step may take: the machine may be busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The events of a node so far.
#[derive(Default)]
pub struct Told {
    pub incarnation: Option<Incarnation>,
    pub ring: Option<u64>,
    pub table: Option<Arc<Table>>,
    pub heard: Vec<Moment>,
    pub is_seated: bool,
    pub has_left: bool,
    /// The nodes that were down in any table.
    pub was_down: BTreeSet<NodeId>,
    pub has_failed: bool,
    pub troubles: Vec<CouncilError>,
}

/// A node with its part in the group.
pub struct Node {
    pub council: Option<Council>,
    told: Arc<(Mutex<Told>, Condvar)>,
}

pub fn now() -> Moment {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Moment(START.get_or_init(Instant::now).elapsed().as_micros() as u64)
}

impl Node {
    pub fn start(options: CouncilOptions) -> Self {
        Self::try_start(options, Survived::Nothing).unwrap()
    }

    pub fn try_start(options: CouncilOptions, survived: Survived) -> Result<Self, CouncilError> {
        // RUST_LOG=atoll_council=debug shows what happened.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        let told: Arc<(Mutex<Told>, Condvar)> = Arc::default();
        let telling = Arc::clone(&told);
        let events = move |event| {
            let mut told = telling.0.lock().unwrap();
            match event {
                CouncilEvent::Registered { incarnation, ring } => {
                    (told.incarnation, told.ring) = (Some(incarnation), Some(ring));
                }
                CouncilEvent::Table(table) => {
                    let before = told.table.replace(Arc::clone(&table));
                    let down = table.members.iter().filter(|(_, member)| !member.is_up);
                    told.was_down.extend(down.map(|(node, _)| *node));
                    assert!(before.is_none_or(|before| before.version < table.version), "tables grow");
                }
                CouncilEvent::Heard { asked_at, .. } => told.heard.push(asked_at),
                CouncilEvent::Left => told.has_left = true,
                CouncilEvent::Seated => told.is_seated = true,
                CouncilEvent::Failed(_) => told.has_failed = true,
                CouncilEvent::LacksRoom(_) => {}
                CouncilEvent::Trouble(trouble) => told.troubles.push(trouble),
            }
            drop(told);
            telling.1.notify_all();
        };
        let council = Council::start(options, Arc::new(now), survived, Box::new(events))?;
        Ok(Self { council: Some(council), told })
    }

    /// Waits until `holds` is true of the node's events.
    pub fn until(&self, what: &str, holds: impl Fn(&Told) -> bool) {
        if !self.within(PATIENCE, &holds) {
            let told = self.told.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let members = told.table.as_ref().map(|table| (table.version, table.members.clone()));
            let slot = told.table.as_ref().map(|table| table.slot(atoll_replica::Slot(0)));
            let (life, heard) = (told.incarnation, told.heard.len());
            let text =
                format!("it never came: {what}; {life:?} {heard} {members:?} {slot:?} {:?}", told.troubles);
            drop(told);
            panic!("{text}");
        }
    }

    /// Whether `holds` becomes true within this time.
    pub fn within(&self, time: Duration, holds: impl Fn(&Told) -> bool) -> bool {
        let told = self.told.0.lock().unwrap();
        let (told, timeout) = self.told.1.wait_timeout_while(told, time, |told| !holds(told)).unwrap();
        drop(told);
        !timeout.timed_out()
    }

    pub fn until_table(&self, what: &str, holds: impl Fn(&Table) -> bool) {
        self.until(what, |told| told.table.as_ref().is_some_and(|table| holds(table)));
    }

    pub fn told<T>(&self, what: impl FnOnce(&Told) -> T) -> T {
        what(&self.told.0.lock().unwrap())
    }

    /// Forgets which nodes were down before.
    pub fn forget_who_was_down(&self) {
        self.told.0.lock().unwrap().was_down.clear();
    }

    pub fn table(&self) -> Arc<Table> {
        self.told(|told| Arc::clone(told.table.as_ref().unwrap()))
    }

    pub fn council(&self) -> &Council {
        self.council.as_ref().unwrap()
    }

    pub fn kill(&mut self) {
        drop(self.council.take());
    }
}

/// A socket on a port below those that the system hands out: it is still free when a killed member restarts,
/// because no process that asks for an arbitrary port gets it.
fn socket() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 120 * 50;
    let free = (0..6_000).find_map(|_| {
        let port = 13_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 6_000;
        TcpListener::bind(("127.0.0.1", port as u16)).ok()
    });
    free.expect("a port of 13,000 to 18,999 that is free")
}

/// Sockets for `count` members, and their numbers, from 1 on, with their addresses.
pub fn sockets(count: u32) -> (Vec<TcpListener>, Vec<(NodeId, SocketAddr)>) {
    let listeners: Vec<_> = (0..count).map(|_| socket()).collect();
    let address = |listener: &TcpListener| listener.local_addr().unwrap();
    let members = (1..).map(NodeId).zip(listeners.iter().map(address)).collect();
    (listeners, members)
}

pub fn options(
    me: u32,
    members: &[(NodeId, SocketAddr)],
    slots: u32,
    listen: Option<Listen>,
    folder: Option<&Path>,
) -> CouncilOptions {
    let ring = GroupOptions { slots, copies: members.len().min(3) };
    let mut options =
        CouncilOptions::new(NodeId(me), members.to_vec(), ring, format!("127.0.0.1:{}", 7000 + me));
    options.my_listen = listen;
    options.folder = folder.map(|folder| folder.join(format!("n{me}")));
    options
}

/// A group of `count` members, each a node.
pub fn group(count: u32, slots: u32, folder: Option<&Path>) -> (Vec<Node>, Vec<(NodeId, SocketAddr)>) {
    let (listeners, members) = sockets(count);
    let nodes = listeners.into_iter().zip(1..).map(|(listener, me)| {
        Node::start(options(me, &members, slots, Some(Listen::Bound(listener)), folder))
    });
    (nodes.collect(), members)
}

/// A group whose members reach each other through proxies, indexed by the member that connects and the one
/// that it connects to.
pub struct Proxied {
    pub nodes: Vec<Node>,
    pub ways: Vec<Vec<Option<proxy::Proxy>>>,
}

impl Proxied {
    pub fn start(count: u32, slots: u32) -> Self {
        let (listeners, members) = sockets(count);
        let way = |from: usize, to: usize| (from != to).then(|| proxy::Proxy::to(members[to].1));
        let count = members.len();
        let ways: Vec<Vec<_>> = (0..count).map(|from| (0..count).map(|to| way(from, to)).collect()).collect();
        let nodes = listeners.into_iter().zip(&ways).zip(1..).map(|((listener, ways), me)| {
            let seen = members
                .iter()
                .zip(ways)
                .map(|(&(node, address), way)| (node, way.as_ref().map_or(address, |way| way.address)));
            let seen: Vec<_> = seen.collect();
            Node::start(options(me, &seen, slots, Some(Listen::Bound(listener)), None))
        });
        Self { nodes: nodes.collect(), ways }
    }

    fn around(&self, node: usize) -> impl Iterator<Item = &proxy::Proxy> {
        let from = self.ways[node].iter().flatten();
        from.chain(self.ways.iter().filter_map(move |ways| ways[node].as_ref()))
    }

    /// Cuts a node off from all others, both ways.
    pub fn cut(&self, node: usize) {
        self.around(node).for_each(proxy::Proxy::cut);
    }

    pub fn heal(&self, node: usize) {
        self.around(node).for_each(proxy::Proxy::heal);
    }
}

pub fn is_founded(table: &Table, up: usize) -> bool {
    let founded =
        |slot: atoll_replica::Configuration| slot.primary.is_some() && slot.in_sync.len() == up.min(3);
    table.slots.iter().all(founded) && table.members.values().filter(|member| member.is_up).count() == up
}
