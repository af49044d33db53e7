//! What lies behind the nodes in memory: the disk, the store's identity, and the memory budget.

use crate::value::Piece;
use crate::{Damage, EngineError};
use atoll_disk::Disk;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The disk under an engine, or none for a store in memory, and what it takes to read it back.
pub struct Backing {
    disk: Option<Arc<dyn Disk>>,
    name: String,
    store_id: u64,
    /// Values in memory that could be read back, oldest first, each with the bytes it was counted for.
    values: Mutex<VecDeque<(Piece, u64)>>,
    value_bytes: AtomicU64,
    leaf_bytes: AtomicU64,
    /// Whether a node of the current trees may lie on disk alone.
    has_absent_nodes: AtomicBool,
    memory_bytes: u64,
}

impl Backing {
    pub(crate) fn new(disk: Option<Arc<dyn Disk>>, store_id: u64, memory_bytes: u64) -> Self {
        let name = disk.as_ref().map_or_else(|| "memory".to_owned(), |disk| disk.name().to_owned());
        Self {
            disk,
            name,
            store_id,
            values: Mutex::default(),
            value_bytes: AtomicU64::new(0),
            leaf_bytes: AtomicU64::new(0),
            has_absent_nodes: AtomicBool::new(false),
            memory_bytes,
        }
    }

    pub(crate) fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.as_ref()
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.store_id
    }

    /// Checksum of bytes whose place is known from their referrer.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u64 {
        crate::checksum::checksum(self.store_id, bytes)
    }

    pub(crate) fn corrupt(&self, offset: u64, problem: Damage) -> EngineError {
        EngineError::Corrupt { store: self.name(), offset, problem }
    }

    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), EngineError> {
        match &self.disk {
            Some(disk) => Ok(disk.read_at(offset, target)?),
            None => Err(self.corrupt(offset, Damage::PageContent)),
        }
    }

    /// Counts a value that is now in memory and could be read back; lets go of the oldest beyond the budget.
    pub(crate) fn admit(&self, piece: Piece, bytes: u64) {
        if self.disk.is_none() {
            return;
        }
        self.value_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut values = self.values.lock();
        values.push_back((piece, bytes));
        while self.value_bytes.load(Ordering::Relaxed) > self.memory_bytes / 2 {
            let Some((oldest, counted)) = values.pop_front() else { break };
            oldest.evict();
            // What was counted, not what was let go of: two readers may have brought the same piece in.
            self.value_bytes.fetch_sub(counted, Ordering::Relaxed);
        }
    }

    pub(crate) fn leaves_grew(&self, bytes: usize) {
        self.leaf_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn leaves_shrank(&self, bytes: usize) {
        self.leaf_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that a node was let go of, or was never read.
    pub(crate) fn node_is_absent(&self) {
        self.has_absent_nodes.store(true, Ordering::Relaxed);
    }

    /// Whether every node of the current trees has been in memory since the store was made.
    pub(crate) fn is_all_resident(&self) -> bool {
        !self.has_absent_nodes.load(Ordering::Relaxed)
    }

    pub(crate) fn leaf_bytes(&self) -> u64 {
        self.leaf_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn value_bytes(&self) -> u64 {
        self.value_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of leaves beyond the budget.
    pub(crate) fn leaf_excess(&self) -> u64 {
        self.leaf_bytes().saturating_sub(self.memory_bytes)
    }
}
