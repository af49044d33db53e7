//! Crates outside of the workspace have their own lock files, which no ordinary build reads. Each must
//! contain what our crates depend on; otherwise the next build changes it, or fails where `--locked` is
//! given.

use super::{Finding, Tree};
use crate::workspace::Package;
use std::collections::BTreeSet;

const LOCK: &str = "Cargo.lock";

/// Lock files outside of the workspace that lack a dependency of our crates. Dev-dependencies never appear
/// in another workspace's lock, and optional dependencies only in some, so neither is checked.
pub fn findings(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let outside = tree.ending(LOCK).filter(|(path, _)| *path != LOCK);
    outside.flat_map(|(path, lock)| behind(path, lock, packages)).collect()
}

fn behind(path: &str, lock: &str, packages: &[Package]) -> Vec<Finding> {
    let mut found = Vec::new();
    for locked in lock.split("[[package]]").skip(1) {
        let name = value_of(locked, "name").unwrap_or_default();
        // A package from a registry has a source, and its own manifest.
        let is_ours = value_of(locked, "source").is_none();
        let Some(package) = packages.iter().find(|package| is_ours && package.name == name) else { continue };
        let known = dependencies(locked);
        for missing in package.required.iter().filter(|needed| !known.contains(needed.as_str())) {
            let manifest = path.replace(LOCK, "Cargo.toml");
            let problem = format!("{name} needs {missing} by now, and this lock does not know");
            let remedy =
                format!("run `cargo metadata --manifest-path {manifest}`, which brings it up to date");
            found.push(Finding::at(path, problem, remedy));
        }
    }
    found
}

/// The value in the first `key = "..."`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim().strip_prefix('"')?.strip_suffix('"')
    })
}

/// The names of a locked package's dependencies, each without the version that may follow it.
fn dependencies(package: &str) -> BTreeSet<&str> {
    let list = package.split_once("dependencies = [").map_or("", |(_, rest)| rest);
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).filter_map(|entry| entry.split(' ').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(dependencies: &str, source: &str) -> Vec<String> {
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"atoll-a\"\nversion = \"0.1.0\"\n{source}dependencies = [\n{dependencies}]\n"
        );
        let package = Package {
            name: "atoll-a".to_owned(),
            required: ["libc", "rustix", "serde"].map(str::to_owned).to_vec(),
            ..Package::default()
        };
        let findings = findings(&Tree::of(&[("fuzz/Cargo.lock", &lock)]), &[package]);
        findings.into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_lock_that_has_fallen_behind_is_found() {
        assert_eq!(problems(" \"libc\",\n \"rustix 1.0.0\",\n \"serde\",\n", ""), Vec::<String>::new());
        let missing = problems(" \"libc\",\n \"serde\",\n", "");
        assert_eq!(missing, ["atoll-a needs rustix by now, and this lock does not know"]);
        assert_eq!(problems("", "").len(), 3);
    }

    #[test]
    fn a_crate_of_that_name_from_elsewhere_is_not_ours() {
        assert_eq!(problems("", "source = \"registry\"\n"), Vec::<String>::new());
    }
}
