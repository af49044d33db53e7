//! Input: the rows of some pieces, put together in the order of (weight, id).
//!
//! Invariant: every row of the pieces is there once, except those that are struck, which are counted.

use super::super::codec::damaged;
use super::super::strike::{Strike, bound};
use super::super::{Table, TableError};
use super::pace::Pace;
use super::plan::Group;
use crate::block::{BlockError, HEAD_BYTES, Wanted};
use crate::cube::Origins;
use crate::part::Part;
use crate::protocol::{Manifest, Placed, Struck, WeightRange};
use crate::{Cut, Weight, Window};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_buffer::BooleanBuffer;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use atoll_store::{Buffer, Read};
use futures::StreamExt;
use std::sync::Arc;

/// Objects that are read together.
const OBJECTS_AT_ONCE: usize = 32;

/// Rows to pack.
pub(super) struct Input {
    pub(super) rows: RecordBatch,
    pub(super) weights: Vec<Weight>,
    pub(super) origins: Origins,
    /// Rows that were struck.
    pub(super) dropped: u64,
    /// Bytes that were read.
    pub(super) bytes: u64,
}

/// Rows of one piece, as they were read.
#[derive(Default)]
struct Gathered {
    batches: Vec<RecordBatch>,
    weights: Vec<Weight>,
    origins: Origins,
    dropped: u64,
    bytes: u64,
}

impl Input {
    pub(super) async fn read(
        table: &Table,
        manifest: &Manifest,
        group: &Group,
        pace: &mut Pace<'_>,
    ) -> Result<Self, TableError> {
        let mut gathered = Gathered::default();
        for pieces in group.pieces.chunks(OBJECTS_AT_ONCE) {
            for (placed, bytes) in pieces.iter().zip(read_objects(table, pieces).await?) {
                let struck = manifest.struck_of(placed);
                gathered.take(table, placed, struck, &bytes)?;
                pace.moved(bytes.len());
                pace.rest().await?;
            }
        }
        gathered.in_order(table)
    }
}

/// Whole objects, read together, in their order.
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

impl Gathered {
    /// Takes in the rows of one piece.
    fn take(
        &mut self,
        table: &Table,
        placed: &Placed,
        struck: Vec<Struck>,
        bytes: &[u8],
    ) -> Result<(), TableError> {
        let in_object =
            |source| TableError::Block { object: format!("object {}", placed.piece.object), source };
        let strike = |struck: Struck| Strike::of(struck, |text| bound(table, text));
        let strikes = struck.into_iter().map(strike).collect::<Result<Vec<_>, _>>()?;
        let (mut found, mut rows) = (0, Vec::new());
        for band in bands(table, placed, bytes).map_err(in_object)? {
            found += band.rows.num_rows() as u64;
            rows.push(band);
        }
        if found != placed.piece.rows {
            let problem =
                format!("object {} has {found} rows, not {}", placed.piece.object, placed.piece.rows);
            return Err(damaged(&table.name, &problem));
        }
        for band in rows {
            self.take_band(band, &strikes)?;
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn take_band(&mut self, band: Band, strikes: &[Strike]) -> Result<(), TableError> {
        let mut kept = BooleanBuffer::new_set(band.rows.num_rows());
        for strike in strikes {
            kept = &kept & &!&strike.strikes(&band.rows, Some(&band.origins))?;
        }
        if kept.count_set_bits() == band.rows.num_rows() {
            self.origins.append(&band.origins);
            self.weights.extend(band.weights);
            self.batches.push(band.rows);
            return Ok(());
        }
        self.dropped += (band.rows.num_rows() - kept.count_set_bits()) as u64;
        let places: Vec<u32> = kept.set_indices().map(|row| row as u32).collect();
        self.origins.append(&band.origins.taken(&places));
        self.weights.extend(places.iter().map(|&row| band.weights[row as usize]));
        let rows = filter_record_batch(&band.rows, &BooleanArray::new(kept, None));
        self.batches.push(rows.map_err(|error| super::in_new_cubes(error.into()))?);
        Ok(())
    }

    fn in_order(self, table: &Table) -> Result<Input, TableError> {
        let order = |rows: &RecordBatch| -> Result<Vec<u32>, BlockError> {
            let id = table.schema.id().iter().map(|&place| Arc::clone(rows.column(place)));
            Ok(crate::order(&self.weights, &id.collect::<Vec<ArrayRef>>())?)
        };
        let sorted = concat_batches(table.schema.columns(), &self.batches)
            .map_err(BlockError::from)
            .and_then(|rows| {
                let order = order(&rows)?;
                let sorted = take_record_batch(&rows, &UInt32Array::from(order.clone()))?;
                Ok((sorted, order))
            });
        let (rows, order) = sorted.map_err(super::in_new_cubes)?;
        let weights = order.iter().map(|&row| self.weights[row as usize]).collect();
        let origins = self.origins.taken(&order);
        Ok(Input { rows, weights, origins, dropped: self.dropped, bytes: self.bytes })
    }
}

/// Rows of one band, all columns.
struct Band {
    rows: RecordBatch,
    weights: Vec<Weight>,
    origins: Origins,
}

fn bands(table: &Table, placed: &Placed, bytes: &[u8]) -> Result<Vec<Band>, BlockError> {
    let cut_off = || BlockError::Damaged { problem: "it is cut off".to_owned() };
    let front = Part::front_bytes(bytes.get(..HEAD_BYTES).unwrap_or_default())?;
    let part = table.open_part(bytes.get(..front as usize).ok_or_else(cut_off)?)?;
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
            // A block is of one run and step.
            let extent = &placed.piece.extent;
            Some(Origins::of_block(extent.run.clone()?, extent.steps.from, read.rows.num_rows()))
        });
        let origins = origins.ok_or_else(|| BlockError::Damaged { problem: "it has no run".to_owned() })?;
        let rows = table.schema.widened(read.rows, &columns, part.column_count())?;
        found.push(Band { rows, weights: read.weights, origins });
    }
    Ok(found)
}

fn window_of(weights: WeightRange) -> Window {
    let below = |number: u64| Weight::new(number).map_or(Cut::NOTHING, Cut::below);
    let until = Window::below(weights.to.map_or(Cut::ALL, below));
    Window::above(below(weights.from)).intersection(until)
}
