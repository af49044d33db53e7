//! What may go wrong in a run, and what did.

use atoll_replica::Reads;
use std::collections::BTreeMap;

/// What may go wrong.
pub struct Faults {
    pub survives: bool,
    pub reads: Reads,
    /// The largest error of any clock's rate, in parts per million.
    pub clock_ppm: u64,
    pub rate_error_ppm: u64,
}

impl Faults {
    pub const LOGGED: Self =
        Self { survives: true, reads: Reads::Leases, clock_ppm: 10_000, rate_error_ppm: 10_000 };
    pub const MEMORY: Self = Self { survives: false, ..Self::LOGGED };
    pub const CONFIRMED: Self = Self { reads: Reads::Confirmed, clock_ppm: 400_000, ..Self::LOGGED };
    pub const WILD_CLOCKS: Self = Self { clock_ppm: 400_000, ..Self::LOGGED };
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub named: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub fn count(&mut self, name: &'static str) {
        *self.named.entry(name).or_default() += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.named {
            *self.named.entry(name).or_default() += count;
        }
    }

    pub fn check_that_everything_happened(&self, kind: &str, faults: &Faults) {
        let always = [
            "written",
            "read",
            "unknown",
            "refused",
            "crash",
            "restart",
            "outage",
            "cut",
            "one-way cut",
            "pause",
            "lost",
            "doubled",
            "late",
            "admit",
            "dismiss",
            "transfer",
            "truncated",
            "led by another",
            "moved",
        ];
        let surviving = ["everything survived"];
        let expected = always.iter().chain(surviving.iter().filter(|_| faults.survives));
        for name in expected {
            assert!(self.named.get(name).is_some_and(|&count| count > 0), "{kind}: {name} never happened");
        }
    }
}
