//! Batches: changes that apply together or not at all, across trees.

use crate::engine::Tree;
use crate::space::BLOCK;
use crate::value::{PART_LEN, VALUE_MAX};
use atoll_buffer::Buffer;
use std::ops::{Bound, Range};

/// Most pieces into which a value that is put at once is divided.
const PIECES_MAX: usize = 64;

/// Changes to one or more trees, applied atomically and in order.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    arena: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    tree: u32,
    action: Planned,
}

#[derive(Clone, Debug)]
enum Planned {
    Put { key: Range<usize>, value: PlannedValue },
    Append { key: Range<usize>, value: PlannedValue },
    Delete { key: Range<usize> },
    DeleteRange { from: Bound<Range<usize>>, to: Bound<Range<usize>> },
}

#[derive(Clone, Debug)]
enum PlannedValue {
    Copied(Range<usize>),
    Shared(Buffer),
    /// One of several parts of a buffer, all of which are kept.
    Part(Buffer),
}

/// One change, by reference: what the writer works with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub(crate) tree: u32,
    pub(crate) action: Action<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'a> {
    Put(&'a [u8], Given<'a>),
    Append(&'a [u8], Given<'a>),
    Delete(&'a [u8]),
    DeleteRange(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl<'a> Action<'a> {
    /// The one key that it is about.
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Put(key, _) | Self::Append(key, _) | Self::Delete(key) => Some(key),
            Self::DeleteRange(..) => None,
        }
    }
}

/// A value as the caller gave it; a buffer can be kept without copying.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'a> {
    Bytes(&'a [u8]),
    Buffer(&'a Buffer),
    Part(&'a Buffer),
}

impl<'a> Given<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Buffer(buffer) | Self::Part(buffer) => buffer,
        }
    }

    pub(crate) fn to_buffer(self) -> Buffer {
        match self {
            Self::Bytes(bytes) => Buffer::copy_from(bytes),
            Self::Buffer(buffer) | Self::Part(buffer) => buffer.clone(),
        }
    }
}

/// Where the pieces of a value of this length end. The pieces are about equally long, so that each gets an
/// extent of its own, one behind the other.
fn part_ends(len: usize) -> impl Iterator<Item = usize> {
    // A value that is too long will be refused as a whole.
    let most = if len as u64 > VALUE_MAX { 1 } else { PIECES_MAX };
    let count = (len / PART_LEN).clamp(1, most);
    let blocks = len.div_ceil(BLOCK as usize);
    (1..=count).map(move |part| (blocks * part / count * BLOCK as usize).min(len))
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) {
        let (key, value) = (self.copy(key), PlannedValue::Copied(self.copy(value)));
        self.add(tree, Planned::Put { key, value });
    }

    /// Sets `key` to `value`, keeping the buffer instead of a copy where that pays.
    ///
    /// A long value becomes several pieces, so that a range of it can be read, and verified, without the
    /// rest.
    pub fn put_buffer(&mut self, tree: &Tree, key: &[u8], value: Buffer) {
        let key = self.copy(key);
        if part_ends(value.len()).count() == 1 {
            self.add(tree, Planned::Put { key, value: PlannedValue::Shared(value) });
            return;
        }
        let mut from = 0;
        for to in part_ends(value.len()) {
            let (key, value) = (key.clone(), PlannedValue::Part(value.slice(from..to)));
            let is_first = from == 0;
            from = to;
            let part = if is_first { Planned::Put { key, value } } else { Planned::Append { key, value } };
            self.add(tree, part);
        }
    }

    /// Adds `bytes` at the end of the value of `key`; an absent key counts as empty.
    pub fn append(&mut self, tree: &Tree, key: &[u8], bytes: &[u8]) {
        let (key, value) = (self.copy(key), PlannedValue::Copied(self.copy(bytes)));
        self.add(tree, Planned::Append { key, value });
    }

    /// As [`WriteBatch::append`], keeping the buffer instead of a copy where that pays.
    pub fn append_buffer(&mut self, tree: &Tree, key: &[u8], bytes: Buffer) {
        let key = self.copy(key);
        self.add(tree, Planned::Append { key, value: PlannedValue::Shared(bytes) });
    }

    /// Removes `key`; an absent key is no error.
    pub fn delete(&mut self, tree: &Tree, key: &[u8]) {
        let key = self.copy(key);
        self.add(tree, Planned::Delete { key });
    }

    /// Removes every key of the range.
    pub fn delete_range(&mut self, tree: &Tree, (from, to): (Bound<&[u8]>, Bound<&[u8]>)) {
        let from = from.map(|key| self.copy(key));
        let to = to.map(|key| self.copy(key));
        self.add(tree, Planned::DeleteRange { from, to });
    }

    /// Removes all changes and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.changes.clear();
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn ops(&self) -> Vec<Op<'_>> {
        self.changes
            .iter()
            .map(|change| Op { tree: change.tree, action: self.action(&change.action) })
            .collect()
    }

    fn action<'a>(&'a self, planned: &'a Planned) -> Action<'a> {
        let at = |range: &Range<usize>| &self.arena[range.clone()];
        let given = |value: &'a PlannedValue| match value {
            PlannedValue::Copied(range) => Given::Bytes(at(range)),
            PlannedValue::Shared(buffer) => Given::Buffer(buffer),
            PlannedValue::Part(buffer) => Given::Part(buffer),
        };
        match planned {
            Planned::Put { key, value } => Action::Put(at(key), given(value)),
            Planned::Append { key, value } => Action::Append(at(key), given(value)),
            Planned::Delete { key } => Action::Delete(at(key)),
            Planned::DeleteRange { from, to } => {
                Action::DeleteRange(from.as_ref().map(at), to.as_ref().map(at))
            }
        }
    }

    fn add(&mut self, tree: &Tree, action: Planned) {
        self.changes.push(Change { tree: tree.id(), action });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        start..self.arena.len()
    }
}
