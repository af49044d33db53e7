//! Bf-Tree: pages in a file, a snapshot at the end. It runs without a log, so its writes between snapshots
//! are not durable at all, which is in its favour.

use super::{CACHE_BYTES, Engine, EngineError};
use crate::workloads::KEY_BYTES;
use bf_tree::{Config, LeafInsertResult, LeafReadResult, ScanReturnField};
use std::path::{Path, PathBuf};

const RECORD_BYTES_MAX: usize = 1952;

/// An open tree.
pub struct BfTree {
    tree: bf_tree::BfTree,
    snapshot: PathBuf,
    buffer: Vec<u8>,
    is_changed: bool,
}

impl BfTree {
    /// Opens the snapshot in the folder, or makes a new tree.
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let snapshot = folder.join("snapshot");
        // A tree opened from a snapshot works in that very file, even for reads, and makes it unusable: when
        // it closes, it must write a new snapshot, whether it was changed or not.
        let is_changed = snapshot.exists();
        let tree = if is_changed {
            let cache = Some(CACHE_BYTES as usize);
            bf_tree::BfTree::new_from_cpr_snapshot(&snapshot, true, None, cache, None)
        } else {
            let mut config = Config::new(folder.join("pages"), CACHE_BYTES as usize);
            config.cb_max_key_len(KEY_BYTES).max_fence_len(2 * KEY_BYTES);
            config.cb_min_record_size(64).cb_max_record_size(RECORD_BYTES_MAX).use_snapshot(true);
            bf_tree::BfTree::with_config(config, None)
        };
        let tree = tree.map_err(|error| format!("Bf-Tree does not open: {error:?}"))?;
        Ok(Self { tree, snapshot, buffer: vec![0; RECORD_BYTES_MAX + KEY_BYTES], is_changed })
    }
}

// It has no batches: a load is a loop, whether here or behind the call.
impl Engine for BfTree {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.is_changed = true;
        match self.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(reason) => Err(format!("Bf-Tree refuses a record: {reason}").into()),
        }
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        match self.tree.read(key, &mut self.buffer) {
            LeafReadResult::Found(len) => found(Some(&self.buffer[..len as usize])),
            LeafReadResult::Deleted | LeafReadResult::NotFound => found(None),
            LeafReadResult::InvalidKey => return Err("Bf-Tree refuses a key".into()),
        }
        Ok(())
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        let mut entries = self
            .tree
            .scan_with_count(first, count, ScanReturnField::KeyAndValue)
            .map_err(|error| format!("Bf-Tree does not scan: {error:?}"))?;
        while let Some((key_bytes, value_bytes)) = entries.next(&mut self.buffer) {
            let (key, rest) = self.buffer.split_at(key_bytes);
            entry(key, &rest[..value_bytes]);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        if std::mem::take(&mut self.is_changed) {
            self.tree.cpr_snapshot(&self.snapshot);
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<(), EngineError> {
        self.settle()
    }
}
