//! The sides of a box as users type them: `x=0:1, time=2.0:`.
//!
//! A range is half-open, `[low, high)`; an omitted end leaves it unbounded.
//!
//! Invariant: no range ends before it begins, and no column has two ranges.

use super::error::{ExpressionError, Kind, Problem};
use super::numbers::compare_exactly;
use super::parser::Parser;
use super::{Column, Comparison, Expression, Literal};
use std::cmp::Ordering;
use std::fmt;

/// The range of one column: `low <= column < high`.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The column, or the element of a vector column.
    pub column: Column,
    /// The inclusive low end; `None` if there is none.
    pub low: Option<Literal>,
    /// The exclusive high end; `None` if there is none.
    pub high: Option<Literal>,
}

impl Side {
    /// The range as a condition; `None` if both ends are open.
    #[must_use]
    pub fn condition(&self) -> Option<Expression> {
        let column = || Expression::Column(self.column.clone());
        let end = |comparison, end: &Option<Literal>| {
            end.clone().map(|end| column().compare(comparison, Expression::Literal(end)))
        };
        match (end(Comparison::GreaterOrEqual, &self.low), end(Comparison::Less, &self.high)) {
            (Some(low), Some(high)) => Some(low.and(high)),
            (low, high) => low.or(high),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |end: &Option<Literal>| end.as_ref().map(Literal::to_string).unwrap_or_default();
        write!(f, "{}={}:{}", self.column, show(&self.low), show(&self.high))
    }
}

/// Parses the sides of a box, separated by commas.
///
/// # Errors
/// `limit` for a text longer than [`super::LENGTH_MAX`]; `invalid-input` for a text of another form, for a
/// column named twice, for a range whose ends are reversed, and for an end that is null, NaN, true or false.
pub fn parse_box(text: &str) -> Result<Vec<Side>, ExpressionError> {
    let mut parser = Parser::new(text)?;
    let mut sides: Vec<Side> = Vec::new();
    let mut columns = std::collections::HashSet::new();
    loop {
        let start = parser.span().start;
        let side = side(&mut parser)?;
        if !columns.insert(side.column.clone()) {
            let column = side.column.to_string();
            return Err(parser.fail(Problem::Twice { column }, start..parser.span().start));
        }
        sides.push(side);
        if parser.is_end() {
            return Ok(sides);
        }
        parser.expect_symbol(",", "`,` or the end")?;
    }
}

fn side(parser: &mut Parser<'_>) -> Result<Side, ExpressionError> {
    let column = parser.column()?;
    parser.expect_symbol("=", "`=` and a range such as 0:1")?;
    let start = parser.span().start;
    let low = if parser.is_symbol(":") { None } else { Some(end(parser)?) };
    parser.expect_symbol(":", "`:` and the end of the range, which may be left out")?;
    let is_open = parser.is_end() || parser.is_symbol(",");
    let high = if is_open { None } else { Some(end(parser)?) };
    if let (Some(low), Some(high)) = (&low, &high) {
        let span = start..parser.span().start;
        match order(low, high) {
            None => {
                let problem = Problem::Mismatch { left: kind(low), right: kind(high) };
                return Err(parser.fail(problem, span));
            }
            Some(Ordering::Greater) => {
                let problem = Problem::InsideOut { low: low.to_string(), high: high.to_string() };
                return Err(parser.fail(problem, span));
            }
            Some(_) => {}
        }
    }
    Ok(Side { column, low, high })
}

/// One end of a range.
fn end(parser: &mut Parser<'_>) -> Result<Literal, ExpressionError> {
    let span = parser.span();
    let literal = parser.literal()?;
    let has_order = match &literal {
        Literal::Null | Literal::Boolean(_) => false,
        Literal::Float(value) => !value.is_nan(),
        Literal::Integer(_) | Literal::Text(_) | Literal::Timestamp(_) => true,
    };
    let problem = || Problem::NoLimit { literal: literal.to_string() };
    if has_order { Ok(literal) } else { Err(parser.fail(problem(), span)) }
}

/// The order of two ends; `None` if they are of different kinds.
fn order(low: &Literal, high: &Literal) -> Option<Ordering> {
    match (low, high) {
        (Literal::Integer(low), Literal::Integer(high)) => Some(low.cmp(high)),
        (Literal::Float(low), Literal::Float(high)) => low.partial_cmp(high),
        (Literal::Integer(low), Literal::Float(high)) => compare_exactly(*low, *high),
        (Literal::Float(low), Literal::Integer(high)) => compare_exactly(*high, *low).map(Ordering::reverse),
        (Literal::Text(low), Literal::Text(high)) => Some(low.cmp(high)),
        (Literal::Timestamp(low), Literal::Timestamp(high)) => Some(low.cmp(high)),
        _ => None,
    }
}

/// The kind of a literal.
pub(super) fn kind(literal: &Literal) -> Kind {
    match literal {
        Literal::Null => Kind::Null,
        Literal::Boolean(_) => Kind::Condition,
        Literal::Integer(_) => Kind::Integer,
        Literal::Float(_) => Kind::Float,
        Literal::Text(_) => Kind::Text,
        Literal::Timestamp(_) => Kind::Timestamp,
    }
}
