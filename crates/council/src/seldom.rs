//! Limits log lines that strangers can provoke at will to one a second, each with the number of occurrences.
//!
//! `crates/ring/src/log_rate_limit.rs` is the same for the event loop of a node: it has a single owner
//! instead of a mutex, uses the node's own clock, and also reports the last occurrences after they stop.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The least time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A log line that is written at most once a second.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<LastReport>);

#[derive(Debug, Default)]
struct LastReport {
    at: Option<Instant>,
    /// Occurrences since the last report.
    times: u64,
}

impl Seldom {
    /// Records an occurrence. If a report is due, returns the number of occurrences since the last one.
    pub(crate) fn happened(&self, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.times += 1;
        said.at.is_none_or(|at| now >= at + REPORT_INTERVAL).then(|| {
            said.at = Some(now);
            std::mem::take(&mut said.times)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_once_a_second_with_how_often_it_did() {
        let (seldom, began) = (Seldom::default(), Instant::now());
        let at = |at_ms: u64| began + Duration::from_millis(at_ms);
        let said: Vec<_> = (0..3_000).filter_map(|at_ms| seldom.happened(at(at_ms))).collect();
        assert_eq!(said, [1, 1_000, 1_000]);
    }
}
