//! Display of expressions, with the fewest parentheses that preserve their meaning.
//!
//! Invariant: the displayed text is parsed back as an equal expression.

use super::{Arithmetic, Expression, Literal};
use std::fmt::{self, Write};
use std::ops::Range;

/// How tightly a form binds, from loosest to tightest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Power {
    Or,
    And,
    Not,
    Comparison,
    Sum,
    Product,
    Sign,
    Primary,
}

/// The displayed expression, and the bytes in it that show `part`; all bytes if `part` is not a part of it.
pub(super) fn locate(expression: &Expression, part: &Expression) -> (String, Range<usize>) {
    let mut writer = Writer { text: String::new(), part: Some(part), span: None };
    // Writing to a text cannot fail.
    let _ = writer.expression(expression, Power::Or);
    let span = writer.span.unwrap_or(0..writer.text.len());
    (writer.text, span)
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer { text: String::new(), part: None, span: None };
        writer.expression(self, Power::Or)?;
        f.write_str(&writer.text)
    }
}

struct Writer<'a> {
    text: String,
    /// The part that is being located.
    part: Option<&'a Expression>,
    /// The bytes of that part, once it has been written.
    span: Option<Range<usize>>,
}

impl Writer<'_> {
    /// Writes an expression, in parentheses if it binds more loosely than `least`.
    fn expression(&mut self, expression: &Expression, least: Power) -> fmt::Result {
        let is_inside = power(expression) < least;
        self.text.push_str(if is_inside { "(" } else { "" });
        let start = self.text.len();
        self.bare(expression)?;
        if self.part.is_some_and(|part| std::ptr::eq(part, expression)) {
            self.span = Some(start..self.text.len());
        }
        self.text.push_str(if is_inside { ")" } else { "" });
        Ok(())
    }

    fn bare(&mut self, expression: &Expression) -> fmt::Result {
        match expression {
            Expression::Literal(literal) => write!(self.text, "{literal}"),
            // A located place should show what the user typed.
            Expression::Column(column) if self.part.is_some() => column.write_typed(&mut self.text),
            Expression::Column(column) => write!(self.text, "{column}"),
            Expression::Negate(value) => self.negate(value),
            Expression::Arithmetic(left, operator, right) => {
                let least = arithmetic_power(*operator);
                self.expression(left, least)?;
                write!(self.text, " {} ", operator.symbol())?;
                // A chain groups to the left, so a chain of the same kind on its right needs parentheses.
                self.expression(right, if least == Power::Sum { Power::Product } else { Power::Sign })
            }
            Expression::Call(function, value) => {
                write!(self.text, "{}(", function.name())?;
                self.expression(value, Power::Or)?;
                self.text.write_str(")")
            }
            Expression::Compare(left, comparison, right) => {
                self.expression(left, Power::Sum)?;
                write!(self.text, " {} ", comparison.symbol())?;
                self.expression(right, Power::Sum)
            }
            Expression::Between { value, low, high, is_negated } => {
                self.expression(value, Power::Sum)?;
                self.text.push_str(if *is_negated { " not between " } else { " between " });
                self.expression(low, Power::Sum)?;
                self.text.push_str(" and ");
                self.expression(high, Power::Sum)
            }
            Expression::In { value, list, is_negated } => {
                self.expression(value, Power::Sum)?;
                self.text.push_str(if *is_negated { " not in " } else { " in " });
                self.list(list)
            }
            Expression::IsNull { value, is_negated } => self.is(value, *is_negated, "null"),
            Expression::IsNan { value, is_negated } => self.is(value, *is_negated, "nan"),
            Expression::Near(near) => write!(self.text, "{near}"),
            Expression::Not(value) => {
                self.text.push_str("not ");
                self.expression(value, Power::Not)
            }
            Expression::And(parts) => self.chain(parts, " and ", Power::Not),
            Expression::Or(parts) => self.chain(parts, " or ", Power::And),
        }
    }

    fn negate(&mut self, value: &Expression) -> fmt::Result {
        self.text.push('-');
        // A minus and a number form one literal, so a negated number needs parentheses to stay negated.
        let is_number = matches!(value, Expression::Literal(Literal::Integer(_) | Literal::Float(_)));
        self.text.push_str(if is_number { "(" } else { "" });
        self.expression(value, Power::Primary)?;
        self.text.push_str(if is_number { ")" } else { "" });
        Ok(())
    }

    fn list(&mut self, list: &[Literal]) -> fmt::Result {
        self.text.push('(');
        for (at, literal) in list.iter().enumerate() {
            write!(self.text, "{}{literal}", if at == 0 { "" } else { ", " })?;
        }
        self.text.push(')');
        Ok(())
    }

    fn is(&mut self, value: &Expression, is_negated: bool, what: &str) -> fmt::Result {
        self.expression(value, Power::Sum)?;
        write!(self.text, " is {}{what}", if is_negated { "not " } else { "" })
    }

    fn chain(&mut self, parts: &[Expression], between: &str, least: Power) -> fmt::Result {
        for (at, part) in parts.iter().enumerate() {
            self.text.push_str(if at == 0 { "" } else { between });
            self.expression(part, least)?;
        }
        Ok(())
    }
}

fn power(expression: &Expression) -> Power {
    match expression {
        Expression::Or(_) => Power::Or,
        Expression::And(_) => Power::And,
        Expression::Not(_) => Power::Not,
        Expression::Compare(..)
        | Expression::Between { .. }
        | Expression::In { .. }
        | Expression::IsNull { .. }
        | Expression::IsNan { .. } => Power::Comparison,
        Expression::Arithmetic(_, operator, _) => arithmetic_power(*operator),
        Expression::Negate(_) => Power::Sign,
        Expression::Literal(_) | Expression::Column(_) | Expression::Call(..) | Expression::Near(_) => {
            Power::Primary
        }
    }
}

fn arithmetic_power(operator: Arithmetic) -> Power {
    match operator {
        Arithmetic::Add | Arithmetic::Subtract => Power::Sum,
        Arithmetic::Multiply | Arithmetic::Divide | Arithmetic::Modulo => Power::Product,
    }
}
