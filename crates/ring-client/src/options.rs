//! Options for opening a ring.

use atoll_resp::LatencyClass;
use atoll_tls::ClientTls;
use std::time::Duration;

/// Options of a store on a ring.
#[derive(Clone)]
pub struct RingOptions {
    /// Nodes that are asked first, as `host:port`. One of them has to answer.
    pub seeds: Vec<String>,
    /// The secret that nodes ask for; none if they ask for none.
    pub token: Option<String>,
    /// The user whose password that is, from the nodes' list of users; none for the token of the ring itself.
    pub user: Option<String>,
    /// The keyspace by its name or number; none for the default of the nodes.
    pub keyspace: Option<String>,
    /// Which certificates nodes have to show, if connections are encrypted.
    pub tls: Option<ClientTls>,
    /// Whether writes are refused by this store.
    pub read_only: bool,
    /// How long making a connection may take.
    pub connect_time_out: Duration,
    /// How long a node may leave a short request unanswered before other nodes are asked. It is longer than
    /// nodes hold a request that they can neither serve nor refuse yet: a client that gave up earlier would
    /// not learn that the request was refused.
    pub silence_first: Duration,
    /// How long a call goes on while nodes answer that they cannot serve it now.
    pub patience: Duration,
    /// How long a node may be silent before an answer begins if no other node can be asked, and how long a
    /// long request or answer may stall.
    pub request_time_out: Duration,
    /// How long a write that may have been done already is sent again, however long a call goes on, and how
    /// long one with a request id is sent at all: an earlier call may have done it. Nodes have to remember it
    /// for longer.
    pub doubt_max: Duration,
    /// The latency class of requests: nodes execute those that have time together.
    pub latency: LatencyClass,
    /// Most waits at a time.
    pub waiters_max: usize,
    /// How long a node is asked to wait at a time, at most, when few wait; with very many waits it is longer.
    /// A node that hangs, or has lost the cell without knowing it, is found out after this time. Measurements
    /// of the cost of waits make it long.
    #[doc(hidden)]
    pub turn: Duration,
}

impl RingOptions {
    /// The usual options, with these nodes to ask first.
    #[must_use]
    pub fn of(seeds: Vec<String>) -> Self {
        Self {
            seeds,
            token: None,
            user: None,
            keyspace: None,
            tls: None,
            read_only: false,
            connect_time_out: Duration::from_secs(3),
            silence_first: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            request_time_out: Duration::from_secs(30),
            doubt_max: Duration::from_secs(540),
            latency: LatencyClass::None,
            waiters_max: 100_000,
            turn: Duration::from_secs(10),
        }
    }

    /// The user to authenticate as; `default` is the one with the token of the ring.
    pub(crate) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("default")
    }

    /// The name of the store in messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("ring://{}/{}", self.seeds.join(","), self.keyspace.as_deref().unwrap_or_default())
    }
}

impl std::fmt::Debug for RingOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingOptions").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}
