//! Queries: which rows satisfy a filter, which of them are in a sample, and what it took to find them.
//!
//! A query resolves one version, opens what that version names, and then reads, all at once, the slices of
//! the bands that can contribute to the answer. Whether the version names a block or a cube makes no
//! difference: both are parts of objects with bands in weight order ([`source`]).
//!
//! Invariant: pruning uses extents only and leaves out only what cannot match; rows are matched one by one,
//! on stored values.

mod batches;
mod bound_query;
mod bounds;
mod contained;
mod explain;
mod extremes;
#[cfg(test)]
mod failing;
mod fetch;
mod filters;
mod found_rows;
mod known_count;
mod known_weights;
mod of_objects;
mod of_runs;
mod portion;
mod reading;
mod ready;
mod refine;
mod repeats;
mod restart;
mod source;
mod splits;
mod spread;
mod union;

pub use batches::Batches;
pub(crate) use contained::ContainedRows;
pub use explain::{Explanation, Within};
pub(crate) use extremes::End;
pub use extremes::Extreme;
pub(super) use found_rows::arrow;
pub(crate) use known_count::KnownCount;
pub use of_objects::OfObjects;
pub use of_runs::OfRuns;
pub(crate) use refine::BATCH_ROWS_MAX;
pub use refine::{Refined, Refinement};
pub(super) use repeats::{NewIds, Repeats};
pub use splits::QuerySplit;
pub(crate) use spread::Spread;
pub(crate) use union::sum_of;
pub use union::{Union, UnionRefinement};

use super::{Table, TableError};
use crate::expression::{Bound, Expression, Side};
use crate::planted::{self, Bug};
use crate::protocol::{Manifest, Version};
use crate::{Cut, Weight, WeightError, Window};
use arrow_array::RecordBatch;
use bound_query::BoundQuery;
use known_weights::KnownWeights;
use reading::{HandedRows, Reach, Reading};
pub(crate) use restart::{Restarts, restart_if_gone};
use std::sync::Arc;

/// A query of a table. The default selects everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Rows for which this is true; all rows if `None`. A box is a condition too ([`Side::condition`]).
    pub filter: Option<Expression>,
    /// Rows with weights in this window.
    pub window: Window,
    /// At most this many sampling units, the lightest with matching rows, each with all of its rows; no limit
    /// if `None`. Two units of equal weight count as one.
    pub units: Option<usize>,
    /// At most this many rows, the lightest; no limit if `None`.
    pub limit: Option<usize>,
    /// These columns, by name and in this order; all columns if `None`.
    pub columns: Option<Vec<String>>,
    /// Rows that these runs wrote; those of all runs if `None`.
    pub runs: Option<OfRuns>,
    /// Rows of these objects, which come from a split ([`Table::splits`], [`Union::splits`]); those of all
    /// objects if `None`.
    pub objects: Option<OfObjects>,
    /// The version to read; the current one if `None`.
    pub as_of: Option<Version>,
    /// Whether to include the blocks received of steps that are still incomplete, as if these were complete.
    pub with_arriving: bool,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            filter: None,
            window: Window::below(Cut::ALL),
            units: None,
            limit: None,
            columns: None,
            runs: None,
            objects: None,
            as_of: None,
            with_arriving: false,
        }
    }
}

impl Query {
    /// Restricts the query to rows that also satisfy `condition`.
    #[must_use]
    pub fn filter(mut self, condition: Expression) -> Self {
        self.filter = Some(match self.filter.take() {
            None => condition,
            Some(filter) => filter.and(condition),
        });
        self
    }

    /// Restricts the query to rows in a box ([`crate::expression::parse_box`]).
    #[must_use]
    pub fn in_box(self, sides: &[Side]) -> Self {
        sides.iter().filter_map(Side::condition).fold(self, Self::filter)
    }

    /// Restricts the query to a sample: a share of all units.
    ///
    /// # Errors
    /// [`WeightError::NotAShare`] unless `share` is between 0 and 1.
    pub fn sample(self, share: f64) -> Result<Self, WeightError> {
        Ok(Self { window: Window::below(Cut::of_share(share)?), ..self })
    }

    /// Restricts the query to the units from one share of all to another ([`Cut::window`]).
    ///
    /// # Errors
    /// [`WeightError::NotAShare`], [`WeightError::WindowInsideOut`].
    pub fn window(self, from: f64, to: f64) -> Result<Self, WeightError> {
        Ok(Self { window: Cut::window(from, to)?, ..self })
    }

    /// Restricts the query to at most `units` units.
    #[must_use]
    pub fn first(self, units: usize) -> Self {
        Self { units: Some(units), ..self }
    }

    /// Restricts the query to at most `rows` rows.
    #[must_use]
    pub fn limit(self, rows: usize) -> Self {
        Self { limit: Some(rows), ..self }
    }

    /// Selects the columns of the answer.
    #[must_use]
    pub fn select<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        Self { columns: Some(columns.into_iter().map(Into::into).collect()), ..self }
    }

    /// Restricts the query to rows written by one of these runs.
    #[must_use]
    pub fn of_runs(self, runs: OfRuns) -> Self {
        let runs = self.runs.as_ref().map_or_else(|| runs.clone(), |known| known.intersection(&runs));
        Self { runs: Some(runs), ..self }
    }

    /// Reads an older version.
    #[must_use]
    pub fn as_of(self, version: Version) -> Self {
        Self { as_of: Some(version), ..self }
    }

    /// Whether the query limits units or rows, so that its answer depends on the order of all matching rows.
    pub(crate) const fn is_cut_short(&self) -> bool {
        self.units.is_some() || self.limit.is_some()
    }

    /// How far the answer is planned before it is read.
    const fn reach(&self) -> Reach {
        if self.is_cut_short() { Reach::AsNeeded } else { Reach::Everything }
    }

    /// Includes the blocks received of incomplete steps.
    #[must_use]
    pub fn with_arriving(self) -> Self {
        Self { with_arriving: true, ..self }
    }
}

/// The work that an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Work {
    /// Blocks in the version.
    pub blocks: u64,
    /// Bands decoded.
    pub bands: u64,
    /// Rows in those bands.
    pub rows_touched: u64,
    /// Rows in the answer.
    pub rows_returned: u64,
    /// Requests to the store, each for a contiguous range of one object.
    pub requests: u64,
    /// Bytes that the requests returned.
    pub bytes: u64,
}

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The version read.
    pub version: Version,
    /// The rows, ordered by (weight, id).
    pub rows: RecordBatch,
    /// The weight of each row.
    pub weights: Vec<Weight>,
    /// All matching rows with weights below this cut are in the answer: they are a sample with the share
    /// [`Cut::share`]. The answer may have further rows above the cut.
    pub cut: Cut,
    /// The work it took.
    pub work: Work,
}

/// All rows of a query, in no particular order.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// The version read.
    pub version: Version,
    /// The rows, in a few batches; a single empty batch if no row matches.
    pub batches: Vec<RecordBatch>,
    /// The work it took.
    pub work: Work,
}

/// The number of rows of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The version read.
    pub version: Version,
    /// Number of rows.
    pub rows: u64,
    /// The work it took.
    pub work: Work,
}

impl Table {
    /// Answers a query.
    ///
    /// # Errors
    /// [`TableError::Column`] and [`TableError::Filter`] for a query that does not fit the table,
    /// [`TableError::Block`] for damage, errors of the store.
    pub async fn query(&self, query: &Query) -> Result<Answer, TableError> {
        self.restart_if_vacuumed(query, query_of).await
    }

    /// Answers a query, and tells of each row whether it lies in a part of the table that matches as a whole.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub(crate) async fn query_in_parts(&self, query: &Query) -> Result<(Answer, ContainedRows), TableError> {
        self.restart_if_vacuumed(query, |table, query, manifest| answer_of(table, query, manifest, true))
            .await
    }

    /// Answers a query with its rows in storage order, which takes a large answer half the time: weight order
    /// is unrelated to where rows are stored.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn scan(&self, query: &Query) -> Result<Scanned, TableError> {
        self.restart_if_vacuumed(query, scan_of).await
    }

    /// Counts the rows of a query exactly, and reads only what that requires.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn count(&self, query: &Query) -> Result<Count, TableError> {
        self.restart_if_vacuumed(query, count_of).await
    }

    /// Whether a filter determines the weights of matching rows, so that little has to be read.
    pub(crate) fn names_units(&self, filter: &Bound) -> bool {
        KnownWeights::of(&self.schema, filter).is_some()
    }

    /// Runs `act` on the table as of the query's version. If a vacuum removes that version in the meantime
    /// and the query does not ask for it by number, tries again with the next one.
    async fn restart_if_vacuumed<'q, T, F>(
        &'q self,
        query: &'q Query,
        act: impl Fn(Self, &'q Query, Arc<Manifest>) -> F,
    ) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>>,
    {
        let mut restarts = Restarts::default();
        loop {
            let manifest = self.manifest_for(query).await?;
            let version = manifest.version;
            match act(self.at(&manifest)?, query, manifest).await {
                Ok(done) => return Ok(done),
                Err(error) => self.may_restart(query, version, 0, error, &mut restarts).await?,
            }
        }
    }

    /// Decides whether a query that failed may start again: only if a vacuum removed its version, none of its
    /// rows has been handed over, and the current version will do; and only a limited number of times.
    ///
    /// # Errors
    /// The original error, if it may not.
    async fn may_restart(
        &self,
        query: &Query,
        version: Version,
        handed_rows: usize,
        error: TableError,
        restarts: &mut Restarts,
    ) -> Result<(), TableError> {
        let error = self.if_vacuumed(version, error).await;
        let is_gone = matches!(error, TableError::VersionGone { .. });
        let may_begin = is_gone && handed_rows == 0 && query.as_of.is_none() && restarts.take();
        if may_begin { Ok(()) } else { Err(error) }
    }

    /// The manifest of the version that a query reads.
    pub(super) async fn manifest_for(&self, query: &Query) -> Result<Arc<Manifest>, TableError> {
        let manifest = match query.as_of {
            None => match self.ledger.known().filter(|_| planted::is(Bug::StaleState)) {
                Some(stale) => stale.manifest,
                None => self.ledger.current().await?.manifest,
            },
            Some(version) => self.ledger.as_of(version).await?,
        };
        Ok(if query.with_arriving || planted::is(Bug::HalfStepShown) {
            Arc::new(manifest.with_arriving())
        } else {
            manifest
        })
    }
}

async fn query_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Answer, TableError> {
    Ok(answer_of(table, query, manifest, false).await?.0)
}

async fn answer_of(
    table: Table,
    query: &Query,
    manifest: Arc<Manifest>,
    tells_contained: bool,
) -> Result<(Answer, ContainedRows), TableError> {
    let asked = BoundQuery::rows(&table, query)?.telling_contained(tells_contained);
    let mut reading = Reading::open(&table, asked, &manifest, query.reach()).await?;
    let HandedRows { rows, weights, cut, contained } = if query.units.is_none() && query.limit.is_none() {
        reading.read_whole().await?
    } else {
        reading.read_toward(None).await?;
        reading.hand_over(None)?
    };
    let work = Work { rows_returned: rows.num_rows() as u64, ..reading.work() };
    let answer = Answer { version: manifest.version, rows, weights, cut, work };
    Ok((answer, reading.contained_rows(contained)))
}

async fn scan_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Scanned, TableError> {
    if query.units.is_some() || query.limit.is_some() {
        // Which rows these are depends on their order.
        let Answer { version, rows, work, .. } = query_of(table, query, manifest).await?;
        return Ok(Scanned { version, batches: vec![rows], work });
    }
    let mut reading =
        Reading::open(&table, BoundQuery::rows(&table, query)?, &manifest, Reach::Everything).await?;
    let batches = reading.scan().await?;
    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let work = Work { rows_returned: rows as u64, ..reading.work() };
    Ok(Scanned { version: manifest.version, batches, work })
}

async fn count_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Count, TableError> {
    let mut reading =
        Reading::open(&table, BoundQuery::count(&table, query)?, &manifest, Reach::Everything).await?;
    reading.read_count().await?;
    Ok(Count { version: manifest.version, rows: reading.count(), work: reading.work() })
}
