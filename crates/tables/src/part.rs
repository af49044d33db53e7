//! Parts: whatever answers for rows of a version, a block or an object of cubes, read in one way.
//!
//! Without I/O: the caller reads the ranges it is told, and hands the bytes in.
//!
//! Invariant: what is planned for a query holds every row that the query wants of the part.

use crate::block::{BlockError, BlockReader, HEAD_BYTES, Wanted};
use crate::cube::{CubeReader, Origins};
use crate::expression::Verdict;
use crate::lattice::Extent;
use crate::{TableSchema, Weight, Window};
use arrow_array::RecordBatch;
use std::ops::Range;
use std::sync::Arc;

/// A part whose directory was read.
#[derive(Clone, Debug)]
pub enum Part {
    /// What a writer appended in one step.
    Block(BlockReader),
    /// What a packer made of such.
    Cubes(Box<CubeReader>),
}

/// What is known of a band before it is read.
#[derive(Clone, Copy, Debug)]
pub struct BandFacts {
    /// Rows of the whole band.
    pub rows: u64,
    /// Rows of it that are decoded for the weights that are wanted.
    pub decoded: u64,
    /// No row of it is lighter.
    pub least: Weight,
    /// No row of it is heavier.
    pub greatest: Weight,
}

/// Bands that are judged together before each of them is: those of a block, or of a layer of a cube.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Which layer of its part.
    pub(crate) place: usize,
    /// No row of it that is wanted is lighter.
    pub lightest: Weight,
    /// What is said of all its rows.
    pub(crate) verdict: Verdict,
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
    /// How many bytes at the front of an object hold its head and directory, by its first [`HEAD_BYTES`]
    /// bytes.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn front_bytes(head: &[u8]) -> Result<u64, BlockError> {
        if is_cubes(head) { CubeReader::front_bytes(head) } else { BlockReader::front_bytes(head) }
    }

    /// The checksum of the schema that an object was written with, by its first [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn schema_sum(head: &[u8]) -> Result<u64, BlockError> {
        if is_cubes(head) { CubeReader::schema_sum(head) } else { BlockReader::schema_sum(head) }
    }

    /// Opens an object of a table by the bytes at its front, with the schema that it was written with.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`], [`BlockError::OtherSchema`].
    pub fn open(schema: Arc<TableSchema>, front: &[u8]) -> Result<Self, BlockError> {
        if is_cubes(front) {
            CubeReader::open(schema, front).map(|cubes| Self::Cubes(Box::new(cubes)))
        } else {
            BlockReader::open(schema, front).map(Self::Block)
        }
    }

    /// The cubes, if it is an object of cubes.
    pub(crate) fn cubes(&self) -> Option<&CubeReader> {
        match self {
            Self::Block(_) => None,
            Self::Cubes(cubes) => Some(cubes),
        }
    }

    /// How many columns the table had when it was written: the first of those that it has now.
    #[must_use]
    pub fn column_count(&self) -> usize {
        match self {
            Self::Block(block) => block.column_count(),
            Self::Cubes(cubes) => cubes.column_count(),
        }
    }

    /// Those of some columns that the table had when it was written.
    pub(crate) fn there(&self, columns: &[usize]) -> Vec<usize> {
        columns.iter().copied().filter(|&place| place < self.column_count()).collect()
    }

    /// Rows in it.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        match self {
            Self::Block(block) => block.directory().rows,
            Self::Cubes(cubes) => cubes.directory().rows(),
        }
    }

    /// Where its filters lie, which tell the entities of each band; none if it has none.
    #[must_use]
    pub fn filters_at(&self) -> Option<Range<u64>> {
        match self {
            Self::Block(_) => None,
            Self::Cubes(cubes) => cubes.filters_at(),
        }
    }

    /// Whether its filters were read.
    #[must_use]
    pub fn has_filters(&self) -> bool {
        matches!(self, Self::Cubes(cubes) if cubes.has_filters())
    }

    /// Reads its filters from the bytes where they lie, and keeps them.
    ///
    /// # Errors
    /// [`BlockError::Damaged`].
    pub fn keep_filters(&self, bytes: &[u8]) -> Result<(), BlockError> {
        match self {
            Self::Block(_) => Ok(()),
            Self::Cubes(cubes) => cubes.keep_filters(bytes),
        }
    }

    /// The rows of a band that may have one of these weights, which lie between its least and its greatest:
    /// all of them unless its filters were read; none if no row has.
    ///
    /// # Panics
    /// Never for a place that [`Part::bands`] named.
    #[must_use]
    pub fn rows_of(&self, place: usize, weights: &[Weight]) -> Option<Range<usize>> {
        match self {
            Self::Block(block) => Some(0..block.directory().bands[place].rows as usize),
            Self::Cubes(cubes) => cubes.rows_of(place, weights),
        }
    }

    /// How many bands it has.
    #[must_use]
    pub fn band_count(&self) -> usize {
        match self {
            Self::Block(block) => block.directory().bands.len(),
            Self::Cubes(cubes) => cubes.band_count(),
        }
    }

    /// The bands that may hold rows of these weights, by their places, of those whose extents, one for each
    /// index column, pass a test.
    pub fn bands(&self, window: Window, may_hold: impl Fn(&[Extent]) -> bool) -> Vec<usize> {
        let judge = |extents: &[Extent]| if may_hold(extents) { Verdict::Perhaps } else { Verdict::Never };
        self.judged_bands(window, judge).into_iter().map(|(place, _)| place).collect()
    }

    /// The bands that may hold rows of these weights, by their places, and what is said of all their rows by
    /// their extents, one for each index column; those of which it is [`Verdict::Never`] are left out.
    pub fn judged_bands(
        &self,
        window: Window,
        judge: impl Fn(&[Extent]) -> Verdict,
    ) -> Vec<(usize, Verdict)> {
        let mut found = Vec::new();
        for layer in self.judged_layers(window, &judge) {
            self.judged_bands_of(&layer, window, &judge, |place, verdict| found.push((place, verdict)));
        }
        found
    }

    /// The layers that may hold rows of these weights, and what is said of all their rows by their extents;
    /// those of which it is [`Verdict::Never`] are left out.
    pub fn judged_layers(&self, window: Window, judge: impl Fn(&[Extent]) -> Verdict) -> Vec<Layer> {
        match self {
            Self::Block(block) => {
                let lightest = block.directory().bands.first().map(|band| band.least);
                let clipped = lightest.and_then(|lightest| window.clipped(lightest, Weight::GREATEST));
                let layer = |(lightest, _)| Layer { place: 0, lightest, verdict: Verdict::Perhaps };
                clipped.map(layer).into_iter().collect()
            }
            Self::Cubes(cubes) => cubes.judged_layers(window, judge),
        }
    }

    /// As [`Part::judged_bands`], of one layer, one band after the other.
    pub fn judged_bands_of(
        &self,
        layer: &Layer,
        window: Window,
        judge: impl Fn(&[Extent]) -> Verdict,
        mut found: impl FnMut(usize, Verdict),
    ) {
        match self {
            Self::Block(block) => {
                let bands = &block.directory().bands;
                let places = block.bands(window, |_| true);
                let judged = places.map(|place| (place, judge(&bands[place].extents)));
                let judged = judged.filter(|(_, verdict)| *verdict != Verdict::Never);
                judged.for_each(|(place, verdict)| found(place, verdict));
            }
            Self::Cubes(cubes) => cubes.judged_bands_of(layer, window, judge, found),
        }
    }

    /// What is known of a band.
    ///
    /// # Panics
    /// Never for a place that [`Part::bands`] named.
    #[must_use]
    pub fn facts(&self, place: usize, window: Window) -> BandFacts {
        match self {
            Self::Block(block) => {
                let band = &block.directory().bands[place];
                let (rows, least, greatest) = (u64::from(band.rows), band.least, band.greatest);
                BandFacts { rows, decoded: rows, least, greatest }
            }
            Self::Cubes(cubes) => cubes.facts(place, window),
        }
    }

    /// Offset and length of each slice to read of one band, in the order in which [`Part::rows`] takes them.
    /// Columns that came after it was written have none.
    ///
    /// # Panics
    /// Never for a place that [`Part::bands`] named and columns of the table.
    #[must_use]
    pub fn slices(&self, place: usize, columns: &[usize], with_origins: bool) -> Vec<(u64, u64)> {
        let columns = self.there(columns);
        match self {
            Self::Block(block) => {
                let slices = block.slices(place, &columns);
                slices.iter().map(|slice| (slice.offset, slice.bytes)).collect()
            }
            Self::Cubes(cubes) => cubes.slices(place, &columns, with_origins),
        }
    }

    /// The rows of a band with the weights that are wanted, from the bytes of its slices; without columns
    /// that came after it was written.
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
        let columns = self.there(wanted.columns);
        let wanted = Wanted { columns: &columns, ..wanted };
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
