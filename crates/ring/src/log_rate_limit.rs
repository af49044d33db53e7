//! Rate-limits log lines that strangers could trigger at will: at most one a second, with the number of
//! events since the last one.

use atoll_replica::Moment;

/// Shortest time between two lines, in microseconds.
const INTERVAL_US: u64 = 1_000_000;

/// A rate-limited log line.
#[derive(Debug, Default)]
pub(crate) struct LogRateLimit {
    logged_at: Option<Moment>,
    /// Events since the last line.
    events: u64,
}

impl LogRateLimit {
    /// Counts an event. Returns how many happened since the last line if one is due.
    pub(crate) fn record(&mut self, now: Moment) -> Option<u64> {
        self.events += 1;
        self.due(now)
    }

    /// Returns how many events happened since the last line if a line is due. Called regularly, it reports
    /// the last few events after they have stopped.
    pub(crate) fn due(&mut self, now: Moment) -> Option<u64> {
        let is_due = self.logged_at.is_none_or(|logged_at| now >= logged_at.after(INTERVAL_US));
        (is_due && self.events > 0).then(|| {
            self.logged_at = Some(now);
            std::mem::take(&mut self.events)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_once_a_second_with_how_often_it_did() {
        let mut limit = LogRateLimit::default();
        let said: Vec<_> = (0..3_000).filter_map(|at_ms| limit.record(Moment(7 + at_ms * 1_000))).collect();
        assert_eq!(said, [1, 1_000, 1_000]);
        // The last events are reported once, although nothing more happens.
        assert_eq!(limit.due(Moment(7 + 2_999_000)), None);
        let later = Moment(7 + 3_000_000);
        assert_eq!([limit.due(later), limit.due(later.after(INTERVAL_US))], [Some(999), None]);
    }
}
