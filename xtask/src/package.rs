//! The Python package as developers use it: Cargo builds the native module, which is copied next to the
//! Python sources.
//!
//! Invariant: a native module that a running program may have mapped is replaced, never overwritten.

use crate::failure::{Failure, shown};
use crate::{cargo, run, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The Python sources of the package, which is also where the native module goes.
pub const SOURCE: &str = "crates/python/python";
const NATIVE: &str = "atoll/_atoll.abi3.so";
/// The file that adds the package to an environment's path.
const PATH_FILE: &str = "atoll-in-development.pth";

/// How the native module is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// With the profile and features of the other tests, so that nothing is compiled twice.
    Tests,
    /// As users get it.
    Release,
}

/// Builds the native module and puts the package on the path of an environment.
pub fn install(python: &Path, build: Build) -> Result<(), Failure> {
    let library = library(build)?;
    let root = workspace::root()?;
    let folder = root.join(SOURCE);
    let native = folder.join(NATIVE);
    let fresh = native.with_extension("fresh");
    std::fs::copy(&library, &fresh).map_err(Failure::io(format!("copy {}", shown(&library))))?;
    std::fs::rename(&fresh, &native).map_err(Failure::io(format!("replace {}", shown(&native))))?;
    let packages = site_packages(python)?;
    let line = format!("{}\n", folder.display());
    std::fs::write(packages.join(PATH_FILE), line).map_err(Failure::io(format!("write {PATH_FILE}")))
}

fn library(build: Build) -> Result<PathBuf, Failure> {
    let mut command = cargo::building()?;
    command.args(["build", "--message-format", "json-render-diagnostics"]).args(cargo::locked());
    match build {
        // Built together with the workspace, so that shared dependencies get the same features and are
        // already compiled: examples have the features that tests have.
        Build::Tests => command.args(["--workspace", "--lib", "--examples"]),
        Build::Release => command.args(["--release", "--package", "atoll-python"]),
    };
    let ran = run::step("build the Python package", &mut command)?;
    built(&ran.stdout).ok_or_else(|| Failure::Malformed {
        what: "the output of cargo build".to_owned(),
        problem: "it names no library of atoll-python".to_owned(),
    })
}

/// The library in Cargo's build messages.
fn built(lines: &[String]) -> Option<PathBuf> {
    let messages = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours =
        messages.filter(|message| message.pointer("/target/name").and_then(Value::as_str) == Some("_atoll"));
    let files = ours.filter_map(|message| message.get("filenames").and_then(Value::as_array).cloned());
    let mut paths = files.flatten().filter_map(|file| file.as_str().map(PathBuf::from));
    paths.rfind(|path| path.extension().is_some_and(|extension| extension == "so" || extension == "dylib"))
}

fn site_packages(python: &Path) -> Result<PathBuf, Failure> {
    let mut command = std::process::Command::new(python);
    command.args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
    Ok(PathBuf::from(run::captured("python", &mut command)?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_among_what_cargo_built() {
        let line = |name: &str, file: &str| {
            format!(r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"filenames":["{file}"]}}"#)
        };
        let lines =
            [line("atoll_open", "/t/libatoll_open.rlib"), line("_atoll", "/t/lib_atoll.so"), String::new()];
        assert_eq!(built(&lines), Some(PathBuf::from("/t/lib_atoll.so")));
        assert_eq!(built(&lines[..1]), None);
    }
}
