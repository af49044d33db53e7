//! Reading a block: the byte ranges that a query needs, and the rows in them.
//!
//! No I/O happens here: the caller reads the ranges and hands the bytes in.

use super::directory::Head;
use super::{Band, BlockError, Directory, HEAD_BYTES, Slice, checksum, damaged, schema_sum, slice};
use crate::cube::Growing;
use crate::lattice::Extent;
use crate::weight::{Window, weights};
use crate::{Salt, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Schema};
use std::ops::Range;
use std::sync::Arc;

/// What a query wants of a block.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'q> {
    /// The window of weights.
    pub window: Window,
    /// Places of the columns to read, in the order in which they are returned.
    pub columns: &'q [usize],
    /// Restricts the answer to this range of rows of the band, where the caller knows more than weights.
    /// Blocks ignore it.
    pub rows: Option<(u32, u32)>,
}

/// A block whose directory has been read.
#[derive(Clone, Debug)]
pub struct BlockReader {
    schema: Arc<TableSchema>,
    directory: Directory,
}

impl BlockReader {
    /// Length of head and directory together, from the first [`HEAD_BYTES`] bytes of a block.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn front_bytes(head: &[u8]) -> Result<u64, BlockError> {
        Ok(HEAD_BYTES as u64 + u64::from(Head::decode(head)?.directory_bytes))
    }

    /// As [`crate::part::Part::schema_sum`].
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn schema_sum(head: &[u8]) -> Result<u64, BlockError> {
        Ok(Head::decode(head)?.schema)
    }

    /// As [`crate::part::Part::column_count`].
    pub(crate) fn column_count(&self) -> usize {
        self.schema.columns().fields().len()
    }

    /// Opens a block of a table from its front: head and directory.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`], [`BlockError::OtherSchema`].
    pub fn open(schema: Arc<TableSchema>, front: &[u8]) -> Result<Self, BlockError> {
        let head = Head::decode(front)?;
        if head.schema != schema_sum(&schema) {
            return Err(BlockError::OtherSchema);
        }
        let directory = front.get(HEAD_BYTES..HEAD_BYTES + head.directory_bytes as usize);
        let directory = directory.ok_or_else(|| damaged("its directory is cut off"))?;
        let (columns, index) = (schema.columns().fields().len(), schema.index().len());
        let directory = Directory::decode(&head, directory, columns, index, schema.id())?;
        Ok(Self { schema, directory })
    }

    /// The layout of the block.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The places of the bands that may hold rows in the window and whose extents, one for each index column,
    /// pass `may_hold`.
    pub fn bands(&self, window: Window, may_hold: impl Fn(&[Extent]) -> bool) -> impl Iterator<Item = usize> {
        let passes =
            move |band: &Band| window.clipped(band.least, band.greatest).is_some() && may_hold(&band.extents);
        let bands = self.directory.bands.iter().enumerate();
        bands.filter(move |(_, band)| passes(band)).map(|(place, _)| place)
    }

    /// The slices to read of one band: the wanted columns, then those that give the weights. These are the
    /// remaining columns of the sample key, or the slice of weights in blocks of format 2 and earlier.
    ///
    /// # Panics
    /// Never for a band from [`BlockReader::bands`] and columns of the table.
    #[must_use]
    pub fn slices(&self, band: usize, columns: &[usize]) -> Vec<Slice> {
        let band = &self.directory.bands[band];
        let read = self.columns_of(band, columns);
        read.into_iter().map(|column| band.slices[column]).chain(band.weights).collect()
    }

    /// The columns to read for a query: the wanted ones and those of the sample key.
    fn columns_of(&self, band: &Band, wanted: &[usize]) -> Vec<usize> {
        let mut columns = wanted.to_vec();
        if band.weights.is_none() {
            columns.extend(self.schema.sample_key().iter().filter(|place| !wanted.contains(place)));
        }
        columns
    }

    /// The rows of a band whose weights are in the window, decoded from the bytes of its slices, and their
    /// weights.
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where bytes do not match their checksum.
    pub fn rows(
        &self,
        band: usize,
        wanted: &Wanted<'_>,
        slices: &[impl AsRef<[u8]>],
    ) -> Result<(RecordBatch, Vec<Weight>), BlockError> {
        let places = self.slices(band, wanted.columns);
        if places.len() != slices.len() {
            return Err(damaged("not all slices of a band were read"));
        }
        let band = &self.directory.bands[band];
        let rows = band.rows as usize;
        let read = self.columns_of(band, wanted.columns);
        let verified = |place: usize| verified(&places[place], slices[place].as_ref());
        let mut arrays = Vec::with_capacity(read.len());
        for (place, &column) in read.iter().enumerate() {
            let data_type = self.schema.columns().field(column).data_type();
            arrays.push(slice::decode(data_type, rows, verified(place)?)?);
        }
        let weights = match band.weights {
            Some(_) => written_weights(rows, verified(read.len())?)?,
            None => self.weights(&read, &arrays)?,
        };
        if !weights.is_sorted() {
            return Err(damaged("weights are not in their order"));
        }
        let kept = wanted.window.slice(&weights);
        arrays.truncate(wanted.columns.len());
        let columns = arrays.iter().map(|array| array.slice(kept.start, kept.len())).collect();
        Ok((self.batch(wanted.columns, columns, &kept)?, weights[kept].to_vec()))
    }

    /// The weights of all rows of a band, given the columns that were read.
    fn weights(&self, read: &[usize], arrays: &[ArrayRef]) -> Result<Vec<Weight>, BlockError> {
        let of_key = |place: &usize| read.iter().position(|column| column == place);
        let key = self.schema.sample_key().iter().filter_map(of_key).map(|at| Arc::clone(&arrays[at]));
        Ok(weights(&key.collect::<Vec<_>>(), Salt(self.schema.salt()))?)
    }

    /// Appends all rows of one column of a band to a growing column, from the bytes of the whole block.
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where bytes do not match their checksum; the growing column is unusable
    /// afterwards.
    pub(crate) fn append(
        &self,
        band: &Band,
        column: usize,
        block: &[u8],
        grown: &mut Growing,
    ) -> Result<(), BlockError> {
        let place = band.slices[column];
        let bytes = place.offset.checked_add(place.bytes).and_then(|end| {
            let (from, end) = (usize::try_from(place.offset).ok()?, usize::try_from(end).ok()?);
            block.get(from..end)
        });
        let bytes = bytes.ok_or_else(|| damaged("it is cut off"))?;
        grown.append_slice(band.rows as usize, verified(&place, bytes)?)
    }

    fn batch(
        &self,
        places: &[usize],
        columns: Vec<ArrayRef>,
        kept: &Range<usize>,
    ) -> Result<RecordBatch, BlockError> {
        let fields: Vec<_> =
            places.iter().map(|&place| Arc::clone(&self.schema.columns().fields()[place])).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(kept.len()));
        let schema = Arc::new(Schema::new(fields));
        // A null in a column that allows none is damage that the checksum did not reveal.
        RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| damaged(error.to_string()))
    }
}

fn verified<'b>(slice: &Slice, bytes: &'b [u8]) -> Result<&'b [u8], BlockError> {
    if bytes.len() as u64 == slice.bytes && checksum(bytes) == slice.checksum {
        return Ok(bytes);
    }
    Err(damaged(format!("the {} bytes at offset {} do not match their checksum", slice.bytes, slice.offset)))
}

/// Decodes the slice of weights of formats 1 and 2.
fn written_weights(rows: usize, bytes: &[u8]) -> Result<Vec<Weight>, BlockError> {
    // Weights are never written once for all rows, so a band's memory is bounded by its own bytes.
    if bytes.len() / size_of::<u64>() < rows {
        return Err(damaged("a band has fewer weights than rows"));
    }
    let numbers = slice::decode(&DataType::UInt64, rows, bytes)?;
    let numbers =
        numbers.as_any().downcast_ref::<UInt64Array>().ok_or_else(|| damaged("weights are numbers"))?;
    let weights: Option<Vec<Weight>> = numbers.values().iter().map(|&number| Weight::new(number)).collect();
    weights.ok_or_else(|| damaged("a weight is zero"))
}
