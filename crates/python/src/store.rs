//! A store, opened by path or URL.

use crate::error::Failure;
use crate::runtime::{Kept, wait};
use crate::schema::{NotedField, schema_of};
use crate::table::Table;
use atoll_open::{Mode, OpenOptions, Password, StoreUrl};
use atoll_tables::{AttributeChanges, Roles, TableSchema};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

type Handle = Arc<dyn atoll_store::Store>;

/// The handles of a store that has no other users: this object's, and that of the call that closes it.
const OWN_HANDLES: usize = 2;

/// A store.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Store {
    handle: Kept<Handle>,
    is_read_only: bool,
}

#[pymethods]
impl Store {
    /// Opens the store at `url`. None leaves a setting at its default.
    #[staticmethod]
    #[pyo3(signature = (url, *, read_only=false, create=true, memory_bytes=None, keep_seconds=None))]
    fn open(
        py: Python<'_>,
        url: String,
        read_only: bool,
        create: bool,
        memory_bytes: Option<u64>,
        keep_seconds: Option<u64>,
    ) -> PyResult<Self> {
        let defaults = OpenOptions::default();
        let options = OpenOptions {
            mode: if read_only { Mode::Read } else { Mode::Write },
            create,
            memory_bytes: memory_bytes.unwrap_or(defaults.memory_bytes),
            // The package is an entry point of Atoll, so it reads the environment.
            password: std::env::var_os("ATOLL_CASSANDRA_PASSWORD")
                .map(|password| Password(password.to_string_lossy().into_owned())),
            keep: keep_seconds.map_or(defaults.keep, Duration::from_secs),
            ..defaults
        };
        // The options of a URL come after those of the call. A text that names no store fails below.
        let mode = StoreUrl::parse(&url).map_or(options.mode, |parsed| parsed.apply_to(&options).mode);
        let handle = wait(py, async move { atoll_open::open(&url, &options).await })?;
        Ok(Self { handle: Kept::new(handle), is_read_only: mode != Mode::Write })
    }

    /// Whether it was opened for reading, by the call or by the options of its URL.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Creates a table, or opens the existing one if its schema is the same.
    #[expect(clippy::too_many_arguments, reason = "the Python beside it names them")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: String,
        fields: Vec<NotedField>,
        id: Vec<String>,
        sample_key: Vec<String>,
        index: Vec<String>,
        salt: u64,
        unique: bool,
        time_unit: Option<&str>,
    ) -> PyResult<Table> {
        let handle = self.handle()?;
        let schema = TableSchema::new(schema_of(fields)?, &Roles { id, sample_key, index, salt })
            .map_err(Failure::from)?;
        let schema = if unique { schema.with_unique_ids() } else { schema };
        let schema = match time_unit {
            Some(unit) => schema.with_time_unit(unit).map_err(Failure::from)?,
            None => schema,
        };
        let table = wait(py, async move { atoll_tables::Table::create(handle, &name, schema).await })?;
        Ok(Table::new(table))
    }

    /// Waits until everything acknowledged is on disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle()?;
        wait(py, async move { handle.sync().await })
    }

    /// Closes the store, with everything acknowledged on disk, unless something else still holds it, such as
    /// a table, which keeps it open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A store that a forked child inherited is the parent's to close.
        let Ok(handle) = self.handle.get().map(Arc::clone) else { return Ok(()) };
        let (is_last, is_read_only) = (Arc::strong_count(&handle) <= OWN_HANDLES, self.is_read_only);
        let close = async move {
            match (is_last, is_read_only) {
                (true, _) => handle.close().await,
                (false, false) => handle.sync().await,
                (false, true) => Ok(()),
            }
        };
        wait(py, close)
    }

    /// Opens a table.
    fn table(&self, py: Python<'_>, name: String) -> PyResult<Table> {
        let handle = self.handle()?;
        let table = wait(py, async move { atoll_tables::Table::open(handle, &name).await })?;
        Ok(Table::new(table))
    }

    /// The tables: their names, and the names of their columns.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<String>)>> {
        let handle = self.handle()?;
        let tables = wait(py, async move { atoll_tables::Table::list(handle.as_ref()).await })?;
        let names = |schema: &TableSchema| {
            schema.columns().fields().iter().map(|field| field.name().clone()).collect()
        };
        Ok(tables.into_iter().map(|table| (table.name, names(&table.schema))).collect())
    }

    /// The attributes of the store: a JSON object.
    fn attributes(&self, py: Python<'_>) -> PyResult<String> {
        let handle = self.handle()?;
        let noted = wait(py, async move { atoll_tables::Table::store_attributes(handle.as_ref()).await })?;
        serde_json::to_string(&noted).map_err(|error| Failure::input(error.to_string()).into())
    }

    /// Changes attributes of the store: a JSON object, in which null removes one.
    fn note(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let handle = self.handle()?;
        let changes: AttributeChanges =
            serde_json::from_str(text).map_err(|error| Failure::input(error.to_string()))?;
        wait(py, async move { atoll_tables::Table::note_store(handle.as_ref(), &changes).await.map(drop) })
    }

    /// Drops a table.
    fn drop_table(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let handle = self.handle()?;
        wait(py, async move { atoll_tables::Table::drop_table(handle.as_ref(), &name).await })
    }
}

impl Store {
    /// The store; an error once it is closed.
    pub(crate) fn handle(&self) -> Result<Handle, Failure> {
        Ok(Arc::clone(self.handle.get()?))
    }
}
