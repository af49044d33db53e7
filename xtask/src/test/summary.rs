//! The end of a test run: minutes per room against their budgets, what was skipped, and one line for
//! programs.

use crate::console::heading;
use crate::failure::Failure;
use crate::rooms::BUILD_BUDGET_MINUTES;
use crate::skip;
use crate::tests_output::Tally;
use std::time::Duration;

/// What happened in one room.
pub struct Visit {
    /// The room.
    pub room: &'static str,
    /// How long it took.
    pub took: Duration,
    /// How long it may take.
    pub budget_minutes: u64,
    /// Its tests.
    pub tally: Tally,
}

/// What happened in all of them.
#[derive(Default)]
pub struct Summary {
    build: Duration,
    visits: Vec<Visit>,
}

impl Summary {
    /// Notes how long the build took.
    pub fn built(&mut self, took: Duration) {
        self.build = took;
    }

    /// Adds a room.
    pub fn add(&mut self, visit: Visit) {
        self.visits.push(visit);
    }

    /// Ends a run whose build failed: no test ran, and the last line must not look like success.
    pub fn end_without_a_build(self, failure: Failure) -> Result<(), Failure> {
        println!("\n0 passed, 1 failed, 0 skipped");
        Err(failure)
    }

    /// Prints the summary; the result is the verdict on the whole run.
    pub fn end(self) -> Result<(), Failure> {
        self.print_table();
        let mut all = Tally::default();
        self.visits.into_iter().for_each(|visit| all.add(visit.tally));
        let not_excused = skip::conclude(&all.skipped);
        if !all.failed.is_empty() {
            heading("Failed:");
            all.failed.iter().for_each(|test| println!("  {test}"));
        }
        println!("\n{} passed, {} failed, {} skipped", all.passed, all.failed.len(), all.skipped.len());
        verdict(&all, not_excused)
    }

    fn print_table(&self) {
        heading("Minutes per room, and their budgets:");
        print_row("build", self.build, BUILD_BUDGET_MINUTES, "");
        for visit in &self.visits {
            let tests = format!("{} tests", visit.tally.total());
            print_row(visit.room, visit.took, visit.budget_minutes, &tests);
        }
    }
}

/// A run passes if tests ran, none failed, and none was skipped that should have run.
fn verdict(all: &Tally, not_excused: usize) -> Result<(), Failure> {
    if !all.failed.is_empty() {
        return Err(Failure::Broken { what: "test", count: all.failed.len() });
    }
    if not_excused > 0 {
        return Err(Failure::Skipped { count: not_excused });
    }
    if all.passed == 0 {
        return Err(Failure::Malformed {
            what: "the test run".to_owned(),
            problem: "no test ran".to_owned(),
        });
    }
    Ok(())
}

fn print_row(name: &str, took: Duration, budget_minutes: u64, tests: &str) {
    let minutes = took.as_secs_f64() / 60.0;
    let over = if took > Duration::from_secs(budget_minutes * 60) { "  OVER BUDGET" } else { "" };
    println!("  {name:10} {minutes:6.1} of {budget_minutes:2} min  {tests}{over}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::Skip;

    fn tally(passed: usize, failed: &[&str]) -> Tally {
        let failed = failed.iter().map(|&name| name.to_owned()).collect();
        Tally { passed, failed, skipped: Vec::<Skip>::new() }
    }

    #[test]
    fn a_run_passes_only_if_tests_ran_and_held() {
        assert!(verdict(&tally(3, &[]), 0).is_ok());
        assert!(verdict(&tally(3, &["one"]), 0).is_err(), "a test failed");
        assert!(verdict(&tally(3, &[]), 1).is_err(), "a skip that CI can have");
        assert!(verdict(&tally(0, &[]), 0).is_err(), "nothing ran");
    }
}
