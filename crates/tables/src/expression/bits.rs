//! Loops over stored values: which rows of an array meet a criterion.
//!
//! Each loop knows its type and has no branches, so that the compiler vectorizes it. Values below nulls are
//! read like any others; the caller masks them.

use super::Comparison;
use super::criterion::Criterion;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayAccessor};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_schema::{DataType, TimeUnit};
use std::collections::BTreeSet;

/// Which rows meet the criterion; `None` if it does not apply to the type.
pub(super) fn bits(criterion: &Criterion, array: &dyn Array) -> Option<BooleanBuffer> {
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        // Each distinct value is tested once.
        let distinct = bits(criterion, dictionary.values().as_ref())?;
        if distinct.is_empty() {
            return Some(BooleanBuffer::new_unset(array.len()));
        }
        return Some(dictionary.normalized_keys().into_iter().map(|key| distinct.value(key)).collect());
    }
    match criterion {
        Criterion::Never => Some(BooleanBuffer::new_unset(array.len())),
        Criterion::Integers { low, high } => integers(array, &Within { low: *low, high: *high }),
        Criterion::IntegerSet(set) => integers(array, &OneOf(set)),
        Criterion::Floats { low, high } => floats(array, |value| *low <= value && value <= *high),
        Criterion::FloatSet(set) => floats(array, |value| is_among(set, value)),
        Criterion::IsNan => floats(array, f64::is_nan),
        Criterion::Text(comparison, text) => compared_text(array, *comparison, text),
        Criterion::TextSet(set) => among_texts(array, set),
        Criterion::IsTrue => array.as_boolean_opt().map(|booleans| booleans.values().clone()),
    }
}

/// As [`bits`], for computed integers.
pub(super) fn bits_of_integers(criterion: &Criterion, values: &[i128]) -> BooleanBuffer {
    match criterion {
        Criterion::Integers { low, high } => pack(values, |value| *low <= value && value <= *high),
        Criterion::IntegerSet(set) => pack(values, |value| set.binary_search(&value).is_ok()),
        _ => BooleanBuffer::new_unset(values.len()),
    }
}

/// As [`bits`], for computed floats.
pub(super) fn bits_of_floats(criterion: &Criterion, values: &[f64]) -> BooleanBuffer {
    match criterion {
        Criterion::Floats { low, high } => pack(values, |value| *low <= value && value <= *high),
        Criterion::FloatSet(set) => pack(values, |value| is_among(set, value)),
        Criterion::IsNan => pack(values, f64::is_nan),
        _ => BooleanBuffer::new_unset(values.len()),
    }
}

/// The stored integers as 128-bit integers, times a factor; `None` if the array stores no integers.
pub(super) fn wide_integers(array: &dyn Array, scale: i128) -> Option<Vec<i128>> {
    struct Widen(i128);
    impl OfIntegers for Widen {
        type Answer = Vec<i128>;
        fn of<T: Integer>(&self, values: &[T]) -> Vec<i128> {
            let widen = |value: &T| -> i128 { (*value).into() };
            values.iter().map(|value| widen(value) * self.0).collect()
        }
    }
    integers(array, &Widen(scale))
}

/// The stored floats as doubles; `None` if the array stores no floats.
pub(super) fn wide_floats(array: &dyn Array) -> Option<Vec<f64>> {
    match array.data_type() {
        DataType::Float16 => Some(
            array.as_primitive_opt::<Float16Type>()?.values().iter().map(|value| value.to_f64()).collect(),
        ),
        DataType::Float32 => Some(
            array.as_primitive_opt::<Float32Type>()?.values().iter().map(|value| f64::from(*value)).collect(),
        ),
        DataType::Float64 => Some(array.as_primitive_opt::<Float64Type>()?.values().to_vec()),
        _ => None,
    }
}

/// Compares two columns of texts row by row; `None` if either holds no texts.
pub(super) fn compared_texts(
    left: &dyn Array,
    right: &dyn Array,
    comparison: Comparison,
) -> Option<BooleanBuffer> {
    let (left, right) = (texts(left)?, texts(right)?);
    Some(left.into_iter().zip(right).map(|(left, right)| comparison.holds(Some(left.cmp(right)))).collect())
}

/// Collects the results of a test as bits, sixty-four at a time.
pub(super) fn pack<T: Copy>(values: &[T], test: impl Fn(T) -> bool) -> BooleanBuffer {
    let word = |chunk: &[T]| {
        chunk.iter().enumerate().fold(0u64, |word, (at, value)| word | (u64::from(test(*value)) << at))
    };
    let words: Vec<u64> = values.chunks(64).map(word).collect();
    BooleanBuffer::new(Buffer::from_vec(words), 0, values.len())
}

/// A stored integer type.
trait Integer: Copy + PartialOrd + Into<i128> + TryFrom<i128> {
    const LEAST: i128;
    const GREATEST: i128;
}

macro_rules! stored_integers {
    ($($native:ty),*) => {
        $(impl Integer for $native {
            const LEAST: i128 = <$native>::MIN as i128;
            const GREATEST: i128 = <$native>::MAX as i128;
        })*
    };
}

stored_integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Work on integers of any width.
trait OfIntegers {
    type Answer;
    fn of<T: Integer>(&self, values: &[T]) -> Self::Answer;
}

struct Within {
    low: i128,
    high: i128,
}

impl OfIntegers for Within {
    type Answer = BooleanBuffer;

    fn of<T: Integer>(&self, values: &[T]) -> BooleanBuffer {
        // The range is clamped to the type, so that its ends convert.
        let (low, high) = (self.low.max(T::LEAST), self.high.min(T::GREATEST));
        match (T::try_from(low), T::try_from(high)) {
            (Ok(low), Ok(high)) => pack(values, |value| low <= value && value <= high),
            _ => BooleanBuffer::new_unset(values.len()),
        }
    }
}

struct OneOf<'a>(&'a [i128]);

impl OfIntegers for OneOf<'_> {
    type Answer = BooleanBuffer;

    fn of<T: Integer>(&self, values: &[T]) -> BooleanBuffer {
        pack(values, |value| self.0.binary_search(&value.into()).is_ok())
    }
}

/// Runs the work on the integers that an array stores; `None` if it stores none.
fn integers<W: OfIntegers>(array: &dyn Array, work: &W) -> Option<W::Answer> {
    macro_rules! of {
        ($arrow:ty) => {
            Some(work.of(array.as_primitive_opt::<$arrow>()?.values()))
        };
    }
    match array.data_type() {
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt8 => of!(UInt8Type),
        DataType::UInt16 => of!(UInt16Type),
        DataType::UInt32 => of!(UInt32Type),
        DataType::UInt64 => of!(UInt64Type),
        DataType::Date32 => of!(Date32Type),
        DataType::Date64 => of!(Date64Type),
        DataType::Timestamp(TimeUnit::Second, _) => of!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of!(TimestampNanosecondType),
        _ => None,
    }
}

/// Tests the floats that an array stores, as doubles; `None` if it stores none.
fn floats(array: &dyn Array, test: impl Fn(f64) -> bool) -> Option<BooleanBuffer> {
    match array.data_type() {
        DataType::Float16 => {
            Some(pack(array.as_primitive_opt::<Float16Type>()?.values(), |value| test(value.to_f64())))
        }
        DataType::Float32 => {
            Some(pack(array.as_primitive_opt::<Float32Type>()?.values(), |value| test(f64::from(value))))
        }
        DataType::Float64 => Some(pack(array.as_primitive_opt::<Float64Type>()?.values(), test)),
        _ => None,
    }
}

fn is_among(set: &[f64], value: f64) -> bool {
    // NaN equals nothing; the search treats it as less than every member.
    set.binary_search_by(|member| member.partial_cmp(&value).unwrap_or(std::cmp::Ordering::Less)).is_ok()
}

fn compared_text(array: &dyn Array, comparison: Comparison, text: &str) -> Option<BooleanBuffer> {
    test_texts(array, |value| comparison.holds(Some(value.cmp(text))))
}

fn among_texts(array: &dyn Array, set: &BTreeSet<String>) -> Option<BooleanBuffer> {
    test_texts(array, |value| set.contains(value))
}

fn test_texts(array: &dyn Array, test: impl Fn(&str) -> bool) -> Option<BooleanBuffer> {
    fn each<'a>(array: impl ArrayAccessor<Item = &'a str>, test: impl Fn(&str) -> bool) -> BooleanBuffer {
        BooleanBuffer::collect_bool(array.len(), |row| test(array.value(row)))
    }
    match array.data_type() {
        DataType::Utf8 => Some(each(array.as_string_opt::<i32>()?, test)),
        DataType::LargeUtf8 => Some(each(array.as_string_opt::<i64>()?, test)),
        DataType::Utf8View => Some(each(array.as_string_view_opt()?, test)),
        _ => None,
    }
}

/// The texts of an array, including those below nulls; `None` if it holds no texts.
fn texts(array: &dyn Array) -> Option<Vec<&str>> {
    fn each<'a>(array: impl ArrayAccessor<Item = &'a str>) -> Vec<&'a str> {
        (0..array.len()).map(|row| array.value(row)).collect()
    }
    match array.data_type() {
        DataType::Utf8 => Some(each(array.as_string_opt::<i32>()?)),
        DataType::LargeUtf8 => Some(each(array.as_string_opt::<i64>()?)),
        DataType::Utf8View => Some(each(array.as_string_view_opt()?)),
        _ => None,
    }
}
