//! Every file of a shipped crate that contains or allows `unsafe` code is named by a decision page.

use super::rust_text::blanked;
use super::{Finding, Tree};

/// In two pieces, so that this rule does not find its own file.
const LINT: &str = concat!("uns", "afe_code");
const KEYWORD: &str = concat!("uns", "afe");

/// Files of shipped crates that contain or allow it, as `(folder of the crate, path)`.
pub fn files(tree: &Tree) -> Vec<(String, String)> {
    let shipped =
        tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"));
    let allowing = shipped.filter(|(_, text)| text.contains(KEYWORD)).filter(|(_, text)| {
        let code = blanked(text);
        has_keyword(&code) || allows(&code)
    });
    let named =
        allowing.filter_map(|(path, _)| Some((path.split_once("/src/")?.0.to_owned(), path.to_owned())));
    named.collect()
}

/// Whether the code has the keyword, allowed or not.
fn has_keyword(code: &str) -> bool {
    code.split(|character: char| !character.is_alphanumeric() && character != '_').any(|word| word == KEYWORD)
}

/// Whether an `allow(...)` or `expect(...)` names the lint, on however many lines.
fn allows(code: &str) -> bool {
    let after = ["allow", "expect"].into_iter().flat_map(|verb| code.split(verb).skip(1));
    let lists = after.filter_map(|rest| rest.trim_start().strip_prefix('(')?.split(')').next());
    lists.flat_map(|list| list.split(',')).any(|lint| lint.trim() == LINT)
}

/// Files with `unsafe` code that no page names.
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
        let attributes = [
            format!("#[allow({LINT})]"),
            format!("#[expect({LINT}, reason = \"why\")]"),
            format!("#![allow(dead_code, {LINT})]"),
            format!("#![allow(\n    dead_code,\n    {LINT},\n)]"),
            format!("#![cfg_attr(not(miri), allow({LINT}))]"),
            format!("pub {KEYWORD} fn g() {{}}"),
        ];
        for attribute in attributes {
            let source = format!("//! Why it is here.\n{attribute}\nfn f() {{}}\n");
            let file = ("crates/a/src/b.rs", source.as_str());
            assert_eq!(findings(&Tree::of(&[file])).len(), 1);
            let page = ("docs/decisions/0009-b.md", "`crates/a/src/b.rs` does");
            assert_eq!(findings(&Tree::of(&[file, page])), []);
        }
    }
    #[test]
    fn words_about_it_and_lints_against_it_are_left_alone() {
        let source =
            format!("//! No {KEYWORD} here.\n#![forbid({LINT})]\n#![allow(dead_code)] // {KEYWORD}\n");
        assert_eq!(files(&Tree::of(&[("crates/a/src/b.rs", source.as_str())])), []);
    }
}
