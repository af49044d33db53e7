//! The options of a node.

use crate::NodeError;
use crate::access::AccessFile;
use crate::address::HostPort;
use crate::clock::{Clock, SystemClock};
use crate::others::Others;
use crate::setup::RingSetup;
use crate::token::Token;
pub use atoll_replica::Persistence;
use atoll_replica::{OptionError, PlacementHints};
use atoll_resp::{LatencyClass, Limits};
use atoll_tls::{NodeTls, TlsError};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Options of a node. The defaults are meant to suit nearly every use.
#[derive(Clone)]
pub struct NodeOptions {
    /// Where clients reach it. An address that other machines can reach needs a token. Default
    /// 127.0.0.1:7379.
    pub listen: SocketAddr,
    /// The address that clients are told to connect to, if it differs from the one it listens on.
    pub announce: Option<HostPort>,
    /// Where its slots are kept. Default in memory.
    pub place: SlotStorage,
    /// What an acknowledged write survives, if slots are kept in a folder and the keyspace has no durability
    /// of its own. Default [`Persistence::EverySecond`].
    pub persistence: Persistence,
    /// The secret that clients have to show first. Default none.
    pub token: Option<Token>,
    /// The users beside `default`, and what they may do. Needs a token. Default none.
    pub access: Option<AccessFile>,
    /// Where Prometheus scrapes the metrics over HTTP. An address that other machines can reach needs a
    /// token, which Prometheus then has to show, and is served over HTTPS if the node has a certificate.
    /// Default nowhere.
    pub metrics: Option<SocketAddr>,
    /// Certificates with which clients, other nodes, and Prometheus on other machines must encrypt. Default
    /// no encryption.
    pub tls: Option<NodeTls>,
    /// Memory for the contents of slots, in bytes. Default 1 GiB.
    pub memory_bytes: u64,
    /// Limits of connections.
    pub limits: ConnectionLimits,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The other nodes of its ring; none if it is the whole ring.
    pub others: Option<Others>,
    /// What the other nodes are started with as well, for those that join by asking this one. Default none:
    /// it cannot be asked.
    pub setup: Option<Arc<RingSetup>>,
    /// Its zone and its weight among the others.
    pub hints: PlacementHints,
}

/// Where slots are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlotStorage {
    /// In memory: lost when the node ends.
    #[default]
    Memory,
    /// In a folder, which is made if it does not exist.
    Folder(PathBuf),
}

/// Limits of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections at a time; one more gets an error and is closed. Default 10,000.
    pub connections_max: usize,
    /// Memory for all of them, in bytes. Beyond it the largest are closed, those that have yet to
    /// authenticate first, and of either idle ones first. Default 512 MiB.
    pub memory_bytes_max: u64,
    /// Unread bytes of a client from which on nothing more is received from it. Default 1 MiB.
    pub unsent_bytes_pause: usize,
    /// Unread bytes of a client beyond which it is closed. Default 320 MiB, which is more than one reply.
    pub unsent_bytes_max: usize,
    /// How long a client may read nothing of what it is sent, in microseconds. Default a minute.
    pub stalled_us_max: u64,
    /// How long a client may take to authenticate, if it has to, in microseconds. Default 10 s.
    pub silent_us_max: u64,
    /// Most replies that a client may wait for at a time. Default 1,024.
    pub awaited_max: usize,
    /// Limits of one request.
    pub request: Limits,
    /// How long requests may take if the client does not say so by `AT.CLASS`. Default as short as can be.
    pub latency_class: LatencyClass,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7379).into(),
            announce: None,
            place: SlotStorage::default(),
            persistence: Persistence::default(),
            token: None,
            access: None,
            metrics: None,
            tls: None,
            memory_bytes: 1 << 30,
            limits: ConnectionLimits::default(),
            clock: Arc::new(SystemClock),
            others: None,
            setup: None,
            hints: PlacementHints::default(),
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            memory_bytes_max: 512 << 20,
            unsent_bytes_pause: 1 << 20,
            unsent_bytes_max: 320 << 20,
            stalled_us_max: 60_000_000,
            silent_us_max: 10_000_000,
            awaited_max: 1024,
            request: Limits::AUTHENTICATED,
            latency_class: LatencyClass::None,
        }
    }
}

impl NodeOptions {
    /// Whether this node can keep anything beyond its process.
    pub(crate) fn keeps(&self) -> bool {
        matches!(self.place, SlotStorage::Folder(_))
    }

    /// What a write survives with these options, where the keyspace has no durability of its own.
    pub(crate) fn persistence(&self) -> Persistence {
        match self.place {
            SlotStorage::Memory => Persistence::Off,
            SlotStorage::Folder(_) => self.persistence,
        }
    }

    /// Checks that the options are valid together.
    ///
    /// # Errors
    /// [`NodeError`], naming the option.
    pub fn validate(&self) -> Result<(), NodeError> {
        let wrong = |option, problem| Err(NodeError::Option { option, problem });
        if self.limits.connections_max == 0 {
            return wrong("limits.connections_max", "at least 1");
        }
        if self.limits.awaited_max == 0 || self.limits.unsent_bytes_pause == 0 {
            return wrong("limits.awaited_max, limits.unsent_bytes_pause", "at least 1");
        }
        if self.access.is_some() && self.token.is_none() {
            return wrong("access", "only with a token: without one every client may do everything");
        }
        if let Some(problem) = self.hints.problem() {
            return wrong("hints.zone", problem);
        }
        let peers = self.others.as_ref().map(|others| others.listen);
        let mut doors = [Some(self.listen), self.metrics, peers].into_iter().flatten();
        if let Some(address) = doors.find(|door| self.token.is_none() && !door.ip().is_loopback()) {
            return Err(NodeError::Open { address });
        }
        if let Some(Err(OptionError { option, problem })) =
            self.others.as_ref().map(|others| others.options.validate())
        {
            return wrong(option, problem);
        }
        if self.others.is_some() && self.tls.as_ref().is_some_and(|tls| tls.peers.is_none()) {
            return Err(TlsError::NoAuthority.into());
        }
        if self.listen.ip().is_unspecified() && self.announce.is_none() {
            return wrong(
                "announce",
                "when listening on all addresses, name the address that clients should use",
            );
        }
        Ok(())
    }
}
