//! The Python tests: they use the package of this checkout, and drive the built program from outside, with Python's
//! own readers and writers.

use super::limit;
use super::programs::Built;
use super::summary::Visit;
use crate::console::{Step, Verdict};
use crate::failure::Failure;
use crate::package::{self, Build};
use crate::rooms;
use crate::skip::Skip;
use crate::tests_output::Tally;
use crate::{run, venv, workspace};
use std::process::Command;
use std::time::{Duration, Instant};

const FOLDER: &str = "tests/python";

/// Makes the environment and runs the tests below `tests/python`.
pub fn visit(built: &Built) -> Result<Visit, Failure> {
    let started = Instant::now();
    let tally = match (venv::python(), &built.atoll) {
        (Ok(python), Some(atoll)) => {
            package::install(&python, Build::Tests)?;
            let mut command = Command::new(python);
            command
                .args(["-m", "pytest", "-v", "-p", "no:cacheprovider", FOLDER])
                .current_dir(workspace::root()?);
            command.env("PROGRAM_UNDER_TEST", atoll).env("PYTHONDONTWRITEBYTECODE", "1");
            tests(&mut command, limit(rooms::PYTHON_BUDGET_MINUTES))?
        }
        (Ok(_), None) => skipped("atoll", "the program was not built".to_owned()),
        (Err(failure), _) => {
            let hint = failure.hint().map_or(String::new(), |hint| format!("; {hint}"));
            skipped("python", format!("{failure}{hint}"))
        }
    };
    Ok(Visit { room: "python", took: started.elapsed(), budget_minutes: rooms::PYTHON_BUDGET_MINUTES, tally })
}

fn skipped(need: &str, reason: String) -> Tally {
    let skip = Skip { what: "the Python tests".to_owned(), need: need.to_owned(), reason };
    println!("  {skip}");
    Tally { skipped: vec![skip], ..Tally::default() }
}

fn tests(command: &mut Command, limit: Duration) -> Result<Tally, Failure> {
    let mut step = Step::start("pytest");
    let ran = run::limited("pytest", command, &mut step, limit)?;
    let tally = read(&ran.everything, ran.succeeded());
    let counts = format!("{} passed, {} failed", tally.passed, tally.failed.len());
    step.end(if tally.failed.is_empty() { Verdict::Passed } else { Verdict::Failed }, &counts);
    if !tally.failed.is_empty() {
        ran.everything.iter().for_each(|line| println!("    {line}"));
    }
    Ok(tally)
}

/// Reads `path::name VERDICT [ 10%]` lines.
fn read(lines: &[String], succeeded: bool) -> Tally {
    let mut tally = Tally::default();
    for line in lines.iter().filter(|line| line.contains(".py::")) {
        let mut words = line.split_whitespace();
        let (Some(test), Some(verdict)) = (words.next(), words.next()) else { continue };
        match verdict {
            "PASSED" => tally.passed += 1,
            "FAILED" | "ERROR" => tally.failed.push(test.to_owned()),
            "SKIPPED" => {
                let reason = line.split_once('(').map_or("no reason given", |(_, rest)| rest).to_owned();
                tally.skipped.push(Skip { what: test.to_owned(), need: "python".to_owned(), reason });
            }
            _ => {}
        }
    }
    if !succeeded && tally.failed.is_empty() {
        tally.failed.push("pytest".to_owned());
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_fails_the_room_and_ends() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600; true"]);
        let tally = tests(&mut command, Duration::from_millis(50)).unwrap();
        assert_eq!((tally.passed, tally.failed), (0, vec!["pytest".to_owned()]));
    }

    #[test]
    fn the_verdicts_of_pytest_are_counted() {
        let lines = [
            "t/a.py::one PASSED [ 33%]",
            "t/a.py::two FAILED [ 66%]",
            "t/a.py::three SKIPPED (no disk) [100%]",
        ];
        let tally = read(&lines.map(str::to_owned), false);
        assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (1, 1, 1));
        assert_eq!(read(&[], false).failed, ["pytest"]);
    }
}
