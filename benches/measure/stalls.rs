//! The control thread: it only sleeps, so its delays show what the machine does to every thread.
//!
//! It runs beside measured phases and records when each of its sleeps took too long. A stall of a call in
//! the same time is not the engine's fault; one at any other time is. Its own CPU time is known and
//! subtracted from the phase's.

use super::clock::{Ticks, ticks_now, ticks_per_ns};
use rustix::thread::{ClockId, NanosleepRelativeResult, Timespec, clock_nanosleep_relative};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const NAP: Duration = Duration::from_millis(2);

/// Any timer overshoots by less than this.
const FELT_MIN_NS: f64 = 100_000.0;
/// How many delays are recorded; later ones are ignored.
const FELT_MAX: usize = 1 << 16;

/// A period of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its first moment.
    pub from: Ticks,
    /// Its last moment.
    pub until: Ticks,
}

impl Span {
    /// Its length.
    pub fn ticks(self) -> Ticks {
        self.until.saturating_sub(self.from)
    }

    fn overlap(self, other: Self) -> Ticks {
        self.until.min(other.until).saturating_sub(self.from.max(other.from))
    }
}

/// The delays of the control thread.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// The longest overshoot of a sleep, in microseconds.
    pub worst_overshoot_us: f64,
    /// When sleeps overshot, in order.
    pub felt: Vec<Span>,
    /// CPU time of the control thread.
    pub cpu_seconds: f64,
}

impl Control {
    /// How much of this period the control thread was kept from running.
    pub fn felt_in(&self, span: Span) -> Ticks {
        let first = self.felt.partition_point(|felt| felt.until <= span.from);
        let within = self.felt[first..].iter().take_while(|felt| felt.from < span.until);
        within.map(|felt| felt.overlap(span)).sum()
    }
}

/// The running control thread.
pub struct ControlThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Control>,
}

impl ControlThread {
    /// Starts the thread.
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self { stop, thread: std::thread::spawn(move || nap_until(&stopped)) }
    }

    /// Ends the thread and returns its delays.
    pub fn finish(self) -> Control {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn nap_until(stopped: &AtomicBool) -> Control {
    // The default slack of 50 us would count as overshoot.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let nap = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as _ };
    let (nap_ticks, least) =
        ((NAP.as_nanos() as f64 * ticks_per_ns()) as Ticks, (FELT_MIN_NS * ticks_per_ns()) as Ticks);
    let (mut worst, mut felt) = (0, Vec::new());
    while !stopped.load(Ordering::Relaxed) {
        let due = ticks_now() + nap_ticks;
        match clock_nanosleep_relative(ClockId::Monotonic, &nap) {
            NanosleepRelativeResult::Ok => {
                let overshot = Span { from: due, until: ticks_now() };
                worst = worst.max(overshot.ticks());
                if overshot.ticks() >= least && felt.len() < FELT_MAX {
                    felt.push(overshot);
                }
            }
            NanosleepRelativeResult::Interrupted(_) | NanosleepRelativeResult::Err(_) => {}
        }
    }
    let cpu = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Control {
        worst_overshoot_us: worst as f64 / ticks_per_ns() / 1000.0,
        felt,
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_felt_in_that_very_time_counts() {
        let span = |from, until| Span { from, until };
        let control = Control { felt: vec![span(10, 20), span(30, 50), span(90, 95)], ..Control::default() };
        assert_eq!(control.felt_in(span(0, 100)), 35);
        assert_eq!(control.felt_in(span(15, 40)), 15);
        assert_eq!(control.felt_in(span(20, 30)), 0);
        assert_eq!(control.felt_in(span(96, 1000)), 0);
        assert_eq!(Control::default().felt_in(span(0, 100)), 0);
    }

    #[test]
    fn a_thread_that_sleeps_keeps_when_it_overslept() {
        let from = ticks_now();
        let control = ControlThread::start();
        // Long enough for a few sleeps, delayed or not.
        let until = from + (20e6 * ticks_per_ns()) as Ticks;
        while ticks_now() < until {
            std::thread::yield_now();
        }
        let felt = control.finish();
        assert!(felt.felt.windows(2).all(|pair| pair[0].until <= pair[1].from), "{:?}", felt.felt);
        let worst = felt.felt.iter().map(|span| span.ticks()).max().unwrap_or(0);
        assert!(worst as f64 / ticks_per_ns() / 1000.0 <= felt.worst_overshoot_us + 0.001);
    }
}
