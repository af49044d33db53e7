//! Limits of size: 800 lines per file, 70 lines per function, and 110 columns per comment line, which
//! rustfmt leaves alone.
//!
//! `xtask/ratchet.txt` lists the exceptions, one `path lines` or `path::function lines` a line.
//!
//! Invariant: the ratchet only tightens. An entry that is above the true size or is not needed is a
//! finding, and so is a list longer than [`RATCHET_ENTRIES_MAX`].

use super::rust_text::blanked;
use super::{Finding, Tree};
use std::collections::BTreeMap;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COMMENT_COLUMNS_MAX: usize = 110;
const RATCHET: &str = "xtask/ratchet.txt";
/// Lower this whenever an entry is removed; it never rises.
const RATCHET_ENTRIES_MAX: usize = 0;
const SOURCES: &[&str] = &[".rs", ".py", ".ts", ".tsx", ".js", ".sh"];

/// Files and functions that are too large, and ratchet entries that are too generous.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut allowed = ratchet(tree);
    let mut found = Vec::new();
    if allowed.len() > RATCHET_ENTRIES_MAX {
        let problem = format!("it has {} entries; {RATCHET_ENTRIES_MAX} is the most", allowed.len());
        found.push(Finding::at(RATCHET, problem, "split what grew instead of listing it"));
    }
    for (path, text) in tree.all().filter(|(path, _)| SOURCES.iter().any(|ending| path.ends_with(ending))) {
        found.extend(judged(&mut allowed, path.to_owned(), path, text.lines().count(), FILE_LINES_MAX));
        if path.ends_with(".rs") {
            found.extend(wide_comments(path, text));
        }
        for function in functions(path, text) {
            let (key, place) = (format!("{path}::{}", function.name), format!("{path}:{}", function.line));
            found.extend(judged(&mut allowed, key, &place, function.lines, FUNCTION_LINES_MAX));
        }
    }
    let unneeded = allowed
        .into_keys()
        .map(|key| Finding::at(RATCHET, format!("{key} is no longer too large"), "remove its line"));
    found.extend(unneeded);
    found
}

/// Comment lines that are too long. Tables and byte layouts are set in columns and are exempt.
fn wide_comments<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let is_prose = |line: &str| {
        let comment = line.trim_start();
        comment.starts_with("//") && !comment.contains("  ") && !comment.contains(" · ")
    };
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line, line.chars().count()));
    numbered.filter(move |(_, line, columns)| *columns > COMMENT_COLUMNS_MAX && is_prose(line)).map(
        move |(number, _, columns)| {
            let problem = format!("a comment of {columns} columns; {COMMENT_COLUMNS_MAX} is the most");
            Finding::at(format!("{path}:{number}"), problem, "break the line")
        },
    )
}

/// Judges something of `lines` lines, and takes its entry off the list if it has one.
fn judged(
    allowed: &mut BTreeMap<String, usize>,
    key: String,
    place: &str,
    lines: usize,
    most: usize,
) -> Option<Finding> {
    if lines <= most {
        return None;
    }
    match allowed.remove(&key) {
        Some(listed) if listed == lines => None,
        Some(listed) if listed > lines => {
            Some(Finding::at(RATCHET, format!("{key} shrank from {listed} to {lines}"), "lower its entry"))
        }
        _ => Some(Finding::at(place, format!("{key} has {lines} lines; {most} is the most"), "split it")),
    }
}

fn ratchet(tree: &Tree) -> BTreeMap<String, usize> {
    let lines = tree.text(RATCHET).unwrap_or_default().lines().filter(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| {
        let (key, lines) = line.rsplit_once(' ')?;
        Some((key.to_owned(), lines.parse().ok()?))
    });
    entries.collect()
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn functions(path: &str, text: &str) -> Vec<Function> {
    match path.rsplit_once('.') {
        Some((_, "rs")) => rust_functions(text),
        Some((_, "py")) => python_functions(text),
        _ => Vec::new(),
    }
}

fn rust_functions(text: &str) -> Vec<Function> {
    let code = blanked(text);
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if is_word || name.is_empty() {
            continue;
        }
        if let Some(length) = body_end(&code[at..]) {
            let line = code[..at].matches('\n').count() + 1;
            let lines = code[at..at + length].matches('\n').count() + 1;
            functions.push(Function { name, line, lines });
        }
    }
    functions
}

/// Where the body of the function at the start of `code` ends; `None` if it has no body.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            // Braces inside brackets belong to closures and constants, and always pair up.
            '{' => braces += 1,
            '}' if braces == 1 && brackets == 0 => return Some(at),
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn python_functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line
            .trim_start()
            .strip_prefix("async ")
            .or(Some(line.trim_start()))
            .and_then(|line| line.strip_prefix("def "))
        else {
            continue;
        };
        let name = rest.split('(').next().unwrap_or_default().to_owned();
        let inside = |line: &&&str| {
            line.trim().is_empty() || indent(line) > indent(lines[at]) || line.trim_start().starts_with(')')
        };
        let body: Vec<_> = lines[at + 1..].iter().take_while(inside).collect();
        let trailing = body.iter().rev().take_while(|line| line.trim().is_empty()).count();
        functions.push(Function { name, line: at + 1, lines: 1 + body.len() - trailing });
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(lines: usize) -> String {
        format!(
            "impl A {{\n    fn long(x: [u8; 3]) -> u8 {{\n{}    }}\n}}\n",
            "        \"}\";\n".repeat(lines - 2)
        )
    }

    fn count(files: &[(&str, &str)]) -> usize {
        findings(&Tree::of(files)).len()
    }

    #[test]
    fn a_function_may_have_seventy_lines_and_no_more() {
        assert_eq!(count(&[("a.rs", &rust(70))]), 0);
        assert_eq!(count(&[("a.rs", &rust(71))]), 1);
        let python =
            |lines: usize| format!("def f(\n    a,\n):\n{}\n\nx = 1\n", "    pass\n".repeat(lines - 3));
        assert_eq!(count(&[("a.py", &python(70))]), 0);
        assert_eq!(count(&[("a.py", &python(71))]), 1);
    }

    #[test]
    fn signatures_without_a_body_are_no_functions() {
        let text = format!("trait A {{\n    fn f(&self) -> [u8; 2];\n{}}}\n", "    // more\n".repeat(90));
        assert_eq!(count(&[("a.rs", &text)]), 0);
    }

    #[test]
    fn a_file_may_have_eight_hundred_lines_and_no_more() {
        assert_eq!(count(&[("a.rs", &"//\n".repeat(800))]), 0);
        assert_eq!(count(&[("a.rs", &"//\n".repeat(801))]), 1);
        assert_eq!(count(&[("a.csv", &"1\n".repeat(801))]), 0);
    }

    #[test]
    fn a_comment_has_a_margin_and_a_table_may_pass_it() {
        let comment = |columns: usize| format!("    /// {}\n", "w".repeat(columns - 8));
        assert_eq!(count(&[("a.rs", &comment(110))]), 0);
        assert_eq!(count(&[("a.rs", &comment(111))]), 1);
        assert_eq!(count(&[("a.rs", &format!("//! name    {}\n", "w".repeat(111)))]), 0);
        assert_eq!(count(&[("a.md", &comment(111))]), 0);
    }

    #[test]
    fn the_ratchet_only_tightens() {
        let long = rust(80);
        let with = |entry: &str| -> Vec<String> {
            let tree = Tree::of(&[("a.rs", &long), (RATCHET, entry)]);
            findings(&tree)
                .into_iter()
                .map(|finding| finding.problem)
                .filter(|problem| !problem.contains("entries"))
                .collect()
        };
        assert_eq!(with("# why\na.rs::long 80\n"), [""; 0]);
        assert_eq!(with("a.rs::long 90\n"), ["a.rs::long shrank from 90 to 80"]);
        assert_eq!(with("a.rs::long 75\n"), ["a.rs::long has 80 lines; 70 is the most"]);
        assert_eq!(with("a.rs::long 80\nb.rs 900\n"), ["b.rs is no longer too large"]);
        assert_eq!(count(&[("a.rs", &long), (RATCHET, "a.rs::long 80\n")]), 1, "the list itself grew");
    }
}
