//! The developer's command: `cargo xtask VERB`.
//!
//! Each verb says what it does, shows progress on every step that takes over two seconds, and names what is
//! missing together with the command that installs it.
//!
//! Invariant: a check that could not run is printed as SKIPPED with its reason, and never counts as passed.
//! Invariant: the exit code is zero only if everything that was asked for ran and held.

// This program is a door and measures itself: it prints, and it reads the clock and the environment.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod arguments;
mod cargo;
mod console;
mod failure;
mod family;
mod lock;
mod requirements;
mod run;
mod skip;
mod workspace;

mod house;

mod bench;
mod cassandra;
mod check;
mod clients;
mod demo;
mod fuzz;
mod ledger;
mod package;
mod rooms;
mod seeded;
mod simulate;
mod soak;
mod test;
mod tests_output;
mod venv;
mod verbs;
mod wheel;

use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match verbs::dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn report(failure: &Failure) {
    eprintln!("error: {failure}");
    if let Some(hint) = failure.hint() {
        eprintln!("  hint: {hint}");
    }
}
