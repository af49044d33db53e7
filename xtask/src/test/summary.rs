//! The end of a test run: minutes per room compared with their budgets, skipped tests, and one line for
//! programs.

use crate::console::heading;
use crate::failure::Failure;
use crate::rooms::BUILD_BUDGET_MINUTES;
use crate::skip;
use crate::tests_output::Tally;
use std::time::{Duration, Instant};

/// The visit of one room.
struct Visit {
    /// The room.
    room: &'static str,
    /// How long it took.
    took: Duration,
    /// Its budget.
    budget_minutes: u64,
    /// The results of its tests.
    tally: Tally,
}

/// The visits of all rooms.
#[derive(Default)]
pub struct Summary {
    build: Duration,
    visits: Vec<Visit>,
}

impl Summary {
    /// Records how long the build took.
    pub fn built(&mut self, took: Duration) {
        self.build = took;
    }

    /// Visits a room and records the result. A room that cannot be visited counts as one failed test: the
    /// other rooms and the summary still follow.
    pub fn visit(
        &mut self,
        room: &'static str,
        budget_minutes: u64,
        visit: impl FnOnce() -> Result<Tally, Failure>,
    ) {
        let started = Instant::now();
        let tally = visit().unwrap_or_else(|failure| broken(room, &failure));
        self.visits.push(Visit { room, took: started.elapsed(), budget_minutes, tally });
    }

    /// Ends a run whose build failed: no test ran, and the last line must not look like success.
    pub fn end_without_a_build(self, failure: Failure) -> Result<(), Failure> {
        println!("\n0 passed, 1 failed, 0 skipped");
        Err(failure)
    }

    /// Prints the summary; the result is the verdict on the whole run.
    pub fn end(self) -> Result<(), Failure> {
        self.print_table();
        let all = self.tally();
        let not_excused = skip::conclude(&all.skipped);
        if !all.notices.is_empty() {
            heading("How tests with several forms ran:");
            all.notices.iter().for_each(|notice| println!("  {notice}"));
        }
        if !all.failed.is_empty() {
            heading("Failed:");
            all.failed.iter().for_each(|test| println!("  {test}"));
        }
        println!("\n{} passed, {} failed, {} skipped", all.passed, all.failed.len(), all.skipped.len());
        verdict(&all, not_excused)
    }

    fn tally(self) -> Tally {
        let mut all = Tally::default();
        self.visits.into_iter().for_each(|visit| all.add(visit.tally));
        all
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

/// Counts a step that could not be run as one failed test of its name, and prints why.
pub fn broken(name: &str, failure: &Failure) -> Tally {
    let hint = failure.hint().map_or(String::new(), |hint| format!("; {hint}"));
    println!("  FAIL {name}: {failure}{hint}");
    Tally { failed: vec![format!("{name}: {failure}")], ..Tally::default() }
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
        Tally { passed, failed, skipped: Vec::<Skip>::new(), notices: Vec::new() }
    }

    #[test]
    fn a_room_that_cannot_be_visited_is_a_failure_among_the_others() {
        let ended = "ended with exit code 101".to_owned();
        let failure = Failure::Command { what: "build the Python package".to_owned(), ended };
        let mut summary = Summary::default();
        summary.visit("engine", 1, || Ok(tally(3, &[])));
        summary.visit("python", 1, || Err(failure));
        summary.visit("sanitizer", 1, || Ok(tally(2, &["one"])));
        let all = summary.tally();
        let failed = ["python: build the Python package ended with exit code 101", "one"];
        assert_eq!((all.passed, all.failed), (5, failed.map(str::to_owned).to_vec()));
    }

    #[test]
    fn a_run_passes_only_if_tests_ran_and_held() {
        assert!(verdict(&tally(3, &[]), 0).is_ok());
        assert!(verdict(&tally(3, &["one"]), 0).is_err(), "a test failed");
        assert!(verdict(&tally(3, &[]), 1).is_err(), "a skip that CI can have");
        assert!(verdict(&tally(0, &[]), 0).is_err(), "nothing ran");
    }
}
