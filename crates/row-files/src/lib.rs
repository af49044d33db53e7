//! Files of rows: CSV, JSON Lines, Parquet, Arrow IPC, NumPy and LAMMPS dumps, to and from record batches.
//!
//! [`describe`] returns the columns of a file, [`open`] reads its rows part by part as the columns of a
//! table, and [`writer`] writes rows. This crate knows nothing of stores or tables.
//!
//! Invariant: memory does not grow with the length of a file.
//! Invariant: a value is converted only if nothing of it is lost, except when a double is rounded to a float;
//! anything else is an error that names the file, the place and the column.

#[cfg(test)]
mod arrays_and_dumps;
mod compression;
mod error;
mod format;
pub mod fuzz;
mod part;
mod read;
#[cfg(test)]
mod round_trip;
mod size;
mod write;

pub use compression::Compression;
pub use error::RowFileError;
pub use format::Format;
pub use part::{BadRecord, FailedAt, Part, PartLimits, RowReader};
pub use read::{Input, NO_VALUE_KEY, ReadOptions, describe, ends_in_quotes, open};
pub use size::{bytes_of, rows_within};
pub use write::{
    Aligned, AxisBounds, RowWriter, SnapshotBox, SnapshotBoxes, WriteOptions, aligned, escaped, writer,
};
