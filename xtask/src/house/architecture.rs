//! ARCHITECTURE.md names every crate, names no crate that does not exist, and stays short.

use super::{Finding, Tree};
use crate::workspace::Package;

const PAGE: &str = "ARCHITECTURE.md";
const LINES_MAX: usize = 300;

/// Crates that the code map lacks or invents, and a map that grew too long.
pub fn findings(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::at(PAGE, "the page is missing", "write the code map")];
    };
    let mut found = Vec::new();
    for package in packages {
        if !page.contains(&format!("`{}`", package.folder)) {
            let problem = format!("it does not name `{}`", package.folder);
            found.push(Finding::at(PAGE, problem, "give the crate a line in the code map"));
        }
    }
    for (number, line) in page.lines().enumerate() {
        for folder in line.split('`').filter(|span| span.starts_with("crates/")) {
            if !tree.has(folder.trim_end_matches('/')) {
                let place = format!("{PAGE}:{}", number + 1);
                found.push(Finding::at(
                    place,
                    format!("`{folder}` does not exist"),
                    "remove it from the map",
                ));
            }
        }
    }
    let lines = page.lines().count();
    if lines > LINES_MAX {
        found.push(Finding::at(PAGE, format!("it has {lines} lines"), format!("{LINES_MAX} is the most")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str) -> Package {
        let (name, folder) = ("some".to_owned(), folder.to_owned());
        Package { name, folder, ..Package::default() }
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        let tree =
            Tree::of(&[("ARCHITECTURE.md", "- `crates/engine`: keeps\n"), ("crates/engine/src/lib.rs", "")]);
        assert_eq!(findings(&tree, &[package("crates/engine")]), []);
        assert_eq!(findings(&tree, &[package("crates/attic")]).len(), 1);
    }

    #[test]
    fn a_crate_that_is_gone_is_found_on_the_map() {
        let tree = Tree::of(&[("ARCHITECTURE.md", "see\n`crates/attic`\n")]);
        assert_eq!(findings(&tree, &[])[0].place, "ARCHITECTURE.md:2");
    }

    #[test]
    fn a_map_that_grew_too_long_is_found() {
        let tree = Tree::of(&[("ARCHITECTURE.md", &"line\n".repeat(301))]);
        assert_eq!(findings(&tree, &[]).len(), 1);
    }
}
