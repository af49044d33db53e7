//! Intervals in which a column's values must lie for a condition to be true, used to leave out whole blocks.
//!
//! An interval is necessary, not sufficient: it may contain values of rows that do not satisfy the condition.
//!
//! Invariant: the value of a row that satisfies the condition lies within the interval of its column.

use super::condition::{Condition, Nullable};
use super::criterion::Criterion;
use super::leaf::Leaf;
use super::numbers::Number;
use super::{Column, Comparison};

/// A set that must contain the value of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The values other than null and NaN.
    pub values: Values,
    /// Whether the value may be NaN; meaningless for a column that is not of floats.
    pub may_be_nan: bool,
    /// Whether the value may be null.
    pub may_be_null: bool,
}

/// Ordered values. Both ends of a range are included.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Values {
    /// No values.
    None,
    /// Any values.
    All,
    /// Stored integers; for a timestamp or a date in the column's own unit.
    Integers {
        /// The least value; `i128::MIN` if unbounded.
        low: i128,
        /// The greatest value; `i128::MAX` if unbounded.
        high: i128,
    },
    /// Floats, as doubles.
    Floats {
        /// The least value, possibly minus infinity.
        low: f64,
        /// The greatest value, possibly infinity.
        high: f64,
    },
    /// Texts, ordered by their UTF-8 bytes.
    Texts {
        /// The least value; `None` if unbounded.
        low: Option<String>,
        /// The greatest value; `None` if unbounded.
        high: Option<String>,
    },
}

impl Interval {
    /// Every value, NaN and null included.
    pub const EVERYTHING: Self = Self { values: Values::All, may_be_nan: true, may_be_null: true };

    /// No value: no row satisfies the condition.
    pub const NOTHING: Self = Self { values: Values::None, may_be_nan: false, may_be_null: false };

    const KNOWN: Self = Self { values: Values::All, may_be_nan: true, may_be_null: false };

    /// Every value but null.
    pub(super) const fn known() -> Self {
        Self::KNOWN
    }

    fn of(values: Values) -> Self {
        Self { values, may_be_nan: false, may_be_null: false }
    }

    /// Whether no row can satisfy the condition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NOTHING
    }

    /// The values that lie in both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self {
            values: self.values.intersection(other.values),
            may_be_nan: self.may_be_nan && other.may_be_nan,
            may_be_null: self.may_be_null && other.may_be_null,
        }
    }

    /// The least interval that contains both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self {
            values: self.values.hull(other.values),
            may_be_nan: self.may_be_nan || other.may_be_nan,
            may_be_null: self.may_be_null || other.may_be_null,
        }
    }
}

impl Values {
    fn integers(low: i128, high: i128) -> Self {
        if low <= high { Self::Integers { low, high } } else { Self::None }
    }

    fn floats(low: f64, high: f64) -> Self {
        if low <= high { Self::Floats { low, high } } else { Self::None }
    }

    fn texts(low: Option<String>, high: Option<String>) -> Self {
        match (&low, &high) {
            (Some(first), Some(last)) if first > last => Self::None,
            _ => Self::Texts { low, high },
        }
    }

    fn intersection(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, values) | (values, Self::All) => values,
            (Self::Integers { low, high }, Self::Integers { low: least, high: greatest }) => {
                Self::integers(low.max(least), high.min(greatest))
            }
            (Self::Floats { low, high }, Self::Floats { low: least, high: greatest }) => {
                Self::floats(low.max(least), high.min(greatest))
            }
            (Self::Texts { low, high }, Self::Texts { low: least, high: greatest }) => {
                // A missing low end sorts below any text, as it should; a missing high end must not.
                let ends = [high, greatest].into_iter().flatten();
                Self::texts(low.max(least), ends.min())
            }
            // The values of one column are all of one kind.
            _ => Self::None,
        }
    }

    fn hull(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, values) | (values, Self::None) => values,
            (Self::Integers { low, high }, Self::Integers { low: least, high: greatest }) => {
                Self::integers(low.min(least), high.max(greatest))
            }
            (Self::Floats { low, high }, Self::Floats { low: least, high: greatest }) => {
                Self::floats(low.min(least), high.max(greatest))
            }
            (Self::Texts { low, high }, Self::Texts { low: least, high: greatest }) => {
                let high = high.zip(greatest).map(|(high, greatest)| high.max(greatest));
                Self::texts(low.min(least), high)
            }
            _ => Self::All,
        }
    }
}

/// The interval of a column that is necessary for a condition to have the truth value `wanted`.
pub(super) fn necessary(condition: &Condition, wanted: bool, column: &Column) -> Interval {
    match condition {
        Condition::Constant(value) if *value == Some(wanted) => Interval::EVERYTHING,
        Condition::Constant(_) => Interval::NOTHING,
        Condition::Leaf(leaf, criterion) if leaf.column == *column => match wanted {
            true => accepted(criterion),
            false => refused(criterion),
        },
        Condition::Leaf(..) | Condition::Computed(..) | Condition::Truths(..) => Interval::EVERYTHING,
        // A null operand makes the comparison unknown.
        Condition::Numbers(left, _, right) => match is_column(left, column) || is_column(right, column) {
            true => Interval::KNOWN,
            false => Interval::EVERYTHING,
        },
        Condition::Texts(left, _, right) => match is_about(left, column) || is_about(right, column) {
            true => Interval::KNOWN,
            false => Interval::EVERYTHING,
        },
        Condition::IsNull(Nullable::Leaf(leaf)) if is_about(leaf, column) => match wanted {
            true => Interval { values: Values::None, may_be_nan: false, may_be_null: true },
            false => Interval::KNOWN,
        },
        Condition::Near(near) => near.interval(column, wanted),
        Condition::IsNull(_) => Interval::EVERYTHING,
        Condition::Not(inner) => necessary(inner, !wanted, column),
        // A conjunction is true if all parts are, and false if one part is; a disjunction is the mirror
        // image.
        Condition::All(parts) if wanted => every(parts, wanted, column),
        Condition::Any(parts) if !wanted => every(parts, wanted, column),
        Condition::All(parts) | Condition::Any(parts) => some(parts, wanted, column),
    }
}

fn is_about(leaf: &Leaf, column: &Column) -> bool {
    leaf.column == *column
}

fn is_column(number: &Number, column: &Column) -> bool {
    matches!(number, Number::Column(leaf) if leaf.column == *column)
}

fn every(parts: &[Condition], wanted: bool, column: &Column) -> Interval {
    let intervals = parts.iter().map(|part| necessary(part, wanted, column));
    intervals.fold(Interval::EVERYTHING, Interval::intersection)
}

fn some(parts: &[Condition], wanted: bool, column: &Column) -> Interval {
    let intervals = parts.iter().map(|part| necessary(part, wanted, column));
    intervals.fold(Interval::NOTHING, Interval::hull)
}

/// The values that meet a criterion.
fn accepted(criterion: &Criterion) -> Interval {
    match criterion {
        Criterion::Never => Interval::NOTHING,
        Criterion::Integers { low, high } => Interval::of(Values::integers(*low, *high)),
        Criterion::Floats { low, high } => Interval::of(Values::floats(*low, *high)),
        Criterion::IntegerSet(set) => match (set.first(), set.last()) {
            (Some(low), Some(high)) => Interval::of(Values::integers(*low, *high)),
            _ => Interval::NOTHING,
        },
        Criterion::FloatSet(set) => match (set.first(), set.last()) {
            (Some(low), Some(high)) => Interval::of(Values::floats(*low, *high)),
            _ => Interval::NOTHING,
        },
        Criterion::Text(comparison, text) => Interval::of(texts(*comparison, text)),
        Criterion::TextSet(set) => match (set.first(), set.last()) {
            (Some(low), Some(high)) => Interval::of(Values::texts(Some(low.clone()), Some(high.clone()))),
            _ => Interval::NOTHING,
        },
        Criterion::IsNan => Interval { values: Values::None, may_be_nan: true, may_be_null: false },
        Criterion::IsTrue => Interval { may_be_nan: false, ..Interval::KNOWN },
    }
}

/// The values that fail a criterion. Null is not among them, as it makes the answer unknown.
fn refused(criterion: &Criterion) -> Interval {
    let values = match criterion {
        Criterion::Integers { low, high } => match (*low == i128::MIN, *high == i128::MAX) {
            (true, true) => Values::None,
            (true, false) => Values::integers(high.saturating_add(1), i128::MAX),
            (false, true) => Values::integers(i128::MIN, low.saturating_sub(1)),
            (false, false) => Values::All,
        },
        Criterion::Floats { low, high } => match (*low == f64::NEG_INFINITY, *high == f64::INFINITY) {
            (true, true) => Values::None,
            (true, false) => Values::floats(high.next_up(), f64::INFINITY),
            (false, true) => Values::floats(f64::NEG_INFINITY, low.next_down()),
            (false, false) => Values::All,
        },
        Criterion::Text(comparison, text) => texts(opposite(*comparison), text),
        Criterion::IsNan => return Interval { may_be_nan: false, ..Interval::KNOWN },
        _ => Values::All,
    };
    Interval { values, ..Interval::KNOWN }
}

/// The texts for which the comparison holds. Exclusive ends are treated as inclusive, which only widens the
/// interval.
fn texts(comparison: Comparison, text: &str) -> Values {
    let text = Some(text.to_owned());
    match comparison {
        Comparison::Equal => Values::texts(text.clone(), text),
        Comparison::NotEqual => Values::All,
        Comparison::Less | Comparison::LessOrEqual => Values::texts(None, text),
        Comparison::Greater | Comparison::GreaterOrEqual => Values::texts(text, None),
    }
}

fn opposite(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Less => Comparison::GreaterOrEqual,
        Comparison::GreaterOrEqual => Comparison::Less,
        Comparison::Greater => Comparison::LessOrEqual,
        Comparison::LessOrEqual => Comparison::Greater,
    }
}
