//! What a query means for one table: names became places, and the filter has types.

use super::bounds::Bounds;
use super::known::Known;
use super::of_objects::OfObjects;
use super::of_runs::OfRuns;
use super::portion::Planned;
use super::{Query, Table, TableError};
use crate::expression::Bound;
use crate::part::Part;
use crate::{TableSchema, Weight, Window};

/// A query that fits a table.
pub(super) struct Asked {
    pub(super) filter: Option<Bound>,
    pub(super) bounds: Bounds,
    /// What the weights of all rows that answer are, if the filter says so.
    pub(super) known: Option<Known>,
    pub(super) window: Window,
    pub(super) units: Option<usize>,
    pub(super) limit: Option<usize>,
    pub(super) runs: Option<OfRuns>,
    pub(super) objects: Option<OfObjects>,
    /// Places of the columns to read. Those of conditions alone come last.
    pub(super) columns: Vec<usize>,
    /// How many of these are needed of rows that are known to answer.
    pub(super) needed: usize,
    /// Which of these to answer, by their places among them.
    pub(super) answered: Vec<usize>,
    /// Whether nothing but how many rows there are is asked.
    is_count: bool,
}

impl Asked {
    /// For the rows themselves.
    pub(super) fn rows(table: &Table, query: &Query) -> Result<Self, TableError> {
        let mut asked = Self::nothing(table, query, false)?;
        let answered = columns(table, query)?;
        asked.answered = answered.into_iter().map(|place| asked.also_read(place)).collect();
        // Ties of weight are put in the order of the id.
        for &place in table.schema.id() {
            asked.also_read(place);
        }
        asked.needed = asked.columns.len();
        Ok(asked.with_filter(&table.schema))
    }

    /// For how many rows there are: only the filter's columns are read.
    pub(super) fn count(table: &Table, query: &Query) -> Result<Self, TableError> {
        // Names are checked even where nobody reads the columns.
        columns(table, query)?;
        Ok(Self::nothing(table, query, true)?.with_filter(&table.schema))
    }

    fn nothing(table: &Table, query: &Query, is_count: bool) -> Result<Self, TableError> {
        let filter = query.filter.as_ref().map(|filter| filter.bind(table.schema.columns())).transpose()?;
        let bounds = Bounds::of(&table.schema, filter.as_ref());
        let known = filter.as_ref().and_then(|filter| Known::of(&table.schema, filter));
        let (columns, answered) = (Vec::new(), Vec::new());
        let Query { window, units, limit, .. } = *query;
        let (runs, objects) = (query.runs.clone(), query.objects.clone());
        let needed = 0;
        Ok(Self {
            filter,
            bounds,
            known,
            window,
            units,
            limit,
            runs,
            objects,
            columns,
            needed,
            answered,
            is_count,
        })
    }

    fn with_filter(mut self, schema: &TableSchema) -> Self {
        if let Some(filter) = self.filter.take() {
            self.also_read_for(&filter, schema);
            self.filter = Some(filter);
        }
        self
    }

    /// Whether rows need not be looked at once it is known that they answer.
    pub(super) fn only_counts(&self) -> bool {
        self.is_count && self.units.is_none()
    }

    /// What of a planned band is left once it is known which weights the rows that answer have; none if
    /// nothing is.
    pub(super) fn narrowed(&self, planned: Planned, part: &Part) -> Option<Planned> {
        let Some(known) = &self.known else { return Some(planned) };
        let weights = known.between(planned.least, planned.greatest);
        let (least, greatest) = (*weights.first()?, *weights.last()?);
        let rows = part.rows_of(planned.band, weights)?;
        let decoded = part.facts(planned.band, Window::between(least, greatest)).decoded;
        Some(planned.narrowed((least, greatest), decoded, rows))
    }

    /// Whether a row that answers can have one of these weights.
    pub(super) fn may_weigh(&self, window: Window) -> bool {
        let range = self.window.intersection(window).clipped(Weight::LEAST, Weight::GREATEST);
        range.is_some_and(|(least, greatest)| {
            self.known.as_ref().is_none_or(|known| !known.between(least, greatest).is_empty())
        })
    }

    /// Reads the columns of a condition too.
    pub(super) fn also_read_for(&mut self, condition: &Bound, schema: &TableSchema) {
        for name in condition.columns() {
            if let Some((place, _)) = schema.columns().column_with_name(name) {
                self.also_read(place);
            }
        }
    }

    /// Reads a column too; its place among those that are read.
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

/// Places of the columns that are asked for.
fn columns(table: &Table, query: &Query) -> Result<Vec<usize>, TableError> {
    let all = table.schema.columns();
    let Some(names) = &query.columns else { return Ok((0..all.fields().len()).collect()) };
    let place = |name: &String| {
        let unknown = || table.no_column(name);
        all.column_with_name(name).map(|(place, _)| place).ok_or_else(unknown)
    };
    names.iter().map(place).collect()
}
