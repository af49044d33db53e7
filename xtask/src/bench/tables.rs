//! `cargo xtask bench tables`: an environment with the rivals, the package of this checkout, the program that
//! counts work, and then the bench itself, which is Python (`benches/tables`).

use super::{CONFIG, MANIFEST};
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::package::{self, Build};
use crate::{cargo, run, venv, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the bench and its rivals need of Python.
const REQUIREMENTS: &str = "benches/tables/requirements.txt";
/// The program of the benches.
const PROGRAM: &str = "atoll-benches";

/// Makes everything ready, and runs the bench with this terminal as its own.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut command = command("tables")?;
    command.args(arguments.rest().iter().filter(|word| *word != "--"));
    run::attached("bench tables", &mut command)
}

/// A bench of the Python half, by the name of its package, with everything that it needs made ready.
pub fn command(package: &str) -> Result<Command, Failure> {
    let python = venv::made("bench", REQUIREMENTS)?;
    package::install(&python, Build::Release)?;
    let program = program()?;
    let mut command = Command::new(python);
    // By path, so that the files it is told to write lie where the caller is.
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

/// The program that Cargo says it built.
fn built(lines: &[String]) -> Option<PathBuf> {
    let messages = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_ours = |message: &Value| message.pointer("/target/name").and_then(Value::as_str) == Some(PROGRAM);
    let mut programs = messages
        .filter(is_ours)
        .filter_map(|message| message.get("executable").and_then(Value::as_str).map(PathBuf::from));
    programs.next_back()
}

/// Where rows and stores lie: on a real disk, never a memory file system by accident.
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
