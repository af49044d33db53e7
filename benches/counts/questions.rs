//! Questions as the Python half writes them, and the measurements of an answer.

use crate::peers::EngineError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use atoll_tables::expression::Expression;
use atoll_tables::{Cut, Query, Window, Work};
use serde::{Deserialize, Serialize};

/// One question.
#[derive(Deserialize)]
pub struct Question {
    /// Its name.
    pub name: String,
    /// The conditions, in the grammar of tables; if none, every row.
    pub expression: Option<String>,
    /// The share of all sampling units.
    pub share: f64,
    /// The most rows to return.
    pub limit: Option<usize>,
}

impl Question {
    /// The question as a query of tables, for all columns.
    pub fn query(&self) -> Result<Query, EngineError> {
        let filter = self.expression.as_deref().map(Expression::parse).transpose()?;
        let window = Window::below(Cut::of_share(self.share)?);
        Ok(Query { filter, window, limit: self.limit, ..Query::default() })
    }
}

/// The cost of an answer, counted twice: by the table itself, and below it.
#[derive(Serialize)]
pub struct Counted {
    /// The question's name.
    pub name: String,
    /// Rows of every band that was decoded.
    pub rows_touched: u64,
    /// Rows of the answer.
    pub rows_returned: u64,
    /// Contiguous ranges of objects, as the table counts them.
    pub requests: u64,
    /// Bytes that they brought, as the table counts them.
    pub bytes: u64,
    /// All requests to the store below, those for the table's version included.
    pub requests_below: u64,
    /// Bytes that the store below returned.
    pub bytes_below: u64,
    /// Bytes of the answer as plain columns.
    pub bytes_returned: u64,
    /// Milliseconds of wall clock time, with the store's cache in the state that earlier questions left.
    pub milliseconds: f64,
    /// Sums that identify the answer.
    pub sums: Sums,
}

/// Sums over the rows of an answer, which distinguish it from others.
#[derive(Serialize)]
pub struct Sums {
    pub rows: u64,
    pub sum_pid: i64,
    pub sum_step: i64,
    pub sum_vz: f64,
}

impl Counted {
    /// Combines the counts of both sides.
    pub fn new(name: &str, work: &Work, below: (u64, u64), rows: &RecordBatch) -> Result<Self, EngineError> {
        Ok(Self {
            name: name.to_owned(),
            rows_touched: work.rows_touched,
            rows_returned: work.rows_returned,
            requests: work.requests,
            bytes: work.bytes,
            requests_below: below.0,
            bytes_below: below.1,
            bytes_returned: plain_bytes(rows),
            milliseconds: 0.0,
            sums: Sums::of(rows)?,
        })
    }
}

fn plain_bytes(rows: &RecordBatch) -> u64 {
    let width = |column: &arrow_array::ArrayRef| column.data_type().primitive_width().unwrap_or(0);
    rows.columns().iter().map(width).sum::<usize>() as u64 * rows.num_rows() as u64
}

impl Sums {
    fn of(rows: &RecordBatch) -> Result<Self, EngineError> {
        let column = |name: &str| rows.column_by_name(name).ok_or_else(|| format!("no column {name}"));
        let pid = column("pid")?.as_primitive_opt::<Int32Type>().ok_or("pid is no int32")?;
        let step = column("step")?.as_primitive_opt::<Int64Type>().ok_or("step is no int64")?;
        let vz = column("vz")?.as_primitive_opt::<Float32Type>().ok_or("vz is no float32")?;
        Ok(Self {
            rows: rows.num_rows() as u64,
            sum_pid: pid.values().iter().map(|&value| i64::from(value)).sum(),
            sum_step: step.values().iter().sum(),
            sum_vz: vz.values().iter().map(|&value| f64::from(value)).sum(),
        })
    }
}
