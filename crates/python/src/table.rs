//! A table: appended to, and asked.

use crate::ask::Ask;
use crate::conform::conform;
use crate::error::Failure;
use crate::refinement::Refinement;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use crate::schema::Schema;
use atoll_tables::protocol::{BlockId, RunId, Version};
use atoll_tables::{PackOptions, Table as Opened, Work};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A table of a store.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Table {
    handle: Kept<Arc<Opened>>,
    name: String,
    schema: Arc<atoll_tables::TableSchema>,
}

impl Table {
    pub(crate) fn new(table: Opened) -> Self {
        let (name, schema) = (table.name().to_owned(), Arc::clone(table.schema()));
        Self { handle: Kept::new(Arc::new(table)), name, schema }
    }

    pub(crate) fn handle(&self) -> Result<Arc<Opened>, Failure> {
        self.handle.get().map(Arc::clone)
    }
}

#[pymethods]
impl Table {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Names of the columns, in their order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.columns().fields().iter().map(|field| field.name().clone()).collect()
    }

    #[getter]
    fn schema(&self) -> Schema {
        Schema(Arc::clone(self.schema.columns()))
    }

    /// Names of the columns of each role, and the salt: `(id, sample_key, index, salt)`.
    #[getter]
    fn roles(&self) -> (Vec<String>, Vec<String>, Vec<String>, u64) {
        let roles = self.schema.roles();
        (roles.id, roles.sample_key, roles.index, roles.salt)
    }

    /// A number of this handle of the table, which no other has.
    #[getter]
    fn session(&self) -> PyResult<u128> {
        Ok(self.handle()?.handle_number())
    }

    /// The number of the version that is current.
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        let table = self.handle()?;
        Ok(wait(py, async move { table.version().await })?.0)
    }

    /// Begins an attempt of a run.
    fn begin(&self, py: Python<'_>, run: String, attempt: u64, ranks: u32) -> PyResult<u64> {
        let table = self.handle()?;
        Ok(wait(py, async move { table.begin(&run, attempt, ranks).await })?.0)
    }

    /// Begins the next attempt of a run, and says which it is.
    fn begin_next(&self, py: Python<'_>, run: String, ranks: u32) -> PyResult<u64> {
        let table = self.handle()?;
        wait(py, async move { table.begin_next(&run, ranks).await })
    }

    /// The runs: name, attempt, ranks, last complete step, last step of this attempt, steps, rows.
    fn runs(&self, py: Python<'_>) -> PyResult<Vec<Run>> {
        let table = self.handle()?;
        let runs = wait(py, async move { table.runs().await })?;
        let run = |run: atoll_tables::RunSummary| {
            (run.name, run.attempt, run.ranks, run.last_complete, run.published, run.steps, run.rows)
        };
        Ok(runs.into_iter().map(run).collect())
    }

    /// The complete steps: run, step, time, attempt, rows.
    #[pyo3(signature = (run=None))]
    fn steps(&self, py: Python<'_>, run: Option<String>) -> PyResult<Vec<Step>> {
        let table = self.handle()?;
        let steps = wait(py, async move { table.steps(run.as_deref()).await })?;
        Ok(steps.into_iter().map(|step| (step.run, step.step, step.time, step.attempt, step.rows)).collect())
    }

    /// The last complete step of a run.
    fn last_complete(&self, py: Python<'_>, run: String) -> PyResult<Option<u64>> {
        let table = self.handle()?;
        wait(py, async move { table.last_complete(&run).await })
    }

    /// Waits until there is a version after `since`, or for so many seconds; the version that is current then.
    fn follow(&self, py: Python<'_>, since: u64, seconds: f64) -> PyResult<u64> {
        let table = self.handle()?;
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::input(format!("{seconds} is no time to wait, in seconds")))?;
        Ok(wait(py, async move { table.follow(Version(since), time).await })?.0)
    }

    /// Keeps attributes of a run.
    fn set_run_attributes(
        &self,
        py: Python<'_>,
        run: String,
        attributes: BTreeMap<String, String>,
    ) -> PyResult<()> {
        let table = self.handle()?;
        wait(py, async move { table.set_run_attributes(&run, &attributes).await })
    }

    /// The attributes of a run.
    fn run_attributes(&self, py: Python<'_>, run: String) -> PyResult<BTreeMap<String, String>> {
        let table = self.handle()?;
        wait(py, async move { table.run_attributes(&run).await })
    }

    /// Appends the rows of one rank and step; the version that has them.
    #[pyo3(signature = (run, attempt, step, rank, rows, time=None))]
    #[expect(clippy::too_many_arguments, reason = "the Python beside it names them")]
    fn append(
        &self,
        py: Python<'_>,
        run: &str,
        attempt: u64,
        step: u64,
        rank: u32,
        rows: &Rows,
        time: Option<f64>,
    ) -> PyResult<u64> {
        let table = self.handle()?;
        let id = BlockId { run: RunId::from(run), attempt, step, rank };
        let (schema, batch) = (Arc::clone(self.schema.columns()), rows.batch.clone());
        let append = async move {
            let batch = conform(&schema, &batch)?;
            Ok::<_, Failure>(table.append_at(id, time, &batch).await?)
        };
        Ok(wait(py, append)?.0)
    }

    /// Answers a query: the rows, the version that was read, and what it took.
    fn query<'py>(&self, py: Python<'py>, ask: Ask) -> PyResult<(Rows, u64, Bound<'py, PyDict>)> {
        let (table, query) = (self.handle()?, ask.query()?);
        let answer = wait(py, async move { table.query(&query).await })?;
        Ok((Rows::new(answer.rows), answer.version.0, work_as_dict(py, &answer.work)?))
    }

    /// Packs what is worth packing, or everything; what was done, by name.
    fn pack<'py>(&self, py: Python<'py>, is_whole: bool, share: f64) -> PyResult<Bound<'py, PyDict>> {
        let table = self.handle()?;
        let options = if is_whole { PackOptions::whole() } else { PackOptions::default() };
        let options = PackOptions { share, ..options };
        let report = wait(py, async move { table.pack(&options).await })?;
        let dict = PyDict::new(py);
        dict.set_item("version", report.version)?;
        dict.set_item("trees", report.trees)?;
        dict.set_item("objects_before", report.objects_before)?;
        dict.set_item("objects_after", report.objects_after)?;
        dict.set_item("cubes", report.cubes)?;
        dict.set_item("rows", report.rows)?;
        dict.set_item("dropped", report.dropped)?;
        dict.set_item("bytes_read", report.bytes_read)?;
        dict.set_item("bytes_written", report.bytes_written)?;
        dict.set_item("lost", report.lost)?;
        Ok(dict)
    }

    /// Answers a query little by little.
    fn refine(&self, ask: Ask) -> PyResult<Refinement> {
        Ok(Refinement::new(self.handle()?.refine(&ask.query()?)))
    }

    /// How many rows a query has, and what counting took.
    fn count<'py>(&self, py: Python<'py>, ask: Ask) -> PyResult<(u64, Bound<'py, PyDict>)> {
        let (table, query) = (self.handle()?, ask.query()?);
        let count = wait(py, async move { table.count(&query).await })?;
        Ok((count.rows, work_as_dict(py, &count.work)?))
    }

    /// What an answer would read: for people, and as JSON.
    fn explain(&self, py: Python<'_>, ask: Ask) -> PyResult<(String, String)> {
        let (table, query) = (self.handle()?, ask.query()?);
        let explanation = wait(py, async move { table.explain(&query).await })?;
        let json = serde_json::to_string(&explanation).map_err(|error| Failure::input(error.to_string()))?;
        Ok((explanation.to_string(), json))
    }
}

/// Name, attempt, ranks, last complete step, last step of this attempt, steps, rows.
type Run = (String, u64, u32, Option<u64>, Option<u64>, u64, u64);

/// Run, step, time, attempt, rows.
type Step = (String, u64, Option<f64>, u64, u64);

pub(crate) fn work_as_dict<'py>(py: Python<'py>, work: &Work) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("blocks", work.blocks)?;
    dict.set_item("bands", work.bands)?;
    dict.set_item("rows_touched", work.rows_touched)?;
    dict.set_item("rows_returned", work.rows_returned)?;
    dict.set_item("requests", work.requests)?;
    dict.set_item("bytes", work.bytes)?;
    Ok(dict)
}
