//! The Python environment: `.venv` with exactly the packages that `xtask/requirements.txt` pins.
//!
//! Invariant: an environment made from other requirements is made anew, never patched.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{requirements, run, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const REQUIREMENTS: &str = "xtask/requirements.txt";
/// Holds the requirements that an environment was made from; written last.
const STAMP: &str = "made-from.txt";

/// Makes the environment, and says where it is.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.finish()?;
    println!("Python is at {}", crate::failure::shown(&python()?));
    Ok(())
}

/// The environment's Python; makes the environment if needed.
pub fn python() -> Result<PathBuf, Failure> {
    let root = workspace::root()?;
    let folder = root.join(".venv");
    let python = folder.join("bin/python");
    let wanted = std::fs::read_to_string(root.join(REQUIREMENTS))
        .map_err(Failure::io(format!("read {REQUIREMENTS}")))?;
    let is_current = std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|made_from| made_from == wanted);
    if is_current && works(&python) {
        return Ok(python);
    }
    let system_python = requirements::python()?;
    make(&system_python, &folder)?;
    install(&python, &root)?;
    std::fs::write(folder.join(STAMP), wanted).map_err(Failure::io("write the stamp of .venv"))?;
    Ok(python)
}

/// An environment whose Python was upgraded away is still there, and broken.
fn works(python: &Path) -> bool {
    python.exists() && requirements::runs(&python.to_string_lossy(), "--version")
}

fn make(system_python: &str, folder: &Path) -> Result<(), Failure> {
    let mut command = Command::new(system_python);
    command.args(["-m", "venv", "--clear"]).arg(folder);
    run::step("make the Python environment in .venv", &mut command).map(drop)
}

fn install(python: &Path, root: &Path) -> Result<(), Failure> {
    let mut command = Command::new(python);
    command.current_dir(root);
    // The list is complete, so nothing that is not on it is ever fetched.
    command.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    command.args(["--requirement", REQUIREMENTS]);
    run::step("install the pinned Python packages", &mut command).map(drop)
}
