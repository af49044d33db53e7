//! What the evaluator needs of a store: cells to read, and changes that are made together later.

use crate::KeyspaceError;
use crate::head::HEAD_BYTES_MAX;
use atoll_buffer::Buffer;
use atoll_engine::{Direction, Front, Value, ValueRef};
use std::ops::{Bound, ControlFlow};

/// What a cell begins with: any head is whole in it.
pub type CellFront = Front<HEAD_BYTES_MAX>;

/// Cells as they were before a command.
pub trait Cells {
    /// Shows the value of a cell, all of it. `show` must not read other cells.
    ///
    /// # Errors
    /// [`KeyspaceError`] when it must be read back and cannot be.
    fn show<R>(&self, name: &[u8], show: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KeyspaceError>;

    /// The value of a cell; nothing is read back of it yet.
    ///
    /// # Errors
    /// As [`Cells::show`].
    fn value(&self, name: &[u8]) -> Result<Option<CellValue>, KeyspaceError>;

    /// What the value of a cell begins with, as much as a head needs at most, and how long it is.
    ///
    /// # Errors
    /// As [`Cells::show`].
    fn front(&self, name: &[u8]) -> Result<Option<CellFront>, KeyspaceError>;

    /// Visits the cells of a range in order, until the visitor stops. It must not read other cells.
    ///
    /// # Errors
    /// As [`Cells::show`].
    fn visit(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: impl FnMut(&[u8], CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), KeyspaceError>;
}

/// Changes of a command, applied in order and all together when it is over; no read of the command sees them.
pub trait Changes {
    /// Sets a cell to these parts, one behind the other.
    fn put(&mut self, name: &[u8], parts: [&[u8]; 2]);
    /// Adds bytes at the end of a cell; an absent one counts as empty.
    fn append(&mut self, name: &[u8], bytes: &[u8]);
    /// Removes a cell; an absent one is no error.
    fn delete(&mut self, name: &[u8]);
    /// Removes all cells from one name up to another, which is left.
    fn delete_range(&mut self, from: &[u8], to: &[u8]);
    /// Forgets all changes.
    fn clear(&mut self);
}

/// The value of a cell, kept; what is not in memory of it is read back when it is asked for.
#[derive(Clone, Debug)]
pub struct CellValue(Kept);

#[derive(Clone, Debug)]
enum Kept {
    Whole(Buffer),
    Stored(Value),
}

impl From<Buffer> for CellValue {
    fn from(bytes: Buffer) -> Self {
        Self(Kept::Whole(bytes))
    }
}

impl From<Value> for CellValue {
    fn from(value: Value) -> Self {
        Self(Kept::Stored(value))
    }
}

impl CellValue {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kept::Whole(bytes) => bytes.len() as u64,
            Kept::Stored(value) => value.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `offset`, at most `len`, clamped to the value.
    ///
    /// # Errors
    /// [`KeyspaceError`] when they must be read back and cannot be.
    pub fn read(&self, offset: u64, len: u64) -> Result<Buffer, KeyspaceError> {
        match &self.0 {
            Kept::Whole(bytes) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(bytes.slice(at(offset)..at(offset.saturating_add(len))))
            }
            Kept::Stored(value) => Ok(value.read(offset, len)?),
        }
    }

    /// Whether reading it waits for nothing.
    fn is_resident(&self) -> bool {
        match &self.0 {
            Kept::Whole(_) => true,
            Kept::Stored(value) => value.is_resident(),
        }
    }
}

/// The value of a cell during a visit.
pub struct CellRef<'a>(Seen<'a>);

enum Seen<'a> {
    Bytes(&'a Buffer),
    Stored(ValueRef<'a>),
}

impl<'a> From<&'a Buffer> for CellRef<'a> {
    fn from(bytes: &'a Buffer) -> Self {
        Self(Seen::Bytes(bytes))
    }
}

impl<'a> From<ValueRef<'a>> for CellRef<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        Self(Seen::Stored(value))
    }
}

/// Values below this length lie beside their names, or are read in one go.
const SHORT: u64 = 256;

impl CellRef<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Seen::Bytes(bytes) => bytes.len() as u64,
            Seen::Stored(value) => value.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value, to be kept.
    #[must_use]
    pub fn to_value(&self) -> CellValue {
        match &self.0 {
            Seen::Bytes(bytes) => CellValue::from((*bytes).clone()),
            Seen::Stored(value) => CellValue::from(value.to_value()),
        }
    }

    /// Shows the bytes if that waits for no disk; none otherwise.
    ///
    /// # Errors
    /// [`KeyspaceError`] when a short value must be read back all the same and cannot be.
    pub fn show<R>(&self, show: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, KeyspaceError> {
        match &self.0 {
            Seen::Bytes(bytes) => Ok(Some(show(bytes))),
            Seen::Stored(value) if value.len() < SHORT => Ok(Some(show(&value.bytes()?))),
            Seen::Stored(value) => {
                let value = CellValue::from(value.to_value());
                if !value.is_resident() {
                    return Ok(None);
                }
                let bytes = value.read(0, value.len())?;
                Ok(Some(show(&bytes)))
            }
        }
    }
}
