//! The expression grammar that the command line and Python share: `type = 2 and vz > 0.5`.
//!
//! [`Expression::parse`] reads a text, [`Expression::bind`] types it against a schema, and
//! [`Bound::evaluate`] computes for each row of a batch whether the condition is true, false or unknown. To
//! leave out whole blocks, [`Bound::ranges`] gives the range in which a column's values must lie for the
//! condition to be true, and [`Bound::verdict`] judges a box of rows. [`parse_box`] reads the sides of a box,
//! `x=0:1, time=2.0:`.
//!
//! A null operand gives null, except in `is null`, `and` and `or` (SQL's three-valued logic). NaN compares as
//! IEEE 754 says: it differs from everything, itself included, and is neither less nor greater than anything.
//! An integer is compared exactly with any other number.
//!
//! Invariant: `parse(display(e)) == e` for every expression that nests at most [`DEPTH_MAX`] deep.
//! Invariant: whatever the text, neither the parser nor what it returns recurses deeper than [`DEPTH_MAX`].
//! Invariant: a row that satisfies a condition lies within every one of its ranges.

mod bind;
mod bits;
mod boxes;
mod condition;
mod criterion;
mod error;
pub mod fuzz;
mod instant;
mod interval;
mod leaf;
mod literal;
mod near;
mod numbers;
mod parser;
mod points;
mod show;
#[cfg(test)]
mod tests;
mod token;
mod truth;
mod verdict;

pub use bind::Bound;
pub use boxes::{Side, parse_box};
pub use error::{EvaluateError, ExpressionError, Kind, Problem};
pub use interval::{Interval, Values};
pub use literal::{Arithmetic, Column, Comparison, Function, Literal};
pub use near::{Cell, Near};
pub(crate) use points::POINTS_MAX;
pub(crate) use verdict::Judge;
pub use verdict::Verdict;

/// The most bytes of a text: 1 MiB, enough for a list of a hundred thousand ids.
pub const LENGTH_MAX: usize = 1 << 20;

/// How deep an expression may nest. A chain of `and` or of `or` counts once, however long it is.
pub const DEPTH_MAX: usize = 64;

/// A condition or a value computed from the columns of a row.
///
/// Two expressions are equal if they have the same structure; NaN equals NaN.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A constant.
    Literal(Literal),
    /// A column, or an element of a vector column.
    Column(Column),
    /// `-value`.
    Negate(Box<Self>),
    /// `left + right` and the like.
    Arithmetic(Box<Self>, Arithmetic, Box<Self>),
    /// `abs(value)` and the like.
    Call(Function, Box<Self>),
    /// `left < right` and the like.
    Compare(Box<Self>, Comparison, Box<Self>),
    /// `value between low and high`, both ends included, as in SQL.
    Between {
        /// The value that is compared.
        value: Box<Self>,
        /// The least value within the range.
        low: Box<Self>,
        /// The greatest value within the range.
        high: Box<Self>,
        /// Whether it is `not between`.
        is_negated: bool,
    },
    /// `value in (1, 2, 3)`.
    In {
        /// The value that is looked for.
        value: Box<Self>,
        /// The list, of at least one literal.
        list: Vec<Literal>,
        /// Whether it is `not in`.
        is_negated: bool,
    },
    /// `value is null`, never null itself.
    IsNull {
        /// The value that is tested.
        value: Box<Self>,
        /// Whether it is `is not null`.
        is_negated: bool,
    },
    /// `value is nan`; null if the value is null.
    IsNan {
        /// The value that is tested.
        value: Box<Self>,
        /// Whether it is `is not nan`.
        is_negated: bool,
    },
    /// `near((x, y, z), (1.0, 2.0, 3.0), 0.5)`; null if a coordinate is null.
    Near(Box<Near>),
    /// `not condition`.
    Not(Box<Self>),
    /// `a and b and c`: two conditions or more.
    And(Vec<Self>),
    /// `a or b or c`: two conditions or more.
    Or(Vec<Self>),
}

impl Expression {
    /// Parses a text.
    ///
    /// # Errors
    /// `limit` for a text longer than [`LENGTH_MAX`] or nested deeper than [`DEPTH_MAX`], `invalid-input` for
    /// a text that does not follow the grammar; the error knows which bytes it is about.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        parser::parse(text)
    }

    /// Parses a text from [`Expression::stored`], or from an earlier release, which had no limit of length.
    pub(crate) fn parse_stored(text: &str) -> Result<Self, ExpressionError> {
        parser::parse_any_length(text)
    }

    /// The displayed text, to be stored. Refuses a text that is too long to be parsed again.
    pub(crate) fn stored(&self) -> Result<String, ExpressionError> {
        let text = self.to_string();
        if text.len() > LENGTH_MAX {
            return Err(ExpressionError::new(Problem::TooLong { bytes: text.len() }, "", 0..0));
        }
        Ok(text)
    }

    /// The value of a whole column.
    #[must_use]
    pub fn column(name: impl Into<String>) -> Self {
        Self::Column(Column::named(name))
    }

    /// `self < other` and the like.
    #[must_use]
    pub fn compare(self, comparison: Comparison, other: impl Into<Self>) -> Self {
        Self::Compare(Box::new(self), comparison, Box::new(other.into()))
    }

    /// `self and other`; chains stay flat, so that thousands of conditions can be combined.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::And(mut parts) => {
                parts.push(other);
                Self::And(parts)
            }
            first => Self::And(vec![first, other]),
        }
    }

    /// `self or other`; chains stay flat, so that thousands of conditions can be combined.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Or(mut parts) => {
                parts.push(other);
                Self::Or(parts)
            }
            first => Self::Or(vec![first, other]),
        }
    }

    /// The direct parts of this expression.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Literal(_) | Self::Column(_) | Self::Near(_) => Vec::new(),
            Self::Negate(value)
            | Self::Call(_, value)
            | Self::In { value, .. }
            | Self::IsNull { value, .. }
            | Self::IsNan { value, .. }
            | Self::Not(value) => vec![&**value],
            Self::Arithmetic(left, _, right) | Self::Compare(left, _, right) => vec![&**left, &**right],
            Self::Between { value, low, high, .. } => vec![&**value, &**low, &**high],
            Self::And(parts) | Self::Or(parts) => parts.iter().collect(),
        }
    }

    /// Whether it nests at most [`DEPTH_MAX`] deep, which an expression built in code may not.
    pub(crate) fn is_shallow(&self) -> bool {
        // Iterative, since this check protects everything recursive from running out of stack.
        let mut rest = vec![(self, 1)];
        while let Some((expression, depth)) = rest.pop() {
            if depth > DEPTH_MAX {
                return false;
            }
            rest.extend(expression.children().into_iter().map(|child| (child, depth + 1)));
        }
        true
    }
}

impl std::ops::Not for Expression {
    type Output = Self;

    fn not(self) -> Self {
        Self::Not(Box::new(self))
    }
}

impl<T: Into<Literal>> From<T> for Expression {
    fn from(literal: T) -> Self {
        Self::Literal(literal.into())
    }
}

impl std::str::FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}
