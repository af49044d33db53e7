//! The `atoll` program as the demo uses it. Each command is printed as a person would type it.

use super::tables::Table;
use crate::console::{Step, Verdict};
use crate::failure::{Failure, shown};
use crate::{cargo, run, venv, workspace};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compares the rows of a CSV file with an export on standard input.
const VERIFY: &str = include_str!("verify.py");
/// The most lines of a command's output that are shown.
const SHOWN_LINES_MAX: usize = 12;

/// The program and its store.
pub struct Product {
    program: PathBuf,
    store: PathBuf,
}

impl Product {
    /// Builds the program in the way that its users would.
    pub fn build(store: PathBuf) -> Result<Self, Failure> {
        let mut command = cargo::building()?;
        command.args(["build", "--release", "--package", "atoll"]).args(cargo::locked());
        run::step("build the atoll program", &mut command)?;
        Ok(Self { program: workspace::target_dir()?.join("release/atoll"), store })
    }

    /// Where the store is.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Where the program is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command of the program on the store.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--store").arg(&self.store);
        command
    }

    /// The words that import a table.
    pub fn import_words<'a>(table: &'a Table, path: &'a str) -> Vec<&'a str> {
        let mut words = vec!["kv", "import", path, "--partition-columns", table.partition_column];
        if !table.sort_columns.is_empty() {
            words.extend(["--sort-columns", table.sort_columns]);
        }
        words
    }

    /// Imports a table as one step.
    pub fn import(&self, table: &Table) -> Result<(), Failure> {
        let path = table.path.to_string_lossy();
        let words = Self::import_words(table, &path);
        let mut step = Step::start(format!("import {}", table.name));
        let mut command = self.command(&words);
        let ran = run::watched("atoll kv import", &mut command, &mut step)?;
        let told = ran.stdout.last().cloned().unwrap_or_default();
        let verdict = if ran.succeeded() { Verdict::Passed } else { Verdict::Failed };
        step.end(verdict, &told);
        self.ended_well("atoll kv import", &ran)
    }

    /// Runs a command and prints it with its output.
    pub fn show(&self, words: &[&str]) -> Result<(), Failure> {
        let typed = words.iter().map(|word| if word.is_empty() { "''" } else { word });
        println!("     $ atoll {}", typed.collect::<Vec<_>>().join(" "));
        let mut step = Step::quiet(words[..2].join(" "));
        let ran = run::watched("atoll", &mut self.command(words), &mut step)?;
        drop(step);
        for line in ran.stdout.iter().take(SHOWN_LINES_MAX) {
            println!("       {line}");
        }
        self.ended_well(&format!("atoll {}", words[..2].join(" ")), &ran)
    }

    /// Checks that the first `rows` rows of a table are in the store exactly as in its file.
    pub fn verify(&self, claim: &str, table: &Table, rows: u64) -> Result<(), Failure> {
        let mut step = Step::start(format!("prove that {claim}"));
        let mut export = self.command(&["kv", "export", "-", "--format", "jsonl"]);
        let mut exporting =
            export.stdout(Stdio::piped()).spawn().map_err(Failure::io("start atoll kv export"))?;
        let mut command = Command::new(venv::python()?);
        command.args(["-c", VERIFY]).arg(&table.path).arg(rows.to_string());
        command.args([table.partition_column, table.sort_columns]);
        let ran = run::fed("verify.py", &mut command, exporting.stdout.take(), &mut step)?;
        let exported = exporting.wait().map_err(Failure::io("wait for atoll kv export"))?;
        let holds = ran.succeeded() && exported.success();
        let told = ran.stdout.last().cloned().unwrap_or_default();
        step.end(if holds { Verdict::Passed } else { Verdict::Failed }, &told);
        match exported.success() {
            true => self.ended_well("the comparison", &ran),
            false => {
                Err(Failure::Command { what: "atoll kv export".to_owned(), ended: run::ended(exported) })
            }
        }
    }

    fn ended_well(&self, what: &str, ran: &run::Ran) -> Result<(), Failure> {
        if ran.succeeded() {
            return Ok(());
        }
        ran.everything.iter().for_each(|line| println!("       {line}"));
        println!("     The store is kept in {}.", shown(&self.store));
        Err(Failure::Command { what: what.to_owned(), ended: ran.ended() })
    }
}
