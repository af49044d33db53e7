//! Decodes many bands on one thread.
//!
//! If a band extends beyond the wanted weights, its marks tell for most rows whether they are wanted, and
//! only the rows between two marks are weighed. Bands that must be filtered are filtered some thousand rows
//! at a time, by the columns of the filter alone. So all other columns are decoded to where they stay, and no
//! row of them is decoded in vain.
//!
//! Invariant: the rows are those that the bands would yield one by one: in the same order if only weights are
//! requested, and otherwise with the places where they are stored.

use super::super::super::found_rows::{FoundRows, of_answer, place_of};
use super::super::super::source::{Source, in_object};
use super::super::{Reading, arrow, is_true};
use super::fetched::{Fetched, Located};
use crate::block::{BlockError, damaged};
use crate::cube::{CubeReader, Growing};
use crate::table::TableError;
use crate::{Salt, Weight};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::Schema;
use std::ops::Range;
use std::sync::Arc;

/// Number of rows that are filtered at a time; their columns fit in a cache.
const JUDGED_ROWS: usize = 1 << 14;

/// How many bands ahead memory is prefetched: decoding a band takes longer than a memory access.
const BANDS_AHEAD: usize = 1;

/// What is wanted of rows in addition to their columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowExtras {
    Nothing,
    /// Their weights; the rows are in the order of the bands.
    Weights,
    /// Their weights and places, since rows of a band that is decoded alone may come before others.
    WeightsAndPlaces,
}

/// Decoded rows that accumulate until they are filtered, or until the end.
struct Pile {
    /// Indices of the columns in the table.
    columns: Vec<usize>,
    grown: Vec<Growing>,
    rows: usize,
    /// Where each row is stored, if requested.
    lies_at: Vec<u64>,
}

impl Pile {
    fn new(reading: &Reading, columns: Vec<usize>, rows: usize) -> Self {
        let fields = reading.table.schema.columns().fields();
        let grown = columns.iter().map(|&place| Growing::new(fields[place].data_type(), rows)).collect();
        Self { columns, grown, rows: 0, lies_at: Vec::new() }
    }

    /// Turns the rows into a batch of the table's columns.
    fn take(mut self, reading: &Reading) -> Result<RecordBatch, TableError> {
        let fields = reading.table.schema.columns().fields();
        let fields = self.columns.iter().map(|&place| Arc::clone(&fields[place])).collect::<Vec<_>>();
        let arrays = self.grown.iter_mut().map(Growing::finish).collect::<Result<Vec<_>, _>>();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        // Nulls in a column without nulls are damage that no seal detects.
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays.map_err(of_answer)?, &options)
            .map_err(arrow)
    }
}

/// The rows of a band that have wanted weights, or may have them.
#[derive(Clone, Debug)]
struct Rows {
    /// All that may.
    decoded: Range<usize>,
    /// The subset known to have them without computing weights.
    certain: Range<usize>,
}

impl Rows {
    /// The rows that have to be weighed.
    fn doubtful(&self) -> [Range<usize>; 2] {
        [self.decoded.start..self.certain.start, self.certain.end..self.decoded.end]
    }
}

/// Decodes some bands on one thread.
pub(super) struct Decoder<'d> {
    reading: &'d Reading,
    fetched: &'d Fetched<'d>,
    beside: RowExtras,
    /// The ranges of the columns of the current band.
    columns: Vec<(u64, u64)>,
    found: Vec<FoundRows>,
}

impl<'d> Decoder<'d> {
    pub(super) fn new(reading: &'d Reading, fetched: &'d Fetched<'d>, beside: RowExtras) -> Self {
        Self { reading, fetched, beside, columns: Vec::new(), found: Vec::new() }
    }

    pub(super) fn run(mut self, bands: &[Located<'_>]) -> Result<Vec<FoundRows>, TableError> {
        let (reading, has_order) = (self.reading, self.beside == RowExtras::Weights);
        let is_bulk = |band: &Located<'_>| in_bulk(&reading.sources[band.planned.source]).is_some();
        // Bands that are decoded alone would otherwise come before those that are decoded together.
        let goes_on = |one: &Located<'_>, next: &Located<'_>| !has_order || is_bulk(one) == is_bulk(next);
        for bands in bands.chunk_by(goes_on) {
            self.take(bands)?;
        }
        Ok(self.found)
    }

    /// Decodes some bands into one part; bands that are decoded alone become a part each.
    fn take(&mut self, bands: &[Located<'_>]) -> Result<(), TableError> {
        let rows = self.rows_of(bands)?;
        let asked = &self.reading.asked;
        let needed = asked.columns[..asked.needed].to_vec();
        let has_weights = self.beside != RowExtras::Nothing;
        let needed = if has_weights { self.with_key(needed) } else { needed };
        // Capacity for all rows that may stay, and no more.
        let mut staying = Pile::new(self.reading, needed, rows.iter().map(ExactSizeIterator::len).sum());
        let mut from = 0;
        while from < bands.len() {
            let mut doubtful = 0;
            let count = bands[from..].iter().zip(&rows[from..]).take_while(|(band, rows)| {
                let has_room = doubtful < JUDGED_ROWS;
                doubtful += if band.planned.is_certain { 0 } else { rows.len() };
                has_room
            });
            let some = from..from + count.count();
            self.decode(&bands[some.clone()], &rows[some.clone()], &mut staying)?;
            from = some.end;
        }
        if staying.rows > 0 {
            let lies_at = std::mem::take(&mut staying.lies_at);
            let rows = staying.take(self.reading)?;
            let weights = if has_weights { weights(self.reading, &rows)? } else { Vec::new() };
            let needed = (0..asked.needed).collect::<Vec<_>>();
            let rows = rows.project(&needed).map_err(arrow)?;
            self.found.push(FoundRows { rows, weights, lies_at });
        }
        Ok(())
    }

    /// Decodes bands, of which those that must be filtered are few enough to be filtered at once.
    fn decode(
        &mut self,
        bands: &[Located<'_>],
        rows: &[Range<usize>],
        staying: &mut Pile,
    ) -> Result<(), TableError> {
        let judged = self.judged(bands, rows)?;
        let mut at = 0;
        for (place, (band, rows)) in bands.iter().zip(rows).enumerate() {
            if let Some(next) = bands.get(place + BANDS_AHEAD) {
                self.bring_nearer(next);
            }
            let source = &self.reading.sources[band.planned.source];
            let Some(cubes) = in_bulk(source) else {
                self.decode_alone(band, source)?;
                continue;
            };
            let kept = match &judged {
                Some(judged) if !band.planned.is_certain => {
                    at += rows.len();
                    Some(judged.slice(at - rows.len(), rows.len()))
                }
                _ => None,
            };
            let kept_rows = kept.as_ref().map_or(rows.len(), BooleanBuffer::count_set_bits);
            if kept_rows == 0 {
                continue;
            }
            let kept = kept.filter(|_| kept_rows < rows.len());
            self.append(band, cubes, rows.clone(), kept.as_ref(), staying)
                .map_err(|error| in_object(source.object, error))?;
            staying.lies_at.extend(self.places(band, source, kept_rows));
        }
        Ok(())
    }

    /// Which rows of the bands that must be filtered satisfy the filter.
    fn judged(
        &mut self,
        bands: &[Located<'_>],
        rows: &[Range<usize>],
    ) -> Result<Option<BooleanBuffer>, TableError> {
        let Some(filter) = &self.reading.asked.filter else { return Ok(None) };
        let schema = &self.reading.table.schema;
        let place = |name: &String| schema.columns().column_with_name(name).map(|(place, _)| place);
        let columns: Vec<usize> = filter.columns().iter().filter_map(place).collect();
        let pairs = || bands.iter().zip(rows).filter(|(band, _)| !band.planned.is_certain);
        let mut pile = Pile::new(self.reading, columns, pairs().map(|(_, rows)| rows.len()).sum());
        for (band, rows) in pairs() {
            let source = &self.reading.sources[band.planned.source];
            if let Some(cubes) = in_bulk(source) {
                self.append(band, cubes, rows.clone(), None, &mut pile)
                    .map_err(|error| in_object(source.object, error))?;
            }
        }
        if pile.rows == 0 {
            return Ok(None);
        }
        let rows = pile.take(self.reading)?;
        Ok(Some(is_true(&filter.evaluate(&rows)?)))
    }

    /// Which rows of each band have wanted weights; an empty range for bands that are decoded alone.
    fn rows_of(&mut self, bands: &[Located<'_>]) -> Result<Vec<Range<usize>>, TableError> {
        let mut keys = Pile::new(self.reading, self.with_key(Vec::new()), 0);
        let mut known = Vec::with_capacity(bands.len());
        for band in bands {
            let source = &self.reading.sources[band.planned.source];
            let Some(cubes) = in_bulk(source) else {
                known.push(Rows { decoded: 0..0, certain: 0..0 });
                continue;
            };
            let rows = rows_by_marks(band, cubes);
            for doubtful in rows.doubtful().into_iter().filter(|rows| !rows.is_empty()) {
                self.append(band, cubes, doubtful, None, &mut keys)
                    .map_err(|error| in_object(source.object, error))?;
            }
            known.push(rows);
        }
        let weights =
            if keys.rows == 0 { Vec::new() } else { weights(self.reading, &keys.take(self.reading)?)? };
        let mut weights = weights.as_slice();
        let mut exact = Vec::with_capacity(bands.len());
        for (band, rows) in bands.iter().zip(known) {
            let [before, after] = rows.doubtful().map(|rows| {
                let (of_rows, others) = weights.split_at(rows.len());
                weights = others;
                of_rows
            });
            if !before.is_sorted() || !after.is_sorted() {
                let object = self.reading.sources[band.planned.source].object;
                return Err(in_object(
                    object,
                    damaged("rows of a band are not in the order of their weights"),
                ));
            }
            exact.push(exact_rows(band, &rows, before, after));
        }
        Ok(exact)
    }

    /// The columns, followed by the missing columns of the sample key.
    fn with_key(&self, mut columns: Vec<usize>) -> Vec<usize> {
        let key = self.reading.table.schema.sample_key().iter();
        let missing: Vec<usize> = key.filter(|place| !columns.contains(place)).copied().collect();
        columns.extend(missing);
        columns
    }

    /// Decodes rows of a band onto a pile, either all or the kept ones.
    fn append(
        &mut self,
        band: &Located<'_>,
        cubes: &CubeReader,
        rows: Range<usize>,
        kept: Option<&BooleanBuffer>,
        pile: &mut Pile,
    ) -> Result<(), BlockError> {
        let count = kept.map_or(rows.len(), BooleanBuffer::count_set_bits);
        self.columns.clear();
        self.columns.extend(cubes.columns_at(band.planned.band));
        for (column, grown) in pile.columns.iter().zip(&mut pile.grown) {
            if *column >= cubes.column_count() {
                grown.append_nulls(count)?;
                continue;
            }
            let at = self.columns[*column];
            let bytes = self.fetched.slice(band, at).ok_or_else(not_read)?;
            cubes.append(band.planned.band, rows.clone(), kept, (at.0, bytes), grown)?;
        }
        pile.rows += count;
        Ok(())
    }

    /// Prefetches the bytes of a band that will be decoded soon.
    fn bring_nearer(&self, band: &Located<'_>) {
        if let Some(cubes) = in_bulk(&self.reading.sources[band.planned.source]) {
            self.fetched.bring_nearer(band, cubes.all_at(band.planned.band));
        }
    }

    /// Decodes a single band.
    fn decode_alone(&mut self, band: &Located<'_>, source: &Source) -> Result<(), TableError> {
        let planned = band.planned;
        let places =
            source.part.slices(planned.band, self.reading.columns_of(planned), source.with_origins());
        let slices: Result<Vec<&[u8]>, _> =
            places.into_iter().map(|place| self.fetched.slice(band, place).ok_or_else(not_read)).collect();
        let slices = slices.map_err(|error| in_object(source.object, error))?;
        if let Some(found) = self.reading.decode(planned, &slices)? {
            let lies_at = self.places(band, source, found.rows.num_rows()).collect();
            self.found.push(FoundRows { lies_at, ..found });
        }
        Ok(())
    }

    /// The place of each of `rows` rows of a band, if requested.
    fn places(&self, band: &Located<'_>, source: &Source, rows: usize) -> std::iter::RepeatN<u64> {
        let is_wanted = self.beside == RowExtras::WeightsAndPlaces;
        std::iter::repeat_n(place_of(source.place, band.planned.band), if is_wanted { rows } else { 0 })
    }
}

/// The cubes of a source whose bands are decoded together, because none of its rows is struck.
fn in_bulk(source: &Source) -> Option<&CubeReader> {
    source.part.cubes().filter(|_| source.struck.is_empty())
}

/// Which rows of a band have wanted weights, as far as its directory tells.
fn rows_by_marks(band: &Located<'_>, cubes: &CubeReader) -> Rows {
    let (decoded, certain) = cubes.rows_in(band.planned.band, band.planned.window());
    let (from, to) = band.planned.rows.map_or((0, decoded.end), |(from, to)| (from as usize, to as usize));
    let from = decoded.start.max(from);
    let to = decoded.end.min(to).max(from);
    let start = certain.start.clamp(from, to);
    let certain = start..certain.end.clamp(start, to);
    Rows { decoded: from..to, certain: if certain.is_empty() { from..from } else { certain } }
}

/// Which rows of a band have wanted weights, given the weights of those that had to be weighed.
fn exact_rows(band: &Located<'_>, rows: &Rows, before: &[Weight], after: &[Weight]) -> Range<usize> {
    let window = band.planned.window();
    if rows.certain.is_empty() {
        // All of them were weighed.
        let found = window.slice(after);
        return rows.decoded.start + found.start..rows.decoded.start + found.end.max(found.start);
    }
    let from = rows.decoded.start + window.after().prefix(before);
    from..rows.certain.end + window.until().prefix(after)
}

fn not_read() -> BlockError {
    damaged("a slice of a band was not read")
}

/// Computes the weights of rows that include the columns of the sample key.
fn weights(reading: &Reading, rows: &RecordBatch) -> Result<Vec<Weight>, TableError> {
    let schema = &reading.table.schema;
    let column = |&place: &usize| {
        let name = schema.columns().field(place).name();
        rows.column_by_name(name).cloned().ok_or_else(|| of_answer(damaged("a key was not read")))
    };
    let key = schema.sample_key().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    crate::weight::weights(&key, Salt(schema.salt())).map_err(|error| of_answer(error.into()))
}
