//! Steps that are loaded: packed as they come, and written once.

use crate::conform::conforming;
use crate::error::Failure;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use atoll_tables::{PackOptions, Table, WholeStep};
use pyo3::prelude::*;
use std::sync::Arc;
use tokio::sync::Mutex;

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
    /// Takes a step; writes earlier ones, once enough are there. The last step that is there for sure, if any is.
    #[pyo3(signature = (step, time, rows))]
    fn push(&self, py: Python<'_>, step: u64, time: Option<f64>, rows: &Rows) -> PyResult<Option<u64>> {
        let (table, held, batch) = (self.table.clone(), Arc::clone(self.held.get()?), rows.whole()?);
        let push = async move {
            let rows = conforming(&table, &batch).await?;
            let mut loader = held.lock().await;
            loader.push(WholeStep { step, time, rows }).await?;
            Ok::<_, Failure>(loader.last())
        };
        wait(py, push)
    }

    /// Writes all that was taken; the version that has it.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let held = Arc::clone(self.held.get()?);
        let finish = async move { Ok::<_, Failure>(held.lock().await.finish().await?) };
        Ok(wait(py, finish)?.0)
    }
}
