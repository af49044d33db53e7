//! Answers of any length in bounded memory: batch by batch, in no order.

use crate::error::Failure;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use crate::table::work_as_dict;
use atoll_tables::Scanning;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A query whose rows come batch by batch, in no order.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Scan {
    held: Kept<Arc<Mutex<Scanning>>>,
}

/// The rows of a batch, the version, and the work so far.
type Batch<'py> = (Rows, u64, Bound<'py, PyDict>);

impl Scan {
    pub(crate) fn new(scanning: Scanning) -> Self {
        Self { held: Kept::new(Arc::new(Mutex::new(scanning))) }
    }
}

#[pymethods]
impl Scan {
    /// The next rows; none after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Batch<'py>>> {
        let held = Arc::clone(self.held.get()?);
        let next = async move {
            let mut scanning = held.lock().await;
            let batch = scanning.next().await?;
            Ok::<_, Failure>(batch.map(|rows| (rows, scanning.version(), scanning.work())))
        };
        let Some((rows, version, work)) = wait(py, next)? else { return Ok(None) };
        Ok(Some((Rows::new(rows), version.unwrap_or_default().0, work_as_dict(py, &work)?)))
    }
}
