//! The registry: which tables a store has; making, listing and dropping them.
//!
//! Invariant: a table's entry is there before any of its cells, and as long as any is.
//! Invariant: once the manifest partition says that the table was dropped, no session begins at it any more, so
//! nothing becomes true in it.

use super::entries::all_entries;
use super::names::{Names, REGISTRY, random_id};
use super::{Entry, Table, TableError, check_name, codec};
use crate::TableSchema;
use crate::protocol::Cell as ManifestCell;
use atoll_store::{
    Batch, Buffer, Cell, PartitionQuery, ReadOptions, ScanRequest, SortRange, Store, StoreError, WriteOptions,
};
use std::sync::Arc;

/// A table of a store, as the list of tables has it.
#[derive(Clone, Debug)]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// Its columns and their roles when it was made; others may have been added since.
    pub schema: TableSchema,
}

impl Table {
    /// Makes a table, or opens the one that is there if it has the same schema, or had it when it was made.
    ///
    /// # Errors
    /// [`TableError::Name`], [`TableError::Exists`] for another schema, errors of the store.
    pub async fn create(store: Arc<dyn Store>, name: &str, schema: TableSchema) -> Result<Self, TableError> {
        check_name("table", name)?;
        let entry = Entry { id: random_id(), schema, is_dropped: false };
        let text = codec::entry_to_json(&entry);
        let cell = Cell::new(REGISTRY, name);
        loop {
            // The manifest partition needs nothing to be empty, so the registry's cell is all there is to write.
            match store.compare_and_swap(cell, None, text.as_bytes(), WriteOptions::default()).await {
                Ok(_) | Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
            match Self::open(Arc::clone(&store), name).await {
                Ok(table) if *table.lineage.first() == entry.schema || *table.schema == entry.schema => {
                    return Ok(table);
                }
                Ok(_) => return Err(TableError::Exists { name: name.to_owned() }),
                // One of the same name is on its way out.
                Err(TableError::NotFound { .. }) => Self::drop_rest(&*store, name).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens a table. Nothing is written before the first append, so that a store which is only read will do.
    ///
    /// # Errors
    /// [`TableError::NotFound`], [`TableError::Damaged`], errors of the store.
    pub async fn open(store: Arc<dyn Store>, name: &str) -> Result<Self, TableError> {
        let (_, entry) = entry(&*store, name).await?.ok_or_else(|| not_found(name))?;
        if entry.is_dropped {
            return Err(not_found(name));
        }
        Self::of(store, name, entry).await
    }

    /// The tables of a store, by name.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn list(store: &dyn Store) -> Result<Vec<TableSummary>, TableError> {
        let mut tables = Vec::new();
        for found in all_entries(store, ScanRequest::all(REGISTRY)).await? {
            let name = String::from_utf8_lossy(&found.sort).into_owned();
            let entry = codec::entry_from_json(&name, &found.value)?;
            if !entry.is_dropped {
                tables.push(TableSummary { name, schema: entry.schema });
            }
        }
        Ok(tables)
    }

    /// Drops a table with all its versions and rows. Handles that are open find that it is gone; what one of them
    /// is writing just now becomes true in no table. A drop that is broken off is finished by the next one, or by
    /// making a table of that name; until then the table is not listed any more.
    ///
    /// # Errors
    /// [`TableError::NotFound`], errors of the store.
    pub async fn drop_table(store: &dyn Store, name: &str) -> Result<(), TableError> {
        let (text, entry) = entry(store, name).await?.ok_or_else(|| not_found(name))?;
        if !entry.is_dropped {
            let dropped = codec::entry_to_json(&Entry { is_dropped: true, ..entry });
            let cell = Cell::new(REGISTRY, name);
            let swap = store.compare_and_swap(cell, Some(&text), dropped.as_bytes(), WriteOptions::default());
            match swap.await {
                Ok(_) => {}
                // Somebody else drops it too, or has.
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::drop_rest(store, name).await
    }

    /// Removes what belongs to a table whose entry says that it is dropped, and then the entry.
    async fn drop_rest(store: &dyn Store, name: &str) -> Result<(), TableError> {
        let Some((text, entry)) = entry(store, name).await?.filter(|(_, entry)| entry.is_dropped) else {
            return Ok(());
        };
        let names = Names::of(entry.id);
        let end = Batch::on(names.manifest())
            .delete_range(SortRange::all())
            .put(ManifestCell::Dropped.sort_key(), b"dropped".to_vec());
        store.write(end, WriteOptions::default()).await?;
        store.delete_partition(&names.attributes(), WriteOptions::default()).await?;
        remove_objects(store, &names).await?;
        let last = Batch::on(REGISTRY).if_equals(name.as_bytes(), text).delete(name.as_bytes());
        match store.write(last, WriteOptions::default()).await {
            Ok(_) | Err(StoreError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn remove_objects(store: &dyn Store, names: &Names) -> Result<(), TableError> {
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

async fn entry(store: &dyn Store, name: &str) -> Result<Option<(Buffer, Entry)>, TableError> {
    let found = store.get(Cell::new(REGISTRY, name), ReadOptions::default()).await?;
    let Some(text) = found else { return Ok(None) };
    let entry = codec::entry_from_json(name, &text)?;
    Ok(Some((text, entry)))
}

fn not_found(name: &str) -> TableError {
    TableError::NotFound { name: name.to_owned() }
}
