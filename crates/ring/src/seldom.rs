//! What strangers can have said in the log as often as they like is said once a second, and how often it
//! happened.

use atoll_replica::Moment;

/// From one time to the next, in microseconds.
const EACH_US: u64 = 1_000_000;

/// What is said seldom.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    said_at: Option<Moment>,
    /// How often it happened since it was said.
    times: u64,
}

impl Seldom {
    /// It happened; if it is to be said now: how often, since it was said last.
    pub(crate) fn happened(&mut self, now: Moment) -> Option<u64> {
        self.times += 1;
        self.due(now)
    }

    /// Time passed; if it happened and is to be said now: how often. So the last few are reported as well
    /// once it stops happening.
    pub(crate) fn due(&mut self, now: Moment) -> Option<u64> {
        let is_due = self.said_at.is_none_or(|said_at| now >= said_at.after(EACH_US));
        (is_due && self.times > 0).then(|| {
            self.said_at = Some(now);
            std::mem::take(&mut self.times)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_once_a_second_with_how_often_it_did() {
        let mut seldom = Seldom::default();
        let said: Vec<_> =
            (0..3_000).filter_map(|at_ms| seldom.happened(Moment(7 + at_ms * 1_000))).collect();
        assert_eq!(said, [1, 1_000, 1_000]);
        // The last ones are said though nothing more happens, once.
        assert_eq!(seldom.due(Moment(7 + 2_999_000)), None);
        let later = Moment(7 + 3_000_000);
        assert_eq!([seldom.due(later), seldom.due(later.after(EACH_US))], [Some(999), None]);
    }
}
