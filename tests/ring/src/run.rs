//! One run from one seed, from its beginning to its verdict.

use crate::case::Case;
use crate::counts::Counts;
use crate::judge::judge;
use crate::operation::OperationEnd;
use crate::world::{Phase, World};
use atoll_replica::Slot;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A broken promise.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Violation {
    pub seed: u64,
    pub what: String,
}

/// The summary of a run that broke no promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub counts: Counts,
    /// How many operations clients began, and how many ended with a known outcome.
    pub operations: usize,
    pub definite: usize,
    /// In a run without faults: how long the slowest request around each move of a slot took, in
    /// microseconds.
    pub pauses_us: Vec<u64>,
    /// A digest over all events, in their order.
    pub digest: u64,
}

/// The trace of a run.
#[derive(Clone, Debug)]
pub struct Story {
    pub lines: Vec<String>,
    pub outcome: Result<Outcome, Violation>,
}

/// A run counts only with at least this many operations, of which a minimum percentage ended with a known
/// outcome.
const OPERATIONS_MIN: usize = 300;
const DEFINITE_PERCENT_MIN: usize = 60;

impl Outcome {
    /// Whether enough happened for the run to prove anything.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.operations >= OPERATIONS_MIN && self.definite * 100 >= self.operations * DEFINITE_PERCENT_MIN
    }
}

/// Runs a seed.
///
/// # Errors
/// [`Violation`], if a promise was broken.
pub fn run_seed(seed: u64, case: &Case) -> Result<Outcome, Violation> {
    run(seed, case, false).outcome
}

/// Runs a seed and records a trace of everything that happens.
#[must_use]
pub fn tell_seed(seed: u64, case: &Case) -> Story {
    run(seed, case, true)
}

fn run(seed: u64, case: &Case, is_traced: bool) -> Story {
    case.plant(true);
    let mut world = World::new(seed, case, is_traced);
    // Failed assertions of the protocol are findings and must not end the program.
    let judged = catch_unwind(AssertUnwindSafe(|| world.run(case)));
    case.plant(false);
    let judged = judged.unwrap_or_else(|panic| Err(words_of(panic.as_ref())));
    let outcome = match judged {
        Ok(()) => Ok(world.outcome()),
        Err(what) => Err(Violation { seed, what }),
    };
    Story { lines: world.trace.unwrap_or_default(), outcome }
}

/// The prefix of a panic's description.
pub(crate) const A_PANIC: &str = "a panic: ";

pub(crate) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("{A_PANIC}{}", text.unwrap_or("without words"))
}

impl World {
    fn run(&mut self, case: &Case) -> Result<(), String> {
        if case.is_planned {
            return self.run_in_peace();
        }
        self.run_chaos()?;
        self.run_healing()?;
        let slots: Vec<Slot> = self.slot_ids().filter(|&slot| !self.is_lost(slot)).collect();
        self.run_probes(&slots)?;
        for slot in self.slot_ids() {
            // Reads of an abandoned state have no order relative to later operations; they were judged at
            // the time of the loss.
            match self.given_up.contains_key(&slot) {
                true => self.judge_behind_loss(slot)?,
                false => judge(&self.operations, slot)?,
            }
        }
        // A planted bug must be detected before any loss is accepted.
        if case.is_sound() { self.run_recovery() } else { Ok(()) }
    }

    fn outcome(&mut self) -> Outcome {
        debug_assert!(self.phase == Phase::Quiet, "it ran to its end");
        let asked = self.operations.iter().filter(|operation| operation.ended.is_some());
        let definite =
            asked.clone().filter(|operation| matches!(operation.ended, Some((_, OperationEnd::Told(_)))));
        let (operations, definite) = (asked.count(), definite.count());
        let mut digest = self.digest;
        self.books.iter().for_each(|book| digest.add(book.digest(book.last()).unwrap_or_default()));
        let pauses_us = if self.is_planned { self.pauses_us() } else { Vec::new() };
        Outcome { counts: self.counts.clone(), operations, definite, pauses_us, digest: digest.0 }
    }
}
