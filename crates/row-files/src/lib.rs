//! Files of rows: CSV, JSON Lines, Parquet, Arrow IPC, NumPy and LAMMPS dumps, to and from record batches.
//!
//! [`describe`] tells the columns of a file, [`open`] reads its rows as the columns of a table, part by part, and
//! [`writer`] writes rows down. Nothing here knows of stores or tables.
//!
//! Invariant: memory does not grow with the length of a file.
//! Invariant: a value becomes another type only if nothing of it is lost, but for the rounding of a double to a
//! float; everything else is an error that names the file, the place and the column.

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
pub use part::{BadRecord, Part, PartLimits, RowReader};
pub use read::{Input, NO_VALUE_KEY, ReadOptions, describe, ends_in_quotes, open};
pub use size::{bytes_of, rows_within};
pub use write::{Aligned, RowWriter, aligned, escaped, writer};

/// The name most like `word`, if one is similar enough to be worth asking about.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance is quadratic in the length, and nobody mistypes a name of a hundred characters.
    if word.len() > 100 {
        return None;
    }
    let word = word.to_lowercase();
    let likeness = |name: &str| strsim::jaro_winkler(&word, &name.to_lowercase());
    let similar = names.into_iter().filter(|name| name.len() <= 100).map(|name| (likeness(name), name));
    let best = similar.filter(|(likeness, _)| *likeness >= 0.75).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}
