//! `cargo xtask soak NAME --minutes N`: runs fresh seeds for a while and adds them to the ledger.
//!
//! The programs are those of [`crate::seeded`].

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::Failure;
use crate::ledger::{Chunk, Ledger};
use crate::run::{self, Ran};
use crate::seeded::{self, Kind, Program, SEEDED, Tests};
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
    let minutes: u64 =
        arguments.option("--minutes")?.ok_or_else(|| arguments.wrong("--minutes is missing"))?;
    let unknown = arguments.wrong(format!("there is no soak {name:?}; there is: {known}"));
    arguments.finish()?;
    let Some(seeded) = seeded::find(&name) else { return Err(unknown) };
    let mut ledger = Ledger::open(&name)?;
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
    conclude(&name, soaked, step, &ledger)
}

fn conclude(name: &str, soaked: Soaked, step: Step, ledger: &Ledger) -> Result<(), Failure> {
    let holds = soaked.ended.is_none() && soaked.failures == 0 && soaked.seeds > 0;
    let verdict = if holds { Verdict::Passed } else { Verdict::Failed };
    step.end(verdict, &format!("{} seeds, {} failures", soaked.seeds, soaked.failures));
    if !holds {
        let words = soaked.output.iter().filter(|line| Chunk::parse(line).is_none());
        words.for_each(|line| println!("    {line}"));
    }
    let (format, seeds, failures_ever) = ledger.totals();
    println!("\nSo far at format {format}: {seeds} seeds, {failures_ever} failures.");
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
    let mut soaked = Soaked::default();
    let ran = run::streamed(name, &mut command, step, Some(time + GRACE), |line| {
        let Some(chunk) = Chunk::parse(line) else { return Ok(()) };
        soaked.seeds += chunk.seeds;
        soaked.failures += chunk.failures;
        ledger.add(chunk)
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
        let seed_from = ledger.next_seed();
        let mut failures = 0;
        for mut command in tests.commands(seed_from)? {
            let ran = run::streamed(name, &mut command, step, Some(time + GRACE), |_| Ok(()))?;
            failures += u64::from(!ran.status.success());
            if !ran.status.success() {
                soaked = with_end(soaked, ran);
            }
        }
        ledger.add(Chunk::of(name, tests.format, seed_from, tests.seeds_per_run, failures))?;
        soaked.seeds += tests.seeds_per_run;
        soaked.failures += failures;
    }
    Ok(soaked)
}

fn with_end(mut soaked: Soaked, ran: Ran) -> Soaked {
    if !ran.status.success() {
        soaked.ended = Some(run::ended(ran.status));
        soaked.output.extend(ran.everything);
    }
    soaked
}
