//! `cargo xtask clients`: runs stock Redis clients against a ring of real nodes while one node is killed
//! and another joins.
//!
//! A Python program starts the nodes, runs each client and judges what it reports: `tests/clients/run.py`.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{cargo, run, venv, workspace};
use std::process::Command;

const DRIVER: &str = "tests/clients/run.py";

/// Builds the program and runs the driver with the remaining arguments.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let python = venv::python()?;
    let atoll = cargo::program("atoll", &["--package", "atoll"])?;
    let mut command = Command::new(python);
    command.current_dir(workspace::root()?).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(DRIVER).arg("--atoll").arg(atoll);
    command.arg("--folder").arg(workspace::target_dir()?.join("clients"));
    run::attached("the trial of the clients", command.args(arguments.rest()))
}
