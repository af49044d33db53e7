//! Asking: which rows of a region are in a sample, and what finding them took.
//!
//! A query resolves one version, reads the directories of its blocks, and then, all at once, the slices of the
//! bands that can answer it.

use super::{Table, TableError};
use crate::block::{BlockReader, HEAD_BYTES, Wanted};
use crate::lattice::Region;
use crate::protocol::{ObjectId, Version};
use crate::{Cut, Weight, Window};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use atoll_store::{Buffer, ByteRange, Read};
use futures::StreamExt;
use std::sync::Arc;

/// How much of a block is read at first: the directory of a block of a million rows with ten columns fits.
const FRONT_BYTES: u64 = 8 << 10;

/// Bytes between two slices that are rather read than skipped: a request costs more.
const GAP_BYTES: u64 = 4 << 10;

/// What is asked of a table.
#[derive(Clone, Debug)]
pub struct Query {
    /// Rows in this region, one interval for each index column; everything for none.
    pub region: Option<Region>,
    /// Rows of these weights.
    pub window: Window,
    /// At most so many rows, the lightest; all for none.
    pub limit: Option<usize>,
    /// These columns, by name, in this order; all for none.
    pub columns: Option<Vec<String>>,
}

impl Default for Query {
    fn default() -> Self {
        Self { region: None, window: Window::below(Cut::ALL), limit: None, columns: None }
    }
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Blocks that the version has.
    pub blocks: u64,
    /// Bands that were decoded.
    pub bands: u64,
    /// Rows in those bands.
    pub rows_touched: u64,
    /// Rows that were answered.
    pub rows_returned: u64,
    /// Requests to the store: contiguous ranges of objects.
    pub requests: u64,
    /// Bytes that they brought.
    pub bytes: u64,
}

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The version that was read.
    pub version: Version,
    /// The rows, in the order of (weight, id).
    pub rows: RecordBatch,
    /// What it took.
    pub work: Work,
}

/// One block that a version names, opened.
struct Opened {
    object: ObjectId,
    reader: BlockReader,
}

/// A band to read: which block, which band, its lightest row, and where its slices are.
struct Planned {
    block: usize,
    band: usize,
    least: Weight,
    rows: usize,
    slices: Vec<(u64, u64)>,
}

/// What was found: columns as they were read, and the weights of the rows.
struct Found {
    rows: RecordBatch,
    weights: Vec<Weight>,
}

impl Table {
    /// Answers a query.
    ///
    /// # Errors
    /// [`TableError::Column`], [`TableError::Block`] for damage, errors of the store.
    pub async fn query(&self, query: &Query) -> Result<Answer, TableError> {
        let state = self.ledger.current().await?;
        if !state.manifest.tombstones.is_empty() {
            return Err(TableError::Unsupported { what: "rows that were deleted by an expression" });
        }
        let columns = self.columns_of(query)?;
        // Regions are judged on stored values, and ties of weight by id.
        let mut needed = columns.clone();
        for &place in self.schema.index().iter().chain(self.schema.id()) {
            if !needed.contains(&place) {
                needed.push(place);
            }
        }
        let everything = Region::everything(self.schema.index().len());
        let region = query.region.as_ref().unwrap_or(&everything);
        let wanted = Wanted { window: query.window, region, columns: &needed };
        let mut work = Work { blocks: state.manifest.pieces.len() as u64, ..Work::default() };
        let objects: Vec<ObjectId> =
            state.manifest.pieces.values().map(|placed| placed.piece.object).collect();
        let opened = self.open_blocks(&objects, &mut work).await?;
        let planned = plan(&opened, &wanted);
        let found = self.read_enough(&opened, &planned, &wanted, query.limit, &mut work).await?;
        let rows = self.put_in_order(found, &wanted, query.limit)?;
        let rows = rows.project(&(0..columns.len()).collect::<Vec<_>>()).map_err(arrow)?;
        work.rows_returned = rows.num_rows() as u64;
        Ok(Answer { version: state.head.version, rows, work })
    }

    fn columns_of(&self, query: &Query) -> Result<Vec<usize>, TableError> {
        let all = self.schema.columns();
        let Some(names) = &query.columns else { return Ok((0..all.fields().len()).collect()) };
        let place = |name: &String| {
            let unknown = || TableError::Column { table: self.name.clone(), column: name.clone() };
            all.column_with_name(name).map(|(place, _)| place).ok_or_else(unknown)
        };
        names.iter().map(place).collect()
    }

    /// Reads the directories of blocks, all at once; those whose directory is longer than expected once more.
    async fn open_blocks(&self, objects: &[ObjectId], work: &mut Work) -> Result<Vec<Opened>, TableError> {
        let front = |object: &ObjectId| (*object, (0, FRONT_BYTES));
        let mut fronts = self.read_ranges(objects.iter().map(front).collect(), work).await?;
        let mut longer = Vec::new();
        for (place, (object, bytes)) in objects.iter().zip(&fronts).enumerate() {
            let head = &bytes[..HEAD_BYTES.min(bytes.len())];
            let needed = BlockReader::front_bytes(head).map_err(|source| block_error(*object, source))?;
            if needed > FRONT_BYTES {
                longer.push((place, (*object, (0, needed))));
            }
        }
        let again = self.read_ranges(longer.iter().map(|(_, range)| *range).collect(), work).await?;
        for ((place, _), bytes) in longer.iter().zip(again) {
            fronts[*place] = bytes;
        }
        let opened = objects.iter().zip(fronts).map(|(&object, front)| {
            let reader = BlockReader::open(Arc::clone(&self.schema), &front);
            Ok(Opened { object, reader: reader.map_err(|source| block_error(object, source))? })
        });
        opened.collect()
    }

    /// Reads ranges of objects, issued together, in their order.
    async fn read_ranges(
        &self,
        ranges: Vec<(ObjectId, (u64, u64))>,
        work: &mut Work,
    ) -> Result<Vec<Buffer>, TableError> {
        let reads = ranges.iter().map(|(object, (offset, len))| Read {
            range: ByteRange::new(*offset, *len),
            immutable: true,
            ..Read::new(self.names.object(*object), b"")
        });
        let mut answers = self.store.get_many(reads.collect());
        let mut read: Vec<Option<Buffer>> = vec![None; ranges.len()];
        while let Some((place, answer)) = answers.next().await {
            read[place] = answer?;
        }
        work.requests += ranges.len() as u64;
        let missing = |object: ObjectId| {
            super::codec::damaged(&self.name, &format!("object {object} is named by a version and not there"))
        };
        let read: Vec<Buffer> = read
            .into_iter()
            .zip(&ranges)
            .map(|(bytes, (object, _))| bytes.ok_or_else(|| missing(*object)))
            .collect::<Result<_, _>>()?;
        work.bytes += read.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        Ok(read)
    }

    /// Reads bands, lightest first, until the limit is known to be reached: until so many rows were found
    /// below the lightest row of those that were not read.
    async fn read_enough(
        &self,
        opened: &[Opened],
        planned: &[Planned],
        wanted: &Wanted<'_>,
        limit: Option<usize>,
        work: &mut Work,
    ) -> Result<Vec<Found>, TableError> {
        let mut found = Vec::new();
        let mut left = planned;
        loop {
            let (now, later) = left.split_at(portion(left, limit, work.rows_touched as usize));
            found.extend(self.read_bands(opened, now, wanted, work).await?);
            let (Some(limit), Some(next)) = (limit, later.first()) else { return Ok(found) };
            let below = |found: &Found| found.weights.partition_point(|weight| *weight < next.least);
            if found.iter().map(below).sum::<usize>() >= limit {
                return Ok(found);
            }
            left = later;
        }
    }

    async fn read_bands(
        &self,
        opened: &[Opened],
        planned: &[Planned],
        wanted: &Wanted<'_>,
        work: &mut Work,
    ) -> Result<Vec<Found>, TableError> {
        // Slices that lie near each other are one request.
        let mut requests: Vec<(ObjectId, (u64, u64))> = Vec::new();
        let mut places = Vec::new();
        for band in planned {
            let object = opened[band.block].object;
            let merged = merge(&band.slices);
            places.push((requests.len(), merged.clone()));
            requests.extend(merged.into_iter().map(|(from, to)| (object, (from, to - from))));
        }
        let read = self.read_ranges(requests, work).await?;
        let mut found = Vec::with_capacity(planned.len());
        for (band, (first, merged)) in planned.iter().zip(places) {
            let Opened { object, reader } = &opened[band.block];
            let bytes_of = |&(offset, len): &(u64, u64)| {
                let holder = merged.iter().position(|&(from, to)| from <= offset && offset + len <= to);
                let (from, bytes) =
                    holder.map_or((0, None), |place| (merged[place].0, read.get(first + place)));
                let start = (offset - from) as usize;
                bytes.and_then(|bytes| bytes.get(start..start + len as usize)).unwrap_or_default()
            };
            let slices: Vec<&[u8]> = band.slices.iter().map(bytes_of).collect();
            let (rows, weights) =
                reader.rows(band.band, wanted, &slices).map_err(|source| block_error(*object, source))?;
            work.bands += 1;
            work.rows_touched += u64::from(reader.directory().bands[band.band].rows);
            found.extend(self.in_region(rows, weights, wanted)?);
        }
        Ok(found)
    }

    /// Leaves out the rows outside the region.
    fn in_region(
        &self,
        rows: RecordBatch,
        weights: Vec<Weight>,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>, TableError> {
        let column = |place: &usize| -> Option<ArrayRef> {
            let at = wanted.columns.iter().position(|wanted| wanted == place)?;
            rows.columns().get(at).map(Arc::clone)
        };
        let index: Vec<ArrayRef> = self.schema.index().iter().filter_map(column).collect();
        let inside = wanted.region.matches(&index)?;
        let count = inside.count_set_bits();
        if count == rows.num_rows() {
            return Ok(Some(Found { rows, weights }));
        }
        if count == 0 {
            return Ok(None);
        }
        let weights = inside.set_indices().map(|row| weights[row]).collect();
        let rows = filter_record_batch(&rows, &BooleanArray::new(inside, None)).map_err(arrow)?;
        Ok(Some(Found { rows, weights }))
    }

    /// All that was found, in the order of (weight, id), up to the limit.
    fn put_in_order(
        &self,
        found: Vec<Found>,
        wanted: &Wanted<'_>,
        limit: Option<usize>,
    ) -> Result<RecordBatch, TableError> {
        let batches: Vec<&RecordBatch> = found.iter().map(|found| &found.rows).collect();
        let all = concat_batches(&self.schema_of(wanted), batches).map_err(arrow)?;
        let weights: Vec<Weight> = found.iter().flat_map(|found| found.weights.iter().copied()).collect();
        let id = |place: &usize| wanted.columns.iter().position(|wanted| wanted == place);
        let ids: Vec<ArrayRef> =
            self.schema.id().iter().filter_map(id).map(|place| Arc::clone(all.column(place))).collect();
        let order = crate::order(&weights, &ids).map_err(|error| TableError::Block {
            object: "the rows of the answer".to_owned(),
            source: error.into(),
        })?;
        let order = UInt32Array::from(order);
        let order = order.slice(0, limit.unwrap_or(usize::MAX).min(all.num_rows()));
        take_record_batch(&all, &order).map_err(arrow)
    }

    fn schema_of(&self, wanted: &Wanted<'_>) -> SchemaRef {
        let fields = wanted.columns.iter().map(|&place| Arc::clone(&self.schema.columns().fields()[place]));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// The bands that can answer, of all blocks, those with the lightest rows first.
fn plan(opened: &[Opened], wanted: &Wanted<'_>) -> Vec<Planned> {
    let mut planned = Vec::new();
    for (block, Opened { reader, .. }) in opened.iter().enumerate() {
        for band in reader.bands(wanted) {
            let slices = reader.slices(band, wanted.columns);
            let slices = slices.iter().map(|slice| (slice.offset, slice.bytes)).collect();
            let of_band = &reader.directory().bands[band];
            planned.push(Planned { block, band, least: of_band.least, rows: of_band.rows as usize, slices });
        }
    }
    planned.sort_by_key(|band| (band.least, band.block));
    planned
}

/// How many of the bands to read now: all without a limit, else as many as hold the limit and what was read.
fn portion(left: &[Planned], limit: Option<usize>, touched: usize) -> usize {
    let Some(limit) = limit else { return left.len() };
    let mut rows = 0;
    let enough = left.iter().position(|band| {
        rows += band.rows;
        rows >= limit.max(touched)
    });
    enough.map_or(left.len(), |last| last + 1)
}

/// Ranges, from and to, that hold all slices; those that lie near each other are one.
fn merge(slices: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted: Vec<(u64, u64)> = slices.iter().map(|&(offset, len)| (offset, offset + len)).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in sorted {
        match merged.last_mut() {
            Some(last) if from <= last.1 + GAP_BYTES => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn block_error(object: ObjectId, source: crate::block::BlockError) -> TableError {
    TableError::Block { object: format!("object {object}"), source }
}

fn arrow(error: arrow_schema::ArrowError) -> TableError {
    TableError::Block { object: "the rows of the answer".to_owned(), source: error.into() }
}
