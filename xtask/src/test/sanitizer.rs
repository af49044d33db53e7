//! Tests the crates that allow `unsafe` code again: all tests under AddressSanitizer, and unit tests under
//! Miri where it is installed. Code that only an interpreter can load has no such tests; the Python tests
//! exercise it.

use super::{judge, lanes, limit, programs};
use crate::console::Step;
use crate::failure::Failure;
use crate::house::{Tree, unsafe_files};
use crate::skip::Skip;
use crate::tests_output::Tally;
use crate::workspace::{Package, packages, root, target_dir};
use crate::{cargo, requirements, rooms, run};

/// Tests every crate with `unsafe` code.
pub fn visit() -> Result<Tally, Failure> {
    let files = unsafe_files(&Tree::read(&root()?)?);
    let mut tally = Tally::default();
    let allows = |package: &&Package| files.iter().any(|(folder, _)| *folder == package.folder);
    let is_testable = |package: &&Package| package.targets.iter().any(|target| target.kind != "cdylib");
    for package in packages()?.iter().filter(allows).filter(is_testable) {
        tally.add(address_sanitizer(package)?);
        tally.add(miri(package)?);
    }
    Ok(tally)
}

fn address_sanitizer(package: &Package) -> Result<Tally, Failure> {
    let name = format!("build {} with AddressSanitizer", package.name);
    let mut command = programs::building()?;
    command.args(["--tests", "--package", &package.name, "--target", &cargo::host()?]);
    command.env("CARGO_TARGET_DIR", target_dir()?.join("sanitizer"));
    // The flag is unstable, but the stable compiler supports it as well.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address --cfg atoll_plain_memory");
    match programs::built_by(&name, &mut command) {
        Ok(mut built) => {
            let names = built.programs.iter_mut().map(|program| &mut program.name);
            names.for_each(|name| name.push_str(" under AddressSanitizer"));
            Ok(lanes::run(&built.programs, limit(rooms::SANITIZER_BUDGET_MINUTES)))
        }
        // Already reported.
        Err(Failure::Command { .. }) => Ok(Tally { failed: vec![name], ..Tally::default() }),
        Err(failure) => Err(failure),
    }
}

fn miri(package: &Package) -> Result<Tally, Failure> {
    let name = format!("{} under Miri", package.name);
    if !requirements::runs("cargo-miri", "--version") {
        let reason = "not installed; it is part of nightly toolchains".to_owned();
        let skip = Skip { what: name, need: "miri".to_owned(), reason };
        println!("  {skip}");
        return Ok(Tally { skipped: vec![skip], ..Tally::default() });
    }
    let mut command = cargo::command()?;
    command.args(["miri", "test", "--lib", "--package", &package.name]);
    command.env("CARGO_TARGET_DIR", target_dir()?.join("miri"));
    tests(&name, &mut command)
}

fn tests(name: &str, command: &mut std::process::Command) -> Result<Tally, Failure> {
    let mut step = Step::start(name);
    let ran = run::limited(name, command, &mut step, limit(rooms::SANITIZER_BUDGET_MINUTES))?;
    let tally = Tally::read(name, &ran.everything, ran.succeeded());
    judge(step, &tally, &ran.everything);
    Ok(tally)
}
