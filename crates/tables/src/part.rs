//! Parts: a uniform way to read whatever holds rows of a version, whether a block or an object of cubes.
//!
//! Does no I/O: the caller reads the byte ranges that it is given and passes the bytes in.
//!
//! Invariant: the bands planned for a query contain every row of the part that the query wants.

use crate::block::{BlockError, BlockReader, HEAD_BYTES, Wanted};
use crate::cube::{CubeReader, Origins};
use crate::expression::Verdict;
use crate::lattice::Extent;
use crate::{TableSchema, Weight, Window};
use arrow_array::RecordBatch;
use std::ops::Range;
use std::sync::Arc;

/// A part whose directory has been read.
#[derive(Clone, Debug)]
pub enum Part {
    /// Rows that a writer appended in one step.
    Block(BlockReader),
    /// An object of cubes, which a packer made from blocks or other cubes.
    Cubes(Box<CubeReader>),
}

/// Facts about a band that are known before it is read.
#[derive(Clone, Copy, Debug)]
pub struct BandFacts {
    /// Rows in the whole band.
    pub rows: u64,
    /// Rows that have to be decoded to get those with the wanted weights.
    pub decoded: u64,
    /// Lower bound of the weights in the band.
    pub least: Weight,
    /// Upper bound of the weights in the band.
    pub greatest: Weight,
}

/// Bands that are judged as a group before each is judged alone: those of a block, or of one layer of a cube.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Index of the layer within its part.
    pub(crate) place: usize,
    /// Lower bound of the weights of its wanted rows.
    pub lightest: Weight,
    /// Verdict that holds for all of its rows.
    pub(crate) verdict: Verdict,
}

/// Decoded rows of a band.
#[derive(Clone, Debug)]
pub struct BandOfRows {
    /// The wanted columns.
    pub rows: RecordBatch,
    /// Weights of the rows, in rising order.
    pub weights: Vec<Weight>,
    /// Where the rows were written; only for cubes, and only if requested.
    pub origins: Option<Origins>,
}

impl Part {
    /// Number of bytes at the front of an object that hold its head and directory, given its first
    /// [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn front_bytes(head: &[u8]) -> Result<u64, BlockError> {
        if is_cubes(head) { CubeReader::front_bytes(head) } else { BlockReader::front_bytes(head) }
    }

    /// Checksum of the schema that an object was written with, given its first [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn schema_sum(head: &[u8]) -> Result<u64, BlockError> {
        if is_cubes(head) { CubeReader::schema_sum(head) } else { BlockReader::schema_sum(head) }
    }

    /// Opens an object from the bytes at its front, with the schema that it was written with.
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

    /// The reader of the cubes, if this is an object of cubes.
    pub(crate) fn cubes(&self) -> Option<&CubeReader> {
        match self {
            Self::Block(_) => None,
            Self::Cubes(cubes) => Some(cubes),
        }
    }

    /// Number of columns that the table had when this part was written. They are the first columns of the
    /// current schema.
    #[must_use]
    pub fn column_count(&self) -> usize {
        match self {
            Self::Block(block) => block.column_count(),
            Self::Cubes(cubes) => cubes.column_count(),
        }
    }

    /// Those of `columns` that existed when this part was written.
    pub(crate) fn there(&self, columns: &[usize]) -> Vec<usize> {
        columns.iter().copied().filter(|&place| place < self.column_count()).collect()
    }

    /// Number of rows in the part.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        match self {
            Self::Block(block) => block.directory().rows,
            Self::Cubes(cubes) => cubes.directory().rows(),
        }
    }

    /// Byte range of the filters, which list the entities of each band; `None` if the part has no filters.
    #[must_use]
    pub fn filters_at(&self) -> Option<Range<u64>> {
        match self {
            Self::Block(_) => None,
            Self::Cubes(cubes) => cubes.filters_at(),
        }
    }

    /// Whether the filters have been read.
    #[must_use]
    pub fn has_filters(&self) -> bool {
        matches!(self, Self::Cubes(cubes) if cubes.has_filters())
    }

    /// Decodes the filters from the bytes at [`Part::filters_at`] and keeps them.
    ///
    /// # Errors
    /// [`BlockError::Damaged`].
    pub fn keep_filters(&self, bytes: &[u8]) -> Result<(), BlockError> {
        match self {
            Self::Block(_) => Ok(()),
            Self::Cubes(cubes) => cubes.keep_filters(bytes),
        }
    }

    /// The rows of a band that may have one of `weights`, which must lie between the least and the greatest
    /// weight of the band. Without filters these are all rows of the band; `None` if no row can match.
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

    /// Number of bands in the part.
    #[must_use]
    pub fn band_count(&self) -> usize {
        match self {
            Self::Block(block) => block.directory().bands.len(),
            Self::Cubes(cubes) => cubes.band_count(),
        }
    }

    /// Indices of the bands that may hold rows with weights in `window` and whose extents, one for each index
    /// column, pass the test.
    pub fn bands(&self, window: Window, may_hold: impl Fn(&[Extent]) -> bool) -> Vec<usize> {
        let judge = |extents: &[Extent]| if may_hold(extents) { Verdict::Perhaps } else { Verdict::Never };
        self.judged_bands(window, judge).into_iter().map(|(place, _)| place).collect()
    }

    /// Indices of the bands that may hold rows with weights in `window`, each with the verdict on all of its
    /// rows by their extents, one for each index column. Bands judged [`Verdict::Never`] are left out.
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

    /// The layers that may hold rows with weights in `window`, each with the verdict on all of its rows by
    /// their extents. Layers judged [`Verdict::Never`] are left out.
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

    /// Like [`Part::judged_bands`], for one layer; reports one band at a time to `found`.
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

    /// The extent of the rows of a layer in an index column, given by its place among these, and whether the
    /// window takes all of their weights; `None` if only bands have extents.
    pub(crate) fn layer_extent(&self, layer: &Layer, window: Window, axis: usize) -> Option<(Extent, bool)> {
        match self {
            Self::Block(_) => None,
            Self::Cubes(cubes) => cubes.layer_extent(layer, window, axis),
        }
    }

    /// The extent of the rows of a band in an index column, given by its place among these.
    pub(crate) fn band_extent(&self, place: usize, axis: usize) -> Option<Extent> {
        match self {
            Self::Block(block) => block.directory().bands.get(place)?.extents.get(axis).copied(),
            Self::Cubes(cubes) => cubes.band_extent(place, axis),
        }
    }

    /// Facts about a band.
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

    /// Offset and length of each slice of a band to read, in the order in which [`Part::rows`] expects them.
    /// Columns that were added after the part was written have no slice.
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

    /// Decodes the rows of a band that have the wanted weights, from the bytes of its slices. Columns that
    /// were added after the part was written are left out.
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
