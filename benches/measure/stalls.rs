//! The control thread: does nothing but sleep, and so feels only what the machine does to everybody.
//!
//! It runs beside every measured phase. What its worst sleep overshot is what a stall of an engine must
//! exceed before it is the engine's. Its own CPU time is known and taken off the phase's.

use rustix::thread::{ClockId, NanosleepRelativeResult, Timespec, clock_nanosleep_relative};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(2);

/// What the control thread felt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// The most that a sleep overshot, in microseconds.
    pub worst_overshoot_us: f64,
    /// CPU time of the control thread.
    pub cpu_seconds: f64,
}

/// The running thread.
pub struct ControlThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Control>,
}

impl ControlThread {
    /// Starts to sleep.
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self { stop, thread: std::thread::spawn(move || nap_until(&stopped)) }
    }

    /// Ends the thread and returns what it felt.
    pub fn finish(self) -> Control {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn nap_until(stopped: &AtomicBool) -> Control {
    // The default slack of 50 us would count as overshoot.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let nap = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as _ };
    let mut worst = Duration::ZERO;
    while !stopped.load(Ordering::Relaxed) {
        let before = Instant::now();
        match clock_nanosleep_relative(ClockId::Monotonic, &nap) {
            NanosleepRelativeResult::Ok => worst = worst.max(before.elapsed().saturating_sub(NAP)),
            NanosleepRelativeResult::Interrupted(_) | NanosleepRelativeResult::Err(_) => {}
        }
    }
    let cpu = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Control {
        worst_overshoot_us: worst.as_secs_f64() * 1e6,
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
    }
}
