//! Bulk decoding: several threads decode many bands together into columns that grow.
//!
//! Rows of bands that match as a whole are decoded straight to where they stay; other bands are filtered some
//! thousand rows at a time.
//!
//! Invariant: the rows are those that the bands would yield one by one: in the same order if only weights are
//! requested, and otherwise with the places where they are stored.

mod decoder;
mod fetched;
#[cfg(test)]
mod tests;

use super::super::Work;
use super::super::found_rows::{FoundRows, OrderedRows, place_of};
use super::super::portion::PlannedBand;
use super::{HandedRows, Reading, arrow};
use crate::schema::number_bytes;
use crate::table::TableError;
use crate::threads::{map, threads};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_select::concat::concat_batches;
use atoll_store::Buffer;
use decoder::{Decoder, RowExtras};
use fetched::{Fetched, Located};
use std::sync::Arc;

/// Minimum number of rows in an unordered batch, except the last, if they have few bytes.
const BATCH_ROWS_MIN: usize = 1 << 14;

/// Maximum number of bytes of rows that are joined into a batch: far less than the text that fits in one.
const BATCH_BYTES_MAX: usize = 32 << 20;

/// Number of shares of the work per thread.
const SHARES_EACH: usize = 3;

/// Cost of a band in addition to its rows, in rows.
const BAND_ROWS: u64 = 40;

/// Number of bytes read before they are decoded: few of the rows that must be read may match.
pub(super) const BULK_BYTES: u64 = 256 << 20;

impl Reading {
    /// Reads the planned bands up to an index; returns their rows in no particular order, with weights if
    /// requested.
    pub(in super::super) async fn read_bulk(
        &mut self,
        to: usize,
        with_weights: bool,
    ) -> Result<Vec<FoundRows>, TableError> {
        let beside = match (with_weights, &self.contained) {
            (false, _) => RowExtras::Nothing,
            (true, None) => RowExtras::Weights,
            // The place of a row tells which piece it is of.
            (true, Some(_)) => RowExtras::WeightsAndPlaces,
        };
        let found = self.read_up_to(to, beside).await?;
        self.is_over = to == self.planned.len();
        self.handed_rows += found.iter().map(|found| found.rows.num_rows()).sum::<usize>();
        Ok(found)
    }

    /// Reads about `bytes` bytes of the remaining bands, or one band; plans more bands if all planned ones
    /// have been read. Returns the rows in no particular order, possibly none.
    pub(in super::super) async fn read_some(&mut self, bytes: u64) -> Result<Vec<FoundRows>, TableError> {
        if self.read == self.planned.len() {
            self.plan_portion().await?;
        }
        let found = self.read_bulk(self.bands_within(self.planned.len(), bytes), false).await?;
        self.is_over = self.is_exhausted();
        Ok(found)
    }

    /// Reads the planned bands up to an index; returns their rows, in weight order within each part, with the
    /// places where they are stored.
    pub(super) async fn read_rising(&mut self, to: usize) -> Result<Vec<FoundRows>, TableError> {
        let found = self.read_up_to(to, RowExtras::WeightsAndPlaces).await?;
        found.into_iter().map(FoundRows::rising).collect()
    }

    async fn read_up_to(&mut self, to: usize, beside: RowExtras) -> Result<Vec<FoundRows>, TableError> {
        let mut work = self.work;
        let fetched = self.fetched(to, &mut work).await?;
        let found = self.decode_all(&fetched, beside, threads(fetched.rows() as usize))?;
        work.bands += fetched.bands.len() as u64;
        work.rows_touched += fetched.rows();
        (self.work, self.read) = (work, to);
        Ok(found)
    }

    /// Reads everything in storage order, a limited number of bytes at a time, and hands it to `take`. What
    /// is not opened yet is opened in portions, each of which is dropped once it is read.
    async fn read_all(
        &mut self,
        with_weights: bool,
        mut take: impl FnMut(Vec<FoundRows>),
    ) -> Result<(), TableError> {
        self.waiting.put_in_storage_order();
        loop {
            self.plan_by_place();
            while self.read < self.planned.len() {
                let to = self.bands_within(self.planned.len(), BULK_BYTES);
                take(self.read_bulk(to, with_weights).await?);
            }
            if !self.waiting.has_pieces() {
                return Ok(());
            }
            self.plan_portion().await?;
        }
    }

    /// Reads all that has to be read for a count.
    pub(in super::super) async fn read_count(&mut self) -> Result<(), TableError> {
        if self.opens_in_portions() { self.read_all(false, drop).await } else { self.read_toward(None).await }
    }

    /// Sorts the planned bands into storage order.
    fn plan_by_place(&mut self) {
        let Self { sources, planned, .. } = self;
        planned.sort_by_key(|planned| place_of(sources[planned.source].place, planned.band));
    }

    /// Reads everything and hands it over in the order of (weight, id).
    pub(in super::super) async fn read_whole(&mut self) -> Result<HandedRows, TableError> {
        let mut found = Vec::new();
        self.read_all(true, |more| found.extend(more)).await?;
        let ordered = OrderedRows::by_weight(found, &self.schema, &self.asked.id(&self.table.schema))?;
        let rows = ordered.batch(0..ordered.rows(), &self.schema, &self.asked.answered)?;
        let contained = self.contained_of(ordered.pieces(0..ordered.rows()));
        Ok(HandedRows { rows, weights: ordered.weights, cut: self.asked.window.until(), contained })
    }

    /// Reads everything in storage order; returns at least one batch.
    pub(in super::super) async fn scan(&mut self) -> Result<Vec<RecordBatch>, TableError> {
        let mut found = Vec::new();
        self.read_all(false, |more| found.extend(more)).await?;
        let batches = self.answered(found)?;
        if batches.is_empty() {
            let schema = self.schema.project(&self.asked.answered).map_err(arrow)?;
            return Ok(vec![RecordBatch::new_empty(Arc::new(schema))]);
        }
        Ok(batches)
    }

    /// The requested columns of rows that were found, with small pieces joined and large ones as they are.
    pub(in super::super) fn answered(&self, found: Vec<FoundRows>) -> Result<Vec<RecordBatch>, TableError> {
        let asked = |found: FoundRows| found.rows.project(&self.asked.answered).map_err(arrow);
        joined(found.into_iter().map(asked).collect::<Result<_, _>>()?)
    }

    /// The end of the planned bands before `to` that take at most `bytes_max` bytes, packed or unpacked, but
    /// at least one band.
    pub(in super::super) fn bands_within(&self, to: usize, bytes_max: u64) -> usize {
        let mut bytes = 0_u64;
        let row_bytes = [false, true].map(|is_certain| self.row_bytes(is_certain));
        // Values that are all equal take no space until they are unpacked.
        let unpacked = |planned: &PlannedBand| {
            planned.decoded.saturating_mul(row_bytes[usize::from(planned.is_certain)])
        };
        let exact = |planned: &PlannedBand| {
            let packed = self.ranges(planned).map(|range| range.bytes()).fold(0, u64::saturating_add);
            packed.max(unpacked(planned))
        };
        // Includes columns that are not read, which avoids looking up the length of each column if there is
        // room for all.
        let at_most = |planned: &PlannedBand| match self.sources[planned.source].part.cubes() {
            Some(cubes) => cubes.band_bytes(planned.band).max(unpacked(planned)),
            None => exact(planned),
        };
        if self.planned[self.read..to].iter().map(at_most).fold(0, u64::saturating_add) <= bytes_max {
            return to;
        }
        let fits = |planned: &&PlannedBand| {
            bytes = bytes.saturating_add(exact(planned));
            bytes <= bytes_max
        };
        let count = self.planned[self.read..to].iter().take_while(fits).count().max(1);
        (self.read + count).min(to)
    }

    /// Bytes that the numbers of a row take in memory; other values are counted as stored.
    fn row_bytes(&self, is_certain: bool) -> u64 {
        let fields = self.table.schema.columns().fields();
        let bytes = |&place: &usize| number_bytes(fields[place].data_type());
        self.columns_if(is_certain).iter().map(bytes).sum()
    }

    /// The planned bands up to an index, with the ranges of their slices.
    fn to_fetch(&self, to: usize) -> Fetched<'_> {
        let mut fetched = Fetched::default();
        let mut columns = Columns::of(self, self.read);
        for planned in &self.planned[self.read..to] {
            if columns.source != planned.source {
                columns = Columns::of(self, planned.source);
            }
            fetched.begin(planned);
            columns.of_band(self, planned, |from, bytes| {
                fetched.add(&self.sources[planned.source], from, bytes)
            });
        }
        fetched
    }

    /// Fetches the bytes of the planned bands up to an index.
    async fn fetched(&self, to: usize, work: &mut Work) -> Result<Fetched<'_>, TableError> {
        let mut fetched = self.to_fetch(to);
        let (ranges, owners) = fetched.missing();
        let arrived = |range: usize, bytes: Buffer| {
            fetched.arrived(owners[range], bytes);
            Ok(())
        };
        self.table.fetch(&ranges, self.taken, work, arrived).await?;
        Ok(fetched)
    }

    /// Decodes bands with `threads` threads; each takes a series of consecutive bands at a time.
    fn decode_all(
        &self,
        fetched: &Fetched<'_>,
        beside: RowExtras,
        threads: usize,
    ) -> Result<Vec<FoundRows>, TableError> {
        // More shares than threads, so that a thread that starts late or gets costly bands does fewer.
        let count = if threads > 1 { threads * SHARES_EACH } else { 1 };
        let shares = shares(&fetched.bands, count as u64);
        let decoded = map(&shares, threads, |bands| Decoder::new(self, fetched, beside).run(bands));
        decoded.into_iter().try_fold(Vec::new(), |mut all, found| {
            all.extend(found?);
            Ok(all)
        })
    }
}

/// The columns to read of the bands of a source: of those that must be filtered, and of those that match.
struct Columns {
    source: usize,
    places: [Vec<usize>; 2],
}

impl Columns {
    fn of(reading: &Reading, source: usize) -> Self {
        let there = |is_certain: bool| {
            let Some(source) = reading.sources.get(source) else { return Vec::new() };
            let wanted = source.part.there(reading.columns_if(is_certain));
            match source.part.cubes() {
                None => wanted,
                Some(cubes) => cubes.columns_of(&wanted, source.with_origins()),
            }
        };
        Self { source, places: [there(false), there(true)] }
    }

    /// Reports the offset and length of each slice of a band.
    fn of_band(&self, reading: &Reading, planned: &PlannedBand, mut show: impl FnMut(u64, u64)) {
        let source = &reading.sources[planned.source];
        let columns = &self.places[usize::from(planned.is_certain)];
        let Some(cubes) = source.part.cubes() else {
            let slices = source.part.slices(planned.band, columns, source.with_origins());
            slices.into_iter().for_each(|(from, bytes)| show(from, bytes));
            return;
        };
        if let Some((from, bytes)) = cubes.whole(planned.band, columns) {
            return show(from, bytes);
        }
        let of_band: Vec<(u64, u64)> = cubes.columns_at(planned.band).collect();
        columns.iter().for_each(|&column| show(of_band[column].0, of_band[column].1));
    }
}

/// Joins consecutive batches of one schema, as far as they are small.
fn joined(all: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, TableError> {
    let (mut batches, mut small, mut rows, mut bytes) = (Vec::new(), Vec::new(), 0, 0_usize);
    for batch in all {
        let more = bytes_of(&batch);
        let is_full = rows >= BATCH_ROWS_MIN || bytes.saturating_add(more) > BATCH_BYTES_MAX;
        if is_full && !small.is_empty() {
            batches.push(together(&std::mem::take(&mut small))?);
            (rows, bytes) = (0, 0);
        }
        rows += batch.num_rows();
        bytes = bytes.saturating_add(more);
        small.push(batch);
    }
    if !small.is_empty() {
        batches.push(together(&small)?);
    }
    Ok(batches)
}

/// Bytes of the rows themselves, not of larger buffers that they are slices of.
fn bytes_of(rows: &RecordBatch) -> usize {
    let of_column = |column: &ArrayRef| {
        // If the size of the slice is unknown, take that of its buffers.
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
    };
    rows.columns().iter().map(of_column).fold(0, usize::saturating_add)
}

/// Joins batches of one schema; there must be at least one.
fn together(batches: &[RecordBatch]) -> Result<RecordBatch, TableError> {
    match batches {
        [batch] => Ok(batch.clone()),
        several => concat_batches(&several[0].schema(), several).map_err(arrow),
    }
}

/// Divides bands into at most `count` series of about equal decoding cost.
fn shares<'f, 'r>(bands: &'f [Located<'r>], count: u64) -> Vec<&'f [Located<'r>]> {
    let cost = |band: &Located<'_>| BAND_ROWS + band.planned.decoded;
    let each = bands.iter().map(cost).sum::<u64>().div_ceil(count);
    let (mut shares, mut from, mut done) = (Vec::new(), 0, 0);
    for (place, band) in bands.iter().enumerate() {
        done += cost(band);
        if done >= each || place + 1 == bands.len() {
            shares.push(&bands[from..=place]);
            (from, done) = (place + 1, 0);
        }
    }
    shares
}
