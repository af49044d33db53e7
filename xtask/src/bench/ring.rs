//! `cargo xtask bench ring`: a release build of `atoll`, the bench's own program (`benches/ring`), and then the bench.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{cargo, requirements, run};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const MANIFEST: &str = "benches/ring/Cargo.toml";
/// The program of the bench.
const PROGRAM: &str = "atoll-bench-ring";

/// Makes everything ready, and runs the bench with this terminal as its own; it knows its own flags best.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let words = arguments.rest();
    if words.iter().any(|word| word == "--peers") {
        requirements::key_value_servers("the rivals of the ring")?;
        if wants(&words, "cut") {
            requirements::networks("hosts that can be cut off")?;
        }
    }
    // Without them there would be nothing to tell.
    if is_named(&words, "schedules") {
        requirements::networks("hosts that can be cut off")?;
    }
    let atoll = program("atoll", &["--package", "atoll"])?;
    let bench = program(PROGRAM, &["--manifest-path", MANIFEST])?;
    let mut command = Command::new(bench);
    command.arg("run").arg("--atoll").arg(atoll);
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

/// Builds a program, optimised.
fn program(name: &str, selection: &[&str]) -> Result<PathBuf, Failure> {
    let mut command = cargo::building()?;
    command.args(["build", "--release", "--message-format", "json-render-diagnostics"]);
    command.args(selection).args(cargo::locked());
    let ran = run::step(&format!("build {name}, optimised"), &mut command)?;
    built(&ran.stdout, name).ok_or_else(|| Failure::Malformed {
        what: "the output of cargo build".to_owned(),
        problem: format!("it names no program {name}"),
    })
}

/// The program of this name that Cargo says it built.
fn built(lines: &[String], name: &str) -> Option<PathBuf> {
    let messages = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_meant = |message: &Value| message.pointer("/target/name").and_then(Value::as_str) == Some(name);
    let mut programs = messages
        .filter(is_meant)
        .filter_map(|message| message.get("executable").and_then(Value::as_str).map(PathBuf::from));
    programs.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_told_from_others_that_cargo_built() {
        let line = |name: &str, executable: &str| {
            format!(r#"{{"target":{{"name":"{name}"}},"executable":{executable}}}"#)
        };
        let lines = [line("atoll_cli", "null"), line("atoll", r#""/t/release/atoll""#), String::new()];
        assert_eq!(built(&lines, "atoll"), Some(PathBuf::from("/t/release/atoll")));
        assert_eq!(built(&lines, "atoll_cli"), None);
        assert_eq!(built(&lines, PROGRAM), None);
    }

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
