//! Estimates: a question from Python, and what the estimators answer.

use crate::ask::Ask;
use crate::error::{Failure, misuse};
use crate::runtime::wait;
use crate::table::{Table, work_as_dict};
use atoll_tables::estimate::{Confidence, EstimateRequest, Subject, Tolerance};
use atoll_tables::expression::{Column, Expression};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The attributes of a question that the native half reads.
#[derive(FromPyObject)]
pub(crate) struct Question {
    /// `mean`, `sum`, `quantile` or `share`.
    subject: String,
    /// The column or, of a share, the condition, as the grammar writes it.
    text: String,
    /// Which quantile.
    quantile: f64,
    confidence: f64,
    /// `relative`, `absolute` or `of_sd` with how narrow it shall be; none for the sample as it is.
    tolerance: Option<(String, f64)>,
    max_rows: Option<u64>,
}

impl Question {
    fn request(self) -> PyResult<EstimateRequest> {
        let subject = self.subject()?;
        let confidence = Confidence::new(self.confidence).map_err(refused)?;
        let request = EstimateRequest::new(subject).confidence(confidence);
        let Some((kind, width)) = self.tolerance else { return Ok(request) };
        let tolerance = match kind.as_str() {
            "relative" => Tolerance::Relative(width),
            "absolute" => Tolerance::Absolute(width),
            "of_sd" => Tolerance::OfDeviation(width),
            _ => return Err(misuse("a tolerance that there is not")),
        };
        Ok(request.within(tolerance, self.max_rows))
    }

    fn subject(&self) -> PyResult<Subject> {
        let expression = Expression::parse(&self.text).map_err(Failure::from)?;
        if self.subject == "share" {
            return Ok(Subject::Share(expression));
        }
        let Expression::Column(column) = expression else {
            return Err(Failure::input(format!("{} is no column", self.text)).into());
        };
        self.subject_of(column)
    }

    fn subject_of(&self, column: Column) -> PyResult<Subject> {
        match self.subject.as_str() {
            "mean" => Ok(Subject::Mean(column)),
            "sum" => Ok(Subject::Sum(column)),
            "quantile" => Ok(Subject::Quantile(column, self.quantile)),
            _ => Err(misuse("a subject that there is not")),
        }
    }
}

fn refused(error: atoll_tables::estimate::EstimateError) -> PyErr {
    Failure::from(atoll_tables::TableError::from(error)).into()
}

/// Estimates a number of the rows of a query: its parts by name.
#[pyfunction]
pub(crate) fn estimate<'py>(
    table: &Bound<'py, Table>,
    ask: Ask,
    question: Question,
) -> PyResult<Bound<'py, PyDict>> {
    let py = table.py();
    let (table, query, request) = (table.get().handle()?, ask.query()?, question.request()?);
    let estimated = wait(py, async move { table.estimate(&query, &request).await })?;
    let estimate = estimated.estimate;
    let dict = PyDict::new(py);
    dict.set_item("value", estimate.value)?;
    dict.set_item("low", estimate.low)?;
    dict.set_item("high", estimate.high)?;
    dict.set_item("confidence", estimate.confidence)?;
    dict.set_item("method", estimate.method.name())?;
    dict.set_item("is_exact", estimate.is_exact())?;
    dict.set_item("units", estimate.units)?;
    dict.set_item("rows", estimate.rows)?;
    dict.set_item("deviation", estimate.deviation)?;
    dict.set_item("doubts", estimate.doubts.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    dict.set_item("rows_read", estimated.rows_read)?;
    dict.set_item("version", estimated.version.0)?;
    dict.set_item("work", work_as_dict(py, &estimated.work)?)?;
    Ok(dict)
}
