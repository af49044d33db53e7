//! Which formats there are, and which one a file name stands for.

use std::fmt;
use std::path::Path;

/// How rows are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object a line.
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
    /// All of them, by the names that options use.
    pub const ALL: [(&'static str, Self); 7] = [
        ("csv", Self::Csv),
        ("jsonl", Self::JsonLines),
        ("parquet", Self::Parquet),
        ("arrow", Self::Arrow),
        ("npy", Self::Npy),
        ("npz", Self::Npz),
        ("lammps", Self::LammpsDump),
    ];

    /// What options call it.
    #[must_use]
    pub fn option(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("csv", |(name, _)| name)
    }

    /// The format that the ending of a file name stands for.
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

    /// Whether rows can be written in it.
    #[must_use]
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Csv | Self::JsonLines | Self::Parquet | Self::Arrow)
    }

    /// Whether it is read from beginning to end, so that a pipe will do.
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
