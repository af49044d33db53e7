//! Answers that come in steps, each with an estimate if one was asked for.

use crate::error::Failure;
use crate::estimate::estimate_as_dict;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use crate::table::work_as_dict;
use atoll_tables::estimate::{Estimate, RefinedEstimates};
use atoll_tables::{Cut, Refined, Refining, TableError, Weight};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A query whose rows come batch by batch, the lightest first.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Refinement {
    held: Kept<Arc<Mutex<Held>>>,
}

enum Held {
    Plain(Refining),
    WithEstimates(Box<RefinedEstimates>),
}

/// One step: the new rows, the version, the work so far, the share below which everything has been returned,
/// whether it is the last step, and the estimate if one was asked for.
type Step<'py> = (Rows, u64, Bound<'py, PyDict>, f64, bool, Option<Bound<'py, PyDict>>);

impl Refinement {
    pub(crate) fn plain(refining: Refining) -> Self {
        Self { held: Kept::new(Arc::new(Mutex::new(Held::Plain(refining)))) }
    }

    pub(crate) fn with_estimates(estimates: RefinedEstimates) -> Self {
        Self { held: Kept::new(Arc::new(Mutex::new(Held::WithEstimates(Box::new(estimates))))) }
    }
}

impl Held {
    async fn next(&mut self, rows: Option<usize>) -> Result<Option<(Refined, Option<Estimate>)>, TableError> {
        match self {
            Self::Plain(refining) => {
                rows.into_iter().for_each(|rows| refining.want(rows));
                Ok(refining.next().await?.map(|refined| (refined, None)))
            }
            Self::WithEstimates(estimates) => {
                rows.into_iter().for_each(|rows| estimates.want(rows));
                Ok(estimates.next().await?.map(|(refined, estimate)| (refined, Some(estimate))))
            }
        }
    }
}

#[pymethods]
impl Refinement {
    /// The next rows, at least `rows` of them if that is given and as many are left; none after the last.
    #[pyo3(signature = (rows=None))]
    fn next<'py>(&self, py: Python<'py>, rows: Option<usize>) -> PyResult<Option<Step<'py>>> {
        let held = Arc::clone(self.held.get()?);
        let next = async move { held.lock().await.next(rows).await.map_err(Failure::from) };
        let Some((refined, estimate)) = wait(py, next)? else { return Ok(None) };
        let work = work_as_dict(py, &refined.work)?;
        let share = share_of(refined.cut, refined.weights.last().copied());
        let estimate = estimate.map(|estimate| estimate_as_dict(py, estimate)).transpose()?;
        Ok(Some((Rows::new(refined.rows), refined.version.0, work, share, refined.is_last, estimate)))
    }
}

/// A share whose sample is exactly the units below the cut.
///
/// A double has 53 bits and a cut 64, so a rounded share may lose the last unit that was returned, or include
/// the next one. It is rounded down, unless that would lose the last unit.
fn share_of(cut: Cut, last: Option<Weight>) -> f64 {
    let sample = |share: f64| Cut::of_share(share.clamp(0.0, 1.0)).unwrap_or(Cut::ALL);
    let nearest = cut.share();
    let below = if sample(nearest) > cut { nearest.next_down() } else { nearest };
    match last {
        Some(last) if !sample(below).takes(last) => below.next_up(),
        _ => below,
    }
}
