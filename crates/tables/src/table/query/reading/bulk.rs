//! Bulk: many bands decoded together, by several threads, into columns that grow.
//!
//! Rows of bands that answer altogether go straight to where they stay; the others are judged some thousands
//! at a time.
//!
//! Invariant: the rows are those that the bands would have one by one; with weights alone also in that order,
//! else with the places where they lie.

mod decoder;
mod fetched;
#[cfg(test)]
mod tests;

use super::super::Work;
use super::super::found::{Found, Ordered, place_of};
use super::super::portion::Planned;
use super::{Handed, Reading, arrow};
use crate::schema::number_bytes;
use crate::table::TableError;
use crate::threads::{map, threads};
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use atoll_store::Buffer;
use decoder::{Beside, Decoder};
use fetched::{Fetched, Located};
use std::sync::Arc;

/// Rows of a batch that is handed over without an order, unless there are no more.
const BATCH_ROWS_MIN: usize = 1 << 14;

/// Shares of a thread.
const SHARES_EACH: usize = 3;

/// What a band costs beside its rows, in rows.
const BAND_ROWS: u64 = 40;

/// Bytes of bands that are read before they are decoded: what answers may be little of what has to be read.
pub(super) const BULK_BYTES: u64 = 256 << 20;

impl Reading {
    /// Reads the planned bands up to a place; answers their rows, in no order, with their weights if
    /// these are wanted.
    pub(in super::super) async fn read_bulk(
        &mut self,
        to: usize,
        with_weights: bool,
    ) -> Result<Vec<Found>, TableError> {
        let beside = if with_weights { Beside::Weights } else { Beside::Nothing };
        let found = self.read_up_to(to, beside).await?;
        self.is_over = to == self.planned.len();
        self.handed_rows += found.iter().map(|found| found.rows.num_rows()).sum::<usize>();
        Ok(found)
    }

    /// Reads some of what is left, about so many bytes of it or one band, and plans more of it where all that
    /// was planned was read; answers its rows, in no order, which may be none.
    pub(in super::super) async fn read_some(&mut self, bytes: u64) -> Result<Vec<Found>, TableError> {
        if self.read == self.planned.len() {
            self.plan_portion().await?;
        }
        let found = self.read_bulk(self.bands_within(self.planned.len(), bytes), false).await?;
        self.is_over = self.is_exhausted();
        Ok(found)
    }

    /// Reads the planned bands up to a place; answers their rows, in the order of weights within each part,
    /// with the places where they lie.
    pub(super) async fn read_rising(&mut self, to: usize) -> Result<Vec<Found>, TableError> {
        let found = self.read_up_to(to, Beside::WeightsAndPlaces).await?;
        found.into_iter().map(Found::rising).collect()
    }

    async fn read_up_to(&mut self, to: usize, beside: Beside) -> Result<Vec<Found>, TableError> {
        let mut work = self.work;
        let fetched = self.fetched(to, &mut work).await?;
        let found = self.decode_all(&fetched, beside, threads(fetched.rows() as usize))?;
        work.bands += fetched.bands.len() as u64;
        work.rows_touched += fetched.rows();
        (self.work, self.read) = (work, to);
        Ok(found)
    }

    /// Reads everything in the order of the places where it lies, so many bytes at a time.
    async fn read_all(&mut self, with_weights: bool) -> Result<Vec<Found>, TableError> {
        self.plan_by_place();
        let mut found = Vec::new();
        while self.read < self.planned.len() {
            found.extend(
                self.read_bulk(self.bands_within(self.planned.len(), BULK_BYTES), with_weights).await?,
            );
        }
        Ok(found)
    }

    /// Puts the planned bands in the order of the places where they lie.
    fn plan_by_place(&mut self) {
        let Self { sources, planned, .. } = self;
        planned.sort_by_key(|planned| place_of(sources[planned.source].place, planned.band));
    }

    /// Reads everything, and hands it over in the order of (weight, id).
    pub(in super::super) async fn read_whole(&mut self) -> Result<Handed, TableError> {
        let found = self.read_all(true).await?;
        let ordered = Ordered::by_weight(found, &self.schema, &self.asked.id(&self.table.schema))?;
        let rows = ordered.batch(0..ordered.rows(), &self.schema, &self.asked.answered)?;
        Ok(Handed { rows, weights: ordered.weights, cut: self.asked.window.until() })
    }

    /// Reads everything, in whatever order it lies; a batch at least.
    pub(in super::super) async fn scan(&mut self) -> Result<Vec<RecordBatch>, TableError> {
        let found = self.read_all(false).await?;
        let batches = self.answered(found)?;
        if batches.is_empty() {
            let schema = self.schema.project(&self.asked.answered).map_err(arrow)?;
            return Ok(vec![RecordBatch::new_empty(Arc::new(schema))]);
        }
        Ok(batches)
    }

    /// The columns that are answered, of rows that were found: small pieces put together, large ones as they
    /// are.
    pub(in super::super) fn answered(&self, found: Vec<Found>) -> Result<Vec<RecordBatch>, TableError> {
        let (mut batches, mut small, mut rows) = (Vec::new(), Vec::new(), 0);
        for found in found {
            let batch = found.rows.project(&self.asked.answered).map_err(arrow)?;
            rows += batch.num_rows();
            small.push(batch);
            if rows >= BATCH_ROWS_MIN {
                batches.push(together(&std::mem::take(&mut small))?);
                rows = 0;
            }
        }
        if !small.is_empty() {
            batches.push(together(&small)?);
        }
        Ok(batches)
    }

    /// Up to which of the planned bands before `to` so many bytes are read, packed or unpacked; one band at
    /// least.
    pub(in super::super) fn bands_within(&self, to: usize, bytes_max: u64) -> usize {
        let mut bytes = 0_u64;
        let row_bytes = [false, true].map(|is_certain| self.row_bytes(is_certain));
        // Numbers that are all alike take no room before they are unpacked.
        let unpacked =
            |planned: &Planned| planned.decoded.saturating_mul(row_bytes[usize::from(planned.is_certain)]);
        let exact = |planned: &Planned| {
            let packed = self.ranges(planned).map(|range| range.bytes()).fold(0, u64::saturating_add);
            packed.max(unpacked(planned))
        };
        // With columns that are not read: that spares looking up how long each is, where there is room for
        // all.
        let at_most = |planned: &Planned| match self.sources[planned.source].part.cubes() {
            Some(cubes) => cubes.band_bytes(planned.band).max(unpacked(planned)),
            None => exact(planned),
        };
        if self.planned[self.read..to].iter().map(at_most).fold(0, u64::saturating_add) <= bytes_max {
            return to;
        }
        let fits = |planned: &&Planned| {
            bytes = bytes.saturating_add(exact(planned));
            bytes <= bytes_max
        };
        let count = self.planned[self.read..to].iter().take_while(fits).count().max(1);
        (self.read + count).min(to)
    }

    /// Bytes that the numbers of a row of a band take in memory; all else is stored as it is.
    fn row_bytes(&self, is_certain: bool) -> u64 {
        let fields = self.table.schema.columns().fields();
        let bytes = |&place: &usize| number_bytes(fields[place].data_type());
        self.columns_if(is_certain).iter().map(bytes).sum()
    }

    /// The planned bands up to a place, and where their slices lie.
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

    /// The bytes of the planned bands up to a place.
    async fn fetched(&self, to: usize, work: &mut Work) -> Result<Fetched<'_>, TableError> {
        let mut fetched = self.to_fetch(to);
        let (ranges, owners) = fetched.missing();
        let arrived = |range: usize, bytes: Buffer| {
            fetched.arrived(owners[range], bytes);
            Ok(())
        };
        self.table.fetch(&ranges, work, arrived).await?;
        Ok(fetched)
    }

    /// Decodes bands by so many threads, each time some that follow each other.
    fn decode_all(
        &self,
        fetched: &Fetched<'_>,
        beside: Beside,
        threads: usize,
    ) -> Result<Vec<Found>, TableError> {
        // More shares than threads, so that one that comes late, or gets the dearer ones, does fewer.
        let count = if threads > 1 { threads * SHARES_EACH } else { 1 };
        let shares = shares(&fetched.bands, count as u64);
        let decoded = map(&shares, threads, |bands| Decoder::new(self, fetched, beside).run(bands));
        decoded.into_iter().try_fold(Vec::new(), |mut all, found| {
            all.extend(found?);
            Ok(all)
        })
    }
}

/// Which columns are read of the bands of a source: of those that are doubtful, and of those that are
/// certain.
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

    /// Shows where the slices of a band lie: offset and length.
    fn of_band(&self, reading: &Reading, planned: &Planned, mut show: impl FnMut(u64, u64)) {
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

/// Batches of one schema as one; there is one at least.
fn together(batches: &[RecordBatch]) -> Result<RecordBatch, TableError> {
    match batches {
        [batch] => Ok(batch.clone()),
        several => concat_batches(&several[0].schema(), several).map_err(arrow),
    }
}

/// So many parts of bands that follow each other, about as dear to decode, or fewer.
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
