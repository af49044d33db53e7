//! The state of a request under way: whether a write may be done, and how long a try may go unanswered.

use crate::options::RingOptions;
use atoll_store::{Durability, age};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// When a try was sent: by the clock of timers, which stops while the machine sleeps, and by a clock that
/// does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    pub(crate) instant: Instant,
    moment: age::Moment,
}

impl SentAt {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), moment: age::Moment::now() }
    }

    /// Now, as if the machine had slept for this long since.
    #[cfg(test)]
    pub(crate) fn before_sleep(slept: Duration) -> Self {
        let now = Self::now();
        Self { moment: now.moment.earlier(slept), ..now }
    }
}

/// The state of a write under way. By default it may survive as little as anything, and nobody asks.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Since when the caller waits for it.
    pub(crate) began: Instant,
    /// Whether it may have arrived without being answered.
    is_sent: AtomicBool,
    /// When the first try was sent that may have arrived without being answered.
    doubtful_since: OnceLock<SentAt>,
    /// For a write under the caller's request id: when this call began. An earlier call may have done it.
    named_at: Option<SentAt>,
    /// What it has to survive, if anybody asks.
    pub(crate) least: Option<Durability>,
    /// What it survives, once it is acknowledged by a node that said so.
    keeps: OnceLock<Durability>,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            is_sent: AtomicBool::new(false),
            doubtful_since: OnceLock::new(),
            named_at: None,
            least: None,
            keeps: OnceLock::new(),
        }
    }
}

impl Sending {
    /// A write that has to survive this.
    pub(crate) fn of(least: Durability) -> Self {
        Self { least: Some(least), ..Self::default() }
    }

    /// The same write under the caller's request id, in a call that began at this time.
    pub(crate) fn named(self, began: SentAt) -> Self {
        Self { named_at: Some(began), ..self }
    }

    /// Records that a node acknowledged it that keeps this, as far as it said so.
    pub(crate) fn acknowledged(&self, keeps: Option<Durability>) {
        if let Some(keeps) = keeps {
            self.keeps.get_or_init(|| keeps);
        }
    }

    /// What it survives, as far as the node said so that acknowledged it.
    pub(crate) fn keeps(&self) -> Durability {
        self.keeps.get().copied().unwrap_or(Durability::Buffered)
    }

    /// Records that a try may arrive from now on.
    pub(crate) fn begin(&self) {
        self.is_sent.store(true, Ordering::SeqCst);
    }

    /// Records that the last try was certainly not done.
    pub(crate) fn refused(&self) {
        self.is_sent.store(false, Ordering::SeqCst);
    }

    /// Records that a try sent at this time may be done and was not answered.
    pub(crate) fn doubt(&self, sent_at: SentAt) {
        self.doubtful_since.get_or_init(|| sent_at);
    }

    /// Until when it may be sent if an earlier try, or one of an earlier call, may be done: after that it
    /// could be done a second time. Nodes forget by dates, so time during which the machine slept counts as
    /// well.
    pub(crate) fn sent_until(&self, doubt_max: Duration) -> Option<Instant> {
        // A call begins before its tries.
        let since = self.named_at.as_ref().or_else(|| self.doubtful_since.get())?;
        let slept = since.moment.age().saturating_sub(since.instant.elapsed());
        Some(since.instant + doubt_max.saturating_sub(slept))
    }

    /// Whether an earlier try may still take effect, whatever the answer to the last one.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful_since.get().is_some()
    }

    /// Whether any try may have taken effect.
    pub(crate) fn may_be_done(&self) -> bool {
        self.is_sent.load(Ordering::SeqCst) || self.is_doubtful()
    }
}

/// How long the tries of a call may go unanswered.
///
/// A node that hangs says nothing, and neither does its host, so other nodes are asked while there is time.
/// Each try in vain doubles the time of the next, and the last try may take as long as any answer. The first
/// try is never the last one, however short the time of the call: by then another node may lead the slot.
///
/// Invariant: a call never ends with a try that was given up sooner than that, even if this was noticed late,
/// as in a program that got no processor for a while.
#[derive(Debug)]
pub(crate) struct Silence {
    next: Duration,
    most: Duration,
    /// Whether a try was given up.
    is_tried: bool,
    /// Whether the current try may take as long as any answer.
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

    /// How long a try may go unanswered that begins at `begins`, in a call that ends at `ends`.
    pub(crate) fn of_try(&mut self, begins: Instant, ends: Instant) -> Duration {
        let is_time_over = ends.saturating_duration_since(begins) <= self.next;
        let is_last = (is_time_over && self.is_tried) || self.next == self.most;
        (self.is_last, self.owes_last) = (is_last, false);
        if self.is_last { self.most } else { self.next }
    }

    /// Whether one more try is due although the time of the call is over.
    pub(crate) fn owes_last(&self) -> bool {
        self.owes_last
    }

    /// Records that a try failed. An immediate failure, as when nothing listens, says nothing about the time
    /// that an answer takes.
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
        // Only the clock of timers is paused here; the other one went on for a moment.
        for (slept, from) in [(0, 530.0), (300, 230.0), (540, 0.0), (20 * 60, 0.0)] {
            assert!((from..=from + 10.0).contains(&left(slept)), "{slept}: {}", left(slept));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_caller_may_have_sent_before_is_sent_for_as_long_as_its_call_is_young() {
        let began = |slept: u64| SentAt::before_sleep(Duration::from_secs(slept));
        let left = |sending: &Sending| {
            sending.sent_until(DOUBT_MAX).unwrap().saturating_duration_since(Instant::now()).as_secs()
        };
        let [young, old] = [60, 20 * 60].map(|slept| Sending::default().named(began(slept)));
        assert!((470..=480).contains(&left(&young)), "{}", left(&young));
        assert_eq!(left(&old), 0);
        young.doubt(SentAt::now());
        assert!((470..=480).contains(&left(&young)), "a doubt gives it no more time");
        assert!(!old.is_doubtful() && !old.may_be_done(), "nothing of this call was sent");
    }
}
