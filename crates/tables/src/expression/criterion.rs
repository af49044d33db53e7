//! Criteria: tests of one stored value, worked out exactly before any value is seen.
//!
//! A comparison of integers with a literal becomes a range of integers, both ends included, whatever the
//! literal: `n < 2.5` is `n <= 2`, and `x < 9007199254740993` on doubles is `x <= 9007199254740992`. The
//! loops over the values then neither convert nor round, and the same ranges serve to leave out whole blocks.
//!
//! Invariant: no criterion accepts a null, and only [`Criterion::IsNan`] accepts a NaN.

use super::Comparison;
use super::numbers::compare_exactly;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// A test of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Criterion {
    /// Met by no value.
    Never,
    /// An integer in a range, both ends included.
    Integers { low: i128, high: i128 },
    /// A float in a range, both ends included.
    Floats { low: f64, high: f64 },
    /// One of these integers, in ascending order.
    IntegerSet(Vec<i128>),
    /// One of these floats, in ascending order, none of them NaN.
    FloatSet(Vec<f64>),
    /// A text for which the comparison with this text holds; texts are ordered by their UTF-8 bytes.
    Text(Comparison, String),
    /// One of these texts.
    TextSet(BTreeSet<String>),
    /// A float that is NaN.
    IsNan,
    /// A true boolean.
    IsTrue,
}

/// A number in an expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    Integer(i128),
    Float(f64),
}

/// The representation of stored values; a criterion is made for one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Integers that count units of `scale`: 1, or the nanoseconds of a timestamp's unit.
    Integers { scale: i128 },
    /// Floats, each exactly a double.
    Floats,
}

impl Criterion {
    /// The criterion that a stored value compares so with a number. `NotEqual` is expressed by negating
    /// `Equal`.
    pub(super) fn compared(stored: Stored, comparison: Comparison, scalar: Scalar) -> Self {
        match stored {
            Stored::Integers { scale } => {
                match integers_around(scalar, scale).range(comparison, i128::MIN, i128::MAX) {
                    Some((low, high)) => Self::Integers { low, high },
                    None => Self::Never,
                }
            }
            Stored::Floats => match floats_around(scalar).range(comparison, f64::NEG_INFINITY, f64::INFINITY)
            {
                Some((low, high)) => Self::Floats { low, high },
                None => Self::Never,
            },
        }
    }

    /// The criterion that a stored value equals one of some numbers.
    pub(super) fn one_of(stored: Stored, scalars: &[Scalar]) -> Self {
        match stored {
            Stored::Integers { scale } => {
                let mut set: Vec<_> =
                    scalars.iter().filter_map(|scalar| integers_around(*scalar, scale).equal).collect();
                set.sort_unstable();
                set.dedup();
                Self::IntegerSet(set)
            }
            Stored::Floats => {
                let mut set: Vec<_> =
                    scalars.iter().filter_map(|scalar| floats_around(*scalar).equal).collect();
                set.sort_unstable_by(f64::total_cmp);
                set.dedup();
                Self::FloatSet(set)
            }
        }
    }
}

/// The stored values around a number, which all comparisons with it reduce to.
struct Around<T> {
    below: Option<T>,
    at_most: Option<T>,
    equal: Option<T>,
    at_least: Option<T>,
    above: Option<T>,
}

impl<T: Copy> Around<T> {
    const NOWHERE: Self = Self { below: None, at_most: None, equal: None, at_least: None, above: None };

    /// The values for which the comparison holds, both ends included; `None` if there are none.
    fn range(&self, comparison: Comparison, least: T, greatest: T) -> Option<(T, T)> {
        match comparison {
            Comparison::Equal => self.equal.map(|equal| (equal, equal)),
            // Not a single range; callers negate `Equal` instead.
            Comparison::NotEqual => Some((least, greatest)),
            Comparison::Less => self.below.map(|below| (least, below)),
            Comparison::LessOrEqual => self.at_most.map(|at_most| (least, at_most)),
            Comparison::Greater => self.above.map(|above| (above, greatest)),
            Comparison::GreaterOrEqual => self.at_least.map(|at_least| (at_least, greatest)),
        }
    }
}

/// The integers `n` for which `n * scale` is next to a number.
fn integers_around(scalar: Scalar, scale: i128) -> Around<i128> {
    let (floor, is_exact) = match scalar {
        Scalar::Integer(value) => (value.div_euclid(scale), value.rem_euclid(scale) == 0),
        Scalar::Float(value) if value.is_nan() => return Around::NOWHERE,
        Scalar::Float(value) => {
            // Only plain integers are compared with floats, and a float beyond 128 bits is beyond all of
            // them.
            if compare_exactly(i128::MAX, value) == Some(Ordering::Less) {
                let all = Some(i128::MAX);
                return Around { below: all, at_most: all, ..Around::NOWHERE };
            }
            if compare_exactly(i128::MIN, value) == Some(Ordering::Greater) {
                let all = Some(i128::MIN);
                return Around { at_least: all, above: all, ..Around::NOWHERE };
            }
            (value.floor() as i128, value.floor() == value)
        }
    };
    let (at_most, next) = (Some(floor), floor.checked_add(1));
    match is_exact {
        true => {
            Around { below: floor.checked_sub(1), at_most, equal: at_most, at_least: at_most, above: next }
        }
        false => Around { below: at_most, at_most, equal: None, at_least: next, above: next },
    }
}

/// The doubles around a number.
fn floats_around(scalar: Scalar) -> Around<f64> {
    let (nearest, order) = match scalar {
        Scalar::Float(value) if value.is_nan() => return Around::NOWHERE,
        Scalar::Float(value) => (value, Ordering::Equal),
        Scalar::Integer(value) => {
            let nearest = value as f64;
            (nearest, compare_exactly(value, nearest).unwrap_or(Ordering::Equal))
        }
    };
    let less = Some(nearest.next_down()).filter(|less| *less < nearest);
    let greater = Some(nearest.next_up()).filter(|greater| *greater > nearest);
    let nearest = Some(nearest);
    match order {
        Ordering::Equal => {
            Around { below: less, at_most: nearest, equal: nearest, at_least: nearest, above: greater }
        }
        // The number lies between two doubles.
        Ordering::Less => {
            Around { below: less, at_most: less, equal: None, at_least: nearest, above: nearest }
        }
        Ordering::Greater => {
            Around { below: nearest, at_most: nearest, equal: None, at_least: greater, above: greater }
        }
    }
}
