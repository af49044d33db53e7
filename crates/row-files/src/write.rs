//! Writing: chooses the writer for a format.

mod aligned;
mod by_step;
mod cells;
mod columnar;
mod csv_file;
mod dump;
mod json_lines;
mod numpy;
mod scratch;
#[cfg(test)]
mod tests;

pub use aligned::{Aligned, aligned, escaped};
pub use dump::{AxisBounds, SnapshotBox, SnapshotBoxes};

use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use scratch::Scratch;
use std::io::{self, Write};
use std::path::PathBuf;

/// Writes rows batch by batch, in order.
pub trait RowWriter: Send {
    /// Writes some rows.
    ///
    /// # Errors
    /// [`RowFileError::Write`], [`RowFileError::Unsupported`] for a value that the format cannot hold.
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError>;

    /// Completes the file and returns its target. For arrays and dumps this takes about as long as writing
    /// the rows.
    ///
    /// # Errors
    /// [`RowFileError::Write`], [`RowFileError::Unsupported`] for a value that the format cannot hold.
    fn finish(self: Box<Self>) -> Result<Target, RowFileError>;
}

/// Where rows are written to.
pub type Target = Box<dyn Write + Send>;

/// How rows are written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The name of the target in messages.
    pub name: String,
    /// The folder for temporary files, in which arrays and dumps are put together: they need about as much
    /// space as the rows in memory. The files have no names, so none is left behind.
    pub scratch: PathBuf,
    /// The boxes of the snapshots of a LAMMPS dump; by default they are those of a simulation
    /// without positions.
    pub boxes: SnapshotBoxes,
}

impl From<&str> for WriteOptions {
    /// For a target of this name, with temporary files in the current folder.
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), scratch: PathBuf::from("."), boxes: SnapshotBoxes::default() }
    }
}

/// A writer of rows with these columns; `options` may be just the name of the target in messages.
///
/// Parquet and Arrow keep the metadata of the schema. CSV has a column for each element of a vector,
/// `pos[0]`. JSON has no NaN or infinities; they are written as the texts "NaN", "inf" and "-inf". NumPy
/// arrays hold neither texts nor missing values, except for times. A LAMMPS dump has its rows in the order of
/// their steps, and holds numbers and words.
///
/// # Errors
/// [`RowFileError::Unsupported`] for columns that the format cannot hold, [`RowFileError::Write`].
pub fn writer(
    format: Format,
    schema: &SchemaRef,
    target: Target,
    options: impl Into<WriteOptions>,
) -> Result<Box<dyn RowWriter>, RowFileError> {
    let WriteOptions { name, scratch, boxes } = options.into();
    let scratch = Scratch::new(scratch);
    Ok(match format {
        Format::Csv => Box::new(csv_file::CsvWriter::new(schema, target, name)?),
        Format::JsonLines => Box::new(json_lines::JsonWriter::new(target, name)),
        Format::Parquet => Box::new(columnar::ParquetWriter::new(schema, target, name)?),
        Format::Arrow => Box::new(columnar::IpcWriter::new(schema, target, name)?),
        Format::Npy | Format::Npz => {
            Box::new(numpy::NumpyWriter::new(format, schema, target, name, scratch)?)
        }
        Format::LammpsDump => Box::new(dump::DumpWriter::new(schema, target, name, scratch, boxes)?),
    })
}

fn write_error(file: &str, source: io::Error) -> RowFileError {
    RowFileError::Write { file: file.to_owned(), source }
}

/// The error for an instant outside of the years that have a textual form, or a similar value.
fn no_text(column: &str, error: &ArrowError) -> RowFileError {
    RowFileError::Unsupported {
        what: format!("column \"{column}\" has a value that cannot be written as text: {error}"),
        hint: "write Parquet or Arrow IPC, which hold every value, or leave the rows out with --where",
    }
}

fn arrow_error(file: &str, error: ArrowError) -> RowFileError {
    let source = match error {
        ArrowError::IoError(_, source) => source,
        other => io::Error::other(other.to_string()),
    };
    write_error(file, source)
}
