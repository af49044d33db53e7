//! Points: the values that a column must have for a condition to be true, if these are few.
//!
//! Finer than an [`Interval`]: for `pid in (3, 1000)` the points are the two values, from which weights
//! follow.
//!
//! Invariant: the value of a row that satisfies the condition is among the points of its column, if it has
//! points.

use super::condition::{Condition, Nullable};
use super::criterion::Criterion;
use super::{Bound, Column, Comparison, Values};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray};
use arrow_schema::{DataType, TimeUnit};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most values that count as few.
pub(crate) const POINTS_MAX: usize = 4096;

/// A stored value; an instant is in the unit of its column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Null,
    Nan,
    Truth(bool),
    Integer(i128),
    /// The bits of a double; both zeros have the same.
    Float(u64),
    Text(String),
}

/// The values that a column may have; `None` if they are not known to be few.
type Points = Option<BTreeSet<Point>>;

impl Bound {
    /// The values that a column of this type must have for a row to satisfy the condition, each once. The
    /// array has that type, or the type of the values if it is a dictionary. `None` if the values are not
    /// known to be few, that is, at most [`POINTS_MAX`].
    pub(crate) fn points(&self, column: &Column, data_type: &DataType) -> Option<ArrayRef> {
        let interval = self.ranges(column);
        let mut points = match points(self.condition(), true, column) {
            Some(points) => points,
            None => few(&interval.values, interval.may_be_nan, interval.may_be_null)?,
        };
        if let Values::Integers { low, high } = interval.values {
            points.retain(|point| !matches!(point, Point::Integer(value) if value < &low || value > &high));
        }
        array(data_type, &points)
    }
}

fn points(condition: &Condition, wanted: bool, column: &Column) -> Points {
    match condition {
        Condition::Constant(value) if *value == Some(wanted) => None,
        Condition::Constant(_) => Some(BTreeSet::new()),
        Condition::Leaf(leaf, criterion) if leaf.column == *column => match (criterion, wanted) {
            (Criterion::IsTrue, _) => Some(BTreeSet::from([Point::Truth(wanted)])),
            (Criterion::Text(Comparison::NotEqual, text), false) => Some(texts([text])),
            (criterion, true) => accepted(criterion),
            (_, false) => None,
        },
        Condition::IsNull(Nullable::Leaf(leaf)) if leaf.column == *column && wanted => {
            Some(BTreeSet::from([Point::Null]))
        }
        Condition::Not(inner) => points(inner, !wanted, column),
        // A conjunction is true if all parts are, and false if one part is; a disjunction is the mirror
        // image.
        Condition::All(parts) if wanted => every(parts, wanted, column),
        Condition::Any(parts) if !wanted => every(parts, wanted, column),
        Condition::All(parts) | Condition::Any(parts) => some(parts, wanted, column),
        _ => None,
    }
}

fn every(parts: &[Condition], wanted: bool, column: &Column) -> Points {
    let known = parts.iter().filter_map(|part| points(part, wanted, column));
    known.reduce(|left, right| left.intersection(&right).cloned().collect())
}

fn some(parts: &[Condition], wanted: bool, column: &Column) -> Points {
    let mut all = BTreeSet::new();
    for part in parts {
        all.append(&mut points(part, wanted, column)?);
        if all.len() > POINTS_MAX {
            return None;
        }
    }
    Some(all)
}

/// The values that meet a criterion.
fn accepted(criterion: &Criterion) -> Points {
    match criterion {
        Criterion::Never => Some(BTreeSet::new()),
        Criterion::Integers { low, high } => few(&Values::Integers { low: *low, high: *high }, false, false),
        Criterion::Floats { low, high } => few(&Values::Floats { low: *low, high: *high }, false, false),
        Criterion::IntegerSet(set) => bounded(set.iter().map(|value| Point::Integer(*value))),
        Criterion::FloatSet(set) => bounded(set.iter().map(|value| float(*value))),
        Criterion::Text(Comparison::Equal, text) => Some(texts([text])),
        Criterion::TextSet(set) => bounded(set.iter().map(|text| Point::Text(text.clone()))),
        Criterion::IsNan => Some(BTreeSet::from([Point::Nan])),
        Criterion::IsTrue => Some(BTreeSet::from([Point::Truth(true)])),
        Criterion::Text(..) => None,
    }
}

fn texts<'t>(texts: impl IntoIterator<Item = &'t String>) -> BTreeSet<Point> {
    texts.into_iter().map(|text| Point::Text(text.clone())).collect()
}

/// The two zeros are one value, as in a canonical key.
fn float(value: f64) -> Point {
    Point::Float(if value == 0.0 { 0 } else { value.to_bits() })
}

fn bounded(points: impl ExactSizeIterator<Item = Point>) -> Points {
    (points.len() <= POINTS_MAX).then(|| points.collect())
}

/// The values in an interval, if they are few.
fn few(values: &Values, may_be_nan: bool, may_be_null: bool) -> Points {
    let mut points: BTreeSet<Point> = match values {
        Values::None => BTreeSet::new(),
        Values::Integers { low, high } => {
            let count = high.checked_sub(*low).filter(|count| *count < POINTS_MAX as i128)?;
            (0..=count).map(|place| Point::Integer(low + place)).collect()
        }
        Values::Floats { low, high } if low == high => BTreeSet::from([float(*low)]),
        Values::Texts { low: Some(low), high: Some(high) } if low == high => texts([low]),
        Values::All | Values::Floats { .. } | Values::Texts { .. } => return None,
    };
    points.extend(may_be_nan.then_some(Point::Nan));
    points.extend(may_be_null.then_some(Point::Null));
    Some(points)
}

/// The points as the column stores them. Points that it cannot store are left out, since no row has them.
/// `None` for a type that has no points.
fn array(data_type: &DataType, points: &BTreeSet<Point>) -> Option<ArrayRef> {
    type Half = <Float16Type as ArrowPrimitiveType>::Native;
    Some(match data_type {
        DataType::Dictionary(_, values) => return array(values, points),
        DataType::Boolean => Arc::new(BooleanArray::from(stored(points, |point| match point {
            Point::Truth(value) => Some(*value),
            _ => None,
        }))),
        DataType::Int8 => integers::<Int8Type>(data_type, points),
        DataType::Int16 => integers::<Int16Type>(data_type, points),
        DataType::Int32 => integers::<Int32Type>(data_type, points),
        DataType::Int64 => integers::<Int64Type>(data_type, points),
        DataType::UInt8 => integers::<UInt8Type>(data_type, points),
        DataType::UInt16 => integers::<UInt16Type>(data_type, points),
        DataType::UInt32 => integers::<UInt32Type>(data_type, points),
        DataType::UInt64 => integers::<UInt64Type>(data_type, points),
        DataType::Date32 => integers::<Date32Type>(data_type, points),
        DataType::Date64 => integers::<Date64Type>(data_type, points),
        DataType::Timestamp(TimeUnit::Second, _) => integers::<TimestampSecondType>(data_type, points),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            integers::<TimestampMillisecondType>(data_type, points)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            integers::<TimestampMicrosecondType>(data_type, points)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            integers::<TimestampNanosecondType>(data_type, points)
        }
        DataType::Float16 => floats::<Float16Type>(points, Half::from_f64, |value| value.to_f64()),
        DataType::Float32 => floats::<Float32Type>(points, |value| value as f32, f64::from),
        DataType::Float64 => floats::<Float64Type>(points, |value| value, |value| value),
        DataType::Utf8 => Arc::new(StringArray::from(stored(points, text))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(stored(points, text))),
        DataType::Utf8View => Arc::new(StringViewArray::from(stored(points, text))),
        _ => return None,
    })
}

/// Each point as a stored value; null stays null, and a point that the type cannot store is left out.
fn stored<'p, T>(points: &'p BTreeSet<Point>, value: impl Fn(&'p Point) -> Option<T>) -> Vec<Option<T>> {
    let stored = points.iter().map(|point| (*point == Point::Null, value(point)));
    stored.filter(|(is_null, value)| *is_null || value.is_some()).map(|(_, value)| value).collect()
}

fn text(point: &Point) -> Option<&str> {
    match point {
        Point::Text(text) => Some(text),
        _ => None,
    }
}

fn integers<T: ArrowPrimitiveType<Native: TryFrom<i128>>>(
    data_type: &DataType,
    points: &BTreeSet<Point>,
) -> ArrayRef {
    let value = |point: &Point| match point {
        Point::Integer(value) => T::Native::try_from(*value).ok(),
        _ => None,
    };
    let array: PrimitiveArray<T> = stored(points, value).into_iter().collect();
    Arc::new(array.with_data_type(data_type.clone()))
}

fn floats<T: ArrowPrimitiveType>(
    points: &BTreeSet<Point>,
    narrow: impl Fn(f64) -> T::Native,
    widen: impl Fn(T::Native) -> f64,
) -> ArrayRef {
    let value = |point: &Point| match point {
        Point::Float(bits) => {
            let value = f64::from_bits(*bits);
            Some(narrow(value)).filter(|stored| widen(*stored) == value)
        }
        Point::Nan => Some(narrow(f64::NAN)),
        _ => None,
    };
    Arc::new(stored(points, value).into_iter().collect::<PrimitiveArray<T>>())
}
