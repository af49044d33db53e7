//! The seeded programs: what `sim` and `soak` run.
//!
//! Each takes `--seed-from N` and either `--seeds M` or `--minutes M`, and prints one line of JSON for each
//! finished chunk of seeds (see [`crate::ledger`]). A simulation also takes `--seed N`: that seed alone, in
//! words.

use crate::failure::Failure;
use crate::{cargo, run};
use std::process::Command;

/// A program that runs seeds.
pub struct Seeded {
    /// What `soak` calls it.
    pub name: &'static str,
    package: &'static str,
    program: &'static str,
    words: &'static [&'static str],
    /// Whether a seed replays exactly: then `sim` runs it too.
    pub is_simulation: bool,
}

/// Every seeded program.
pub const SEEDED: &[Seeded] = &[
    Seeded {
        name: "crash-sim",
        package: "atoll-crash",
        program: "atoll-crash",
        words: &["sim"],
        is_simulation: true,
    },
    Seeded {
        name: "crash-kill",
        package: "atoll-crash",
        program: "atoll-crash",
        words: &["kill"],
        is_simulation: false,
    },
];

/// The program that `soak` calls so.
pub fn find(name: &str) -> Option<&'static Seeded> {
    SEEDED.iter().find(|seeded| seeded.name == name)
}

impl Seeded {
    /// Builds it; says so.
    pub fn build(&self) -> Result<(), Failure> {
        let mut command = cargo::building()?;
        command.args(["build", "--release", "--package", self.package, "--bin", self.program]);
        run::step(&format!("build {}", self.program), &mut command).map(drop)
    }

    /// A command that runs it.
    pub fn command(&self) -> Result<Command, Failure> {
        let mut command = cargo::command()?;
        command.args(["run", "--quiet", "--release", "--package", self.package, "--bin", self.program, "--"]);
        command.args(self.words);
        Ok(command)
    }
}
