//! The findings of the suite: one line per check, and for each broken promise the facts and how to replay it.

use crate::suite::Size;
use std::fmt;
use std::time::Duration;

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The promise was kept.
    Kept,
    /// The promise was broken; the text says how.
    Broken(String),
    /// The store cannot be checked for it; the text says why.
    Skipped(String),
}

/// One check that ran.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Name of the check; pass it to `run_check` to replay it.
    pub name: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The findings of the suite about one store.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the store.
    pub subject: String,
    /// The size of the run.
    pub size: Size,
    /// Seed of all that was random.
    pub seed: u64,
    /// The checks, in the order in which they ran.
    pub checks: Vec<Checked>,
}

impl Report {
    /// Whether every promise that could be checked was kept.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The checks that found a broken promise.
    pub fn broken(&self) -> impl Iterator<Item = &Checked> {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::Broken(_)))
    }

    /// The checks that could not run.
    pub fn skipped(&self) -> impl Iterator<Item = &Checked> {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::Skipped(_)))
    }

    /// How long all checks took together.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.checks.iter().map(|check| check.took).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, size, seed, checks } = self;
        let (broken, skipped) = (self.broken().count(), self.skipped().count());
        let kept = checks.len() - broken - skipped;
        writeln!(
            f,
            "{subject}: {kept} promises kept, {broken} broken, {skipped} skipped, {:.1?}",
            self.took()
        )?;
        for Checked { name, outcome, .. } in checks {
            match outcome {
                Outcome::Kept => {}
                // Not `SKIPPED`, which marks a test that this machine cannot run: this check cannot be run on
                // this store anywhere.
                Outcome::Skipped(reason) => writeln!(f, "NOT TRIED: {name}: {reason}")?,
                Outcome::Broken(how) => {
                    writeln!(f, "BROKEN: {name}: {how}")?;
                    writeln!(f, "  replay: run_check(&subject, \"{name}\", Size::{size:?}, {seed})")?;
                }
            }
        }
        Ok(())
    }
}
