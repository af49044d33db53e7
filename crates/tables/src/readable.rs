//! What can be asked: a table, or several as one.
//!
//! Invariant: whatever is here answers alike for a table with all rows and for several that share them.

mod scanning;

pub use scanning::Scanning;

use crate::expression::Expression;
use crate::protocol::Version;
use crate::table::runs_where;
use crate::{
    Answer, Count, Explanation, Query, QuerySplit, Refined, Refinement, RunSummary, StepSummary, Table,
    TableError, TableInfo, TableSchema, Union, UnionRefinement,
};
use std::sync::Arc;
use std::time::Duration;

/// A table, or several as one.
#[derive(Clone, Debug)]
pub enum Readable {
    /// A table.
    One(Table),
    /// Several of one schema.
    Many(Union),
}

/// The answer of a [`Readable`] batch by batch.
#[derive(Debug)]
pub enum Refining {
    /// Of a table.
    One(Box<Refinement>),
    /// Of several.
    Many(Box<UnionRefinement>),
}

impl Readable {
    /// Its name; of several, the first one's.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::One(table) => table.name(),
            Self::Many(union) => union.name(),
        }
    }

    /// The tables that it is.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        match self {
            Self::One(table) => std::slice::from_ref(table),
            Self::Many(union) => union.tables(),
        }
    }

    /// The first of the tables: names and columns are the same in all.
    pub(crate) fn first(&self) -> Result<&Table, TableError> {
        self.tables().first().ok_or(TableError::Unlike { place: 1 })
    }

    /// As [`Readable::first`], with the columns that somebody else added meanwhile.
    pub(crate) async fn first_now(&self) -> Result<Table, TableError> {
        match self {
            Self::One(table) => {
                table.schema_now().await?;
                Ok(table.clone())
            }
            Self::Many(union) => match union.now().await {
                // Versions before have no such column, and a query of those that do is told.
                Err(TableError::UnlikeColumn { .. }) => union.first().cloned(),
                now => now?.first().cloned(),
            },
        }
    }

    /// The columns and their roles.
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

    /// What answering a query would read.
    ///
    /// # Errors
    /// As [`Table::explain`] and [`Union::explain`].
    pub async fn explain(&self, query: &Query) -> Result<Explanation, TableError> {
        match self {
            Self::One(table) => table.explain(query).await,
            Self::Many(union) => union.explain(query).await,
        }
    }

    /// A query divided among about so many readers.
    ///
    /// # Errors
    /// As [`Table::splits`] and [`Union::splits`].
    pub async fn splits(&self, query: &Query, readers: usize) -> Result<Vec<QuerySplit>, TableError> {
        match self {
            Self::One(table) => table.splits(query, readers).await,
            Self::Many(union) => union.splits(query, readers).await,
        }
    }

    /// What it is made of.
    ///
    /// # Errors
    /// As [`Table::info`] and [`Union::info`].
    pub async fn info(&self) -> Result<TableInfo, TableError> {
        match self {
            Self::One(table) => table.info().await,
            Self::Many(union) => union.info().await,
        }
    }

    /// The answer to a query batch by batch, the lightest rows first.
    #[must_use]
    pub fn refine(&self, query: &Query) -> Refining {
        match self {
            Self::One(table) => Refining::One(Box::new(table.refine(query))),
            Self::Many(union) => Refining::Many(Box::new(union.refine(query))),
        }
    }

    /// Waits for a version after `since`, or so long; the version that is current then.
    ///
    /// # Errors
    /// As [`Table::follow`] and [`Union::follow`].
    pub async fn follow(&self, since: Version, wait: Duration) -> Result<Version, TableError> {
        match self {
            Self::One(table) => table.follow(since, wait).await,
            Self::Many(union) => union.follow(since, wait).await,
        }
    }

    /// The runs of all tables, one table's after the other's.
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

    /// The runs whose attributes satisfy a condition, one table's after the other's. What one table's runs
    /// lack and another's have is null there, as in one table.
    ///
    /// # Errors
    /// As [`Table::runs_where`], of the runs of all tables together.
    pub async fn runs_where(&self, condition: &Expression) -> Result<Vec<RunSummary>, TableError> {
        Ok(self.runs_where_of_each(condition).await?.into_iter().flatten().collect())
    }

    /// As [`Readable::runs_where`], those of each table by itself: runs of one name in two tables are two.
    ///
    /// # Errors
    /// As [`Readable::runs_where`].
    pub async fn runs_where_of_each(
        &self,
        condition: &Expression,
    ) -> Result<Vec<Vec<RunSummary>>, TableError> {
        runs_where(self.tables(), condition).await
    }

    /// The visible steps of a run, or of all, one table's after the other's. Of several tables, those that
    /// have the run.
    ///
    /// # Errors
    /// As [`Table::steps`]; [`TableError::NoRun`] where no table has the run.
    pub async fn steps(&self, run: Option<&str>) -> Result<Vec<StepSummary>, TableError> {
        self.steps_from(run, 0).await
    }

    /// As [`Readable::steps`], but for those before a step.
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

    /// The last visible step of a run, in whichever table.
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
    /// Asks for at least so many rows in the next batch.
    pub fn want(&mut self, rows: usize) {
        match self {
            Self::One(refinement) => refinement.want(rows),
            Self::Many(refinement) => refinement.want(rows),
        }
    }

    /// The next batch; none after the last.
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
