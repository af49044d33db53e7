//! The registry: creates, lists and drops the tables of a store.
//!
//! A program names the schema that it expects. Whether an existing table has it is decided here: for a
//! program that creates a table, and for one that only brings rows of another table ([`Likeness`]).
//!
//! Invariant: the entry of a table exists before any of its cells, and as long as any of them.
//! Invariant: once the manifest partition says that the table was dropped, no session can begin, so no edit
//! can be committed.
//! Invariant: an entry is at most as long as a value in a condition, in each of its stages: dropping a table
//! and finishing a copy replace the entry that was read.

use super::attributes::check_changeable;
use super::entries::all_entries;
use super::names::{Names, REGISTRY, random_id};
use super::{Entry, Stage, Table, TableError, check_name, codec, dropped};
use crate::TableSchema;
use crate::protocol::Cell as ManifestCell;
use atoll_store::{
    Batch, Buffer, Cell, ErrorKind, PartitionQuery, ReadOptions, ScanRequest, SortRange, Store, StoreError,
    WriteOptions,
};
use std::sync::Arc;

/// A table in the list of tables.
#[derive(Clone, Debug)]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// The columns and roles that it was created with; columns may have been added since.
    pub schema: TableSchema,
}

/// What a schema has to have in common with that of an existing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    /// All that belongs to a table, with the units and descriptions of its columns.
    OfTable,
    /// What decides whether rows can be taken over: of the notes on columns, and of the times of steps, only
    /// two units that differ.
    OfRows,
}

impl Likeness {
    fn difference(self, there: &TableSchema, asked: &TableSchema) -> Option<String> {
        match self {
            Self::OfTable => there.difference_of_table(asked),
            Self::OfRows => there.difference_of_rows(asked),
        }
    }
}

impl Table {
    /// Creates a table, or opens an existing one if its schema is the same, or was so before columns were
    /// added. The latter also works in a read-only store.
    ///
    /// Units and descriptions of columns belong to the schema; other metadata of a column do not.
    ///
    /// # Errors
    /// [`TableError::Name`], [`TableError::Exists`] for another schema, errors of the store;
    /// [`StoreError::Limit`] for a schema whose text does not fit into a condition.
    pub async fn create(store: Arc<dyn Store>, name: &str, schema: TableSchema) -> Result<Self, TableError> {
        Self::create_like(store, name, schema, Likeness::OfTable).await
    }

    /// Creates a table for rows of a table that has this schema, or opens an existing one that can take them:
    /// it has the same columns and roles, or had them before columns were added. Of what is noted on a
    /// column, and of the times of steps, only two units that differ keep rows apart.
    ///
    /// # Errors
    /// As [`Table::create`].
    pub async fn create_for_rows(
        store: Arc<dyn Store>,
        name: &str,
        schema: TableSchema,
    ) -> Result<Self, TableError> {
        Self::create_like(store, name, schema, Likeness::OfRows).await
    }

    /// Whether the table can take rows of a table that has this schema, as far as this handle has seen its
    /// columns; see [`Table::create_for_rows`].
    #[must_use]
    pub fn takes_rows_of(&self, schema: &TableSchema) -> bool {
        self.is_like(schema, Likeness::OfRows)
    }

    fn is_like(&self, schema: &TableSchema, likeness: Likeness) -> bool {
        self.lineage.any(|there| likeness.difference(there, schema).is_none())
    }

    async fn create_like(
        store: Arc<dyn Store>,
        name: &str,
        schema: TableSchema,
        likeness: Likeness,
    ) -> Result<Self, TableError> {
        check_name("table", name)?;
        let entry = Entry { id: random_id(), schema, stage: Stage::Live };
        let text = codec::entry_to_json(&entry);
        let cell = Cell::new(REGISTRY, name);
        let too_long = check_entry(&*store, &entry).err();
        loop {
            // An empty manifest partition is valid, so the cell in the registry is all that has to be
            // written.
            let written = match &too_long {
                Some(error) => Err(error.clone()),
                None => store.compare_and_swap(cell, None, text.as_bytes(), WriteOptions::default()).await,
            };
            let refused = match written {
                Ok(_) | Err(StoreError::Conflict(_)) => None,
                // An existing table can still be opened, which writes nothing.
                Err(error) if too_long.is_some() || error.kind() == ErrorKind::ReadOnly => Some(error),
                Err(error) => return Err(error.into()),
            };
            match Self::open(Arc::clone(&store), name).await {
                Ok(table) if table.is_like(&entry.schema, likeness) => return Ok(table),
                Ok(table) => {
                    // Compared with the schema of as many columns, if there was one.
                    let there = table.lineage.with_columns(entry.schema.columns().fields().len());
                    let differs = likeness.difference(&there, &entry.schema).unwrap_or_default();
                    return Err(TableError::Exists { name: name.to_owned(), differs });
                }
                Err(TableError::NotFound { .. }) => match refused {
                    Some(refused) => return Err(refused.into()),
                    // A table of the same name is being dropped.
                    None => Self::drop_rest(&*store, name).await?,
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens a table. Nothing is written before the first append, so a read-only store will do.
    ///
    /// # Errors
    /// [`TableError::NotFound`], [`TableError::Damaged`], errors of the store.
    pub async fn open(store: Arc<dyn Store>, name: &str) -> Result<Self, TableError> {
        let (_, entry) = entry(&*store, name).await?.ok_or_else(|| not_found(name))?;
        match entry.stage {
            Stage::Live => Self::of(store, name, entry).await,
            Stage::Dropped => Err(not_found(name)),
            Stage::Arriving { .. } => Err(TableError::Arriving { name: name.to_owned() }),
        }
    }

    /// The tables of a store, sorted by name.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn list(store: &dyn Store) -> Result<Vec<TableSummary>, TableError> {
        let mut tables = Vec::new();
        for found in all_entries(store, ScanRequest::all(REGISTRY)).await? {
            let name = String::from_utf8_lossy(&found.sort).into_owned();
            let entry = codec::entry_from_json(&name, &found.value)?;
            if entry.stage == Stage::Live {
                tables.push(TableSummary { name, schema: entry.schema });
            }
        }
        Ok(tables)
    }

    /// Drops a table with all its versions and rows. Open handles get an error from then on, and whatever
    /// they are writing is not committed. An interrupted drop is finished by the next one, or by creating a
    /// table of that name; until then the table is not listed. What a process writes to the table before it
    /// notices the drop is removed by that process or, if it is killed, by a vacuum of any table or another
    /// drop, an hour later.
    ///
    /// # Errors
    /// [`TableError::NotFound`], errors of the store.
    pub async fn drop_table(store: &dyn Store, name: &str) -> Result<(), TableError> {
        let (mut text, mut there) = entry(store, name).await?.ok_or_else(|| not_found(name))?;
        while there.stage != Stage::Dropped {
            let dropped = codec::entry_to_json(&Entry { stage: Stage::Dropped, ..there.clone() });
            let cell = Cell::new(REGISTRY, name);
            let swap = store.compare_and_swap(cell, Some(&text), dropped.as_bytes(), WriteOptions::default());
            match swap.await {
                Ok(_) => break,
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
            // Another process has dropped it, and the name may belong to another table; or it was an arriving
            // copy that is finished by now.
            match entry(store, name).await? {
                Some(now) if now.1.id == there.id => (text, there) = now,
                _ => return Ok(()),
            }
        }
        Self::drop_rest(store, name).await?;
        // The drop is done. What this fails to remove is left to the next sweep.
        let _ = dropped::sweep(store).await;
        Ok(())
    }

    /// Removes the cells of a table whose entry says that it is dropped, and then the entry.
    pub(super) async fn drop_rest(store: &dyn Store, name: &str) -> Result<(), TableError> {
        let found = entry(store, name).await?.filter(|(_, entry)| entry.stage == Stage::Dropped);
        let Some((text, entry)) = found else { return Ok(()) };
        let names = Names::of(entry.id);
        remove_cells(store, &names).await?;
        dropped::record(store, &names).await?;
        let last = Batch::on(REGISTRY).if_equals(name.as_bytes(), text).delete(name.as_bytes());
        match store.write(last, WriteOptions::default()).await {
            Ok(_) | Err(StoreError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Removes all cells of a table except its entry, and ensures that no session can begin.
pub(super) async fn remove_cells(store: &dyn Store, names: &Names) -> Result<(), TableError> {
    let end = Batch::on(names.manifest())
        .delete_range(SortRange::all())
        .put(ManifestCell::Dropped.sort_key(), b"dropped".to_vec());
    store.write(end, WriteOptions::default()).await?;
    store.delete_partition(&names.attributes(), WriteOptions::default()).await?;
    let mut query = PartitionQuery::prefix(names.objects());
    loop {
        let page = store.partition_keys(query.clone()).await?;
        for partition in &page.partitions {
            store.delete_partition(partition, WriteOptions::default()).await?;
        }
        query.resume = page.resume;
        if query.resume.is_none() {
            return Ok(());
        }
    }
}

/// Refuses an entry that could not be replaced later. It is measured as that of an arriving copy, the longest
/// of its stages, so that the table can be copied as well.
pub(super) fn check_entry(store: &dyn Store, entry: &Entry) -> Result<(), StoreError> {
    let longest = Entry { stage: Stage::Arriving { from: entry.id }, ..entry.clone() };
    check_changeable(store, "schema of a table", &codec::entry_to_json(&longest))
}

pub(super) async fn entry(store: &dyn Store, name: &str) -> Result<Option<(Buffer, Entry)>, TableError> {
    let found = store.get(Cell::new(REGISTRY, name), ReadOptions::default()).await?;
    let Some(text) = found else { return Ok(None) };
    let entry = codec::entry_from_json(name, &text)?;
    Ok(Some((text, entry)))
}

pub(super) fn not_found(name: &str) -> TableError {
    TableError::NotFound { name: name.to_owned() }
}
