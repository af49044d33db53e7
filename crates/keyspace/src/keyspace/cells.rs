//! Cells of a tree, and changes of them in a batch.

use crate::KeyspaceError;
use crate::cells::{CellRef, CellValue, Cells, Changes};
use atoll_buffer::Buffer;
use atoll_engine::{Direction, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};

/// Cells of a tree.
pub(super) struct TreeCells<'a> {
    pub(super) tree: &'a Tree,
}

impl Cells for TreeCells<'_> {
    fn show<R>(&self, name: &[u8], show: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KeyspaceError> {
        Ok(self.tree.get_with(name, show)?)
    }

    fn value(&self, name: &[u8]) -> Result<Option<CellValue>, KeyspaceError> {
        Ok(self.tree.get(name)?.map(CellValue::from))
    }

    fn visit(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8], CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), KeyspaceError> {
        self.tree.scan(range, direction, |name, value| visit(name, CellRef::from(value)))?;
        Ok(())
    }
}

/// Changes of a command, in a batch.
pub(super) struct Pending<'a> {
    tree: &'a Tree,
    batch: &'a mut WriteBatch,
}

/// Values of at least this length are handed over instead of copied twice.
const LONG: usize = 16 << 10;

impl<'a> Pending<'a> {
    pub(super) fn new(tree: &'a Tree, batch: &'a mut WriteBatch) -> Self {
        Self { tree, batch }
    }
}

impl Changes for Pending<'_> {
    fn put(&mut self, name: &[u8], parts: [&[u8]; 2]) {
        let len = parts[0].len() + parts[1].len();
        if len >= LONG {
            return self.batch.put_buffer(self.tree, name, Buffer::concat(len, parts));
        }
        match parts {
            [whole, []] | [[], whole] => self.batch.put(self.tree, name, whole),
            parts => self.batch.put(self.tree, name, &parts.concat()),
        }
    }

    fn append(&mut self, name: &[u8], bytes: &[u8]) {
        self.batch.append(self.tree, name, bytes);
    }

    fn delete(&mut self, name: &[u8]) {
        self.batch.delete(self.tree, name);
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        self.batch.delete_range(self.tree, (Bound::Included(from), Bound::Excluded(to)));
    }

    fn clear(&mut self) {
        self.batch.clear();
    }
}
