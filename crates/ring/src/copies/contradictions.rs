//! Copies that contradict each other: entries of a primary that the copy here did not take because it has
//! others, and what a copy said that its primary here did not believe. How many such messages came, and a
//! line in the log that says which slot, which copy and why, at most once a second.

use crate::log_rate_limit::LogRateLimit;
use atoll_replica::{Contradiction, Moment, NodeId, Slot};

/// What copies on this node did not take from others.
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

    /// Counts what the copy of a slot here did not take from another one, and logs that if a line is due.
    pub(super) fn record(&mut self, now: Moment, (slot, from): (Slot, NodeId), why: Contradiction) {
        self.count += 1;
        if let Some(times) = self.limit.record(now) {
            let (slot, me) = (slot.0, self.me);
            match why {
                Contradiction::Beyond => {
                    tracing::warn!(slot, copy = %from, primary = %me, reason = %why, times, "a primary does not count on a copy that has another history");
                }
                _ => {
                    tracing::warn!(slot, copy = %me, %from, reason = %why, times, "a copy did not take entries of its primary, and stays behind");
                }
            }
        }
    }

    /// How many such messages there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
