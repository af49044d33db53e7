//! Crates outside of the workspace have locks of their own, which nobody's ordinary build looks at: each has what our crates ask
//! for by now, or their next build changes it, and is refused where the lock must do.

use super::{Finding, Tree};
use std::collections::BTreeSet;

const LOCK: &str = "Cargo.lock";

/// Locks outside of the workspace that have fallen behind the manifests of our crates.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<(String, &str)> = tree
        .ending("Cargo.toml")
        .filter_map(|(_, text)| Some((value_of(text, "name")?.to_owned(), text)))
        .collect();
    let outside = tree.ending(LOCK).filter(|(path, _)| *path != LOCK);
    outside.flat_map(|(path, lock)| behind(path, lock, &manifests)).collect()
}

fn behind(path: &str, lock: &str, manifests: &[(String, &str)]) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = value_of(package, "name").unwrap_or_default();
        // What comes from elsewhere has a source, and a manifest of its own.
        let ours = manifests.iter().find(|(ours, _)| ours == name && value_of(package, "source").is_none());
        let Some((_, manifest)) = ours else { continue };
        let locked = locked(package);
        for missing in required(manifest).into_iter().filter(|needed| !locked.contains(needed.as_str())) {
            let manifest = path.replace(LOCK, "Cargo.toml");
            let problem = format!("{name} needs {missing} by now, and this lock does not know");
            let remedy =
                format!("run `cargo metadata --manifest-path {manifest}`, which brings it up to date");
            found.push(Finding::at(path, problem, remedy));
        }
    }
    found
}

/// The value of the first `key = "..."`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim().strip_prefix('"')?.strip_suffix('"')
    })
}

/// The names of what a package in a lock depends on; a version may stand behind a name.
fn locked(package: &str) -> BTreeSet<&str> {
    let list = package.split_once("dependencies = [").map_or("", |(_, rest)| rest);
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).filter_map(|entry| entry.split(' ').next()).collect()
}

/// What a manifest asks for whatever its features are; what its tests need no lock elsewhere has.
fn required(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_needed = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let section = header.trim_end_matches(']').rsplit('.').next().unwrap_or_default();
            is_needed = matches!(section, "dependencies" | "build-dependencies");
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_needed && !line.starts_with('#')) else {
            continue;
        };
        let name = key.trim().split('.').next().unwrap_or_default();
        let is_renamed = value.contains("package = ");
        if !value.contains("optional = true") && !is_renamed && !name.contains([' ', '"', '{', ']']) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"atoll-a\"\n\n[dependencies]\nserde.workspace = true\n# why\nlibc = { version = \"1\", features = [\n  \"std\",\n] }\nextra = { version = \"1\", optional = true }\n\n[dev-dependencies]\nproptest = \"1\"\n\n[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n";

    fn problems(dependencies: &str, source: &str) -> Vec<String> {
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"atoll-a\"\nversion = \"0.1.0\"\n{source}dependencies = [\n{dependencies}]\n"
        );
        let tree = Tree::of(&[("crates/a/Cargo.toml", MANIFEST), ("fuzz/Cargo.lock", &lock)]);
        findings(&tree).into_iter().map(|finding| finding.problem).collect()
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
