//! Columns as expressions see them: the kind of their values, and how to read them from a batch.
//!
//! Invariant: the array of a leaf has the shape that the schema declares, or evaluation fails.

use super::{Column, EvaluateError};
use crate::{TypeName, vector};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use arrow_select::take::take;
use std::sync::Arc;

/// The kind of a stored value, whatever its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// True or false.
    Boolean,
    /// A whole number of up to 64 bits.
    Integer,
    /// A float of up to 64 bits.
    Float,
    /// A text.
    Text,
    /// A point in time, in units since 1970; UTC if the column has no zone.
    Instant {
        /// Nanoseconds in one unit.
        scale: i128,
    },
    /// Any other type: only nulls can be asked about.
    Opaque,
}

impl Shape {
    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64 => Self::Integer,
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Timestamp(TimeUnit::Second, _) => Self::Instant { scale: 1_000_000_000 },
            DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => {
                Self::Instant { scale: 1_000_000 }
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Instant { scale: 1000 },
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Instant { scale: 1 },
            DataType::Date32 => Self::Instant { scale: 86_400 * 1_000_000_000 },
            DataType::Dictionary(_, values) => Self::of(values),
            _ => Self::Opaque,
        }
    }
}

/// A column, or one element of a vector column, that an expression reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leaf {
    pub(super) column: Column,
    pub(super) shape: Shape,
}

impl Leaf {
    /// The values in a batch; dictionaries stay encoded.
    pub(super) fn array(&self, batch: &RecordBatch) -> Result<ArrayRef, EvaluateError> {
        let name = &self.column.name;
        let column = batch.column_by_name(name);
        let column = column.ok_or_else(|| EvaluateError::MissingColumn { name: name.clone() })?;
        let array = match self.column.element {
            None => Arc::clone(column),
            Some(element) => self.element(column, element)?,
        };
        match Shape::of(array.data_type()) == self.shape {
            true => Ok(array),
            false => Err(self.wrong_type(column)),
        }
    }

    /// The values in a batch, with dictionaries decoded.
    pub(super) fn plain_array(&self, batch: &RecordBatch) -> Result<ArrayRef, EvaluateError> {
        let array = self.array(batch)?;
        match array.as_any_dictionary_opt() {
            None => Ok(array),
            Some(dictionary) => take(dictionary.values().as_ref(), dictionary.keys(), None)
                .map_err(|source| self.failed(source)),
        }
    }

    /// One element of each vector; null if the vector or the element is null.
    fn element(&self, column: &ArrayRef, element: u32) -> Result<ArrayRef, EvaluateError> {
        let list = column.as_fixed_size_list_opt().ok_or_else(|| self.wrong_type(column))?;
        let found = vector::element(list, element).map_err(|source| self.failed(source))?;
        found.ok_or_else(|| self.wrong_type(column))
    }

    pub(super) fn wrong_type(&self, found: &dyn Array) -> EvaluateError {
        EvaluateError::ColumnType {
            column: self.column.to_string(),
            found: TypeName::told(found.data_type()),
        }
    }

    fn failed(&self, source: ArrowError) -> EvaluateError {
        EvaluateError::Column { column: self.column.to_string(), source }
    }
}
