//! Readables: what a query can be asked of, either one table or several as one.
//!
//! Invariant: several tables that divide rows among them answer like a single table with all of these rows.

mod scanning;

pub use scanning::Scanning;

use crate::expression::{Column, Expression};
use crate::protocol::Version;
use crate::table::{ContainedRows, End, KnownCount, Spread, runs_where};
use crate::{
    Answer, Count, Explanation, Extreme, Query, QuerySplit, Refined, Refinement, RunSummary, StepSummary,
    Table, TableError, TableInfo, TableSchema, Union, UnionRefinement,
};
use std::sync::Arc;
use std::time::Duration;

/// One table, or several as one.
#[derive(Clone, Debug)]
pub enum Readable {
    /// A single table.
    One(Table),
    /// Several tables of one schema.
    Many(Union),
}

/// The answer of a [`Readable`], one batch at a time.
#[derive(Debug)]
pub enum Refining {
    /// Of a single table.
    One(Box<Refinement>),
    /// Of several tables.
    Many(Box<UnionRefinement>),
}

impl Readable {
    /// Name of the table; of several, the name of the first.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::One(table) => table.name(),
            Self::Many(union) => union.name(),
        }
    }

    /// The underlying tables.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        match self {
            Self::One(table) => std::slice::from_ref(table),
            Self::Many(union) => union.tables(),
        }
    }

    /// The first table. Names and columns are the same in all of them.
    pub(crate) fn first(&self) -> Result<&Table, TableError> {
        self.tables().first().ok_or(TableError::Unlike { place: 1 })
    }

    /// Like [`Readable::first`], including columns that other processes have added in the meantime.
    pub(crate) async fn first_now(&self) -> Result<Table, TableError> {
        match self {
            Self::One(table) => {
                table.schema_now().await?;
                Ok(table.clone())
            }
            Self::Many(union) => match union.now().await {
                // Earlier versions do not have the column; a query of a version that does reports the error.
                Err(TableError::UnlikeColumn { .. }) => union.first().cloned(),
                now => now?.first().cloned(),
            },
        }
    }

    /// Columns and their roles.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        match self {
            Self::One(table) => table.schema(),
            Self::Many(union) => union.schema(),
        }
    }

    /// The version that is current now.
    ///
    /// # Errors
    /// As [`Table::version`].
    pub async fn version(&self) -> Result<Version, TableError> {
        match self {
            Self::One(table) => table.version().await,
            Self::Many(union) => union.version().await,
        }
    }

    /// The current version. A union keeps it readable while the second value lives.
    pub(crate) async fn hold(&self) -> Result<(Version, Option<Arc<[Version]>>), TableError> {
        match self {
            Self::One(table) => Ok((table.version().await?, None)),
            Self::Many(union) => union.hold().await.map(|(version, held)| (version, Some(held))),
        }
    }

    /// Answers a query.
    ///
    /// # Errors
    /// As [`Table::query`] and [`Union::query`].
    pub async fn query(&self, query: &Query) -> Result<Answer, TableError> {
        match self {
            Self::One(table) => table.query(query).await,
            Self::Many(union) => union.query(query).await,
        }
    }

    /// Counts the rows of a query.
    ///
    /// # Errors
    /// As [`Table::count`] and [`Union::count`].
    pub async fn count(&self, query: &Query) -> Result<Count, TableError> {
        match self {
            Self::One(table) => table.count(query).await,
            Self::Many(union) => union.count(query).await,
        }
    }

    /// Answers a query, and tells of each row whether it lies in a part of the table that matches as a whole;
    /// of several tables nothing is told.
    ///
    /// # Errors
    /// As [`Readable::query`].
    pub(crate) async fn query_in_parts(&self, query: &Query) -> Result<(Answer, ContainedRows), TableError> {
        match self {
            Self::One(table) => table.query_in_parts(query).await,
            Self::Many(union) => Ok((union.query(query).await?, ContainedRows::default())),
        }
    }

    /// Counts the rows of a query exactly, if that takes few directories and decodes at most `rows_max` rows;
    /// if this is 0, without reading anything.
    ///
    /// # Errors
    /// As [`Readable::count`].
    pub(crate) async fn count_if_cheap(
        &self,
        query: &Query,
        rows_max: u64,
    ) -> Result<KnownCount, TableError> {
        match self {
            Self::One(table) => table.count_if_cheap(query, rows_max).await,
            Self::Many(union) => union.count_if_cheap(query, rows_max).await,
        }
    }

    /// How far apart the weights of a query's rows lie, and how many rows there are at most, as
    /// [`Table::spread`].
    ///
    /// # Errors
    /// As [`Readable::count`].
    pub(crate) async fn spread(&self, query: &Query, width_min: f64) -> Result<Spread, TableError> {
        match self {
            Self::One(table) => table.spread(query, width_min).await,
            Self::Many(union) => union.spread(query, width_min).await,
        }
    }

    /// The least value of a column of numbers or times among the rows of a query, exactly.
    ///
    /// # Errors
    /// As [`Table::minimum`] and [`Union::query`].
    pub async fn minimum(&self, query: &Query, column: &Column) -> Result<Extreme, TableError> {
        self.extreme(query, column, End::Least).await
    }

    /// The greatest value of a column of numbers or times among the rows of a query, exactly.
    ///
    /// # Errors
    /// As [`Table::minimum`] and [`Union::query`].
    pub async fn maximum(&self, query: &Query, column: &Column) -> Result<Extreme, TableError> {
        self.extreme(query, column, End::Greatest).await
    }

    async fn extreme(&self, query: &Query, column: &Column, end: End) -> Result<Extreme, TableError> {
        match self {
            Self::One(table) => table.extreme(query, column, end).await,
            Self::Many(union) => union.extreme(query, column, end).await,
        }
    }

    /// Describes what answering a query would read, without reading it.
    ///
    /// # Errors
    /// As [`Table::explain`] and [`Union::explain`].
    pub async fn explain(&self, query: &Query) -> Result<Explanation, TableError> {
        match self {
            Self::One(table) => table.explain(query).await,
            Self::Many(union) => union.explain(query).await,
        }
    }

    /// Divides a query among `readers` readers.
    ///
    /// # Errors
    /// As [`Table::splits`] and [`Union::splits`].
    pub async fn splits(&self, query: &Query, readers: usize) -> Result<Vec<QuerySplit>, TableError> {
        match self {
            Self::One(table) => table.splits(query, readers).await,
            Self::Many(union) => union.splits(query, readers).await,
        }
    }

    /// What the table consists of: its size, pieces and versions.
    ///
    /// # Errors
    /// As [`Table::info`] and [`Union::info`].
    pub async fn info(&self) -> Result<TableInfo, TableError> {
        match self {
            Self::One(table) => table.info().await,
            Self::Many(union) => union.info().await,
        }
    }

    /// The answer to a query in batches, lightest rows first.
    #[must_use]
    pub fn refine(&self, query: &Query) -> Refining {
        match self {
            Self::One(table) => Refining::One(Box::new(table.refine(query))),
            Self::Many(union) => Refining::Many(Box::new(union.refine(query))),
        }
    }

    /// Waits for a version after `since`, at most for `wait`; returns the version that is current then.
    ///
    /// # Errors
    /// As [`Table::follow`] and [`Union::follow`].
    pub async fn follow(&self, since: Version, wait: Duration) -> Result<Version, TableError> {
        match self {
            Self::One(table) => table.follow(since, wait).await,
            Self::Many(union) => union.follow(since, wait).await,
        }
    }

    /// The runs of all tables, table by table.
    ///
    /// # Errors
    /// As [`Table::runs`].
    pub async fn runs(&self) -> Result<Vec<RunSummary>, TableError> {
        let mut runs = Vec::new();
        for table in self.tables() {
            runs.extend(table.runs().await?);
        }
        Ok(runs)
    }

    /// The runs whose attributes satisfy a condition, table by table. An attribute that only other tables'
    /// runs have is null, as it is within one table.
    ///
    /// # Errors
    /// As [`Table::runs_where`], of the runs of all tables together.
    pub async fn runs_where(&self, condition: &Expression) -> Result<Vec<RunSummary>, TableError> {
        Ok(self.runs_where_of_each(condition).await?.into_iter().flatten().collect())
    }

    /// Like [`Readable::runs_where`], with one list per table: runs of the same name in two tables are
    /// distinct.
    ///
    /// # Errors
    /// As [`Readable::runs_where`].
    pub async fn runs_where_of_each(
        &self,
        condition: &Expression,
    ) -> Result<Vec<Vec<RunSummary>>, TableError> {
        runs_where(self.tables(), condition).await
    }

    /// The visible steps of one run, or of all runs, table by table. Tables that do not have the run are
    /// skipped.
    ///
    /// # Errors
    /// As [`Table::steps`]; [`TableError::NoRun`] where no table has the run.
    pub async fn steps(&self, run: Option<&str>) -> Result<Vec<StepSummary>, TableError> {
        self.steps_from(run, 0).await
    }

    /// Like [`Readable::steps`], from step `first` on.
    ///
    /// # Errors
    /// As [`Readable::steps`].
    pub async fn steps_from(&self, run: Option<&str>, first: u64) -> Result<Vec<StepSummary>, TableError> {
        let (mut steps, mut refusal, mut has_some) = (Vec::new(), None, false);
        for table in self.tables() {
            match table.steps_from(run, first).await {
                Ok(found) => {
                    has_some = true;
                    steps.extend(found);
                }
                Err(error @ TableError::NoRun { .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        match refusal {
            Some(error) if !has_some => Err(error),
            _ => Ok(steps),
        }
    }

    /// The last visible step of a run in any of the tables.
    ///
    /// # Errors
    /// As [`Table::last_complete`].
    pub async fn last_complete(&self, run: &str) -> Result<Option<u64>, TableError> {
        let mut last = None;
        for table in self.tables() {
            last = last.max(table.last_complete(run).await?);
        }
        Ok(last)
    }
}

impl Refining {
    /// The same answer, telling of each row whether it lies in a part of the table that matches as a whole.
    #[must_use]
    pub(crate) fn telling_contained(self) -> Self {
        match self {
            Self::One(refinement) => Self::One(Box::new(refinement.telling_contained())),
            several @ Self::Many(_) => several,
        }
    }

    /// The rows of the last batch that lie in such parts; `None` if nothing is told of them.
    pub(crate) fn contained(&self) -> Option<&ContainedRows> {
        match self {
            Self::One(refinement) => Some(refinement.contained()).filter(|contained| contained.total > 0),
            Self::Many(_) => None,
        }
    }

    /// Requests at least `rows` rows in the next batch.
    pub fn want(&mut self, rows: usize) {
        match self {
            Self::One(refinement) => refinement.want(rows),
            Self::Many(refinement) => refinement.want(rows),
        }
    }

    /// The next batch; `None` after the last.
    ///
    /// # Errors
    /// As [`Refinement::next`] and [`UnionRefinement::next`].
    pub async fn next(&mut self) -> Result<Option<Refined>, TableError> {
        match self {
            Self::One(refinement) => refinement.next().await,
            Self::Many(refinement) => refinement.next().await,
        }
    }
}
