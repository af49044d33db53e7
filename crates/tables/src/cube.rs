//! Cubes: a table at rest, as a tree in which every sample of every box lies in a few places close together.
//!
//! ```text
//! object:    head 64 | directory | filters of the bands | band: column, column, … | band: … | …
//! column:    bytes, packed or as in a block | seal 8
//! ```
//!
//! A tree is grown over the rows of a version (`tree`). Each cube is cut into bands (`layers`), and cubes
//! that lie near each other share an object of a few megabytes (`write`). The directory of an object
//! (`directory`) records the weight range, the bounding box and the columns of each band: a query reads the
//! directory and then only the columns of the bands it needs (`read`). Weights are not stored; they are
//! recomputed from the sample key. Each row keeps its origin, the run and step it was written in, so that
//! later deletes and supersedes can find it.
//!
//! Invariant: a row is stored once in a tree, in the shallowest cube on its path that has room.
//! Invariant: no byte of an object is trusted before its seal or checksum has been verified.

mod bands;
mod column;
mod directory;
mod fields;
mod filter;
mod groups;
mod growing;
mod head;
mod hidden;
mod layers;
mod origin;
mod rank;
mod read;
mod reorder;
mod sizes;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod words;
mod write;

pub use directory::{CubeDirectory, CubeEntry};
pub(crate) use growing::Growing;
pub(crate) use origin::GrowingOrigins;
pub use origin::Origins;
pub use read::CubeReader;
pub(crate) use reorder::joined;
pub(crate) use tree::bytes_beside_row;
pub use tree::{CubeId, Root};
pub use write::{CubeObject, Tree};

/// How a tree is cut. The shape affects what queries cost, not what they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows that a cube with children holds.
    pub cube_rows: usize,
    /// A domain of at most this many rows becomes one cube.
    pub leaf_rows: usize,
    /// Rows of the lightest layer of a cube; each further layer is as long as all before it.
    pub layer_rows: usize,
    /// The most rows of a band.
    pub band_rows: usize,
    /// Bytes after which the next object begins.
    pub object_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { cube_rows: 4096, leaf_rows: 32_768, layer_rows: 1024, band_rows: 64, object_bytes: 8 << 20 }
    }
}

impl Shape {
    /// Whether all numbers of the shape are at least 1.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        let Self { cube_rows, leaf_rows, layer_rows, band_rows, object_bytes } = *self;
        cube_rows > 0 && leaf_rows > 0 && layer_rows > 0 && band_rows > 0 && object_bytes > 0
    }

    /// The shape for rows of `bytes` bytes each: no band exceeds the size of an object or [`BAND_ROWS_MAX`].
    fn with_rows_of(self, bytes: usize) -> Self {
        let of_object = (self.object_bytes / bytes.max(1)).clamp(1, BAND_ROWS_MAX);
        Self { band_rows: self.band_rows.min(of_object), ..self }
    }

    /// The row counts of the layers of a cube of `rows` rows.
    fn layers(&self, rows: usize) -> impl Iterator<Item = usize> {
        let first = self.layer_rows.max(1);
        let mut done = 0;
        std::iter::from_fn(move || {
            let next = done.max(first).min(rows - done);
            // A remainder this small would become a band of a handful of rows, so the layer takes it.
            let next = if rows - done - next < first / 2 { rows - done } else { next };
            done += next;
            (next > 0).then_some(next)
        })
    }
}

/// Rows between two marks of a band. A sample decodes fewer rows than this in excess.
const MARK_ROWS: usize = 8;

/// The most rows of a band. Numbers that are all equal take no bytes, so without a bound a damaged directory
/// could claim any number of rows and have a reader allocate for them.
const BAND_ROWS_MAX: usize = 1 << 16;

/// Whether bytes begin like an object of cubes.
pub(crate) fn is_head(bytes: &[u8]) -> bool {
    bytes.starts_with(&head::MAGIC.to_le_bytes())
}
