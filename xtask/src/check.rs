//! `cargo xtask check`: everything that can be judged without running the product.

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::Failure;
use crate::house::{self, Tree};
use crate::{cargo, rooms, run, workspace};

/// Crates outside the workspace, which `--workspace` does not reach.
const OUTSIDE: &[&str] = &["benches/Cargo.toml", "benches/ring/Cargo.toml", "fuzz/Cargo.toml"];
/// The crates of those that are linted, with features that leave no code out. The fuzzers are built by the
/// verb that runs them.
const LINTED: &[(&str, &[&str])] =
    &[("benches/Cargo.toml", &["--features", "tables"]), ("benches/ring/Cargo.toml", &[])];

/// Runs every check, even after one has failed.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.finish()?;
    heading("Checking format, lints, the rules of the house and the documentation");
    let results = [house_rules(), format(), lints(), documentation()];
    let mut failed = 0;
    for failure in results.into_iter().filter_map(Result::err) {
        failed += 1;
        // Failed commands and broken rules have been printed already; any other failure has not.
        if !matches!(failure, Failure::Command { .. } | Failure::Broken { .. }) {
            crate::report(&failure);
        }
    }
    match failed {
        0 => {
            println!("\nEverything holds.");
            Ok(())
        }
        count => Err(Failure::Broken { what: "check", count }),
    }
}

fn house_rules() -> Result<(), Failure> {
    let step = Step::start("the rules of the house");
    let packages = workspace::packages()?;
    let tree = Tree::read(&workspace::root()?)?;
    let mut findings = house::findings(&tree, &packages)?;
    findings.extend(rooms::findings(&tree, &packages));
    if findings.is_empty() {
        step.end(Verdict::Passed, "");
        return Ok(());
    }
    step.end(Verdict::Failed, &format!("{} findings", findings.len()));
    for finding in &findings {
        println!("    {finding}");
    }
    Err(Failure::Broken { what: "rule", count: findings.len() })
}

fn format() -> Result<(), Failure> {
    let mut whole = cargo::command()?;
    whole.args(["fmt", "--all", "--check", "--", "--color", "never"]);
    let mut result = run::step("cargo fmt --all --check", &mut whole).map(drop);
    for manifest in OUTSIDE {
        let mut one = cargo::command()?;
        one.args(["fmt", "--check", "--manifest-path", manifest, "--", "--color", "never"]);
        result = result.and(run::step(&format!("cargo fmt --check ({manifest})"), &mut one).map(drop));
    }
    result
}

fn lints() -> Result<(), Failure> {
    let mut command = cargo::building()?;
    command
        .args(["clippy", "--workspace", "--all-targets"])
        .args(cargo::locked())
        .args(["--", "-D", "warnings"]);
    let mut result = run::step("cargo clippy, no warnings", &mut command).map(drop);
    for (manifest, features) in LINTED {
        let mut one = cargo::building()?;
        one.args(["clippy", "--manifest-path", manifest, "--all-targets"])
            .args(*features)
            .args(cargo::locked())
            .args(["--", "-D", "warnings"]);
        result =
            result.and(run::step(&format!("cargo clippy ({manifest}), no warnings"), &mut one).map(drop));
    }
    result
}

fn documentation() -> Result<(), Failure> {
    let mut command = cargo::building()?;
    command
        .args(["doc", "--workspace", "--no-deps"])
        .args(cargo::locked())
        .env("RUSTDOCFLAGS", "-D warnings");
    run::step("cargo doc, no warnings", &mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_there_and_whatever_is_linted_is_formatted() {
        let root = workspace::root().unwrap();
        for manifest in OUTSIDE {
            assert!(root.join(manifest).is_file(), "{manifest}");
        }
        for (manifest, _) in LINTED {
            assert!(OUTSIDE.contains(manifest), "{manifest}");
        }
        assert!(OUTSIDE.contains(&"benches/ring/Cargo.toml"));
    }
}
