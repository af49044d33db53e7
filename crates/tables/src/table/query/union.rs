//! Several tables asked as one: the union of their blocks, under the same laws.
//!
//! Each table is read by a refinement of its own. What is handed over lies below the lowest of their cuts, in the
//! order of (weight, id), so that the answer is the one that a table with the rows of all of them would give; a unit
//! that has rows in several is one unit, and rows of one id come in the order of the tables.
//!
//! Invariant: a query reads one version of each table, all of them resolved at one moment of this handle, and has the
//! columns that the tables have in these.

#[cfg(test)]
mod tests;

use super::again::again_if_gone;
use super::found::{Found, Ordered, rows_of_units, split_below, units};
use super::{Answer, Batches, Count, Explanation, Handed, OfRuns, Query, Refined, Refinement, Work};
use crate::protocol::{EditError, Manifest, RunId, Version};
use crate::{Cut, Table, TableError, TableSchema};
use arrow_schema::{Field, FieldRef, SchemaRef};
use futures::future::try_join_all;
use futures::lock::Mutex as Turn;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many versions of the union are remembered, so that they can be asked again.
const PINS_MAX: usize = 256;

/// Fewest rows that are asked of one table at a time.
const ROWS_MIN: usize = 256;

/// Tables whose cuts are at most this much higher than the lowest are read on with it.
const NEAR: f64 = 1.25;

/// Tables of one schema, asked as one.
#[derive(Clone)]
pub struct Union {
    tables: Arc<[Table]>,
    /// The schema of each table, without the columns that only others have.
    own: Arc<[Arc<TableSchema>]>,
    schema: Arc<TableSchema>,
    /// The versions of the tables by the version of the union, which is their sum. They only rise, and are resolved by
    /// one at a time, so that a sum stands for one state of all of them.
    pins: Pins,
}

type Pins = Arc<Turn<BTreeMap<Version, Vec<Version>>>>;

impl std::fmt::Debug for Union {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Union").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl Union {
    /// These tables as one. A column that only some of them have may be null, and is null in the rows of the others.
    ///
    /// # Errors
    /// [`TableError::Unlike`] where roles or salts differ, and for no tables; [`TableError::UnlikeColumn`] where columns
    /// of one name do, or a column that may not be null is not in all.
    pub fn new(tables: Vec<Table>) -> Result<Self, TableError> {
        let own: Vec<Arc<TableSchema>> = tables.iter().map(own_schema).collect();
        Self::of(&tables, own, Arc::default())
    }

    /// Tables that have these columns, as one.
    fn of(tables: &[Table], own: Vec<Arc<TableSchema>>, pins: Pins) -> Result<Self, TableError> {
        let schema = Arc::new(alike(&own)?);
        let widened = tables.iter().zip(&own).map(|(table, own)| {
            let is_new = |field: &&FieldRef| own.columns().column_with_name(field.name()).is_none();
            table.with_empty_columns(schema.columns().fields().iter().filter(is_new).cloned().collect())
        });
        Ok(Self { tables: widened.collect(), own: own.into(), schema, pins })
    }

    /// The same tables, of which each has these columns now: others may have been added since.
    fn with(&self, own: Vec<Arc<TableSchema>>) -> Result<Self, TableError> {
        if own.iter().zip(&*self.own).all(|(now, known)| Arc::ptr_eq(now, known)) {
            return Ok(self.clone());
        }
        Self::of(&self.tables, own, Arc::clone(&self.pins))
    }

    /// What the versions have that are asked of each table.
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
    /// [`TableError::UnlikeColumn`] where a column was added that another table has otherwise; as [`Table::version`].
    pub(crate) async fn now(&self) -> Result<Self, TableError> {
        self.with(try_join_all(self.tables.iter().map(Table::schema_now)).await?)
    }

    /// The columns of all of them, and their roles, in the newest versions that this handle has seen; those of before
    /// where a column was added since that another table has otherwise, which the next query tells.
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

    /// The first of the tables.
    ///
    /// # Errors
    /// [`TableError::Unlike`] never: there is at least one table.
    pub(crate) fn first(&self) -> Result<&Table, TableError> {
        self.tables.first().ok_or(TableError::Unlike { place: 1 })
    }

    /// The version that is current now: the sum of those of the tables. It can be asked again by this handle.
    ///
    /// # Errors
    /// As [`Table::version`].
    pub async fn version(&self) -> Result<Version, TableError> {
        Ok(self.pin(None).await?.0)
    }

    /// Resolves the versions of all tables.
    async fn pin(&self, wanted: Option<Version>) -> Result<(Version, Vec<Version>), TableError> {
        let mut pins = self.pins.lock().await;
        if let Some(wanted) = wanted {
            let found = pins.get(&wanted).cloned();
            return found.map(|versions| (wanted, versions)).ok_or_else(|| self.gone(wanted, false));
        }
        let versions = try_join_all(self.tables.iter().map(Table::version)).await?;
        let version = Version(versions.iter().fold(0, |sum, version| sum.saturating_add(version.0)));
        pins.insert(version, versions.clone());
        while pins.len() > PINS_MAX {
            pins.pop_first();
        }
        Ok((version, versions))
    }

    fn gone(&self, asked: Version, was_seen: bool) -> TableError {
        let (name, tables) = (self.name().to_owned(), self.tables.len());
        TableError::UnionVersionGone { name, tables, asked, was_seen }
    }

    /// What is told of an error of one of the tables, where all were read in this version of them: the table's own number
    /// says nothing to whoever knows only that of all.
    pub(crate) fn told(&self, error: TableError, version: Version) -> TableError {
        if matches!(error, TableError::VersionGone { .. }) { self.gone(version, true) } else { error }
    }

    /// As [`again_if_gone`], of a version that errors tell by its number.
    async fn ask<T, F>(&self, query: &Query, ask: impl Fn() -> F) -> Result<T, TableError>
    where
        F: Future<Output = Result<T, TableError>>,
    {
        let answered = again_if_gone(query, ask).await;
        answered
            .map_err(|error| query.as_of.into_iter().fold(error, |error, version| self.told(error, version)))
    }

    /// The tables with the columns that they have in the version that a query is about, that version, and what is asked of
    /// each. Each run has to be in one of them.
    async fn of_each(&self, query: &Query) -> Result<(Self, Version, Vec<Query>), TableError> {
        let (union, version, of_each, _) = self.pinned(query).await?;
        Ok((union, version, of_each))
    }

    /// As [`Union::of_each`], and what each table has in that version.
    async fn pinned(
        &self,
        query: &Query,
    ) -> Result<(Self, Version, Vec<Query>, Vec<Arc<Manifest>>), TableError> {
        let (version, versions) = self.pin(query.as_of).await?;
        let of = |of| query.clone().as_of(of);
        let mut of_each: Vec<Query> = versions.into_iter().map(of).collect();
        let manifests = self.manifests(&of_each).await?;
        if let Some(runs) = &query.runs {
            self.check_runs(runs, &manifests)?;
            of_each.iter_mut().for_each(|query| query.runs = Some(runs.where_there()));
        }
        Ok((self.at(&manifests)?, version, of_each, manifests))
    }

    /// The rows of a query in batches, of each table by itself, and the version of them. What each has in it is known from
    /// now on: until its turn comes, a vacuum may take the history that leads there.
    pub(crate) async fn batches_of_each(&self, query: &Query) -> Result<(Version, Vec<Batches>), TableError> {
        let (union, version, of_each, manifests) = self.pinned(query).await?;
        let names = Some(columns_asked(&union.schema, query));
        let batches = |((table, of), manifest): ((&Table, Query), Arc<Manifest>)| {
            table.batches_of(&Query { columns: names.clone(), ..of }, manifest)
        };
        Ok((version, union.tables.iter().zip(of_each).zip(manifests).map(batches).collect()))
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
    /// As [`Table::query`]; [`TableError::UnionVersionGone`] for a version that this handle has not seen lately, or that a
    /// vacuum took away;
    /// [`TableError::UnlikeColumn`] where a column was added since that another table has otherwise.
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
            // Units that have rows in several tables count once.
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
        let rows = counts.iter().map(|count| count.rows).sum();
        let rows = query.limit.map_or(rows, |limit| (limit as u64).min(rows));
        let work = counts.iter().map(|count| count.work).fold(Work::default(), sum_of);
        Ok(Count { version, rows, work })
    }

    /// What answering a query would read, of all tables together, as [`Table::explain`].
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
            all.rows += one.rows;
            all.rows_expected += one.rows_expected;
            all.bytes += one.bytes;
            all.requests += one.requests;
            all.may_go_on |= one.may_go_on;
            all.share_to = all.share_to.min(one.share_to);
            all.work = sum_of(all.work, one.work);
        }
        Ok(Explanation { version: version.0, ..all })
    }

    /// The answer batch by batch, as [`Table::refine`].
    #[must_use]
    pub fn refine(&self, query: &Query) -> UnionRefinement {
        let (union, query) = (self.clone(), query.clone());
        UnionRefinement {
            union,
            query,
            reading: None,
            has_begun: false,
            batch_rows: super::refine::BATCH_ROWS_FIRST,
            wanted: None,
        }
    }

    /// Waits for a version after `since`, as [`Table::follow`]. It may be one that another handle has told.
    ///
    /// # Errors
    /// As [`Table::follow`].
    pub async fn follow(&self, since: Version, wait: Duration) -> Result<Version, TableError> {
        let versions = match self.pin(Some(since)).await {
            Ok((_, versions)) => versions,
            // This handle has not seen it, or so much came since that it was forgotten.
            Err(_) => {
                let (now, versions) = self.pin(None).await?;
                match since.cmp(&now) {
                    Ordering::Less => return Ok(now),
                    // The versions of all tables only rise, so that it stands for one state in whatever handle.
                    Ordering::Equal => versions,
                    Ordering::Greater => return Err(EditError::Ahead { asked: since, current: now }.into()),
                }
            }
        };
        let news = self.tables.iter().zip(versions).map(|(table, since)| Box::pin(table.follow(since, wait)));
        let (first, ..) = futures::future::select_all(news).await;
        first?;
        self.version().await
    }
}

/// The schema of a table in the newest version that its handle has seen.
fn own_schema(table: &Table) -> Arc<TableSchema> {
    table.lineage.newest()
}

/// The schema of several tables: the columns of the first, and those that only later ones have.
fn alike(schemas: &[Arc<TableSchema>]) -> Result<TableSchema, TableError> {
    let first = schemas.first().ok_or(TableError::Unlike { place: 1 })?;
    let mut all = first.as_ref().clone();
    for (place, schema) in (1..).zip(schemas) {
        if schema.roles() != first.roles() {
            return Err(TableError::Unlike { place });
        }
        let unlike = |field: &FieldRef, problem: String| TableError::UnlikeColumn {
            place,
            column: field.name().clone(),
            problem,
        };
        let missing = |field: &&FieldRef| schema.columns().column_with_name(field.name()).is_none();
        if let Some(field) = all.columns().fields().iter().filter(missing).find(|field| !field.is_nullable())
        {
            return Err(unlike(field, "it is not there, and may not be null".to_owned()));
        }
        let mut more = Vec::new();
        for field in schema.columns().fields() {
            match all.columns().field_with_name(field.name()) {
                Ok(known) if known == field.as_ref() => {}
                Ok(known) => return Err(unlike(field, told_apart(field, known))),
                Err(_) if field.is_nullable() => more.push(Arc::clone(field)),
                Err(_) => {
                    return Err(unlike(field, "those do not have it, and it may not be null".to_owned()));
                }
            }
        }
        all = all.with_added(more)?;
    }
    Ok(all)
}

/// In what two columns of one name differ.
fn told_apart(field: &Field, known: &Field) -> String {
    let described = |field: &Field| {
        let null = if field.is_nullable() { ", nullable" } else { "" };
        let mut notes: Vec<String> =
            field.metadata().iter().map(|(key, value)| format!(", {key} {value}")).collect();
        notes.sort_unstable();
        format!("{}{null}{}", field.data_type(), notes.concat())
    };
    format!("{} instead of {}", described(field), described(known))
}

/// A query of several tables whose rows come batch by batch, the lightest first.
#[derive(Debug)]
pub struct UnionRefinement {
    union: Union,
    query: Query,
    reading: Option<Merging>,
    /// Whether a batch was handed over.
    has_begun: bool,
    batch_rows: usize,
    wanted: Option<usize>,
}

impl UnionRefinement {
    /// Asks for at least so many rows in the next batch.
    pub fn want(&mut self, rows: usize) {
        self.wanted = Some(rows);
    }

    /// The version that is read; none before the first batch.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.reading.as_ref().map(|reading| reading.version)
    }

    /// The next batch; none after the last, as [`Refinement::next`].
    ///
    /// # Errors
    /// As [`Union::query`].
    pub async fn next(&mut self) -> Result<Option<Refined>, TableError> {
        loop {
            match self.next_once().await {
                // Nobody has seen a row of it yet.
                Err(error) if error.is_version_gone() && !self.has_begun && self.query.as_of.is_none() => {
                    self.reading = None;
                }
                Ok(refined) => {
                    self.has_begun = true;
                    return Ok(refined);
                }
                Err(error) => {
                    let version = self.version().or(self.query.as_of);
                    return Err(match version {
                        Some(version) => self.union.told(error, version),
                        None => error,
                    });
                }
            }
        }
    }

    async fn next_once(&mut self) -> Result<Option<Refined>, TableError> {
        self.begin().await?;
        let rows = self.wanted.unwrap_or(self.batch_rows);
        let reading = self.reading()?;
        if reading.is_over {
            return Ok(None);
        }
        reading.read_toward(rows).await?;
        let refined = reading.hand_over(rows.saturating_mul(2))?;
        self.batch_rows = (self.batch_rows * 2).min(super::refine::BATCH_ROWS_MAX);
        self.wanted = None;
        Ok(Some(refined))
    }

    async fn begin(&mut self) -> Result<(), TableError> {
        if self.reading.is_none() {
            self.reading = Some(Merging::begin(&self.union, &self.query).await?);
        }
        Ok(())
    }

    fn reading(&mut self) -> Result<&mut Merging, TableError> {
        self.reading.as_mut().ok_or(TableError::Unlike { place: 1 })
    }
}

/// One of the tables under way.
#[derive(Debug)]
struct Member {
    refinement: Refinement,
    /// Below this cut all of its rows were found.
    cut: Cut,
    is_over: bool,
    work: Work,
    /// What was read and not taken over yet: a call may fail, or be dropped, while another table still reads.
    read: Vec<Refined>,
}

/// A query of several tables under way.
#[derive(Debug)]
struct Merging {
    version: Version,
    query: Query,
    members: Vec<Member>,
    /// The columns that are read, and which of these are the id's and which are answered.
    schema: SchemaRef,
    id: Vec<usize>,
    answered: Vec<usize>,
    /// What was found and not handed over yet.
    found: Vec<Found>,
    handed_rows: usize,
    handed_units: usize,
    is_over: bool,
}

impl Merging {
    async fn begin(union: &Union, query: &Query) -> Result<Self, TableError> {
        let (union, version, of_each) = union.of_each(query).await?;
        let first = union.first()?;
        let names = columns(&union.schema, query);
        let id = id_names(&union.schema);
        let place = |name: &String| names.iter().position(|known| known == name);
        let fields = union.schema.columns().fields();
        let fields: Vec<_> = names
            .iter()
            .map(|name| {
                let field = fields.iter().find(|field| field.name() == name).cloned();
                field.ok_or_else(|| first.no_column(name))
            })
            .collect::<Result<_, _>>()?;
        let answered = match &query.columns {
            None => (0..names.len()).collect(),
            Some(asked) => asked.iter().filter_map(place).collect(),
        };
        let whole = |of: Query| Query { units: None, limit: None, columns: Some(names.clone()), ..of };
        let member = |(table, of): (&Table, Query)| Member {
            refinement: table.refine(&whole(of)),
            cut: query.window.after(),
            is_over: false,
            work: Work::default(),
            read: Vec::new(),
        };
        Ok(Self {
            version,
            query: query.clone(),
            members: union.tables.iter().zip(of_each).map(member).collect(),
            schema: Arc::new(arrow_schema::Schema::new(fields)),
            id: id.into_iter().filter_map(place).collect(),
            answered,
            found: Vec::new(),
            handed_rows: 0,
            handed_units: 0,
            // A query without rows has one batch, which is empty.
            is_over: false,
        })
    }

    /// Below this cut every row was found.
    fn known(&self) -> Cut {
        let until = self.query.window.until();
        let open = self.members.iter().filter(|member| !member.is_over);
        open.map(|member| member.cut).fold(until, Ord::min)
    }

    fn rows_below(&self, cut: Cut) -> usize {
        self.found.iter().map(|found| cut.prefix(&found.weights)).sum()
    }

    /// How many rows are still to be found; none where it is enough.
    fn missing(&self, rows: usize) -> Option<usize> {
        let known = self.known();
        if let Some(wanted) = self.query.units.map(|units| units - self.handed_units) {
            let below = self.found.iter().map(|found| &found.weights[..known.prefix(&found.weights)]);
            let found = units(below);
            if found >= wanted {
                return None;
            }
            // A unit has one row at least; that it has more is seen at the next look.
            let missing = (wanted - found).max(ROWS_MIN);
            return Some(missing.min(rows)).filter(|_| !self.has_rows(rows, known));
        }
        let limit = self.query.limit.map_or(rows, |limit| rows.min(limit - self.handed_rows));
        limit.checked_sub(self.rows_below(known)).filter(|missing| *missing > 0)
    }

    fn has_rows(&self, rows: usize, known: Cut) -> bool {
        let limit = self.query.limit.map_or(rows, |limit| rows.min(limit - self.handed_rows));
        self.rows_below(known) >= limit
    }

    /// Reads until so many rows are known, or all that the query asks for.
    async fn read_toward(&mut self, rows: usize) -> Result<(), TableError> {
        loop {
            self.take_over();
            let Some(missing) = self.missing(rows) else { return Ok(()) };
            let lowest = self.known().share();
            let is_behind = |member: &&mut Member| !member.is_over && member.cut.share() <= lowest * NEAR;
            let mut behind: Vec<&mut Member> = self.members.iter_mut().filter(is_behind).collect();
            if behind.is_empty() {
                return Ok(());
            }
            let each = (missing / behind.len()).saturating_add(1).max(ROWS_MIN);
            try_join_all(behind.iter_mut().map(|member| member.read(each))).await?;
        }
    }

    /// Takes over what the tables have read, also in a call that failed. Rows that are equal in weight and id come in the
    /// order of the tables, and those of one table, which hands over whole units, as it has them.
    fn take_over(&mut self) {
        for (place, member) in (0..).zip(&mut self.members) {
            for Refined { rows, weights, .. } in member.read.drain(..) {
                let lies_at = vec![place; weights.len()];
                self.found.extend((!weights.is_empty()).then_some(Found { rows, weights, lies_at }));
            }
        }
    }

    /// Hands over what is known, in whole units, about so many rows at most. Where that fails nothing is handed over, and
    /// all of it waits for the next call.
    fn hand_over(&mut self, rows: usize) -> Result<Refined, TableError> {
        let known = self.known();
        let mut ordered = Ordered::as_found(split_below(&mut self.found, known));
        let handed = self.portion(&mut ordered, known, rows);
        let portion = handed.as_ref().map_or(0, |handed| handed.weights.len());
        if portion < ordered.rows() {
            self.found.extend(ordered.without_first(portion));
        }
        let Handed { rows, weights, cut } = handed?;
        self.handed_rows += portion;
        self.handed_units += units(std::iter::once(&weights[..]));
        let is_all = self.found.is_empty() && self.members.iter().all(|member| member.is_over);
        self.is_over = is_all
            || self.query.limit.is_some_and(|limit| self.handed_rows >= limit)
            || self.query.units.is_some_and(|units| self.handed_units >= units);
        let work = self.members.iter().map(|member| member.work).fold(Work::default(), sum_of);
        let work = Work { rows_returned: self.handed_rows as u64, ..work };
        Ok(Refined { version: self.version, rows, weights, cut, is_last: self.is_over, work })
    }

    /// Of rows that are ready those that are handed over next, once they are in order.
    fn portion(&self, ready: &mut Ordered, known: Cut, rows: usize) -> Result<Handed, TableError> {
        ready.put_in_order(&self.schema, &self.id)?;
        let weights = &ready.weights;
        let of_units = self.query.units.map(|units| rows_of_units(weights, units - self.handed_units));
        let of_limit = self.query.limit.map(|limit| limit - self.handed_rows);
        let asked = [of_units, of_limit].into_iter().flatten().fold(ready.rows(), usize::min);
        let portion = super::reading::whole_units(weights, rows).min(asked);
        let cut = weights.get(portion).map_or(known, |next| Cut::below(*next));
        let rows = ready.batch(0..portion, &self.schema, &self.answered)?;
        Ok(Handed { rows, weights: weights[..portion].to_vec(), cut })
    }
}

impl Member {
    async fn read(&mut self, rows: usize) -> Result<(), TableError> {
        self.refinement.want(rows);
        match self.refinement.next().await? {
            Some(refined) => {
                (self.cut, self.work, self.is_over) = (refined.cut, refined.work, refined.is_last);
                self.read.push(refined);
            }
            None => self.is_over = true,
        }
        Ok(())
    }
}

/// The columns to answer: all of them have the same order in all tables.
fn columns_asked(schema: &TableSchema, query: &Query) -> Vec<String> {
    let all = || schema.columns().fields().iter().map(|field| field.name().clone()).collect();
    query.columns.clone().unwrap_or_else(all)
}

/// The columns to read: those that are answered, and the id, in whose order ties of weight are put.
fn columns(schema: &TableSchema, query: &Query) -> Vec<String> {
    let mut names = columns_asked(schema, query);
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    for name in id_names(schema) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn id_names(schema: &TableSchema) -> Vec<&String> {
    schema.id().iter().map(|&place| schema.columns().field(place).name()).collect()
}

/// What reading two tables took.
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
