//! The only access to the wall clock: leases, request memory and `now` take a [`Clock`], so that a test or a
//! simulator can control it.
//!
//! Invariant: the time that a clock returns never falls.

use crate::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of a store's time.
pub trait Clock: Send + Sync + 'static {
    /// The time now; never earlier than any time returned before.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Default)]
pub struct SystemClock {
    latest: AtomicU64,
}

impl Clock for SystemClock {
    // The only place that may ask the system; all other code takes a `Clock`.
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        // The machine's clock can be set back; a lease that has expired must not become valid again.
        Timestamp(now.max(self.latest.fetch_max(now, Ordering::AcqRel)))
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanoseconds: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub const fn starting_at(start: Timestamp) -> Self {
        Self { nanoseconds: AtomicU64::new(start.0) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        let step = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let add = |now: u64| Some(now.saturating_add(step));
        // The closure always returns `Some`, so the update cannot fail.
        let _ = self.nanoseconds.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.nanoseconds.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_falls_behind_what_it_told() {
        let clock = SystemClock::default();
        let future = clock.now().after(Duration::from_secs(3600));
        clock.latest.store(future.0, Ordering::Release);
        assert_eq!(clock.now(), future);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told_and_stops_at_the_end_of_time() {
        let clock = ManualClock::starting_at(Timestamp(5));
        assert_eq!(clock.now(), Timestamp(5));
        clock.advance(Duration::from_nanos(7));
        assert_eq!(clock.now(), Timestamp(12));
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Timestamp(u64::MAX));
    }
}
