//! Running the checks: each on stores of its own, within a time limit, with a panic caught and reported.

use crate::checks::{CHECKS, Check};
use crate::context::{Context, Stop};
use crate::report::{Checked, Outcome, Report};
use crate::subject::Subject;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How much a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// A few seconds in a debug build: for every change.
    Quick,
    /// About a minute: more histories, more rounds, the largest values.
    Full,
}

impl Size {
    /// `quick` or `full`, by the size.
    #[must_use]
    pub fn of<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// A check that takes longer than this counts as hanging.
    fn check_time_max(self) -> Duration {
        Duration::from_secs(self.of(60, 300))
    }
}

/// The seed of [`run`]; fixed, so that runs can be compared.
pub const SEED_DEFAULT: u64 = 7;

/// The names of all checks.
pub fn check_names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.name)
}

/// Runs the whole suite with the default seed.
#[must_use]
pub fn run(subject: &dyn Subject, size: Size) -> Report {
    run_seeded(subject, size, SEED_DEFAULT)
}

/// Runs the whole suite.
#[must_use]
pub fn run_seeded(subject: &dyn Subject, size: Size, seed: u64) -> Report {
    run_where(subject, size, seed, |_| true)
}

/// Runs the check of this name, to replay a report; runs none if there is no such check.
#[must_use]
pub fn run_check(subject: &dyn Subject, name: &str, size: Size, seed: u64) -> Report {
    run_where(subject, size, seed, |check| check.name == name)
}

fn run_where(subject: &dyn Subject, size: Size, seed: u64, wanted: impl Fn(&Check) -> bool) -> Report {
    let chosen = CHECKS.iter().filter(|check| wanted(check));
    let checks = match tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build() {
        Ok(runtime) => chosen.map(|check| runtime.block_on(run_one(subject, check, size, seed))).collect(),
        Err(error) => {
            let outcome = Outcome::Broken(format!("the suite found no threads to run on: {error}"));
            vec![Checked { name: "runtime", outcome, took: Duration::ZERO }]
        }
    };
    Report { subject: subject.name(), size, seed, checks }
}

async fn run_one(subject: &dyn Subject, check: &Check, size: Size, seed: u64) -> Checked {
    let context = Context::new(subject, check.name, size, seed);
    let started = tokio::time::Instant::now();
    let run = AssertUnwindSafe((check.run)(&context)).catch_unwind();
    let time_max = size.check_time_max() * subject.slowness().max(1);
    let outcome = match tokio::time::timeout(time_max, run).await {
        Ok(Ok(Ok(()))) => Outcome::Kept,
        Ok(Ok(Err(Stop::Broken(how)))) => Outcome::Broken(how),
        Ok(Ok(Err(Stop::Skipped(why)))) => Outcome::Skipped(why),
        Ok(Err(panic)) => Outcome::Broken(format!("panicked: {}", panic_text(panic.as_ref()))),
        Err(_) => Outcome::Broken(format!("did not end within {time_max:?}")),
    };
    context.close().await;
    Checked { name: check.name, outcome, took: started.elapsed() }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with no message")
}
