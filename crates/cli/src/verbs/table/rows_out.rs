//! Where rows go: a table for people, or a file in a format.
//!
//! Invariant: a file of the wanted name is always complete.

use crate::new_file::NewFile;
use crate::output::note;
use crate::row_format::{WrittenFormat, written_format_of};
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use atoll_row_files::{Aligned, Format, RowFileError, RowWriter, aligned, writer};
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
    format: Option<WrittenFormat>,
    /// Replace the file if it exists
    #[arg(long, help_heading = "Output")]
    force: bool,
}

impl OutputArguments {
    /// Output to a file that is a positional argument of the verb.
    pub(super) fn to_file(path: &Path, format: Option<WrittenFormat>, force: bool) -> Self {
        Self { output: (path != Path::new("-")).then(|| path.to_owned()), format, force }
    }

    /// Whether rows go to a file.
    pub(super) fn has_file(&self) -> bool {
        self.output.is_some()
    }

    /// Opens the output for rows with these columns; metadata is written if the format can hold it.
    pub(super) fn open(
        &self,
        session: &Session,
        columns: &SchemaRef,
        metadata: HashMap<String, String>,
    ) -> Result<RowsOut, Failure> {
        let format = match (&self.output, self.format) {
            (Some(path), named) => Some(written_format_of(named, path)?),
            (None, Some(named)) => Some(named.into()),
            (None, None) if session.output.is_json() => Some(Format::JsonLines),
            (None, None) => None,
        };
        if self.format.is_none() && self.output.as_deref().is_some_and(is_tabbed) {
            return Err(Failure::Usage {
                problem: "a .tsv file has tabs between its fields, but rows are written with commas"
                    .to_owned(),
                hint: "name it .csv, or add --format csv".to_owned(),
            });
        }
        let Some(format) = format else { return Ok(RowsOut::People) };
        if !format.is_written() {
            return Err(Failure::Usage {
                problem: format!("rows cannot be written as {format}"),
                hint: "write csv, jsonl, parquet or arrow".to_owned(),
            });
        }
        let schema = Arc::new(Schema::new_with_metadata(columns.fields().clone(), metadata));
        let Some(path) = &self.output else {
            let target = Box::new(BufWriter::with_capacity(64 << 10, io::stdout()));
            let writer = writer(format, &schema, target, "standard output").map_err(of_output)?;
            return Ok(RowsOut::Output { writer, schema });
        };
        let (file, target) = NewFile::create(path, self.force)?;
        let target = Box::new(BufWriter::with_capacity(256 << 10, target));
        let writer = writer(format, &schema, target, &file.part().display().to_string())?;
        Ok(RowsOut::File { writer, schema, file })
    }
}

/// An output under way.
pub(super) enum RowsOut {
    People,
    Output { writer: Box<dyn RowWriter>, schema: SchemaRef },
    File { writer: Box<dyn RowWriter>, schema: SchemaRef, file: NewFile },
}

impl RowsOut {
    /// Writes some rows.
    pub(super) fn write(&mut self, session: &Session, rows: &RecordBatch) -> Result<(), Failure> {
        match self {
            Self::People => {
                let shown = aligned(rows, session.output.room());
                let Aligned { lines, left_out } = shown.map_err(|error| Failure::Rows(unwritable(&error)))?;
                lines.iter().try_for_each(|line| session.output.line(line.trim_end()))?;
                tell_left_out(session, &left_out)
            }
            Self::Output { writer, schema } => writer.write(&relabelled(rows, schema)?).map_err(of_output),
            Self::File { writer, schema, .. } => Ok(writer.write(&relabelled(rows, schema)?)?),
        }
    }

    /// Makes a file durable and gives it its name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self {
            Self::People => Ok(()),
            Self::Output { writer, .. } => {
                let mut target = writer.finish().map_err(of_output)?;
                target.flush().map_err(crate::failure::output_failure)
            }
            Self::File { writer, file, .. } => {
                let flushed = writer.finish()?.flush();
                flushed.map_err(|source| file_failure("write", file.part(), source))?;
                file.finish()
            }
        }
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

/// The same rows under the schema of the file.
fn relabelled(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Failure> {
    rows.clone().with_schema(Arc::clone(schema)).map_err(|error| Failure::Rows(unwritable(&error)))
}

fn unwritable(error: &arrow_schema::ArrowError) -> RowFileError {
    let source = io::Error::other(error.to_string());
    RowFileError::Write { file: "the rows".to_owned(), source }
}

/// A closed output ends us silently.
fn of_output(error: RowFileError) -> Failure {
    match error {
        RowFileError::Write { source, .. } => crate::failure::output_failure(source),
        other => other.into(),
    }
}

fn file_failure(action: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::File { action, place: path.display().to_string(), source }
}
