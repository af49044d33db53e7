//! What strangers can have said in the log as often as they like is said once a second, and how often it
//! happened.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// From one time to the next.
const EACH: Duration = Duration::from_secs(1);

/// What is said seldom.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    at: Option<Instant>,
    /// How often it happened since.
    times: u64,
}

impl Seldom {
    /// It happened; if it is to be said now: how often, since it was said last.
    pub(crate) fn happened(&self, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.times += 1;
        said.at.is_none_or(|at| now >= at + EACH).then(|| {
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
