//! Values that are written piece by piece: each piece goes to disk as it comes, and one commit makes the
//! whole value visible.
//!
//! Invariant: before the commit no reader sees any of it, and a writer that is dropped gives its space back.

use crate::batch::{Action, Given, Op};
use crate::commit::{Commit, PlacedValue, check_size};
use crate::engine::Tree;
use crate::value::{EXTENT_FROM, VALUE_MAX};
use crate::{Durability, EngineError};
use atoll_buffer::Buffer;

/// Bytes that are gathered before they go to disk.
const CHUNK_BYTES: usize = 1 << 20;

/// A value that is being written piece by piece, in bounded memory.
pub struct ValueWriter {
    tree: Tree,
    key: Vec<u8>,
    gathered: Vec<u8>,
    placed: Vec<PlacedValue>,
    len: u64,
}

impl Tree {
    /// Begins a value for `key`; it replaces the present one when it is committed.
    ///
    /// # Errors
    /// [`EngineError::Size`] for a bad key.
    pub fn value_writer(&self, key: &[u8]) -> Result<ValueWriter, EngineError> {
        check_size("key", key.len() as u64, 1, crate::KEY_MAX as u64)?;
        self.engine.shared.check_writable()?;
        let (tree, key) = (self.clone(), key.to_vec());
        Ok(ValueWriter { tree, key, gathered: Vec::new(), placed: Vec::new(), len: 0 })
    }
}

impl ValueWriter {
    /// Adds `bytes` at the end.
    ///
    /// # Errors
    /// [`EngineError::Size`] when the value becomes too long; errors of the disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        check_size("value", self.len + bytes.len() as u64, 0, VALUE_MAX)?;
        self.len += bytes.len() as u64;
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= CHUNK_BYTES {
            self.place_gathered()?;
        }
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place_gathered(&mut self) -> Result<(), EngineError> {
        let bytes = Buffer::copy_from(&self.gathered);
        let shared = &self.tree.engine.shared;
        // Not under the writer lock, so closing waits for this lock instead.
        let _placing = shared.placing.read();
        shared.check_writable()?;
        let epoch = shared.forest.read().epoch;
        self.placed.push(shared.place(Given::Buffer(&bytes), epoch, true)?);
        self.gathered.clear();
        Ok(())
    }

    /// Makes the whole value visible, as durable as asked.
    ///
    /// # Errors
    /// As [`crate::Engine::write`].
    pub fn commit(mut self, durability: Durability) -> Result<Commit, EngineError> {
        if self.gathered.len() >= EXTENT_FROM {
            self.place_gathered()?;
        }
        let placed = std::mem::take(&mut self.placed);
        let none = Buffer::new();
        let mut ops = Vec::with_capacity(placed.len() + 1);
        for index in 0..placed.len() + usize::from(placed.is_empty() || !self.gathered.is_empty()) {
            let given =
                if index < placed.len() { Given::Buffer(&none) } else { Given::Bytes(&self.gathered) };
            let action =
                if index == 0 { Action::Put(&self.key, given) } else { Action::Append(&self.key, given) };
            ops.push(Op { tree: self.tree.id(), action });
        }
        self.tree.engine.shared.commit_placed(&ops, placed, durability)
    }
}

impl Drop for ValueWriter {
    fn drop(&mut self) {
        let placed: Vec<Option<PlacedValue>> =
            std::mem::take(&mut self.placed).into_iter().map(Some).collect();
        self.tree.engine.shared.unplace(&placed);
    }
}
