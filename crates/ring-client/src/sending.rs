//! What is known of a request on its way: whether a write may be done, and for how long a try may go
//! unanswered.

use crate::options::RingOptions;
use atoll_store::age;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// When a try was sent: by the clock of timers, which stands while the machine sleeps, and by those that go
/// on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    pub(crate) instant: Instant,
    moment: age::Moment,
}

impl SentAt {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), moment: age::Moment::now() }
    }

    /// Now, where the machine slept for so long since.
    #[cfg(test)]
    pub(crate) fn before_sleep(slept: Duration) -> Self {
        let now = Self::now();
        Self { moment: now.moment.earlier(slept), ..now }
    }
}

/// What became of a write on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Since when somebody waits for it.
    pub(crate) began: Instant,
    /// Whether it may have arrived, and was not answered.
    is_sent: AtomicBool,
    /// When the first try was sent that may have arrived, and was not answered.
    doubtful_since: OnceLock<SentAt>,
}

impl Default for Sending {
    fn default() -> Self {
        Self { began: Instant::now(), is_sent: AtomicBool::new(false), doubtful_since: OnceLock::new() }
    }
}

impl Sending {
    /// It may arrive from now on.
    pub(crate) fn begin(&self) {
        self.is_sent.store(true, Ordering::SeqCst);
    }

    /// The last try was surely not done.
    pub(crate) fn refused(&self) {
        self.is_sent.store(false, Ordering::SeqCst);
    }

    /// A try that was sent then may be done, and was not answered.
    pub(crate) fn doubt(&self, sent_at: SentAt) {
        self.doubtful_since.get_or_init(|| sent_at);
    }

    /// Until when it may be sent again, if a try may be done: behind that it could be done a second time.
    /// Nodes forget by dates, so what the machine slept since then counts as well.
    pub(crate) fn sent_until(&self, doubt_max: Duration) -> Option<Instant> {
        let since = self.doubtful_since.get()?;
        let slept = since.moment.age().saturating_sub(since.instant.elapsed());
        Some(since.instant + doubt_max.saturating_sub(slept))
    }

    /// Whether some earlier try may still come true, whatever was answered to the last one.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful_since.get().is_some()
    }

    /// Whether any try may have come true.
    pub(crate) fn may_be_done(&self) -> bool {
        self.is_sent.load(Ordering::SeqCst) || self.is_doubtful()
    }
}

/// How long the tries of a call may go unanswered.
///
/// A node that hangs says nothing, and neither does its host: others are asked while there is time. The more
/// often that was for nothing the longer it may take, and what would be the last try as long as any answer.
/// The first try never is the last one, however short the time of the call: by then another node may have
/// what this one had.
///
/// Invariant: no call ends behind a try that was given up sooner than that, also where that was noticed late,
/// as in a program that had no processor for a while.
#[derive(Debug)]
pub(crate) struct Silence {
    next: Duration,
    most: Duration,
    /// Whether a try was given up.
    is_tried: bool,
    /// Whether the try that was begun last may take as long as any answer.
    is_last: bool,
    /// Whether it was given up sooner than that.
    owes_last: bool,
}

impl Silence {
    pub(crate) fn of(options: &RingOptions) -> Self {
        let most = options.request_time_out;
        Self {
            next: options.silence_first.min(most),
            most,
            is_tried: false,
            is_last: false,
            owes_last: false,
        }
    }

    /// How long a try may go unanswered that begins then, of a call that ends then.
    pub(crate) fn of_try(&mut self, begins: Instant, ends: Instant) -> Duration {
        let is_time_over = ends.saturating_duration_since(begins) <= self.next;
        let is_last = (is_time_over && self.is_tried) || self.next == self.most;
        (self.is_last, self.owes_last) = (is_last, false);
        if self.is_last { self.most } else { self.next }
    }

    /// Whether one more try is due, though the time of the call is over.
    pub(crate) fn owes_last(&self) -> bool {
        self.owes_last
    }

    /// A try ended so. What came at once, as where nobody listens, says nothing of how long an answer takes.
    pub(crate) fn was_for_nothing(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.next = self.next.saturating_mul(2).min(self.most);
            (self.is_tried, self.owes_last) = (true, !self.is_last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBT_MAX: Duration = Duration::from_secs(540);

    #[tokio::test(start_paused = true)]
    async fn nodes_forget_while_a_machine_sleeps() {
        let left = |slept: u64| {
            let sending = Sending::default();
            assert_eq!(sending.sent_until(DOUBT_MAX), None);
            sending.doubt(SentAt::before_sleep(Duration::from_secs(slept)));
            sending.sent_until(DOUBT_MAX).unwrap().saturating_duration_since(Instant::now()).as_secs_f64()
        };
        // The clock that is paused here is the one that a test may hold; the others went on for a moment.
        for (slept, from) in [(0, 530.0), (300, 230.0), (540, 0.0), (20 * 60, 0.0)] {
            assert!((from..=from + 10.0).contains(&left(slept)), "{slept}: {}", left(slept));
        }
    }
}
