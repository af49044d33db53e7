//! Planning: finds the bands that can match, in weight order and no further than necessary.
//!
//! The lightest rows of a large table are in few of its objects. A query for the first rows therefore opens
//! the objects with the lightest rows, plans their lightest layers, and continues from there while more is
//! wanted.
//!
//! Invariant: every band that can match is planned, or is not lighter than [`Waiting::lightest`].
//! Invariant: the order of the planned bands does not depend on when they are planned.
//! Invariant: of the bytes read to open objects, at most [`Waiting::portion_bytes_max`] are kept, and as many
//! are opened together. A table that was never packed may have very many objects.

use super::super::filters::read_filters;
use super::super::portion::PlannedBand;
use super::super::source::{CandidatePiece, Source, open};
use super::Reading;
use crate::expression::Verdict;
use crate::part::Layer;
use crate::planted::{self, Bug};
use crate::table::TableError;
use crate::{Cut, Weight};
use std::cmp::Reverse;

/// How much further than the wanted rows planning looks at first, since a filter leaves out some of them.
const FURTHER_AT_FIRST: f64 = 4.0;

/// Minimum and maximum factor by which each round looks further: opening several objects takes as long as
/// one.
const FURTHER_MIN: f64 = 2.0;
const FURTHER_MAX: f64 = 64.0;

/// Bytes of the objects planned first for an unordered answer, and maximum for each later portion.
const PORTION_BYTES_FIRST: u64 = 8 << 20;
const PORTION_BYTES_MAX: u64 = 256 << 20;

/// How far a query is planned before anything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reach {
    /// All of it, unless so much has to be opened for it that this is done in portions.
    Everything,
    /// Later, as far as needed.
    AsNeeded,
}

/// What is not planned yet.
pub(super) struct Waiting {
    /// Pieces that are not opened, the lightest last.
    pieces: Vec<CandidatePiece>,
    /// Layers of opened sources, the lightest last.
    layers: Vec<(usize, Layer)>,
    /// Total bytes of the pieces opened portion by portion.
    portions_bytes: u64,
    /// Maximum number of bytes that are opened together, and of those read for that and kept.
    pub(super) portion_bytes_max: u64,
}

impl Waiting {
    pub(super) fn new(mut pieces: Vec<CandidatePiece>) -> Self {
        pieces.sort_by_key(|piece| Reverse(piece.lightest));
        let portion_bytes_max = PORTION_BYTES_MAX;
        Self { pieces, layers: Vec::new(), portions_bytes: 0, portion_bytes_max }
    }

    /// Whether pieces wait to be opened.
    pub(super) fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Lets portions be opened in the order in which pieces are stored, for an answer that needs all of them
    /// anyway: [`Waiting::lightest`] then only says whether something waits.
    pub(super) fn put_in_storage_order(&mut self) {
        self.pieces.sort_unstable_by_key(|piece| Reverse(piece.place));
    }

    /// Lower bound of the weights of all waiting rows; `None` if nothing waits.
    pub(super) fn lightest(&self) -> Option<Weight> {
        let piece = self.pieces.last().map(|piece| piece.lightest);
        let layer = self.layers.last().map(|(_, layer)| layer.lightest);
        piece.into_iter().chain(layer).min()
    }

    /// The pieces that are not opened, which wait no longer.
    pub(super) fn take_pieces(&mut self) -> Vec<CandidatePiece> {
        std::mem::take(&mut self.pieces)
    }

    /// The index from which on waiting pieces are opened next, and their bytes: about as many as were opened
    /// before, so that the first portion comes soon and the rest takes few rounds.
    fn portion(&self) -> (usize, u64) {
        let most = self.portion_bytes_max;
        let bytes_max = self.portions_bytes.clamp(PORTION_BYTES_FIRST.min(most), most);
        let (mut count, mut bytes) = (0, 0_u64);
        for piece in self.pieces.iter().rev() {
            let more = bytes.saturating_add(piece.bytes_to_open());
            if count > 0 && more > bytes_max {
                break;
            }
            (count, bytes) = (count + 1, more);
        }
        (self.pieces.len() - count, bytes)
    }

    /// Number of rows in the pieces that are not opened.
    fn rows(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.rows).fold(0, u64::saturating_add)
    }
}

impl Reading {
    /// The end of the planned bands that may be read: no unplanned band comes before them.
    pub(super) fn ready(&self) -> usize {
        let lightest = self.waiting.lightest();
        lightest.map_or(self.planned.len(), |lightest| {
            self.planned.partition_point(|planned| planned.least < lightest).max(self.read)
        })
    }

    /// Plans until enough bands for the wanted rows are ready, including an unread one; or plans all.
    pub(super) async fn plan_toward(&mut self, limit: Option<usize>) -> Result<(), TableError> {
        while let Some(lightest) = self.waiting.lightest() {
            let Some(wanted) = self.rows_wanted(limit) else {
                self.plan_until(Cut::ALL).await?;
                continue;
            };
            let planned = self.planned.iter().map(|planned| planned.below(lightest)).sum::<f64>();
            if planned >= wanted && self.ready() > self.read {
                return Ok(());
            }
            self.plan_until(self.further(lightest, wanted, planned)).await?;
        }
        Ok(())
    }

    /// The cut to plan up to, if `wanted` rows are wanted and about `planned` are before the waiting ones.
    fn further(&self, lightest: Weight, wanted: f64, planned: f64) -> Cut {
        let from = self.asked.window.after().share();
        let now = Cut::below(lightest).share() - from;
        let share = if planned > 0.0 {
            now * (FURTHER_MIN * wanted / planned).clamp(FURTHER_MIN, FURTHER_MAX)
        } else {
            // Weights are uniformly distributed over the rows of a version.
            (now * FURTHER_MIN).max(FURTHER_AT_FIRST * wanted / self.waiting.rows().max(1) as f64)
        };
        let cut = Cut::of_share((from + share).clamp(0.0, 1.0)).unwrap_or(Cut::ALL);
        cut.max(Cut::through(lightest))
    }

    /// Number of bytes to read of the waiting pieces to open all of them, if none is open yet.
    pub(in super::super) fn bytes_to_open(&self) -> u64 {
        self.waiting.pieces.iter().map(|piece| piece.front_bytes).fold(0, u64::saturating_add)
    }

    /// Whether an answer that needs everything, in whatever order, opens it portion by portion: all together
    /// would take too much memory.
    pub(super) fn opens_in_portions(&self) -> bool {
        let needs_order = self.asked.units.is_some() || self.asked.limit.is_some();
        !needs_order && self.bytes_to_open() > self.waiting.portion_bytes_max
    }

    /// Number of bytes kept of those read to open objects.
    pub(super) fn fronts_kept(&self) -> u64 {
        self.sources.iter().map(|source| source.front.len() as u64).sum()
    }

    /// Number of rows to decode of the planned bands.
    pub(in super::super) fn rows_to_decode(&self) -> u64 {
        self.planned[self.read..].iter().map(|planned| planned.decoded).fold(0, u64::saturating_add)
    }

    /// Opens everything and plans all of it: in reading order if the query needs an order, and otherwise in
    /// storage order.
    pub(in super::super) async fn plan_all(&mut self) -> Result<(), TableError> {
        if self.asked.units.is_some() || self.asked.limit.is_some() {
            return self.plan_until(Cut::ALL).await;
        }
        for (source, layers) in self.open_until(Cut::ALL).await? {
            layers.iter().for_each(|layer| self.plan_layer(source, layer));
        }
        Ok(())
    }

    /// Opens the pieces that may have rows below a cut, and plans the layers that may have some.
    pub(super) async fn plan_until(&mut self, until: Cut) -> Result<(), TableError> {
        for (source, layers) in self.open_until(until).await? {
            self.waiting.layers.extend(layers.into_iter().map(|layer| (source, layer)));
        }
        self.waiting.layers.sort_by_key(|(_, layer)| Reverse(layer.lightest));
        let from = self.waiting.layers.partition_point(|(_, layer)| !until.takes(layer.lightest));
        for (source, layer) in self.waiting.layers.split_off(from) {
            self.plan_layer(source, &layer);
        }
        let sources = &self.sources;
        self.planned[self.read..]
            .sort_unstable_by_key(|planned| (planned.least, sources[planned.source].place, planned.band));
        Ok(())
    }

    /// Plans all matching bands of some waiting pieces, after everything planned earlier has been read, for a
    /// query that needs no order. Earlier plans are dropped, so that memory does not grow with the answer.
    pub(super) async fn plan_portion(&mut self) -> Result<(), TableError> {
        let (from, bytes) = self.waiting.portion();
        let first = self.sources.len();
        let opened = self.open_from(from, 0).await?;
        self.waiting.portions_bytes = self.waiting.portions_bytes.saturating_add(bytes);
        self.sources.drain(..first);
        self.planned.clear();
        self.read = 0;
        for (source, layers) in opened {
            layers.iter().for_each(|layer| self.plan_layer(source - first, layer));
        }
        self.planned.sort_by_key(|planned| (planned.source, planned.band));
        Ok(())
    }

    /// Opens the pieces that may have rows below a cut; returns the index of each source and its matching
    /// layers.
    async fn open_until(&mut self, until: Cut) -> Result<Vec<(usize, Vec<Layer>)>, TableError> {
        let from = self.waiting.pieces.partition_point(|piece| !until.takes(piece.lightest));
        self.open_from(from, self.fronts_kept()).await
    }

    /// Like [`Reading::open_until`], for the waiting pieces from an index on, while `kept` bytes are kept
    /// that were read to open others.
    async fn open_from(
        &mut self,
        from: usize,
        mut kept: u64,
    ) -> Result<Vec<(usize, Vec<Layer>)>, TableError> {
        let (mut work, bytes_max) = (self.work, self.waiting.portion_bytes_max);
        let bytes = self.waiting.pieces[from..].iter().map(|piece| piece.front_bytes);
        let ends = portion_ends(bytes, bytes_max);
        let (mut begin, mut opened, mut layers) = (from, Vec::new(), Vec::<Vec<Layer>>::new());
        for end in ends {
            let pieces = &self.waiting.pieces[begin..from + end];
            let mut sources: Vec<Source> = open(&self.table, &self.asked, pieces, &mut work).await?;
            read_filters(&self.table, &self.asked, &sources, &mut work).await?;
            let judge = |extents: &[_]| self.asked.bounds.verdict(extents);
            layers.extend(sources.iter().map(|source| source.part.judged_layers(source.window, judge)));
            kept = sources.iter_mut().fold(kept, |kept, source| source.keep_front(kept, bytes_max));
            opened.append(&mut sources);
            begin = from + end;
        }
        // From here on, nothing waits or fails.
        self.work = work;
        self.waiting.pieces.truncate(from);
        let first = self.sources.len();
        self.sources.extend(opened);
        Ok((first..).zip(layers).collect())
    }

    /// Plans the matching bands of a layer.
    fn plan_layer(&mut self, place: usize, layer: &Layer) {
        let Self { asked, sources, planned: all, counted, .. } = self;
        let source = &sources[place];
        let judge = |extents: &[_]| asked.bounds.verdict(extents);
        source.part.judged_bands_of(layer, source.window, judge, |band, verdict| {
            let facts = source.part.facts(band, source.window);
            let whole = (facts.least, facts.greatest);
            let Some(clipped) = source.window.clipped(whole.0, whole.1) else { return };
            let is_whole = source.struck.is_empty() || planted::is(Bug::StruckTakenForCertain);
            let is_sure = verdict == Verdict::Always;
            let is_certain = is_whole && (is_sure || planted::is(Bug::PerhapsTakenForAlways));
            if asked.only_counts() && is_certain && clipped == whole {
                *counted = counted.saturating_add(facts.rows);
                return;
            }
            let planned = PlannedBand::new((place, band), clipped, facts, is_certain);
            all.extend(asked.narrowed(planned, &source.part));
        });
    }
}

/// The ends of portions of consecutive items with so many bytes, each of at most `bytes_max` bytes or of one
/// item.
pub(super) fn portion_ends(items: impl Iterator<Item = u64>, bytes_max: u64) -> Vec<usize> {
    let (mut ends, mut begin, mut count, mut bytes) = (Vec::new(), 0, 0, 0_u64);
    for (place, more) in items.enumerate() {
        bytes = bytes.saturating_add(more);
        if bytes > bytes_max && place > begin {
            ends.push(place);
            (begin, bytes) = (place, more);
        }
        count = place + 1;
    }
    ends.extend((count > begin).then_some(count));
    ends
}
