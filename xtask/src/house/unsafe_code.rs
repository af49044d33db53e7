//! Every file that allows `unsafe` code in a crate that ships has a decision page that names it.

use super::{Finding, Tree};

/// Written in pieces, so that this file is not one of those that it looks for.
const ALLOWS: [&str; 2] = [concat!("allow(uns", "afe_code"), concat!("expect(uns", "afe_code")];

/// The files of shipped crates that allow it, as `(folder of the crate, path)`.
pub fn files(tree: &Tree) -> Vec<(String, String)> {
    let shipped =
        tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"));
    let allowing = shipped.filter(|(_, text)| ALLOWS.iter().any(|allows| text.contains(allows)));
    let named =
        allowing.filter_map(|(path, _)| Some((path.split_once("/src/")?.0.to_owned(), path.to_owned())));
    named.collect()
}

/// Files that allow it without a page.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let pages: Vec<&str> = tree
        .ending(".md")
        .filter(|(path, _)| path.starts_with("docs/decisions/"))
        .map(|(_, text)| text)
        .collect();
    let unexplained =
        files(tree).into_iter().filter(|(_, path)| !pages.iter().any(|page| page.contains(path.as_str())));
    let remedy = "write a page in docs/decisions that names the file, or do without";
    unexplained
        .map(|(_, path)| Finding::at(path, "it allows unsafe code without a decision page", remedy))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_nobody_decided_on_is_found() {
        for allows in ALLOWS {
            let source = format!("//! Why it is here.\n#[{allows})]\nfn f() {{}}\n");
            let file = ("crates/a/src/b.rs", source.as_str());
            assert_eq!(findings(&Tree::of(&[file])).len(), 1);
            let page = ("docs/decisions/0009-b.md", "`crates/a/src/b.rs` does");
            assert_eq!(findings(&Tree::of(&[file, page])), []);
        }
    }
}
