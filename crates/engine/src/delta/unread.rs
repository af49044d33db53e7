//! How often, and for how long, checkpoints could not read the records beside a leaf.
//!
//! Later records put beside that leaf cannot be committed meanwhile, nor can anything else. A disk may serve
//! tomorrow what it does not read today, so the records are given up only when it has failed often and for a
//! while; but a bad sector stays bad, and a store cannot go on for ever without a checkpoint.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// A second page is given up when this many checkpoints in a row could not read it, and when the first of
/// them was at least [`LASTING`] ago.
const FAILURES_MAX: u8 = 8;

/// Where checkpoints are due all the time, [`FAILURES_MAX`] of them may fail within milliseconds. The path to
/// a disk may be gone for seconds.
const LASTING: Duration = Duration::from_secs(60);

/// The checkpoints in a row that could not read one second page. Only the checkpoint that runs changes it.
#[derive(Default)]
pub(super) struct Unread {
    failures: AtomicU8,
    /// When the first of them failed, in seconds of the store's clock.
    since: AtomicU32,
}

impl Unread {
    /// Notes that one more checkpoint could not read the page at this time. Returns whether to give it up.
    pub(super) fn note_failure(&self, now: Duration) -> bool {
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        if failures == 1 {
            self.since.store(now, Ordering::Relaxed);
        }
        self.failures.store(failures, Ordering::Relaxed);
        let lasted = now.saturating_sub(self.since.load(Ordering::Relaxed));
        failures >= FAILURES_MAX && u64::from(lasted) >= LASTING.as_secs()
    }

    /// Notes that the page was read.
    pub(super) fn end(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(unread: &Unread, times: &[u64]) -> Vec<bool> {
        times.iter().map(|&seconds| unread.note_failure(Duration::from_secs(seconds))).collect()
    }

    #[test]
    fn a_page_is_given_up_after_many_failures_over_a_while() {
        let soon = Unread::default();
        assert!(!noted(&soon, &[5; 300]).contains(&true), "all at once");
        assert_eq!(noted(&soon, &[64, 65]), [false, true]);
        let seldom = Unread::default();
        assert_eq!(noted(&seldom, &[1, 90, 180, 270, 360, 450, 540]), [false; 7]);
        assert_eq!(noted(&seldom, &[630, 720]), [true; 2]);
    }

    #[test]
    fn failures_before_the_page_was_read_do_not_count() {
        let unread = Unread::default();
        noted(&unread, &[0; 20]);
        unread.end();
        assert_eq!(noted(&unread, &[100, 100, 100, 100, 100, 100, 159, 159]), [false; 8]);
        assert_eq!(noted(&unread, &[160]), [true]);
    }
}
