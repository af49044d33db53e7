//! Cubes: a table at rest, as a tree in which every sample of every box is a few near places.
//!
//! ```text
//! object:    head 64 | directory | filters of the bands | band: column, column, … | band: … | …
//! column:    bytes, packed or as in a block | seal 8
//! ```
//!
//! A tree is grown over rows of a version (`tree`); each cube is cut into bands (`band`); cubes that lie near
//! each other share an object of a few megabytes (`write`). Its directory (`directory`) says for each band
//! how heavy its rows are, what box they lie in, and where its columns are, so that a query reads the
//! directory and then only the columns of the bands it needs (`read`). Weights are not stored: they are
//! recomputed from the sample key. A row keeps its origin, the run and step that it was written in, so that
//! what is deleted or superseded later can be told.
//!
//! Invariant: a row lives once in a tree, in the shallowest cube of its path that has room.
//! Invariant: no byte of an object is believed before its seal or checksum was found right.

mod band;
mod bands;
mod column;
mod directory;
mod fields;
mod filter;
mod groups;
mod growing;
mod head;
mod hidden;
mod long;
mod origin;
mod rank;
mod read;
mod sizes;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod words;
mod write;

pub use directory::{CubeDirectory, CubeEntry};
pub(crate) use growing::Growing;
pub(crate) use long::joined;
pub(crate) use origin::GrowingOrigins;
pub use origin::Origins;
pub use read::CubeReader;
pub use tree::{CubeId, Root};
pub use write::{CubeObject, Tree};

/// How a tree is cut. Queries do not depend on it, only what they cost does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows that a cube with children holds.
    pub cube_rows: usize,
    /// A domain with no more rows than this is one cube.
    pub leaf_rows: usize,
    /// Rows of the lightest layer of a cube; each of the others has as many as all before it.
    pub layer_rows: usize,
    /// Rows of a band, at most.
    pub band_rows: usize,
    /// Bytes after which another object begins.
    pub object_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { cube_rows: 4096, leaf_rows: 32_768, layer_rows: 1024, band_rows: 64, object_bytes: 8 << 20 }
    }
}

impl Shape {
    /// Whether every number of it is at least 1.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        let Self { cube_rows, leaf_rows, layer_rows, band_rows, object_bytes } = *self;
        cube_rows > 0 && leaf_rows > 0 && layer_rows > 0 && band_rows > 0 && object_bytes > 0
    }

    /// This for rows of so many bytes: no band is larger than an object, or has more rows than one may have.
    fn with_rows_of(self, bytes: usize) -> Self {
        let of_object = (self.object_bytes / bytes.max(1)).clamp(1, BAND_ROWS_MAX);
        Self { band_rows: self.band_rows.min(of_object), ..self }
    }

    /// How many rows the layers of a cube with so many rows have.
    fn layers(&self, rows: usize) -> impl Iterator<Item = usize> {
        let first = self.layer_rows.max(1);
        let mut done = 0;
        std::iter::from_fn(move || {
            let next = done.max(first).min(rows - done);
            // What is left over would be a band of a handful of rows.
            let next = if rows - done - next < first / 2 { rows - done } else { next };
            done += next;
            (next > 0).then_some(next)
        })
    }
}

/// Rows after which a band can be decoded no further: what a sample decodes too much is less than this.
const MARK_ROWS: usize = 8;

/// More rows than this no band has. Numbers that are all alike take no bytes, so a directory that claims more
/// could ask for any room there is.
const BAND_ROWS_MAX: usize = 1 << 16;

/// Whether an object that begins so is one of cubes.
pub(crate) fn is_head(bytes: &[u8]) -> bool {
    bytes.starts_with(&head::MAGIC.to_le_bytes())
}
