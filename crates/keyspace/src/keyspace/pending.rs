//! The changes of one command until they are committed.
//!
//! Most commands change one cell. That change is kept apart, because the engine can do a single change in
//! place, without a batch.

use crate::KeyspaceError;
use crate::cells::Changes;
use atoll_buffer::Buffer;
use atoll_engine::{Amendment, Durability, Engine, Tree, WriteBatch};
use std::ops::Bound;

/// The changes of one command until they are committed.
pub(super) struct Pending {
    tree: Tree,
    /// The first change, while it is the only one.
    only: Option<OnlyChange>,
    name: Vec<u8>,
    value: Vec<u8>,
    batch: WriteBatch,
    /// Bytes that were added to the batch.
    bytes: usize,
}

#[derive(Clone, Copy)]
enum OnlyChange {
    Put,
    Append,
    Delete,
}

/// Values of at least this length are handed over instead of copied once more.
const LONG_VALUE_BYTES: usize = 16 << 10;

/// A batch with more bytes than this is not reused for the next command.
const REUSED_BATCH_BYTES_MAX: usize = 1 << 20;

impl Pending {
    pub(super) fn new(tree: &Tree) -> Self {
        Self {
            tree: tree.clone(),
            only: None,
            name: Vec::new(),
            value: Vec::new(),
            batch: WriteBatch::new(),
            bytes: 0,
        }
    }

    /// The change, if exactly one cell changes.
    pub(super) fn only_change(&self) -> Option<Amendment<'_>> {
        Some(match self.only? {
            OnlyChange::Put => Amendment::Put(&self.value),
            OnlyChange::Append => Amendment::Append(&self.value),
            OnlyChange::Delete => Amendment::Delete,
        })
    }

    /// Commits all changes together.
    pub(super) fn commit(&mut self, engine: &Engine) -> Result<(), KeyspaceError> {
        let (tree, name, value) = (&self.tree, &self.name, &self.value);
        match self.only {
            Some(OnlyChange::Put) => tree.put(name, value, Durability::Buffered)?,
            Some(OnlyChange::Append) => tree.append(name, value, Durability::Buffered)?,
            Some(OnlyChange::Delete) => tree.delete(name, Durability::Buffered)?,
            None if self.batch.is_empty() => return Ok(()),
            None => engine.write(&self.batch, Durability::Buffered)?,
        };
        Ok(())
    }

    /// Records a change as the only one, if there is no other; returns whether it did.
    fn notes_only(&mut self, only: OnlyChange, name: &[u8], parts: [&[u8]; 2]) -> bool {
        if self.only.is_some() || !self.batch.is_empty() {
            self.move_to_batch();
            return false;
        }
        self.only = Some(only);
        self.name.extend_from_slice(name);
        parts.iter().for_each(|part| self.value.extend_from_slice(part));
        true
    }

    /// Moves the only change to the front of the batch.
    fn move_to_batch(&mut self) {
        match self.only.take() {
            None => return,
            Some(OnlyChange::Put) => self.batch.put(&self.tree, &self.name, &self.value),
            Some(OnlyChange::Append) => self.batch.append(&self.tree, &self.name, &self.value),
            Some(OnlyChange::Delete) => self.batch.delete(&self.tree, &self.name),
        }
        self.bytes += self.value.len();
        self.name.clear();
        self.value.clear();
    }
}

impl Changes for Pending {
    fn put(&mut self, name: &[u8], parts: [&[u8]; 2]) {
        let len = parts[0].len() + parts[1].len();
        if len >= LONG_VALUE_BYTES {
            self.move_to_batch();
            self.batch.put_buffer(&self.tree, name, Buffer::concat(len, parts));
        } else if !self.notes_only(OnlyChange::Put, name, parts) {
            self.bytes += name.len() + len;
            match parts {
                [whole, []] | [[], whole] => self.batch.put(&self.tree, name, whole),
                parts => self.batch.put(&self.tree, name, &parts.concat()),
            }
        }
    }

    fn append(&mut self, name: &[u8], bytes: &[u8]) {
        if bytes.len() >= LONG_VALUE_BYTES {
            self.move_to_batch();
            self.batch.append_buffer(&self.tree, name, Buffer::copy_from(bytes));
        } else if !self.notes_only(OnlyChange::Append, name, [bytes, &[]]) {
            self.bytes += name.len() + bytes.len();
            self.batch.append(&self.tree, name, bytes);
        }
    }

    fn delete(&mut self, name: &[u8]) {
        if !self.notes_only(OnlyChange::Delete, name, [&[], &[]]) {
            self.bytes += name.len();
            self.batch.delete(&self.tree, name);
        }
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        self.move_to_batch();
        self.bytes += from.len() + to.len();
        self.batch.delete_range(&self.tree, (Bound::Included(from), Bound::Excluded(to)));
    }

    fn clear(&mut self) {
        self.only = None;
        self.name.clear();
        self.value.clear();
        match self.bytes > REUSED_BATCH_BYTES_MAX {
            true => self.batch = WriteBatch::new(),
            false => self.batch.clear(),
        }
        self.bytes = 0;
    }
}
