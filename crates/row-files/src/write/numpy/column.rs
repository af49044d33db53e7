//! A column as the values of an array: its NumPy type, and how its values are encoded.

use crate::RowFileError;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, make_array};
use arrow_schema::{DataType, Field, TimeUnit};

/// NumPy's "not a time", which stands for null.
const NOT_A_TIME: i64 = i64::MIN;

/// The most elements of a vector that are read back.
const ELEMENTS_MAX: usize = 65_536;

/// A column of an array.
pub(super) struct Column {
    name: String,
    /// The type of a value, such as `<f8`.
    kind: &'static str,
    value_bytes: usize,
    /// The length of its vectors; `None` for a plain value.
    elements: Option<usize>,
}

/// Why a value is refused.
enum Problem {
    Missing(usize),
    NotATime(usize),
}

impl Problem {
    /// The same, counted in vectors instead of elements.
    fn of_vectors(self, len: usize) -> Self {
        match self {
            Self::Missing(element) => Self::Missing(element / len),
            Self::NotATime(element) => Self::NotATime(element / len),
        }
    }
}

impl Column {
    /// Refuses a type that an array cannot hold.
    pub(super) fn of(field: &Field) -> Result<Self, RowFileError> {
        let (item, elements) = match field.data_type() {
            DataType::FixedSizeList(item, len) => (item.data_type(), usize::try_from(*len).ok()),
            plain => (plain, None),
        };
        let is_vector = matches!(field.data_type(), DataType::FixedSizeList(..));
        let is_readable = !is_vector || elements.is_some_and(|len| (1..=ELEMENTS_MAX).contains(&len));
        let Some((kind, value_bytes)) = kind_of(item).filter(|_| is_readable) else {
            let (name, kind) = (field.name(), field.data_type().to_string().to_lowercase());
            return Err(RowFileError::Unsupported {
                what: format!(
                    "column \"{name}\" is {kind}, of which NumPy has no array that is read back unchanged"
                ),
                hint: "leave the column out with --columns, or write Parquet or Arrow IPC, which hold all types",
            });
        };
        Ok(Self { name: field.name().clone(), kind, value_bytes, elements })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(super) fn elements(&self) -> Option<usize> {
        self.elements
    }

    /// The bytes of a row.
    pub(super) fn bytes(&self) -> usize {
        self.value_bytes * self.elements.unwrap_or(1)
    }

    /// Encodes values; `before` rows were written before them.
    pub(super) fn push(
        &self,
        values: &dyn Array,
        before: u64,
        target: &mut Vec<u8>,
    ) -> Result<(), RowFileError> {
        let pushed = match values.as_fixed_size_list_opt() {
            None => push(values, target),
            Some(vectors) => {
                let len = self.elements.unwrap_or(1).max(1);
                let elements = vectors.values().slice(vectors.value_offset_at(0), vectors.len() * len);
                // What is read back has no null among the elements of vectors, not even of times.
                let missing = (0..vectors.len()).find(|row| vectors.is_null(*row)).or_else(|| {
                    let missing = (0..elements.len()).find(|element| elements.is_null(*element));
                    missing.map(|element| element / len)
                });
                match missing {
                    Some(row) => Err(Problem::Missing(row)),
                    None => push(elements.as_ref(), target).map_err(|problem| problem.of_vectors(len)),
                }
            }
        };
        pushed.map_err(|problem| self.refused(problem, before))
    }

    fn refused(&self, problem: Problem, before: u64) -> RowFileError {
        let name = &self.name;
        match problem {
            Problem::Missing(row) => RowFileError::Unsupported {
                what: format!(
                    "column \"{name}\" has no value in row {}, and NumPy has no such value",
                    before + row as u64 + 1
                ),
                hint: "leave such rows out with --where 'NAME is not null', or the column with --columns; Parquet and \
                       Arrow IPC hold missing values",
            },
            Problem::NotATime(row) => RowFileError::Unsupported {
                what: format!(
                    "column \"{name}\" has a time in row {} that NumPy takes for none",
                    before + row as u64 + 1
                ),
                hint: "leave the row out with --where, or write Parquet or Arrow IPC",
            },
        }
    }
}

/// The type of an array with values of this type, and the bytes of each. Texts and bytes have none: an array
/// pads them to one length, which is known only once all are there, and drops zeros at their ends.
fn kind_of(data_type: &DataType) -> Option<(&'static str, usize)> {
    Some(match data_type {
        DataType::Boolean => ("|b1", 1),
        DataType::Int8 => ("|i1", 1),
        DataType::Int16 => ("<i2", 2),
        DataType::Int32 => ("<i4", 4),
        DataType::Int64 => ("<i8", 8),
        DataType::UInt8 => ("|u1", 1),
        DataType::UInt16 => ("<u2", 2),
        DataType::UInt32 => ("<u4", 4),
        DataType::UInt64 => ("<u8", 8),
        DataType::Float32 => ("<f4", 4),
        DataType::Float64 => ("<f8", 8),
        DataType::Date32 => ("<M8[D]", 8),
        DataType::Timestamp(TimeUnit::Second, _) => ("<M8[s]", 8),
        DataType::Timestamp(TimeUnit::Millisecond, _) => ("<M8[ms]", 8),
        DataType::Timestamp(TimeUnit::Microsecond, _) => ("<M8[us]", 8),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => ("<M8[ns]", 8),
        DataType::Duration(TimeUnit::Second) => ("<m8[s]", 8),
        DataType::Duration(TimeUnit::Millisecond) => ("<m8[ms]", 8),
        DataType::Duration(TimeUnit::Microsecond) => ("<m8[us]", 8),
        DataType::Duration(TimeUnit::Nanosecond) => ("<m8[ns]", 8),
        _ => return None,
    })
}

/// Encodes plain values.
fn push(values: &dyn Array, target: &mut Vec<u8>) -> Result<(), Problem> {
    match values.data_type() {
        DataType::Date32 => {
            let days = values.as_primitive::<Date32Type>();
            days.iter().for_each(|day| {
                target.extend_from_slice(&day.map_or(NOT_A_TIME, i64::from).to_le_bytes());
            });
            return Ok(());
        }
        DataType::Timestamp(..) | DataType::Duration(_) => return push_times(values, target),
        _ => {}
    }
    if values.null_count() > 0 {
        return Err(Problem::Missing((0..values.len()).find(|row| values.is_null(*row)).unwrap_or(0)));
    }
    match values.data_type() {
        DataType::Boolean => {
            let values = values.as_boolean().values();
            target.extend(values.iter().map(u8::from));
        }
        DataType::Int8 => numbers::<Int8Type, 1>(values, i8::to_le_bytes, target),
        DataType::Int16 => numbers::<Int16Type, 2>(values, i16::to_le_bytes, target),
        DataType::Int32 => numbers::<Int32Type, 4>(values, i32::to_le_bytes, target),
        DataType::Int64 => numbers::<Int64Type, 8>(values, i64::to_le_bytes, target),
        DataType::UInt8 => numbers::<UInt8Type, 1>(values, u8::to_le_bytes, target),
        DataType::UInt16 => numbers::<UInt16Type, 2>(values, u16::to_le_bytes, target),
        DataType::UInt32 => numbers::<UInt32Type, 4>(values, u32::to_le_bytes, target),
        DataType::UInt64 => numbers::<UInt64Type, 8>(values, u64::to_le_bytes, target),
        DataType::Float32 => numbers::<Float32Type, 4>(values, f32::to_le_bytes, target),
        DataType::Float64 => numbers::<Float64Type, 8>(values, f64::to_le_bytes, target),
        // No column has another type.
        _ => {}
    }
    Ok(())
}

fn numbers<T: ArrowPrimitiveType, const N: usize>(
    values: &dyn Array,
    encode: fn(T::Native) -> [u8; N],
    target: &mut Vec<u8>,
) {
    target.reserve(N * values.len());
    values.as_primitive::<T>().values().iter().for_each(|value| target.extend_from_slice(&encode(*value)));
}

/// Encodes instants or durations, of which one stands for null.
fn push_times(values: &dyn Array, target: &mut Vec<u8>) -> Result<(), Problem> {
    let ticks = values.to_data().into_builder().data_type(DataType::Int64).build();
    // A time is 64 bits whatever its unit, so this is always possible.
    let ticks = make_array(ticks.map_err(|_| Problem::Missing(0))?);
    for (row, tick) in ticks.as_primitive::<Int64Type>().iter().enumerate() {
        if tick == Some(NOT_A_TIME) {
            return Err(Problem::NotATime(row));
        }
        target.extend_from_slice(&tick.unwrap_or(NOT_A_TIME).to_le_bytes());
    }
    Ok(())
}
