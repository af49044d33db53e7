//! The counters of a node.
//!
//! Invariant: each counter is changed by one thread only, that of its loop. Any thread may read it.

mod door;
mod kinds;
mod socket;
mod text;

pub(crate) use door::{Door, Guard};
pub(crate) use text::text;

use crate::dates::ClockSeen;
use crate::group::GroupHeard;
use atoll_replica::NodeId;
use atoll_resp::COMMANDS;
use kinds::ErrorKinds;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread changes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Not an atomic addition: only this thread changes it, and a load and a store cost a tenth of that.
        self.set(self.get().wrapping_add(count));
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.set(self.get().saturating_sub(count));
    }

    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one loop.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) commands: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) connections_dropped: Counter,
    /// Fields that are being watched.
    pub(crate) watches: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) connection_bytes: Counter,
    pub(crate) errors: Counter,
    pub(crate) error_kinds: ErrorKinds,
    /// Messages to other nodes, and how many were dropped because too much waited or their connection ended.
    pub(crate) peer_messages_sent: Counter,
    pub(crate) peer_messages_dropped: Counter,
    pub(crate) peer_messages_received: Counter,
    /// Incoming copies of slots that were given up because the disk had no room, and those that were too long
    /// to be gathered.
    pub(crate) copies_given_up: Counter,
    pub(crate) long_copies: Counter,
    /// Entries of other nodes with dates far ahead.
    pub(crate) entries_ahead: Counter,
    /// Messages with entries that contradicted a copy here.
    pub(crate) entries_not_taken: Counter,
    /// Commands at which the store failed.
    pub(crate) failures: Counter,
    /// Whether the disk has too little room for writes that add data.
    pub(crate) out_of_space: Counter,
    pub(crate) protocol_errors: Counter,
    pub(crate) authentication_failures: Counter,
    pub(crate) access_refused: Counter,
    pub(crate) moved: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) expired: Counter,
    pub(crate) commands_per_second: Counter,
    pub(crate) rounds: Counter,
    /// Turns of connections that were held back to share a round with others.
    pub(crate) gathered: Counter,
    /// Calls of each command, in the order of [`COMMANDS`], and how many of them got an error reply at once.
    pub(crate) calls: Box<[(Counter, Counter)]>,
}

impl Metrics {
    /// Counts a reply if it is an error. Returns whether it is.
    pub(crate) fn count_reply(&self, reply: &[u8]) -> bool {
        let is_error = reply.first() == Some(&b'-');
        if is_error {
            self.errors.add(1);
            self.error_kinds.count(reply);
        }
        is_error
    }
}

/// What a loop knows of the ring, at most a second old.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingSeen {
    /// The last answer of the configuration group.
    pub(crate) group: GroupHeard,
    /// The other nodes.
    pub(crate) others: OthersSeen,
    /// Memory of the engine.
    pub(crate) memory_bytes: u64,
    /// Size of its file.
    pub(crate) file_bytes: u64,
}

/// What a node itself knows of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct OthersSeen {
    /// How many entries each of them lacks of the slots that this node leads.
    pub(crate) behind: BTreeMap<NodeId, u64>,
    /// Nodes to which there is no connection.
    pub(crate) unreached: Vec<NodeId>,
    /// How this node's clock compares with theirs.
    pub(crate) clock: ClockSeen,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            commands: Counter::default(),
            connections: Counter::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            connections_dropped: Counter::default(),
            watches: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            connection_bytes: Counter::default(),
            errors: Counter::default(),
            error_kinds: ErrorKinds::default(),
            peer_messages_sent: Counter::default(),
            peer_messages_dropped: Counter::default(),
            peer_messages_received: Counter::default(),
            copies_given_up: Counter::default(),
            long_copies: Counter::default(),
            entries_ahead: Counter::default(),
            entries_not_taken: Counter::default(),
            failures: Counter::default(),
            out_of_space: Counter::default(),
            protocol_errors: Counter::default(),
            authentication_failures: Counter::default(),
            access_refused: Counter::default(),
            moved: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            commands_per_second: Counter::default(),
            rounds: Counter::default(),
            gathered: Counter::default(),
            calls: COMMANDS.iter().map(|_| Default::default()).collect(),
        }
    }
}

/// Resident memory of this process as Linux reports it; 0 on other systems.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
