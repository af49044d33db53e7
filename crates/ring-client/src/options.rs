//! What can be chosen when a ring is opened.

use atoll_resp::LatencyClass;
use atoll_tls::ClientTls;
use std::time::Duration;

/// Options of a store on a ring.
#[derive(Clone)]
pub struct RingOptions {
    /// Nodes that are asked first, as `host:port`; one of them has to answer.
    pub seeds: Vec<String>,
    /// What nodes want to hear first; none where they ask for nothing.
    pub token: Option<String>,
    /// Whose password that is, of the users that nodes have a list of; none for the token of the ring itself.
    pub user: Option<String>,
    /// The keyspace by its name or number; none for where nodes put whoever says nothing.
    pub keyspace: Option<String>,
    /// Whom nodes are to show a certificate of, where what goes to them is encrypted.
    pub tls: Option<ClientTls>,
    /// Whether writes are refused here already.
    pub read_only: bool,
    /// How long a connection may take to be made.
    pub connect_time_out: Duration,
    /// How long a node may say nothing to a short request before others are asked. It is longer than nodes
    /// hold what they can neither serve nor refuse yet: who gave up before would not know that it was
    /// refused.
    pub silence_first: Duration,
    /// How long a call goes on while nodes answer that they cannot serve it now.
    pub patience: Duration,
    /// How long a node may say nothing before its answer is there, where nobody else can be asked, and how
    /// long a long request or answer may stand still on its way.
    pub request_time_out: Duration,
    /// How long a write is sent again that may have been done already, however long a call goes on. Nodes
    /// have to remember it for longer.
    pub doubt_max: Duration,
    /// How long requests may take: nodes execute those that have time together.
    pub latency: LatencyClass,
    /// Most waits at once.
    pub waiters_max: usize,
    /// For how long a node is asked to wait at a time, at most, where few wait; of very many each is asked
    /// for longer. One that hangs, or has the cell no more and does not know it, is found out behind it.
    /// Whoever counts what waits cost lets it be long.
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

    /// Who it is that shows the token; `default` is whoever shows that of the ring.
    pub(crate) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("default")
    }

    /// How the store is called in messages.
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
