//! The evaluator's view of a store: cells to read, and changes that are committed together later.

use crate::KeyspaceError;
use crate::head::HEAD_BYTES_MAX;
use atoll_buffer::Buffer;
use atoll_engine::{Direction, Front, Value, ValueRef};
use std::ops::{Bound, ControlFlow};

/// The first bytes of a cell, enough for any head.
pub type CellFront = Front<HEAD_BYTES_MAX>;

/// The cells as they were before a command.
pub trait Cells {
    /// Passes the whole value of a cell to `show`, which must not read other cells.
    ///
    /// # Errors
    /// [`KeyspaceError`] if the value must be read from the disk and cannot be.
    fn show<R>(&self, name: &[u8], show: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KeyspaceError>;

    /// The value of a cell, which is not read from the disk yet.
    ///
    /// # Errors
    /// As [`Cells::show`].
    fn value(&self, name: &[u8]) -> Result<Option<CellValue>, KeyspaceError>;

    /// The first bytes of a cell's value, as many as a head needs at most, and the value's length.
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

/// The changes of a command, applied in order and all together when it ends; the command does not see them in
/// its reads.
pub trait Changes {
    /// Sets a cell to the concatenation of these parts.
    fn put(&mut self, name: &[u8], parts: [&[u8]; 2]);
    /// Appends bytes to a cell; an absent cell counts as empty.
    fn append(&mut self, name: &[u8], bytes: &[u8]);
    /// Removes a cell; an absent cell is not an error.
    fn delete(&mut self, name: &[u8]);
    /// Removes all cells from `from` up to `to`, exclusive.
    fn delete_range(&mut self, from: &[u8], to: &[u8]);
    /// Discards all changes.
    fn clear(&mut self);
}

/// An owned value of a cell; parts that are not in memory are read when they are asked for.
#[derive(Clone, Debug)]
pub struct CellValue(OwnedValue);

#[derive(Clone, Debug)]
enum OwnedValue {
    Whole(Buffer),
    Stored(Value),
}

impl From<Buffer> for CellValue {
    fn from(bytes: Buffer) -> Self {
        Self(OwnedValue::Whole(bytes))
    }
}

impl From<Value> for CellValue {
    fn from(value: Value) -> Self {
        Self(OwnedValue::Stored(value))
    }
}

impl CellValue {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            OwnedValue::Whole(bytes) => bytes.len() as u64,
            OwnedValue::Stored(value) => value.len(),
        }
    }

    /// Whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `offset`, at most `len`, clamped to the value.
    ///
    /// # Errors
    /// [`KeyspaceError`] if they must be read from the disk and cannot be.
    pub fn read(&self, offset: u64, len: u64) -> Result<Buffer, KeyspaceError> {
        match &self.0 {
            OwnedValue::Whole(bytes) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(bytes.slice(at(offset)..at(offset.saturating_add(len))))
            }
            OwnedValue::Stored(value) => Ok(value.read(offset, len)?),
        }
    }

    /// Whether it can be read without waiting.
    fn is_resident(&self) -> bool {
        match &self.0 {
            OwnedValue::Whole(_) => true,
            OwnedValue::Stored(value) => value.is_resident(),
        }
    }
}

/// The value of a cell during a visit.
pub struct CellRef<'a>(VisitedValue<'a>);

enum VisitedValue<'a> {
    Bytes(&'a Buffer),
    Stored(ValueRef<'a>),
}

impl<'a> From<&'a Buffer> for CellRef<'a> {
    fn from(bytes: &'a Buffer) -> Self {
        Self(VisitedValue::Bytes(bytes))
    }
}

impl<'a> From<ValueRef<'a>> for CellRef<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        Self(VisitedValue::Stored(value))
    }
}

/// Values below this length are stored beside their names, or are read in one go.
const SHORT: u64 = 256;

impl CellRef<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            VisitedValue::Bytes(bytes) => bytes.len() as u64,
            VisitedValue::Stored(value) => value.len(),
        }
    }

    /// Whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An owned copy of the value.
    #[must_use]
    pub fn to_value(&self) -> CellValue {
        match &self.0 {
            VisitedValue::Bytes(bytes) => CellValue::from((*bytes).clone()),
            VisitedValue::Stored(value) => CellValue::from(value.to_value()),
        }
    }

    /// Passes the bytes to `show` if that needs no wait for a disk; otherwise returns none.
    ///
    /// # Errors
    /// [`KeyspaceError`] if a short value has to be read from the disk after all and cannot be.
    pub fn show<R>(&self, show: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, KeyspaceError> {
        match &self.0 {
            VisitedValue::Bytes(bytes) => Ok(Some(show(bytes))),
            VisitedValue::Stored(value) if value.len() < SHORT => Ok(Some(show(&value.bytes()?))),
            VisitedValue::Stored(value) => {
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
