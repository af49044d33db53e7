//! Columns as 64-bit numbers, from which weights and coordinates are computed.
//!
//! Invariant: every widening is exact; integers and times stay integers.

use arrow_array::types::{ArrowPrimitiveType, Float16Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;

/// A numeric column, widened. The values below nulls are arbitrary.
pub(crate) enum Numbers {
    /// Signed integers; dates, times, timestamps and durations in their own unit.
    Signed(ScalarBuffer<i64>),
    /// Unsigned integers.
    Unsigned(ScalarBuffer<u64>),
    /// Floats.
    Float(ScalarBuffer<f64>),
}

/// The 64-bit type that can hold every value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Signed,
    Unsigned,
    Float,
}

impl Kind {
    /// The kind that holds the values of a type; `None` if the type is neither a number nor a time.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
        match data_type {
            Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) => Some(Self::Signed),
            number if number.is_signed_integer() => Some(Self::Signed),
            number if number.is_unsigned_integer() => Some(Self::Unsigned),
            number if number.is_floating() => Some(Self::Float),
            _ => None,
        }
    }
}

impl Numbers {
    /// The column, widened, without a copy if it has 64 bits already; `None` if it holds neither numbers nor
    /// times.
    pub(crate) fn of(array: &ArrayRef) -> Option<Self> {
        type Half = <Float16Type as ArrowPrimitiveType>::Native;
        let kind = Kind::of(array.data_type())?;
        Some(match (kind, array.data_type().primitive_width()?) {
            (Kind::Signed, 1) => Self::Signed(widened::<i8, _>(array)?),
            (Kind::Signed, 2) => Self::Signed(widened::<i16, _>(array)?),
            (Kind::Signed, 4) => Self::Signed(widened::<i32, _>(array)?),
            (Kind::Signed, _) => Self::Signed(values(array)?),
            (Kind::Unsigned, 1) => Self::Unsigned(widened::<u8, _>(array)?),
            (Kind::Unsigned, 2) => Self::Unsigned(widened::<u16, _>(array)?),
            (Kind::Unsigned, 4) => Self::Unsigned(widened::<u32, _>(array)?),
            (Kind::Unsigned, _) => Self::Unsigned(values(array)?),
            (Kind::Float, 2) => Self::Float(widened::<Half, _>(array)?),
            (Kind::Float, 4) => Self::Float(widened::<f32, _>(array)?),
            (Kind::Float, _) => Self::Float(values(array)?),
        })
    }
}

/// The values of a fixed-width column as they lie in memory.
fn values<T: ArrowNativeType>(array: &ArrayRef) -> Option<ScalarBuffer<T>> {
    let parts = array.to_data();
    let buffer = parts.buffers().first()?.clone();
    Some(ScalarBuffer::new(buffer, parts.offset(), parts.len()))
}

fn widened<T: ArrowNativeType, W: ArrowNativeType + From<T>>(array: &ArrayRef) -> Option<ScalarBuffer<W>> {
    Some(values::<T>(array)?.iter().map(|&value| W::from(value)).collect())
}
