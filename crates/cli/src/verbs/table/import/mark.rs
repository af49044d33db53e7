//! Which file a run was imported from, as attributes of the run.
//!
//! The mark does not record how far the import came, which the table does; it tells whether a repeated call
//! is the same import.
//!
//! Invariant: only the beginning of a file is compared, so an import can continue with a file that grew.

use crate::Failure;
use atoll_row_files::Input;
use atoll_tables::{AttributesOf, RunSummary, StepSummary, Table};
use serde_json::Value;
use std::cmp::Ordering;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// How many bytes at the beginning of a file are compared.
const BEGINNING_BYTES_MAX: u64 = 1 << 20;

/// The attributes of a run that describe its source.
const FILE_ATTRIBUTE: &str = "import.file";
const PLAN_ATTRIBUTE: &str = "import.options";
const BEGINNING_ATTRIBUTE: &str = "import.beginning";
const ATTEMPT_ATTRIBUTE: &str = "import.attempt";

/// Whether an attribute only tells an import how to continue, and means nothing to users.
pub(in super::super) fn is_for_imports(attribute: &str) -> bool {
    [PLAN_ATTRIBUTE, BEGINNING_ATTRIBUTE, ATTEMPT_ATTRIBUTE].contains(&attribute)
}

/// The source of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The file; none for standard input.
    path: Option<PathBuf>,
    /// How it was read.
    plan: String,
    /// The part at its beginning that is compared.
    beginning: Option<Beginning>,
}

/// The attempt in which an import writes, and the last step of the run when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImportAttempt {
    pub(super) attempt: u64,
    pub(super) behind: Option<u64>,
    /// Whether the import has ended: then only steps up to `behind` come from the file, whoever writes in the
    /// attempt.
    pub(super) is_over: bool,
}

/// The word after the numbers of an attempt whose import has ended.
const ENDED_WORD: &str = "over";

impl ImportAttempt {
    fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<&str> = text.split(' ').collect();
        let is_over = words.pop_if(|word| *word == ENDED_WORD).is_some();
        let numbers: Vec<u64> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match numbers.as_slice() {
            [attempt] => Some(Self { attempt: *attempt, behind: None, is_over }),
            [attempt, behind] => Some(Self { attempt: *attempt, behind: Some(*behind), is_over }),
            _ => None,
        }
    }

    fn to_text(self) -> String {
        let Self { attempt, behind, is_over } = self;
        let behind = behind.map_or_else(String::new, |last| format!(" {last}"));
        let over = if is_over { format!(" {ENDED_WORD}") } else { String::new() };
        format!("{attempt}{behind}{over}")
    }

    /// Whether a step existed when the import began, or was written by it.
    fn has(self, step: &StepSummary) -> bool {
        let was_there = self.behind.is_some_and(|behind| step.step <= behind);
        match step.attempt.cmp(&self.attempt) {
            Ordering::Less => was_there,
            Ordering::Equal => was_there || !self.is_over,
            Ordering::Greater => false,
        }
    }
}

/// The first bytes of a file, and their checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Beginning {
    bytes: u64,
    checksum: String,
}

impl Beginning {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, checksum: format!("{:032x}", XxHash3_128::oneshot(bytes)) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (bytes, checksum) = text.split_once(' ')?;
        Some(Self { bytes: bytes.parse().ok()?, checksum: checksum.to_owned() })
    }
}

impl Mark {
    pub(super) fn of(input: &Input, plan: String) -> Result<Self, Failure> {
        let path = match input {
            Input::File(path) if path.is_file() => Some(path.clone()),
            _ => None,
        };
        let beginning = path.as_deref().map(|path| read_beginning(path, BEGINNING_BYTES_MAX)).transpose()?;
        Ok(Self { path, plan, beginning: beginning.map(|read| Beginning::of(&read)) })
    }

    /// Checks that this import can continue with the content of the run.
    pub(super) async fn check(&self, table: &Table, run: &str) -> Result<(), Failure> {
        let conflict = |problem: String, hint: &str| Failure::Run {
            run: run.to_owned(),
            problem,
            hint: hint.to_owned(),
        };
        let known = table.run_attributes(run).await?;
        let Some(plan) = known.get(PLAN_ATTRIBUTE) else {
            return Err(conflict("was not made by an import".to_owned(), "choose another name with --run"));
        };
        let (Some(path), Some(before)) =
            (&self.path, known.get(BEGINNING_ATTRIBUTE).and_then(|text| Beginning::parse(text)))
        else {
            return Err(conflict(
                "came through a pipe, which cannot be continued".to_owned(),
                "import under another --run, or again with --restart",
            ));
        };
        if *plan != self.plan {
            return Err(conflict(
                "was imported with other options".to_owned(),
                "use the same options as then, or start again with --restart",
            ));
        }
        // A file that grew still starts with the same bytes.
        if Beginning::of(&read_beginning(path, before.bytes)?) != before {
            return Err(conflict(
                "was imported from another file".to_owned(),
                "choose another name with --run, or start again with --restart",
            ));
        }
        // The last step tells how far the import came, if the import wrote it.
        let written = known.get(ATTEMPT_ATTRIBUTE).and_then(|text| ImportAttempt::parse(text));
        let last = table.steps(Some(run)).await?.pop();
        match written.zip(last) {
            Some((written, last)) if !written.has(&last) => Err(conflict(
                format!("has step {} that no import wrote: rows before it would be skipped", last.step),
                "import the file under another --run, or again with --restart, which deletes that step",
            )),
            _ => Ok(()),
        }
    }

    /// The same mark without the part of the file from `line` on, which a user is going to repair.
    pub(super) fn before_line(mut self, line: u64) -> Result<Self, Failure> {
        let (Some(path), Some(beginning)) = (&self.path, &self.beginning) else { return Ok(self) };
        let read = read_beginning(path, beginning.bytes)?;
        let lines = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
        let ends = read.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place + 1);
        // Nothing precedes the first line, so any file matches.
        if let Some(end) = std::iter::once(0).chain(ends).nth(lines) {
            self.beginning = Some(Beginning::of(&read[..end]));
        }
        Ok(self)
    }

    /// Records the source before any of it is in the table, and the attempt that will hold it. The mark of an
    /// import that took the run over meanwhile is kept.
    pub(super) async fn keep(&self, table: &Table, run: &str, written: ImportAttempt) -> Result<(), Failure> {
        let known = table.run_attributes(run).await?;
        let there = known.get(ATTEMPT_ATTRIBUTE).and_then(|text| ImportAttempt::parse(text));
        if there.is_some_and(|there| there.attempt > written.attempt) {
            // In a copy of an older version the mark may be ahead of its run.
            let now = table.runs().await?.into_iter().find(|now| now.name == run);
            if now.is_some_and(|now| now.attempt > written.attempt) {
                return Ok(());
            }
        }
        // Only the file name, so that no path of this machine ends up in a store that is copied elsewhere.
        let file = self.path.as_deref().and_then(Path::file_name).unwrap_or_default();
        let beginning =
            self.beginning.as_ref().map(|Beginning { bytes, checksum }| format!("{bytes} {checksum}"));
        let changes = [
            (PLAN_ATTRIBUTE, Some(self.plan.clone())),
            (ATTEMPT_ATTRIBUTE, Some(written.to_text())),
            (FILE_ATTRIBUTE, Some(file.to_string_lossy().into_owned())),
            (BEGINNING_ATTRIBUTE, beginning),
        ];
        let changes = changes.map(|(name, text)| (name.to_owned(), text.map(Value::String)));
        table.note(AttributesOf::Run(run), &changes.into()).await?;
        Ok(())
    }
}

/// Whether an import writes in the present attempt of a run, or wrote in it last.
pub(in super::super) async fn is_attempt_of_import(
    table: &Table,
    known: &RunSummary,
) -> Result<bool, Failure> {
    let attributes = table.run_attributes(&known.name).await?;
    let written = attributes.get(ATTEMPT_ATTRIBUTE).and_then(|text| ImportAttempt::parse(text));
    Ok(written.is_some_and(|written| written.attempt == known.attempt))
}

fn read_beginning(path: &Path, bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(bytes).read_to_end(&mut beginning));
    read.map_err(|source| Failure::File { action: "read", place: path.display().to_string(), source })?;
    Ok(beginning)
}
