//! Decision page 0001 has a line for each third-party crate of the workspace, and no line without a crate.
//! It also names the crates outside of the workspace, which no ordinary build compiles.

use super::{Finding, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "docs/decisions/0001-dependencies.md";
const MANIFEST: &str = "Cargo.toml";

/// Third-party crates without a line, lines without a crate, and crates outside of the workspace that the
/// page does not name.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let page = tree.text(PAGE).unwrap_or_default();
    let manifests = tree.all().filter(|(path, _)| path.rsplit('/').next() == Some(MANIFEST));
    let (outside, inside): (Vec<_>, Vec<_>) = manifests
        .partition(|(path, text)| *path != MANIFEST && text.lines().any(|line| line == "[workspace]"));
    let names = |manifests: &[(&str, &str)]| -> BTreeSet<String> {
        manifests.iter().flat_map(|(_, text)| third_party(text)).collect()
    };
    let used = names(&inside);
    let listed: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let missing = used.iter().filter(|name| !listed.contains(&name.as_str())).map(|name| {
        let remedy = "say what it is for, how it is kept, and what would change it";
        Finding::at(PAGE, format!("the crate {name} has no line"), remedy)
    });
    let gone = listed.iter().filter(|name| !used.contains(**name)).map(|name| {
        Finding::at(PAGE, format!("the crate {name} is no dependency of the workspace"), "remove its line")
    });
    let outside = names(&outside);
    let unnamed = outside.iter().filter(|name| !page.contains(&format!("`{name}`"))).map(|name| {
        let problem = format!("it does not name the crate {name}, which is used outside of the workspace");
        Finding::at(PAGE, problem, "name it below the tables")
    });
    missing.chain(gone).chain(unnamed).collect()
}

/// The third-party crates of a manifest, without those inherited from the workspace's manifest, which is
/// checked by itself.
fn third_party(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut section = Section::Other;
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix('[') {
            names.extend(section.name());
            section = Section::of(header.trim_start_matches('[').split(']').next().unwrap_or_default());
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        match &mut section {
            Section::Other => {}
            Section::List => {
                let (name, field) = key.split_once('.').unwrap_or((key, ""));
                let is_ours = value.replace(' ', "").contains("path=") || value.contains("workspace = true");
                let is_ours = is_ours || matches!(field, "path" | "workspace");
                let renamed = value.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
                names.extend((!is_ours).then(|| renamed.unwrap_or(name).trim_matches('"').to_owned()));
            }
            Section::One { name, is_ours } => match key {
                "path" | "workspace" => *is_ours = true,
                "package" => *name = value.trim_matches('"').to_owned(),
                _ => {}
            },
        }
    }
    names.extend(section.name());
    names
}

/// What the lines below a manifest's header are about.
enum Section {
    /// Not dependencies.
    Other,
    /// One dependency on each line.
    List,
    /// A single dependency.
    One { name: String, is_ours: bool },
}

impl Section {
    fn of(header: &str) -> Self {
        let is_list = |word: &str| matches!(word, "dependencies" | "dev-dependencies" | "build-dependencies");
        match header.rsplit_once('.') {
            _ if is_list(header) => Self::List,
            Some((_, last)) if is_list(last) => Self::List,
            Some((before, name)) if is_list(before.rsplit('.').next().unwrap_or_default()) => {
                Self::One { name: name.trim_matches('"').to_owned(), is_ours: false }
            }
            _ => Self::Other,
        }
    }

    fn name(&self) -> Option<String> {
        match self {
            Self::One { name, is_ours: false } => Some(name.clone()),
            _ => None,
        }
    }
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

    /// How many problems a manifest at this path has with this page.
    fn problems_of(path: &str, manifest: &str, page: &str) -> usize {
        let page = format!("| `serde` | options |\n{page}");
        findings(&Tree::of(&[(MANIFEST, CARGO), (path, manifest), (PAGE, &page)])).len()
    }

    #[test]
    fn what_a_crate_takes_in_by_itself_has_its_line_too() {
        let of = |manifest: &str| problems_of("crates/a/Cargo.toml", manifest, "");
        assert_eq!(of("[dependencies]\nserde.workspace = true\natoll-b = { path = \"../b\" }\n"), 0);
        assert_eq!(of("[dependencies]\nserde = { workspace = true, features = [\n  \"derive\",\n] }\n"), 0);
        assert_eq!(of("[dependencies.atoll-b]\npath = \"../b\"\n[features]\nserde2 = []\n"), 0);
        for section in
            ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(a.b)'.dependencies"]
        {
            assert_eq!(of(&format!("[{section}]\nserde2 = \"1\"\n")), 1, "{section}");
            assert_eq!(of(&format!("[{section}]\nserde2.version = \"1\"\n")), 1, "{section}");
            assert_eq!(of(&format!("[{section}.serde2]\nversion = \"1\"\n")), 1, "{section}");
            assert_eq!(of(&format!("[{section}]\nserde = {{ package = \"serde2\" }}\n")), 1, "{section}");
        }
    }

    #[test]
    fn what_lies_outside_of_the_workspace_is_named() {
        let of = |page| problems_of("fuzz/Cargo.toml", "[workspace]\n[dependencies]\nserde2 = \"1\"\n", page);
        assert_eq!(of(""), 1);
        assert_eq!(of("\nOutside there is `serde2`.\n"), 0);
    }
}
