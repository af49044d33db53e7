//! Formats of rows on the command line.

use crate::Failure;
use crate::compressed::{ReadingVerb, format_within};
use atoll_row_files::{Compression, Format, Input};
use clap::ValueEnum;
use std::path::Path;

/// Formats in which rows are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// Comma-separated values with a header line
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Apache Parquet
    Parquet,
    /// Arrow IPC, a file or a stream
    Arrow,
    /// A NumPy array
    Npy,
    /// NumPy arrays, one per column
    Npz,
    /// A LAMMPS text dump
    Lammps,
}

impl From<RowFormat> for Format {
    fn from(format: RowFormat) -> Self {
        match format {
            RowFormat::Csv => Self::Csv,
            RowFormat::Jsonl => Self::JsonLines,
            RowFormat::Parquet => Self::Parquet,
            RowFormat::Arrow => Self::Arrow,
            RowFormat::Npy => Self::Npy,
            RowFormat::Npz => Self::Npz,
            RowFormat::Lammps => Self::LammpsDump,
        }
    }
}

/// What to do about a format that nothing tells.
pub(crate) const NAME_IT: &str = "add --format with csv, jsonl, parquet, arrow, npy, npz or lammps";

/// The format in which a verb reads a file: the one given, or that of the file name's ending.
pub(crate) fn format_of(named: Option<RowFormat>, path: &Path, verb: ReadingVerb) -> Result<Format, Failure> {
    named.map(Format::from).or_else(|| Format::of_path(path)).ok_or_else(|| Failure::Usage {
        problem: format!("the name \"{}\" does not tell the format", path.display()),
        hint: match Compression::of_path(path) {
            Some(compression) => verb.line(&Input::File(path.to_owned()), compression, format_within(path)),
            None => NAME_IT.to_owned(),
        },
    })
}

/// The format in which rows are written: the one given, or that of the file name's ending.
pub(crate) fn written_format_of(named: Option<RowFormat>, path: &Path) -> Result<Format, Failure> {
    named.map(Format::from).or_else(|| Format::of_path(path)).ok_or_else(|| Failure::Usage {
        problem: format!("the name \"{}\" does not tell the format", path.display()),
        hint: NAME_IT.to_owned(),
    })
}

/// A hint with the name that was probably meant, or with all names.
pub(crate) fn did_you_mean(name: &str, names: &[String]) -> String {
    match atoll_errors::nearest(name, names.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("there are: {}", crate::text::listed(names)),
    }
}
