//! Reading: reads bands, lightest first, until enough rows are known.
//!
//! Invariant: every matching row below [`Reading::known`] has been found.
//! Invariant: however a reading is divided into portions, bands are read in the same order, and rows that are
//! equal in weight and id are handed over in the same order: that of the pieces of the version and of their
//! bands.
//! Invariant: a reading whose call is dropped or fails is unchanged and can continue.

mod bulk;
mod extremes;
mod plan;
#[cfg(test)]
mod tests;

use super::super::strike::is_true;
use super::bound_query::BoundQuery;
use super::contained::{Contained, ContainedRows};
use super::fetch::{Range, Requests};
use super::found_rows::{FoundRows, arrow, rows_of_units, units};
use super::portion::{PlannedBand, Progress, enough};
use super::ready::ReadyRows;
use super::source::{CandidatePiece, Source, in_object, pieces};
use super::{Table, TableError, Work};
use crate::block::Wanted;
use crate::cube::Origins;
use crate::part::BandOfRows;
use crate::planted::{self, Bug};
use crate::protocol::Manifest;
use crate::{Cut, Weight};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use bulk::BULK_BYTES;
pub(super) use plan::Reach;
use plan::Waiting;
use std::sync::Arc;

/// A query in progress, on one version.
pub(super) struct Reading {
    table: Table,
    asked: BoundQuery,
    /// The columns that are kept of matching rows.
    schema: SchemaRef,
    /// Pieces not opened yet, and layers of opened ones that are not planned yet.
    waiting: Waiting,
    /// Which pieces are contained in the query, if that was asked for.
    contained: Option<Contained>,
    sources: Vec<Source>,
    /// In reading order.
    planned: Vec<PlannedBand>,
    /// How many of the planned bands have been read.
    read: usize,
    /// Rows known to match without being read.
    counted: u64,
    /// Rows found but not ready yet.
    found: Vec<FoundRows>,
    /// Rows that are sorted but not handed over yet.
    ready: ReadyRows,
    handed_rows: usize,
    handed_units: usize,
    is_over: bool,
    work: Work,
    /// Requests for rows in earlier rounds of an answer that is handed over as a whole.
    taken: u64,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of_bands = format_args!("{} of {} bands", self.read, self.planned.len());
        formatter.debug_struct("Reading").field("read", &of_bands).finish_non_exhaustive()
    }
}

/// What would be read next, judging by the directories alone.
pub(super) struct ToRead {
    pub(super) bands: u64,
    pub(super) rows: u64,
    pub(super) rows_expected: u64,
    pub(super) bytes: u64,
    pub(super) requests: u64,
    pub(super) cut: Cut,
    pub(super) may_go_on: bool,
}

/// Rows handed over.
pub(super) struct HandedRows {
    pub(super) rows: RecordBatch,
    pub(super) weights: Vec<Weight>,
    /// Every matching row below this cut has been handed over, now or earlier.
    pub(super) cut: Cut,
    /// Whether each row is contained, if that was asked for.
    pub(super) contained: Vec<bool>,
}

impl Reading {
    /// Opens the pieces that can match and plans the bands to read. If only some of the lightest rows are
    /// wanted, this happens step by step while they are searched.
    pub(super) async fn open(
        table: &Table,
        mut asked: BoundQuery,
        manifest: &Manifest,
        reach: Reach,
    ) -> Result<Self, TableError> {
        let work = Work { blocks: manifest.pieces.len() as u64, ..Work::default() };
        let contained = asked.tells_contained.then(|| Contained::of(&asked, manifest));
        let mut pieces = pieces(table, &mut asked, manifest)?;
        let mut counted = 0;
        if asked.only_counts() {
            let (whole, rest): (Vec<CandidatePiece>, _) =
                pieces.into_iter().partition(|piece| piece.answers_whole(&asked));
            counted = whole.iter().map(|piece| piece.rows).fold(0, u64::saturating_add);
            pieces = rest;
        }
        let fields = table.schema.columns().fields();
        let needed = asked.columns[..asked.needed].iter();
        let fields: Vec<_> = needed.map(|&place| Arc::clone(&fields[place])).collect();
        let mut reading = Self {
            table: table.clone(),
            asked,
            schema: Arc::new(Schema::new(fields)),
            waiting: Waiting::new(pieces),
            contained,
            sources: Vec::new(),
            planned: Vec::new(),
            read: 0,
            counted,
            found: Vec::new(),
            ready: ReadyRows::default(),
            handed_rows: 0,
            handed_units: 0,
            is_over: false,
            work,
            taken: 0,
        };
        if reach == Reach::Everything && !reading.opens_in_portions() {
            reading.plan_all().await?;
        }
        Ok(reading)
    }

    /// Work spent so far.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// The contained rows, with those of the last rows handed over marked.
    pub(super) fn contained_rows(&self, of_rows: Vec<bool>) -> ContainedRows {
        ContainedRows { total: self.contained.as_ref().map_or(0, Contained::rows), of_rows }
    }

    /// Whether each of some rows, given by their pieces, is contained; nothing if that was not asked for.
    fn contained_of(&self, pieces: impl Iterator<Item = u64>) -> Vec<bool> {
        self.contained
            .as_ref()
            .map_or_else(Vec::new, |contained| pieces.map(|piece| contained.has(piece)).collect())
    }

    /// Whether nothing more will be handed over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Number of rows handed over.
    pub(super) fn handed_rows(&self) -> usize {
        self.handed_rows
    }

    /// The cut below which every matching row has been found.
    fn known(&self) -> Cut {
        if planted::is(Bug::LimitBeforeOrder) {
            return self.asked.window.until();
        }
        self.cut_before(self.read)
    }

    /// The cut below which all rows are in the planned bands before an index.
    fn cut_before(&self, place: usize) -> Cut {
        let next = self.planned.get(place).map(|next| next.least);
        let next = next.into_iter().chain(self.waiting.lightest()).min();
        next.map_or(self.asked.window.until(), Cut::below)
    }

    /// Whether there is nothing more to read.
    fn is_exhausted(&self) -> bool {
        self.read == self.planned.len() && self.waiting.lightest().is_none()
    }

    /// Reads until `rows` rows are known, or all that the query asks for.
    pub(super) async fn read_toward(&mut self, rows: Option<usize>) -> Result<(), TableError> {
        let limit = [rows, self.asked.limit].into_iter().flatten().min();
        while !self.is_exhausted() && !self.is_enough(limit) {
            self.plan_toward(limit).await?;
            let to = self.bands_within(self.next(limit), BULK_BYTES);
            let before = self.work.requests;
            if self.asked.only_counts() {
                // Rows are only counted: not even their weights are needed, since no order was requested.
                self.read_bulk(to, false).await?;
            } else {
                self.read_to(to).await?;
            }
            // Whoever asks for some rows at a time is answered by each call, and each answer has requests of
            // its own: reading on must not cost more bytes than reading everything at once.
            self.taken += if rows.is_none() { self.work.requests - before } else { 0 };
        }
        Ok(())
    }

    /// Approximate number of rows that must be below the cut of the next read; `None` if all must be read.
    fn rows_wanted(&self, limit: Option<usize>) -> Option<f64> {
        let touched = self.work.rows_touched;
        // Rows that were counted without being read need not be found.
        let counted = usize::try_from(self.counted).unwrap_or(usize::MAX);
        let rows = limit.map(|wanted| (wanted.saturating_sub(counted), self.rows_below(Cut::ALL)));
        let units = self.asked.units.map(|wanted| (wanted, self.units_below(Cut::ALL)));
        let goals = [rows, units].into_iter().flatten();
        goals.map(|(wanted, found)| Progress { wanted, found, touched }.rows()).min_by(f64::total_cmp)
    }

    /// The end of the planned bands to read next.
    fn next(&self, limit: Option<usize>) -> usize {
        let ready = self.ready();
        let enough = |wanted| enough(&self.planned[..ready], self.read, wanted);
        self.rows_wanted(limit).map_or(ready, enough)
    }

    /// Describes what would be read next.
    pub(super) async fn what_next(&mut self) -> Result<ToRead, TableError> {
        self.plan_toward(self.asked.limit).await?;
        let is_enough = self.is_enough(self.asked.limit);
        let to = if is_enough { self.read } else { self.next(self.asked.limit) };
        let planned = &self.planned[self.read..to];
        let ranges: Vec<Range> = planned.iter().flat_map(|planned| self.ranges(planned)).collect();
        let requests = Requests::of(&ranges, self.taken);
        Ok(ToRead {
            bands: planned.len() as u64,
            rows: planned.iter().map(|planned| planned.decoded).fold(0, u64::saturating_add),
            rows_expected: planned.iter().map(|planned| planned.expected).sum::<f64>().round() as u64,
            bytes: requests.bytes(),
            requests: requests.merged.len() as u64,
            cut: self.cut_before(to),
            may_go_on: !is_enough && (to < self.planned.len() || self.waiting.lightest().is_some()),
        })
    }

    /// The columns to read, by index in the table.
    pub(super) fn columns(&self) -> &[usize] {
        &self.asked.columns
    }

    /// Number of blocks opened.
    pub(super) fn opened(&self) -> u64 {
        self.sources.len() as u64
    }

    /// Number of bands in them.
    pub(super) fn bands_seen(&self) -> u64 {
        self.sources.iter().map(|source| source.part.band_count() as u64).sum()
    }

    fn is_enough(&self, limit: Option<usize>) -> bool {
        // For a count it does not matter which rows these are.
        let known = if self.asked.only_counts() { Cut::ALL } else { self.known() };
        let rows = |cut| self.counted.saturating_add(self.rows_below(cut) as u64);
        limit.is_some_and(|limit| rows(known) >= limit as u64)
            || self.asked.units.is_some_and(|units| self.units_below(known) >= units)
    }

    /// Number of matching rows below a cut that is not below the known one, as far as they have been found.
    fn rows_below(&self, cut: Cut) -> usize {
        let below = self.found.iter().map(|found| cut.prefix(&found.weights)).sum::<usize>();
        self.handed_rows + self.ready.rows() + below
    }

    fn units_below(&self, cut: Cut) -> usize {
        let below = self.found.iter().map(|found| &found.weights[..cut.prefix(&found.weights)]);
        self.handed_units + self.ready.units() + units(below)
    }

    /// The columns to read of a band.
    fn columns_of(&self, planned: &PlannedBand) -> &[usize] {
        self.columns_if(planned.is_certain)
    }

    /// The columns to read of a band whose rows are certain to match, or of one whose rows are not.
    fn columns_if(&self, is_certain: bool) -> &[usize] {
        if is_certain { &self.asked.columns[..self.asked.needed] } else { &self.asked.columns }
    }

    /// The ranges of a band's slices.
    fn ranges(&self, planned: &PlannedBand) -> impl Iterator<Item = Range> {
        let source = &self.sources[planned.source];
        let object = source.object;
        let slices = source.part.slices(planned.band, self.columns_of(planned), source.with_origins());
        slices.into_iter().map(move |(from, bytes)| Range { object, from, to: from + bytes })
    }

    /// Reads the planned bands up to an index, all at once.
    async fn read_to(&mut self, to: usize) -> Result<(), TableError> {
        let found = self.read_rising(to).await?;
        self.found.extend(found);
        let skipped = planted::is(Bug::BandSkipped) && self.read > 0 && to < self.planned.len();
        self.read = to + usize::from(skipped);
        Ok(())
    }

    /// The matching rows of a band, from the bytes of its slices.
    fn decode(
        &self,
        planned: &PlannedBand,
        slices: &[impl AsRef<[u8]>],
    ) -> Result<Option<FoundRows>, TableError> {
        let source = &self.sources[planned.source];
        let columns = self.columns_of(planned);
        let wanted = Wanted { window: planned.window(), columns, rows: planned.rows };
        let found = source.part.rows(planned.band, wanted, source.with_origins(), slices);
        let BandOfRows { mut rows, mut weights, origins } =
            found.map_err(|error| in_object(source.object, error))?;
        let there = source.part.column_count();
        rows = self.table.schema.widened(rows, columns, there).map_err(arrow)?;
        if !planned.is_certain {
            let kept = self.kept(source, &rows, origins.as_ref())?;
            rows = rows.project(&(0..self.asked.needed).collect::<Vec<_>>()).map_err(arrow)?;
            if kept.count_set_bits() < rows.num_rows() {
                weights = kept.set_indices().map(|row| weights[row]).collect();
                rows = filter_record_batch(&rows, &BooleanArray::new(kept, None)).map_err(arrow)?;
            }
        }
        Ok((!weights.is_empty()).then_some(FoundRows { rows, weights, lies_at: Vec::new() }))
    }

    /// Which rows of a band satisfy the filter and are not struck.
    fn kept(
        &self,
        source: &Source,
        rows: &RecordBatch,
        origins: Option<&Origins>,
    ) -> Result<BooleanBuffer, TableError> {
        let mut kept = match &self.asked.filter {
            None => BooleanBuffer::new_set(rows.num_rows()),
            Some(filter) => is_true(&filter.evaluate(rows)?),
        };
        for struck in &source.struck {
            kept = &kept & &!&struck.strikes(rows, origins)?;
        }
        Ok(kept)
    }

    /// Number of matching rows.
    pub(super) fn count(&self) -> u64 {
        let found = match self.asked.units {
            None => self.rows_below(Cut::ALL),
            Some(units) => {
                let weights = self.found.iter().flat_map(|found| &found.weights);
                let mut weights: Vec<Weight> = weights.copied().collect();
                weights.sort_unstable();
                rows_of_units(&weights, units)
            }
        };
        let rows = self.counted.saturating_add(found as u64);
        self.asked.limit.map_or(rows, |limit| rows.min(limit as u64))
    }

    /// Hands over the known rows that were not handed over yet, in the order of (weight, id): about `rows`
    /// rows at most, but always whole units, and no more than the query asks for. On an error nothing is
    /// handed over, and all rows wait for the next call.
    pub(super) fn hand_over(&mut self, rows: Option<usize>) -> Result<HandedRows, TableError> {
        let known = self.known();
        let id = self.asked.id(&self.table.schema);
        let earlier = self.ready.take_known(&mut self.found, known, &self.schema, &id)?;
        let handed = match self.portion(known, rows) {
            Ok(handed) => handed,
            Err(error) => {
                self.ready.give_back(&earlier, &mut self.found);
                return Err(error);
            }
        };
        let portion = handed.weights.len();
        self.ready.remove_first(portion);
        self.handed_rows += portion;
        self.handed_units += units(std::iter::once(&handed.weights[..]));
        self.is_over = (self.ready.rows() == 0 && self.is_exhausted())
            || self.asked.limit.is_some_and(|limit| self.handed_rows >= limit)
            || self.asked.units.is_some_and(|units| self.handed_units >= units);
        Ok(handed)
    }

    /// The next portion of the rows that are ready.
    fn portion(&self, known: Cut, rows: Option<usize>) -> Result<HandedRows, TableError> {
        let weights = self.ready.weights();
        let portion = rows.map_or(weights.len(), |rows| whole_units(weights, rows));
        let of_limit = self.asked.limit.map(|limit| limit - self.handed_rows);
        let portion = of_limit.map_or(portion, |limit| portion.min(limit));
        // Counts the units of no more rows than these, of however many are ready.
        let of_units =
            self.asked.units.map(|units| rows_of_units(&weights[..portion], units - self.handed_units));
        let portion = of_units.unwrap_or(portion);
        let mut cut = weights.get(portion).map_or(known, |next| Cut::below(*next));
        if planted::is(Bug::CutTooHigh) {
            cut = self.asked.window.until();
        }
        let rows = self.ready.batch(0..portion, &self.schema, &self.asked.answered)?;
        let contained = self.contained_of(self.ready.pieces(0..portion));
        Ok(HandedRows { rows, weights: weights[..portion].to_vec(), cut, contained })
    }
}

/// Length of a prefix of these weights, in rising order, with at least `rows` rows and only whole units.
pub(super) fn whole_units(rising: &[Weight], rows: usize) -> usize {
    if planted::is(Bug::UnitSplit) {
        return rows.min(rising.len());
    }
    let last = rows.max(1).min(rising.len()).checked_sub(1);
    last.map_or(0, |last| Cut::through(rising[last]).prefix(rising))
}
