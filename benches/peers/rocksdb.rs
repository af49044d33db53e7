//! RocksDB, configured as its tuning guide advises for data that fits in memory, with its log on.

use super::{Beside, Engine, EngineError, OpenOptions};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, DataBlockIndexType, Options,
    ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;

/// An open database.
pub struct Rocks {
    db: Arc<DB>,
    write: WriteOptions,
}

impl Rocks {
    /// Opens or creates it. Every write goes to the log and reaches the kernel before it is acknowledged.
    ///
    /// With a budget, write buffers take up to a quarter of it and blocks the rest, and nothing goes
    /// through the page cache.
    pub fn open(folder: &Path, chosen: OpenOptions) -> Result<Self, EngineError> {
        let mut blocks = BlockBasedOptions::default();
        let buffers = chosen.budget_bytes.map_or(0, |budget| budget as usize / 4);
        blocks.set_block_cache(&Cache::new_lru_cache(chosen.cache_bytes() as usize - buffers));
        blocks.set_bloom_filter(10.0, false);
        blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.increase_parallelism(2);
        if chosen.budget_bytes.is_some() {
            options.set_write_buffer_size(buffers / 2);
            options.set_max_write_buffer_number(2);
            options.set_use_direct_reads(true);
            options.set_use_direct_io_for_flush_and_compaction(true);
            blocks.set_cache_index_and_filter_blocks(true);
        }
        options.set_block_based_table_factory(&blocks);
        // Opened by name, because only that yields a handle, and batched reads require one.
        let family = [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())];
        Ok(Self { db: Arc::new(DB::open_cf_with_opts(&options, folder, family)?), write: write_options() })
    }
}

/// Every write goes to the log and reaches the kernel, and is not synced.
fn write_options() -> WriteOptions {
    let mut write = WriteOptions::default();
    write.disable_wal(false);
    write.set_sync(false);
    write
}

impl Engine for Rocks {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        let mut batch = WriteBatch::default();
        records.for_each(|(key, value)| batch.put(key, value));
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        found(self.db.get_pinned(key)?.as_deref());
        Ok(())
    }

    fn get_many(
        &mut self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        let family =
            self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME).ok_or("RocksDB has no default column family")?;
        let values = self.db.batched_multi_get_cf(&family, keys.iter().copied(), false);
        for (place, value) in values.into_iter().enumerate() {
            found(place, value?.as_deref());
        }
        Ok(())
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        let mut entries = self.db.raw_iterator_opt(ReadOptions::default());
        entries.seek(first);
        for _ in 0..count {
            let Some((key, value)) = entries.item() else { break };
            entry(key, value);
            entries.next();
        }
        Ok(entries.status()?)
    }

    fn beside(&self) -> Result<Beside, EngineError> {
        let db = Arc::clone(&self.db);
        Ok(Box::new(|| Box::new(Self { db, write: write_options() })))
    }

    fn checkpoint(&mut self) -> Result<(), EngineError> {
        Ok(self.db.flush()?)
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.db.wait_for_compact(&wait)?;
        Ok(self.db.flush_wal(true)?)
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }
}
