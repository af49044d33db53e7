//! `cargo xtask clients`: stock clients of Redis at a ring of real nodes, while one node is killed and another joins.
//!
//! A program in Python starts the nodes, has each client run, and judges what it tells: `tests/clients/run.py`.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{cargo, run, venv, workspace};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const DRIVER: &str = "tests/clients/run.py";

/// Builds the program and runs the driver, whose other arguments are the ones given here.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let python = venv::python()?;
    let atoll = program()?;
    let mut command = Command::new(python);
    command.current_dir(workspace::root()?).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(DRIVER).arg("--atoll").arg(atoll);
    command.arg("--folder").arg(workspace::target_dir()?.join("clients"));
    run::attached("the trial of the clients", command.args(arguments.rest()))
}

/// The program as tests have it.
fn program() -> Result<PathBuf, Failure> {
    let mut command = cargo::building()?;
    command.args(["build", "--package", "atoll", "--message-format", "json-render-diagnostics"]);
    let ran = run::step("build atoll", command.args(cargo::locked()))?;
    built(&ran.stdout).ok_or_else(|| Failure::Malformed {
        what: "the output of cargo build".to_owned(),
        problem: "it names no program atoll".to_owned(),
    })
}

/// The program that Cargo says it built.
fn built(lines: &[String]) -> Option<PathBuf> {
    let messages = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours =
        messages.filter(|message| message.pointer("/target/name").and_then(Value::as_str) == Some("atoll"));
    let mut programs = ours.filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    programs.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_what_cargo_built() {
        let line = |name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"executable":{executable}}}"#
            )
        };
        let lines =
            [line("atoll_open", "null"), line("atoll", "null"), line("atoll", "\"/t/atoll\""), String::new()];
        assert_eq!(built(&lines), Some(PathBuf::from("/t/atoll")));
        assert_eq!(built(&lines[..2]), None);
    }
}
