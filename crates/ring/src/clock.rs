//! The only place where a node reads clocks.

use atoll_replica::Moment;

/// A reading of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, also across sleep of the machine; comparable only on this machine.
    pub moment: Moment,
    /// Milliseconds since 1970; may be set back.
    pub date_ms: u64,
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Reads the time.
    fn now(&self) -> Now;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        use rustix::time::{ClockId, clock_gettime};
        let moment = clock_gettime(ClockId::Boottime);
        let date = clock_gettime(ClockId::Realtime);
        let count = |seconds: i64, nanoseconds: i64, per_second: u64| {
            let seconds = u64::try_from(seconds).unwrap_or(0) * per_second;
            seconds + u64::try_from(nanoseconds).unwrap_or(0) / (1_000_000_000 / per_second)
        };
        Now {
            moment: Moment(count(moment.tv_sec, moment.tv_nsec, 1_000_000)),
            date_ms: count(date.tv_sec, date.tv_nsec, 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_never_fall_and_dates_are_of_this_century() {
        let (first, second) = (SystemClock.now(), SystemClock.now());
        assert!(second.moment >= first.moment);
        assert!((1_000_000_000_000..10_000_000_000_000).contains(&first.date_ms), "{first:?}");
    }
}
