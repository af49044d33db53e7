//! How many rows a total is about: what can be known of that beside a sample.
//!
//! A sum or a number of rows is far more certain where the exact number of the rows in question is known.
//! Versions and directories know it for whole tables and whole parts of them. Across the border of a region
//! rows have to be read to be counted, which is worth as much as the sample itself.
//!
//! Invariant: a number of rows belongs to the version of the sample.
//! Invariant: counting decodes no more rows than the sample took, and reads nothing where a tolerance
//! determines how much is read.

use super::planning::together;
use super::{Confidence, Estimate, EstimateError, KnownPart, Quantity, Units};
use crate::expression::Bound;
use crate::table::{ContainedRows, KnownCount};
use crate::{Answer, Cut, Query, Readable, TableError, TableSchema, Window, Work};

/// A sample, with what is known about all rows that it is a sample of.
pub(super) struct Sample {
    pub(super) answer: Answer,
    /// The exact number of these rows.
    pub(super) rows: Option<u64>,
    /// Which rows of the sample lie in parts whose number of rows is known.
    contained: ContainedRows,
    /// The work of reading the sample, and of counting.
    pub(super) work: Work,
}

impl Readable {
    /// Reads a sample; for a total whose number of rows is not known, also finds what can be known of that.
    pub(super) async fn sample(&self, query: &Query, is_open_total: bool) -> Result<Sample, TableError> {
        if !is_open_total {
            let answer = self.query(query).await?;
            let work = answer.work;
            return Ok(Sample { answer, rows: None, contained: ContainedRows::default(), work });
        }
        let (answer, contained) = self.query_in_parts(query).await?;
        let of_version = Query { as_of: Some(answer.version), ..query.clone() };
        let count = self.count_beside(&of_version, answer.work.rows_touched).await?;
        let (rows, spent) = count.map_or((None, Work::default()), |count| (count.rows, count.work));
        let work = together(answer.work, spent);
        Ok(Sample { answer, rows, contained, work })
    }

    /// Counts all rows that a query's sample is of, if directories tell whether they match, and that decodes
    /// at most `rows_max` rows; if this is 0, only if the version knows their number.
    pub(super) async fn count_beside(
        &self,
        query: &Query,
        rows_max: u64,
    ) -> Result<Option<KnownCount>, TableError> {
        let schema = self.schema();
        let filter = query.filter.as_ref().map(|filter| filter.bind(schema.columns())).transpose()?;
        if filter.is_some_and(|filter| !is_decidable(&schema, &filter)) {
            return Ok(None);
        }
        let (window, columns) = (Window::below(Cut::ALL), Some(Vec::new()));
        let all = Query { window, units: None, limit: None, columns, ..query.clone() };
        self.count_if_cheap(&all, rows_max).await.map(Some)
    }
}

/// Whether the extents of the index columns can tell that all rows of a part satisfy a condition.
fn is_decidable(schema: &TableSchema, filter: &Bound) -> bool {
    let index = schema.index_columns();
    filter.columns().iter().all(|name| index.iter().any(|column| column.name == *name))
}

impl Sample {
    /// The estimate of a quantity from values of the rows that belong to `units`.
    pub(super) fn estimate(
        &self,
        quantity: Quantity,
        units: &Units,
        values: &[f64],
        confidence: &Confidence,
    ) -> Result<Estimate, EstimateError> {
        match (quantity, self.rows) {
            (Quantity::Count { rows: None }, Some(rows)) => return Ok(Estimate::known(rows as f64)),
            (Quantity::Sum { rows: None }, rows @ Some(_)) => {
                return Quantity::Sum { rows }.estimate(units, values, confidence);
            }
            _ => {}
        }
        let ContainedRows { total, of_rows } = &self.contained;
        if *total == 0 {
            return quantity.estimate(units, values, confidence);
        }
        quantity.estimate_beside(KnownPart { rows: *total, of_rows }, units, values, confidence)
    }
}
