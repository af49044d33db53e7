//! `cargo xtask soak NAME --minutes N`: runs fresh seeds for a while and adds them to the ledger. With
//! `--add FILE` it adds chunks that were run elsewhere. Soaks whose seeds are judged together are judged at
//! the end.
//!
//! The programs are listed in [`crate::seeded`].

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::{Failure, shown};
use crate::ledger::{self, Chunk, Ledger};
use crate::run::{self, Ran};
use crate::seeded::{self, Kind, SEEDED, Seeded, Tests};
use crate::test::programs::Program;
use crate::tests_output::{self, Tally};
use crate::workspace;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How much longer than asked a soak may run to finish its last chunk.
const GRACE: Duration = Duration::from_secs(600);

/// The result of one soak.
#[derive(Default)]
struct SoakResult {
    seeds: u64,
    failures: u64,
    /// The format of the chunks; `None` before the first one.
    format: Option<u64>,
    /// How a child ended that failed.
    ended: Option<String>,
    /// The output of that child.
    output: Vec<String>,
}

impl SoakResult {
    fn count(&mut self, chunk: &Chunk) {
        self.seeds += chunk.seeds;
        self.failures += chunk.failures;
        self.format = Some(chunk.format);
    }
}

/// Runs one soak.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let known: Vec<&str> = SEEDED.iter().map(|program| program.name).collect();
    let known = known.join(", ");
    let name =
        arguments.word().ok_or_else(|| arguments.wrong(format!("NAME is missing; there is: {known}")))?;
    let added: Option<PathBuf> = arguments.option("--add")?;
    let minutes: Option<u64> = arguments.option("--minutes")?;
    let missing = arguments.wrong("--minutes is missing");
    let unknown = arguments.wrong(format!("there is no soak {name:?}; there is: {known}"));
    arguments.finish()?;
    let Some(seeded) = seeded::find(&name) else { return Err(unknown) };
    let mut ledger = Ledger::open(&name)?;
    if let Some(file) = added {
        let text = std::fs::read_to_string(&file).map_err(Failure::io(format!("read {}", shown(&file))))?;
        add(&name, &text, &shown(&file), &mut ledger)?;
        return verdict(&name, seeded);
    }
    let minutes = minutes.ok_or(missing)?;
    heading(&format!("Soaking {name} for {minutes} minutes, from seed {}", ledger.next_seed()));
    let time = Duration::from_secs(minutes * 60);
    let (soaked, step) = match &seeded.kind {
        Kind::Program(program) => {
            let mut command = program.built()?;
            let mut step = Step::start(&name);
            (soak_program(&name, &mut command, time, &mut ledger, &mut step)?, step)
        }
        Kind::Tests(tests) => {
            let copies = Copies::new(&name)?;
            let programs = tests.build(&copies.0)?;
            let mut step = Step::start(&name);
            (soak_tests(&name, (tests, &programs), time, &mut ledger, &mut step)?, step)
        }
    };
    conclude(&name, soaked, step, &ledger)?;
    verdict(&name, seeded)
}

/// The folder of a soak's own copies of its test programs. It is removed at the end.
struct Copies(PathBuf);

impl Copies {
    fn new(name: &str) -> Result<Self, Failure> {
        let of_run = format!("{name}-{}", std::process::id());
        let folder = workspace::target_dir()?.join("soak-programs").join(of_run);
        let made = std::fs::create_dir_all(&folder);
        made.map_err(Failure::io("make a folder for the programs of the soak"))?;
        Ok(Self(folder))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // What is left over takes space among the builds, and nothing reads it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Adds the chunks in a text, all of them or none, and ends as the soak that ran them would.
fn add(name: &str, text: &str, file: &str, ledger: &mut Ledger) -> Result<(), Failure> {
    let step = Step::start(format!("add {file}"));
    let chunks = ledger::read(text, file)?;
    if let Some(other) = chunks.iter().find(|chunk| chunk.soak != name) {
        let problem = format!("a line is no chunk of {name} but of {}", other.soak);
        return Err(Failure::Malformed { what: file.to_owned(), problem });
    }
    let mut soaked = SoakResult::default();
    chunks.iter().for_each(|chunk| soaked.count(chunk));
    ledger.add_all(chunks)?;
    conclude(name, soaked, step, ledger)
}

/// Judges all seeds together, for soaks that do so.
fn verdict(name: &str, seeded: &Seeded) -> Result<(), Failure> {
    let Kind::Tests(tests) = &seeded.kind else { return Ok(()) };
    let Some(mut command) = tests.verdict()? else { return Ok(()) };
    let ran = run::step(&format!("judge {name}"), &mut command)?;
    ran.stdout.iter().for_each(|line| println!("    {line}"));
    judged(name, &ran.stdout)
}

/// Checks that a test has judged: a run whose filter matches no test succeeds too.
fn judged(name: &str, lines: &[String]) -> Result<(), Failure> {
    let what = format!("the verdict on {name}");
    match Tally::read(&what, lines, true) {
        Tally { passed: 1, failed, skipped, .. } if failed.is_empty() && skipped.is_empty() => Ok(()),
        tally => {
            let problem = format!("{} tests passed where one judges", tally.passed);
            Err(Failure::Malformed { what, problem })
        }
    }
}

fn conclude(name: &str, soaked: SoakResult, step: Step, ledger: &Ledger) -> Result<(), Failure> {
    let holds = soaked.ended.is_none() && soaked.failures == 0 && soaked.seeds > 0;
    let verdict = if holds { Verdict::Passed } else { Verdict::Failed };
    step.end(verdict, &format!("{} seeds, {} failures", soaked.seeds, soaked.failures));
    if !holds {
        let words = soaked.output.iter().filter(|line| Chunk::parse(line).is_none());
        words.for_each(|line| println!("    {line}"));
    }
    // Of seeds at an older format nothing is told: they are no longer added up.
    if let Some(format) = soaked.format {
        let totals = ledger.totals(format);
        println!("\nSo far at format {}: {totals}.", totals.format);
    }
    match (holds, soaked.failures) {
        (true, _) => Ok(()),
        (false, 0) => {
            let ended = soaked.ended.unwrap_or_else(|| "ran no seed".to_owned());
            Err(Failure::Command { what: name.to_owned(), ended })
        }
        (false, count) => {
            Err(Failure::Broken { what: "seed", count: usize::try_from(count).unwrap_or(usize::MAX) })
        }
    }
}

fn soak_program(
    name: &str,
    command: &mut Command,
    time: Duration,
    ledger: &mut Ledger,
    step: &mut Step,
) -> Result<SoakResult, Failure> {
    let minutes = (time.as_secs() / 60).to_string();
    command.args(["--seed-from", &ledger.next_seed().to_string(), "--minutes", &minutes]);
    let (mut soaked, mut since) = (SoakResult::default(), Instant::now());
    let ran = run::streamed(name, command, step, Some(time + GRACE), |line| {
        let Some(chunk) = Chunk::parse(line) else { return Ok(()) };
        soaked.count(&chunk);
        let taken = std::mem::replace(&mut since, Instant::now()).elapsed();
        ledger.add(chunk.taking(taken))
    })?;
    Ok(with_end(soaked, ran))
}

/// Runs the tests repeatedly; each run is a chunk, and a failed run counts as one failure.
fn soak_tests(
    name: &str,
    (tests, programs): (&Tests, &[Program]),
    time: Duration,
    ledger: &mut Ledger,
    step: &mut Step,
) -> Result<SoakResult, Failure> {
    let started = Instant::now();
    let mut soaked = SoakResult::default();
    while soaked.seeds == 0 || started.elapsed() < time {
        let (seed_from, begun) = (ledger.next_seed(), Instant::now());
        let (mut failures, mut told) = (0, None);
        for mut command in tests.commands(programs, seed_from)? {
            let ran = run::streamed(name, &mut command, step, Some(time + GRACE), |line| {
                told = Chunk::parse(line).or(told.take());
                Ok(())
            })?;
            check_that_tests_ran(name, &ran.stdout, ran.succeeded())?;
            failures += u64::from(!ran.succeeded());
            if !ran.succeeded() {
                soaked = with_end(soaked, ran);
            }
        }
        let own = Chunk::of(name, tests.format, seed_from, tests.seeds_per_run, failures);
        let Some(chunk) = chunk_of_run(own, told, tests.prints_lines) else {
            return Ok(SoakResult { failures: soaked.failures + failures.max(1), ..soaked });
        };
        soaked.count(&chunk);
        ledger.add(chunk.taking(begun.elapsed()))?;
    }
    Ok(soaked)
}

/// Checks that a run ran tests, because only then its seeds count. A filter that matches no test succeeds
/// too; a test that ends its whole program leaves no result, and has failed.
fn check_that_tests_ran(name: &str, lines: &[String], succeeded: bool) -> Result<(), Failure> {
    match tests_output::tests_run(lines) {
        Some(1..) => Ok(()),
        None if !succeeded => Ok(()),
        _ => {
            let problem = "it shows no test that ran".to_owned();
            Err(Failure::Malformed { what: format!("the output of {name}"), problem })
        }
    }
}

/// The chunk that a run of tests adds to the ledger. If the tests print a line of their own, it is that
/// line, with at least as many failures as the exit codes show. `None` if such a line is missing: half of a
/// tally says nothing, and the seeds must run again once the problem is solved.
fn chunk_of_run(own: Chunk, told: Option<Chunk>, tells_a_line: bool) -> Option<Chunk> {
    match (told, tells_a_line) {
        (Some(told), true) => Some(told.failing(own.failures)),
        (None, true) => None,
        (_, false) => Some(own),
    }
}

fn with_end(mut soaked: SoakResult, ran: Ran) -> SoakResult {
    if !ran.succeeded() {
        soaked.ended = Some(ran.ended());
        soaked.output.extend(ran.everything);
    }
    soaked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_are_added_fail() {
        let folder = std::env::temp_dir().join(format!("atoll-soak-{}", std::process::id()));
        let mut ledger = Ledger::for_test(folder.join("crash.jsonl"));
        let line = |seed_from, failures| {
            let (soak, seeds) = ("crash", 10);
            serde_json::json!({"soak": soak, "format": 1, "seed_from": seed_from, "seeds": seeds, "failures": failures})
                .to_string()
        };
        let mut ended = |text: &str| add("crash", text, "a.jsonl", &mut ledger);
        assert!(ended(&line(0, 0)).is_ok());
        assert!(matches!(ended(&line(10, 3)), Err(Failure::Broken { count: 3, .. })));
        assert!(ended(&line(20, 0).replace("crash", "other")).is_err(), "of another soak");
        assert!(ended(&format!("{}\n{{", line(20, 0))).is_err(), "torn");
        assert!(ended("").is_err(), "nothing");
        assert_eq!(ledger.totals(1).seeds, 20);
        drop(ledger);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_verdict_of_no_test_is_none() {
        let judged = |text: &str| judged("coverage", &text.lines().map(str::to_owned).collect::<Vec<_>>());
        let end = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out";
        assert!(judged(&format!("running 1 test\ntest what_holds ... ok\n\n{end}\n")).is_ok());
        assert!(judged(&format!("running 0 tests\n\n{}\n", end.replace("1 passed", "0 passed"))).is_err());
    }

    #[test]
    fn seeds_of_a_run_without_tests_do_not_count() {
        let counts = |text: &str, succeeded| {
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            check_that_tests_ran("queries", &lines, succeeded).is_ok()
        };
        let end = |passed: u8, failed: u8| {
            format!("running tests\n\ntest result: x. {passed} passed; {failed} failed; 0 ignored; finished")
        };
        assert!(counts(&end(2, 0), true) && counts(&end(0, 1), false));
        assert!(!counts(&end(0, 0), true), "its filter matches no test");
        assert!(!counts("", true), "it is no test program");
        assert!(counts("running 1 test\n", false), "a test ended its program: a failure of the seed");
    }

    #[test]
    fn a_line_of_a_run_that_failed_is_not_counted_as_one_that_held() {
        let chunk = |failures| Chunk::of("coverage", 1, 0, 20, failures);
        assert_eq!(chunk_of_run(chunk(1), Some(chunk(0)), true).map(|chunk| chunk.failures), Some(1));
        assert_eq!(chunk_of_run(chunk(0), None, true), None);
        assert_eq!(chunk_of_run(chunk(1), None, false).map(|chunk| chunk.failures), Some(1));
    }
}
