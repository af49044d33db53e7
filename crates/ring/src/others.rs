//! How a node joins a ring of several: what is opened and started, in which order.

use crate::NodeError;
use crate::address::{HostPort, NodeAddress};
use crate::copies::Copies;
use crate::folder;
use crate::group::{GroupDoor, Joining};
use crate::keyspaces::Keyspaces;
use crate::log::SlotLog;
use crate::loop_state::Shared;
use crate::options::Persistence;
use crate::peer::Peers;
use crate::peer_addresses::PeerAddresses;
use crate::replicated_slots::{LoopEvent, ReplicatedSlots};
use crate::slots::Slots;
use crate::syncer::{Logged, PERIOD, Period, Syncer};
use atoll_engine::{Engine, EngineError};
use atoll_replica::{NodeId, Options, Survived};
use mio::{Registry, Waker};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// What a node of several has to know.
#[derive(Clone)]
pub struct Others {
    /// Its number, which is unique in the ring and never changes.
    pub me: NodeId,
    /// Where other nodes reach it. An address that other machines can reach needs a token. Default a free
    /// port of 127.0.0.1.
    pub listen: SocketAddr,
    /// The configuration group.
    pub group: Arc<dyn GroupDoor>,
    /// How copies agree; the same on all nodes.
    pub options: Options,
}

/// The tree that holds the logs of slots.
pub(crate) const LOG: &str = "log";

/// Waiting requests may take one part in this many of the memory.
const WAITING_SHARE: u64 = 4;

/// Opens the copies of a node and joins the ring. Events from other threads wake the loop.
pub(crate) fn join(
    others: &Others,
    (engine, survived): (&Engine, Survived),
    shared: &Arc<Shared>,
    clients: HostPort,
    (registry, waker): (&Registry, Arc<Waker>),
) -> Result<Slots, NodeError> {
    let listen = |source| NodeError::Listen { address: others.listen, source };
    let listener = TcpListener::bind(others.listen).map_err(listen)?;
    let heard_at = listener.local_addr().map_err(listen)?;
    let persistence = shared.chosen.persistence;
    let keeps = shared.chosen.keeps;
    let keyspaces = Keyspaces::open(engine, persistence)?;
    let mut log = if keeps { Some(SlotLog::open(engine, LOG)?) } else { None };
    let survived = match (&mut log, survived) {
        (None, _) | (_, Survived::Nothing) => Survived::Nothing,
        (Some(log), judged) => Copies::survived(log, &keyspaces, judged)?,
    };
    let tls = shared.chosen.tls.as_ref().and_then(|tls| tls.peers.clone());
    let peers =
        Peers::listen(others.me, (shared.chosen.token.clone(), tls), listener, registry).map_err(listen)?;
    let options = Options { logs: persistence != Persistence::Off, ..others.options.clone() };
    let own = (others.me, options.tick_us);
    let waiting_bytes_max = usize::try_from(shared.chosen.memory_bytes / WAITING_SHARE).unwrap_or(usize::MAX);
    let mut copies =
        Copies::new(others.me, options, keyspaces, log, peers, waiting_bytes_max, shared.chosen.gathering);
    let (sender, told) = channel();
    let tell = {
        let (sender, waker) = (sender.clone(), waker.clone());
        move |one| {
            // A loop that has ended receives nothing. One that cannot be woken receives it at its next tick.
            drop(sender.send(one));
            drop(waker.wake());
        }
    };
    let syncer = match keeps {
        true => {
            let (tell, shared) = (tell.clone(), shared.clone());
            let period = Period { length: PERIOD, is_wanted: Box::new(move || shared.keeps_any()) };
            let told = move |synced: Result<Logged, EngineError>| {
                if !matches!(&synced, Ok(written) if written.is_empty()) {
                    tell(LoopEvent::Synced(synced));
                }
            };
            let syncer = Syncer::start(engine.clone(), Some(period), told);
            Some(syncer.map_err(|source| NodeError::System { action: "begin a thread", source })?)
        }
        false => None,
    };
    let addresses = PeerAddresses::begin(others.listen, {
        let tell = tell.clone();
        move |located| tell(LoopEvent::Located(located))
    })
    .map_err(|source| NodeError::System { action: "begin a thread", source })?;
    // A node that listens on all addresses is reached by peers at the host where clients reach it.
    let host = if heard_at.ip().is_unspecified() { clients.host.clone() } else { heard_at.ip().to_string() };
    let peers_at = HostPort { host, port: heard_at.port() };
    let address = NodeAddress { name: shared.chosen.name, clients, peers: peers_at }.to_string();
    let on_event = Arc::new(move |event| tell(LoopEvent::Group(event)));
    let (of_ring, clock) = (folder::ring(engine)?, shared.chosen.clock.clone());
    let hints = shared.chosen.hints.clone();
    let joining = Joining { node: others.me, address, hints, survived, of_ring, clock, on_event };
    if others.group.keeps_on_disk() {
        folder::bind(engine)?;
    }
    copies.set_group(others.group.join(joining)?);
    let metrics = shared.metrics.clone();
    let replicated = ReplicatedSlots::new(copies, told, syncer, shared.clone(), own, addresses);
    Slots::replicated(engine, replicated, keeps, shared.chosen.memory_bytes, metrics)
}
