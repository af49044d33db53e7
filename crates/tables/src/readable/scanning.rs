//! Unordered scans: all rows of a query, of one table or several, in batches of bounded size.
//!
//! Invariant: all batches come from one version.

use super::Readable;
use crate::protocol::Version;
use crate::table::{Restarts, sum_of};
use crate::{Batches, Query, TableError, Union, Work};
use arrow_array::RecordBatch;

/// The rows of a query of a [`Readable`] in batches, in no particular order.
#[derive(Debug)]
pub struct Scanning {
    of: Readable,
    query: Query,
    /// What is left to read of each table, the current one last; `None` before the first batch.
    left: Option<Vec<Batches>>,
    version: Option<Version>,
    /// The union in the version being read, whose notes the batches have; `None` for a single table.
    union: Option<Union>,
    /// Work spent on tables that are finished.
    done: Work,
    has_begun: bool,
    restarts: Restarts,
}

impl Readable {
    /// The answer to a query in batches of bounded size, in no particular order. Reads nothing yet.
    ///
    /// A query with a limit on rows or units comes in one batch, since only the order determines which rows
    /// those are.
    #[must_use]
    pub fn batches(&self, query: &Query) -> Scanning {
        Scanning {
            of: self.clone(),
            query: query.clone(),
            left: None,
            version: None,
            union: None,
            done: Work::default(),
            has_begun: false,
            restarts: Restarts::default(),
        }
    }
}

impl Scanning {
    /// The next batch, which has at least one row; `None` after the last.
    ///
    /// A call that fails, or is dropped while it waits, loses no rows: the next call continues from the same
    /// place.
    ///
    /// # Errors
    /// As [`Batches::next`] and [`Union::query`](crate::Union::query).
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, TableError> {
        loop {
            match self.next_once().await {
                Err(error) if error.is_version_gone() && self.may_restart() => self.left = None,
                Ok(batch) => {
                    self.has_begun |= batch.is_some();
                    return Ok(batch);
                }
                Err(error) => return Err(self.rewrite_error(error)),
            }
        }
    }

    /// Whether the scan may restart in the version that is current by then, because no row was handed out
    /// yet.
    fn may_restart(&mut self) -> bool {
        !self.has_begun && self.query.as_of.is_none() && self.restarts.take()
    }

    /// Rewrites an error for the caller: it must not name a version of a single table that the caller never
    /// asked for.
    fn rewrite_error(&self, error: TableError) -> TableError {
        match (&self.of, self.version.or(self.query.as_of)) {
            (Readable::Many(union), Some(version)) => union.rewrite_error(error, version),
            _ => error,
        }
    }

    async fn next_once(&mut self) -> Result<Option<RecordBatch>, TableError> {
        if self.left.is_none() {
            self.left = Some(match &self.of {
                Readable::One(table) => vec![table.batches(&self.query)],
                Readable::Many(_) if self.query.is_cut_short() => return self.all_at_once().await,
                Readable::Many(union) => {
                    let (union, version, mut of_each) = union.batches_of_each(&self.query).await?;
                    (self.union, self.version) = (Some(union), Some(version));
                    of_each.reverse();
                    of_each
                }
            });
        }
        let Some(left) = &mut self.left else { return Ok(None) };
        while let Some(batches) = left.last_mut() {
            let batch = batches.next().await?;
            if let Readable::One(_) = self.of {
                self.version = Some(batches.version());
            }
            if let Some(rows) = batch {
                let noted = self.union.as_ref().map(|union| union.with_notes(&rows));
                return Ok(Some(noted.transpose()?.unwrap_or(rows)));
            }
            self.done = sum_of(self.done, batches.work());
            left.pop();
        }
        Ok(None)
    }

    /// Reads all at once, for a query of several tables whose rows are determined by their order.
    async fn all_at_once(&mut self) -> Result<Option<RecordBatch>, TableError> {
        let answer = self.of.query(&self.query).await?;
        (self.version, self.done, self.left) = (Some(answer.version), answer.work, Some(Vec::new()));
        Ok((answer.rows.num_rows() > 0).then_some(answer.rows))
    }

    /// The version being read; `None` before the first batch was requested.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Work spent so far.
    #[must_use]
    pub fn work(&self) -> Work {
        self.left.iter().flatten().map(Batches::work).fold(self.done, sum_of)
    }
}
