//! Parts: whatever answers for rows of a version, a block or an object of cubes, read in one way.
//!
//! Without I/O: the caller reads the ranges it is told, and hands the bytes in.
//!
//! Invariant: what is planned for a query holds every row that the query wants of the part.

use crate::block::{BlockError, BlockReader, HEAD_BYTES, Wanted};
use crate::cube::{CubeReader, Origins};
use crate::lattice::Extent;
use crate::{TableSchema, Weight};
use arrow_array::RecordBatch;
use std::sync::Arc;

/// A part whose directory was read.
#[derive(Clone, Debug)]
pub enum Part {
    /// What a writer appended in one step.
    Block(BlockReader),
    /// What a packer made of such.
    Cubes(CubeReader),
}

/// A band to read for a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBand {
    /// Which band of its part.
    pub place: usize,
    /// Rows that will be decoded.
    pub rows: usize,
    /// No row of it that is wanted is lighter.
    pub least: Weight,
    /// Offset and length of each slice to read, in the order in which [`Part::rows`] takes them.
    pub slices: Vec<(u64, u64)>,
}

/// Rows of a band.
#[derive(Clone, Debug)]
pub struct BandOfRows {
    /// The columns that are wanted.
    pub rows: RecordBatch,
    /// Their weights, which rise.
    pub weights: Vec<Weight>,
    /// Where they were written; of cubes, and only if it was wanted.
    pub origins: Option<Origins>,
}

impl Part {
    /// How many bytes at the front of an object hold its head and directory, by its first [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn front_bytes(head: &[u8]) -> Result<u64, BlockError> {
        if is_cubes(head) { CubeReader::front_bytes(head) } else { BlockReader::front_bytes(head) }
    }

    /// Opens an object of a table by the bytes at its front.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`], [`BlockError::OtherSchema`].
    pub fn open(schema: Arc<TableSchema>, front: &[u8]) -> Result<Self, BlockError> {
        if is_cubes(front) {
            CubeReader::open(schema, front).map(Self::Cubes)
        } else {
            BlockReader::open(schema, front).map(Self::Block)
        }
    }

    /// Rows in it.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        match self {
            Self::Block(block) => block.directory().rows,
            Self::Cubes(cubes) => cubes.directory().rows(),
        }
    }

    /// The bands that may hold rows that are wanted, those that may have the lightest rows first: of those whose
    /// extents, one for each index column, pass a test.
    #[must_use]
    pub fn bands(
        &self,
        wanted: Wanted<'_>,
        with_origins: bool,
        may_hold: impl Fn(&[Extent]) -> bool,
    ) -> Vec<PlannedBand> {
        let block = match self {
            Self::Block(block) => block,
            Self::Cubes(cubes) => return cubes.bands(wanted, with_origins, may_hold),
        };
        let planned = |place: usize| {
            let band = &block.directory().bands[place];
            let slices = block.slices(place, wanted.columns);
            let slices = slices.iter().map(|slice| (slice.offset, slice.bytes)).collect();
            PlannedBand { place, rows: band.rows as usize, least: band.least, slices }
        };
        block.bands(wanted.window, may_hold).map(planned).collect()
    }

    /// The rows of a band with the weights that are wanted, from the bytes of its slices.
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where bytes do not match their checksum.
    pub fn rows(
        &self,
        place: usize,
        wanted: Wanted<'_>,
        with_origins: bool,
        slices: &[impl AsRef<[u8]>],
    ) -> Result<BandOfRows, BlockError> {
        match self {
            Self::Block(block) => {
                let (rows, weights) = block.rows(place, &wanted, slices)?;
                Ok(BandOfRows { rows, weights, origins: None })
            }
            Self::Cubes(cubes) => cubes.rows(place, wanted, with_origins, slices),
        }
    }
}

fn is_cubes(front: &[u8]) -> bool {
    front.get(..HEAD_BYTES).is_some_and(crate::cube::is_head)
}
