//! Numbers computed for all rows of a batch.
//!
//! Integers are computed exactly in 128 bits. A result that overflows is null, and so is an integer modulo 0:
//! an error would depend on which rows happen to be evaluated. Floats are doubles and follow IEEE 754.
//!
//! Invariant: if an input is null, so is the result.

use super::bits::{wide_floats, wide_integers};
use super::criterion::{Scalar, Stored};
use super::leaf::{Leaf, Shape};
use super::truth::Truth;
use super::{Arithmetic, Comparison, EvaluateError, Function};
use arrow_array::RecordBatch;
use arrow_buffer::{BooleanBuffer, NullBuffer};
use std::cmp::Ordering;

/// How a number is computed. Instants are numbers too: nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
    Column(Leaf),
    Negate(Box<Self>),
    Arithmetic(Box<Self>, Arithmetic, Box<Self>),
    Call(Function, Box<Self>),
}

impl Number {
    /// The value of a number that does not depend on the row.
    pub(super) fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Integer(value) => Some(Scalar::Integer(*value)),
            Self::Float(value) => Some(Scalar::Float(*value)),
            _ => None,
        }
    }

    /// The representation for which a criterion on this number is made.
    pub(super) fn stored(&self) -> Stored {
        match self {
            Self::Column(Leaf { shape: Shape::Instant { scale }, .. }) => Stored::Integers { scale: *scale },
            _ if self.is_float() => Stored::Floats,
            _ => Stored::Integers { scale: 1 },
        }
    }

    pub(super) fn is_float(&self) -> bool {
        match self {
            Self::Integer(_) => false,
            Self::Float(_) => true,
            Self::Column(leaf) => leaf.shape == Shape::Float,
            Self::Negate(value) => value.is_float(),
            Self::Arithmetic(_, Arithmetic::Divide, _) | Self::Call(Function::Sqrt, _) => true,
            Self::Arithmetic(left, _, right) => left.is_float() || right.is_float(),
            Self::Call(_, value) => value.is_float(),
        }
    }

    /// The values for the rows of a batch.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<Computed, EvaluateError> {
        let rows = batch.num_rows();
        match self {
            Self::Integer(value) => {
                Ok(Computed { values: Numbers::Integers(vec![*value; rows]), nulls: None })
            }
            Self::Float(value) => Ok(Computed { values: Numbers::Floats(vec![*value; rows]), nulls: None }),
            Self::Column(leaf) => column(leaf, batch),
            Self::Negate(value) => Ok(value.evaluate(batch)?.map(i128::checked_neg, |float| -float)),
            Self::Arithmetic(left, operator, right) => {
                Ok(left.evaluate(batch)?.with(*operator, right.evaluate(batch)?))
            }
            Self::Call(function, value) => Ok(value.evaluate(batch)?.call(*function)),
        }
    }
}

fn column(leaf: &Leaf, batch: &RecordBatch) -> Result<Computed, EvaluateError> {
    let array = leaf.plain_array(batch)?;
    let values = match leaf.shape {
        Shape::Float => wide_floats(array.as_ref()).map(Numbers::Floats),
        Shape::Instant { scale } => wide_integers(array.as_ref(), scale).map(Numbers::Integers),
        _ => wide_integers(array.as_ref(), 1).map(Numbers::Integers),
    };
    let values = values.ok_or_else(|| leaf.wrong_type(array.as_ref()))?;
    Ok(Computed { values, nulls: array.logical_nulls() })
}

/// A number for each row.
pub(super) enum Numbers {
    Integers(Vec<i128>),
    Floats(Vec<f64>),
}

impl Numbers {
    pub(super) fn into_floats(self) -> Vec<f64> {
        match self {
            Self::Integers(values) => values.into_iter().map(|value| value as f64).collect(),
            Self::Floats(values) => values,
        }
    }
}

/// Numbers, and where they are null.
pub(super) struct Computed {
    pub(super) values: Numbers,
    pub(super) nulls: Option<NullBuffer>,
}

impl Computed {
    /// Applies a function to each number; an integer without a result becomes null.
    fn map(self, integer: impl Fn(i128) -> Option<i128>, float: impl Fn(f64) -> f64) -> Self {
        match self.values {
            Numbers::Integers(values) => Self::of_integers(values.into_iter().map(integer), self.nulls),
            Numbers::Floats(values) => {
                Self { values: Numbers::Floats(values.into_iter().map(float).collect()), nulls: self.nulls }
            }
        }
    }

    fn of_integers(results: impl Iterator<Item = Option<i128>>, nulls: Option<NullBuffer>) -> Self {
        let results: Vec<_> = results.collect();
        let lost = results.iter().any(Option::is_none);
        let kept = lost.then(|| NullBuffer::new(results.iter().map(Option::is_some).collect()));
        let values = results.into_iter().map(Option::unwrap_or_default).collect();
        Self { values: Numbers::Integers(values), nulls: NullBuffer::union(nulls.as_ref(), kept.as_ref()) }
    }

    fn with(self, operator: Arithmetic, other: Self) -> Self {
        let nulls = NullBuffer::union(self.nulls.as_ref(), other.nulls.as_ref());
        match (self.values, other.values) {
            (Numbers::Integers(left), Numbers::Integers(right)) if operator != Arithmetic::Divide => {
                let pairs = left.into_iter().zip(right);
                Self::of_integers(pairs.map(|(left, right)| integer_result(left, operator, right)), nulls)
            }
            (left, right) => {
                let (left, right) = (left.into_floats(), right.into_floats());
                Self { values: Numbers::Floats(float_results(left, operator, &right)), nulls }
            }
        }
    }

    fn call(self, function: Function) -> Self {
        match function {
            Function::Abs => self.map(i128::checked_abs, f64::abs),
            Function::Floor => self.map(Some, f64::floor),
            Function::Ceil => self.map(Some, f64::ceil),
            Function::Sqrt => {
                let roots = self.values.into_floats().into_iter().map(f64::sqrt).collect();
                Self { values: Numbers::Floats(roots), nulls: self.nulls }
            }
        }
    }

    /// Compares the numbers of two operands row by row.
    pub(super) fn compared(&self, comparison: Comparison, other: &Self) -> Truth {
        let bits = match (&self.values, &other.values) {
            (Numbers::Integers(left), Numbers::Integers(right)) => {
                pairs(left, right, |left, right| comparison.holds(Some(left.cmp(&right))))
            }
            (Numbers::Floats(left), Numbers::Floats(right)) => {
                pairs(left, right, |left, right| comparison.holds(left.partial_cmp(&right)))
            }
            (Numbers::Integers(left), Numbers::Floats(right)) => {
                pairs(left, right, |left, right| comparison.holds(compare_exactly(left, right)))
            }
            (Numbers::Floats(left), Numbers::Integers(right)) => {
                let comparison = comparison.flipped();
                pairs(left, right, |left, right| comparison.holds(compare_exactly(right, left)))
            }
        };
        Truth::new(bits, NullBuffer::union(self.nulls.as_ref(), other.nulls.as_ref()).as_ref())
    }
}

fn pairs<L: Copy, R: Copy>(left: &[L], right: &[R], test: impl Fn(L, R) -> bool) -> BooleanBuffer {
    left.iter().zip(right).map(|(left, right)| test(*left, *right)).collect()
}

/// The result for two integers; `None` if it is undefined or exceeds 128 bits.
fn integer_result(left: i128, operator: Arithmetic, right: i128) -> Option<i128> {
    match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        // A quotient is a float; the operands have been converted before.
        Arithmetic::Divide => None,
        Arithmetic::Modulo => {
            let rest = left.checked_rem(right)?;
            // The remainder has the sign of the divisor, as in Python and NumPy, so that a coordinate wraps
            // into its box.
            Some(if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest })
        }
    }
}

fn float_results(left: Vec<f64>, operator: Arithmetic, right: &[f64]) -> Vec<f64> {
    fn each(mut left: Vec<f64>, right: &[f64], compute: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        left.iter_mut().zip(right).for_each(|(left, right)| *left = compute(*left, *right));
        left
    }
    match operator {
        Arithmetic::Add => each(left, right, |left, right| left + right),
        Arithmetic::Subtract => each(left, right, |left, right| left - right),
        Arithmetic::Multiply => each(left, right, |left, right| left * right),
        Arithmetic::Divide => each(left, right, |left, right| left / right),
        Arithmetic::Modulo => each(left, right, |left, right| {
            let rest = left % right;
            if rest != 0.0 && (rest < 0.0) != (right < 0.0) { rest + right } else { rest }
        }),
    }
}

/// Compares an integer with a double exactly; `None` for NaN.
pub(super) fn compare_exactly(integer: i128, float: f64) -> Option<Ordering> {
    // 2^127, the least double beyond 128 bits.
    const BEYOND: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND {
        return Some(Ordering::Less);
    }
    if float < -BEYOND {
        return Some(Ordering::Greater);
    }
    // Within 128 bits the integral part of a double converts to an integer exactly.
    let whole = float.trunc();
    Some(integer.cmp(&(whole as i128)).then_with(|| match float.partial_cmp(&whole) {
        Some(Ordering::Greater) => Ordering::Less,
        Some(Ordering::Less) => Ordering::Greater,
        _ => Ordering::Equal,
    }))
}
