//! Checks that every `atoll` command that a page mentions exists, by asking the built program for its help.

use crate::console::{Step, Verdict};
use crate::failure::Failure;
use crate::house::{Mention, Tree, has_flag, mentions};
use crate::skip::Skip;
use crate::tests_output::Tally;
use crate::{run, workspace};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Looks up each command of the pages in the help of `atoll`.
pub fn check(atoll: Option<&Path>) -> Result<Tally, Failure> {
    let step = Step::start("commands in the pages");
    let Some(atoll) = atoll else {
        let (need, reason) = ("atoll".to_owned(), "the program was not built".to_owned());
        let skip = Skip { what: "commands in the pages".to_owned(), need, reason };
        step.end(Verdict::Failed, "the atoll program was not built");
        return Ok(Tally { skipped: vec![skip], ..Tally::default() });
    };
    let tree = Tree::read(&workspace::root()?)?;
    let mut asked = Asked { atoll, helps: BTreeMap::new() };
    let mut tally = Tally::default();
    let mut problems = Vec::new();
    for mention in mentions(&tree, &["atoll"]) {
        match asked.problem(&mention)? {
            None => tally.passed += 1,
            Some(problem) => {
                tally.failed.push(format!("{}: {problem}", mention.place));
                problems.push(format!("{}: {problem}", mention.place));
            }
        }
    }
    let verdict = if problems.is_empty() { Verdict::Passed } else { Verdict::Failed };
    step.end(verdict, &format!("{} exist, {} do not", tally.passed, problems.len()));
    problems.iter().for_each(|problem| println!("    {problem}"));
    Ok(tally)
}

/// The program, and its help for each subcommand asked for.
struct Asked<'a> {
    atoll: &'a Path,
    helps: BTreeMap<String, Option<String>>,
}

impl Asked<'_> {
    /// The problem with a mention, if there is one.
    fn problem(&mut self, mention: &Mention) -> Result<Option<String>, Failure> {
        let mut path = String::new();
        let mut help = self.help("")?.unwrap_or_default();
        for word in mention.subcommands() {
            if subcommands(&help).is_empty() {
                break;
            }
            path = format!("{path} {word}").trim().to_owned();
            if !subcommands(&help).contains(&word) {
                return Ok(Some(format!("`atoll {path}` does not exist")));
            }
            match self.help(&path)? {
                Some(of_word) => help = of_word,
                None => return Ok(Some(format!("`atoll {path} --help` fails"))),
            }
        }
        let missing = mention.flags().find(|flag| !has_flag(&help, flag));
        Ok(missing.map(|flag| format!("`atoll {path}` has no {flag}")))
    }

    fn help(&mut self, path: &str) -> Result<Option<String>, Failure> {
        if let Some(known) = self.helps.get(path) {
            return Ok(known.clone());
        }
        let mut command = Command::new(self.atoll);
        command.args(path.split_whitespace()).arg("--help").stdin(Stdio::null());
        let output = command.output().map_err(Failure::io(format!("run atoll {path} --help")))?;
        let text = output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned());
        if text.is_none() {
            println!("    atoll {path} --help {}", run::ended(output.status));
        }
        self.helps.insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

/// The names under the heading `Commands:`, with their aliases.
fn subcommands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| line.trim() != "Commands:").skip(1);
    let indented = listed.take_while(|line| line.starts_with(' ') || line.is_empty());
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for line in indented {
        // Names are indented by two spaces; continued explanations are indented further.
        if line.starts_with("  ") && !line.starts_with("   ") {
            names.extend(line.split_whitespace().next());
        }
        let told = line.split_once("[alias").and_then(|(_, rest)| rest.split_once(": ")?.1.split_once(']'));
        others.extend(told.into_iter().flat_map(|(all, _)| all.split(", ")));
    }
    names.extend(others);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Keeps\n\nCommands:\n  put   Sets\n  scan  Lists what\n        lies between [alias: list]\n\nOptions:\n      --json-lines\n      --from <KEY>\n";

    #[test]
    fn subcommands_and_flags_are_read_from_the_help() {
        assert_eq!(subcommands(HELP), ["put", "scan", "list"]);
        assert!(has_flag(HELP, "--from"));
        assert!(has_flag(HELP, "--json-lines"));
        assert!(!has_flag(HELP, "--json"));
        assert!(subcommands("Options:\n  --json\n").is_empty());
    }
}
