//! Cargo commands, all started in the same way.

use crate::failure::Failure;
use crate::{requirements, run, workspace};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A Cargo command at the workspace's root.
pub fn command() -> Result<Command, Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root()?);
    for (name, _) in std::env::vars_os() {
        // Cargo set these for xtask itself. If a child inherits them, build scripts run again.
        let is_of_this_build = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_")
                || name.starts_with("CARGO_MANIFEST_")
                || name == "CARGO_CRATE_NAME"
        });
        if is_of_this_build {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// A Cargo command that compiles. Reports a missing C compiler up front, before Cargo does so at length.
pub fn building() -> Result<Command, Failure> {
    requirements::compiler()?;
    let mut command = command()?;
    if !crate::skip::in_ci() {
        return Ok(command);
    }
    // A fresh clone must build from the versions that were committed.
    command.env("CARGO_NET_RETRY", "5").env("CARGO_INCREMENTAL", "0");
    Ok(command)
}

/// `--locked` in CI, where the committed versions must suffice.
pub fn locked() -> &'static [&'static str] {
    if crate::skip::in_ci() { &["--locked"] } else { &[] }
}

/// Builds the program of this name with these arguments for `cargo build`, and returns its path.
pub fn program(name: &str, selection: &[&str]) -> Result<PathBuf, Failure> {
    let mut command = building()?;
    command.args(["build", "--message-format", "json-render-diagnostics"]);
    command.args(selection).args(locked());
    let ran = run::step(&format!("build {name}"), &mut command)?;
    built(&ran.stdout, name).ok_or_else(|| Failure::Malformed {
        what: "the output of cargo build".to_owned(),
        problem: format!("it names no program {name}"),
    })
}

/// The program of this name in Cargo's build messages.
fn built(lines: &[String], name: &str) -> Option<PathBuf> {
    let messages = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_meant = |message: &Value| message.pointer("/target/name").and_then(Value::as_str) == Some(name);
    let mut programs = messages
        .filter(is_meant)
        .filter_map(|message| message.get("executable").and_then(Value::as_str).map(PathBuf::from));
    programs.next_back()
}

/// The platform that the compiler builds for by default.
pub fn host() -> Result<String, Failure> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let version = run::captured("rustc", command.arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::Malformed {
        what: "the output of rustc -vV".to_owned(),
        problem: "it names no host".to_owned(),
    })
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
        assert_eq!(built(&lines, "another"), None);
    }
}
