//! Copies records from a state of one store into another store, batch by batch, so that memory does not grow
//! with their number.
//!
//! Invariant: while the other store is written to, nothing of the source is held but the bytes of long
//! values that are being copied.

use atoll_engine::{
    Change, Direction, Durability, Engine, EngineError, Snapshot, Tree, ValueRef, WriteBatch,
};
use std::ops::{Bound, ControlFlow};

/// Bytes copied with one commit.
const BATCH_BYTES: usize = 4 << 20;

/// Values from this length on are given to the target as buffers, which it divides into pieces, so that a
/// range of the copy can be read without the rest. They go to disk at once, so it does not keep the buffers.
const BUFFERS_FROM: u64 = 64 << 10;

/// Bytes after which the target is checkpointed, so that its log is freed and it stays about as large as its
/// content.
const LOG_BYTES: u64 = 16 << 20;

/// The tree of cells; the other trees hold what a store needs besides them.
pub(crate) const CELLS_TREE: &str = "cells";

/// What was copied so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) bytes: u64,
    pub(crate) cells_written: u64,
    pub(crate) cells_deleted: u64,
}

/// Copies records into `target`, and reports the bytes copied after each batch.
pub(crate) struct Carrier<'c> {
    target: &'c Engine,
    tell: &'c mut dyn FnMut(u64),
    tally: Tally,
    logged: u64,
}

/// Records of one tree that are copied with the next commit.
struct Load<'c> {
    to: &'c Tree,
    batch: WriteBatch,
    bytes: usize,
    written: u64,
    deleted: u64,
    failed: Option<EngineError>,
}

impl Load<'_> {
    fn put(&mut self, key: &[u8], value: &ValueRef<'_>) -> ControlFlow<()> {
        let put = if value.len() >= BUFFERS_FROM {
            value.to_value().to_buffer().map(|bytes| self.batch.put_buffer(self.to, key, bytes))
        } else {
            value.bytes().map(|bytes| self.batch.put(self.to, key, &bytes))
        };
        match put {
            Ok(()) => {
                self.written += 1;
                self.add(key.len() + value.len() as usize)
            }
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn delete(&mut self, key: &[u8]) -> ControlFlow<()> {
        self.batch.delete(self.to, key);
        self.deleted += 1;
        self.add(key.len())
    }

    fn add(&mut self, bytes: usize) -> ControlFlow<()> {
        self.bytes += bytes;
        if self.bytes >= BATCH_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<'c> Carrier<'c> {
    pub(crate) fn into(target: &'c Engine, tell: &'c mut dyn FnMut(u64)) -> Self {
        Self { target, tell, tally: Tally::default(), logged: 0 }
    }

    /// Copies all records of all trees but `without`; returns what was copied.
    pub(crate) fn everything(
        mut self,
        source: &Engine,
        state: &Snapshot,
        without: &str,
    ) -> Result<Tally, EngineError> {
        for name in state.tree_names().filter(|name| *name != without) {
            let from = source.tree(name)?;
            self.carry(name, |next, load| {
                let range = (next, Bound::Unbounded);
                state.scan(&from, range, Direction::Forward, |key, value| load.put(key, &value))
            })?;
        }
        Ok(self.tally)
    }

    /// Copies the changes between two states of all trees but `without`; returns what was copied.
    pub(crate) fn changes(
        mut self,
        newer: &Snapshot,
        older: &Snapshot,
        without: &str,
    ) -> Result<Tally, EngineError> {
        let dropped = newer.trees_since(older)?.dropped;
        let names = newer.tree_names().chain(dropped.iter().map(String::as_str));
        for name in names.filter(|name| *name != without) {
            self.carry(name, |next, load| {
                newer.changes_since(older, name, next, |key, change| match change {
                    Change::Put(value) => load.put(key, &value),
                    Change::Deleted => load.delete(key),
                })
            })?;
        }
        Ok(self.tally)
    }

    /// Runs `fill` for one batch after the other until it finds nothing more. `fill` starts at the given key,
    /// and returns the key at which it stopped.
    fn carry(
        &mut self,
        name: &str,
        fill: impl Fn(Bound<&[u8]>, &mut Load<'_>) -> Result<Option<Vec<u8>>, EngineError>,
    ) -> Result<(), EngineError> {
        let to = self.target.tree(name)?;
        let mut next: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let batch = WriteBatch::new();
            let mut load = Load { to: &to, batch, bytes: 0, written: 0, deleted: 0, failed: None };
            let stopped = fill(next.as_ref().map(Vec::as_slice), &mut load)?;
            if let Some(failed) = load.failed {
                return Err(failed);
            }
            if load.bytes > 0 {
                self.target.write(&load.batch, Durability::Buffered)?;
                self.count(name, &load)?;
            }
            match stopped {
                Some(key) => next = Bound::Excluded(key),
                None => return Ok(()),
            }
        }
    }

    fn count(&mut self, tree: &str, load: &Load<'_>) -> Result<(), EngineError> {
        self.tally.bytes += load.bytes as u64;
        if tree == CELLS_TREE {
            self.tally.cells_written += load.written;
            self.tally.cells_deleted += load.deleted;
        }
        (self.tell)(self.tally.bytes);
        self.logged += load.bytes as u64;
        if self.logged >= LOG_BYTES {
            self.logged = 0;
            self.target.checkpoint()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
    use atoll_engine::Options;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A disk in memory that counts the bytes read.
    #[derive(Default)]
    struct Counted {
        bytes: MemoryDisk,
        read: AtomicU64,
    }

    impl Relay for Counted {
        fn inner(&self) -> &dyn Disk {
            &self.bytes
        }

        fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
            self.read.fetch_add(target.len() as u64, Ordering::Relaxed);
            self.bytes.read_at(offset, target)
        }
    }

    fn open(disk: &Arc<Counted>) -> Engine {
        let options = Options { background: false, log_windows: false, ..Options::default() };
        Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap()
    }

    #[test]
    fn a_range_of_a_copied_long_value_is_read_without_the_rest() {
        let value: Vec<u8> = (0..5_000_000u32).map(|at| (at ^ (at >> 11)) as u8).collect();
        let source = open(&Arc::default());
        let cells = source.tree(CELLS_TREE).unwrap();
        cells.put(b"long", &value, Durability::Buffered).unwrap();
        cells.put(b"middle", &value[..70_000], Durability::Buffered).unwrap();
        cells.put(b"short", b"v", Durability::Buffered).unwrap();
        let disk = Arc::<Counted>::default();
        let target = open(&disk);
        let mut tell = |_: u64| {};
        let carried = Carrier::into(&target, &mut tell).everything(&source, &source.snapshot(), "none");
        let tally = carried.unwrap();
        assert_eq!((tally.cells_written, tally.bytes), (3, 5_070_001 + 15));
        target.close().unwrap();

        let target = open(&disk);
        let cells = target.tree(CELLS_TREE).unwrap();
        let found = cells.get(b"long").unwrap().unwrap();
        let before = disk.read.load(Ordering::Relaxed);
        assert_eq!(found.read(3_000_000, 100).unwrap(), value[3_000_000..3_000_100]);
        let read = disk.read.load(Ordering::Relaxed) - before;
        assert!(read <= 512 << 10, "{read} bytes were read for 100");
        assert_eq!(found.to_buffer().unwrap(), value[..]);
        let middle = cells.get(b"middle").unwrap().unwrap();
        assert_eq!(middle.to_buffer().unwrap(), value[..70_000]);
    }
}
