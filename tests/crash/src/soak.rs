//! Runs many seeds on all cores: which failed, and how often each thing occurred.

use crate::counts::Counts;
use crate::run::{Violation, panic_text, run_seed};
use crate::subject::Subject;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Incremented when a seed goes through more, or another seed stands for the same run.
const FORMAT: u64 = 2;

/// Least share of seeds, in percent, that must be whole ([`Counts::is_whole`]). Not all are: in some mixes of
/// steps few values lie in the log, and then nothing there has to be cleaned.
const WHOLE_PERCENT_MIN: u64 = 15;

/// The share of fewer seeds says little.
const SEEDS_WITH_A_SHARE: u64 = 200;

/// The results of a range of seeds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// First seed.
    pub seed_from: u64,
    /// How many seeds ran.
    pub seeds: u64,
    /// Broken promises, by seed.
    pub violations: Vec<Violation>,
    /// How often each thing occurred.
    pub counts: Counts,
}

impl Tally {
    /// How many seeds were whole, in words.
    #[must_use]
    pub fn whole(&self) -> String {
        let whole = self.counts.of("whole_seeds");
        let percent = whole * 100 / self.seeds.max(1);
        format!("{whole} of {} seeds ({percent} %) were whole, with cleaning and a checkpoint", self.seeds)
    }

    /// Whether too small a share of the seeds was whole to prove much.
    #[must_use]
    pub fn is_shallow(&self) -> bool {
        let whole = self.counts.of("whole_seeds");
        self.seeds >= SEEDS_WITH_A_SHARE && whole * 100 < self.seeds * WHOLE_PERCENT_MIN
    }

    /// One line of JSON, to be added up over runs.
    #[must_use]
    pub fn to_json(&self) -> String {
        let counts: serde_json::Map<_, _> =
            self.counts.all().into_iter().map(|(name, count)| (name, count.into())).collect();
        serde_json::json!({
            "soak": "crash-sim",
            "format": FORMAT,
            "seed_from": self.seed_from,
            "seeds": self.seeds,
            "failures": self.violations.len(),
            "failed_seeds": self.violations.iter().map(|violation| violation.seed).collect::<Vec<_>>(),
            "counts": counts,
        })
        .to_string()
    }
}

/// Runs `seeds` seeds from `seed_from` on all cores; with `stop_early`, begins no more after the first
/// failure.
///
/// # Panics
/// If not all of them were run.
#[must_use]
pub fn run_seeds<S: Subject>(seed_from: u64, seeds: u64, bug: Option<S::Bug>, stop_early: bool) -> Tally {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let work = || {
        let mut tally = Tally::default();
        while !is_over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds {
                break;
            }
            tally.seeds += 1;
            match run_whole(seed_from + index, |seed| run_seed::<S>(seed, bug)) {
                Ok(counts) => tally.counts.add(&counts),
                Err(violation) => {
                    tally.violations.push(violation);
                    is_over.fetch_or(stop_early, Ordering::Relaxed);
                }
            }
        }
        tally
    };
    let mut total = Tally { seed_from, ..Tally::default() };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let tally = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            total.seeds += tally.seeds;
            total.violations.extend(tally.violations);
            total.counts.add(&tally.counts);
        }
    });
    total.violations.sort_by_key(|violation| violation.seed);
    assert!(stop_early || total.seeds == seeds, "{} of {seeds} seeds were run", total.seeds);
    total
}

/// Checks that a violation shows the planted bug: its seed breaks nothing `without` the bug, and it is not a
/// panic, unless the bug is one that `asserts`. Otherwise an error of the harness itself would pass for any
/// bug.
///
/// # Errors
/// Says what the violation is instead.
pub fn shows<T>(
    violation: &Violation,
    asserts: bool,
    without: impl FnOnce(u64) -> Result<T, Violation>,
) -> Result<(), String> {
    if !asserts && violation.what.starts_with("panicked") {
        return Err(format!("a panic, and no promise that the bug breaks: {violation}"));
    }
    let Violation { seed, .. } = *violation;
    run_whole(seed, without)
        .map(drop)
        .map_err(|without| format!("the same seed fails without the bug: {without}"))
}

/// Runs a seed. A panic that the run itself does not catch, for instance when the store is dropped, is a
/// violation like any other: otherwise the results of the whole thread would be lost with it.
fn run_whole<T>(seed: u64, run: impl FnOnce(u64) -> Result<T, Violation>) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        let what = format!("panicked around the run: {}", panic_text(&*panic));
        Err(Violation { seed, life: 0, operation: 0, what })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_of_many_seeds_needs_its_share_of_whole_ones() {
        let tally = |seeds, whole| {
            let mut tally = Tally { seeds, ..Tally::default() };
            tally.counts.add_to("whole_seeds", whole);
            tally
        };
        assert!(tally(1000, 149).is_shallow() && !tally(1000, 150).is_shallow());
        assert!(!tally(SEEDS_WITH_A_SHARE - 1, 0).is_shallow() && tally(SEEDS_WITH_A_SHARE, 0).is_shallow());
        assert!(tally(1000, 200).whole().starts_with("200 of 1000 seeds (20 %)"));
    }

    #[test]
    fn a_panic_and_a_seed_that_fails_anyway_show_no_bug() {
        let violation = |what: &str| Violation { seed: 7, life: 1, operation: 1, what: what.to_owned() };
        let well = |_| Ok(());
        let (lost, panicked) = (violation("lost"), violation("panicked: index out of range"));
        assert_eq!(shows(&lost, false, well), Ok(()));
        assert_eq!(shows(&panicked, true, well), Ok(()));
        assert!(shows(&panicked, false, well).is_err_and(|why| why.contains("out of range")));
        let anyway = |seed| if seed == 7 { Err::<(), _>(violation("stale")) } else { Ok(()) };
        assert!(shows(&lost, false, anyway).is_err_and(|why| why.contains("stale")));
    }
}
