//! The file formats, and how file names indicate them.

use std::fmt;
use std::path::Path;

/// A file format for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object for each line.
    JsonLines,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC: a file, or a stream.
    Arrow,
    /// A NumPy array: of structures, of one or of two dimensions.
    Npy,
    /// NumPy arrays in an archive, one for each column.
    Npz,
    /// A LAMMPS text dump.
    LammpsDump,
}

impl Format {
    /// All formats, under the names that options use.
    pub const ALL: [(&'static str, Self); 7] = [
        ("csv", Self::Csv),
        ("jsonl", Self::JsonLines),
        ("parquet", Self::Parquet),
        ("arrow", Self::Arrow),
        ("npy", Self::Npy),
        ("npz", Self::Npz),
        ("lammps", Self::LammpsDump),
    ];

    /// The name that options use.
    #[must_use]
    pub fn option(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("csv", |(name, _)| name)
    }

    /// The format that a file name's extension indicates.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" | "tsv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            "parquet" | "pq" => Some(Self::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Some(Self::Arrow),
            "npy" => Some(Self::Npy),
            "npz" => Some(Self::Npz),
            "dump" | "lammpstrj" | "lammpsdump" => Some(Self::LammpsDump),
            _ => None,
        }
    }

    /// Whether it is read front to back, so that a pipe can be read.
    #[must_use]
    pub const fn is_streamed(self) -> bool {
        matches!(self, Self::Csv | Self::JsonLines | Self::LammpsDump)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Csv => "CSV",
            Self::JsonLines => "JSON Lines",
            Self::Parquet => "Parquet",
            Self::Arrow => "Arrow IPC",
            Self::Npy => "a NumPy array",
            Self::Npz => "a NumPy archive",
            Self::LammpsDump => "a LAMMPS dump",
        })
    }
}
