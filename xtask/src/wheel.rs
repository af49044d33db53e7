//! `cargo xtask wheel`: the Python package as it is published, one wheel for every Python from 3.11 on.
//!
//! On Linux it is linked against the C library of 2018, so that it runs on the clusters in use; Zig provides
//! that library. The finished wheel is installed and used before it counts as done.

use crate::arguments::Arguments;
use crate::console::heading;
use crate::failure::{Failure, shown};
use crate::{requirements, run, venv, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const REQUIREMENTS: &str = "xtask/requirements-wheel.txt";
/// What a wheel must be able to do without any other package.
const PROOF: &str = include_str!("wheel_proof.py");

/// Builds the wheel, tries it, and prints where it is.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let folder: Option<String> = arguments.option("--out")?;
    arguments.finish()?;
    requirements::compiler()?;
    let folder = match folder {
        Some(folder) => std::path::absolute(folder).map_err(Failure::io("find the folder for the wheel"))?,
        None => workspace::target_dir()?.join("wheels"),
    };
    heading("Building the wheel");
    let wheel = proven(&folder, build, prove)?;
    let size = std::fs::metadata(&wheel).map_err(Failure::io("look at the wheel"))?.len();
    println!("The wheel is at {} ({:.1} MB)", shown(&wheel), size as f64 / 1e6);
    Ok(())
}

/// Moves the wheel to its final place once it is proven: a wheel that fails never lies there as if it were
/// good, nor replaces the last good one.
fn proven(
    folder: &Path,
    build: impl FnOnce(&Path) -> Result<(), Failure>,
    prove: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    // A folder of its own, so that the only wheel in it is the one just built.
    let fresh = Removed::before_and_after(folder.join("fresh"));
    build(&fresh.0)?;
    let wheel = only_wheel(&fresh.0)?;
    prove(&wheel)?;
    let place = folder.join(wheel.file_name().unwrap_or_default());
    std::fs::rename(&wheel, &place).map_err(Failure::io(format!("move {}", shown(&wheel))))?;
    Ok(place)
}

/// A folder that is removed before the run and after it, however the run ends.
struct Removed(PathBuf);

impl Removed {
    fn before_and_after(folder: PathBuf) -> Self {
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build(fresh: &Path) -> Result<(), Failure> {
    let tools = venv::made("wheel", REQUIREMENTS)?;
    let root = workspace::root()?;
    let mut command = Command::new(&tools);
    command.current_dir(root.join("crates/python"));
    command.args(["-m", "maturin", "build", "--release", "--locked", "--out"]).arg(fresh);
    if cfg!(target_os = "linux") {
        command.args(["--zig", "--compatibility", "manylinux_2_28"]);
        command.env("PATH", with_folder_of(&tools)?);
    }
    run::step("maturin build", &mut command).map(drop)
}

/// The search path with an environment's programs first, where maturin looks for Zig.
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
    let folder = &folder.0;
    let python = venv::empty(folder)?;
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
    // Run from another folder, so that only the wheel can be imported.
    proof.args(["-I", "-c", PROOF]).current_dir(folder);
    run::step("use it there", &mut proof).map(drop)
}

fn tempfile_folder() -> Result<Removed, Failure> {
    let name = format!("wheel-proof-{}", std::process::id());
    let folder = Removed::before_and_after(workspace::target_dir()?.join(name));
    std::fs::create_dir_all(&folder.0).map_err(Failure::io(format!("make {}", shown(&folder.0))))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_that_fails_its_proof_takes_no_good_ones_place() {
        let folder = std::env::temp_dir().join(format!("atoll-wheel-{}", std::process::id()));
        let folder = Removed::before_and_after(folder);
        let built = |text: &'static str| {
            move |fresh: &Path| {
                std::fs::create_dir_all(fresh).unwrap();
                std::fs::write(fresh.join("atoll-1.whl"), text).map_err(Failure::io("write a wheel"))
            }
        };
        let found = || std::fs::read_to_string(folder.0.join("atoll-1.whl")).unwrap();
        let good = proven(&folder.0, built("good"), |_| Ok(())).unwrap();
        assert_eq!((good.exists(), found()), (true, "good".to_owned()));
        let refused =
            || Failure::Command { what: "use it there".to_owned(), ended: "ended with 1".to_owned() };
        assert!(proven(&folder.0, built("bad"), |_| Err(refused())).is_err());
        assert_eq!(found(), "good");
        assert!(!folder.0.join("fresh").exists());
    }
}
