//! A value of a NumPy array: its type, and how it is decoded.

use super::Refusal;
use arrow_array::types::{
    ArrowPrimitiveType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, Date32Array, PrimitiveArray, StringArray};
use arrow_schema::{DataType, TimeUnit};
use std::sync::Arc;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    kind: Kind,
    /// Length of a value in bytes.
    bytes: usize,
    is_big_endian: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Boolean,
    Signed,
    Unsigned,
    Float,
    /// Text in four-byte characters.
    Text,
    Bytes,
    /// A number of days.
    Day,
    Instant(TimeUnit),
    Duration(TimeUnit),
}

/// NumPy's "not a time".
const NOT_A_TIME: i64 = i64::MIN;

/// Refuses a type that no column can have, or that does not exist.
fn unknown(text: &str) -> Refusal {
    let what = format!("its type {text:?} is not a column type");
    let hint = match text.trim_start_matches(['<', '>', '|', '=']).chars().next() {
        Some('O') => "only Python can read objects: save an array of numbers or texts, array.astype(float)",
        Some('c') => "save its parts as columns of their own: array.real, array.imag",
        Some('f' | 'i' | 'u') => "save array.astype(numpy.float64), or another type of up to 8 bytes",
        Some('M' | 'm') => "save it in seconds or parts of them: array.astype('datetime64[ns]')",
        Some('V' | 'S' | 'U') => "save array.astype(str), or each field in an array of its own",
        _ => return Refusal::Damaged(what),
    };
    Refusal::Unsupported(what, hint)
}

impl Item {
    /// Parses a type such as `<f8` or `<M8[ns]`.
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let unknown = || unknown(text);
        let (order, rest) = match text.chars().next() {
            Some(order @ ('<' | '>' | '|' | '=')) => (order, &text[1..]),
            _ => ('<', text),
        };
        let mut characters = rest.chars();
        let kind = characters.next().ok_or_else(unknown)?;
        let (size, unit) = match characters.as_str().split_once('[') {
            Some((size, unit)) => (size, unit.strip_suffix(']')),
            None => (characters.as_str(), None),
        };
        let size: usize = size.parse().map_err(|_| unknown())?;
        let kind = match (kind, size) {
            ('b' | '?', 1) => Kind::Boolean,
            ('i', 1 | 2 | 4 | 8) => Kind::Signed,
            ('u', 1 | 2 | 4 | 8) => Kind::Unsigned,
            ('f', 4 | 8) => Kind::Float,
            ('U', 1..=65_536) => Kind::Text,
            ('S', 1..=65_536) => Kind::Bytes,
            ('M', 8) if unit == Some("D") => Kind::Day,
            ('M', 8) => Kind::Instant(unit.and_then(time_unit).ok_or_else(unknown)?),
            ('m', 8) => Kind::Duration(unit.and_then(time_unit).ok_or_else(unknown)?),
            _ => return Err(unknown()),
        };
        let bytes = if kind == Kind::Text { size * 4 } else { size };
        Ok(Self { kind, bytes, is_big_endian: order == '>' })
    }

    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// Whether the type has a value that stands for null.
    pub(super) fn may_be_null(self) -> bool {
        matches!(self.kind, Kind::Day | Kind::Instant(_) | Kind::Duration(_))
    }

    pub(super) fn data_type(self) -> DataType {
        match (self.kind, self.bytes) {
            (Kind::Boolean, _) => DataType::Boolean,
            (Kind::Signed, 1) => DataType::Int8,
            (Kind::Signed, 2) => DataType::Int16,
            (Kind::Signed, 4) => DataType::Int32,
            (Kind::Signed, _) => DataType::Int64,
            (Kind::Unsigned, 1) => DataType::UInt8,
            (Kind::Unsigned, 2) => DataType::UInt16,
            (Kind::Unsigned, 4) => DataType::UInt32,
            (Kind::Unsigned, _) => DataType::UInt64,
            (Kind::Float, 4) => DataType::Float32,
            (Kind::Float, _) => DataType::Float64,
            (Kind::Text, _) => DataType::Utf8,
            (Kind::Bytes, _) => DataType::Binary,
            (Kind::Day, _) => DataType::Date32,
            (Kind::Instant(unit), _) => DataType::Timestamp(unit, None),
            (Kind::Duration(unit), _) => DataType::Duration(unit),
        }
    }

    /// Decodes the values of a column: `elements` in each row, from `offset` on.
    pub(super) fn values(
        self,
        bytes: &[u8],
        rows: usize,
        row_bytes: usize,
        offset: usize,
        elements: usize,
    ) -> Result<ArrayRef, String> {
        let places = (0..rows).flat_map(|row| {
            let start = row * row_bytes + offset;
            (0..elements).map(move |element| start + element * self.bytes)
        });
        let cells = places.map(|place| bytes.get(place..place + self.bytes).unwrap_or_default());
        let order = self.is_big_endian;
        Ok(match (self.kind, self.bytes) {
            (Kind::Boolean, _) => {
                Arc::new(BooleanArray::from(cells.map(|cell| cell != [0]).collect::<Vec<bool>>()))
            }
            (Kind::Signed, 1) => numbers::<Int8Type, 1>(cells, order, i8::from_le_bytes),
            (Kind::Signed, 2) => numbers::<Int16Type, 2>(cells, order, i16::from_le_bytes),
            (Kind::Signed, 4) => numbers::<Int32Type, 4>(cells, order, i32::from_le_bytes),
            (Kind::Signed, _) => numbers::<Int64Type, 8>(cells, order, i64::from_le_bytes),
            (Kind::Unsigned, 1) => numbers::<UInt8Type, 1>(cells, order, u8::from_le_bytes),
            (Kind::Unsigned, 2) => numbers::<UInt16Type, 2>(cells, order, u16::from_le_bytes),
            (Kind::Unsigned, 4) => numbers::<UInt32Type, 4>(cells, order, u32::from_le_bytes),
            (Kind::Unsigned, _) => numbers::<UInt64Type, 8>(cells, order, u64::from_le_bytes),
            (Kind::Float, 4) => numbers::<Float32Type, 4>(cells, order, f32::from_le_bytes),
            (Kind::Float, _) => numbers::<Float64Type, 8>(cells, order, f64::from_le_bytes),
            (Kind::Text, _) => {
                let texts = cells.map(|cell| text(cell, order)).collect::<Result<Vec<String>, String>>()?;
                Arc::new(StringArray::from(texts))
            }
            (Kind::Bytes, _) => Arc::new(BinaryArray::from_iter_values(cells.map(without_padding))),
            (Kind::Day, _) => days(cells, order)?,
            (Kind::Instant(unit), _) => match unit {
                TimeUnit::Second => times::<TimestampSecondType>(cells, order),
                TimeUnit::Millisecond => times::<TimestampMillisecondType>(cells, order),
                TimeUnit::Microsecond => times::<TimestampMicrosecondType>(cells, order),
                TimeUnit::Nanosecond => times::<TimestampNanosecondType>(cells, order),
            },
            (Kind::Duration(unit), _) => match unit {
                TimeUnit::Second => times::<DurationSecondType>(cells, order),
                TimeUnit::Millisecond => times::<DurationMillisecondType>(cells, order),
                TimeUnit::Microsecond => times::<DurationMicrosecondType>(cells, order),
                TimeUnit::Nanosecond => times::<DurationNanosecondType>(cells, order),
            },
        })
    }
}

fn time_unit(text: &str) -> Option<TimeUnit> {
    Some(match text {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    })
}

fn fixed<const N: usize>(cell: &[u8], is_big_endian: bool) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(cell);
    if is_big_endian {
        bytes.reverse();
    }
    bytes
}

fn numbers<'a, T: ArrowPrimitiveType, const N: usize>(
    cells: impl Iterator<Item = &'a [u8]>,
    is_big_endian: bool,
    read: fn([u8; N]) -> T::Native,
) -> ArrayRef {
    let values = cells.map(|cell| read(fixed(cell, is_big_endian)));
    Arc::new(PrimitiveArray::<T>::from_iter_values(values))
}

fn times<'a, T: ArrowPrimitiveType<Native = i64>>(
    cells: impl Iterator<Item = &'a [u8]>,
    is_big_endian: bool,
) -> ArrayRef {
    let values = cells.map(|cell| Some(i64::from_le_bytes(fixed(cell, is_big_endian))));
    Arc::new(values.map(|value| value.filter(|value| *value != NOT_A_TIME)).collect::<PrimitiveArray<T>>())
}

fn days<'a>(cells: impl Iterator<Item = &'a [u8]>, is_big_endian: bool) -> Result<ArrayRef, String> {
    let days = cells.map(|cell| i64::from_le_bytes(fixed(cell, is_big_endian))).map(|day| match day {
        NOT_A_TIME => Ok(None),
        day => i32::try_from(day).map(Some).map_err(|_| format!("{day} days are more than a date holds")),
    });
    Ok(Arc::new(days.collect::<Result<Date32Array, String>>()?))
}

fn text(cell: &[u8], is_big_endian: bool) -> Result<String, String> {
    let codes = cell.chunks_exact(4).map(|code| u32::from_le_bytes(fixed(code, is_big_endian)));
    let mut text = String::new();
    for code in codes {
        text.push(char::from_u32(code).ok_or_else(|| format!("{code} is not a character"))?);
    }
    text.truncate(text.trim_end_matches('\0').len());
    Ok(text)
}

fn without_padding(cell: &[u8]) -> &[u8] {
    let end = cell.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &cell[..end]
}
