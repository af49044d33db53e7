//! Cargo, started the same way everywhere.

use crate::failure::Failure;
use crate::{requirements, run, workspace};
use std::process::Command;

/// A Cargo command at the workspace's root.
pub fn command() -> Result<Command, Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root()?);
    for (name, _) in std::env::vars_os() {
        // Cargo set these for xtask itself; inherited, they make build scripts run again.
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

/// A Cargo command that compiles: names a missing linker before Cargo does so at length.
pub fn building() -> Result<Command, Failure> {
    requirements::linker()?;
    let mut command = command()?;
    if !crate::skip::in_ci() {
        return Ok(command);
    }
    // A fresh clone must build from the versions that were committed.
    command.env("CARGO_NET_RETRY", "5").env("CARGO_INCREMENTAL", "0");
    Ok(command)
}

/// `--locked` where the committed versions must do: in CI.
pub fn locked() -> &'static [&'static str] {
    if crate::skip::in_ci() { &["--locked"] } else { &[] }
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
