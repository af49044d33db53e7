//! Asking: which rows satisfy a filter, which of them are in a sample, and what finding them took.
//!
//! A query resolves one version, opens what that version names, and then reads, all at once, the slices of
//! the bands that can answer it. Where the version names a block or a cube makes no difference: both are
//! parts of objects with bands in weight order ([`source`]).
//!
//! Invariant: pruning looks at extents alone and only ever leaves out what cannot answer; what is answered is
//! judged row by row, on stored values.

mod again;
mod asked;
mod batches;
mod bounds;
mod explain;
#[cfg(test)]
mod failing;
mod fetch;
mod filters;
mod found;
mod known;
mod of_objects;
mod of_runs;
mod portion;
mod reading;
mod refine;
mod repeats;
mod source;
mod splits;
mod union;

pub use batches::Batches;
pub use explain::{Explanation, Within};
pub(super) use found::arrow;
pub use of_objects::OfObjects;
pub use of_runs::OfRuns;
pub(crate) use refine::BATCH_ROWS_MAX;
pub use refine::{Refined, Refinement};
pub(super) use repeats::{NewIds, Repeats};
pub use splits::QuerySplit;
pub(crate) use union::sum_of;
pub use union::{Union, UnionRefinement};

use super::{Table, TableError};
use crate::expression::{Bound, Expression, Side};
use crate::planted::{self, Bug};
use crate::protocol::{Manifest, Version};
use crate::{Cut, Weight, WeightError, Window};
pub(crate) use again::{Beginnings, again_if_gone};
use arrow_array::RecordBatch;
use asked::Asked;
use known::Known;
use reading::{Handed, Reach, Reading};
use std::sync::Arc;

/// What is asked of a table. The default asks for everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Rows for which this is true; all for none. A box is a condition too ([`Side::condition`]).
    pub filter: Option<Expression>,
    /// Rows of these weights.
    pub window: Window,
    /// At most so many units of sampling, the lightest that have rows here, each with all of them; all for
    /// none. Two units of one weight count as one.
    pub units: Option<usize>,
    /// At most so many rows, the lightest; all for none.
    pub limit: Option<usize>,
    /// These columns, by name, in this order; all for none.
    pub columns: Option<Vec<String>>,
    /// Rows that these runs wrote; those of all for none.
    pub runs: Option<OfRuns>,
    /// Rows of these objects, which are those of a split ([`Table::splits`], [`Union::splits`]); of all for
    /// none.
    pub objects: Option<OfObjects>,
    /// Of this version; of the one that is current for none.
    pub as_of: Option<Version>,
    /// Whether what has come of steps that are not complete yet is answered as well, as if they were
    /// complete.
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
    /// This query, of the rows that satisfy a condition too.
    #[must_use]
    pub fn filter(mut self, condition: Expression) -> Self {
        self.filter = Some(match self.filter.take() {
            None => condition,
            Some(filter) => filter.and(condition),
        });
        self
    }

    /// This query, of the rows that lie in a box too ([`crate::expression::parse_box`]).
    #[must_use]
    pub fn in_box(self, sides: &[Side]) -> Self {
        sides.iter().filter_map(Side::condition).fold(self, Self::filter)
    }

    /// This query, of a share of all units.
    ///
    /// # Errors
    /// [`WeightError::NotAShare`] unless `share` is from 0 to 1.
    pub fn sample(self, share: f64) -> Result<Self, WeightError> {
        Ok(Self { window: Window::below(Cut::of_share(share)?), ..self })
    }

    /// This query, of the units from one share of all to another ([`Cut::window`]).
    ///
    /// # Errors
    /// [`WeightError::NotAShare`], [`WeightError::WindowInsideOut`].
    pub fn window(self, from: f64, to: f64) -> Result<Self, WeightError> {
        Ok(Self { window: Cut::window(from, to)?, ..self })
    }

    /// This query, of so many units at most.
    #[must_use]
    pub fn first(self, units: usize) -> Self {
        Self { units: Some(units), ..self }
    }

    /// This query, of so many rows at most.
    #[must_use]
    pub fn limit(self, rows: usize) -> Self {
        Self { limit: Some(rows), ..self }
    }

    /// This query, of these columns.
    #[must_use]
    pub fn select<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        Self { columns: Some(columns.into_iter().map(Into::into).collect()), ..self }
    }

    /// This query, of the rows that one of these runs wrote.
    #[must_use]
    pub fn of_runs(self, runs: OfRuns) -> Self {
        let runs = self.runs.as_ref().map_or_else(|| runs.clone(), |known| known.intersection(&runs));
        Self { runs: Some(runs), ..self }
    }

    /// This query, of an older version.
    #[must_use]
    pub fn as_of(self, version: Version) -> Self {
        Self { as_of: Some(version), ..self }
    }

    /// Whether it has a number of units or of rows, so that only the order of all rows tells which are meant.
    pub(crate) const fn is_cut_short(&self) -> bool {
        self.units.is_some() || self.limit.is_some()
    }

    /// How far its answer is planned before it is read.
    const fn reach(&self) -> Reach {
        if self.is_cut_short() { Reach::AsNeeded } else { Reach::Everything }
    }

    /// This query, of what has come of incomplete steps as well.
    #[must_use]
    pub fn with_arriving(self) -> Self {
        Self { with_arriving: true, ..self }
    }
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
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
    /// The weight of each row.
    pub weights: Vec<Weight>,
    /// Every row of the range below this cut is among them: they are its sample of the share
    /// [`Cut::share`], and perhaps some rows more.
    pub cut: Cut,
    /// What it took.
    pub work: Work,
}

/// All rows of a query, in no order.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// The version that was read.
    pub version: Version,
    /// The rows, in a few batches; one of no rows where nothing answers.
    pub batches: Vec<RecordBatch>,
    /// What it took.
    pub work: Work,
}

/// How many rows a query has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The version that was read.
    pub version: Version,
    /// The rows.
    pub rows: u64,
    /// What it took.
    pub work: Work,
}

impl Table {
    /// Answers a query.
    ///
    /// # Errors
    /// [`TableError::Column`] and [`TableError::Filter`] for a query that does not fit the table,
    /// [`TableError::Block`] for damage, errors of the store.
    pub async fn query(&self, query: &Query) -> Result<Answer, TableError> {
        self.again_if_vacuumed(query, query_of).await
    }

    /// Answers a query with its rows in whatever order they lie, which spares a large answer half of its
    /// time: the order is that of weights, and has nothing to do with where rows are kept.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn scan(&self, query: &Query) -> Result<Scanned, TableError> {
        self.again_if_vacuumed(query, scan_of).await
    }

    /// Counts the rows of a query, exactly, and reads only what it must for that.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn count(&self, query: &Query) -> Result<Count, TableError> {
        self.again_if_vacuumed(query, count_of).await
    }

    /// Whether a filter says which weights the rows of its answer have, so that little is read for them.
    pub(crate) fn names_units(&self, filter: &Bound) -> bool {
        Known::of(&self.schema, filter).is_some()
    }

    /// Does something with the table as the version has it that a query is about; again with the next one, if
    /// a vacuum took that away meanwhile and the query is not about just that version.
    async fn again_if_vacuumed<'q, T, F>(
        &'q self,
        query: &'q Query,
        act: impl Fn(Self, &'q Query, Arc<Manifest>) -> F,
    ) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>>,
    {
        let mut beginnings = Beginnings::default();
        loop {
            let manifest = self.manifest_for(query).await?;
            let version = manifest.version;
            match act(self.at(&manifest)?, query, manifest).await {
                Ok(done) => return Ok(done),
                Err(error) => self.may_begin_again(query, version, 0, error, &mut beginnings).await?,
            }
        }
    }

    /// Whether a query whose reading failed may begin again, of which so many rows were handed over: if a
    /// vacuum took its version away, nobody has seen a row of it, and the version that is current now will do
    /// as well; not for ever.
    ///
    /// # Errors
    /// Why it may not.
    async fn may_begin_again(
        &self,
        query: &Query,
        version: Version,
        handed_rows: usize,
        error: TableError,
        beginnings: &mut Beginnings,
    ) -> Result<(), TableError> {
        let error = self.if_vacuumed(version, error).await;
        let is_gone = matches!(error, TableError::VersionGone { .. });
        let may_begin = is_gone && handed_rows == 0 && query.as_of.is_none() && beginnings.take();
        if may_begin { Ok(()) } else { Err(error) }
    }

    /// What the version that a query is about has.
    async fn manifest_for(&self, query: &Query) -> Result<Arc<Manifest>, TableError> {
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
    let mut reading = Reading::open(&table, Asked::rows(&table, query)?, &manifest, query.reach()).await?;
    let Handed { rows, weights, cut } = if query.units.is_none() && query.limit.is_none() {
        reading.read_whole().await?
    } else {
        reading.read_toward(None).await?;
        reading.hand_over(None)?
    };
    let work = Work { rows_returned: rows.num_rows() as u64, ..reading.work() };
    Ok(Answer { version: manifest.version, rows, weights, cut, work })
}

async fn scan_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Scanned, TableError> {
    if query.units.is_some() || query.limit.is_some() {
        // Only their order tells which rows these are.
        let Answer { version, rows, work, .. } = query_of(table, query, manifest).await?;
        return Ok(Scanned { version, batches: vec![rows], work });
    }
    let mut reading =
        Reading::open(&table, Asked::rows(&table, query)?, &manifest, Reach::Everything).await?;
    let batches = reading.scan().await?;
    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let work = Work { rows_returned: rows as u64, ..reading.work() };
    Ok(Scanned { version: manifest.version, batches, work })
}

async fn count_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Count, TableError> {
    let mut reading =
        Reading::open(&table, Asked::count(&table, query)?, &manifest, Reach::Everything).await?;
    reading.read_toward(None).await?;
    Ok(Count { version: manifest.version, rows: reading.count(), work: reading.work() })
}
