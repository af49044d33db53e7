//! Refinements: the rows of a query in weight order, some now and more later.
//!
//! Invariant: a refinement reads one version, the one that was current when rows were first requested.
//! Invariant: no row is handed over twice, and all batches together are the answer to the query.
//! Invariant: all matching rows below the cut have been handed over, so estimates can be based on them.

use super::bound_query::BoundQuery;
use super::contained::ContainedRows;
use super::reading::{HandedRows, Reach, Reading};
use super::{Query, Restarts, Table, TableError, Work};
use crate::protocol::{Manifest, Version};
use crate::{Cut, Weight};
use arrow_array::RecordBatch;
use std::sync::Arc;

/// Approximate size of the first batch, in rows. Each batch is about twice as long as the one before.
pub(super) const BATCH_ROWS_FIRST: usize = 1000;

/// Approximate maximum size of a batch, in rows, unless more are requested.
pub(crate) const BATCH_ROWS_MAX: usize = 256 << 10;

/// A query whose rows come in batches, lightest first.
///
/// Rows that were read but are beyond the cut are kept for later batches. In blocks that were never packed,
/// these may be up to half of all rows. [`Table::batches`] needs less memory, but has no order.
#[derive(Debug)]
pub struct Refinement {
    table: Table,
    query: Query,
    reading: Option<(Version, Reading)>,
    batch_rows: usize,
    wanted: Option<usize>,
    restarts: Restarts,
    tells_contained: bool,
    /// The contained rows of the last batch.
    contained: ContainedRows,
}

/// A batch of a refinement.
#[derive(Clone, Debug)]
pub struct Refined {
    /// The version being read.
    pub version: Version,
    /// The rows, in the order of (weight, id), after those of the previous batch.
    pub rows: RecordBatch,
    /// The weight of each row.
    pub weights: Vec<Weight>,
    /// Every matching row below this cut has been handed over, in this batch or an earlier one.
    pub cut: Cut,
    /// Whether this is the last batch.
    pub is_last: bool,
    /// Work spent so far, from the first batch on.
    pub work: Work,
}

impl Table {
    /// The answer to a query in batches, lightest rows first. Reads nothing yet.
    #[must_use]
    pub fn refine(&self, query: &Query) -> Refinement {
        Refinement {
            table: self.clone(),
            query: query.clone(),
            reading: None,
            batch_rows: BATCH_ROWS_FIRST,
            wanted: None,
            restarts: Restarts::default(),
            tells_contained: false,
            contained: ContainedRows::default(),
        }
    }
}

impl Refinement {
    /// Requests at least `rows` rows in the next batch, instead of about twice those of the last.
    pub fn want(&mut self, rows: usize) {
        self.wanted = Some(rows);
    }

    /// The same refinement, telling of each row whether it is contained.
    #[must_use]
    pub(crate) fn telling_contained(self) -> Self {
        Self { tells_contained: true, ..self }
    }

    /// The contained rows of the last batch.
    pub(crate) const fn contained(&self) -> &ContainedRows {
        &self.contained
    }

    /// The version being read; `None` before the first batch.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.reading.as_ref().map(|(version, _)| *version)
    }

    /// The next batch; `None` after the last. A query without rows has one empty batch.
    ///
    /// A call that fails, or is dropped while it waits, loses no rows: the next call continues from the same
    /// place.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn next(&mut self) -> Result<Option<Refined>, TableError> {
        let rows = self.wanted.unwrap_or(self.batch_rows);
        let tells_contained = self.tells_contained;
        let (version, reading) = loop {
            let (version, reading) = match &mut self.reading {
                Some(reading) => reading,
                none => {
                    let begun = self.table.restart_if_vacuumed(&self.query, |table, query, manifest| {
                        begin(table, query, manifest, tells_contained)
                    });
                    none.insert(begun.await?)
                }
            };
            if reading.is_over() {
                return Ok(None);
            }
            let handed = reading.handed_rows();
            let Err(error) = reading.read_toward(Some(handed.saturating_add(rows))).await else {
                break (*version, reading);
            };
            let restarts = &mut self.restarts;
            self.table.may_restart(&self.query, *version, handed, error, restarts).await?;
            self.reading = None;
        };
        let HandedRows { rows, weights, cut, contained } = reading.hand_over(Some(rows.saturating_mul(2)))?;
        self.contained = reading.contained_rows(contained);
        self.batch_rows = (self.batch_rows * 2).min(BATCH_ROWS_MAX);
        self.wanted = None;
        let work = Work { rows_returned: reading.handed_rows() as u64, ..reading.work() };
        Ok(Some(Refined { version, rows, weights, cut, is_last: reading.is_over(), work }))
    }
}

async fn begin(
    table: Table,
    query: &Query,
    manifest: Arc<Manifest>,
    tells_contained: bool,
) -> Result<(Version, Reading), TableError> {
    let asked = BoundQuery::rows(&table, query)?.telling_contained(tells_contained);
    Ok((manifest.version, Reading::open(&table, asked, &manifest, Reach::AsNeeded).await?))
}
