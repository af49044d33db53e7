//! Parses what a test program printed: how many tests passed, failed, or could not run.

use crate::skip::Skip;

/// Results of one or more test programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many tests passed.
    pub passed: usize,
    /// The names of the tests that failed.
    pub failed: Vec<String>,
    /// The tests that could not run.
    pub skipped: Vec<Skip>,
    /// What tests that ran say about how they did, each with the name of its test.
    pub notices: Vec<String>,
}

impl Tally {
    /// Adds the results of another program.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.notices.extend(other.notices);
    }

    /// How many tests there were in total.
    pub fn total(&self) -> usize {
        self.passed + self.failed.len() + self.skipped.len()
    }

    /// Parses the output of a Rust test program that ran with `--show-output`.
    ///
    /// A program that fails without naming a failed test counts as one failure under its own name. A
    /// program that is not a test harness counts as one test.
    pub fn read(program: &str, lines: &[String], succeeded: bool) -> Self {
        let mut tally = Self::default();
        let (mut ran_harness, mut section) = (false, None);
        for line in lines {
            ran_harness |= line.starts_with(RESULT);
            if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
            {
                section = Some(name.to_owned());
            } else if let Some((name, verdict)) = verdict(line) {
                tally.count(&format!("{program}::{name}"), verdict);
            } else if let Some(test) = &section {
                let test = format!("{program}::{test}");
                tally.skipped.extend(Skip::told(&test, line));
                tally.notices.extend(line.strip_prefix(NOTICE).map(|told| format!("{test}: {told}")));
            }
        }
        // A skipped test also reports success.
        tally.passed =
            tally.passed.saturating_sub(tally.skipped.iter().filter(|skip| skip.need != IGNORED).count());
        match (succeeded, ran_harness, tally.failed.is_empty()) {
            (false, _, true) => tally.failed.push(program.to_owned()),
            (true, false, _) => tally.passed += 1,
            _ => {}
        }
        tally
    }

    fn count(&mut self, test: &str, verdict: &str) {
        match verdict {
            "ok" => self.passed += 1,
            "FAILED" => self.failed.push(test.to_owned()),
            ignored => {
                let reason = ignored.strip_prefix("ignored, ").unwrap_or("no reason given");
                self.skipped.push(Skip {
                    what: test.to_owned(),
                    need: IGNORED.to_owned(),
                    reason: reason.to_owned(),
                });
            }
        }
    }
}

/// How many tests passed or failed, as a test program says in its last line; `None` if it says nothing.
pub fn tests_run(lines: &[String]) -> Option<usize> {
    let result = lines.iter().rev().find_map(|line| line.strip_prefix(RESULT))?;
    let counted = |what: &str| {
        let words = result.split([';', '.']).find_map(|part| part.trim().strip_suffix(what));
        words.and_then(|number| number.trim().parse::<usize>().ok())
    };
    counted(" passed").zip(counted(" failed")).map(|(passed, failed)| passed + failed)
}

/// How the last line of a test program begins.
const RESULT: &str = "test result: ";

/// How a line begins in which a test that has several forms says which of them it ran, and why.
const NOTICE: &str = "NOTICE ";

/// The need of a test that is marked `#[ignore]`: never excused in CI.
const IGNORED: &str = "ignored";

/// The name and the verdict in `test NAME ... VERDICT`.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let is_verdict = matches!(verdict, "ok" | "FAILED") || verdict.starts_with("ignored");
    // For a test that must panic, the harness adds this after its name.
    is_verdict.then(|| (name.strip_suffix(" - should panic").unwrap_or(name), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, succeeded: bool) -> Tally {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Tally::read("p", &lines, succeeded)
    }

    #[test]
    fn passed_failed_and_ignored_tests_are_counted() {
        let text = "running 4 tests\ntest a ... ok\ntest b - should panic ... ok\ntest c ... FAILED\n\
                    test d ... ignored, too slow\ntest result: FAILED. 2 passed; 1 failed; 1 ignored;\n";
        let tally = read(text, false);
        assert_eq!((tally.passed, tally.failed), (2, vec!["p::c".to_owned()]));
        assert_eq!(tally.skipped[0].reason, "too slow");
        assert!(!tally.skipped[0].is_excused());
    }

    #[test]
    fn a_test_that_says_it_was_skipped_did_not_pass() {
        let text = "test a ... ok\ntest b ... ok\nsuccesses:\n\n---- b stdout ----\nSKIPPED [miri] not here\n\n\
                    successes:\n    a\n    b\n\ntest result: ok. 2 passed;\n";
        let tally = read(text, true);
        assert_eq!((tally.passed, tally.total()), (1, 2));
        assert_eq!(tally.skipped[0].what, "p::b");
    }

    #[test]
    fn a_skip_of_another_form_is_one_that_nothing_excuses() {
        let text = "test t ... ok\ntest u ... ok\nsuccesses:\n\n---- t stdout ----\nSKIPPED: no go\n\n\
                    ---- u stdout ----\nnothing was SKIPPED here\n\n\
                    successes:\n    t\n    u\n\ntest result: ok. 2 passed;\n";
        let tally = read(text, true);
        assert_eq!((tally.passed, tally.skipped.len()), (1, 1));
        let skip = &tally.skipped[0];
        assert_eq!((skip.what.as_str(), skip.reason.as_str()), ("p::t", "no go"));
        assert!(!skip.is_excused());
    }

    #[test]
    fn what_a_test_says_about_how_it_ran_is_kept_whether_it_passed_or_failed() {
        let text = |verdict: &str| {
            format!(
                "test a ... {verdict}\nNOTICE of nobody\n---- a stdout ----\nNOTICE on loopback addresses\n\
                 it is no NOTICE here\n\ntest result: it ended;\n"
            )
        };
        for (verdict, succeeded) in [("ok", true), ("FAILED", false)] {
            let tally = read(&text(verdict), succeeded);
            assert_eq!(tally.notices, ["p::a: on loopback addresses"], "{verdict}");
            assert_eq!(
                (tally.total(), tally.passed),
                (1, usize::from(succeeded)),
                "it is a test like others"
            );
        }
        let mut all = read(&text("ok"), true);
        all.add(read(&text("ok"), true));
        assert_eq!(all.notices.len(), 2);
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        assert_eq!(read("running 2 tests\ntest a ... ok\n", false).failed, ["p"]);
    }

    #[test]
    fn a_program_without_a_harness_is_one_test() {
        assert_eq!(read("all is well\n", true).passed, 1);
    }

    #[test]
    fn the_last_line_says_how_many_tests_ran() {
        let ran = |text: &str| tests_run(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        let result = "test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 4 filtered out; \
                      finished in 0.25s";
        assert_eq!(ran(&format!("test a ... ok\n\n{result}\n")), Some(15));
        assert_eq!(ran("test a ... ok\n"), None);
    }

    #[test]
    fn an_empty_harness_is_no_test() {
        assert_eq!(read("running 0 tests\n\ntest result: ok. 0 passed; 0 failed;\n", true).total(), 0);
    }
}
