//! A table: what is appended to it, and what is asked of it.

use crate::ask::Ask;
use crate::conform::conforming;
use crate::error::Failure;
use crate::estimate::{Question, column_of};
use crate::loader::Loader;
use crate::packer::Packer;
use crate::refinement::Refinement;
use crate::rows::Rows;
use crate::runtime::{Kept, wait};
use crate::scan::Scan;
use crate::schema::{Schema, field_of, line_of, unit_of, without_extensions};
use crate::store::Store;
use arrow_array::RecordBatch;
use atoll_store::Place;
use atoll_tables::expression::Expression;
use atoll_tables::protocol::{BlockId, RunId, Version};
use atoll_tables::{
    AttributeChanges, Attributes, AttributesOf, CopyReport, KeepPacked, PackOptions, PackReport, QuerySplit,
    Readable, Table as Opened, TableError, TableSchema, Union, Work,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A table of a store.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Table {
    held: Kept<Readable>,
    name: String,
    /// The schema at the time of opening.
    opened_with: Arc<TableSchema>,
}

impl Table {
    pub(crate) fn new(table: Opened) -> Self {
        let (name, opened_with) = (table.name().to_owned(), table.schema());
        Self { held: Kept::new(Readable::One(table)), name, opened_with }
    }

    /// The current schema; for a closed store, the one at the time of opening.
    pub(crate) fn schema_now(&self, py: Python<'_>) -> PyResult<Arc<TableSchema>> {
        match self.readable() {
            Err(_) => Ok(Arc::clone(&self.opened_with)),
            Ok(Readable::Many(union)) => Ok(union.schema()),
            Ok(Readable::One(table)) => wait(py, async move { table.schema_now().await }),
        }
    }

    /// The table or union, for queries.
    pub(crate) fn readable(&self) -> Result<Readable, Failure> {
        self.held.get().cloned()
    }

    /// The table itself, for changes and for what a union cannot do.
    pub(crate) fn handle(&self) -> Result<Opened, Failure> {
        match self.held.get()? {
            Readable::One(table) => Ok(table.clone()),
            Readable::Many(_) => Err(Failure::Several),
        }
    }

    /// Appends rows, converted to the table's schema.
    fn append_rows<T: Send + 'static, F>(
        &self,
        py: Python<'_>,
        rows: &Rows,
        append: impl FnOnce(Opened, RecordBatch) -> F + Send + 'static,
    ) -> PyResult<T>
    where
        F: Future<Output = Result<T, TableError>> + Send + 'static,
    {
        let (table, batch) = (self.handle()?, rows.whole(py)?);
        let appended = async move {
            let batch = conforming(&table, &batch).await?;
            Ok::<_, Failure>(append(table, batch).await?)
        };
        wait(py, appended)
    }

    /// The table itself, for a question that a union does not answer yet.
    fn one(&self, question: &'static str) -> Result<Opened, Failure> {
        self.handle().map_err(|failure| match failure {
            Failure::Several => Failure::OfEach { question },
            other => other,
        })
    }
}

/// A union of tables, for queries only.
#[pyfunction]
pub(crate) fn union(tables: Vec<Bound<'_, Table>>) -> PyResult<Table> {
    let tables: Vec<Opened> = tables.iter().map(|table| table.get().handle()).collect::<Result<_, _>>()?;
    let union = Readable::Many(Union::new(tables).map_err(Failure::from)?);
    let (name, opened_with) = (union.name().to_owned(), union.schema());
    Ok(Table { held: Kept::new(union), name, opened_with })
}

#[pymethods]
impl Table {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Names of the columns, in their order.
    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let schema = self.schema_now(py)?;
        Ok(schema.columns().fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Names of the columns that this handle knows, in their order. Nothing is read for it: a column that
    /// another process added is known once something else was read.
    #[getter]
    fn known_columns(&self) -> Vec<String> {
        let known = self.readable().map_or_else(|_| Arc::clone(&self.opened_with), |table| table.schema());
        known.columns().fields().iter().map(|field| field.name().clone()).collect()
    }

    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<Schema> {
        Ok(Schema(without_extensions(self.schema_now(py)?.columns())))
    }

    /// The unit of the numbers of a column, or of an element of one; none if unknown.
    fn unit(&self, column: &str) -> PyResult<Option<String>> {
        let (schema, column) = (self.readable()?.schema(), column_of(column)?);
        Ok(schema.columns().field_with_name(&column.name).ok().and_then(unit_of))
    }

    /// Adds a nullable column with its notes; returns the first version that has it.
    fn add_column(
        &self,
        py: Python<'_>,
        name: String,
        type_name: &str,
        notes: HashMap<String, String>,
    ) -> PyResult<u64> {
        let table = self.handle()?;
        let field = field_of(name, type_name, true)?.with_metadata(notes);
        let schema = self.schema_now(py)?;
        if let Some((_, there)) =
            schema.columns().column_with_name(field.name()).filter(|(_, there)| **there != field)
        {
            let problem = format!("table \"{}\" has the column {}", self.name, line_of(there));
            let hint = "a column and its attributes cannot be changed: choose another name";
            return Err(Failure::hinted(problem, hint).into());
        }
        Ok(wait(py, async move { table.add_column(field).await })?.0)
    }

    /// The names of the columns of each role, and the salt: `(id, sample_key, index, salt)`.
    #[getter]
    fn roles(&self) -> (Vec<String>, Vec<String>, Vec<String>, u64) {
        let roles = self.opened_with.roles();
        (roles.id, roles.sample_key, roles.index, roles.salt)
    }

    /// Whether the table refuses ids that their run already has.
    #[getter]
    fn unique(&self) -> bool {
        self.opened_with.has_unique_ids()
    }

    /// The unit of the times of steps; none if the table does not say.
    #[getter]
    fn time_unit(&self) -> Option<&str> {
        self.opened_with.time_unit()
    }

    /// A number that identifies this handle of the table, and no other.
    #[getter]
    fn handle_number(&self) -> PyResult<u128> {
        Ok(self.handle()?.handle_number())
    }

    /// The number of the current version.
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        let table = self.readable()?;
        Ok(wait(py, async move { table.version().await })?.0)
    }

    /// Begins an attempt of a run.
    fn begin(&self, py: Python<'_>, run: String, attempt: u64, ranks: u32) -> PyResult<u64> {
        let table = self.handle()?;
        Ok(wait(py, async move { table.begin(&run, attempt, ranks).await })?.0)
    }

    /// The steps from `first` on that the current attempt wrote and that were deleted since.
    fn deleted_steps(&self, py: Python<'_>, run: String, first: u64) -> PyResult<Vec<u64>> {
        let table = self.handle()?;
        wait(py, async move { table.deleted_steps_from(&run, first).await })
    }

    /// Waits until everything that its store acknowledged is on disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let table = self.handle()?;
        wait(py, async move { table.sync().await })
    }

    /// Begins the next attempt of a run and returns its number.
    fn begin_next(&self, py: Python<'_>, run: String, ranks: u32) -> PyResult<u64> {
        let table = self.handle()?;
        wait(py, async move { table.begin_next(&run, ranks).await })
    }

    /// The runs: name, attempt, ranks, last complete step, last step of this attempt, steps, rows.
    #[pyo3(signature = (condition=None))]
    fn runs(&self, py: Python<'_>, condition: Option<&str>) -> PyResult<Vec<Run>> {
        let table = self.readable()?;
        let condition = condition.map(Expression::parse).transpose().map_err(Failure::from)?;
        let runs = wait(py, async move {
            match condition {
                Some(condition) => table.runs_where(&condition).await,
                None => table.runs().await,
            }
        })?;
        let run = |run: atoll_tables::RunSummary| {
            (run.name, run.attempt, run.ranks, run.last_complete, run.published, run.steps, run.rows)
        };
        Ok(runs.into_iter().map(run).collect())
    }

    /// The runs that satisfy a condition, by name, for each table.
    fn runs_of_each(&self, py: Python<'_>, condition: &str) -> PyResult<Vec<Vec<String>>> {
        let table = self.readable()?;
        let condition = Expression::parse(condition).map_err(Failure::from)?;
        let of_each = wait(py, async move { table.runs_where_of_each(&condition).await })?;
        let names = |runs: Vec<atoll_tables::RunSummary>| runs.into_iter().map(|run| run.name).collect();
        Ok(of_each.into_iter().map(names).collect())
    }

    /// The complete steps from `first` on: run, step, time, attempt, rows.
    #[pyo3(signature = (run=None, first=0))]
    fn steps(&self, py: Python<'_>, run: Option<String>, first: u64) -> PyResult<Vec<Step>> {
        let table = self.readable()?;
        let steps = wait(py, async move { table.steps_from(run.as_deref(), first).await })?;
        Ok(steps.into_iter().map(|step| (step.run, step.step, step.time, step.attempt, step.rows)).collect())
    }

    /// The last complete step of a run.
    fn last_complete(&self, py: Python<'_>, run: String) -> PyResult<Option<u64>> {
        let table = self.readable()?;
        wait(py, async move { table.last_complete(&run).await })
    }

    /// What a rank needs to know of its run: attempt, last step of this attempt, last complete step, and
    /// whether this rank has written anything in it; none if the run never began.
    fn run_state(&self, py: Python<'_>, run: String, rank: u32) -> PyResult<Option<RunState>> {
        let table = self.handle()?;
        let state = wait(py, async move { table.run_state(&run, rank).await })?;
        Ok(state.map(|run| (run.attempt, run.published, run.last_complete, run.has_rank_given)))
    }

    /// The maximum bytes of the rows of one rank and step.
    #[getter]
    fn block_bytes_max(&self) -> PyResult<u64> {
        Ok(self.handle()?.block_bytes_max())
    }

    /// At most how many bytes the rows of one rank and step take as one object, and a single one of them.
    fn bytes_at_most(&self, py: Python<'_>, rows: &Rows) -> PyResult<(u64, u64)> {
        let (table, batch) = (self.handle()?, rows.whole(py)?);
        wait(py, async move {
            let batch = conforming(&table, &batch).await?;
            Ok::<_, Failure>(table.bytes_at_most(&batch)?)
        })
    }

    /// Sets the notes of one rank of a run, made by an attempt: a JSON object.
    fn set_rank_notes(
        &self,
        py: Python<'_>,
        text: &str,
        run: String,
        attempt: u64,
        rank: u32,
    ) -> PyResult<()> {
        let table = self.handle()?;
        let notes = serde_json::from_str(text).map_err(|error| Failure::input(error.to_string()))?;
        wait(py, async move { table.set_rank_notes(&run, attempt, rank, &notes).await })
    }

    /// The notes of all ranks of a run, by rank: a JSON object each. Once an attempt has read them, earlier
    /// attempts can write no more.
    fn rank_notes(&self, py: Python<'_>, run: String, attempt: u64) -> PyResult<BTreeMap<u32, String>> {
        let table = self.handle()?;
        let noted = wait(py, async move { table.rank_notes(&run, attempt).await })?;
        let text = |noted| serde_json::to_string(&noted).map_err(|error| Failure::input(error.to_string()));
        noted.into_iter().map(|(rank, noted)| Ok((rank, text(noted)?))).collect()
    }

    /// Waits for a version after `since`, at most this many seconds; returns the version that is current
    /// then.
    fn follow(&self, py: Python<'_>, since: u64, seconds: f64) -> PyResult<u64> {
        let table = self.readable()?;
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::input(format!("{seconds} is not a valid duration in seconds")))?;
        Ok(wait(py, async move { table.follow(Version(since), time).await })?.0)
    }

    /// The attributes of a run.
    fn run_attributes(&self, py: Python<'_>, run: String) -> PyResult<BTreeMap<String, String>> {
        let table = self.handle()?;
        wait(py, async move { table.run_attributes(&run).await })
    }

    /// Changes attributes of the table, of a run or of a step: a JSON object, in which null removes one.
    #[pyo3(signature = (text, run=None, step=None))]
    fn note(&self, py: Python<'_>, text: &str, run: Option<String>, step: Option<u64>) -> PyResult<()> {
        let table = self.handle()?;
        let changes: AttributeChanges =
            serde_json::from_str(text).map_err(|error| Failure::input(error.to_string()))?;
        wait(py, async move { table.note(AttributesOf::of(run.as_deref(), step), &changes).await.map(drop) })
    }

    /// The attributes of the table, of a run or of a step, for each table: a JSON object each.
    #[pyo3(signature = (run=None, step=None))]
    fn attributes(&self, py: Python<'_>, run: Option<String>, step: Option<u64>) -> PyResult<Vec<String>> {
        let table = self.readable()?;
        let of_each = wait(py, async move {
            let mut of_each = Vec::new();
            for table in table.tables() {
                of_each.push(table.attributes(AttributesOf::of(run.as_deref(), step)).await?);
            }
            Ok::<_, TableError>(of_each)
        })?;
        let text = |noted: &Attributes| {
            serde_json::to_string(noted).map_err(|error| Failure::input(error.to_string()).into())
        };
        of_each.iter().map(text).collect()
    }

    /// The rows converted to the table's schema; nothing is written.
    fn conformed(&self, py: Python<'_>, rows: &Rows) -> PyResult<Rows> {
        let (table, batch) = (self.handle()?, rows.whole(py)?);
        Ok(Rows::new(wait(py, async move { conforming(&table, &batch).await })?))
    }

    /// Appends the rows of one rank and step; returns the version that has them.
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
        let id = BlockId { run: RunId::from(run), attempt, step, rank };
        let append = move |table: Opened, batch| async move { table.append_at(id, time, &batch).await };
        Ok(self.append_rows(py, rows, append)?.0)
    }

    /// Like `append`, but returns none if the table already has this block, with these or other rows.
    #[pyo3(signature = (run, attempt, step, rank, rows, time=None))]
    #[expect(clippy::too_many_arguments, reason = "the Python beside it names them")]
    fn append_new(
        &self,
        py: Python<'_>,
        run: &str,
        attempt: u64,
        step: u64,
        rank: u32,
        rows: &Rows,
        time: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let id = BlockId { run: RunId::from(run), attempt, step, rank };
        let append = move |table: Opened, batch| async move { table.append_new(id, time, &batch).await };
        Ok(self.append_rows(py, rows, append)?.map(|version| version.0))
    }

    /// Appends the rows of one rank as its next step, at least `from_step`; returns that step and the version
    /// that has it.
    #[pyo3(signature = (run, attempt, rank, from_step, rows, time=None))]
    #[expect(clippy::too_many_arguments, reason = "the Python beside it names them")]
    fn append_next(
        &self,
        py: Python<'_>,
        run: &str,
        attempt: u64,
        rank: u32,
        from_step: u64,
        rows: &Rows,
        time: Option<f64>,
    ) -> PyResult<(u64, u64)> {
        let writer = (RunId::from(run), attempt, rank);
        let append = move |table: Opened, batch| async move {
            table.append_next(writer, from_step, time, &batch).await
        };
        let (step, version) = self.append_rows(py, rows, append)?;
        Ok((step, version.0))
    }

    /// Starts to load steps of a run, packing about `tree_bytes` of rows together.
    fn loader(&self, run: &str, attempt: u64, tree_bytes: u64) -> PyResult<Loader> {
        Ok(Loader::begin(self.handle()?, run, attempt, tree_bytes)?)
    }

    /// Answers a query: the rows, the version that was read, and the work.
    fn query<'py>(&self, py: Python<'py>, ask: Ask) -> PyResult<(Rows, u64, Bound<'py, PyDict>)> {
        let ordered = ask.ordered;
        let (table, query) = (self.readable()?, ask.query()?);
        if let (Readable::One(table), false) = (&table, ordered) {
            let table = table.clone();
            let scanned = wait(py, async move { table.scan(&query).await })?;
            let rows = Rows::of_batches(scanned.batches)?;
            return Ok((rows, scanned.version.0, work_as_dict(py, &scanned.work)?));
        }
        let answer = wait(py, async move { table.query(&query).await })?;
        Ok((Rows::new(answer.rows), answer.version.0, work_as_dict(py, &answer.work)?))
    }

    /// Divides a query among `readers` readers: for each split its objects, the version, the host, and
    /// about how many rows and bytes.
    fn splits<'py>(&self, py: Python<'py>, ask: Ask, readers: usize) -> PyResult<Vec<Split<'py>>> {
        let (table, query) = (self.readable()?, ask.query()?);
        let splits = wait(py, async move { table.splits(&query, readers).await })?;
        let told = splits.into_iter().map(|QuerySplit { query, place, rows, bytes }| {
            let objects = query.objects.map(|objects| objects.to_bytes()).unwrap_or_default();
            let version = query.as_of.unwrap_or_default().0;
            let host = match place {
                Place::Here => None,
                Place::Host(host) => Some(host),
            };
            (PyBytes::new(py, &objects), version, host, rows, bytes)
        });
        Ok(told.collect())
    }

    /// Packs what is worth packing, or everything; returns a report by name.
    #[pyo3(signature = (is_whole, share, bytes_per_second=None))]
    fn pack<'py>(
        &self,
        py: Python<'py>,
        is_whole: bool,
        share: f64,
        bytes_per_second: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let table = self.handle()?;
        let options = if is_whole { PackOptions::whole() } else { PackOptions::default() };
        let options = PackOptions { share, bytes_per_second, ..options };
        let report = wait(py, async move { table.pack(&options).await })?;
        report_as_dict(py, &report)
    }

    /// Keeps the table packed from now on, on a thread of its own.
    #[pyo3(signature = (share, bytes_per_second=None, idle_seconds=None))]
    fn keep_packed(
        &self,
        share: f64,
        bytes_per_second: Option<u64>,
        idle_seconds: Option<f64>,
    ) -> PyResult<Packer> {
        let defaults = KeepPacked::default();
        let idle = idle_seconds.map_or(Ok(defaults.idle), Duration::try_from_secs_f64);
        let idle = idle.map_err(|_| Failure::input("idle is not a valid duration in seconds"))?;
        let pack = PackOptions { share, bytes_per_second, ..PackOptions::default() };
        pack.validate().map_err(Failure::from)?;
        Ok(Packer::begin(self.handle()?, KeepPacked { pack, idle, ..defaults })?)
    }

    /// Answers a query in steps, each with an estimate if there is a question.
    #[pyo3(signature = (ask, question=None))]
    fn refine(&self, py: Python<'_>, ask: Ask, question: Option<Question>) -> PyResult<Refinement> {
        let (table, query) = (self.readable()?, ask.query()?);
        let Some(question) = question else { return Ok(Refinement::plain(table.refine(&query))) };
        let request = question.request()?;
        let estimates = wait(py, async move { table.refine_estimate(&query, &request).await })?;
        Ok(Refinement::with_estimates(estimates))
    }

    /// Answers a query batch by batch, in no order.
    fn batches(&self, ask: Ask) -> PyResult<Scan> {
        Ok(Scan::new(self.readable()?.batches(&ask.query()?)))
    }

    /// The contents of the current version, by name.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = self.readable()?;
        let info = wait(py, async move { table.info().await })?;
        let dict = PyDict::new(py);
        dict.set_item("name", info.name)?;
        dict.set_item("version", info.version.0)?;
        dict.set_item("rows", info.rows)?;
        dict.set_item("bytes", info.bytes)?;
        dict.set_item("blocks", info.blocks)?;
        dict.set_item("cubes", info.cubes)?;
        dict.set_item("runs", info.runs)?;
        dict.set_item("steps", info.steps)?;
        dict.set_item("time_unit", info.schema.time_unit())?;
        Ok(dict)
    }

    /// Deletes the visible rows that match every argument; returns the version without them.
    #[pyo3(signature = (run=None, steps=None, condition=None))]
    fn delete(
        &self,
        py: Python<'_>,
        run: Option<String>,
        steps: Option<(u64, Option<u64>)>,
        condition: Option<String>,
    ) -> PyResult<u64> {
        let table = self.handle()?;
        let delete = async move {
            let (run, condition) = (run.as_deref(), condition.as_deref());
            match steps {
                Some((first, None)) => table.delete_from(run, first, condition).await,
                Some((first, Some(end))) => table.delete(run, Some(first..end), condition).await,
                None => table.delete(run, None, condition).await,
            }
        };
        Ok(wait(py, delete)?.0)
    }

    /// Keeps a version, by default the current one, under a name; returns the version.
    #[pyo3(signature = (name, version=None))]
    fn create_snapshot(&self, py: Python<'_>, name: String, version: Option<u64>) -> PyResult<u64> {
        let table = self.handle()?;
        let version = version.map(Version);
        Ok(wait(py, async move { table.create_snapshot(&name, version).await })?.0)
    }

    /// The snapshots: name and version.
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let table = self.one("a list of snapshots")?;
        let snapshots = wait(py, async move { table.snapshots().await })?;
        Ok(snapshots.into_iter().map(|snapshot| (snapshot.name, snapshot.version.0)).collect())
    }

    /// The version that a snapshot keeps.
    fn snapshot_version(&self, py: Python<'_>, name: String) -> PyResult<u64> {
        let table = self.one("the version of a snapshot")?;
        Ok(wait(py, async move { table.snapshot_version(&name).await })?.0)
    }

    /// Deletes a snapshot.
    fn delete_snapshot(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let table = self.handle()?;
        wait(py, async move { table.delete_snapshot(&name).await })
    }

    /// Removes what only older versions need: returns the oldest remaining version, and the objects, orphans
    /// and history entries removed.
    fn vacuum(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let table = self.handle()?;
        let report = wait(py, async move { table.vacuum().await })?;
        Ok((report.oldest, report.objects, report.orphans, report.history))
    }

    /// Copies a version to a store, under a name: the version, its rows, its objects, how many of these were
    /// copied now, and their bytes.
    fn copy_to(
        &self,
        py: Python<'_>,
        store: &Store,
        name: String,
        version: Option<u64>,
    ) -> PyResult<(u64, u64, u64, u64, u64)> {
        let (table, store) = (self.handle()?, store.handle()?);
        let version = version.map(Version);
        let report = wait(py, async move { table.copy_to(&store, &name, version, &mut |_| {}).await })?;
        let CopyReport { version, rows, objects, copied, bytes } = report;
        Ok((version.0, rows, objects, copied, bytes))
    }

    /// The number of rows of a query, and the work of counting them.
    fn count<'py>(&self, py: Python<'py>, ask: Ask) -> PyResult<(u64, Bound<'py, PyDict>)> {
        let (table, query) = (self.readable()?, ask.query()?);
        let count = wait(py, async move { table.count(&query).await })?;
        Ok((count.rows, work_as_dict(py, &count.work)?))
    }

    /// The least or the greatest value of a column, in a column of one row; the version; and the work.
    fn extreme<'py>(
        &self,
        py: Python<'py>,
        ask: Ask,
        column: &str,
        is_least: bool,
    ) -> PyResult<(Rows, u64, Bound<'py, PyDict>)> {
        let (table, query, column) = (self.readable()?, ask.query()?, column_of(column)?);
        let found = wait(py, async move {
            match is_least {
                true => table.minimum(&query, &column).await,
                false => table.maximum(&query, &column).await,
            }
        })?;
        let value = RecordBatch::try_from_iter([("value", found.array())]).map_err(Failure::from)?;
        Ok((Rows::new(value), found.version.0, work_as_dict(py, &found.work)?))
    }

    /// What an answer would read: for people, and as JSON.
    fn explain(&self, py: Python<'_>, ask: Ask) -> PyResult<(String, String)> {
        let (table, query) = (self.readable()?, ask.query()?);
        let explanation = wait(py, async move { table.explain(&query).await })?;
        let json = serde_json::to_string(&explanation).map_err(|error| Failure::input(error.to_string()))?;
        Ok((explanation.to_string(), json))
    }
}

/// Name, attempt, ranks, last complete step, last step of this attempt, steps, rows.
type Run = (String, u64, u32, Option<u64>, Option<u64>, u64, u64);

/// Attempt, last step of this attempt, last complete step, whether the rank has written anything.
type RunState = (u64, Option<u64>, Option<u64>, bool);

/// Objects, version, host, rows, bytes.
type Split<'py> = (Bound<'py, PyBytes>, u64, Option<String>, u64, u64);

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

/// The report of a pack, by name.
pub(crate) fn report_as_dict<'py>(py: Python<'py>, report: &PackReport) -> PyResult<Bound<'py, PyDict>> {
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
