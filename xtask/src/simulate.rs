//! `cargo xtask sim --seed N`: replays simulated faults, in every crate that has a simulation.
//!
//! A simulation is an example or program named `sim_NAME` that takes `--seed-from N` and `--seeds M` (or
//! `--minutes N`), and prints one line of JSON for each finished chunk: see [`crate::ledger`].

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::Failure;
use crate::ledger::Chunk;
use crate::{cargo, run, workspace};
use std::process::Command;

/// A program that runs seeds.
pub struct Seeded {
    /// Its name without the prefix.
    pub name: String,
    package: String,
    target: String,
    kind: String,
}

impl Seeded {
    /// The programs of the workspace whose names start with one of `prefixes`.
    pub fn all(prefixes: &[&str]) -> Result<Vec<Self>, Failure> {
        let mut programs = Vec::new();
        for package in workspace::packages()? {
            for target in
                package.targets.iter().filter(|target| matches!(target.kind.as_str(), "bin" | "example"))
            {
                let Some(name) = prefixes.iter().find_map(|prefix| target.name.strip_prefix(prefix)) else {
                    continue;
                };
                programs.push(Self {
                    name: name.to_owned(),
                    package: package.name.clone(),
                    target: target.name.clone(),
                    kind: target.kind.clone(),
                });
            }
        }
        Ok(programs)
    }

    /// Builds it; says so.
    pub fn build(&self) -> Result<(), Failure> {
        let mut command = cargo::building()?;
        command.args(["build", "--release", "--package", &self.package]);
        command.args([format!("--{}", self.kind), self.target.clone()]);
        run::step(&format!("build {}", self.target), &mut command).map(drop)
    }

    /// A command that runs it.
    pub fn command(&self) -> Result<Command, Failure> {
        let mut command = cargo::command()?;
        command.args(["run", "--quiet", "--release", "--package", &self.package]);
        command.args([format!("--{}", self.kind), self.target.clone(), "--".to_owned()]);
        Ok(command)
    }
}

/// Runs `--count` seeds from `--seed` in every simulation.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let seed: u64 = arguments.option("--seed")?.ok_or_else(|| arguments.wrong("--seed is missing"))?;
    let count: u64 = arguments.option("--count")?.unwrap_or(1);
    let none = arguments.wrong("no crate has a program named sim_NAME");
    arguments.finish()?;
    let programs = Seeded::all(&["sim_", "sim-"])?;
    if programs.is_empty() {
        return Err(none);
    }
    heading(&format!("Simulating {count} seeds from {seed}"));
    let mut failures = 0;
    for program in &programs {
        program.build()?;
        failures += simulate(program, seed, count)?;
    }
    if failures > 0 {
        return Err(Failure::Broken { what: "seed", count: usize::try_from(failures).unwrap_or(usize::MAX) });
    }
    Ok(())
}

/// How many seeds failed.
fn simulate(program: &Seeded, seed: u64, count: u64) -> Result<u64, Failure> {
    let mut command = program.command()?;
    command.args(["--seed-from", &seed.to_string(), "--seeds", &count.to_string()]);
    let mut step = Step::start(&program.name);
    let ran = run::watched(&program.name, &mut command, &mut step)?;
    let chunks: Vec<Chunk> = ran.stdout.iter().filter_map(|line| Chunk::parse(line)).collect();
    let (seeds, failed) =
        chunks.iter().fold((0, 0), |(seeds, failed), chunk| (seeds + chunk.seeds, failed + chunk.failures));
    let holds = ran.status.success() && failed == 0 && seeds >= count;
    step.end(
        if holds { Verdict::Passed } else { Verdict::Failed },
        &format!("{seeds} seeds, {failed} failures"),
    );
    // One seed is run to be looked at: show everything it said.
    if !holds || count == 1 {
        ran.everything
            .iter()
            .filter(|line| Chunk::parse(line).is_none())
            .for_each(|line| println!("    {line}"));
    }
    Ok(if holds { 0 } else { failed.max(1) })
}
