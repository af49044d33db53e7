//! Merging: a query of a union in progress, whose rows are put in one order.
//!
//! Each table is read by a refinement of its own. Rows are handed over below the lowest of their cuts, in the
//! order of (weight, id).
//!
//! Invariant: found rows that were not handed over wait for the next call, even after an error.

#[cfg(test)]
mod tests;

use super::super::found_rows::{FoundRows, rows_of_units, units};
use super::super::reading::whole_units;
use super::super::ready::ReadyRows;
use super::super::refine::{BATCH_ROWS_FIRST, BATCH_ROWS_MAX};
use super::super::{HandedRows, Query, Refined, Refinement, Restarts, Work};
use super::{Union, columns_asked, sum_of};
use crate::protocol::Version;
use crate::{Cut, Table, TableError, TableSchema};
use arrow_schema::SchemaRef;
use futures::future::try_join_all;
use std::sync::Arc;

/// Minimum number of rows requested from a table at a time.
const ROWS_MIN: usize = 256;

/// Tables whose cuts are at most this factor above the lowest are read along with it.
const CUT_FACTOR_MAX: f64 = 1.25;

/// A query of a union whose rows come in batches, lightest first.
#[derive(Debug)]
pub struct UnionRefinement {
    union: Union,
    query: Query,
    reading: Option<Merging>,
    /// Whether a batch was handed over.
    has_begun: bool,
    batch_rows: usize,
    wanted: Option<usize>,
    restarts: Restarts,
}

impl UnionRefinement {
    pub(super) fn new(union: Union, query: Query) -> Self {
        Self {
            union,
            query,
            reading: None,
            has_begun: false,
            batch_rows: BATCH_ROWS_FIRST,
            wanted: None,
            restarts: Restarts::default(),
        }
    }

    /// Requests at least `rows` rows in the next batch.
    pub fn want(&mut self, rows: usize) {
        self.wanted = Some(rows);
    }

    /// The version being read; `None` before the first batch.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.reading.as_ref().map(|reading| reading.version)
    }

    /// The next batch; `None` after the last, as [`Refinement::next`].
    ///
    /// # Errors
    /// As [`Union::query`].
    pub async fn next(&mut self) -> Result<Option<Refined>, TableError> {
        loop {
            match self.next_once().await {
                Err(error) if error.is_version_gone() && self.may_restart() => self.reading = None,
                Ok(refined) => {
                    self.has_begun = true;
                    return Ok(refined);
                }
                Err(error) => {
                    let version = self.version().or(self.query.as_of);
                    return Err(match version {
                        Some(version) => self.union.rewrite_error(error, version),
                        None => error,
                    });
                }
            }
        }
    }

    /// Whether the query may restart in the version that is current by then, because no row was handed out
    /// yet.
    fn may_restart(&mut self) -> bool {
        !self.has_begun && self.query.as_of.is_none() && self.restarts.take()
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
        self.batch_rows = (self.batch_rows * 2).min(BATCH_ROWS_MAX);
        self.wanted = None;
        Ok(Some(refined))
    }

    pub(super) async fn begin(&mut self) -> Result<(), TableError> {
        if self.reading.is_none() {
            self.reading = Some(Merging::begin(&self.union, &self.query).await?);
        }
        Ok(())
    }

    pub(super) fn reading(&mut self) -> Result<&mut Merging, TableError> {
        self.reading.as_mut().ok_or(TableError::Unlike { place: 1 })
    }
}

/// A table being read.
#[derive(Debug)]
struct Member {
    refinement: Refinement,
    /// The cut below which all of its matching rows were found.
    cut: Cut,
    is_over: bool,
    work: Work,
    /// Batches read but not taken over yet: a call may fail or be dropped while other tables are still
    /// reading.
    read: Vec<Refined>,
}

/// A query of a union in progress.
#[derive(Debug)]
pub(super) struct Merging {
    version: Version,
    query: Query,
    members: Vec<Member>,
    /// The columns that are read; then which of these form the id, and which are in the answer.
    schema: SchemaRef,
    id: Vec<usize>,
    answered: Vec<usize>,
    /// Rows found but not ready yet.
    found: Vec<FoundRows>,
    /// Rows that are sorted but not handed over yet.
    ready: ReadyRows,
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
            ready: ReadyRows::default(),
            handed_rows: 0,
            handed_units: 0,
            // A query without rows has one empty batch.
            is_over: false,
        })
    }

    /// The cut below which every matching row was found.
    fn known(&self) -> Cut {
        let until = self.query.window.until();
        let open = self.members.iter().filter(|member| !member.is_over);
        open.map(|member| member.cut).fold(until, Ord::min)
    }

    /// Number of rows below a cut that is not below the known one, as far as they have been found.
    fn rows_below(&self, cut: Cut) -> usize {
        let below = self.found.iter().map(|found| cut.prefix(&found.weights)).sum::<usize>();
        self.ready.rows() + below
    }

    /// How many rows are still to be found; `None` if there are enough.
    fn missing(&self, rows: usize) -> Option<usize> {
        let known = self.known();
        if let Some(wanted) = self.query.units.map(|units| units - self.handed_units) {
            let below = self.found.iter().map(|found| &found.weights[..known.prefix(&found.weights)]);
            let found = self.ready.units() + units(below);
            if found >= wanted {
                return None;
            }
            // A unit has at least one row; if it has more, the next round notices.
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

    /// Reads until `rows` rows are known, or all that the query asks for.
    pub(super) async fn read_toward(&mut self, rows: usize) -> Result<(), TableError> {
        loop {
            self.take_over();
            let Some(missing) = self.missing(rows) else { return Ok(()) };
            let lowest = self.known().share();
            let is_behind =
                |member: &&mut Member| !member.is_over && member.cut.share() <= lowest * CUT_FACTOR_MAX;
            let mut behind: Vec<&mut Member> = self.members.iter_mut().filter(is_behind).collect();
            if behind.is_empty() {
                return Ok(());
            }
            let each = (missing / behind.len()).saturating_add(1).max(ROWS_MIN);
            try_join_all(behind.iter_mut().map(|member| member.read(each))).await?;
        }
    }

    /// Takes over the batches that the tables have read, including those of a call that failed. Rows of equal
    /// weight and id come in the order of the tables; within a table, which hands over whole units, they keep
    /// their order.
    fn take_over(&mut self) {
        for (place, member) in (0..).zip(&mut self.members) {
            for Refined { rows, weights, .. } in member.read.drain(..) {
                let lies_at = vec![place; weights.len()];
                self.found.extend((!weights.is_empty()).then_some(FoundRows { rows, weights, lies_at }));
            }
        }
    }

    /// Hands over known rows in whole units, about `rows` rows at most. On an error nothing is handed over,
    /// and all rows wait for the next call.
    pub(super) fn hand_over(&mut self, rows: usize) -> Result<Refined, TableError> {
        let known = self.known();
        let earlier = self.ready.take_known(&mut self.found, known, &self.schema, &self.id)?;
        let HandedRows { rows, weights, cut, .. } = match self.portion(known, rows) {
            Ok(handed) => handed,
            Err(error) => {
                self.ready.give_back(&earlier, &mut self.found);
                return Err(error);
            }
        };
        self.ready.remove_first(weights.len());
        self.handed_rows += weights.len();
        self.handed_units += units(std::iter::once(&weights[..]));
        let has_rest = self.ready.rows() > 0 || !self.found.is_empty();
        self.is_over = (!has_rest && self.members.iter().all(|member| member.is_over))
            || self.query.limit.is_some_and(|limit| self.handed_rows >= limit)
            || self.query.units.is_some_and(|units| self.handed_units >= units);
        let work = self.members.iter().map(|member| member.work).fold(Work::default(), sum_of);
        let work = Work { rows_returned: self.handed_rows as u64, ..work };
        Ok(Refined { version: self.version, rows, weights, cut, is_last: self.is_over, work })
    }

    /// The next portion of the rows that are ready.
    fn portion(&self, known: Cut, rows: usize) -> Result<HandedRows, TableError> {
        let weights = self.ready.weights();
        let portion = whole_units(weights, rows);
        let of_limit = self.query.limit.map(|limit| limit - self.handed_rows);
        let portion = of_limit.map_or(portion, |limit| portion.min(limit));
        // Counts the units of no more rows than these, of however many are ready.
        let of_units =
            self.query.units.map(|units| rows_of_units(&weights[..portion], units - self.handed_units));
        let portion = of_units.unwrap_or(portion);
        let cut = weights.get(portion).map_or(known, |next| Cut::below(*next));
        let rows = self.ready.batch(0..portion, &self.schema, &self.answered)?;
        Ok(HandedRows { rows, weights: weights[..portion].to_vec(), cut, contained: Vec::new() })
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

/// The columns to read: those of the answer, and the id, which orders rows of equal weight.
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
