//! The cheapest clock there is: reading it takes around ten nanoseconds, so that every single call can be
//! timed.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A moment, in units of the clock.
pub type Ticks = u64;

/// The moment now.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code, reason = "the instruction has no safe form")]
pub fn ticks_now() -> Ticks {
    // SAFETY: the instruction exists on every x86-64 processor and touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The moment now.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn ticks_now() -> Ticks {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as Ticks
}

/// Calibrates the clock ahead of its first use, because that takes a moment.
pub fn calibrate() {
    ticks_per_ns();
}

/// How many ticks a nanosecond has, measured once against the system's clock.
pub fn ticks_per_ns() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, ticks) = (Instant::now(), ticks_now());
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        (ticks_now() - ticks) as f64 / start.elapsed().as_nanos() as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_measure_time() {
        let rate = ticks_per_ns();
        let (start, ticks) = (Instant::now(), ticks_now());
        while start.elapsed() < Duration::from_millis(20) {}
        let measured_ns = (ticks_now() - ticks) as f64 / rate;
        assert!(measured_ns > 15e6, "{measured_ns} ns for at least 20 ms");
    }
}
