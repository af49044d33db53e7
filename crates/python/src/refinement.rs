//! Answers that come little by little.

use crate::error::Failure;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use crate::table::work_as_dict;
use atoll_tables::{Cut, Refinement as Refining, Weight};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A query whose rows come batch by batch, the lightest first.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Refinement {
    held: Kept<Arc<Mutex<Refining>>>,
}

/// What comes in a step: the rows, the version, what it took so far, the share below which everything was handed
/// over, and whether it is the last.
type Step<'py> = (Rows, u64, Bound<'py, PyDict>, f64, bool);

impl Refinement {
    pub(crate) fn new(refining: Refining) -> Self {
        Self { held: Kept::new(Arc::new(Mutex::new(refining))) }
    }
}

#[pymethods]
impl Refinement {
    /// The next rows, at least `rows` of them if given and there; none after the last.
    #[pyo3(signature = (rows=None))]
    fn next<'py>(&self, py: Python<'py>, rows: Option<usize>) -> PyResult<Option<Step<'py>>> {
        let held = Arc::clone(self.held.get()?);
        let next = async move {
            let mut refining = held.lock().await;
            if let Some(rows) = rows {
                refining.want(rows);
            }
            refining.next().await.map_err(Failure::from)
        };
        let Some(refined) = wait(py, next)? else { return Ok(None) };
        let work = work_as_dict(py, &refined.work)?;
        let share = share_of(refined.cut, refined.weights.last().copied());
        Ok(Some((Rows::new(refined.rows), refined.version.0, work, share, refined.is_last)))
    }
}

/// A share whose sample is what lies below the cut.
///
/// A double has 53 bits and a cut 64, so one that is rounded may lose the last unit that was handed over, or take in the
/// next one: it is rounded down, unless the last unit would be lost by that.
fn share_of(cut: Cut, last: Option<Weight>) -> f64 {
    let sample = |share: f64| Cut::of_share(share.clamp(0.0, 1.0)).unwrap_or(Cut::ALL);
    let nearest = cut.share();
    let below = if sample(nearest) > cut { nearest.next_down() } else { nearest };
    match last {
        Some(last) if !sample(below).takes(last) => below.next_up(),
        _ => below,
    }
}
