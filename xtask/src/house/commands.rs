//! Commands that pages mention. `cargo xtask ...` must be in the table of verbs; `atoll ...` is only
//! collected here, and `test` asks the built program about each.

use super::code_spans;
use super::{Finding, Tree};
use crate::{bench, verbs};

/// A command of a program, as a page writes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    /// File and line.
    pub place: String,
    /// The words after the program's name: subcommands first, then arguments.
    pub words: Vec<String>,
}

impl Mention {
    /// The words before the first one that cannot be a subcommand.
    pub fn subcommands(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).take_while(|word| is_subcommand(word)).collect()
    }

    /// The flags, without their values.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        let long = self.words.iter().filter(|word| word.starts_with("--") && word.len() > 2);
        long.map(|word| word.split(['=', ']', '|']).next().unwrap_or_default())
    }
}

/// Mentions of xtask verbs and flags that do not exist.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for mention in mentions(tree, &["cargo", "xtask"]) {
        let Some(name) = mention.words.first() else { continue };
        // A placeholder such as VERB stands for any verb.
        if !is_subcommand(name) && !name.starts_with('-') {
            continue;
        }
        let Some(verb) = verbs::find(name) else {
            let problem = format!("`cargo xtask {name}` does not exist");
            found.push(Finding::at(&mention.place, problem, "`cargo xtask help` lists the verbs"));
            continue;
        };
        // The usage of this verb has the flags of all benches; what one of them takes only its own row says.
        let of_bench = mention.words.get(1..).filter(|_| verb.name == "bench").and_then(bench::misuse);
        if let Some(failure) = of_bench {
            let remedy = failure.hint().unwrap_or_default();
            found.push(Finding::at(&mention.place, failure.to_string(), remedy));
            continue;
        }
        for flag in mention.flags().filter(|flag| !has_flag(verb.usage, flag)) {
            let problem = format!("`cargo xtask {name}` has no {flag}");
            found.push(Finding::at(&mention.place, problem, format!("its usage is `{}`", verb.usage)));
        }
    }
    found
}

/// Whether a usage line or a help text has the flag, as a whole word.
pub fn has_flag(help: &str, flag: &str) -> bool {
    flag == "--help"
        || help.match_indices(flag).any(|(at, _)| {
            let after = help[at + flag.len()..].chars().next();
            !after.is_some_and(|character| character.is_alphanumeric() || character == '-')
        })
}

/// Every call of the program in the code of all pages. `program` is its name, in words.
pub fn mentions(tree: &Tree, program: &[&str]) -> Vec<Mention> {
    let mut mentions = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (number, code) in codes(text) {
            for words in calls(&code, program) {
                for words in alternatives(&words) {
                    mentions.push(Mention { place: format!("{path}:{number}"), words });
                }
            }
        }
    }
    mentions
}

/// The content of fenced shell blocks and `code` spans, with line numbers; continued lines are joined.
fn codes(page: &str) -> Vec<(usize, String)> {
    let mut codes: Vec<(usize, String)> = Vec::new();
    for line in code_spans::lines(page) {
        match line.fence {
            None => codes
                .extend(code_spans::inline(line.text).into_iter().map(|code| (line.number, code.to_owned()))),
            Some("" | "sh" | "bash" | "shell" | "console" | "text") => {
                let continued = codes.last().is_some_and(|(_, code)| code.ends_with('\\'));
                match codes.last_mut().filter(|_| continued) {
                    Some((_, code)) => {
                        code.pop();
                        code.push_str(line.text);
                    }
                    None => codes.push((line.number, line.text.to_owned())),
                }
            }
            Some(_) => {}
        }
    }
    codes
}

/// The words after each call of `program` in a line of shell code.
fn calls(code: &str, program: &[&str]) -> Vec<Vec<String>> {
    let uncommented = code.split(" #").next().unwrap_or_default();
    let pieces = uncommented
        .replace("&&", ";")
        .replace("||", ";")
        .replace(" | ", ";")
        .replace("$(", ";")
        .replace(")", ";");
    let mut calls = Vec::new();
    for piece in pieces.split(';') {
        let words: Vec<&str> = piece.split_whitespace().skip_while(|word| is_before_program(word)).collect();
        if words.starts_with(program) {
            calls.push(words[program.len()..].iter().map(|&word| word.to_owned()).collect());
        }
    }
    calls
}

/// Whether a word may precede the program: a prompt, a variable set for one command, or a program that
/// starts another.
fn is_before_program(word: &str) -> bool {
    let sets_variable = word
        .split_once('=')
        .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    matches!(word, "$" | "%" | "time" | "sudo" | "exec" | "!") || sets_variable
}

/// `put|get KEY` means both `put KEY` and `get KEY`.
fn alternatives(words: &[String]) -> Vec<Vec<String>> {
    let choice = words.iter().position(|word| word.contains('|') && word.split('|').all(is_subcommand));
    let Some(at) = choice else { return vec![words.to_vec()] };
    let each = words[at].split('|').map(|one| {
        let mut chosen = words.to_vec();
        chosen[at] = one.to_owned();
        chosen
    });
    each.collect()
}

fn is_subcommand(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.chars().all(|character| character.is_ascii_lowercase() || character == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(page: &str) -> Vec<String> {
        let tree = Tree::of(&[("a.md", page)]);
        mentions(&tree, &["atoll"]).iter().map(|mention| mention.words.join(" ")).collect()
    }

    #[test]
    fn calls_are_found_wherever_code_makes_them() {
        assert_eq!(
            words_of("run `atoll kv put|get STORE KEY` now"),
            ["kv put STORE KEY", "kv get STORE KEY"]
        );
        assert_eq!(
            words_of("```sh\n$ cat a | atoll kv import s && X=1 atoll ls\n```"),
            ["kv import s", "ls"]
        );
        assert_eq!(words_of("```sh\natoll kv \\\n  get a\n```"), ["kv get a"]);
    }

    #[test]
    fn prose_and_other_languages_are_left_alone() {
        assert_eq!(words_of("an atoll is a ring\n```rust\natoll kv put\n```\n"), [""; 0]);
        assert_eq!(words_of("the crate `atoll-engine`"), [""; 0]);
    }

    #[test]
    fn verbs_and_flags_that_do_not_exist_are_found() {
        let count = |page: &str| findings(&Tree::of(&[("a.md", page)])).len();
        assert_eq!(
            count("`cargo xtask check` and `cargo xtask bench NAME --peers` and `cargo xtask VERB`"),
            0
        );
        assert_eq!(count("`cargo xtask dance`"), 1);
        assert_eq!(count("`cargo xtask check --twice`"), 1);
        assert_eq!(count("`cargo xtask bench engine --rounds 3 --json a.json > a.txt`"), 0);
        assert_eq!(count("`cargo xtask bench ring --rounds 3 --schedule-seed 1`"), 0);
        assert_eq!(count("`cargo xtask bench engine --rounds 3 --schedule-seed 1`"), 1, "it is of another");
        assert_eq!(count("`cargo xtask bench ring --phases cut,cutt`"), 1);
        for beginning in ["--round", "--row", "--min", "--schedule"] {
            assert_eq!(count(&format!("`cargo xtask bench engine {beginning} 3`")), 1, "{beginning}");
        }
    }
}
