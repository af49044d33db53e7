//! Every source file begins with a comment that says what the file is for.

use super::{Finding, Tree};

/// The fewest words with which a header says anything.
const WORDS_MIN: usize = 3;

/// Source files without such a header.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.all() {
        let Some(opens_with) = openings(path) else { continue };
        let header = header(text, opens_with);
        if header.split_whitespace().count() < WORDS_MIN {
            let remedy = format!("start with `{} what the file is for`", opens_with[0]);
            found.push(Finding::at(format!("{path}:1"), "the file has no header", remedy));
        }
    }
    found
}

/// How a header begins in the file's language; `None` for files that need no header.
fn openings(path: &str) -> Option<&'static [&'static str]> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => Some(&["//!", "/*!", "//"]),
        Some("py") => Some(&["\"\"\"", "#"]),
        Some("sh") => Some(&["#"]),
        Some("ts" | "tsx" | "js") => Some(&["//", "/*"]),
        _ => None,
    }
}

/// The text of the first comment, without comment markers.
fn header<'a>(text: &'a str, opens_with: &[&str]) -> &'a str {
    let mut lines =
        text.lines().filter(|line| !line.starts_with("#!/")).skip_while(|line| line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    opens_with.iter().find_map(|mark| first.strip_prefix(mark)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        findings(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_source_file_opens_with_what_it_is_for() {
        assert_eq!(count("a.rs", "//! What the file is for.\nfn main() {}\n"), 0);
        assert_eq!(count("a.py", "#!/usr/bin/env python3\n\"\"\"What it is for.\"\"\"\n"), 0);
        assert_eq!(count("a.sh", "#!/bin/sh\n# What it is for.\n"), 0);
        assert_eq!(count("notes.txt", "anything"), 0);
    }

    #[test]
    fn missing_and_empty_headers_are_found() {
        assert_eq!(count("a.rs", "use std::io;\n"), 1);
        assert_eq!(count("a.rs", "//!\nfn main() {}\n"), 1);
        assert_eq!(count("a.rs", "//! Soon.\n"), 1);
        assert_eq!(count("a.py", "import sys\n"), 1);
        assert_eq!(count("a.rs", ""), 1);
    }
}
