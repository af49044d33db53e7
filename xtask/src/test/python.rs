//! The Python tests: they use this checkout's package, and drive the built program from outside with Python's
//! own readers and writers.

use super::programs::Built;
use super::{judge, limit};
use crate::console::Step;
use crate::failure::Failure;
use crate::package::{self, Build};
use crate::rooms;
use crate::skip::Skip;
use crate::tests_output::Tally;
use crate::{run, venv, workspace};
use std::process::Command;
use std::time::Duration;

/// The need of a skipped Python test. It is never excused in CI, whose environment holds everything that
/// tests import.
const NEED: &str = "python";

/// Prepares the environment and runs the tests of all folders together.
pub fn visit(built: &Built) -> Result<Tally, Failure> {
    match (venv::python(), &built.atoll) {
        (Ok(python), Some(atoll)) => {
            package::install(&python, Build::Tests)?;
            let mut command = Command::new(python);
            command
                .args(["-m", "pytest", "-v", "-rfEs", "-p", "no:cacheprovider"])
                // The stores of passed tests would otherwise take gigabytes until the third run after this
                // one.
                .args(["-o", "tmp_path_retention_policy=failed"])
                .args(rooms::PYTHON_FOLDERS)
                .current_dir(workspace::root()?);
            command.env("PROGRAM_UNDER_TEST", atoll).env("PYTHONDONTWRITEBYTECODE", "1");
            tests(&mut command, limit(rooms::PYTHON_BUDGET_MINUTES))
        }
        (Ok(_), None) => Ok(skipped("atoll", "the program was not built".to_owned())),
        (Err(failure), _) => {
            let hint = failure.hint().map_or(String::new(), |hint| format!("; {hint}"));
            Ok(skipped(NEED, format!("{failure}{hint}")))
        }
    }
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
    judge(step, &tally, &ran.everything);
    Ok(tally)
}

/// Reads `path::name VERDICT [ 10%]` lines, and the list of skips at the end, which also contains modules
/// that were skipped with all their tests when they were imported.
fn read(lines: &[String], succeeded: bool) -> Tally {
    let mut tally = Tally::default();
    for line in lines {
        tally.skipped.extend(skips(line));
        match verdict(line) {
            Some((_, "PASSED")) => tally.passed += 1,
            Some((test, _)) => tally.failed.push(test.to_owned()),
            None => {}
        }
    }
    let told = lines.iter().rev().find_map(|line| totals(line));
    tally.failed.extend(contradiction(told.as_deref(), &tally).filter(|_| succeeded));
    if !succeeded && tally.failed.is_empty() {
        tally.failed.push("pytest".to_owned());
    }
    tally
}

/// The test and its verdict, unless it was skipped; the name of a test may contain blanks.
fn verdict(line: &str) -> Option<(&str, &str)> {
    if !line.split_whitespace().next()?.contains(".py::") {
        return None;
    }
    let told = line.trim_end().strip_suffix("%]").and_then(|rest| rest.rsplit_once('['));
    let told = told.map_or(line, |(told, _)| told).trim_end();
    ["PASSED", "FAILED", "ERROR"]
        .into_iter()
        .find_map(|word| Some((told.strip_suffix(word)?.strip_suffix(' ')?, word)))
}

/// As many skips as `SKIPPED [2] file:line: reason` counts.
fn skips(line: &str) -> Vec<Skip> {
    let told = line.strip_prefix("SKIPPED [").and_then(|rest| rest.split_once("] "));
    let Some((count, (place, reason))) =
        told.and_then(|(count, rest)| Some((count.parse().ok()?, rest.split_once(": ")?)))
    else {
        return Vec::new();
    };
    let (what, need, reason) = (place.to_owned(), NEED.to_owned(), reason.to_owned());
    vec![Skip { what, need, reason }; count]
}

/// The numbers in `==== 4 passed, 1 skipped in 0.31s ====`, which is the last line.
fn totals(line: &str) -> Option<Vec<(usize, &str)>> {
    let (counts, time) = line.strip_prefix('=')?.trim_matches(['=', ' ']).rsplit_once(" in ")?;
    time.split_whitespace().next()?.strip_suffix('s')?.parse::<f64>().ok()?;
    let counts = counts.split(", ").filter_map(|count| count.split_once(' '));
    counts.map(|(number, word)| Some((number.parse().ok()?, word))).collect()
}

/// The difference between what pytest counted and what was read, so that no test is left out silently.
fn contradiction(told: Option<&[(usize, &str)]>, tally: &Tally) -> Option<String> {
    let Some(told) = told else { return Some("pytest told no totals".to_owned()) };
    let of = |wanted: &str| told.iter().find(|(_, word)| *word == wanted).map_or(0, |(number, _)| *number);
    let is_known = |word: &str| matches!(word, "passed" | "skipped" | "failed" | "error" | "errors");
    let is_known = |word: &str| is_known(word) || word.starts_with("warning");
    let is_right = of("passed") == tally.passed && of("skipped") == tally.skipped.len();
    (!is_right || !told.iter().all(|(_, word)| is_known(word))).then(|| {
        let told: Vec<String> = told.iter().map(|(number, word)| format!("{number} {word}")).collect();
        let (passed, skipped) = (tally.passed, tally.skipped.len());
        format!("pytest told {}; read were {passed} passed, {skipped} skipped", told.join(", "))
    })
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

    fn read_text(text: &str, succeeded: bool) -> Tally {
        read(&text.lines().map(str::to_owned).collect::<Vec<_>>(), succeeded)
    }

    #[test]
    fn the_verdicts_of_pytest_are_counted() {
        let text = "t/a.py::one PASSED [ 33%]\nt/a.py::two FAILED [ 66%]\nt/a.py::three SKIPPED (no d...) [100%]\n\
                    SKIPPED [1] t/a.py:7: no disk: none\nFAILED t/a.py::two - assert 1 == 2\n\
                    ==== 1 failed, 1 passed, 1 skipped in 75.20s (0:01:15) ====\n";
        let tally = read_text(text, false);
        assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (1, 1, 1));
        assert_eq!(
            (tally.skipped[0].what.as_str(), tally.skipped[0].reason.as_str()),
            ("t/a.py:7", "no disk: none")
        );
        assert!(!tally.skipped[0].is_excused());
        assert_eq!(read(&[], false).failed, ["pytest"]);
    }

    #[test]
    fn names_with_blanks_are_counted_too() {
        let text = "t/a.py::one[a b - 1] PASSED       [ 33%]\nt/a.py::two[x [y] z] FAILED [ 66%]\n\
                    t/a.py::three PASSED\nFAILED t/a.py::two[x [y] z] - no FAILED\n\
                    ==== 1 failed, 2 passed in 0.31s ====\n";
        let tally = read_text(text, false);
        assert_eq!((tally.passed, tally.failed), (2, vec!["t/a.py::two[x [y] z]".to_owned()]));
    }

    #[test]
    fn a_module_that_was_skipped_when_it_was_imported_is_a_skip() {
        let text = "collecting ... collected 1 item / 1 skipped\n\nt/a.py::one PASSED [100%]\n\n\
                    ==== short test summary info ====\nSKIPPED [1] t/b.py:10: no MDAnalysis\n\
                    ==== 1 passed, 1 skipped in 0.31s ====\n";
        let tally = read_text(text, true);
        assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (1, 0, 1));
        assert_eq!(tally.skipped[0].what, "t/b.py:10");
    }

    #[test]
    fn skips_of_one_reason_are_counted_each() {
        let text = "SKIPPED [2] t/b.py:3: never\n==== 2 skipped in 0.10s ====\n";
        assert_eq!(read_text(text, true).skipped.len(), 2);
    }

    #[test]
    fn what_pytest_counts_and_nobody_reads_is_a_failure() {
        let one = "t/a.py::one PASSED [100%]\n";
        assert_eq!(read_text(&format!("{one}=== 1 passed, 2 warnings in 0.31s ===\n"), true).failed.len(), 0);
        assert_eq!(read_text(&format!("{one}=== 1 passed, 3 skipped in 0.31s ===\n"), true).failed.len(), 1);
        assert_eq!(read_text(&format!("{one}=== 1 passed, 1 xfailed in 0.31s ===\n"), true).failed.len(), 1);
        assert_eq!(read_text(one, true).failed, ["pytest told no totals"]);
    }
}
