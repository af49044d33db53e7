//! `atoll table import`: a file becomes a run, and each part of it a step.
//!
//! If the table has a step column, the rows of one step form one block of that step. Otherwise the steps are
//! parts of the file, each numbered by the count of records up to its end.
//!
//! Invariant: the table itself records how far an import came, as the last complete step of the run. So a
//! kill at any moment and a second call duplicate nothing and lose nothing.

mod claim;
mod cut;
mod mark;
mod sink;

use super::renames::{Renames, pairs_of, parse_renames};
use super::{TableArguments, parse_delimiter};
use crate::compressed::ReadingVerb;
use crate::options::ImportSection;
use crate::progress::Progress;
use crate::row_format::{RowFormat, did_you_mean, format_of};
use crate::session::Access;
use crate::text::counted;
use crate::transfer::{ProgressReport, TransferError};
use crate::{Failure, Session};
use arrow_schema::SchemaRef;
use atoll_options::Section;
use atoll_row_files::{Format, Input, Part, PartLimits, ReadOptions, RowFileError, RowReader, open};
use atoll_tables::{STEP_COLUMN, Table, TypeName};
use claim::Claim;
use clap::Args;
use cut::{Cutter, Grouping, ImportedRun, Message, Stopped};
use mark::Mark;
pub(super) use mark::{is_attempt_of_import, is_for_imports};
use serde_json::json;
use sink::{Sink, is_of_somebody_else};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio::task::JoinError;

/// Most rows of a block that is a part of a file.
const PART_ROWS_MAX: usize = 1 << 20;

/// `atoll table import`
#[derive(Args, Debug)]
pub struct Import {
    #[command(flatten)]
    table: TableArguments,
    /// File to read; `-` is standard input
    file: PathBuf,
    /// Name of the run; by default the name of the file without its ending
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Column that holds the steps; by default `step`, if the table has it
    #[arg(long, value_name = "NAME", conflicts_with = "parts")]
    step_column: Option<String>,
    /// Use parts of the file as steps, even if the table has a step column
    #[arg(long)]
    parts: bool,
    /// Pack the rows on arrival: written only once, and visible some 64 MiB at a time
    #[arg(long)]
    packed: bool,
    /// Start over, and replace what the run had
    #[arg(long)]
    restart: bool,
    /// How to report progress
    #[arg(long, default_value = "auto")]
    progress: ProgressReport,
    #[command(flatten)]
    file_options: FileOptions,
}

/// How a file of rows is read.
#[derive(Args, Clone, Debug)]
pub(super) struct FileOptions {
    /// Format; by default that of the file name's ending
    #[arg(long, help_heading = "The file")]
    pub(super) format: Option<RowFormat>,
    /// Rename a column of the file; several separated by commas
    #[arg(long, value_name = "FROM=TO", value_parser = parse_renames, help_heading = "The file")]
    rename: Vec<Renames>,
    /// Ignore columns that the table does not have
    #[arg(long, help_heading = "The file")]
    ignore_extra: bool,
    /// Skip up to this many bad records, reporting each on standard error
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "The file")]
    skip_bad: u64,
    /// Character between the fields of a CSV file; `\t` is the tab
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter, help_heading = "The file")]
    delimiter: u8,
    /// Text that stands for a missing value in a text file, besides the empty field
    #[arg(long, value_name = "TEXT", help_heading = "The file")]
    null: Option<String>,
    /// Names of the columns of a NumPy array that has none
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "The file")]
    names: Vec<String>,
}

impl FileOptions {
    pub(super) fn read_options(&self) -> ReadOptions {
        ReadOptions {
            delimiter: self.delimiter,
            null: self.null.clone(),
            skip_bad: self.skip_bad,
            rename: pairs_of(&self.rename),
            ignore_extra: self.ignore_extra,
            columns: self.names.clone(),
            ..ReadOptions::default()
        }
    }
}

/// Why a thread that reads a file returned nothing.
pub(super) fn reader_lost(lost: &JoinError, file: String) -> Failure {
    match lost.is_cancelled() {
        true => Failure::Interrupted { exit: 130, hint: None },
        false => TransferError::ReaderLost { file }.into(),
    }
}

/// What an import did.
#[derive(Debug, Default)]
struct Imported {
    rows: u64,
    steps: u64,
    skipped: u64,
    /// The last step that was imported.
    last: Option<u64>,
    /// The length of the file when its end was met.
    bytes_read: u64,
    /// The first line of the file that a user may repair, if reading it failed.
    repair_line: Option<u64>,
}

/// Reports skipped records, and returns how many there are.
pub(super) fn tell_skipped(file: &str, part: &Part) -> usize {
    for bad in &part.bad {
        crate::output::note(&format!("skipped: {file}, line {}: {}", bad.line, bad.problem));
    }
    part.bad.len()
}

impl Imported {
    /// Counts an imported step.
    fn count(&mut self, step: u64, rows: u64) {
        self.rows += rows;
        self.steps += 1;
        self.last = Some(step);
    }

    /// Reports what was imported before a failure: each step is imported completely or not at all.
    fn tell_what_is_in(&self, run: &str) {
        let Self { rows, steps, last, .. } = self;
        let up_to = last.map_or_else(String::new, |last| format!("; the run has its steps up to {last}"));
        let were = if *rows == 1 { "was" } else { "were" };
        let (rows, steps) = (counted(rows, "row"), counted(steps, "step"));
        crate::output::note(&format!("{rows} in {steps} {were} imported as run {run} before that{up_to}"));
    }
}

impl Import {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let format = format_of(self.file_options.format, &self.file, ReadingVerb::Import)?;
        let run = self.run_name()?;
        let table = self.table.open(session, Access::Change).await?;
        let grouping = self.grouping(&table)?;
        // Before anything is recorded or begun: a file that cannot be read leaves no trace.
        let reader = self.open_file(&table, format).await?;
        let mark = Mark::of(&self.input(), format, self.plan(format, &grouping))?;
        let claim = Claim::of(&table, &run, &mark, self.restart).await?;
        let done = claim.done;
        if self.input().bytes().is_some() {
            session.hint_on_interrupt(match self.restart {
                false => "the steps that were read are imported; the same command continues from there",
                true => {
                    "the steps that were read are imported; the same command without --restart continues from there"
                }
            });
        }
        let there = match done {
            Some(step) => {
                let last = table.steps(Some(&run)).await?.pop().filter(|last| last.step == step);
                Some(ImportedRun { run: run.clone(), step, rows: last.map(|last| last.rows) })
            }
            None => None,
        };
        let mut imported = Imported { last: done, ..Imported::default() };
        let read = self
            .read_all(session, &table, reader, grouping, (&run, claim.attempt, there), &mut imported)
            .await;
        let read = match read {
            Ok(()) if done.is_some() => mark.check_cut(&table, &run).await,
            read => read,
        };
        if read.is_err() {
            imported.tell_what_is_in(&run);
        }
        if let Err(other) = note_end(&table, &run, mark, &claim, read.as_ref().err(), &imported).await {
            // The reason why the import ended is the one to report as the failure.
            crate::output::note(&format!(
                "the progress could not be recorded: {other}; import the file under another --run, or again with --restart, if \
                 another writer appends to the run"
            ));
        }
        read?;
        table.close().await?;
        tell(session, &run, &imported, done)
    }

    fn input(&self) -> Input {
        if self.file == Path::new("-") { Input::Standard } else { Input::File(self.file.clone()) }
    }

    fn run_name(&self) -> Result<String, Failure> {
        if let Some(run) = &self.run {
            return Ok(run.clone());
        }
        // The path that the shell substitutes for a pipe has no meaningful name.
        let is_pipe = self.file.exists() && !self.file.is_file() && !self.file.is_dir();
        let has_name = self.input() != Input::Standard && !is_pipe;
        match self.file.file_stem().filter(|_| has_name) {
            Some(stem) => Ok(stem.to_string_lossy().into_owned()),
            None => Err(Failure::Usage {
                problem: format!("{} has no name that the run could have", self.input().name()),
                hint: "add --run NAME".to_owned(),
            }),
        }
    }

    /// What makes up a step.
    fn grouping(&self, table: &Table) -> Result<Grouping, Failure> {
        let schema = table.schema();
        let columns = schema.columns();
        let name = self.step_column.as_deref().unwrap_or(STEP_COLUMN);
        match columns.column_with_name(name).filter(|_| !self.parts) {
            Some((place, field)) if field.data_type().is_integer() => {
                Ok(Grouping::Column { place, name: name.to_owned() })
            }
            Some((_, field)) if self.step_column.is_some() => Err(Failure::Usage {
                problem: format!(
                    "\"{name}\" holds no whole numbers, but {}",
                    TypeName::told(field.data_type())
                ),
                hint: "use parts of the file as steps with --parts".to_owned(),
            }),
            None if self.step_column.is_some() => {
                let names: Vec<String> = columns.fields().iter().map(|field| field.name().clone()).collect();
                Err(Failure::Usage {
                    problem: format!("the table has no column \"{name}\""),
                    hint: did_you_mean(name, &names),
                })
            }
            _ => Ok(Grouping::Parts),
        }
    }

    /// Everything that decides which steps the bytes of the file become. It is stored with the run.
    fn plan(&self, format: Format, grouping: &Grouping) -> String {
        let FileOptions { rename, delimiter, null, names, .. } = &self.file_options;
        let rename = pairs_of(rename);
        format!("{format:?} {grouping:?} {rename:?} {delimiter} {null:?} {names:?}")
    }

    /// Opens the file on a thread of its own, so that an interruption is noticed while no input arrives.
    async fn open_file(&self, table: &Table, format: Format) -> Result<Box<dyn RowReader>, Failure> {
        let input = self.input();
        let options = ReadOptions { may_repeat_steps: self.parts, ..self.file_options.read_options() };
        let columns = SchemaRef::clone(table.schema().columns());
        match tokio::task::spawn_blocking(move || open(&input, format, &columns, &options)).await {
            Ok(reader) => reader.map_err(|error| ReadingVerb::Import.failure(error)),
            Err(lost) => Err(reader_lost(&lost, self.input().name())),
        }
    }

    async fn read_all(
        &self,
        session: &Session,
        table: &Table,
        reader: Box<dyn RowReader>,
        grouping: Grouping,
        (run, attempt, there): (&str, u64, Option<ImportedRun>),
        imported: &mut Imported,
    ) -> Result<(), Failure> {
        let window = ImportSection::from_settings(&session.settings)?.window.0;
        let bytes = usize::try_from(window).unwrap_or(usize::MAX).clamp(1 << 10, 32 << 20);
        let limits = PartLimits { rows: PART_ROWS_MAX, bytes };
        let (sender, mut messages) = mpsc::channel(1);
        let mut cutter = Cutter::new(reader, self.input().name(), grouping, limits, there);
        tokio::task::spawn_blocking(move || cutter.run(&sender));
        let is_barred = self.progress == ProgressReport::Auto && !session.output.is_json();
        let progress = Progress::bytes(self.input().bytes(), is_barred);
        let mut sink = Sink::begin(table, run, attempt, self.packed)?;
        while let Some(message) = messages.recv().await {
            let message = match message {
                Ok(message) => message,
                Err(Stopped { failure, repair_line }) => {
                    imported.repair_line = repair_line;
                    // Complete steps before the failure are kept, however the rows are stored.
                    sink.finish(imported).await?;
                    return Err(failure);
                }
            };
            match message {
                Message::End { skipped, bytes_read } => {
                    sink.finish(imported).await?;
                    (imported.skipped, imported.bytes_read) = (skipped, bytes_read);
                    return Ok(());
                }
                Message::Step { step, rows, bytes_read } => {
                    sink.take(step, rows, imported).await?;
                    progress.set(bytes_read, counted(imported.rows, "row"));
                    self.tell_progress(step, imported, bytes_read);
                    // A store in memory never makes this task wait, so it yields to let an interruption in.
                    tokio::task::yield_now().await;
                }
            }
        }
        Err(TransferError::ReaderLost { file: self.input().name() }.into())
    }

    fn tell_progress(&self, step: u64, imported: &Imported, bytes_read: u64) {
        if self.progress == ProgressReport::Json {
            let line = json!({ "progress": { "step": step, "rows": imported.rows, "bytes": bytes_read } });
            crate::output::note_json(&line);
        }
    }
}

/// Records with the run what a repeated import needs to know.
async fn note_end(
    table: &Table,
    run: &str,
    mark: Mark,
    claim: &Claim,
    failure: Option<&Failure>,
    imported: &Imported,
) -> Result<(), Failure> {
    let is_of_disk = |error: &RowFileError| error.io().is_some_and(|io| io.kind() != ErrorKind::InvalidData);
    match failure {
        // A file that cannot be read at the moment is the same one later.
        Some(Failure::Rows(error)) if is_of_disk(error) => Ok(()),
        // A user who repairs the file continues with it, although it then differs: the mark covers only what
        // the table has of it.
        Some(Failure::Rows(_)) => match (claim.holds(table, run).await, imported.repair_line) {
            (Ok(true), Some(line)) => {
                let file = mark.name();
                let before = tokio::task::spawn_blocking(move || mark.before_line(line)).await;
                let before = before.map_err(|lost| reader_lost(&lost, file))??;
                claim.end(table, run, &before, imported.last).await
            }
            (Ok(true), None) => claim.end(table, run, &mark.without_end(), imported.last).await,
            _ => Ok(()),
        },
        // The store itself may be what failed.
        Some(failure) if !is_of_somebody_else(failure) => Ok(()),
        Some(_) => claim.end(table, run, &mark, imported.last).await,
        None => claim.end(table, run, &mark.read_to(imported.bytes_read)?, imported.last).await,
    }
}

fn tell(session: &Session, run: &str, imported: &Imported, done: Option<u64>) -> Result<(), Failure> {
    session.output.either(
        || {
            let Imported { rows, steps, skipped, .. } = imported;
            let (rows, steps) = (counted(rows, "row"), counted(steps, "step"));
            let mut text = format!("imported {rows} in {steps} as run {run}");
            if let Some(done) = done {
                text += &format!("; what came up to step {done} was there before");
            }
            if *skipped > 0 {
                text += &format!("; skipped {}", counted(skipped, "bad record"));
            }
            text
        },
        || {
            json!({
                "run": run,
                "rows": imported.rows,
                "steps": imported.steps,
                "skipped": imported.skipped,
                "from_step": done,
            })
        },
    )
}
