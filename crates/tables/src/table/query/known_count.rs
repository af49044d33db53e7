//! Known counts: the exact number of rows of a query, if it takes little to find.
//!
//! A version knows the number of rows of each piece, and a directory that of each band. So the rows of a
//! region are counted without reading them, but for bands across its border, of which only some rows match.
//!
//! Invariant: a number that is returned equals that of [`Table::count`].

use super::bound_query::BoundQuery;
use super::reading::{Reach, Reading};
use super::{Query, Table, TableError, Union, Work, sum_of};
use crate::protocol::{Manifest, Version};
use futures::future::try_join_all;
use std::sync::Arc;

/// The most bytes of directories that are read to count rows: those of some thirty objects.
const FRONTS_BYTES_MAX: u64 = 4 << 20;

/// The most bytes of directories that are read for each row that may be decoded: about those of a wide row.
/// So counting for a tiny sample does not read many times what the sample took, and mostly in vain.
const FRONTS_BYTES_A_ROW: u64 = 64;

/// The number of rows of a query, if it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownCount {
    /// The version that was looked at.
    pub(crate) version: Version,
    /// The number of rows; `None` if it would take too much to find.
    pub(crate) rows: Option<u64>,
    /// The work that was done in either case.
    pub(crate) work: Work,
}

impl Table {
    /// Counts the rows of a query exactly, if that takes few directories and decodes at most `rows_max` rows;
    /// if this is 0, without reading anything. The decision does not depend on what was read before.
    ///
    /// # Errors
    /// As [`Table::count`].
    pub(crate) async fn count_if_cheap(
        &self,
        query: &Query,
        rows_max: u64,
    ) -> Result<KnownCount, TableError> {
        self.restart_if_vacuumed(query, |table, query, manifest| {
            known_count_of(table, query, manifest, rows_max)
        })
        .await
    }
}

impl Union {
    /// Counts the rows of a query if that takes little of each table, as [`Table::count_if_cheap`].
    ///
    /// # Errors
    /// As [`Union::count`].
    pub(crate) async fn count_if_cheap(
        &self,
        query: &Query,
        rows_max: u64,
    ) -> Result<KnownCount, TableError> {
        self.ask(query, || self.count_if_cheap_once(query, rows_max)).await
    }

    async fn count_if_cheap_once(&self, query: &Query, rows_max: u64) -> Result<KnownCount, TableError> {
        let (union, version, of_each, _) = self.pinned(query).await?;
        let rows_each = rows_max / union.tables().len().max(1) as u64;
        let counts = union.tables().iter().zip(&of_each);
        let counts =
            try_join_all(counts.map(|(table, query)| table.count_if_cheap(query, rows_each))).await?;
        let rows = counts.iter().try_fold(0_u64, |sum, count| Some(sum.saturating_add(count.rows?)));
        let work = counts.iter().map(|count| count.work).fold(Work::default(), sum_of);
        Ok(KnownCount { version, rows, work })
    }
}

async fn known_count_of(
    table: Table,
    query: &Query,
    manifest: Arc<Manifest>,
    rows_max: u64,
) -> Result<KnownCount, TableError> {
    let asked = BoundQuery::count(&table, query)?;
    let mut reading = Reading::open(&table, asked, &manifest, Reach::AsNeeded).await?;
    // Where no rows may be decoded, only what the version tells is wanted.
    let fronts_bytes_max = FRONTS_BYTES_MAX.min(rows_max.saturating_mul(FRONTS_BYTES_A_ROW));
    let is_cheap = reading.bytes_to_open() <= fronts_bytes_max && {
        reading.plan_all().await?;
        reading.rows_to_decode() <= rows_max
    };
    let rows = if is_cheap {
        reading.read_toward(None).await?;
        Some(reading.count())
    } else {
        None
    };
    Ok(KnownCount { version: manifest.version, rows, work: reading.work() })
}
