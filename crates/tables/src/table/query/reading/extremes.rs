//! Searches the least or the greatest value, best first: nothing is opened or read that cannot improve on
//! what was found before.
//!
//! A piece, a layer or a band of which all rows match settles the matter with the end of its values. Others
//! are opened or read in the order of how far their values reach.
//!
//! Invariant: what is neither opened nor read has no matching row beyond the value that is returned.

use super::super::extremes::{Best, End, extent_of};
use super::super::filters::read_filters;
use super::super::portion::PlannedBand;
use super::super::source::{CandidatePiece, Source, open};
use super::Reading;
use super::bulk::BULK_BYTES;
use crate::IndexColumn;
use crate::expression::Verdict;
use crate::lattice::{Extent, Scalar};
use crate::part::Layer;
use crate::table::TableError;
use arrow_array::RecordBatch;

/// How many pieces are opened at first and at most at a time. Each round opens twice as many.
const PIECES_FIRST: usize = 2;
const PIECES_MAX: usize = 64;

/// About how many rows are decoded at first. Each round decodes twice as many.
const ROWS_FIRST: u64 = 4096;

/// Bytes of rows that are read at a time where all have to be.
const SCAN_BYTES: u64 = 32 << 20;

impl Reading {
    /// The least or the greatest value of an index column, given by its place among these. The reading is of
    /// no other use afterwards.
    pub(in super::super) async fn extreme_of_index(
        &mut self,
        axis: usize,
        end: End,
    ) -> Result<Option<Scalar>, TableError> {
        let mut best = Best::none(end);
        let mut pieces = self.pieces_by_bound(axis, &mut best);
        let mut count = PIECES_FIRST;
        while !pieces.is_empty() {
            let later = pieces.split_off(count.min(pieces.len()));
            let now: Vec<CandidatePiece> = pieces.into_iter().map(|(_, piece)| piece).collect();
            self.open_only(&now).await?;
            let bands = self.bands_by_bound(axis, &mut best);
            self.read_by_bound(bands, axis, &mut best).await?;
            pieces = later;
            pieces.retain(|(bound, _)| bound.is_none_or(|bound| best.is_improved_by(bound)));
            count = (count * 2).min(PIECES_MAX);
        }
        Ok(best.value())
    }

    /// The least or the greatest value of a column of which all matching rows are read. The reading is of no
    /// other use afterwards.
    pub(in super::super) async fn extreme_of_all(
        &mut self,
        of: IndexColumn,
        end: End,
    ) -> Result<Option<Scalar>, TableError> {
        let mut best = Best::none(end);
        while !self.is_over {
            for found in self.read_some(SCAN_BYTES).await? {
                self.take_values(of, &found.rows, &mut best)?;
            }
        }
        Ok(best.value())
    }

    /// The pieces that may improve on those of which all rows match, each with how far its values reach, if
    /// that is known; the most promising first.
    fn pieces_by_bound(&mut self, axis: usize, best: &mut Best) -> Vec<(Option<Scalar>, CandidatePiece)> {
        let mut pieces = Vec::new();
        for piece in self.waiting.take_pieces() {
            match piece.extent(axis) {
                None => pieces.push((None, piece)),
                Some(extent) if piece.answers_whole(&self.asked) => best.take(&extent),
                Some(extent) => {
                    let bound = self.bound(axis, best.end(), &extent);
                    pieces.extend(bound.map(|bound| (Some(bound), piece)));
                }
            }
        }
        pieces.retain(|(bound, _)| bound.is_none_or(|bound| best.is_improved_by(bound)));
        // Those of which nothing is known come first.
        pieces.sort_by(|(left, _), (right, _)| match (left, right) {
            (Some(left), Some(right)) => best.end().order(left, right),
            (left, right) => left.is_some().cmp(&right.is_some()),
        });
        pieces
    }

    /// How far the values of matching rows reach, if those of all rows have this extent; `None` if they have
    /// no values.
    fn bound(&self, axis: usize, end: End, extent: &Extent) -> Option<Scalar> {
        extent.range().map(|range| self.asked.bounds.reachable(axis, end, end.of(range)))
    }

    /// Opens pieces, in place of those that were open before.
    async fn open_only(&mut self, pieces: &[CandidatePiece]) -> Result<(), TableError> {
        let mut work = self.work;
        let sources = open(&self.table, &self.asked, pieces, &mut work).await?;
        read_filters(&self.table, &self.asked, &sources, &mut work).await?;
        self.work = work;
        (self.sources, self.planned, self.read) = (sources, Vec::new(), 0);
        Ok(())
    }

    /// The bands of the open pieces that have to be read, the most promising first.
    fn bands_by_bound(&self, axis: usize, best: &mut Best) -> Vec<(Scalar, PlannedBand)> {
        let judge = |extents: &[Extent]| self.asked.bounds.verdict(extents);
        let mut found = Vec::new();
        for (place, source) in self.sources.iter().enumerate() {
            for layer in source.part.judged_layers(source.window, judge) {
                if self.is_settled(source, &layer, axis, best) {
                    continue;
                }
                source.part.judged_bands_of(&layer, source.window, judge, |band, verdict| {
                    found.extend(self.to_read((place, band), verdict, axis, best));
                });
            }
        }
        found.retain(|(bound, _)| best.is_improved_by(*bound));
        found.sort_by(|(left, _), (right, _)| best.end().order(left, right));
        found
    }

    /// Whether the extent of a whole layer settles what it has to say.
    fn is_settled(&self, source: &Source, layer: &Layer, axis: usize, best: &mut Best) -> bool {
        let Some((extent, is_whole)) = source.part.layer_extent(layer, source.window, axis) else {
            return false;
        };
        let bound = self.bound(axis, best.end(), &extent);
        if !bound.is_some_and(|bound| best.is_improved_by(bound)) {
            return true;
        }
        let is_certain = layer.verdict == Verdict::Always && source.struck.is_empty();
        if is_certain && is_whole {
            best.take(&extent);
        }
        is_certain && is_whole
    }

    /// A band of a source with how far its values reach, if it has to be read.
    fn to_read(
        &self,
        (place, band): (usize, usize),
        verdict: Verdict,
        axis: usize,
        best: &mut Best,
    ) -> Option<(Scalar, PlannedBand)> {
        let source = &self.sources[place];
        let extent = source.part.band_extent(band, axis)?;
        let bound = self.bound(axis, best.end(), &extent)?;
        let facts = source.part.facts(band, source.window);
        let whole = (facts.least, facts.greatest);
        let clipped = source.window.clipped(whole.0, whole.1)?;
        if !best.is_improved_by(bound) {
            return None;
        }
        let is_certain = verdict == Verdict::Always && source.struck.is_empty();
        if is_certain && clipped == whole {
            best.take(&extent);
            return None;
        }
        let planned = PlannedBand::new((place, band), clipped, facts, is_certain);
        Some((bound, self.asked.narrowed(planned, &source.part)?))
    }

    /// Reads bands in their order, as long as they may improve on what was found.
    async fn read_by_bound(
        &mut self,
        bands: Vec<(Scalar, PlannedBand)>,
        axis: usize,
        best: &mut Best,
    ) -> Result<(), TableError> {
        let Some(of) = self.table.schema.index().get(axis).copied() else { return Ok(()) };
        let (bounds, planned): (Vec<Scalar>, Vec<PlannedBand>) = bands.into_iter().unzip();
        (self.planned, self.read) = (planned, 0);
        let mut rows = ROWS_FIRST;
        loop {
            let end = bounds.partition_point(|bound| best.is_improved_by(*bound));
            if end <= self.read {
                return Ok(());
            }
            let to = self.bands_within(self.bands_of(end, rows), BULK_BYTES);
            for found in self.read_bulk(to, false).await? {
                self.take_values(of, &found.rows, best)?;
            }
            rows = rows.saturating_mul(2);
        }
    }

    /// The end of the planned bands before `end` of which at most `rows_max` rows are decoded, but at least
    /// one band.
    fn bands_of(&self, end: usize, rows_max: u64) -> usize {
        let mut rows = 0_u64;
        let fits = |planned: &&PlannedBand| {
            rows = rows.saturating_add(planned.decoded);
            rows <= rows_max
        };
        let count = self.planned[self.read..end].iter().take_while(fits).count().max(1);
        (self.read + count).min(end)
    }

    /// Takes the values of rows that match.
    fn take_values(&self, of: IndexColumn, rows: &RecordBatch, best: &mut Best) -> Result<(), TableError> {
        if let Some(&place) = self.asked.answered.first() {
            best.take(&extent_of(of, rows.column(place))?);
        }
        Ok(())
    }
}
