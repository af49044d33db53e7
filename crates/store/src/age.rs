//! Elapsed time, measured by clocks that keep running while the machine sleeps or the process is stopped.
//!
//! Invariant: no age is reported too short. Where the clocks disagree, because one was set meanwhile, the
//! longer age counts.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// On other systems the monotonic clock runs on while the machine sleeps, or no clock of theirs does.
#[cfg(not(target_os = "linux"))]
const STEADY: ClockId = ClockId::Monotonic;
#[cfg(target_os = "linux")]
const STEADY: ClockId = ClockId::Boottime;

/// One moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    steady: Duration,
    /// In a virtual machine that was stopped, this may be the only clock that was set right.
    wall: Duration,
}

impl Moment {
    /// The current moment.
    #[must_use]
    pub fn now() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
        };
        Self { steady: read(STEADY), wall: read(ClockId::Realtime) }
    }

    /// The time that has passed since this moment, never too short.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.until(&Self::now())
    }

    /// The moment that long before this one.
    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        Self { steady: self.steady.saturating_sub(by), wall: self.wall.saturating_sub(by) }
    }

    fn until(&self, now: &Self) -> Duration {
        now.steady.saturating_sub(self.steady).max(self.wall.abs_diff(now.wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_clocks_the_one_that_saw_more_time_counts() {
        let at =
            |steady, wall| Moment { steady: Duration::from_secs(steady), wall: Duration::from_secs(wall) };
        let cases = [(at(10, 100), 0), (at(70, 101), 60), (at(11, 90_100), 90_000), (at(11, 40), 60)];
        for (now, seconds) in cases {
            assert_eq!(at(10, 100).until(&now), Duration::from_secs(seconds), "{now:?}");
        }
        assert!(Moment::now().age() < Duration::from_secs(3600));
    }
}
