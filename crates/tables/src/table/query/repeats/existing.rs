//! Compares the ids of newcomers with existing rows, reading only what may have one of these ids.
//!
//! Invariant: at most [`AT_ONCE_BYTES`] bytes, or a single band, are held at a time.

use super::super::super::part_cache::OpenPart;
use super::super::super::strike::{Strike, bound};
use super::super::fetch::Range;
use super::super::source::{front_bytes, fronts, in_object, window_of};
use super::super::{Table, TableError, Work};
use super::newcomers::{NAMED_MAX, NewIds, Pair, numbers};
use crate::block::Wanted;
use crate::cube::Origins;
use crate::part::{BandOfRows, Part};
use crate::planted::{self, Bug};
use crate::protocol::{Manifest, Placed, Repeat, RepeatedAt, RunId};
use crate::{Weight, Window};
use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of objects that are opened together.
const OBJECTS_AT_ONCE: usize = 64;

/// Number of bytes of bands that are read together.
const AT_ONCE_BYTES: u64 = 16 << 20;

/// A piece that may hold ids of newcomers.
pub(super) struct Candidate {
    pub(super) placed: Placed,
    /// Its step, if that is not visible yet.
    pub(super) arriving_in: Option<u64>,
    /// Its rows of this step and later ones are about to be superseded.
    pub(super) superseded_since: Option<u64>,
}

/// An opened piece.
pub(super) struct OpenedPiece<'c> {
    candidate: &'c Candidate,
    part: Arc<Part>,
    strikes: Vec<Strike>,
    /// The id columns, followed by those of strikes.
    columns: Vec<usize>,
}

/// A band to read.
struct PlannedBand {
    /// Index of the piece.
    piece: usize,
    band: usize,
    window: Window,
    slices: Vec<Range>,
}

impl Table {
    /// Refuses blocks of a run if one of their ids is in one of the pieces.
    pub(super) async fn compare_with(
        &self,
        blocks: &[&Arc<NewIds>],
        run: &RunId,
        manifest: &Manifest,
        candidates: &[Candidate],
    ) -> Result<(), TableError> {
        let mut work = Work::default();
        let may_meet = |candidate: &&Candidate| self.may_meet(blocks, candidate);
        let candidates: Vec<&Candidate> = candidates.iter().filter(may_meet).collect();
        for candidates in candidates.chunks(OBJECTS_AT_ONCE) {
            let opened = self.opened(candidates, manifest, &mut work).await?;
            let planned = self.planned(blocks, &opened);
            let mut from = 0;
            while from < planned.len() {
                let to = from + wave(&planned[from..]);
                self.compare_bands(blocks, run, &opened, &planned[from..to], &mut work).await?;
                from = to;
            }
        }
        Ok(())
    }

    fn may_meet(&self, blocks: &[&Arc<NewIds>], candidate: &Candidate) -> bool {
        let piece = &candidate.placed.piece;
        let extents =
            piece.tight.as_ref().and_then(super::super::super::codec::extents_of).unwrap_or_default();
        let window = window_of(piece.weights);
        let range = window.clipped(Weight::LEAST, Weight::GREATEST);
        let Some((least, greatest)) = range else { return false };
        let may = |block: &Arc<NewIds>| {
            block.may_meet(&self.schema, &extents) && block.between(least, greatest).is_some()
        };
        blocks.iter().any(|block| may(block))
    }

    /// Opens pieces; reads the front of those that are not in the cache.
    pub(super) async fn opened<'c>(
        &self,
        candidates: &[&'c Candidate],
        manifest: &Manifest,
        work: &mut Work,
    ) -> Result<Vec<OpenedPiece<'c>>, TableError> {
        let object = |candidate: &Candidate| candidate.placed.piece.object;
        // Looked up once: what is in the cache at first may be evicted before the others are opened.
        let (mut known, mut new) = (HashMap::new(), Vec::new());
        for candidate in candidates {
            match self.parts.get(object(candidate)) {
                Some(kept) => drop(known.insert(object(candidate), kept.part)),
                None => new.push((object(candidate), front_bytes(&candidate.placed.piece))),
            }
        }
        new.dedup_by_key(|(object, _)| *object);
        for (&(object, _), front) in new.iter().zip(fronts(self, &new, work).await?) {
            let part = self.open_part(&front);
            let part = Arc::new(part.map_err(|source| in_object(object, source))?);
            self.parts.put(object, OpenPart { part: Arc::clone(&part), front });
            known.insert(object, part);
        }
        let mut opened = Vec::with_capacity(candidates.len());
        for &candidate in candidates {
            let object = object(candidate);
            let part = known.get(&object).ok_or_else(|| self.missing(object))?;
            opened.push(self.with_strikes(candidate, Arc::clone(part), manifest)?);
        }
        Ok(opened)
    }

    fn with_strikes<'c>(
        &self,
        candidate: &'c Candidate,
        part: Arc<Part>,
        manifest: &Manifest,
    ) -> Result<OpenedPiece<'c>, TableError> {
        let mut columns = self.schema.id().to_vec();
        let mut strikes = Vec::new();
        // No delete applies to rows that are not visible yet.
        let is_visible = candidate.arriving_in.is_none() && !planted::is(Bug::RepeatsCountStruck);
        let struck = if is_visible { manifest.struck_of(&candidate.placed) } else { Vec::new() };
        for struck in struck {
            strikes.push(Strike::of(struck, |text| {
                let condition = bound(self, text)?;
                for name in condition.columns() {
                    if let Some((place, _)) = self.schema.columns().column_with_name(name)
                        && !columns.contains(&place)
                    {
                        columns.push(place);
                    }
                }
                Ok(condition)
            })?);
        }
        Ok(OpenedPiece { candidate, part, strikes, columns })
    }

    /// The bands that may hold an id of one of the blocks.
    fn planned(&self, blocks: &[&Arc<NewIds>], opened: &[OpenedPiece<'_>]) -> Vec<PlannedBand> {
        let mut planned = Vec::new();
        for (piece, open) in opened.iter().enumerate() {
            let window = window_of(open.candidate.placed.piece.weights);
            let may_hold = |extents: &[_]| blocks.iter().any(|block| block.may_meet(&self.schema, extents));
            for band in open.part.bands(window, may_hold) {
                let facts = open.part.facts(band, window);
                let Some(range) = window.clipped(facts.least, facts.greatest) else { continue };
                let ranges = blocks.iter().filter_map(|block| block.between(range.0, range.1));
                let Some((least, greatest)) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
                    continue;
                };
                let object = open.candidate.placed.piece.object;
                let slices = open.part.slices(band, &open.columns, true).into_iter();
                let slices = slices.map(|(from, bytes)| Range { object, from, to: from + bytes }).collect();
                planned.push(PlannedBand { piece, band, window: Window::between(least, greatest), slices });
            }
        }
        planned
    }

    /// Reads bands, all at once, and refuses blocks if one of their ids is in one of them.
    async fn compare_bands(
        &self,
        blocks: &[&Arc<NewIds>],
        run: &RunId,
        opened: &[OpenedPiece<'_>],
        planned: &[PlannedBand],
        work: &mut Work,
    ) -> Result<(), TableError> {
        let ranges: Vec<Range> = planned.iter().flat_map(|band| band.slices.iter().copied()).collect();
        let mut bytes = self.fetch_all(&ranges, work).await?.into_iter();
        for planned in planned {
            let slices: Vec<_> = bytes.by_ref().take(planned.slices.len()).collect();
            let open = &opened[planned.piece];
            let wanted = Wanted { window: planned.window, columns: &open.columns, rows: None };
            let rows = open.part.rows(planned.band, wanted, true, &slices);
            let object = open.candidate.placed.piece.object;
            let mut rows = rows.map_err(|source| in_object(object, source))?;
            let widened = self.schema.widened(rows.rows, &open.columns, open.part.column_count());
            rows.rows = widened.map_err(|error| in_object(object, error.into()))?;
            let ids = &rows.rows.columns()[..self.schema.id().len()];
            let numbered: Vec<(Weight, u32)> = numbers(&self.schema, ids)?.into_iter().zip(0..).collect();
            for block in blocks {
                self.compare_rows(block, run, open, &rows, &numbered)?;
            }
        }
        Ok(())
    }

    fn compare_rows(
        &self,
        block: &NewIds,
        run: &RunId,
        open: &OpenedPiece<'_>,
        there: &BandOfRows,
        numbered: &[(Weight, u32)],
    ) -> Result<(), TableError> {
        let ids = &there.rows.columns()[..self.schema.id().len()];
        let pairs = block.pairs(numbered.iter().copied());
        let mut pairs = block.truly(&pairs, ids)?;
        let step = |pair: &Pair| open.step(there, pair.other);
        pairs.retain(|pair| {
            open.is_of(run, there, pair.other)
                && open.candidate.superseded_since.is_none_or(|since| step(pair) < since)
        });
        let pairs = open.not_struck(pairs, there)?;
        let there = |pair: &Pair| match open.candidate.arriving_in {
            Some(step) => RepeatedAt::Arriving(step),
            None => RepeatedAt::Step(step(pair)),
        };
        let named =
            pairs.iter().take(NAMED_MAX).map(|pair| block.repeat(&self.schema, pair.new, there(pair)));
        let named: Vec<Repeat> = named.collect();
        block.refuse_if_any(named, pairs.len() > NAMED_MAX)
    }
}

impl OpenedPiece<'_> {
    /// Whether a row of a band was written in a run.
    fn is_of(&self, run: &RunId, there: &BandOfRows, row: u32) -> bool {
        let origin = there.origins.as_ref().and_then(|origins| origins.run(row as usize));
        origin.or(self.candidate.placed.piece.extent.run.as_ref()) == Some(run)
    }

    /// The step in which a row of a band was written.
    fn step(&self, there: &BandOfRows, row: u32) -> u64 {
        let origin = there.origins.as_ref().and_then(|origins| origins.steps().get(row as usize));
        origin.copied().unwrap_or(self.candidate.placed.piece.extent.steps.from)
    }

    /// The pairs whose other row is not struck.
    fn not_struck(&self, pairs: Vec<Pair>, there: &BandOfRows) -> Result<Vec<Pair>, TableError> {
        if self.strikes.is_empty() || pairs.is_empty() {
            return Ok(pairs);
        }
        let places: Vec<u32> = pairs.iter().map(|pair| pair.other).collect();
        let rows: RecordBatch = take_record_batch(&there.rows, &UInt32Array::from(places.clone()))
            .map_err(|error| in_object(self.candidate.placed.piece.object, error.into()))?;
        let origins = match &there.origins {
            Some(origins) => Some(origins.taken(&places)),
            None => {
                let extent = &self.candidate.placed.piece.extent;
                let run = extent.run.clone();
                run.map(|run| Origins::of_block(run, extent.steps.from, places.len()))
            }
        };
        let mut is_struck = vec![false; pairs.len()];
        for strike in &self.strikes {
            let struck = strike.strikes(&rows, origins.as_ref())?;
            struck.set_indices().for_each(|row| is_struck[row] = true);
        }
        Ok(pairs
            .into_iter()
            .zip(is_struck)
            .filter(|(_, is_struck)| !is_struck)
            .map(|(pair, _)| pair)
            .collect())
    }
}

/// How many of the bands to read together.
fn wave(planned: &[PlannedBand]) -> usize {
    let mut bytes = 0;
    let mut fits = |band: &&PlannedBand| {
        bytes += band.slices.iter().map(Range::bytes).sum::<u64>();
        bytes <= AT_ONCE_BYTES
    };
    planned.iter().take_while(&mut fits).count().max(1)
}
