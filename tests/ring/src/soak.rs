//! Many seeds on a few threads: who failed, and what occurred how often.

use crate::case::Case;
use crate::counts::Counts;
use crate::run::{A_PANIC, Outcome, Violation, run_seed, words_of};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// What a range of seeds gave.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// First seed.
    pub seed_from: u64,
    /// Seeds run.
    pub seeds: u64,
    /// Runs in which too little happened for them to prove anything.
    pub too_little: u64,
    /// Operations of clients, and those that ended so that they knew what happened.
    pub operations: u64,
    pub definite: u64,
    /// Broken promises, by seed.
    pub violations: Vec<Violation>,
    /// What occurred how often.
    pub counts: Counts,
    /// For how long slots that moved were not served at most, in microseconds, each time, in order.
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
            "format": 1,
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

    /// Adds another range.
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

    /// That of so many thousandths of all moves which slots were not served for longest.
    #[must_use]
    pub fn pause_us(&self, thousandths: usize) -> u64 {
        let at = (self.pauses_us.len() * thousandths / 1000).min(self.pauses_us.len().saturating_sub(1));
        self.pauses_us.get(at).copied().unwrap_or_default()
    }

    /// How long slots that moved were not served.
    #[must_use]
    pub fn pauses_in_words(&self) -> String {
        let ms = |thousandths| self.pause_us(thousandths) as f64 / 1000.0;
        let (half, most, longest) = (ms(500), ms(990), ms(1000));
        format!(
            "{} moves of a slot: the slowest request around each took {half:.1} ms (p50), {most:.1} ms (p99), {longest:.1} ms (longest)",
            self.pauses_us.len()
        )
    }

    /// Takes in what a seed gave; whether that is well. A panic where the run itself catches none is a
    /// violation like any other: the tally of the whole thread would go with it.
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

/// Runs `seeds` seeds from `seed_from` on all cores; with `stop_early`, no more after the first failure.
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

/// That a violation shows the bug that was planted: its seed breaks nothing `without` it, and it is no panic,
/// unless the bug is one that `asserts`. What the harness itself does wrong would be taken for every bug.
///
/// # Errors
/// What the violation is instead.
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
    fn a_panic_around_a_run_takes_nothing_along_that_was_found() {
        let mut tally = Tally::default();
        assert!(!tally.take(1, || Err(Violation { seed: 1, what: "stale".to_owned() })));
        assert!(!tally.take(2, || panic!("a book was torn")));
        let found: Vec<String> = tally.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["seed 1: stale", "seed 2: around the run, a panic: a book was torn"]);
        assert_eq!(tally.seeds, 2);
    }
}
