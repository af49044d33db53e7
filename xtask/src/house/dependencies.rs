//! The first decision page gives every third-party crate of the workspace a line, and keeps none too many.

use super::{Finding, Tree};

const PAGE: &str = "docs/decisions/0001-dependencies.md";
const MANIFEST: &str = "Cargo.toml";

/// Third-party crates without a line, and lines without a crate.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let page = tree.text(PAGE).unwrap_or_default();
    let used = third_party(tree.text(MANIFEST).unwrap_or_default());
    let listed: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let missing = used.iter().filter(|name| !listed.contains(name)).map(|name| {
        let remedy = "say what it is for, how it is kept, and what would change it";
        Finding::at(PAGE, format!("the crate {name} has no line"), remedy)
    });
    let gone = listed.iter().filter(|name| !used.contains(name)).map(|name| {
        Finding::at(PAGE, format!("the crate {name} is no dependency of the workspace"), "remove its line")
    });
    missing.chain(gone).collect()
}

/// The names under `[workspace.dependencies]` that are not ours.
fn third_party(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let entries = section.take_while(|line| !line.starts_with('['));
    let names = entries.filter(|line| !line.contains("path = ")).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.trim()).filter(|name| !name.starts_with('#')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARGO: &str = "[workspace]\n\n[workspace.dependencies]\natoll-a = { path = \"crates/a\" }\n# why\nserde = \"1\"\n\n[profile.dev]\nx = 1\n";

    fn problems(page: &str) -> usize {
        findings(&Tree::of(&[(MANIFEST, CARGO), (PAGE, page)])).len()
    }

    #[test]
    fn each_third_party_crate_has_its_line() {
        assert_eq!(problems("| crate | what for |\n| `serde` | options |\n"), 0);
        assert_eq!(problems(""), 1, "a crate without a line");
        assert_eq!(
            problems("| `serde` | options |\n| `left-pad` | who knows |\n"),
            1,
            "a line without a crate"
        );
    }
}
