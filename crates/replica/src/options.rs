//! Options of the copies of a node.

use thiserror::Error;

/// How a primary makes sure, before it answers a read, that no other node is primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// By promises for a while, which rely on clocks that run at nearly the same rate. Costs nothing for each
    /// read.
    #[default]
    Leases,
    /// By asking every in-sync copy after each batch of reads has come. Trusts no clock, except
    /// where a node has the last copy and nobody to ask.
    Confirmed,
}

/// Options of the copies of a node; the same on all nodes of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a promise holds for the node that asked, in microseconds from when it asked. Default 1 s.
    pub lease_us: u64,
    /// How far off the rate of any clock may be, in parts per million. Default 10,000: one percent.
    pub rate_error_ppm: u64,
    /// The longest interval between two [`Input::Tick`](crate::Input::Tick)s, in microseconds. Default 20 ms.
    pub tick_us: u64,
    /// How many copies of a slot of the first keyspace must be in sync for a write to be accepted. Default 2.
    pub in_sync_min: usize,
    /// A copy that owes an answer is reported after this much silence, in microseconds. Default 1 s.
    pub suspect_us: u64,
    /// Entries are sent again after this much silence, in microseconds. Default 200 ms.
    pub resend_us: u64,
    /// How long a read waits for other copies before it is refused, in microseconds. Default 3 s.
    pub read_wait_us: u64,
    /// Most writes of a slot under way. Default 4,096.
    pub under_way_max: usize,
    /// Most bytes of writes of a slot under way. Default 16 MiB.
    pub under_way_bytes_max: usize,
    /// How many entries a copy may lack and still become a candidate for admission. Default 64.
    pub nearly_caught_up: u64,
    /// How many applied entries are kept for copies that catch up. Default 1,024.
    pub kept_entries: usize,
    /// Most bytes of one message, unless a single entry is longer. Default 1 MiB.
    pub message_bytes_max: usize,
    /// How a primary makes sure that it may answer a read.
    pub reads: Reads,
    /// Whether entries of slots are logged whose keyspace has no durability of its own. Without a log an
    /// entry counts as logged once it arrives. Default yes.
    pub logs: bool,
}

/// An option with a value that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("option {option}: {problem}")]
pub struct OptionError {
    /// The name of the option.
    pub option: &'static str,
    /// What values are allowed.
    pub problem: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease_us: 1_000_000,
            rate_error_ppm: 10_000,
            tick_us: 20_000,
            in_sync_min: 2,
            suspect_us: 1_000_000,
            resend_us: 200_000,
            read_wait_us: 3_000_000,
            under_way_max: 4096,
            under_way_bytes_max: 16 << 20,
            nearly_caught_up: 64,
            kept_entries: 1024,
            message_bytes_max: 1 << 20,
            reads: Reads::Leases,
            logs: true,
        }
    }
}

/// A clock that is off by half is not a clock.
const RATE_ERROR_PPM_MAX: u64 = 500_000;

impl Options {
    /// Checks that the options make sense together.
    ///
    /// # Errors
    /// [`OptionError`], naming the option.
    pub fn validate(&self) -> Result<(), OptionError> {
        let wrong = |option, problem| Err(OptionError { option, problem });
        if self.rate_error_ppm > RATE_ERROR_PPM_MAX {
            return wrong("rate_error_ppm", "at most 500,000; beyond it use confirmed reads");
        }
        if self.tick_us == 0 || self.lease_us < 4 * self.tick_us {
            return wrong("lease_us", "at least four ticks");
        }
        if self.suspect_us < 3 * self.resend_us {
            return wrong("suspect_us", "at least three times resend_us");
        }
        if self.in_sync_min == 0 || self.in_sync_min > crate::COPIES_MAX {
            return wrong("in_sync_min", "from 1 to 7");
        }
        if self.under_way_max == 0 || self.kept_entries == 0 || self.message_bytes_max == 0 {
            return wrong("under_way_max, kept_entries, message_bytes_max", "at least 1");
        }
        Ok(())
    }

    /// How long the node that gave a promise keeps it, by its own clock: in the worst case this clock is fast
    /// and the other one slow.
    pub(crate) fn promise_us(&self) -> u64 {
        let rate = u128::from(self.rate_error_ppm);
        let lengthened = u128::from(self.lease_us) * (1_000_000 + rate);
        u64::try_from(lengthened.div_ceil(1_000_000 - rate)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_outlasts_the_lease_on_the_worst_pair_of_clocks() {
        let options = Options::default();
        let lease_true_us = options.lease_us as f64 / 0.99;
        let promise_true_us = options.promise_us() as f64 / 1.01;
        assert!(promise_true_us >= lease_true_us - 1.0, "{promise_true_us} {lease_true_us}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let named = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.validate().map_err(|error| error.option)
        };
        assert_eq!(named(|_| ()), Ok(()));
        assert_eq!(named(|options| options.lease_us = 1), Err("lease_us"));
        assert_eq!(named(|options| options.in_sync_min = 0), Err("in_sync_min"));
        assert_eq!(named(|options| options.rate_error_ppm = 900_000), Err("rate_error_ppm"));
    }
}
