//! redb: commits are not synced, except for one at the end.

use super::{CACHE_BYTES, Engine, EngineError};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::path::Path;

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// An open database.
pub struct Redb {
    db: Database,
    reading: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

impl Redb {
    /// Opens or creates it.
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let db = Database::builder().set_cache_size(CACHE_BYTES as usize).create(folder.join("redb"))?;
        let store = Self { db, reading: None };
        store.write(Durability::Immediate, &mut std::iter::empty())?;
        Ok(store)
    }

    fn write(
        &self,
        durability: Durability,
        records: &mut dyn Iterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        let mut writing = self.db.begin_write()?;
        writing.set_durability(durability)?;
        {
            let mut table = writing.open_table(RECORDS)?;
            for (key, value) in records {
                table.insert(key, value)?;
            }
        }
        Ok(writing.commit()?)
    }

    /// Calls `read` with the table of the held snapshot, or else the current one.
    fn with_table<R>(
        &self,
        read: impl FnOnce(&ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        match &self.reading {
            Some(table) => read(table),
            None => read(&self.db.begin_read()?.open_table(RECORDS)?),
        }
    }
}

impl Engine for Redb {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        self.write(Durability::None, records)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.write(Durability::None, &mut std::iter::once((key, value)))
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        self.with_table(|table| {
            let guard = table.get(key)?;
            found(guard.as_ref().map(redb::AccessGuard::value));
            Ok(())
        })
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        self.with_table(|table| {
            for record in table.range(first..)?.take(count) {
                let (key, value) = record?;
                entry(key.value(), value.value());
            }
            Ok(())
        })
    }

    fn expect_only_reads(&mut self) -> Result<(), EngineError> {
        self.reading = Some(self.db.begin_read()?.open_table(RECORDS)?);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        self.write(Durability::Immediate, &mut std::iter::empty())
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }
}
