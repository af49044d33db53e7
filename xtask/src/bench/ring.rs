//! `cargo xtask bench ring`: a release build of `atoll`, the bench's own program (`benches/ring`), and then
//! the bench.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{cargo, cassandra, requirements, run};
use std::process::Command;

const MANIFEST: &str = "benches/ring/Cargo.toml";
/// The program of the bench.
const PROGRAM: &str = "atoll-bench-ring";

/// Makes everything ready, and runs the bench with this terminal as its own.
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
    // Without them there would be nothing to tell.
    if is_named(&words, "schedules") {
        requirements::networks("hosts that can be cut off")?;
    }
    let atoll = cargo::program("atoll", &["--release", "--package", "atoll"])?;
    let bench = cargo::program(PROGRAM, &["--release", "--manifest-path", MANIFEST])?;
    let mut command = Command::new(bench);
    command.arg("run").arg("--atoll").arg(atoll);
    // Nodes of Cassandra are started and ended by this very program.
    command.arg("--cassandra").arg(std::env::current_exe().map_err(Failure::io("find this program"))?);
    command.args(words.iter().filter(|word| *word != "--"));
    run::attached("bench ring", &mut command)
}

/// Whether the words ask for a phase: without `--phases` they ask for all.
fn wants(words: &[String], phase: &str) -> bool {
    named(words).is_none_or(|named| named.split(',').any(|name| name == phase))
}

/// Whether they ask for it by its name.
fn is_named(words: &[String], phase: &str) -> bool {
    named(words).is_some() && wants(words, phase)
}

/// The phases that words ask for.
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
