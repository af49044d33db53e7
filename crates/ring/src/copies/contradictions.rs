//! Entries of a primary that contradict what the copy here has, and so were not taken: how many messages of
//! them came, and a line in the log that says which slot, which copy and why, at most once a second.

use crate::log_rate_limit::LogRateLimit;
use atoll_replica::{Contradiction, Moment, NodeId, Slot};

/// What copies on this node did not take.
#[derive(Debug)]
pub(crate) struct Contradictions {
    /// This node, which has the copies.
    me: NodeId,
    count: u64,
    limit: LogRateLimit,
}

impl Contradictions {
    /// None so far.
    pub(super) fn of(me: NodeId) -> Self {
        Self { me, count: 0, limit: LogRateLimit::default() }
    }

    /// Counts entries of a primary that the copy of a slot here did not take, and logs that if a line is due.
    pub(super) fn record(&mut self, now: Moment, (slot, from): (Slot, NodeId), why: Contradiction) {
        self.count += 1;
        if let Some(times) = self.limit.record(now) {
            let (slot, copy) = (slot.0, self.me);
            tracing::warn!(slot, %copy, %from, reason = %why, times, "a copy did not take entries of its primary, and stays behind");
        }
    }

    /// How many messages there were with such entries.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
