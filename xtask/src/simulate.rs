//! `cargo xtask sim --seed N`: replays simulated faults in all simulations.

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::Failure;
use crate::ledger::Chunk;
use crate::run;
use crate::seeded::{Kind, SEEDED};
use std::process::Command;

/// Runs `--count` seeds from `--seed` in every simulation.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let seed: u64 = arguments.option("--seed")?.ok_or_else(|| arguments.wrong("--seed is missing"))?;
    let count: u64 = arguments.option("--count")?.unwrap_or(1);
    if count == 0 {
        return Err(arguments.wrong("--count must be at least 1"));
    }
    arguments.finish()?;
    let plural = if count == 1 { "" } else { "s" };
    heading(&format!("Simulating {count} seed{plural} from {seed}"));
    let mut failures = 0;
    for seeded in SEEDED.iter().filter(|seeded| seeded.is_simulation) {
        let (name, Kind::Program(program)) = (seeded.name, &seeded.kind) else { continue };
        let command = &mut program.built()?;
        failures +=
            if count == 1 { tell(name, command, seed)? } else { count_failures(name, command, seed, count)? };
    }
    if failures > 0 {
        return Err(Failure::Broken { what: "seed", count: usize::try_from(failures).unwrap_or(usize::MAX) });
    }
    Ok(())
}

/// Runs a single seed for inspection, with all its output on this terminal.
fn tell(name: &str, command: &mut Command, seed: u64) -> Result<u64, Failure> {
    command.args(["--seed", &seed.to_string()]);
    match run::attached(name, command) {
        Ok(()) => Ok(0),
        Err(Failure::Command { .. }) => Ok(1),
        Err(failure) => Err(failure),
    }
}

/// Counts the seeds that failed; a program that did not run them all counts as one more failure.
fn count_failures(name: &str, command: &mut Command, seed: u64, count: u64) -> Result<u64, Failure> {
    command.args(["--seed-from", &seed.to_string(), "--seeds", &count.to_string()]);
    let mut step = Step::start(name);
    let ran = run::watched(name, command, &mut step)?;
    let chunks = ran.stdout.iter().filter_map(|line| Chunk::parse(line));
    let (seeds, failed) =
        chunks.fold((0, 0), |(seeds, failed), chunk| (seeds + chunk.seeds, failed + chunk.failures));
    let holds = ran.succeeded() && failed == 0 && seeds >= count;
    step.end(
        if holds { Verdict::Passed } else { Verdict::Failed },
        &format!("{seeds} seeds, {failed} failures"),
    );
    if !holds {
        ran.everything.iter().for_each(|line| println!("    {line}"));
    }
    Ok(if holds { 0 } else { failed.max(1) })
}
