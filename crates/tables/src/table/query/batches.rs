//! Batches: an answer of any length in bounded memory, in no particular order.
//!
//! Objects are opened and planned a few at a time, so the first batch of a large table comes as soon as that
//! of a small one.

use super::bound_query::BoundQuery;
use super::reading::{Reach, Reading};
use super::{Query, Restarts, Table, TableError, Work};
use crate::protocol::{Manifest, Version};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of bytes read for one batch, unless a single band is larger.
const BATCH_BYTES: u64 = 32 << 20;

/// The rows of a query in batches, in no particular order.
#[derive(Debug)]
pub struct Batches {
    table: Table,
    query: Query,
    reading: Option<Reading>,
    /// The manifest, if the version was resolved before reading begins.
    pinned: Option<Arc<Manifest>>,
    /// The version being read, once it is resolved.
    version: Version,
    /// Batches read but not handed over yet.
    ready: VecDeque<RecordBatch>,
    restarts: Restarts,
}

impl Table {
    /// The answer to a query in batches of bounded size, in no particular order. Reads nothing yet.
    ///
    /// A query with a limit on rows or units comes in one batch, since only the order determines which rows
    /// those are.
    #[must_use]
    pub fn batches(&self, query: &Query) -> Batches {
        Batches {
            table: self.clone(),
            query: query.clone(),
            reading: None,
            pinned: None,
            version: Version::EMPTY,
            ready: VecDeque::new(),
            restarts: Restarts::default(),
        }
    }

    /// Like [`Table::batches`], for a version that is already resolved: reading may begin when the version
    /// could no longer be resolved.
    pub(super) fn batches_of(&self, query: &Query, manifest: Arc<Manifest>) -> Batches {
        Batches { version: manifest.version, pinned: Some(manifest), ..self.batches(query) }
    }
}

impl Batches {
    /// The next batch, which has at least one row; `None` after the last.
    ///
    /// A call that fails, or is dropped while it waits, loses no rows: the next call continues from the same
    /// place.
    ///
    /// # Errors
    /// As [`Table::query`]; [`TableError::VersionGone`] if a vacuum removed the version after a batch was
    /// handed over.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, TableError> {
        loop {
            let error = match self.read_on().await {
                Ok(batch) => return Ok(batch),
                Err(error) => error,
            };
            let handed = self.reading.as_ref().map_or(0, Reading::handed_rows);
            let Self { table, query, version, restarts, .. } = self;
            table.may_restart(query, *version, handed, error, restarts).await?;
            self.reading = None;
        }
    }

    async fn read_on(&mut self) -> Result<Option<RecordBatch>, TableError> {
        if self.reading.is_none() {
            let manifest = match &self.pinned {
                Some(pinned) => Arc::clone(pinned),
                None => self.table.manifest_for(&self.query).await?,
            };
            self.version = manifest.version;
            let table = self.table.at(&manifest)?;
            self.reading = Some(begin(&table, &self.query, &manifest).await?);
            self.pinned = None;
        }
        let Some(reading) = &mut self.reading else { return Ok(None) };
        if self.query.units.is_some() || self.query.limit.is_some() {
            if reading.is_over() {
                return Ok(None);
            }
            reading.read_toward(None).await?;
            let rows = reading.hand_over(None)?.rows;
            return Ok((rows.num_rows() > 0).then_some(rows));
        }
        while self.ready.is_empty() && !reading.is_over() {
            let found = reading.read_some(BATCH_BYTES).await?;
            self.ready.extend(reading.answered(found)?);
        }
        Ok(self.ready.pop_front())
    }

    /// The version being read; 0 before the first batch was requested.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Work spent so far.
    #[must_use]
    pub fn work(&self) -> Work {
        let rows = |reading: &Reading| Work { rows_returned: reading.handed_rows() as u64, ..reading.work() };
        self.reading.as_ref().map(rows).unwrap_or_default()
    }
}

async fn begin(table: &Table, query: &Query, manifest: &Manifest) -> Result<Reading, TableError> {
    Reading::open(table, BoundQuery::rows(table, query)?, manifest, Reach::AsNeeded).await
}
