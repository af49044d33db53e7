//! `cargo xtask bench ring`: builds `atoll` in release mode and the bench's own program (`benches/ring`),
//! then runs the bench.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{cargo, cassandra, requirements, run};
use std::process::Command;

const MANIFEST: &str = "benches/ring/Cargo.toml";
/// The program of the bench.
const PROGRAM: &str = "atoll-bench-ring";

/// Prepares everything and runs the bench on this terminal.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let words = arguments.rest();
    if words.iter().any(|word| word == "--peers") {
        if ["throughput", "always", "cut"].into_iter().any(|phase| wants(&words, phase)) {
            requirements::key_value_servers("the rivals of the ring")?;
        }
        if wants(&words, "cut") {
            requirements::networks("hosts that can be cut off")?;
        }
        if wants(&words, "cassandra") {
            cassandra::prepare()?;
        }
    }
    // Without network namespaces this phase has nothing to report.
    if is_named(&words, "schedules") {
        requirements::networks("hosts that can be cut off")?;
    }
    let mut command = built("run")?;
    // The bench starts and stops its Cassandra nodes through this program.
    command.arg("--cassandra").arg(std::env::current_exe().map_err(Failure::io("find this program"))?);
    command.args(words.iter().filter(|word| *word != "--"));
    run::attached("bench ring", &mut command)
}

/// Builds everything, and returns a command that runs random schedules and prints a line for each, as a soak
/// does.
pub fn schedules() -> Result<Command, Failure> {
    requirements::networks("hosts that can be cut off")?;
    built("soak")
}

/// Builds everything, and returns a command that runs the bench's program with this verb.
fn built(verb: &str) -> Result<Command, Failure> {
    let atoll = cargo::program("atoll", &["--release", "--package", "atoll"])?;
    let bench = cargo::program(PROGRAM, &["--release", "--manifest-path", MANIFEST])?;
    let mut command = Command::new(bench);
    command.arg(verb).arg("--atoll").arg(atoll);
    Ok(command)
}

/// Whether the words ask for this phase. Without `--phases` they ask for all.
fn wants(words: &[String], phase: &str) -> bool {
    named(words).is_none_or(|named| named.split(',').any(|name| name == phase))
}

/// Whether the words ask for this phase by name.
fn is_named(words: &[String], phase: &str) -> bool {
    named(words).is_some() && wants(words, phase)
}

/// The value of `--phases`.
fn named(words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word == "--phases" || word.starts_with("--phases="))?;
    match words[at].strip_prefix("--phases=") {
        Some(named) => Some(named.to_owned()),
        None => words.get(at + 1).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_wanted_when_it_is_named_or_none_is() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(wants(&words("--peers"), "cut"));
        assert!(wants(&words("--phases throughput,cut --peers"), "cut"));
        assert!(!wants(&words("--phases throughput"), "cut"));
        assert!(wants(&words("--phases=cut"), "cut"));
        assert!(!wants(&words("--phases=always --peers"), "cut"));
        assert!(is_named(&words("--phases cut,schedules"), "schedules"));
        assert!(!is_named(&words("--phases cut"), "schedules"));
        assert!(!is_named(&words("--peers"), "schedules"));
    }
}
