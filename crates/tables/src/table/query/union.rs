//! Unions: several tables queried as one, under the same laws.
//!
//! The answer is the one that a single table with all rows would give ([`merging`]). A unit with rows in
//! several tables is one unit, and rows with the same id come in the order of the tables.
//!
//! Invariant: a query reads one version of each table, all resolved at one moment by this handle, and has the
//! columns that the tables have in these versions.

mod alike;
mod distinct;
mod merging;

pub use merging::UnionRefinement;

use super::found_rows::arrow;
use super::restart::restart_if_gone;
use super::{Answer, Batches, Count, Explanation, OfObjects, OfRuns, Query, Refined, Work};
use crate::protocol::{EditError, Manifest, RunId, Version};
use crate::{Table, TableError, TableInfo, TableSchema};
use alike::alike;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{FieldRef, Schema};
use distinct::check_distinct;
use futures::future::try_join_all;
use futures::lock::Mutex as Turn;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many versions of the union are remembered, so that they can be queried again, beside those in use.
const PINS_MAX: usize = 256;

/// Tables of one schema, queried as one.
#[derive(Clone)]
pub struct Union {
    tables: Arc<[Table]>,
    /// The schema of each table, without the columns that only other tables have.
    own: Arc<[Arc<TableSchema>]>,
    schema: Arc<TableSchema>,
    /// The versions of the tables, by the version of the union, which is their sum. The versions only rise,
    /// and are resolved by one task at a time, so each sum stands for a single state of all tables.
    pins: Pins,
}

type Pins = Arc<Turn<BTreeMap<Version, Arc<[Version]>>>>;

impl std::fmt::Debug for Union {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Union").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl Union {
    /// Combines tables. A column that only some of them have must be nullable, and is null in the rows of the
    /// others.
    ///
    /// # Errors
    /// [`TableError::Unlike`] if roles or salts differ, or without tables; [`TableError::UnlikeColumn`] if
    /// columns of one name differ in type, nullability or unit, or if a column that is not nullable is not in
    /// all tables; [`TableError::UnlikeTimes`] if the times of steps are in different units.
    pub fn new(tables: Vec<Table>) -> Result<Self, TableError> {
        let own: Vec<Arc<TableSchema>> = tables.iter().map(own_schema).collect();
        Self::of(&tables, own, Arc::default())
    }

    /// The union of tables with these columns.
    fn of(tables: &[Table], own: Vec<Arc<TableSchema>>, pins: Pins) -> Result<Self, TableError> {
        let schema = Arc::new(alike(&own)?);
        let widened = tables.iter().zip(&own).map(|(table, own)| {
            let is_new = |field: &&FieldRef| own.columns().column_with_name(field.name()).is_none();
            table.with_empty_columns(schema.columns().fields().iter().filter(is_new).cloned().collect())
        });
        Ok(Self { tables: widened.collect(), own: own.into(), schema, pins })
    }

    /// The same tables with these columns, of which some may have been added since.
    fn with(&self, own: Vec<Arc<TableSchema>>) -> Result<Self, TableError> {
        if own.iter().zip(&*self.own).all(|(now, known)| Arc::ptr_eq(now, known)) {
            return Ok(self.clone());
        }
        Self::of(&self.tables, own, Arc::clone(&self.pins))
    }

    /// The manifests of the versions that each table is queried at.
    async fn manifests(&self, of_each: &[Query]) -> Result<Vec<Arc<Manifest>>, TableError> {
        try_join_all(self.tables.iter().zip(of_each).map(|(table, query)| table.manifest_for(query))).await
    }

    /// The same tables with the columns that they have in these versions.
    fn at(&self, manifests: &[Arc<Manifest>]) -> Result<Self, TableError> {
        let own = self.tables.iter().zip(manifests).map(|(table, manifest)| table.schema_of(manifest));
        self.with(own.collect::<Result<_, _>>()?)
    }

    /// The same tables with the columns that they have now.
    ///
    /// # Errors
    /// [`TableError::UnlikeColumn`] if a column was added that differs from that of another table; as
    /// [`Table::version`].
    pub(crate) async fn now(&self) -> Result<Self, TableError> {
        self.with(try_join_all(self.tables.iter().map(Table::schema_now)).await?)
    }

    /// The columns of all tables and their roles, in the newest versions that this handle has seen. If a
    /// column was added since that differs from that of another table, the earlier columns; the next query
    /// then reports the error.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        let newest = self.with(self.tables.iter().map(own_schema).collect());
        newest.map_or_else(|_| Arc::clone(&self.schema), |newest| newest.schema)
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The name of the first table.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tables.first().map_or("", Table::name)
    }

    /// The first table.
    ///
    /// # Errors
    /// [`TableError::Unlike`], which does not occur: there is at least one table.
    pub(crate) fn first(&self) -> Result<&Table, TableError> {
        self.tables.first().ok_or(TableError::Unlike { place: 1 })
    }

    /// The current version: the sum of the versions of all tables. This handle can query it again.
    ///
    /// The number means nothing to another handle: two handles that look while the tables change may see
    /// different versions with the same sum. Splits carry the versions of the tables.
    ///
    /// # Errors
    /// As [`Table::version`].
    pub async fn version(&self) -> Result<Version, TableError> {
        Ok(self.pin(None).await?.0)
    }

    /// As [`Union::version`], with the versions of the tables: while they are kept, the union remembers it.
    pub(crate) async fn hold(&self) -> Result<(Version, Arc<[Version]>), TableError> {
        self.pin(None).await
    }

    /// Resolves the versions of all tables.
    async fn pin(&self, wanted: Option<Version>) -> Result<(Version, Arc<[Version]>), TableError> {
        let mut pins = self.pins.lock().await;
        if let Some(wanted) = wanted {
            let found = pins.get(&wanted).cloned();
            return found.map(|versions| (wanted, versions)).ok_or_else(|| self.gone(wanted, false));
        }
        let versions = try_join_all(self.tables.iter().map(Table::version)).await?;
        let version = sum(&versions);
        let held = Arc::clone(pins.entry(version).or_insert_with(|| versions.into()));
        while pins.len() > PINS_MAX {
            let is_free = |(_, versions): &(&Version, &Arc<[Version]>)| Arc::strong_count(versions) == 1;
            let Some(oldest) = pins.iter().find(is_free).map(|(version, _)| *version) else { break };
            pins.remove(&oldest);
        }
        Ok((version, held))
    }

    /// The versions that a split carries; this handle need not have seen them.
    fn versions_of(
        &self,
        objects: &OfObjects,
        asked: Option<Version>,
    ) -> Result<(Version, Arc<[Version]>), TableError> {
        let versions = objects.versions(self.tables.len()).ok_or(TableError::NoSplit)?;
        let version = sum(&versions);
        if asked == Some(version) { Ok((version, versions.into())) } else { Err(TableError::NoSplit) }
    }

    fn gone(&self, asked: Version, was_seen: bool) -> TableError {
        let (name, tables) = (self.name().to_owned(), self.tables.len());
        TableError::UnionVersionGone { name, tables, asked, was_seen }
    }

    /// Rewrites an error of one of the tables for the caller, who knows only the version of the union: the
    /// version of a single table would mean nothing to it.
    pub(crate) fn rewrite_error(&self, error: TableError, version: Version) -> TableError {
        if matches!(error, TableError::VersionGone { .. }) { self.gone(version, true) } else { error }
    }

    /// Like [`restart_if_gone`], with errors that name the version of the union.
    pub(super) async fn ask<T, F>(&self, query: &Query, ask: impl Fn() -> F) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>>,
    {
        let answered = restart_if_gone(query, ask).await;
        answered.map_err(|error| {
            query.as_of.into_iter().fold(error, |error, version| self.rewrite_error(error, version))
        })
    }

    /// The tables with the columns of the version that a query reads, that version, and the query for each
    /// table. Each run of the query must be in one of the tables.
    async fn of_each(&self, query: &Query) -> Result<(Self, Version, Vec<Query>), TableError> {
        let (union, version, of_each, _) = self.pinned(query).await?;
        Ok((union, version, of_each))
    }

    /// Like [`Union::of_each`], with the manifest of each table.
    pub(super) async fn pinned(
        &self,
        query: &Query,
    ) -> Result<(Self, Version, Vec<Query>, Vec<Arc<Manifest>>), TableError> {
        let (version, versions) = match &query.objects {
            None => self.pin(query.as_of).await?,
            Some(objects) => self.versions_of(objects, query.as_of)?,
        };
        let objects = |place| query.objects.as_ref().map(|objects| objects.of_table(place));
        let of = |(place, version): (usize, &Version)| Query {
            as_of: Some(*version),
            objects: objects(place),
            ..query.clone()
        };
        let mut of_each: Vec<Query> = versions.iter().enumerate().map(of).collect();
        let manifests = self.manifests(&of_each).await?;
        check_distinct(&self.tables, &manifests).await?;
        if let Some(runs) = &query.runs {
            self.check_runs(runs, &manifests)?;
            for (place, query) in of_each.iter_mut().enumerate() {
                query.runs = Some(runs.where_there(place));
            }
        }
        Ok((self.at(&manifests)?, version, of_each, manifests))
    }

    /// The rows of a query in batches, for each table separately, with the tables in that version, and the
    /// version. The manifests are resolved up front: until the turn of a table comes, a vacuum may remove the
    /// history that leads to its version.
    pub(crate) async fn batches_of_each(
        &self,
        query: &Query,
    ) -> Result<(Self, Version, Vec<Batches>), TableError> {
        let (union, version, of_each, manifests) = self.pinned(query).await?;
        let names = Some(columns_asked(&union.schema, query));
        let batches = |((table, of), manifest): ((&Table, Query), Arc<Manifest>)| {
            table.batches_of(&Query { columns: names.clone(), ..of }, manifest)
        };
        let each = union.tables.iter().zip(of_each).zip(manifests).map(batches).collect();
        Ok((union, version, each))
    }

    /// Rows of one of the tables with what the union notes on the columns, of which each table may note
    /// something else: all batches of an answer have one schema.
    pub(crate) fn with_notes(&self, rows: &RecordBatch) -> Result<RecordBatch, TableError> {
        let (own, all) = (rows.schema(), self.schema.columns().fields());
        let noted = |(place, field): (usize, &FieldRef)| {
            let at_place = all.get(place).filter(|known| known.name() == field.name());
            let known = at_place.or_else(|| all.find(field.name()).map(|(_, known)| known));
            Arc::clone(known.unwrap_or(field))
        };
        let fields: Vec<FieldRef> = own.fields().iter().enumerate().map(noted).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, own.metadata().clone()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(schema, rows.columns().to_vec(), &options).map_err(arrow)
    }

    fn check_runs(&self, runs: &OfRuns, manifests: &[Arc<Manifest>]) -> Result<(), TableError> {
        let is_there = |run: &RunId| manifests.iter().any(|manifest| manifest.runs.get(run).is_some());
        match runs.names().find(|run| !is_there(run)) {
            Some(run) => {
                let present = manifests.iter().flat_map(|manifest| manifest.runs.keys());
                Err(self.first()?.no_run(&run.0, present))
            }
            None => Ok(()),
        }
    }

    /// Answers a query, as [`Table::query`].
    ///
    /// # Errors
    /// As [`Table::query`]; [`TableError::UnionVersionGone`] for a version that this handle has not seen
    /// lately, or that a vacuum removed; [`TableError::UnlikeColumn`] if a column was added that differs from
    /// that of another table; [`TableError::SameTable`] if two of the tables have rows in common.
    pub async fn query(&self, query: &Query) -> Result<Answer, TableError> {
        self.ask(query, || self.query_once(query)).await
    }

    async fn query_once(&self, query: &Query) -> Result<Answer, TableError> {
        let mut refinement = self.refine(query);
        refinement.begin().await?;
        let reading = refinement.reading()?;
        reading.read_toward(usize::MAX).await?;
        let refined = reading.hand_over(usize::MAX)?;
        let Refined { version, rows, weights, cut, work, .. } = refined;
        Ok(Answer { version, rows, weights, cut, work })
    }

    /// Counts the rows of a query, as [`Table::count`].
    ///
    /// # Errors
    /// As [`Union::query`].
    pub async fn count(&self, query: &Query) -> Result<Count, TableError> {
        if query.units.is_some() {
            // A unit with rows in several tables counts once.
            let answer = self.query(&Query { columns: Some(Vec::new()), ..query.clone() }).await?;
            let rows = answer.rows.num_rows() as u64;
            return Ok(Count { version: answer.version, rows, work: answer.work });
        }
        self.ask(query, || self.count_once(query)).await
    }

    async fn count_once(&self, query: &Query) -> Result<Count, TableError> {
        let (union, version, of_each) = self.of_each(query).await?;
        let counts = union.tables.iter().zip(&of_each).map(|(table, query)| table.count(query));
        let counts = try_join_all(counts).await?;
        let rows = counts.iter().map(|count| count.rows).fold(0, u64::saturating_add);
        let rows = query.limit.map_or(rows, |limit| (limit as u64).min(rows));
        let work = counts.iter().map(|count| count.work).fold(Work::default(), sum_of);
        Ok(Count { version, rows, work })
    }

    /// Describes what answering a query would read of all tables together, as [`Table::explain`].
    ///
    /// # Errors
    /// As [`Union::query`].
    pub async fn explain(&self, query: &Query) -> Result<Explanation, TableError> {
        self.ask(query, || self.explain_once(query)).await
    }

    async fn explain_once(&self, query: &Query) -> Result<Explanation, TableError> {
        let (union, version, of_each) = self.of_each(query).await?;
        let told = union.tables.iter().zip(&of_each).map(|(table, query)| table.explain(query));
        let mut told = try_join_all(told).await?.into_iter();
        let mut all = told.next().ok_or(TableError::Unlike { place: 1 })?;
        for one in told {
            all.blocks += one.blocks;
            all.blocks_opened += one.blocks_opened;
            all.bands_seen += one.bands_seen;
            all.bands += one.bands;
            all.rows = all.rows.saturating_add(one.rows);
            all.rows_expected += one.rows_expected;
            all.bytes = all.bytes.saturating_add(one.bytes);
            all.requests += one.requests;
            all.may_go_on |= one.may_go_on;
            all.share_to = all.share_to.min(one.share_to);
            all.work = sum_of(all.work, one.work);
        }
        Ok(Explanation { version: version.0, ..all })
    }

    /// What the current versions of the tables consist of together: runs of the same name in two tables are
    /// distinct.
    ///
    /// # Errors
    /// As [`Union::query`].
    pub async fn info(&self) -> Result<TableInfo, TableError> {
        let current = Query::default();
        self.ask(&current, || self.info_of(&current)).await
    }

    async fn info_of(&self, query: &Query) -> Result<TableInfo, TableError> {
        let (union, version, _, manifests) = self.pinned(query).await?;
        let mut all = TableInfo::none(self.name(), union.schema, version);
        for manifest in &manifests {
            all.add(manifest);
        }
        Ok(all)
    }

    /// The answer in batches, as [`Table::refine`].
    #[must_use]
    pub fn refine(&self, query: &Query) -> UnionRefinement {
        UnionRefinement::new(self.clone(), query.clone())
    }

    /// Waits for a version after `since`, as [`Table::follow`]. `since` may come from another handle.
    ///
    /// # Errors
    /// As [`Table::follow`].
    pub async fn follow(&self, since: Version, wait: Duration) -> Result<Version, TableError> {
        let versions = match self.pin(Some(since)).await {
            Ok((_, versions)) => versions,
            // This handle has not seen the version, or has seen so many since that it was forgotten.
            Err(_) => {
                let (now, versions) = self.pin(None).await?;
                match since.cmp(&now) {
                    Ordering::Less => return Ok(now),
                    // The versions of all tables only rise, so the sum stands for the same state in every
                    // handle.
                    Ordering::Equal => versions,
                    Ordering::Greater => return Err(EditError::Ahead { asked: since, current: now }.into()),
                }
            }
        };
        let news = self.tables.iter().zip(&*versions);
        let news = news.map(|(table, since)| Box::pin(table.follow(*since, wait)));
        let (first, ..) = futures::future::select_all(news).await;
        first?;
        self.version().await
    }
}

/// The version of the union of tables at these versions.
fn sum(versions: &[Version]) -> Version {
    Version(versions.iter().fold(0, |sum, version| sum.saturating_add(version.0)))
}

/// The schema of a table in the newest version that its handle has seen.
fn own_schema(table: &Table) -> Arc<TableSchema> {
    table.lineage.newest()
}

/// The columns of the answer, in the same order for all tables.
fn columns_asked(schema: &TableSchema, query: &Query) -> Vec<String> {
    let all = || schema.columns().fields().iter().map(|field| field.name().clone()).collect();
    query.columns.clone().unwrap_or_else(all)
}

/// The sum of the work on two tables.
pub(crate) fn sum_of(one: Work, other: Work) -> Work {
    Work {
        blocks: one.blocks + other.blocks,
        bands: one.bands + other.bands,
        rows_touched: one.rows_touched + other.rows_touched,
        rows_returned: one.rows_returned + other.rows_returned,
        requests: one.requests + other.requests,
        bytes: one.bytes + other.bytes,
    }
}
