//! `cargo xtask wheel`: the Python package as it is published, one wheel for every Python from 3.11 on.
//!
//! On Linux it is linked against the C library of 2018, so that it runs on the clusters that people have; Zig
//! brings that library along. What comes out is installed and used before it is called done.

use crate::arguments::Arguments;
use crate::console::heading;
use crate::failure::{Failure, shown};
use crate::{requirements, run, venv, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const REQUIREMENTS: &str = "xtask/requirements-wheel.txt";
/// What a wheel must be able to do without any other package.
const PROOF: &str = include_str!("wheel_proof.py");

/// Builds the wheel, tries it, and says where it is.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let folder: Option<String> = arguments.option("--out")?;
    arguments.finish()?;
    requirements::linker()?;
    let folder = match folder {
        Some(folder) => std::path::absolute(folder).map_err(Failure::io("find the folder for the wheel"))?,
        None => workspace::target_dir()?.join("wheels"),
    };
    heading("Building the wheel");
    let wheel = build(&folder)?;
    let size = std::fs::metadata(&wheel).map_err(Failure::io("look at the wheel"))?.len();
    prove(&wheel)?;
    println!("The wheel is at {} ({:.1} MB)", shown(&wheel), size as f64 / 1e6);
    Ok(())
}

fn build(folder: &Path) -> Result<PathBuf, Failure> {
    let tools = venv::made("wheel", REQUIREMENTS)?;
    let root = workspace::root()?;
    // A folder of its own, so that the one wheel in it is the one that was built.
    let fresh = folder.join("fresh");
    let _ = std::fs::remove_dir_all(&fresh);
    let mut command = Command::new(&tools);
    command.current_dir(root.join("crates/python"));
    command.args(["-m", "maturin", "build", "--release", "--locked", "--out"]).arg(&fresh);
    if cfg!(target_os = "linux") {
        command.args(["--zig", "--compatibility", "manylinux_2_28"]);
        command.env("PATH", with_folder_of(&tools)?);
    }
    run::step("maturin build", &mut command)?;
    let wheel = only_wheel(&fresh)?;
    let name = wheel.file_name().unwrap_or_default();
    let place = folder.join(name);
    std::fs::rename(&wheel, &place).map_err(Failure::io(format!("move {}", shown(&wheel))))?;
    let _ = std::fs::remove_dir_all(&fresh);
    Ok(place)
}

/// The search path with the programs of an environment first: maturin looks for Zig there.
fn with_folder_of(python: &Path) -> Result<std::ffi::OsString, Failure> {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let folders = python.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&old));
    std::env::join_paths(folders).map_err(|error| Failure::Malformed {
        what: "the search path".to_owned(),
        problem: error.to_string(),
    })
}

fn only_wheel(folder: &Path) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(folder).map_err(Failure::io(format!("read {}", shown(folder))))?;
    let mut wheels = entries.flatten().map(|entry| entry.path());
    wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl")).ok_or_else(|| {
        Failure::Malformed {
            what: "the output of maturin".to_owned(),
            problem: "there is no wheel".to_owned(),
        }
    })
}

/// Installs the wheel into an empty environment and uses it there.
fn prove(wheel: &Path) -> Result<(), Failure> {
    let folder = tempfile_folder()?;
    let python = venv::empty(&folder)?;
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]);
    run::step("install the wheel into an empty environment", install.arg(wheel))?;
    let mut proof = Command::new(&python);
    // From elsewhere, so that nothing but the wheel can be what is imported.
    proof.args(["-I", "-c", PROOF]).current_dir(&folder);
    run::step("use it there", &mut proof)?;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

fn tempfile_folder() -> Result<PathBuf, Failure> {
    let folder = workspace::target_dir()?.join(format!("wheel-proof-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(Failure::io(format!("make {}", shown(&folder))))?;
    Ok(folder)
}
