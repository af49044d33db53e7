//! Conditions bound to a schema: all names resolved, all types known, all comparisons with literals exact.

use super::bits::{bits, bits_of_floats, bits_of_integers, compared_texts};
use super::criterion::Criterion;
use super::leaf::Leaf;
use super::near::BoundNear;
use super::numbers::{Number, Numbers};
use super::truth::Truth;
use super::{Comparison, EvaluateError};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::NullBuffer;

/// A condition on a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    /// The same truth value for all rows.
    Constant(Option<bool>),
    /// A criterion on a stored value; unknown where the value is null.
    Leaf(Leaf, Criterion),
    /// A criterion on a computed number; unknown where the number is null.
    Computed(Number, Criterion),
    /// A comparison of two numbers that both depend on the row.
    Numbers(Number, Comparison, Number),
    /// A comparison of two columns of texts.
    Texts(Leaf, Comparison, Leaf),
    /// A comparison of two conditions; false is less than true.
    Truths(Box<Self>, Comparison, Box<Self>),
    /// Whether a row is near a point; unknown where a coordinate is null.
    Near(Box<BoundNear>),
    /// Whether a value is null; never unknown.
    IsNull(Nullable),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// A value that may be null.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Nullable {
    Leaf(Leaf),
    Number(Number),
    Condition(Box<Condition>),
}

impl Condition {
    /// A criterion on a number; tested on stored values if the number is a plain column.
    pub(super) fn about(number: Number, criterion: Criterion) -> Self {
        match number {
            Number::Column(leaf) => Self::Leaf(leaf, criterion),
            number => Self::Computed(number, criterion),
        }
    }

    /// The negated condition if `is_negated`, else the condition itself.
    pub(super) fn negated(self, is_negated: bool) -> Self {
        if is_negated { Self::Not(Box::new(self)) } else { self }
    }

    /// The truth of each row of a batch.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<Truth, EvaluateError> {
        match self {
            Self::Constant(value) => Ok(Truth::constant(*value, batch.num_rows())),
            Self::Leaf(leaf, criterion) => {
                let array = leaf.array(batch)?;
                let bits = bits(criterion, array.as_ref()).ok_or_else(|| leaf.wrong_type(array.as_ref()))?;
                Ok(Truth::new(bits, array.logical_nulls().as_ref()))
            }
            Self::Computed(number, criterion) => {
                let computed = number.evaluate(batch)?;
                let bits = match &computed.values {
                    Numbers::Integers(values) => bits_of_integers(criterion, values),
                    Numbers::Floats(values) => bits_of_floats(criterion, values),
                };
                Ok(Truth::new(bits, computed.nulls.as_ref()))
            }
            Self::Numbers(left, comparison, right) => {
                Ok(left.evaluate(batch)?.compared(*comparison, &right.evaluate(batch)?))
            }
            Self::Texts(left, comparison, right) => texts(left, *comparison, right, batch),
            Self::Truths(left, comparison, right) => {
                Ok(truths(&left.evaluate(batch)?, *comparison, &right.evaluate(batch)?))
            }
            Self::Near(near) => near.evaluate(batch),
            Self::IsNull(nullable) => nullable.evaluate(batch),
            Self::Not(condition) => Ok(condition.evaluate(batch)?.not()),
            Self::All(parts) => fold(parts, true, Truth::and, batch),
            Self::Any(parts) => fold(parts, false, Truth::or, batch),
        }
    }
}

fn fold(
    parts: &[Condition],
    start: bool,
    join: fn(&Truth, &Truth) -> Truth,
    batch: &RecordBatch,
) -> Result<Truth, EvaluateError> {
    let start = Truth::constant(Some(start), batch.num_rows());
    parts.iter().try_fold(start, |truth, part| Ok(join(&truth, &part.evaluate(batch)?)))
}

fn texts(
    left: &Leaf,
    comparison: Comparison,
    right: &Leaf,
    batch: &RecordBatch,
) -> Result<Truth, EvaluateError> {
    let (first, second) = (left.plain_array(batch)?, right.plain_array(batch)?);
    let bits = compared_texts(first.as_ref(), second.as_ref(), comparison);
    let bits = bits.ok_or_else(|| left.wrong_type(first.as_ref()))?;
    let nulls = NullBuffer::union(first.logical_nulls().as_ref(), second.logical_nulls().as_ref());
    Ok(Truth::new(bits, nulls.as_ref()))
}

fn truths(left: &Truth, comparison: Comparison, right: &Truth) -> Truth {
    match comparison {
        Comparison::Equal => left.equals(right),
        Comparison::NotEqual => left.equals(right).not(),
        Comparison::Less => left.is_less(right),
        Comparison::GreaterOrEqual => left.is_less(right).not(),
        Comparison::Greater => right.is_less(left),
        Comparison::LessOrEqual => right.is_less(left).not(),
    }
}

impl Nullable {
    fn evaluate(&self, batch: &RecordBatch) -> Result<Truth, EvaluateError> {
        let nulls = match self {
            Self::Leaf(leaf) => leaf.array(batch)?.logical_nulls(),
            Self::Number(number) => number.evaluate(batch)?.nulls,
            Self::Condition(condition) => Some(NullBuffer::new(condition.evaluate(batch)?.known())),
        };
        match nulls {
            None => Ok(Truth::constant(Some(false), batch.num_rows())),
            Some(nulls) => Ok(Truth::new(!nulls.inner(), None)),
        }
    }
}
