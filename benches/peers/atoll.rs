//! Atoll's bare engine: default options except for the cache size that all engines share, log on at
//! `flushed`.

use super::{Beside, Engine, EngineError, OpenOptions};
use atoll_disk::{FileDisk, Mode};
use atoll_engine::{Direction, Durability, Options, Snapshot, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

/// Bytes of records that a copy commits at once, followed by a checkpoint.
const COPY_BATCH: usize = 16 << 20;

/// An open store with one tree.
pub struct Atoll {
    engine: atoll_engine::Engine,
    records: Tree,
    batch: WriteBatch,
    held: Option<Snapshot>,
}

impl Atoll {
    /// Opens or creates it.
    pub fn open(folder: &Path, options: OpenOptions) -> Result<Self, EngineError> {
        let disk = FileDisk::open(&folder.join("store"), Mode::Create)?;
        let mut chosen = Options { memory_bytes: options.cache_bytes(), ..Options::default() };
        if options.keep_tail {
            chosen.background = false;
            chosen.checkpoint_bytes = u64::MAX;
        }
        let engine = atoll_engine::Engine::open(Arc::new(disk), chosen)?;
        let records = engine.tree("records")?;
        Ok(Self { engine, records, batch: WriteBatch::new(), held: None })
    }
}

impl Engine for Atoll {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        self.batch.clear();
        records.for_each(|(key, value)| self.batch.put(&self.records, key, value));
        self.engine.write(&self.batch, Durability::Flushed)?;
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.records.put(key, value, Durability::Flushed)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        Ok(self.records.get_with(key, found)?)
    }

    fn get_many(
        &mut self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        Ok(self.records.get_many(keys, found)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.records.delete(key, Durability::Flushed)?;
        Ok(())
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        let mut left = count;
        let mut unread = None;
        let range = (Bound::Included(first), Bound::Unbounded);
        self.records.scan(range, Direction::Forward, |key, value| {
            match value.bytes() {
                Ok(bytes) => entry(key, &bytes),
                Err(error) => {
                    unread = Some(error);
                    return ControlFlow::Break(());
                }
            }
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        unread.map_or(Ok(()), |error| Err(error.into()))
    }

    fn records_replayed(&self) -> Option<u64> {
        Some(self.engine.recovery().records_replayed)
    }

    fn beside(&self) -> Result<Beside, EngineError> {
        let (engine, records) = (self.engine.clone(), self.records.clone());
        Ok(Box::new(|| Box::new(Self { engine, records, batch: WriteBatch::new(), held: None })))
    }

    fn hold_snapshot(&mut self) -> Result<(), EngineError> {
        self.held = Some(self.engine.snapshot());
        Ok(())
    }

    fn let_go_of_snapshot(&mut self) {
        self.held = None;
    }

    fn checkpoint(&mut self) -> Result<(), EngineError> {
        self.engine.checkpoint()?;
        Ok(())
    }

    fn copy_by_scans(&mut self, folder: &Path) -> Result<(), EngineError> {
        let disk = FileDisk::open(&folder.join("store"), Mode::Create)?;
        let options = Options { background: false, ..Options::default() };
        let target = atoll_engine::Engine::open(Arc::new(disk), options)?;
        let to = target.tree(self.records.name())?;
        let snapshot = self.engine.snapshot();
        let (mut last, mut unread) = (None::<Vec<u8>>, None);
        loop {
            let (mut batch, mut bytes) = (WriteBatch::new(), 0);
            let range = (last.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            last = snapshot.scan(&self.records, range, Direction::Forward, |key, value| {
                match value.bytes() {
                    Ok(value) => {
                        batch.put(&to, key, &value);
                        bytes += key.len() + value.len();
                    }
                    Err(error) => unread = Some(error),
                }
                let is_full = bytes >= COPY_BATCH || unread.is_some();
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            unread.take().map_or(Ok(()), Err)?;
            target.write(&batch, Durability::Buffered)?;
            target.checkpoint()?;
            if last.is_none() {
                return Ok(target.close()?);
            }
        }
    }

    fn segments_cleaned(&self) -> Option<u64> {
        Some(self.engine.stats().segments_cleaned)
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        // Closing writes the checkpoint.
        Ok(self.engine.sync()?)
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        let Self { engine, records, .. } = *self;
        drop(records);
        Ok(engine.close()?)
    }
}
