//! A query bound to one table: names resolved to column indices, and the filter typed.

use super::bounds::Bounds;
use super::known_weights::KnownWeights;
use super::of_objects::OfObjects;
use super::of_runs::OfRuns;
use super::portion::PlannedBand;
use super::{Query, Table, TableError};
use crate::expression::Bound;
use crate::part::Part;
use crate::{TableSchema, Weight, Window};

/// A query that fits a table.
pub(super) struct BoundQuery {
    pub(super) filter: Option<Bound>,
    pub(super) bounds: Bounds,
    /// The weights of all matching rows, if the filter determines them.
    pub(super) known: Option<KnownWeights>,
    pub(super) window: Window,
    pub(super) units: Option<usize>,
    pub(super) limit: Option<usize>,
    pub(super) runs: Option<OfRuns>,
    pub(super) objects: Option<OfObjects>,
    /// Indices of the columns to read. Those needed only for conditions come last.
    pub(super) columns: Vec<usize>,
    /// How many of these are needed for rows that are known to match.
    pub(super) needed: usize,
    /// The columns of the answer, as indices into `columns`.
    pub(super) answered: Vec<usize>,
    /// Whether only the number of rows is wanted.
    is_count: bool,
    /// Whether to tell of each row whether it is contained ([`super::contained`]).
    pub(super) tells_contained: bool,
}

impl BoundQuery {
    /// Binds a query for its rows.
    pub(super) fn rows(table: &Table, query: &Query) -> Result<Self, TableError> {
        let mut asked = Self::nothing(table, query, false)?;
        let answered = columns(table, query)?;
        asked.answered = answered.into_iter().map(|place| asked.also_read(place)).collect();
        // Rows of equal weight are ordered by id.
        for &place in table.schema.id() {
            asked.also_read(place);
        }
        asked.needed = asked.columns.len();
        Ok(asked.with_filter(&table.schema))
    }

    /// Binds a query for its number of rows: only the filter's columns are read.
    pub(super) fn count(table: &Table, query: &Query) -> Result<Self, TableError> {
        // Names are checked even though the columns are not read.
        columns(table, query)?;
        Ok(Self::nothing(table, query, true)?.with_filter(&table.schema))
    }

    /// Binds a query for the values of one column, without the id: their order does not matter.
    pub(super) fn values(table: &Table, query: &Query, column: usize) -> Result<Self, TableError> {
        let mut asked = Self::nothing(table, query, false)?;
        asked.answered = vec![asked.also_read(column)];
        asked.needed = asked.columns.len();
        Ok(asked.with_filter(&table.schema))
    }

    /// The same query, telling of each row whether it is contained.
    pub(super) fn telling_contained(self, tells_contained: bool) -> Self {
        Self { tells_contained, ..self }
    }

    fn nothing(table: &Table, query: &Query, is_count: bool) -> Result<Self, TableError> {
        let filter = query.filter.as_ref().map(|filter| filter.bind(table.schema.columns())).transpose()?;
        let bounds = Bounds::of(&table.schema, filter.as_ref());
        let known = filter.as_ref().and_then(|filter| KnownWeights::of(&table.schema, filter));
        let Query { window, units, limit, .. } = *query;
        let (runs, objects) = (query.runs.clone(), query.objects.clone());
        Ok(Self {
            filter,
            bounds,
            known,
            window,
            units,
            limit,
            runs,
            objects,
            columns: Vec::new(),
            needed: 0,
            answered: Vec::new(),
            is_count,
            tells_contained: false,
        })
    }

    fn with_filter(mut self, schema: &TableSchema) -> Self {
        if let Some(filter) = self.filter.take() {
            self.also_read_for(&filter, schema);
            self.filter = Some(filter);
        }
        self
    }

    /// Whether rows that are known to match need not be read.
    pub(super) fn only_counts(&self) -> bool {
        self.is_count && self.units.is_none()
    }

    /// What has to be read of a planned band, given the known weights of matching rows; `None` if nothing.
    pub(super) fn narrowed(&self, planned: PlannedBand, part: &Part) -> Option<PlannedBand> {
        let Some(known) = &self.known else { return Some(planned) };
        let weights = known.between(planned.least, planned.greatest);
        let (least, greatest) = (*weights.first()?, *weights.last()?);
        let rows = part.rows_of(planned.band, weights)?;
        let decoded = part.facts(planned.band, Window::between(least, greatest)).decoded;
        Some(planned.narrowed((least, greatest), decoded, rows))
    }

    /// Whether a matching row can have a weight in this window.
    pub(super) fn may_weigh(&self, window: Window) -> bool {
        let range = self.window.intersection(window).clipped(Weight::LEAST, Weight::GREATEST);
        range.is_some_and(|(least, greatest)| {
            self.known.as_ref().is_none_or(|known| !known.between(least, greatest).is_empty())
        })
    }

    /// Adds the columns of a condition to those that are read.
    pub(super) fn also_read_for(&mut self, condition: &Bound, schema: &TableSchema) {
        for name in condition.columns() {
            if let Some((place, _)) = schema.columns().column_with_name(name) {
                self.also_read(place);
            }
        }
    }

    /// Adds a column to those that are read; returns its place among them.
    fn also_read(&mut self, column: usize) -> usize {
        let known = self.columns.iter().position(|&known| known == column);
        known.unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        })
    }

    /// Places of the id columns among those that are read.
    pub(super) fn id(&self, schema: &TableSchema) -> Vec<usize> {
        let place = |id: &usize| self.columns.iter().position(|column| column == id);
        schema.id().iter().filter_map(place).collect()
    }
}

/// Indices of the requested columns.
fn columns(table: &Table, query: &Query) -> Result<Vec<usize>, TableError> {
    let all = table.schema.columns();
    let Some(names) = &query.columns else { return Ok((0..all.fields().len()).collect()) };
    let place = |name: &String| {
        let unknown = || table.no_column(name);
        all.column_with_name(name).map(|(place, _)| place).ok_or_else(unknown)
    };
    names.iter().map(place).collect()
}
