//! Estimates: questions from Python, and the answers of the estimators.

use crate::ask::Ask;
use crate::conform::fit;
use crate::error::{Failure, misuse};
use crate::rows::Rows;
use crate::runtime::wait;
use crate::table::{Table, work_as_dict};
use arrow_array::{ArrayRef, RecordBatch};
use atoll_tables::estimate::{Confidence, Estimate, EstimateRequest, Subject, Tolerance};
use atoll_tables::expression::{Column, Expression};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// The attributes of a question that the native half reads.
#[derive(FromPyObject)]
pub(crate) struct Question {
    /// `mean`, `sum`, `count`, `quantile` or `share`.
    subject: String,
    /// The column or, for a share, the condition, in the grammar's notation.
    text: String,
    /// Which quantile.
    quantile: f64,
    confidence: f64,
    /// `relative`, `absolute` or `of_sd`, with the tolerance; none to estimate from the sample as it is.
    tolerance: Option<(String, f64)>,
    max_rows: Option<u64>,
}

impl Question {
    pub(crate) fn request(self) -> PyResult<EstimateRequest> {
        let subject = self.subject()?;
        let confidence = Confidence::new(self.confidence).map_err(refused)?;
        let request = EstimateRequest::new(subject).confidence(confidence);
        let Some((kind, width)) = self.tolerance else { return Ok(request) };
        let tolerance = match kind.as_str() {
            "relative" => Tolerance::Relative(width),
            "absolute" => Tolerance::Absolute(width),
            "of_sd" => Tolerance::OfDeviation(width),
            _ => return Err(misuse("an unknown tolerance")),
        };
        Ok(request.within(tolerance, self.max_rows))
    }

    fn subject(&self) -> PyResult<Subject> {
        if self.subject == "count" {
            return Ok(Subject::Count);
        }
        if self.subject == "share" {
            return Ok(Subject::Share(Expression::parse(&self.text).map_err(Failure::from)?));
        }
        self.subject_of(column_of(&self.text)?)
    }

    fn subject_of(&self, column: Column) -> PyResult<Subject> {
        match self.subject.as_str() {
            "mean" => Ok(Subject::Mean(column)),
            "sum" => Ok(Subject::Sum(column)),
            "quantile" => Ok(Subject::Quantile(column, self.quantile)),
            _ => Err(misuse("an unknown subject")),
        }
    }
}

fn refused(error: atoll_tables::estimate::EstimateError) -> PyErr {
    Failure::from(atoll_tables::TableError::from(error)).into()
}

/// Estimates a number about the rows of a query, and returns its parts by name.
#[pyfunction]
pub(crate) fn estimate<'py>(
    table: &Bound<'py, Table>,
    ask: Ask,
    question: Question,
) -> PyResult<Bound<'py, PyDict>> {
    let py = table.py();
    let (table, query, request) = (table.get().readable()?, ask.query()?, question.request()?);
    let estimated = wait(py, async move { table.estimate(&query, &request).await })?;
    let dict = estimate_as_dict(py, estimated.estimate)?;
    dict.set_item("rows_read", estimated.rows_read)?;
    dict.set_item("version", estimated.version.0)?;
    dict.set_item("work", work_as_dict(py, &estimated.work)?)?;
    Ok(dict)
}

/// Several estimates from one sample: the groups, if any; for each an estimate or none; the number of rows in
/// total, if known; the version; the rows read; and the work that took.
type Several<'py> =
    (Option<Rows>, Vec<Option<Bound<'py, PyDict>>>, Option<u64>, u64, u64, Bound<'py, PyDict>);

/// Estimates the mean of a column in each group of another. `known` has the values of groups that are known
/// to exist, in its first column.
#[pyfunction]
#[pyo3(signature = (table, ask, column, by, how, known=None))]
pub(crate) fn estimate_groups<'py>(
    table: &Bound<'py, Table>,
    ask: Ask,
    column: &str,
    by: String,
    how: (f64, bool),
    known: Option<Bound<'py, Rows>>,
) -> PyResult<Several<'py>> {
    let py = table.py();
    let known = known.map(|known| known_groups(table, &by, &known)).transpose()?;
    let (table, query) = (table.get().readable()?, ask.query()?);
    let (column, how) = (column_of(column)?, (Confidence::new(how.0).map_err(refused)?, how.1));
    let name = by.clone();
    let found = wait(py, async move { table.estimate_groups(&query, &column, &by, known, how).await })?;
    let groups = RecordBatch::try_from_iter([(name, found.groups)]).map_err(Failure::from)?;
    let means = found.means.into_iter().map(|mean| mean.map(|mean| estimate_as_dict(py, mean)).transpose());
    let (means, work) = (means.collect::<PyResult<_>>()?, work_as_dict(py, &found.work)?);
    Ok((Some(Rows::new(groups)), means, None, found.version.0, found.rows_read, work))
}

/// The values of known groups, in the type that their column has in the table.
fn known_groups(table: &Bound<'_, Table>, by: &str, known: &Bound<'_, Rows>) -> PyResult<ArrayRef> {
    let py = table.py();
    let (schema, known) = (table.get().schema_now(py)?, known.get().whole(py)?);
    let Some(values) = known.columns().first() else { return Err(misuse("a column of groups")) };
    match schema.columns().column_with_name(by) {
        // Where the column is never null, a group of null is not seen.
        Some((_, field)) => Ok(fit(&field.clone().with_nullable(true), values)?),
        // The estimate refuses a column that does not exist.
        None => Ok(Arc::clone(values)),
    }
}

/// Estimates the share of rows in each bin of a column.
#[pyfunction]
pub(crate) fn estimate_histogram<'py>(
    table: &Bound<'py, Table>,
    ask: Ask,
    column: &str,
    edges: Vec<f64>,
    how: (f64, bool),
) -> PyResult<Several<'py>> {
    let py = table.py();
    let (table, query) = (table.get().readable()?, ask.query()?);
    let (column, how) = (column_of(column)?, (Confidence::new(how.0).map_err(refused)?, how.1));
    let found = wait(py, async move { table.estimate_histogram(&query, &column, &edges, how).await })?;
    let bins = found.bins.into_iter().map(|bin| estimate_as_dict(py, bin).map(Some));
    let (bins, work) = (bins.collect::<PyResult<_>>()?, work_as_dict(py, &found.work)?);
    Ok((None, bins, found.rows, found.version.0, found.rows_read, work))
}

/// Parses a column, or an element of one, in the grammar's notation.
pub(crate) fn column_of(text: &str) -> PyResult<Column> {
    match Expression::parse(text).map_err(Failure::from)? {
        Expression::Column(column) => Ok(column),
        _ => Err(Failure::input(format!("{text} is not a column")).into()),
    }
}

/// The parts of an estimate by name.
pub(crate) fn estimate_as_dict(py: Python<'_>, estimate: Estimate) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("value", estimate.value)?;
    dict.set_item("low", estimate.low)?;
    dict.set_item("high", estimate.high)?;
    dict.set_item("confidence", estimate.confidence)?;
    dict.set_item("method", estimate.method.name())?;
    dict.set_item("is_exact", estimate.is_exact())?;
    dict.set_item("units", estimate.units)?;
    dict.set_item("rows", estimate.rows)?;
    dict.set_item("missing", estimate.missing)?;
    dict.set_item("deviation", estimate.deviation)?;
    dict.set_item("doubts", estimate.doubts.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(dict)
}
