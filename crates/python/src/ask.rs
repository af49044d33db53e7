//! Queries: the attributes of a Python query become a [`Query`].

use crate::error::Failure;
use atoll_tables::expression::{Cell, Expression, parse_box};
use atoll_tables::protocol::{RunId, Version};
use atoll_tables::{Boundary, BoundaryError, Cut, OfObjects, OfRuns, Query};
use pyo3::prelude::*;
use std::collections::BTreeSet;

/// The attributes of a Python query that the native half reads.
#[derive(FromPyObject)]
pub(crate) struct Ask {
    condition: Option<String>,
    after: f64,
    until: f64,
    units: Option<usize>,
    rows: Option<usize>,
    columns: Option<Vec<String>>,
    runs: Option<Vec<OfRun>>,
    objects: Option<Vec<u8>>,
    version: Option<u64>,
    arriving: bool,
    pub(crate) ordered: bool,
}

/// A run by name: in every table of a union, or in the table at a position.
#[derive(FromPyObject)]
enum OfRun {
    #[pyo3(transparent)]
    Everywhere(String),
    #[pyo3(transparent)]
    At((usize, String)),
}

/// The runs of a query: by name alone, or separately for each table.
fn of_runs(runs: Vec<OfRun>) -> OfRuns {
    let is_of_each = runs.iter().any(|run| matches!(run, OfRun::At(_)));
    if !is_of_each {
        let name = |run: OfRun| match run {
            OfRun::Everywhere(name) | OfRun::At((_, name)) => name,
        };
        return OfRuns::new(runs.into_iter().map(name).map(|name| RunId::from(name.as_str())));
    }
    let mut of_each: Vec<BTreeSet<RunId>> = Vec::new();
    for run in runs {
        if let OfRun::At((place, name)) = run {
            of_each.resize_with(of_each.len().max(place + 1), BTreeSet::new);
            of_each[place].insert(RunId::from(name.as_str()));
        }
    }
    OfRuns::of_each(of_each)
}

impl Ask {
    pub(crate) fn query(self) -> Result<Query, Failure> {
        Ok(Query {
            filter: self.condition.as_deref().map(Expression::parse).transpose()?,
            window: Cut::window(self.after, self.until)?,
            units: self.units,
            limit: self.rows,
            columns: self.columns,
            runs: self.runs.map(of_runs),
            objects: self.objects.as_deref().map(OfObjects::from_bytes).transpose()?,
            as_of: self.version.map(Version),
            with_arriving: self.arriving,
        })
    }
}

/// Parses a condition and returns it in the grammar's notation.
#[pyfunction]
pub(crate) fn condition(text: &str) -> PyResult<String> {
    Ok(Expression::parse(text).map_err(Failure::from)?.to_string())
}

/// The sides of a box, `x=0:1, time=2.0:`, as a condition; none if every side is open.
#[pyfunction]
pub(crate) fn box_condition(text: &str) -> PyResult<Option<String>> {
    let sides = parse_box(text).map_err(Failure::from)?;
    let conditions = sides.iter().filter_map(|side| side.condition());
    Ok(conditions.reduce(Expression::and).map(|condition| condition.to_string()))
}

/// A cell as Python passes it: axes, low ends, lengths and tilts.
type CellParts = (Vec<String>, Vec<f64>, Vec<f64>, Vec<f64>);

fn boundary((axes, low, lengths, tilts): CellParts) -> Result<Boundary, Failure> {
    let cell = Cell::new(&lengths, &tilts).map_err(Failure::input)?;
    Boundary::new(&axes, &low, cell).map_err(refused)
}

fn refused(error: BoundaryError) -> Failure {
    Failure::from(atoll_tables::TableError::from(error))
}

/// Checks a cell and returns it as JSON, the form in which attributes hold it.
#[pyfunction]
pub(crate) fn checked_cell(cell: CellParts) -> PyResult<String> {
    Ok(boundary(cell)?.to_json().to_string())
}

/// The rows within a radius of a point in a cell, as a condition.
#[pyfunction]
pub(crate) fn near_condition(cell: CellParts, point: Vec<f64>, radius: f64) -> PyResult<String> {
    Ok(boundary(cell)?.near(&point, radius).map_err(refused)?.to_string())
}

/// The sides of a box that wraps around the boundary of a cell, as a condition; none if every side is open.
#[pyfunction]
pub(crate) fn wrapped_condition(cell: CellParts, text: &str) -> PyResult<Option<String>> {
    let sides = parse_box(text).map_err(Failure::from)?;
    let wrapped = boundary(cell)?.wrapped(&sides).map_err(refused)?;
    Ok(wrapped.map(|condition| condition.to_string()))
}

/// Returns an error unless both are shares and the first is no greater than the second.
#[pyfunction]
pub(crate) fn check_window(after: f64, until: f64) -> PyResult<()> {
    Cut::window(after, until).map(drop).map_err(|error| Failure::from(error).into())
}
