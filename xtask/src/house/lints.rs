//! Every crate of the workspace inherits the workspace's lints. Without them nothing denies `unsafe` code,
//! prints, clocks and unwraps, and the rules that search for exceptions to those lints find nothing.

use super::{Finding, Tree};
use crate::workspace::Package;

/// Crates whose manifest does not inherit them.
pub fn findings(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let manifests = packages.iter().map(|package| format!("{}/Cargo.toml", package.folder));
    let without = manifests.filter(|path| !tree.text(path).is_some_and(takes_them_over));
    let (problem, remedy) =
        ("it does not take over the lints of the workspace", "write [lints] with workspace = true");
    without.map(|path| Finding::at(path, problem, remedy)).collect()
}

fn takes_them_over(manifest: &str) -> bool {
    let lines = manifest.lines().map(|line| line.split('#').next().unwrap_or_default().replace(' ', ""));
    let mut section =
        lines.skip_while(|line| line != "[lints]").skip(1).take_while(|line| !line.starts_with('['));
    section.any(|line| line == "workspace=true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(manifest: &str) -> usize {
        let (name, folder) = ("atoll-a".to_owned(), "crates/a".to_owned());
        let package = Package { name, folder, ..Package::default() };
        findings(&Tree::of(&[("crates/a/Cargo.toml", manifest)]), &[package]).len()
    }

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_found() {
        assert_eq!(count("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"), 0);
        assert_eq!(count("[package]\nname = \"a\"\nversion.workspace = true\n"), 1);
        assert_eq!(count("[lints]\n# workspace = true\n\n[dependencies.b]\nworkspace = true\n"), 1);
        assert_eq!(count(""), 1);
    }
}
