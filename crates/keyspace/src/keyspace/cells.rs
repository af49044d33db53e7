//! Cells of a tree.

use crate::KeyspaceError;
use crate::cells::{CellFront, CellRef, CellValue, Cells};
use atoll_engine::{Direction, Tree};
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

    fn front(&self, name: &[u8]) -> Result<Option<CellFront>, KeyspaceError> {
        Ok(self.tree.front(name)?)
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
