//! Attributes of a table, its runs and their steps: a writer's notes about their origin, and the periodic
//! cell of positions. They are not versioned: the last writer wins. A store has attributes as well.

use super::entries::all_entries;
use super::names::STORE_ATTRIBUTES;
use super::runs::is_listed;
use super::{Table, TableError, check_name, codec};
use crate::boundary::{Boundary, CELL_ATTRIBUTE};
use atoll_store::{
    Batch, Cell, ReadOptions, ScanEntry, ScanRequest, SortRange, Store, StoreError, WriteOptions,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of cells that one write removes, and of bytes of their values, which are its conditions.
const REMOVED_EACH: usize = 32;
const REMOVED_BYTES_MAX: usize = 256 << 10;

/// What attributes describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributesOf<'a> {
    /// The table.
    Table,
    /// A run, whether it has begun or not.
    Run(&'a str),
    /// A step of a run, whether it exists or not.
    Step(&'a str, u64),
}

/// Attributes by name: strings, numbers, booleans, lists of these, and objects.
pub type Attributes = BTreeMap<String, Value>;

/// New values of attributes by name; `None` removes the attribute.
pub type AttributeChanges = BTreeMap<String, Option<Value>>;

impl<'a> AttributesOf<'a> {
    /// Selects the table without a run, the run without a step, and otherwise the step. A step without a run
    /// is ignored: callers refuse that first.
    #[must_use]
    pub fn of(run: Option<&'a str>, step: Option<u64>) -> Self {
        match (run, step) {
            (None, _) => Self::Table,
            (Some(run), None) => Self::Run(run),
            (Some(run), Some(step)) => Self::Step(run, step),
        }
    }

    /// The key of the attribute cell. Names of runs have no control characters, so the keys cannot collide.
    fn key(self) -> Vec<u8> {
        match self {
            Self::Table => b"\0table".to_vec(),
            Self::Run(run) => run.as_bytes().to_vec(),
            Self::Step(run, step) => [steps_of(run).as_slice(), &step.to_be_bytes()].concat(),
        }
    }

    fn check(self) -> Result<(), TableError> {
        match self {
            Self::Table => Ok(()),
            Self::Run(run) | Self::Step(run, _) => check_name("run", run),
        }
    }
}

impl Table {
    /// Sets some attributes of a table, run or step. All others stay unchanged, including those that another
    /// process sets concurrently. Returns all attributes after the change.
    ///
    /// # Errors
    /// [`TableError::Name`] for an invalid name of a run, [`TableError::Boundary`] for an invalid `cell`,
    /// [`TableError::NotFound`] if the table was dropped, [`TableError::Damaged`], errors of the store.
    pub async fn note(
        &self,
        of: AttributesOf<'_>,
        changes: &AttributeChanges,
    ) -> Result<Attributes, TableError> {
        self.change_existing(of, changes, false).await
    }

    /// Like [`Table::note`], but sets only attributes that have no value yet: of several concurrent callers,
    /// the first one's value stays. Returns all attributes after the change.
    ///
    /// # Errors
    /// As [`Table::note`].
    pub async fn note_new(
        &self,
        of: AttributesOf<'_>,
        attributes: &Attributes,
    ) -> Result<Attributes, TableError> {
        let changes = attributes.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        self.change_existing(of, &changes.collect(), true).await
    }

    async fn change(
        &self,
        of: AttributesOf<'_>,
        changes: &AttributeChanges,
        is_only_new: bool,
    ) -> Result<Attributes, TableError> {
        of.check()?;
        if let Some(Some(cell)) = changes.get(CELL_ATTRIBUTE) {
            Boundary::from_json(cell)?.check(self.schema_now().await?.columns())?;
        }
        let (partition, key) = (self.names.attributes(), of.key());
        change(&*self.store, &self.name, Cell::new(&partition, &key), changes, is_only_new).await
    }

    /// Changes attributes and removes them again if the table was dropped, since nothing else would.
    ///
    /// Looking afterwards is enough: a drop marks the manifest first and removes the attributes then.
    async fn change_existing(
        &self,
        of: AttributesOf<'_>,
        changes: &AttributeChanges,
        is_only_new: bool,
    ) -> Result<Attributes, TableError> {
        let noted = self.change(of, changes, is_only_new).await?;
        match self.ledger.head_now().await {
            Err(gone @ TableError::NotFound { .. }) => {
                self.store.delete_partition(&self.names.attributes(), WriteOptions::default()).await?;
                Err(gone)
            }
            // What was set is set, also if this look failed.
            _ => Ok(noted),
        }
    }

    /// The attributes of a table, run or step; empty if none were set.
    ///
    /// # Errors
    /// [`TableError::NotFound`] if the table was dropped, [`TableError::Damaged`], errors of the store.
    pub async fn attributes(&self, of: AttributesOf<'_>) -> Result<Attributes, TableError> {
        match self.attributes_set(of).await? {
            Some(attributes) => Ok(attributes),
            None => {
                // Those of a table that was dropped are gone as well.
                self.ledger.head_now().await?;
                Ok(Attributes::new())
            }
        }
    }

    /// The attributes of a table, run or step, if any were set.
    async fn attributes_set(&self, of: AttributesOf<'_>) -> Result<Option<Attributes>, TableError> {
        let partition = self.names.attributes();
        let found = self.store.get(Cell::new(&partition, &of.key()), ReadOptions::default()).await?;
        found.map(|text| codec::attributes_from_json(&self.name, &text)).transpose()
    }

    /// The boundary of a step, or else of its run, or else of the table: the attribute `cell`.
    ///
    /// # Errors
    /// [`TableError::Boundary`] for an invalid boundary, [`TableError::NotFound`] if the table was dropped,
    /// errors of the store.
    pub async fn boundary(
        &self,
        run: Option<&str>,
        step: Option<u64>,
    ) -> Result<Option<Boundary>, TableError> {
        let step = run.zip(step).map(|(run, step)| AttributesOf::Step(run, step));
        let places = [step, run.map(AttributesOf::Run), Some(AttributesOf::Table)];
        for of in places.into_iter().flatten() {
            if let Some(cell) = self.attributes_set(of).await?.unwrap_or_default().get(CELL_ATTRIBUTE) {
                return Ok(Some(Boundary::from_json(cell)?));
            }
        }
        self.ledger.head_now().await?;
        Ok(None)
    }

    /// The boundaries of those steps of a run that have one of their own, by step.
    ///
    /// # Errors
    /// As [`Table::boundary`].
    pub async fn boundaries_of_steps(&self, run: &str) -> Result<BTreeMap<u64, Boundary>, TableError> {
        check_name("run", run)?;
        let prefix = steps_of(run);
        let request =
            ScanRequest { range: SortRange::prefix(&prefix), ..ScanRequest::all(self.names.attributes()) };
        let mut boundaries = BTreeMap::new();
        for entry in all_entries(&*self.store, request).await? {
            let step = entry.sort.strip_prefix(prefix.as_slice()).and_then(|step| step.try_into().ok());
            let noted = codec::attributes_from_json(&self.name, &entry.value)?;
            if let (Some(step), Some(cell)) = (step, noted.get(CELL_ATTRIBUTE)) {
                boundaries.insert(u64::from_be_bytes(step), Boundary::from_json(cell)?);
            }
        }
        Ok(boundaries)
    }

    /// The attribute cells of a run and of its steps, or of all runs.
    pub(super) async fn noted_of(&self, run: Option<&str>) -> Result<Vec<ScanEntry>, TableError> {
        let ranges = match run {
            Some(run) => {
                let after = [run.as_bytes(), b"\0"].concat();
                let own = SortRange::half_open(run.as_bytes().to_vec(), after);
                [own, SortRange::prefix(&steps_of(run))]
            }
            // Names of runs have no control characters.
            None => [SortRange::half_open(vec![b' '], vec![0xff]), SortRange::prefix(STEP)],
        };
        let mut noted = Vec::new();
        for range in ranges {
            let request = ScanRequest { range, ..ScanRequest::all(self.names.attributes()) };
            noted.extend(all_entries(&*self.store, request).await?);
        }
        Ok(noted)
    }

    /// Removes attributes of runs that have nothing visible or arriving, if the attributes are unchanged
    /// since they were read. Removes nothing while the table has snapshots, which may show those runs.
    pub(super) async fn forget_attributes(&self, noted: Vec<ScanEntry>) -> Result<(), TableError> {
        if noted.is_empty() || !self.snapshots().await?.is_empty() {
            return Ok(());
        }
        let current = self.ledger.current().await?;
        let runs = &current.manifest.runs;
        let is_there =
            |entry: &ScanEntry| run_of(&entry.sort).and_then(|run| runs.get(run)).is_some_and(is_listed);
        let gone: Vec<ScanEntry> = noted.into_iter().filter(|entry| !is_there(entry)).collect();
        // What another process changed in the meantime is about a run yet to come.
        self.remove_unchanged(&gone).await
    }

    /// Removes those of these cells of attributes and notes that are as they were when they were read.
    pub(super) async fn remove_unchanged(&self, cells: &[ScanEntry]) -> Result<(), TableError> {
        for some in cells.chunks(REMOVED_EACH) {
            let bytes: usize = some.iter().map(|cell| cell.value.len()).sum();
            if bytes <= REMOVED_BYTES_MAX && self.removed_if_unchanged(some).await? {
                continue;
            }
            for cell in some {
                self.removed_if_unchanged(std::slice::from_ref(cell)).await?;
            }
        }
        Ok(())
    }

    /// Removes all of these cells, or none if one of them has changed; returns whether it did.
    async fn removed_if_unchanged(&self, cells: &[ScanEntry]) -> Result<bool, TableError> {
        let gone = cells.iter().fold(Batch::on(self.names.attributes()), |batch, cell| {
            batch.if_equals(cell.sort.clone(), cell.value.clone()).delete(cell.sort.clone())
        });
        match self.store.write(gone, WriteOptions::default()).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The attributes of a store as a whole; empty if none were set. They are kept beside the tables of the
    /// store, whether it has any or not, and go with it when the whole store is copied.
    ///
    /// # Errors
    /// [`TableError::StoreAttributes`] if they cannot be read, errors of the store.
    pub async fn store_attributes(store: &dyn Store) -> Result<Attributes, TableError> {
        match store.get(OF_STORE, ReadOptions::default()).await? {
            Some(text) => codec::attributes_from_json("", &text).map_err(of_store),
            None => Ok(Attributes::new()),
        }
    }

    /// Sets some attributes of a store as a whole, as [`Table::note`] does of a table. Returns all attributes
    /// after the change.
    ///
    /// # Errors
    /// As [`Table::store_attributes`].
    pub async fn note_store(store: &dyn Store, changes: &AttributeChanges) -> Result<Attributes, TableError> {
        change(store, "", OF_STORE, changes, false).await.map_err(of_store)
    }

    /// The attributes of a run as strings; other values are formatted as JSON.
    ///
    /// # Errors
    /// As [`Table::attributes`].
    pub async fn run_attributes(&self, run: &str) -> Result<BTreeMap<String, String>, TableError> {
        let attributes = self.attributes(AttributesOf::Run(run)).await?;
        Ok(attributes.into_iter().map(|(name, value)| (name, text_of(value))).collect())
    }
}

/// The cell of the attributes of a store.
const OF_STORE: Cell<'static> = Cell { partition: STORE_ATTRIBUTES, sort: b"" };

/// The error for the attributes of a store, which belong to no table.
fn of_store(error: TableError) -> TableError {
    match error {
        TableError::Damaged { problem, .. } => TableError::StoreAttributes { problem },
        other => other,
    }
}

/// Changes the attributes in a cell, of `table`. Returns all attributes after the change.
async fn change(
    store: &dyn Store,
    table: &str,
    cell: Cell<'_>,
    changes: &AttributeChanges,
    is_only_new: bool,
) -> Result<Attributes, TableError> {
    loop {
        let before = store.get(cell, ReadOptions::default()).await?;
        let known = before.as_deref().map(|text| codec::attributes_from_json(table, text));
        let known = known.transpose()?.unwrap_or_default();
        let mut noted = known.clone();
        for (name, value) in changes.iter().filter(|(name, _)| !is_only_new || !known.contains_key(*name)) {
            match value {
                Some(value) => noted.insert(name.clone(), value.clone()),
                None => noted.remove(name),
            };
        }
        if is_only_new && noted == known {
            return Ok(noted);
        }
        let text = codec::attributes_to_json(&noted);
        check_changeable(store, "set of attributes", &text)?;
        let swap = store.compare_and_swap(cell, before.as_deref(), text.as_bytes(), WriteOptions::default());
        match swap.await {
            Ok(_) => return Ok(noted),
            // Another process changed the attributes in the meantime.
            Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Refuses the text of a cell that nobody could change again: the next change has it in its condition, which
/// may be shorter than a value.
pub(super) fn check_changeable(store: &dyn Store, what: &'static str, text: &str) -> Result<(), StoreError> {
    let (actual, max) = (text.len() as u64, store.capabilities().limits.condition_bytes as u64);
    if actual <= max { Ok(()) } else { Err(StoreError::Limit { what, actual, max }) }
}

/// Prefix of the keys of step attributes.
const STEP: &[u8] = b"\0step\0";

/// Prefix of the keys of the step attributes of one run.
fn steps_of(run: &str) -> Vec<u8> {
    [STEP, run.as_bytes(), b"\0"].concat()
}

/// The run whose own or whose step's attributes have this key.
fn run_of(key: &[u8]) -> Option<&str> {
    let name = match key.strip_prefix(STEP) {
        Some(rest) => rest.get(..rest.len().checked_sub(1 + size_of::<u64>())?)?,
        None => key,
    };
    std::str::from_utf8(name).ok()
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
