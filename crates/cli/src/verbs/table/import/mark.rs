//! Which file a run was imported from, as attributes of the run.
//!
//! The mark does not record how far the import came, which the table does; it tells whether a repeated call
//! is the same import.
//!
//! Invariant: only the beginning of a file and the end that it had are compared, so an import can continue
//! with a file that grew.
//! Invariant: after reading failed, the bytes that are compared are ones that the table has, so an import can
//! continue with a file that was repaired.
//! Invariant: a line in which the file ended, and of which the table has a record, may get its line end and
//! nothing else: a number that was cut is a number, too. Only CSV has such lines: an object of JSON Lines
//! ends with its brace, and a dump whose last line has no end is refused.

use crate::Failure;
use atoll_row_files::{Format, Input};
use atoll_tables::{AttributesOf, RunSummary, StepSummary, Table};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// How many bytes at the beginning of a file are compared.
const BEGINNING_BYTES_MAX: u64 = 1 << 20;

/// How many bytes are compared at the end that a longer file had. Runs of one program begin alike, and a file
/// that was changed in its middle has other bytes there, because everything after the change moved.
const END_BYTES: u64 = 64 << 10;

/// The attributes of a run that describe its source.
const FILE_ATTRIBUTE: &str = "import.file";
const PLAN_ATTRIBUTE: &str = "import.options";
const BEGINNING_ATTRIBUTE: &str = "import.beginning";
const END_ATTRIBUTE: &str = "import.end";
const ATTEMPT_ATTRIBUTE: &str = "import.attempt";
const CUT_ATTRIBUTE: &str = "import.cut";

/// Whether an attribute only tells an import how to continue, and means nothing to users.
pub(in super::super) fn is_for_imports(attribute: &str) -> bool {
    [PLAN_ATTRIBUTE, BEGINNING_ATTRIBUTE, END_ATTRIBUTE, ATTEMPT_ATTRIBUTE, CUT_ATTRIBUTE]
        .contains(&attribute)
}

/// The source of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The file; none for standard input.
    path: Option<PathBuf>,
    format: Format,
    /// How it was read.
    plan: String,
    /// The part at its beginning that is compared.
    beginning: Option<Extract>,
    /// The part before the end that it had, if it was longer than its beginning.
    end: Option<Extract>,
    /// Where reading met the end of the file, if that was within the line of a record.
    cut: Option<u64>,
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

/// Some bytes of a file: where they end, and their checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extract {
    end: u64,
    checksum: String,
}

impl Extract {
    /// The bytes from one offset to another, or to the end of the file.
    fn read(path: &Path, from: u64, to: u64) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(from))?;
            file.take(to.saturating_sub(from)).read_to_end(&mut bytes)
        });
        read.map_err(|source| unreadable(path, source))?;
        let checksum = format!("{:032x}", XxHash3_128::oneshot(&bytes));
        Ok(Self { end: from.saturating_add(bytes.len() as u64), checksum })
    }

    /// The first bytes of a file.
    fn beginning(path: &Path, bytes: u64) -> Result<Self, Failure> {
        Self::read(path, 0, bytes)
    }

    /// The last of the bytes before an offset.
    fn before(path: &Path, offset: u64) -> Result<Self, Failure> {
        Self::read(path, offset.saturating_sub(END_BYTES), offset)
    }

    fn parse(text: &str) -> Option<Self> {
        let (end, checksum) = text.split_once(' ')?;
        Some(Self { end: end.parse().ok()?, checksum: checksum.to_owned() })
    }

    fn to_text(&self) -> String {
        let Self { end, checksum } = self;
        format!("{end} {checksum}")
    }
}

impl Mark {
    pub(super) fn of(input: &Input, format: Format, plan: String) -> Result<Self, Failure> {
        let path = match input {
            Input::File(path) if path.is_file() => Some(path.clone()),
            _ => None,
        };
        let Some(there) = &path else {
            return Ok(Self { path, format, plan, beginning: None, end: None, cut: None });
        };
        let length = there.metadata().map_err(|source| unreadable(there, source))?.len();
        let beginning = Some(Extract::beginning(there, BEGINNING_BYTES_MAX)?);
        let is_longer = length > BEGINNING_BYTES_MAX;
        let end = is_longer.then(|| Extract::before(there, length)).transpose()?;
        Ok(Self { path, format, plan, beginning, end, cut: None })
    }

    /// The name of the file in messages.
    pub(super) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| Input::Standard.name(), |path| path.display().to_string())
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
            (&self.path, known.get(BEGINNING_ATTRIBUTE).and_then(|text| Extract::parse(text)))
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
        // A file that grew still starts with the same bytes, and has those of its former end where they were.
        let begins_alike = Extract::beginning(path, before.end)? == before;
        let goes_on_alike = match known.get(END_ATTRIBUTE).and_then(|text| Extract::parse(text)) {
            Some(end) => Extract::before(path, end.end)? == end,
            None => true,
        };
        if !begins_alike || !goes_on_alike {
            return Err(conflict(
                "was imported from another file".to_owned(),
                "choose another name with --run, or start again with --restart",
            ));
        }
        self.check_cut_line(run, &known)?;
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

    /// Checks that a line which was imported without its end has not gone on, up to now: a writer may have
    /// completed it while the file was being read.
    pub(super) async fn check_cut(&self, table: &Table, run: &str) -> Result<(), Failure> {
        self.check_cut_line(run, &table.run_attributes(run).await?)
    }

    fn check_cut_line(&self, run: &str, known: &BTreeMap<String, String>) -> Result<(), Failure> {
        let at: Option<u64> = known.get(CUT_ATTRIBUTE).and_then(|text| text.parse().ok());
        let (Some(path), Some(at)) = (&self.path, at) else { return Ok(()) };
        match byte_at(path, at).map_err(|source| unreadable(path, source))? {
            Some(byte) if !is_line_end(byte) => Err(Failure::Run {
                run: run.to_owned(),
                problem: "was imported while its last line was cut".to_owned(),
                hint: "import again with --restart".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The same mark after all of the file was read, which ended at `offset` then.
    pub(super) fn read_to(mut self, offset: u64) -> Result<Self, Failure> {
        if self.format != Format::Csv || offset == 0 {
            return Ok(self);
        }
        let Some(path) = &self.path else { return Ok(self) };
        let last = byte_at(path, offset - 1).map_err(|source| unreadable(path, source))?;
        self.cut = last.filter(|last| !is_line_end(*last)).map(|_| offset);
        Ok(self)
    }

    /// The same mark without the end that the file had, where it is unknown how much of the file the table
    /// has.
    pub(super) fn without_end(mut self) -> Self {
        self.end = None;
        self
    }

    /// The same mark without the part of the file from `line` on, which a user is going to repair. It reads
    /// the file up to there.
    pub(super) fn before_line(mut self, line: u64) -> Result<Self, Failure> {
        let Some(path) = &self.path else { return Ok(self) };
        let Some(offset) = offset_of(path, line).map_err(|source| unreadable(path, source))? else {
            return Ok(self);
        };
        // Nothing precedes the first line, so any file matches.
        let beginning = Extract::beginning(path, offset.min(BEGINNING_BYTES_MAX))?;
        let is_longer = offset > BEGINNING_BYTES_MAX;
        self.end = is_longer.then(|| Extract::before(path, offset)).transpose()?;
        self.beginning = Some(beginning);
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
        let mut changes = vec![
            (PLAN_ATTRIBUTE, Some(self.plan.clone())),
            (ATTEMPT_ATTRIBUTE, Some(written.to_text())),
            (FILE_ATTRIBUTE, Some(file.to_string_lossy().into_owned())),
            (BEGINNING_ATTRIBUTE, self.beginning.as_ref().map(Extract::to_text)),
            (END_ATTRIBUTE, self.end.as_ref().map(Extract::to_text)),
        ];
        // What the table has of a cut line stays in it, whatever is read after that, until the run begins
        // anew.
        let is_anew = written.behind.is_none() && !written.is_over;
        if is_anew || self.cut.is_some() {
            changes.push((CUT_ATTRIBUTE, self.cut.map(|at| at.to_string())));
        }
        let changes = changes.into_iter().map(|(name, text)| (name.to_owned(), text.map(Value::String)));
        table.note(AttributesOf::Run(run), &changes.collect()).await?;
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

/// Where a line of a file begins; `None` if the file has fewer lines.
fn offset_of(path: &Path, line: u64) -> io::Result<Option<u64>> {
    let mut bytes = BufReader::with_capacity(1 << 20, File::open(path)?);
    let (mut offset, mut left) = (0_u64, line.saturating_sub(1));
    while left > 0 {
        let chunk = bytes.fill_buf()?;
        let places = chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place + 1);
        // The line end before the line, if it is in this chunk, or else all of the chunk.
        let mut used = chunk.len();
        for place in places {
            left -= 1;
            if left == 0 {
                used = place;
                break;
            }
        }
        if used == 0 {
            return Ok(None);
        }
        bytes.consume(used);
        offset += used as u64;
    }
    Ok(Some(offset))
}

/// The byte at an offset of a file; `None` behind its end.
fn byte_at(path: &Path, offset: u64) -> io::Result<Option<u8>> {
    let mut byte = [0];
    let read = File::open(path)?.read_at(&mut byte, offset)?;
    Ok((read == 1).then_some(byte[0]))
}

const fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn unreadable(path: &Path, source: io::Error) -> Failure {
    Failure::File { action: "read", place: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_behind_the_line_end_before_it_however_far_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let long = "x".repeat(3 << 20);
        std::fs::write(&path, format!("one\n\n{long}\nlast")).unwrap();
        let offset = |line| offset_of(&path, line).unwrap();
        assert_eq!([1, 2, 3].map(offset), [Some(0), Some(4), Some(5)]);
        assert_eq!(offset(4), Some(5 + (3 << 20) + 1));
        assert_eq!(offset(5), None);
    }
}
