//! The clocks of a node: a monotonic one that runs while the machine sleeps, and the date, which can be
//! set.

use atoll_replica::Moment;

/// Both clocks of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The true time at which the monotonic clock started.
    booted_at: u64,
    /// Its reading at that time.
    start: u64,
    /// How much faster than true time it runs, in millionths.
    rate_ppm: i64,
    /// How long it stood still in total.
    stood_us: u64,
    /// How far the date is off, in milliseconds.
    pub(crate) date_error_ms: i64,
}

/// The true date at the beginning of every run.
const EPOCH_MS: i64 = 1_700_000_000_000;

impl Clock {
    pub(crate) fn new(start: u64, rate_ppm: i64) -> Self {
        Self { booted_at: 0, start, rate_ppm, stood_us: 0, date_error_ms: 0 }
    }

    /// The machine reboots, and the clock starts anew.
    pub(crate) fn reboot(&mut self, now: u64, start: u64) {
        (self.booted_at, self.start, self.stood_us) = (now, start, 0);
    }

    /// The clock stands still for some time.
    pub(crate) fn stand(&mut self, for_us: u64) {
        self.stood_us += for_us;
    }

    pub(crate) fn moment(&self, now: u64) -> Moment {
        let passed = now.saturating_sub(self.booted_at).saturating_sub(self.stood_us);
        Moment(self.start + self.scaled(passed, 1_000_000, 1_000_000 + self.rate_ppm))
    }

    /// How much true time passes while this clock advances by `own_us`.
    pub(crate) fn true_us(&self, own_us: u64) -> u64 {
        self.scaled(own_us, 1_000_000 + self.rate_ppm, 1_000_000)
    }

    fn scaled(&self, us: u64, divisor: i64, factor: i64) -> u64 {
        (u128::from(us) * factor.unsigned_abs() as u128 / divisor.unsigned_abs() as u128) as u64
    }

    pub(crate) fn date_ms(&self, now: u64) -> u64 {
        (EPOCH_MS + self.date_error_ms + (now / 1000) as i64) as u64
    }
}
