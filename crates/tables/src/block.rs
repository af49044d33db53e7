//! Blocks: the rows that a writer appended in one step, in weight order.
//!
//! ```text
//! head 64 B | directory | band 0: column 0, column 1, … | band 1: … | …
//! ```
//!
//! Rows lie in bands, each as long as all bands before it together. A sample is therefore the first few
//! bands, and reading it decodes at most twice the rows it returns. The directory records the weight range,
//! the bounding box and the column slices of each band: a query reads the directory and then only the slices
//! it needs.
//!
//! ```text
//! head:      magic 8 | format 4 | directory length 4 | rows 8 | block length 8 | schema 8 | directory sum 8
//!            | zero 8 | head sum 8
//! directory: columns 4 | index columns 4 | bands 4 | zero 4 | bands …
//! band:      rows 4 | zero 4 | least weight 8 | greatest weight 8 | extent 24 for each index column
//!            | slice 24 for each column
//! extent:    kind 1 | rows without a value 1 | zero 6 | least 8 | greatest 8
//! slice:     offset 8 | length 8 | checksum 8
//! ```
//!
//! Weights follow from the sample key. In format 2 and earlier they are stored, as a slice in front of the
//! columns. Integers are little-endian; slices start on multiples of 64 bytes; checksums are XXH3-64.
//!
//! Invariant: rows are ordered by (weight, id) across all bands.
//! Invariant: no byte of a block is trusted before its checksum has been verified.

mod content;
mod directory;
mod read;
pub(crate) mod slice;
mod write;

pub use directory::{Band, Directory, Slice};
pub use read::{BlockReader, Wanted};
pub(crate) use write::{Written, block_bytes_at_most, check, row_bytes_at_most, write_block};
pub use write::{encode_block, encode_sorted};

use arrow_schema::{ArrowError, DataType};
use atoll_errors::ErrorKind;

/// Rows in the first band.
pub const BAND_ROWS_FIRST: usize = 256;

/// Length of a block's head in bytes.
pub const HEAD_BYTES: usize = 64;

/// Alignment of slices in bytes.
const ALIGNMENT: usize = 64;

/// Why a block cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The columns of the rows differ from those of the table.
    #[error("the rows do not have the columns of the table: {problem}")]
    Columns {
        /// The first difference.
        problem: String,
    },
    /// A column that may not be null holds nulls.
    #[error("column \"{column}\" must not be null, but row {row} is")]
    Null {
        /// The column.
        column: String,
        /// The first such row.
        row: usize,
    },
    /// A weight could not be computed.
    #[error(transparent)]
    Weight(#[from] crate::WeightError),
    /// An extent could not be computed.
    #[error(transparent)]
    Lattice(#[from] crate::lattice::LatticeError),
    /// The bytes are not a block, or are damaged.
    #[error("the block is damaged: {problem}")]
    Damaged {
        /// What is wrong.
        problem: String,
    },
    /// The block was written by a newer release.
    #[error("the block has format {found}; this release reads up to {supported}")]
    NewerFormat {
        /// The format found.
        found: u32,
        /// The newest known format.
        supported: u32,
    },
    /// The block belongs to a table with another schema.
    #[error("the block was written with another schema")]
    OtherSchema,
    /// A column type that blocks cannot hold, which the schema should have refused.
    #[error("blocks do not hold columns of type {data_type}")]
    Type {
        /// The type.
        data_type: DataType,
    },
    /// The texts of one column, concatenated, exceed the length of an Arrow array.
    #[error("{bytes} bytes of text in one column, more than the {max} that fit in one array")]
    TooMuchText {
        /// Bytes up to the first text that did not fit.
        bytes: usize,
        /// The most bytes that fit.
        max: usize,
    },
    /// Arrow refused an operation.
    #[error("the rows could not be rearranged: {0}")]
    Arrow(#[source] ArrowError),
}

/// The most bytes of text in one array: Arrow counts them in 31 bits.
pub(crate) const TEXT_BYTES_MAX: usize = i32::MAX as usize;

impl From<ArrowError> for BlockError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::OffsetOverflowError(bytes) => Self::TooMuchText { bytes, max: TEXT_BYTES_MAX },
            other => Self::Arrow(other),
        }
    }
}

impl BlockError {
    /// The error kind that all doors share.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Columns { .. } | Self::Null { .. } | Self::Type { .. } => ErrorKind::InvalidInput,
            Self::Weight(error) => error.kind(),
            Self::Lattice(error) => error.kind(),
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::NewerFormat { .. } => ErrorKind::NewerFormat,
            Self::OtherSchema => ErrorKind::Conflict,
            Self::TooMuchText { .. } => ErrorKind::Limit,
            Self::Arrow(_) => ErrorKind::Internal,
        }
    }
}

pub(crate) fn damaged(problem: impl Into<String>) -> BlockError {
    BlockError::Damaged { problem: problem.into() }
}

/// The checksum of bytes that belong to a block.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// The checksum that ties a block to the schema it was written with.
pub(crate) fn schema_sum(schema: &crate::TableSchema) -> u64 {
    checksum(schema.to_sorted_json().as_bytes())
}

/// The row counts of the bands of a block of `rows` rows: [`BAND_ROWS_FIRST`] first, then each band as long
/// as all before it.
pub fn band_rows(rows: usize) -> impl Iterator<Item = usize> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let next = done.max(BAND_ROWS_FIRST).min(rows - done);
        done += next;
        (next > 0).then_some(next)
    })
}

#[cfg(test)]
mod tests;
