//! Input: reads the rows of some pieces into one batch and weighs them.
//!
//! Invariant: every row of the pieces is in the input once, except struck ones, which are counted.

use super::super::codec::damaged;
use super::super::strike::{Strike, bound};
use super::super::{Table, TableError};
use super::pace::Pace;
use super::plan::Group;
use crate::TableSchema;
use crate::block::{BlockError, HEAD_BYTES, Wanted};
use crate::cube::{Growing, GrowingOrigins, Origins};
use crate::part::Part;
use crate::protocol::{Manifest, Placed, Struck, WeightRange};
use crate::room::Lent;
use crate::weight::{Cut, Salt, Weight, Window, weights_of_rows};
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter_record_batch;
use atoll_store::{Buffer, Read};
use futures::StreamExt;
use std::ops::Range;
use std::sync::Arc;

/// Number of objects that are read together.
const OBJECTS_AT_ONCE: usize = 32;

/// The rows to pack, in no particular order.
pub(super) struct Input {
    pub(super) rows: RecordBatch,
    pub(super) weights: Lent<Weight>,
    pub(super) origins: Origins,
    /// Number of struck rows.
    pub(super) dropped: u64,
    /// Number of bytes read.
    pub(super) bytes: u64,
}

/// Rows collected from one piece after another.
struct Gathered<'t> {
    table: &'t Table,
    /// The columns of the table.
    columns: Vec<Growing>,
    origins: GrowingOrigins,
    /// Ranges of rows whose steps are given by a column, with that column.
    steps_of: Vec<(Range<usize>, usize)>,
    /// Ends of stretches of rows that were stored in weight order, with the window of their weights.
    sorted: Vec<(usize, Window)>,
    rows: usize,
    dropped: u64,
    bytes: u64,
}

impl Input {
    pub(super) async fn read(
        table: &Table,
        manifest: &Manifest,
        group: &Group,
        threads: usize,
        pace: &mut Pace<'_>,
    ) -> Result<Self, TableError> {
        let mut gathered = Gathered::new(table, group.rows());
        for pieces in group.pieces.chunks(OBJECTS_AT_ONCE) {
            for (placed, bytes) in pieces.iter().zip(read_objects(table, pieces).await?) {
                let struck = manifest.struck_of(placed);
                gathered.take(placed, struck, &bytes)?;
                pace.moved(bytes.len());
                match pace.rest().await {
                    // Nothing has been written under the ended session yet; the first write begins another
                    // one.
                    Ok(()) | Err(TableError::Fenced { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        gathered.finish(threads).map_err(super::in_new_cubes)
    }
}

/// Reads whole objects together; returns them in order.
async fn read_objects(table: &Table, pieces: &[Placed]) -> Result<Vec<Buffer>, TableError> {
    let object = |placed: &Placed| table.names.object(placed.piece.object);
    let reads = pieces.iter().map(|placed| Read { immutable: true, ..Read::new(object(placed), b"") });
    let mut answers = table.store.get_many(reads.collect());
    let mut read: Vec<Option<Buffer>> = vec![None; pieces.len()];
    while let Some((place, answer)) = answers.next().await {
        read[place] = answer?;
    }
    let missing =
        |placed: &Placed| TableError::ObjectGone { table: table.name.clone(), object: placed.piece.object };
    let pairs = read.into_iter().zip(pieces);
    pairs.map(|(bytes, placed)| bytes.ok_or_else(|| missing(placed))).collect()
}

impl<'t> Gathered<'t> {
    fn new(table: &'t Table, rows: u64) -> Self {
        let fields = table.schema.columns().fields().iter();
        let rows = usize::try_from(rows).unwrap_or(0);
        Self {
            table,
            columns: fields.map(|field| Growing::new(field.data_type(), rows)).collect(),
            origins: GrowingOrigins::with_room(rows),
            steps_of: Vec::new(),
            sorted: Vec::new(),
            rows: 0,
            dropped: 0,
            bytes: 0,
        }
    }

    /// Appends the rows of one piece.
    fn take(&mut self, placed: &Placed, struck: Vec<Struck>, bytes: &[u8]) -> Result<(), TableError> {
        let in_object =
            |source| TableError::Block { object: format!("object {}", placed.piece.object), source };
        let part = open(self.table, bytes).map_err(in_object)?;
        let is_whole = part.row_count() == placed.piece.rows
            && part.column_count() == self.columns.len()
            && struck.is_empty();
        if is_whole {
            self.take_whole(placed, &part, bytes).map_err(in_object)?;
        } else {
            self.take_some(placed, &part, struck, bytes)?;
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends all rows of a part, decoding them in place.
    fn take_whole(&mut self, placed: &Placed, part: &Part, bytes: &[u8]) -> Result<(), BlockError> {
        let window = window_of(placed.piece.weights);
        let first = self.rows;
        match part {
            Part::Block(block) => {
                for band in &block.directory().bands {
                    for (column, grown) in self.columns.iter_mut().enumerate() {
                        block.append(band, column, bytes, grown)?;
                    }
                    self.rows += band.rows as usize;
                    self.sorted.push((self.rows, window));
                }
                // A block has one run and step.
                let extent = &placed.piece.extent;
                let run = extent.run.as_ref().ok_or_else(no_run)?;
                self.origins.append_alike(run, extent.steps.from, self.rows - first);
            }
            Part::Cubes(cubes) => {
                for band in 0..cubes.band_count() {
                    let rows = cubes.append_all(band, bytes, &mut self.columns, &mut self.origins)?;
                    self.rows += rows;
                    self.sorted.push((self.rows, window));
                }
                if let Some(column) = cubes.directory().step_column {
                    self.steps_of.push((first..self.rows, column));
                }
            }
        }
        Ok(())
    }

    /// Appends the rows of a part that belong to the piece and are not struck.
    fn take_some(
        &mut self,
        placed: &Placed,
        part: &Part,
        struck: Vec<Struck>,
        bytes: &[u8],
    ) -> Result<(), TableError> {
        let in_object =
            |source| TableError::Block { object: format!("object {}", placed.piece.object), source };
        let strike = |struck: Struck| Strike::of(struck, |text| bound(self.table, text));
        let strikes = struck.into_iter().map(strike).collect::<Result<Vec<_>, _>>()?;
        let bands = bands(self.table, placed, part, bytes).map_err(in_object)?;
        let found: u64 = bands.iter().map(|band| band.rows.num_rows() as u64).sum();
        if found != placed.piece.rows {
            let problem =
                format!("object {} has {found} rows, not {}", placed.piece.object, placed.piece.rows);
            return Err(damaged(&self.table.name, &problem));
        }
        for band in bands {
            self.take_band(band, &strikes, window_of(placed.piece.weights))?;
        }
        Ok(())
    }

    fn take_band(&mut self, band: Band, strikes: &[Strike], window: Window) -> Result<(), TableError> {
        let mut kept = BooleanBuffer::new_set(band.rows.num_rows());
        for strike in strikes {
            kept = &kept & &!&strike.strikes(&band.rows, Some(&band.origins))?;
        }
        self.dropped += (band.rows.num_rows() - kept.count_set_bits()) as u64;
        let places: Vec<u32> = kept.set_indices().map(|row| row as u32).collect();
        self.origins.append(&band.origins.taken(&places));
        self.rows += places.len();
        self.sorted.push((self.rows, window));
        let rows = filter_record_batch(&band.rows, &BooleanArray::new(kept, None));
        let rows = rows.map_err(|error| super::in_new_cubes(error.into()))?;
        for (grown, column) in self.columns.iter_mut().zip(rows.columns()) {
            grown.append_array(Arc::clone(column)).map_err(super::in_new_cubes)?;
        }
        Ok(())
    }

    /// Turns the collected rows into the input, with weights.
    fn finish(mut self, threads: usize) -> Result<Input, BlockError> {
        let columns = self.columns.iter_mut().map(Growing::finish).collect::<Result<Vec<_>, _>>()?;
        for (rows, column) in std::mem::take(&mut self.steps_of) {
            if !self.origins.set_steps(rows, &columns[column]) {
                return Err(in_cubes("a step column has no valid steps"));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        // Nulls in a column without nulls are damage that no seal detects.
        let rows =
            RecordBatch::try_new_with_options(Arc::clone(self.table.schema.columns()), columns, &options);
        let rows = rows.map_err(|error| in_cubes(&error.to_string()))?;
        let weights = weighed(&self.table.schema, &rows, threads)?;
        self.check_order(&weights)?;
        let origins = self.origins.finish();
        Ok(Input { rows, weights, origins, dropped: self.dropped, bytes: self.bytes })
    }

    /// Checks that rows stored in weight order are in weight order.
    fn check_order(&self, weights: &[Weight]) -> Result<(), BlockError> {
        let mut from = 0;
        for &(end, window) in &self.sorted {
            let of_band = &weights[from..end];
            from = end;
            let ends = of_band.first().into_iter().chain(of_band.last());
            if !of_band.is_sorted() || !ends.copied().all(|weight| window.takes(weight)) {
                return Err(in_cubes("rows of a band are not in the order of their weights"));
            }
        }
        Ok(())
    }
}

/// The weights of all rows.
pub(super) fn weighed(
    schema: &TableSchema,
    rows: &RecordBatch,
    threads: usize,
) -> Result<Lent<Weight>, BlockError> {
    let key: Vec<_> = schema.sample_key().iter().map(|&place| Arc::clone(rows.column(place))).collect();
    Ok(weights_of_rows(&key, Salt(schema.salt()), threads)?)
}

fn in_cubes(problem: &str) -> BlockError {
    BlockError::Damaged { problem: problem.to_owned() }
}

fn no_run() -> BlockError {
    in_cubes("it has no run")
}

fn cut_off() -> BlockError {
    in_cubes("it is cut off")
}

/// Opens a whole object.
fn open(table: &Table, bytes: &[u8]) -> Result<Part, BlockError> {
    let front = Part::front_bytes(bytes.get(..HEAD_BYTES).unwrap_or_default())?;
    table.open_part(bytes.get(..front as usize).ok_or_else(cut_off)?)
}

/// The rows of one band, with all columns.
struct Band {
    rows: RecordBatch,
    origins: Origins,
}

fn bands(table: &Table, placed: &Placed, part: &Part, bytes: &[u8]) -> Result<Vec<Band>, BlockError> {
    let columns: Vec<usize> = (0..table.schema.columns().fields().len()).collect();
    let wanted = Wanted { window: window_of(placed.piece.weights), columns: &columns, rows: None };
    let mut found = Vec::new();
    for place in part.bands(wanted.window, |_| true) {
        let slice = |(at, len): (u64, u64)| {
            let end = at.checked_add(len).ok_or_else(cut_off)?;
            bytes.get(at as usize..end as usize).ok_or_else(cut_off)
        };
        let slices = part.slices(place, wanted.columns, true);
        let slices = slices.into_iter().map(slice).collect::<Result<Vec<_>, _>>()?;
        let read = part.rows(place, wanted, true, &slices)?;
        let origins = read.origins.or_else(|| {
            // A block has one run and step.
            let extent = &placed.piece.extent;
            Some(Origins::of_block(extent.run.clone()?, extent.steps.from, read.rows.num_rows()))
        });
        let origins = origins.ok_or_else(no_run)?;
        let rows = table.schema.widened(read.rows, &columns, part.column_count())?;
        found.push(Band { rows, origins });
    }
    Ok(found)
}

fn window_of(weights: WeightRange) -> Window {
    let below = |number: u64| Weight::new(number).map_or(Cut::NOTHING, Cut::below);
    let until = Window::below(weights.to.map_or(Cut::ALL, below));
    Window::above(below(weights.from)).intersection(until)
}
