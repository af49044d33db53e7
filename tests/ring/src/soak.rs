//! Runs many seeds on a few threads: which failed, and how often each thing occurred.

use crate::case::Case;
use crate::counts::Counts;
use crate::run::{A_PANIC, Outcome, Violation, run_seed, words_of};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Raised when what happens in a run or what is checked changes, so that the count of the ledger starts
/// again. 1: cells of a slot came in one piece. 2: they may also come in parts, of which some are in place
/// when anything else happens. 3: in some runs each slot is in a keyspace with a durability of its own. 4:
/// nodes that begin are sent a table from before their registration now and then. 5: that a slot is forgotten
/// is synced at once where it has to outlive a loss of power. 6: the operator takes nodes that will follow a
/// table which makes them copies of each other for nodes that go on. 7: that two copies contradict each other
/// breaks a promise, and nodes that start again keep copies of the branch that they recorded. 8: a copy that
/// rejects entries is sent what follows the last place that it confirmed. 9: all may take
/// 90 s to heal. 10: 55 s, as before. 11: a node that is chosen again behind a loss serves once it goes by
/// that table. 12: copies on nodes that are gone stay until others have everything.
const FORMAT: u64 = 12;

/// The results of a range of seeds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// First seed.
    pub seed_from: u64,
    /// How many seeds ran.
    pub seeds: u64,
    /// Runs in which too little happened to prove anything.
    pub too_little: u64,
    /// How many operations clients began, and how many ended with a known outcome.
    pub operations: u64,
    pub definite: u64,
    /// Broken promises, by seed.
    pub violations: Vec<Violation>,
    /// How often each thing occurred.
    pub counts: Counts,
    /// The longest request around each move of a slot, in microseconds, sorted.
    pub pauses_us: Vec<u64>,
}

impl Tally {
    /// One line of JSON, to be added up over runs.
    #[must_use]
    pub fn to_json(&self) -> String {
        let counts: serde_json::Map<_, _> =
            self.counts.all().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        serde_json::json!({
            "soak": "ring-sim",
            "format": FORMAT,
            "seed_from": self.seed_from,
            "seeds": self.seeds,
            "failures": self.violations.len(),
            "failed_seeds": self.violations.iter().map(|violation| violation.seed).collect::<Vec<_>>(),
            "too_little": self.too_little,
            "operations": self.operations,
            "definite": self.definite,
            "counts": counts,
        })
        .to_string()
    }

    /// Adds the results of another range.
    pub fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.too_little += other.too_little;
        self.operations += other.operations;
        self.definite += other.definite;
        self.violations.extend(other.violations);
        self.violations.sort_by_key(|violation| violation.seed);
        self.counts.add(&other.counts);
        self.pauses_us.extend(other.pauses_us);
        self.pauses_us.sort_unstable();
    }

    /// The quantile of these pauses; `thousandths` is its share.
    #[must_use]
    pub fn pause_us(&self, thousandths: usize) -> u64 {
        let at = (self.pauses_us.len() * thousandths / 1000).min(self.pauses_us.len().saturating_sub(1));
        self.pauses_us.get(at).copied().unwrap_or_default()
    }

    /// The pauses of moved slots, in words.
    #[must_use]
    pub fn pauses_in_words(&self) -> String {
        let ms = |thousandths| self.pause_us(thousandths) as f64 / 1000.0;
        let (half, most, longest) = (ms(500), ms(990), ms(1000));
        format!(
            "{} moves of a slot: the slowest request around each took {half:.1} ms (p50), {most:.1} ms (p99), {longest:.1} ms (longest)",
            self.pauses_us.len()
        )
    }

    /// Adds the result of a seed; returns whether it is sound. A panic that the run itself does not catch
    /// is a violation like any other: otherwise the results of the whole thread would be lost with it.
    fn take(&mut self, seed: u64, run: impl FnOnce() -> Result<Outcome, Violation>) -> bool {
        self.seeds += 1;
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let what = format!("around the run, {}", words_of(panic.as_ref()));
            Err(Violation { seed, what })
        });
        match outcome {
            Ok(outcome) => {
                self.too_little += u64::from(!outcome.is_enough());
                self.operations += outcome.operations as u64;
                self.definite += outcome.definite as u64;
                self.counts.add(&outcome.counts);
                self.pauses_us.extend(outcome.pauses_us);
                true
            }
            Err(violation) => {
                self.violations.push(violation);
                false
            }
        }
    }
}

/// Runs `seeds` seeds from `seed_from` on all cores; with `stop_early`, begins no more after the first
/// failure.
///
/// # Panics
/// If not all of them were run.
#[must_use]
pub fn run_seeds(seed_from: u64, seeds: u64, case: &Case, stop_early: bool) -> Tally {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let work = || {
        let mut tally = Tally::default();
        while !is_over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds {
                break;
            }
            let seed = seed_from + index;
            if !tally.take(seed, || run_seed(seed, case)) {
                is_over.fetch_or(stop_early, Ordering::Relaxed);
            }
        }
        tally
    };
    let mut total = Tally { seed_from, ..Tally::default() };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            total.add(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    assert!(stop_early || total.seeds == seeds, "{} of {seeds} seeds were run", total.seeds);
    total
}

/// Checks that a violation shows the planted bug: its seed breaks nothing `without` the bug, and it is not
/// a panic, unless the bug is one that `asserts`. Otherwise an error of the harness itself would pass for
/// any bug.
///
/// # Errors
/// Says what the violation is instead.
pub fn shows<T>(
    violation: &Violation,
    asserts: bool,
    without: impl FnOnce(u64) -> Result<T, Violation>,
) -> Result<(), String> {
    if !asserts && violation.what.contains(A_PANIC) {
        return Err(format!("a panic, and no promise that the bug breaks: {violation}"));
    }
    let Violation { seed, .. } = *violation;
    without(seed).map(drop).map_err(|without| format!("the same seed fails without the bug: {without}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::EXPECTED;

    #[test]
    fn a_panic_and_a_seed_that_fails_anyway_show_no_bug() {
        let violation = |what: &str| Violation { seed: 7, what: what.to_owned() };
        let well = |_| Ok(());
        let (lost, panicked) = (violation("lost"), violation("around the run, a panic: index out of range"));
        assert_eq!(shows(&lost, false, well), Ok(()));
        assert_eq!(shows(&panicked, true, well), Ok(()));
        assert!(shows(&panicked, false, well).is_err_and(|why| why.contains("out of range")));
        let anyway = |seed| if seed == 7 { Err::<(), _>(violation("stale")) } else { Ok(()) };
        assert!(shows(&lost, false, anyway).is_err_and(|why| why.contains("stale")));
    }

    #[test]
    fn a_line_tells_also_what_never_occurred() {
        let mut tally = Tally { seed_from: 100, seeds: 5, ..Tally::default() };
        tally.counts.bump("imports_begun");
        let line: serde_json::Value = serde_json::from_str(&tally.to_json()).unwrap();
        let of = |name: &str| line["counts"][name].as_u64();
        assert_eq!((of("imports_begun"), of("imports_done")), (Some(1), Some(0)));
        assert_eq!((line["format"].as_u64(), line["seed_from"].as_u64()), (Some(FORMAT), Some(100)));
    }

    /// Lines of the ledger that say less than a run counts today are of an older format.
    #[test]
    fn no_line_of_the_ledger_with_other_counts_is_of_this_format() {
        let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results/soak/ring-sim.jsonl");
        for line in std::fs::read_to_string(ledger).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let lacks = |name: &&str| line["counts"].get(*name).is_none();
            let lacking: Vec<&str> = EXPECTED.iter().copied().filter(lacks).collect();
            let is_older = line["format"].as_u64() < Some(FORMAT);
            let from = &line["seed_from"];
            assert!(lacking.is_empty() || is_older, "seeds from {from} lack {lacking:?}: raise FORMAT");
        }
    }

    #[test]
    fn a_panic_around_a_run_takes_nothing_along_that_was_found() {
        let mut tally = Tally::default();
        assert!(!tally.take(1, || Err(Violation { seed: 1, what: "stale".to_owned() })));
        assert!(!tally.take(2, || panic!("a book was torn")));
        let found: Vec<String> = tally.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["seed 1: stale", "seed 2: around the run, a panic: a book was torn"]);
        assert_eq!(tally.seeds, 2);
    }
}
