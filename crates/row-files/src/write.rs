//! Writing: chooses the writer for a format.

mod aligned;
mod cells;
mod columnar;
mod csv_file;
mod json_lines;
#[cfg(test)]
mod tests;

pub use aligned::{Aligned, aligned, escaped};

use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use std::io::{self, Write};

/// Writes rows batch by batch, in order.
pub trait RowWriter: Send {
    /// Writes some rows.
    ///
    /// # Errors
    /// [`RowFileError::Write`].
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError>;

    /// Completes the file and returns its target.
    ///
    /// # Errors
    /// [`RowFileError::Write`].
    fn finish(self: Box<Self>) -> Result<Target, RowFileError>;
}

/// Where rows are written to.
pub type Target = Box<dyn Write + Send>;

/// A writer of rows with these columns; `name` is the name of the target in messages.
///
/// Parquet and Arrow keep the metadata of the schema. CSV has a column for each element of a vector,
/// `pos[0]`. JSON has no NaN or infinities; they are written as the texts "NaN", "inf" and "-inf".
///
/// # Errors
/// [`RowFileError::Unsupported`] for a format that cannot be written, [`RowFileError::Write`].
pub fn writer(
    format: Format,
    schema: &SchemaRef,
    target: Target,
    name: &str,
) -> Result<Box<dyn RowWriter>, RowFileError> {
    let name = name.to_owned();
    Ok(match format {
        Format::Csv => Box::new(csv_file::CsvWriter::new(schema, target, name)?),
        Format::JsonLines => Box::new(json_lines::JsonWriter::new(target, name)),
        Format::Parquet => Box::new(columnar::ParquetWriter::new(schema, target, name)?),
        Format::Arrow => Box::new(columnar::IpcWriter::new(schema, target, name)?),
        Format::Npy | Format::Npz | Format::LammpsDump => {
            return Err(RowFileError::Unsupported {
                what: format!("rows cannot be written as {format}"),
                hint: "write Parquet, Arrow IPC, CSV or JSON Lines",
            });
        }
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
