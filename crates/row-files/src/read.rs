//! Reading: chooses the reader for a file, and its options.

mod arrow_claims;
mod arrow_file;
mod batches;
mod convert;
mod csv_file;
mod dump;
mod field;
pub(crate) mod fuzz;
mod infer;
mod int96;
mod json_lines;
mod json_object;
mod numpy;
mod origin;
mod parquet_file;
mod source;
#[cfg(test)]
mod tests;
mod text;

pub use csv_file::ends_in_quotes;
pub use infer::NO_VALUE_KEY;
pub use source::Input;

use crate::{Format, RowFileError, RowReader};
use arrow_schema::{DataType, Schema, SchemaRef};
use atoll_errors::nearest;
use origin::vector_of_element;

/// Options for reading a file.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The delimiter between the fields of a CSV file.
    pub delimiter: u8,
    /// A text that stands for no value in a text file, besides the empty text.
    pub null: Option<String>,
    /// The most bad records to skip.
    pub skip_bad: u64,
    /// Columns of the file to rename: from, to.
    pub rename: Vec<(String, String)>,
    /// Whether columns that are not wanted are ignored; otherwise they are an error.
    pub ignore_extra: bool,
    /// Names for the columns of a NumPy array that has none.
    pub columns: Vec<String>,
    /// Types of columns that [`describe`] should not infer.
    pub types: Vec<(String, DataType)>,
    /// Whether a snapshot of a LAMMPS dump may repeat the step of the one before it; otherwise that is an
    /// error.
    pub may_repeat_steps: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            delimiter: b',',
            null: None,
            skip_bad: 0,
            rename: Vec::new(),
            ignore_extra: false,
            columns: Vec::new(),
            types: Vec::new(),
            may_repeat_steps: false,
        }
    }
}

impl ReadOptions {
    /// The new names of all columns of the file. Renaming a column that is missing is an error.
    fn all_renamed<'a>(
        &self,
        file: &str,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Vec<String>, RowFileError> {
        let is_there =
            |from: &str| names.clone().any(|name| name == from || vector_of_element(name) == Some(from));
        match self.rename.iter().find(|(from, _)| !is_there(from)) {
            None => Ok(names.map(|name| self.renamed(name)).collect()),
            Some((from, _)) => Err(RowFileError::Rename {
                file: file.to_owned(),
                column: from.clone(),
                nearest: nearest(from, names.clone()).map(str::to_owned),
                present: names.map(str::to_owned).collect(),
            }),
        }
    }

    /// The new name of a column of the file; an element of a vector is renamed with its vector.
    fn renamed(&self, name: &str) -> String {
        let to = |name: &str| self.rename.iter().find(|(from, _)| from == name).map(|(_, to)| to.as_str());
        let of_vector =
            || vector_of_element(name).and_then(|list| Some(format!("{}{}", to(list)?, &name[list.len()..])));
        to(name).map(str::to_owned).or_else(of_vector).unwrap_or_else(|| name.to_owned())
    }
}

/// Opens a file to read its rows as the `wanted` columns.
///
/// # Errors
/// [`RowFileError`] for a file that cannot be opened, has another format, or lacks columns.
pub fn open(
    input: &Input,
    format: Format,
    wanted: &SchemaRef,
    options: &ReadOptions,
) -> Result<Box<dyn RowReader>, RowFileError> {
    Ok(match format {
        Format::Csv => {
            Box::new(text::TextReader::new(csv_file::CsvRecords::open(input, options)?, wanted, options)?)
        }
        Format::LammpsDump => {
            Box::new(text::TextReader::new(dump::Dump::open(input, options)?, wanted, options)?)
        }
        Format::Parquet => {
            let is_wanted = |name: &str| wanted.column_with_name(&options.renamed(name)).is_some();
            Box::new(batches::BatchReader::new(parquet_file::open(input, is_wanted)?, wanted, options)?)
        }
        Format::Arrow => Box::new(batches::BatchReader::new(arrow_file::open(input)?, wanted, options)?),
        Format::Npy | Format::Npz => {
            Box::new(batches::BatchReader::new(numpy::open(input, format, options)?, wanted, options)?)
        }
        Format::JsonLines => {
            let records = json_lines::JsonLines::open(input, options)?.with_vectors(wanted);
            Box::new(text::TextReader::new(records, wanted, options)?)
        }
    })
}

/// The columns of a file. Columns of a text file get the narrowest type that its first hundred thousand
/// records admit, and are nullable, since any later field may be empty. A column without any value there
/// becomes a text column marked with [`NO_VALUE_KEY`].
///
/// # Errors
/// As for [`open`].
pub fn describe(input: &Input, format: Format, options: &ReadOptions) -> Result<Schema, RowFileError> {
    match format {
        Format::Csv => infer::columns(csv_file::CsvRecords::open(input, options)?, options),
        Format::LammpsDump => {
            // Whether repeated steps are accepted is decided when rows are read.
            let options = ReadOptions { may_repeat_steps: true, ..options.clone() };
            infer::columns(dump::Dump::open(input, &options)?, &options)
        }
        Format::Parquet => {
            convert::described(&parquet_file::open(input, |_| false)?.schema, &input.name(), options)
        }
        Format::Arrow => convert::described(&arrow_file::open(input)?.schema, &input.name(), options),
        Format::Npy | Format::Npz => {
            convert::described(&numpy::open(input, format, options)?.schema, &input.name(), options)
        }
        Format::JsonLines => infer::columns(json_lines::JsonLines::open(input, options)?, options),
    }
}
