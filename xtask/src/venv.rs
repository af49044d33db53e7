//! Python environments with exactly the packages that a list pins: `.venv` for tests and the demo, which
//! has the package of this checkout on its path, and others for tools.
//!
//! Invariant: when its requirements change, an environment is made from scratch, never patched.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::package::{self, Build};
use crate::{requirements, run, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const REQUIREMENTS: &str = "xtask/requirements.txt";
/// Records the requirements that an environment was made from; written last.
const STAMP: &str = "made-from.txt";

/// Makes the environment and prints where it is.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.finish()?;
    let python = python()?;
    package::install(&python, Build::Release)?;
    println!("Python is at {}", crate::failure::shown(&python));
    Ok(())
}

/// The Python of `.venv`; makes the environment if necessary.
pub fn python() -> Result<PathBuf, Failure> {
    made_in(".venv", REQUIREMENTS)
}

/// The Python of a tool environment; makes it if necessary.
pub fn made(name: &str, requirements: &str) -> Result<PathBuf, Failure> {
    made_in(&format!(".venv-{name}"), requirements)
}

/// The Python of a new environment without packages.
pub fn empty(folder: &Path) -> Result<PathBuf, Failure> {
    make(&requirements::python()?, folder)?;
    Ok(folder.join("bin/python"))
}

fn made_in(folder: &str, list: &str) -> Result<PathBuf, Failure> {
    let root = workspace::root()?;
    let folder = root.join(folder);
    let python = folder.join("bin/python");
    let wanted = std::fs::read_to_string(root.join(list)).map_err(Failure::io(format!("read {list}")))?;
    let is_current = std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|made_from| made_from == wanted);
    if is_current && works(&python) {
        return Ok(python);
    }
    let system_python = requirements::python()?;
    make(&system_python, &folder)?;
    install(&python, &root, list)?;
    std::fs::write(folder.join(STAMP), wanted)
        .map_err(Failure::io(format!("write the stamp of {}", folder.display())))?;
    Ok(python)
}

/// Whether the environment works. One whose Python was removed by an upgrade still exists, but is broken.
fn works(python: &Path) -> bool {
    python.exists() && requirements::runs(&python.to_string_lossy(), "--version")
}

fn make(system_python: &str, folder: &Path) -> Result<(), Failure> {
    let mut command = Command::new(system_python);
    command.args(["-m", "venv", "--clear"]).arg(folder);
    run::step("make a Python environment", &mut command).map(drop)
}

fn install(python: &Path, root: &Path, list: &str) -> Result<(), Failure> {
    let mut command = Command::new(python);
    command.current_dir(root);
    // The list is complete, so nothing outside of it is ever fetched.
    command.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    command.args(["--requirement", list]);
    run::step("install the pinned Python packages", &mut command).map(drop)
}
