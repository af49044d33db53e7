//! When requests with time are sent: together with those that come while others are under way.
//!
//! This is how TCP sends small segments (Nagle, RFC 896), one layer up: without a clock, the more is asked,
//! the more goes together. The clock is only needed for the promise of the class: half of its time is for
//! waiting, the other half for the answer.

use std::time::Duration;
use tokio::time::Instant;

/// From this many requests on, they do not wait for others.
const WAITING_MAX: usize = 64;

/// The divisor that gives the part of its time that a request may wait.
const WAIT_PART: u32 = 2;

/// What waits on a lane.
#[derive(Debug)]
pub(super) struct Together {
    patience: Duration,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Together {
    /// For requests of a class with this much time.
    pub(super) fn within(slack: Duration) -> Self {
        Self { patience: slack / WAIT_PART, since: None }
    }

    /// Records that a request came.
    pub(super) fn came(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Records that all requests are sent.
    pub(super) fn sent(&mut self) {
        self.since = None;
    }

    /// When the first of them has waited long enough.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + self.patience)
    }

    /// Whether the waiting requests are to be sent.
    pub(super) fn is_due(&self, now: Instant, waiting: usize, under_way: usize) -> bool {
        waiting > 0 && (under_way == 0 || waiting >= WAITING_MAX || self.due_at().is_some_and(|at| now >= at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_sent_at_once_and_who_is_not_waits_for_an_answer_for_company_or_for_half_of_its_time() {
        let (mut together, start) = (Together::within(Duration::from_millis(500)), Instant::now());
        assert!(!together.is_due(start, 0, 0), "there is nothing to send");
        together.came(start);
        assert!(together.is_due(start, 1, 0), "nobody else is under way");
        together.came(start + Duration::from_millis(100));
        let (early, late) = (start + Duration::from_millis(249), start + Duration::from_millis(250));
        assert!(!together.is_due(early, 2, 1));
        assert!(together.is_due(early, WAITING_MAX, 1), "enough came");
        assert!(together.is_due(late, 2, 1), "the first one came 250 ms ago");
        together.sent();
        together.came(late);
        assert!(!together.is_due(late + Duration::from_millis(1), 1, 1), "its time begins when it came");
    }
}
