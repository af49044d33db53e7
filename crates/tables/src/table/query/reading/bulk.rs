//! Bulk: many bands decoded together, by several threads, into columns that grow.
//!
//! Rows of bands that answer altogether go straight to where they stay; the others are judged some thousands at a
//! time.
//!
//! Invariant: the rows are those that the bands would have one by one, in another order.

use super::super::found::{Found, Ordered, of_answer};
use super::super::portion::Planned;
use super::super::source::{Source, in_object};
use super::{Handed, Range, Reading, arrow, is_true};
use crate::block::{BlockError, Wanted, damaged};
use crate::cube::{CubeReader, Growing};
use crate::table::TableError;
use crate::threads::{map, threads};
use crate::{Salt, Weight, Window};
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use atoll_store::Buffer;
use std::sync::Arc;

/// Rows that are judged at a time: their columns fit a cache.
const JUDGED_ROWS: usize = 1 << 14;

/// Bands of which a thread looks up at a time where they lie.
const BANDS_EACH: usize = 1 << 10;

/// Rows of a batch that is handed over without an order, unless there are no more.
const BATCH_ROWS_MIN: usize = 1 << 14;

/// Bytes of bands that are read before they are decoded: what answers may be little of what has to be read.
pub(super) const BULK_BYTES: u64 = 256 << 20;

/// A planned band and the bytes of its slices, those next to each other in one piece.
struct Fetched<'r> {
    planned: &'r Planned,
    /// Offset and length of each slice.
    slices: Vec<(u64, u64)>,
    spans: Vec<Range>,
    bytes: Vec<Option<Buffer>>,
}

impl Reading {
    /// Reads the planned bands up to a place; answers their rows, in no order, with their weights if
    /// these are wanted.
    pub(in super::super) async fn read_bulk(
        &mut self,
        to: usize,
        with_weights: bool,
    ) -> Result<Vec<Found>, TableError> {
        let found = self.read_up_to(to, with_weights).await?;
        self.is_over = to == self.planned.len();
        self.handed_rows += found.iter().map(|found| found.rows.num_rows()).sum::<usize>();
        Ok(found)
    }

    /// Reads the planned bands up to a place; answers their rows, in the order of weights within each piece.
    pub(super) async fn read_rising(&mut self, to: usize) -> Result<Vec<Found>, TableError> {
        let from = self.read;
        let found = self.read_up_to(to, true).await?;
        let in_place = (from..).zip(found).map(|(place, found)| Found { place, ..found }.rising());
        in_place.collect()
    }

    async fn read_up_to(&mut self, to: usize, with_weights: bool) -> Result<Vec<Found>, TableError> {
        let mut fetched = self.to_fetch(to);
        let (mut ranges, mut owners) = (Vec::new(), Vec::new());
        for (place, band) in fetched.iter_mut().enumerate() {
            for (at, span) in band.spans.iter().enumerate() {
                band.bytes[at] = self.sources[band.planned.source].here(*span);
                if band.bytes[at].is_none() {
                    ranges.push(*span);
                    owners.push((place, at));
                }
            }
        }
        let mut work = self.work;
        let arrived = |range: usize, bytes: Buffer| {
            let (place, at) = owners[range];
            fetched[place].bytes[at] = Some(bytes);
            Ok(())
        };
        self.table.fetch(&ranges, &mut work, arrived).await?;
        let found = self.decode_all(&fetched, with_weights)?;
        work.bands += fetched.len() as u64;
        work.rows_touched += fetched.iter().map(|band| band.planned.decoded).sum::<u64>();
        (self.work, self.read) = (work, to);
        Ok(found)
    }

    /// Reads everything in the order of the objects, so many bytes at a time.
    async fn read_all(&mut self, with_weights: bool) -> Result<Vec<Found>, TableError> {
        self.forget_order();
        let mut found = Vec::new();
        while self.read < self.planned.len() {
            found.extend(
                self.read_bulk(self.bands_within(self.planned.len(), BULK_BYTES), with_weights).await?,
            );
        }
        Ok(found)
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

    /// The columns that are answered, of rows that were found: small pieces put together, large ones as they are.
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

    /// Up to which of the planned bands before `to` so many bytes are read, packed or unpacked; one band at least.
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
        // With columns that are not read: that spares looking up how long each is, where there is room for all.
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
        let bytes = |&place: &usize| match fields[place].data_type() {
            DataType::FixedSizeList(item, len) => {
                item.data_type().primitive_width().unwrap_or(0) * (*len as usize)
            }
            other => other.primitive_width().unwrap_or(0),
        };
        self.columns_if(is_certain).iter().map(bytes).sum::<usize>() as u64
    }

    /// The planned bands up to a place, and where their slices lie.
    fn to_fetch(&self, to: usize) -> Vec<Fetched<'_>> {
        let planned = &self.planned[self.read..to];
        let rows: u64 = planned.iter().map(|planned| planned.decoded).sum();
        let some: Vec<&[Planned]> = planned.chunks(BANDS_EACH).collect();
        let spans = map(&some, threads(rows as usize), |bands| {
            bands.iter().map(|planned| self.spans_of(planned)).collect::<Vec<_>>()
        });
        spans.into_iter().flatten().collect()
    }

    fn spans_of<'r>(&'r self, planned: &'r Planned) -> Fetched<'r> {
        let source = &self.sources[planned.source];
        let slices = source.part.slices(planned.band, self.columns_of(planned), source.with_origins());
        let mut spans: Vec<Range> = Vec::with_capacity(1);
        for &(from, bytes) in &slices {
            let to = from + bytes;
            match spans.last_mut() {
                Some(last) if last.to == from => last.to = to,
                _ => spans.push(Range { object: source.object, from, to }),
            }
        }
        let bytes = vec![None; spans.len()];
        Fetched { planned, slices, spans, bytes }
    }

    /// Decodes bands, each thread about as many rows that follow each other.
    fn decode_all(&self, fetched: &[Fetched<'_>], with_weights: bool) -> Result<Vec<Found>, TableError> {
        let rows: u64 = fetched.iter().map(|band| band.planned.decoded).sum();
        let threads = threads(rows as usize);
        let shares = shares(fetched, rows.div_ceil(threads as u64));
        let decoded = map(&shares, threads, |bands| Decoder::new(self, bands, with_weights).run(bands));
        decoded.into_iter().try_fold(Vec::new(), |mut all, found| {
            all.extend(found?);
            Ok(all)
        })
    }
}

/// Batches of one schema as one; there is one at least.
fn together(batches: &[RecordBatch]) -> Result<RecordBatch, TableError> {
    match batches {
        [batch] => Ok(batch.clone()),
        several => concat_batches(&several[0].schema(), several).map_err(arrow),
    }
}

/// Stretches of bands with about so many rows each.
fn shares<'f, 'r>(fetched: &'f [Fetched<'r>], rows_each: u64) -> Vec<&'f [Fetched<'r>]> {
    let (mut shares, mut from, mut rows) = (Vec::new(), 0, 0);
    for (place, band) in fetched.iter().enumerate() {
        rows += band.planned.decoded;
        if rows >= rows_each || place + 1 == fetched.len() {
            shares.push(&fetched[from..=place]);
            (from, rows) = (place + 1, 0);
        }
    }
    shares
}

impl Fetched<'_> {
    /// The bytes of the slices, each in a span that was read.
    fn slices(&self) -> Result<Vec<&[u8]>, BlockError> {
        let slice = |&(from, bytes): &(u64, u64)| {
            let at = self.spans.iter().position(|span| span.from <= from && from + bytes <= span.to)?;
            let start = (from - self.spans[at].from) as usize;
            self.bytes[at].as_ref()?.get(start..start + bytes as usize)
        };
        let missing = || damaged("a slice of a band was not read");
        self.slices.iter().map(|place| slice(place).ok_or_else(missing)).collect()
    }
}

/// Rows that grow until they are judged, or until the end.
struct Pile {
    /// Places of the columns in the table; those that are not answered come last.
    columns: Vec<usize>,
    grown: Vec<Growing>,
    rows: usize,
    /// The rows of each band, and the weights that are wanted of them.
    windows: Vec<(usize, Window)>,
}

impl Pile {
    fn new(reading: &Reading, columns: Vec<usize>, rows: usize) -> Self {
        let fields = reading.table.schema.columns().fields();
        let grown = columns.iter().map(|&place| Growing::new(fields[place].data_type(), rows)).collect();
        Self { columns, grown, rows: 0, windows: Vec::new() }
    }

    fn add(
        &mut self,
        cubes: &CubeReader,
        band: usize,
        wanted: Wanted<'_>,
        slices: &[((u64, u64), &[u8])],
    ) -> Result<(), BlockError> {
        let rows = cubes.append(band, wanted, slices, &mut self.grown)?;
        self.rows += rows;
        self.windows.push((rows, wanted.window));
        Ok(())
    }

    /// Takes out all rows, as a batch of the table's columns.
    fn take(&mut self, reading: &Reading) -> Result<RecordBatch, TableError> {
        let fields = reading.table.schema.columns().fields();
        let fields = self.columns.iter().map(|&place| Arc::clone(&fields[place])).collect::<Vec<_>>();
        let arrays = self.grown.iter_mut().map(Growing::finish).collect::<Result<Vec<_>, _>>();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        // Nulls where there must be none would be damage that no seal showed.
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays.map_err(of_answer)?, &options)
            .map_err(arrow)
    }
}

/// The decoding of some bands, by one thread.
struct Decoder<'d> {
    reading: &'d Reading,
    with_weights: bool,
    /// Rows that all answer.
    certain: Pile,
    /// Rows that all satisfy the filter, not all of them of weights that are wanted.
    clipped: Pile,
    /// Rows that have to be judged.
    doubtful: Pile,
    found: Vec<Found>,
}

impl<'d> Decoder<'d> {
    fn new(reading: &'d Reading, bands: &[Fetched<'_>], with_weights: bool) -> Self {
        let asked = &reading.asked;
        let needed = &asked.columns[..asked.needed];
        let with_key = |columns: &[usize]| {
            let key = reading.table.schema.sample_key().iter().filter(|place| !columns.contains(place));
            columns.iter().chain(key).copied().collect::<Vec<_>>()
        };
        let certain = if with_weights { with_key(needed) } else { needed.to_vec() };
        // Room for what will lie on each pile, and no more.
        let rows = |is_of: fn(&Planned) -> bool| -> usize {
            let planned = bands.iter().map(|band| band.planned).filter(|planned| is_of(planned));
            planned.map(|planned| planned.decoded as usize).sum()
        };
        let whole = rows(|planned| planned.is_certain && planned.is_whole);
        let clipped = rows(|planned| planned.is_certain && !planned.is_whole).min(JUDGED_ROWS);
        let doubtful = rows(|planned| !planned.is_certain).min(JUDGED_ROWS);
        Self {
            reading,
            with_weights,
            certain: Pile::new(reading, certain, whole),
            clipped: Pile::new(reading, with_key(needed), clipped),
            doubtful: Pile::new(reading, with_key(&asked.columns), doubtful),
            found: Vec::new(),
        }
    }

    fn run(mut self, bands: &[Fetched<'_>]) -> Result<Vec<Found>, TableError> {
        for band in bands {
            let source = &self.reading.sources[band.planned.source];
            let cubes = source.part.cubes().filter(|_| source.struck.is_empty());
            match cubes {
                Some(cubes) => {
                    self.pile(band, cubes).map_err(|error| in_object(source.object, error))?;
                }
                None => self.decode_alone(band, source)?,
            }
            self.judge(JUDGED_ROWS)?;
        }
        self.judge(1)?;
        if self.certain.rows > 0 {
            let rows = self.certain.take(self.reading)?;
            let weights = if self.with_weights { weights(self.reading, &rows)? } else { Vec::new() };
            self.keep(rows, weights)?;
        }
        Ok(self.found)
    }

    /// Decodes a band onto one of the piles.
    fn pile(&mut self, band: &Fetched<'_>, cubes: &CubeReader) -> Result<(), BlockError> {
        let planned = band.planned;
        let columns = self.reading.columns_of(planned);
        let slices: Vec<_> = band.slices.iter().copied().zip(band.slices()?).collect();
        let pile = match (planned.is_certain, planned.is_whole) {
            (true, true) => &mut self.certain,
            (true, false) => &mut self.clipped,
            (false, _) => &mut self.doubtful,
        };
        pile.add(
            cubes,
            planned.band,
            Wanted { window: planned.window(), columns, rows: planned.rows },
            &slices,
        )
    }

    /// Decodes a band as if there were no other.
    fn decode_alone(&mut self, band: &Fetched<'_>, source: &Source) -> Result<(), TableError> {
        let slices = band.slices().map_err(|error| in_object(source.object, error))?;
        self.found.extend(self.reading.decode(band.planned, &slices)?);
        Ok(())
    }

    /// Judges what was piled up, if it is so many rows.
    fn judge(&mut self, rows_min: usize) -> Result<(), TableError> {
        if self.clipped.rows >= rows_min {
            let rows = self.clipped.take(self.reading)?;
            let windows = std::mem::take(&mut self.clipped.windows);
            self.keep_some(rows, &windows, None)?;
        }
        if self.doubtful.rows >= rows_min {
            let rows = self.doubtful.take(self.reading)?;
            let windows = std::mem::take(&mut self.doubtful.windows);
            let kept = self.reading.asked.filter.as_ref().map(|filter| filter.evaluate(&rows)).transpose()?;
            self.keep_some(rows, &windows, kept.as_ref().map(is_true))?;
        }
        Ok(())
    }

    /// Keeps the rows that satisfy the filter and have weights that are wanted.
    fn keep_some(
        &mut self,
        rows: RecordBatch,
        windows: &[(usize, Window)],
        satisfied: Option<BooleanBuffer>,
    ) -> Result<(), TableError> {
        let weights = weights(self.reading, &rows)?;
        let mut kept = BooleanBufferBuilder::new(rows.num_rows());
        let mut from = 0;
        for (count, window) in windows {
            let of_band = &weights[from..from + count];
            of_band.iter().for_each(|weight| kept.append(window.takes(*weight)));
            from += count;
        }
        let kept = kept.finish();
        let kept = satisfied.map_or(kept.clone(), |satisfied| &kept & &satisfied);
        let weights = kept.set_indices().map(|row| weights[row]).collect();
        let needed = rows.project(&(0..self.reading.asked.needed).collect::<Vec<_>>()).map_err(arrow)?;
        self.keep(filter_record_batch(&needed, &BooleanArray::new(kept, None)).map_err(arrow)?, weights)
    }

    fn keep(&mut self, rows: RecordBatch, weights: Vec<Weight>) -> Result<(), TableError> {
        let needed = (0..self.reading.asked.needed).collect::<Vec<_>>();
        if rows.num_rows() > 0 {
            let rows = rows.project(&needed).map_err(arrow)?;
            self.found.push(Found { place: self.found.len(), rows, weights });
        }
        Ok(())
    }
}

/// The weights of rows that have the columns of the sample key.
fn weights(reading: &Reading, rows: &RecordBatch) -> Result<Vec<Weight>, TableError> {
    let schema = &reading.table.schema;
    let column = |&place: &usize| {
        let name = schema.columns().field(place).name();
        rows.column_by_name(name).cloned().ok_or_else(|| of_answer(damaged("a key was not read")))
    };
    let key = schema.sample_key().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    crate::weight::weights(&key, Salt(schema.salt())).map_err(|error| of_answer(error.into()))
}
