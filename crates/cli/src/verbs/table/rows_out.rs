//! Where rows go: a table for people, or a file in a format.
//!
//! Invariant: a file of the wanted name is always complete.

use super::dump_box::{Bounds, boxes_of, parse_bounds};
use super::renames::{axes_in_file, renamed};
use crate::new_file::NewFile;
use crate::output::note;
use crate::row_format::{RowFormat, written_format_of};
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use atoll_row_files::{
    Aligned, Format, RowFileError, RowWriter, SnapshotBoxes, WriteOptions, aligned, writer,
};
use atoll_tables::{Query, Table};
use clap::Args;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where rows go, as it is typed.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct OutputArguments {
    /// Write the rows to this file, whose ending selects the format
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Format of the rows; by default a table for people
    #[arg(long, help_heading = "Output")]
    format: Option<RowFormat>,
    /// Replace the file if it exists
    #[arg(long, help_heading = "Output")]
    force: bool,
    #[command(flatten)]
    dump: DumpArguments,
    /// The names of columns in the file, where they differ from those in the table.
    #[arg(skip)]
    renames: Vec<(String, String)>,
}

/// How a LAMMPS dump is written.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct DumpArguments {
    /// Box of a LAMMPS dump, for x, y and z; by default the periodic cell that is noted of the step, its run
    /// or the table, and where there is none, as far as the rows of the step reach
    #[arg(
        long,
        value_name = "LO:HI,LO:HI,LO:HI",
        value_parser = parse_bounds,
        allow_hyphen_values = true,
        help_heading = "Output"
    )]
    bounds: Option<Bounds>,
}

impl OutputArguments {
    /// Output to a file that is a positional argument of the verb.
    pub(super) fn to_file(path: &Path, format: Option<RowFormat>, force: bool, dump: DumpArguments) -> Self {
        let output = (path != Path::new("-")).then(|| path.to_owned());
        Self { output, format, force, dump, renames: Vec::new() }
    }

    /// The same with other names for columns in the file.
    pub(super) fn renaming(self, renames: Vec<(String, String)>) -> Self {
        Self { renames, ..self }
    }

    /// Whether rows go to a file.
    pub(super) fn has_file(&self) -> bool {
        self.output.is_some()
    }

    /// Whether a LAMMPS dump is written, whose boxes are found in the version that is read.
    pub(super) fn is_dump(&self, session: &Session) -> Result<bool, Failure> {
        Ok(self.format(session)? == Some(Format::LammpsDump))
    }

    /// What the rows of a query are written with; checked before anything is read.
    pub(super) async fn plan(
        &self,
        session: &Session,
        table: &Table,
        query: &Query,
    ) -> Result<OutputPlan, Failure> {
        let format = self.format(session)?;
        let boxes = match (format, self.dump.bounds) {
            (Some(Format::LammpsDump), given) => boxes_of(table, query, given).await?,
            (_, None) => SnapshotBoxes::default(),
            (_, Some(_)) => {
                return Err(Failure::Usage {
                    problem: "--bounds is the box of a LAMMPS dump, and none is written".to_owned(),
                    hint: "add --format lammps, name the file .dump, or leave --bounds out".to_owned(),
                });
            }
        };
        Ok(OutputPlan { format, boxes })
    }

    fn format(&self, session: &Session) -> Result<Option<Format>, Failure> {
        if self.format.is_none() && self.output.as_deref().is_some_and(is_tabbed) {
            return Err(Failure::Usage {
                problem: "a .tsv file has tabs between its fields, but rows are written with commas"
                    .to_owned(),
                hint: "name it .csv, or add --format csv".to_owned(),
            });
        }
        Ok(match (&self.output, self.format) {
            (Some(path), named) => Some(written_format_of(named, path)?),
            (None, Some(named)) => Some(named.into()),
            (None, None) if session.output.is_json() => Some(Format::JsonLines),
            (None, None) => None,
        })
    }

    /// Opens the output for rows with these columns; metadata is written if the format can hold it.
    pub(super) fn open(
        &self,
        plan: OutputPlan,
        columns: &SchemaRef,
        metadata: HashMap<String, String>,
    ) -> Result<RowsOut, Failure> {
        let OutputPlan { format, mut boxes } = plan;
        let Some(format) = format else { return Ok(RowsOut::People) };
        let fields = renamed(columns.fields(), &self.renames)?;
        let asks_rows = |axis| boxes.asks_rows(axis);
        boxes.axes = axes_in_file(&boxes.axes, columns.fields(), &self.renames, asks_rows)?;
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let Some(path) = &self.output else {
            let target = Box::new(BufWriter::with_capacity(64 << 10, io::stdout()));
            let scratch = std::env::temp_dir();
            let options = WriteOptions { boxes, scratch, ..WriteOptions::from(STANDARD_OUTPUT) };
            let writer = writer(format, &schema, target, options).map_err(of_output)?;
            return Ok(RowsOut::Output { writer: Aside::of(writer, STANDARD_OUTPUT), schema });
        };
        let (file, target) = NewFile::create(path, self.force)?;
        let target = Box::new(BufWriter::with_capacity(256 << 10, target));
        let part = file.part();
        // Beside the file there is room for it, and so for what it is put together from.
        let folder = part.parent().filter(|folder| !folder.as_os_str().is_empty());
        let scratch = folder.unwrap_or(Path::new(".")).to_owned();
        let name = part.display().to_string();
        let options = WriteOptions { name: name.clone(), scratch, boxes };
        let writer = Aside::of(writer(format, &schema, target, options)?, &name);
        Ok(RowsOut::File { writer, schema, file })
    }
}

/// The name of standard output in messages.
const STANDARD_OUTPUT: &str = "standard output";

/// How rows are written.
pub(super) struct OutputPlan {
    /// The format; none for a table for people.
    format: Option<Format>,
    boxes: SnapshotBoxes,
}

/// An output under way.
pub(super) enum RowsOut {
    People,
    Output { writer: Aside, schema: SchemaRef },
    File { writer: Aside, schema: SchemaRef, file: NewFile },
}

impl RowsOut {
    /// Writes some rows.
    pub(super) async fn write(&mut self, session: &Session, rows: &RecordBatch) -> Result<(), Failure> {
        match self {
            Self::People => {
                let shown = aligned(rows, session.output.room());
                let Aligned { lines, left_out } = shown.map_err(|error| Failure::Rows(unwritable(&error)))?;
                lines.iter().try_for_each(|line| session.output.line(line.trim_end()))?;
                tell_left_out(session, &left_out)
            }
            Self::Output { writer, schema } => {
                writer.write(relabelled(rows, schema)?).await?.map_err(of_output)
            }
            Self::File { writer, schema, .. } => Ok(writer.write(relabelled(rows, schema)?).await??),
        }
    }

    /// Makes a file durable and gives it its name.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        match self {
            Self::People => Ok(()),
            Self::Output { writer, .. } => writer.finish().await?.map_err(of_output),
            Self::File { writer, file, .. } => {
                writer.finish().await??;
                file.finish()
            }
        }
    }
}

/// A writer that works on threads of its own, so that an interruption is noticed meanwhile: with one batch of
/// a dump all that came before it may be merged, and an array or a dump is put together at the end.
pub(super) struct Aside {
    /// None while a batch is written; for ever, if that was broken off.
    writer: Option<Box<dyn RowWriter>>,
    /// The name of the output in messages.
    name: String,
}

impl Aside {
    fn of(writer: Box<dyn RowWriter>, name: &str) -> Self {
        Self { writer: Some(writer), name: name.to_owned() }
    }

    async fn write(&mut self, rows: RecordBatch) -> Result<Result<(), RowFileError>, Failure> {
        let mut writer = self.take()?;
        let writing = tokio::task::spawn_blocking(move || {
            let written = writer.write(&rows);
            (writer, written)
        });
        let (writer, written) = writing.await.map_err(|lost| self.lost(lost))?;
        self.writer = Some(writer);
        Ok(written)
    }

    /// Completes the output.
    async fn finish(mut self) -> Result<Result<(), RowFileError>, Failure> {
        let (writer, file) = (self.take()?, self.name.clone());
        let completing = tokio::task::spawn_blocking(move || {
            writer.finish()?.flush().map_err(|source| RowFileError::Write { file, source })
        });
        completing.await.map_err(|lost| self.lost(lost))
    }

    fn take(&mut self) -> Result<Box<dyn RowWriter>, Failure> {
        self.writer.take().ok_or_else(|| self.lost("an earlier part of it was broken off"))
    }

    fn lost(&self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure::File { action: "write", place: self.name.clone(), source: io::Error::other(cause) }
    }
}

/// Reports the columns that did not fit on the screen.
fn tell_left_out(session: &Session, columns: &[String]) -> Result<(), Failure> {
    let which = match columns {
        [] => return Ok(()),
        [only] => only.clone(),
        [first, .., last] => format!("{first} to {last}"),
    };
    // Flushed first, so that the note comes below the rows.
    session.output.flush()?;
    let were = if columns.len() == 1 { "was" } else { "were" };
    note(&format!(
        "{} {were} left out for want of room, {which}: name those that you want with --columns, or see all with --format csv",
        counted(columns.len(), "column")
    ));
    Ok(())
}

/// Whether the ending of a file name promises tab-separated values.
fn is_tabbed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("tsv"))
}

/// The same rows under the schema of the file, whose columns may have other names.
fn relabelled(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Failure> {
    let own = rows.schema();
    let mut names = own.fields().iter().zip(schema.fields());
    let relabelled = if names.all(|(own, other)| own.name() == other.name()) {
        rows.clone().with_schema(Arc::clone(schema))
    } else {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(schema), rows.columns().to_vec(), &options)
    };
    relabelled.map_err(|error| Failure::Rows(unwritable(&error)))
}

fn unwritable(error: &arrow_schema::ArrowError) -> RowFileError {
    let source = io::Error::other(error.to_string());
    RowFileError::Write { file: "the rows".to_owned(), source }
}

/// A closed output ends us silently. Temporary files can fail too, and are told by their own place.
fn of_output(error: RowFileError) -> Failure {
    match error {
        RowFileError::Write { file, source } if file == STANDARD_OUTPUT => {
            crate::failure::output_failure(source)
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    /// A writer that takes as long as it must for each batch, as one that merges what came before.
    struct Slow {
        may_go_on: Receiver<()>,
    }

    impl RowWriter for Slow {
        fn write(&mut self, _: &RecordBatch) -> Result<(), RowFileError> {
            let told = self.may_go_on.recv_timeout(Duration::from_secs(5));
            told.map_err(|late| RowFileError::Write {
                file: "slow".to_owned(),
                source: io::Error::other(late),
            })
        }

        fn finish(self: Box<Self>) -> Result<Box<dyn Write + Send>, RowFileError> {
            Ok(Box::new(io::sink()))
        }
    }

    #[tokio::test]
    async fn a_batch_that_takes_long_does_not_hold_up_the_thread_that_notices_an_interruption() {
        let (go_on, may_go_on) = channel();
        let mut slow = Aside::of(Box::new(Slow { may_go_on }), "slow");
        let rows = RecordBatch::new_empty(Arc::new(Schema::empty()));
        {
            let mut writing = std::pin::pin!(slow.write(rows.clone()));
            assert!(writing.as_mut().now_or_never().is_none(), "the batch was written on this thread");
            go_on.send(()).unwrap();
            writing.await.unwrap().unwrap();
        }
        go_on.send(()).unwrap();
        slow.write(rows.clone()).await.unwrap().unwrap();
        // A batch that is broken off is an error for what comes behind it, and never a file without it.
        assert!(slow.write(rows).now_or_never().is_none());
        let told = slow.finish().await.unwrap_err();
        assert!(told.to_string().contains("slow"), "{told}");
    }

    #[test]
    fn a_full_folder_for_temporary_files_is_not_told_as_standard_output() {
        let failed = |file: &str, kind: io::ErrorKind| {
            of_output(RowFileError::Write { file: file.to_owned(), source: kind.into() })
        };
        let told = failed("a temporary file in /tmp", io::ErrorKind::StorageFull).to_string();
        assert!(told.contains("/tmp") && !told.contains(STANDARD_OUTPUT), "{told}");
        let told = failed(STANDARD_OUTPUT, io::ErrorKind::StorageFull).to_string();
        assert!(told.contains(STANDARD_OUTPUT), "{told}");
        assert!(matches!(failed(STANDARD_OUTPUT, io::ErrorKind::BrokenPipe), Failure::OutputClosed));
    }
}
