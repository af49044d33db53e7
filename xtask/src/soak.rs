//! `cargo xtask soak NAME --minutes N`: runs fresh seeds for a while and adds them to the ledger; with
//! `--add FILE`, chunks that were run elsewhere. Where seeds are judged together, they are at the end.
//!
//! The programs are those of [`crate::seeded`].

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::{Failure, shown};
use crate::ledger::{Chunk, Ledger};
use crate::run::{self, Ran};
use crate::seeded::{self, Kind, Program, SEEDED, Seeded, Tests};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much longer than asked a soak may take for its last chunk.
const GRACE: Duration = Duration::from_secs(600);

/// What one soak did.
#[derive(Default)]
struct Soaked {
    seeds: u64,
    failures: u64,
    /// The end of a child that ended badly.
    ended: Option<String>,
    /// What it said.
    output: Vec<String>,
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
        add(&name, &file, &mut ledger)?;
        return verdict(&name, seeded);
    }
    let minutes = minutes.ok_or(missing)?;
    heading(&format!("Soaking {name} for {minutes} minutes, from seed {}", ledger.next_seed()));
    let time = Duration::from_secs(minutes * 60);
    match &seeded.kind {
        Kind::Program(program) => program.build()?,
        Kind::Tests(tests) => tests.build()?,
    }
    let mut step = Step::start(&name);
    let soaked = match &seeded.kind {
        Kind::Program(program) => soak_program(&name, program, time, &mut ledger, &mut step)?,
        Kind::Tests(tests) => soak_tests(&name, tests, time, &mut ledger, &mut step)?,
    };
    conclude(&name, soaked, step, &ledger)?;
    verdict(&name, seeded)
}

/// Adds the chunks of a file.
fn add(name: &str, file: &Path, ledger: &mut Ledger) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file).map_err(Failure::io(format!("read {}", shown(file))))?;
    for line in text.lines() {
        match Chunk::parse(line) {
            Some(chunk) if chunk.soak == name && chunk.seed_from >= ledger.next_seed() => {
                ledger.add(chunk)?
            }
            _ => {
                let problem =
                    format!("a line is no chunk of {name}, or of seeds that were counted: {line:.80}");
                return Err(Failure::Malformed { what: shown(file), problem });
            }
        }
    }
    Ok(())
}

/// What all seeds say together, where they are judged so.
fn verdict(name: &str, seeded: &Seeded) -> Result<(), Failure> {
    let Kind::Tests(tests) = &seeded.kind else { return Ok(()) };
    let Some(mut command) = tests.verdict()? else { return Ok(()) };
    let ran = run::step(&format!("judge {name}"), &mut command)?;
    ran.stdout.iter().for_each(|line| println!("    {line}"));
    Ok(())
}

fn conclude(name: &str, soaked: Soaked, step: Step, ledger: &Ledger) -> Result<(), Failure> {
    let holds = soaked.ended.is_none() && soaked.failures == 0 && soaked.seeds > 0;
    let verdict = if holds { Verdict::Passed } else { Verdict::Failed };
    step.end(verdict, &format!("{} seeds, {} failures", soaked.seeds, soaked.failures));
    if !holds {
        let words = soaked.output.iter().filter(|line| Chunk::parse(line).is_none());
        words.for_each(|line| println!("    {line}"));
    }
    let totals = ledger.totals();
    println!("\nSo far at format {}: {totals}.", totals.format);
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
    program: &Program,
    time: Duration,
    ledger: &mut Ledger,
    step: &mut Step,
) -> Result<Soaked, Failure> {
    let mut command = program.command()?;
    let minutes = (time.as_secs() / 60).to_string();
    command.args(["--seed-from", &ledger.next_seed().to_string(), "--minutes", &minutes]);
    let (mut soaked, mut since) = (Soaked::default(), Instant::now());
    let ran = run::streamed(name, &mut command, step, Some(time + GRACE), |line| {
        let Some(chunk) = Chunk::parse(line) else { return Ok(()) };
        soaked.seeds += chunk.seeds;
        soaked.failures += chunk.failures;
        let taken = std::mem::replace(&mut since, Instant::now()).elapsed();
        ledger.add(chunk.taking(taken))
    })?;
    Ok(with_end(soaked, ran))
}

/// Each run of the tests is a chunk, and a run that fails is one failure.
fn soak_tests(
    name: &str,
    tests: &Tests,
    time: Duration,
    ledger: &mut Ledger,
    step: &mut Step,
) -> Result<Soaked, Failure> {
    let started = Instant::now();
    let mut soaked = Soaked::default();
    while soaked.seeds == 0 || started.elapsed() < time {
        let (seed_from, begun) = (ledger.next_seed(), Instant::now());
        let (mut failures, mut told) = (0, None);
        for mut command in tests.commands(seed_from)? {
            let ran = run::streamed(name, &mut command, step, Some(time + GRACE), |line| {
                told = Chunk::parse(line).or(told.take());
                Ok(())
            })?;
            failures += u64::from(!ran.succeeded());
            if !ran.succeeded() {
                soaked = with_end(soaked, ran);
            }
        }
        match (told, tests.verdict()?) {
            (Some(chunk), Some(_)) => ledger.add(chunk.taking(begun.elapsed()))?,
            // Half of a tally says nothing; and the seeds are to be run again when what broke is mended.
            (None, Some(_)) => return Ok(Soaked { failures: soaked.failures + failures.max(1), ..soaked }),
            _ => {
                let chunk = Chunk::of(name, tests.format, seed_from, tests.seeds_per_run, failures);
                ledger.add(chunk.taking(begun.elapsed()))?;
            }
        }
        soaked.seeds += tests.seeds_per_run;
        soaked.failures += failures;
    }
    Ok(soaked)
}

fn with_end(mut soaked: Soaked, ran: Ran) -> Soaked {
    if !ran.succeeded() {
        soaked.ended = Some(ran.ended());
        soaked.output.extend(ran.everything);
    }
    soaked
}
