//! `cargo xtask bench tables`: prepares a Python environment with the rivals, the package of this checkout
//! and the program that counts work, then runs the bench, which is Python (`benches/tables`).

use super::{CONFIG, MANIFEST};
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::package::{self, Build};
use crate::{cargo, run, venv, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages that the bench and its rivals need.
const REQUIREMENTS: &str = "benches/tables/requirements.txt";
/// The program of the benches.
const PROGRAM: &str = "atoll-benches";

/// Prepares everything and runs the bench on this terminal.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut command = command("tables")?;
    command.args(arguments.rest().iter().filter(|word| *word != "--"));
    run::attached("bench tables", &mut command)
}

/// The command that runs a Python bench, given the name of its package, with everything it needs prepared.
pub fn command(package: &str) -> Result<Command, Failure> {
    let python = venv::made("bench", REQUIREMENTS)?;
    package::install(&python, Build::Release)?;
    let program = program()?;
    let mut command = Command::new(python);
    // The package is found by path, not by working folder, so that output files land in the caller's
    // folder.
    command.env("PYTHONPATH", workspace::root()?.join("benches")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["-m", package, "--folder"]).arg(folder(&program)).arg("--counter").arg(&program);
    Ok(command)
}

/// Builds the program that counts work.
fn program() -> Result<PathBuf, Failure> {
    let mut command = cargo::building()?;
    command.args(["build", "--config", CONFIG, "--release", "--manifest-path", MANIFEST]);
    command.args(["--features", "tables", "--message-format", "json-render-diagnostics"]);
    let ran = run::step("build the program that counts work", &mut command)?;
    built(&ran.stdout).ok_or_else(|| Failure::Malformed {
        what: "the output of cargo build".to_owned(),
        problem: format!("it names no program {PROGRAM}"),
    })
}

/// The program in Cargo's build messages.
fn built(lines: &[String]) -> Option<PathBuf> {
    let messages = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_ours = |message: &Value| message.pointer("/target/name").and_then(Value::as_str) == Some(PROGRAM);
    let mut programs = messages
        .filter(is_ours)
        .filter_map(|message| message.get("executable").and_then(Value::as_str).map(PathBuf::from));
    programs.next_back()
}

/// The folder for rows and stores: on a real disk, never on a memory file system by accident.
fn folder(program: &Path) -> PathBuf {
    std::env::var_os("ATOLL_BENCH_DIR").map_or_else(
        // Beside the profile folder that holds the program.
        || program.ancestors().nth(2).unwrap_or(Path::new(".")).to_owned(),
        PathBuf::from,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_what_cargo_built() {
        let line = |name: &str, executable: &str| {
            format!(r#"{{"target":{{"name":"{name}"}},"executable":{executable}}}"#)
        };
        let lines = [line("build-script", r#""/t/b""#), line(PROGRAM, r#""/t/release/it""#), String::new()];
        assert_eq!(built(&lines), Some(PathBuf::from("/t/release/it")));
        assert_eq!(built(&lines[..1]), None);
        assert_eq!(built(&[line(PROGRAM, "null")]), None);
    }

    #[test]
    fn stores_lie_beside_the_build_unless_a_folder_is_named() {
        if std::env::var_os("ATOLL_BENCH_DIR").is_none() {
            assert_eq!(folder(Path::new("/t/release/it")), Path::new("/t"));
        }
    }
}
