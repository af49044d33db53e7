//! Loading of whole steps: they are packed as they come, and written once.

use crate::conform::conforming;
use crate::error::Failure;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use arrow_array::{Array, RecordBatch, make_array};
use arrow_data::transform::MutableArrayData;
use arrow_schema::ArrowError;
use atoll_tables::{PackOptions, Table, WholeStep};
use pyo3::prelude::*;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Copies rows into memory of their own: the library that they came from may change its memory as soon as
/// this step has been taken.
fn copied(rows: &RecordBatch) -> Result<RecordBatch, Failure> {
    let columns = rows.columns().iter().map(|column| {
        let data = column.to_data();
        let mut copy = MutableArrayData::new(vec![&data], false, data.len());
        copy.try_extend(0, 0, data.len())?;
        Ok(make_array(copy.freeze()))
    });
    Ok(RecordBatch::try_new(rows.schema(), columns.collect::<Result<_, ArrowError>>()?)?)
}

/// Takes the steps of a run in rising order.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Loader {
    table: Table,
    held: Kept<Arc<Mutex<atoll_tables::Loader>>>,
}

impl Loader {
    pub(crate) fn begin(table: Table, run: &str, attempt: u64, tree_bytes: u64) -> Result<Self, Failure> {
        let loader = table.loader(run, attempt, tree_bytes, PackOptions::default())?;
        Ok(Self { table, held: Kept::new(Arc::new(Mutex::new(loader))) })
    }
}

#[pymethods]
impl Loader {
    /// Takes a step, and writes earlier ones once there are enough of them. Returns the last step that is
    /// certain to be in the table, if any.
    #[pyo3(signature = (step, time, rows))]
    fn push(&self, py: Python<'_>, step: u64, time: Option<f64>, rows: &Rows) -> PyResult<Option<u64>> {
        let (table, held, batch) = (self.table.clone(), Arc::clone(self.held.get()?), rows.whole(py)?);
        let push = async move {
            let rows = copied(&conforming(&table, &batch).await?)?;
            let mut loader = held.lock().await;
            loader.push(WholeStep { step, time, rows }).await?;
            Ok::<_, Failure>(loader.last())
        };
        wait(py, push)
    }

    /// Writes all steps taken so far and returns the version that has them.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let held = Arc::clone(self.held.get()?);
        let finish = async move { Ok::<_, Failure>(held.lock().await.finish().await?) };
        Ok(wait(py, finish)?.0)
    }
}
