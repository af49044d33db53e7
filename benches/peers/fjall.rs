//! fjall: its journal reaches the kernel before a write is acknowledged, and the disk once at the end.

use super::{CACHE_BYTES, Engine, EngineError};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

/// An open database.
pub struct Fjall {
    db: Database,
    records: Keyspace,
}

impl Fjall {
    /// Opens or creates it.
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let db = Database::builder(folder)
            .cache_size(CACHE_BYTES)
            .journal_compression(CompressionType::None)
            .open()?;
        let records = db.keyspace("records", || {
            KeyspaceCreateOptions::default()
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
                .expect_point_read_hits(true)
        })?;
        Ok(Self { db, records })
    }
}

impl Engine for Fjall {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        records.for_each(|(key, value)| batch.insert(&self.records, key, value));
        Ok(batch.commit()?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        Ok(self.records.insert(key, value)?)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        found(self.records.get(key)?.as_deref());
        Ok(())
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        for record in self.records.range(first..).take(count) {
            let (key, value) = record.into_inner()?;
            entry(&key, &value);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        self.records.rotate_memtable_and_wait()?;
        // No call waits for compactions; the counters show when none are left.
        while self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }
}
