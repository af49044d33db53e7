//! A slow interpreter of single rows, written only to be obviously right.

use super::super::{Arithmetic, Comparison, Expression, Function, Literal};
use super::rows::{Cell, Row};
use std::cmp::Ordering;

/// The value of an expression for a row.
pub(super) fn value(expression: &Expression, row: &Row) -> Cell {
    match expression {
        Expression::Near(_) => panic!("nearness has an oracle of its own"),
        Expression::Literal(literal) => of_literal(literal),
        Expression::Column(column) => row[column].clone(),
        Expression::Negate(inner) => match value(inner, row) {
            Cell::Integer(number) => whole(number.checked_neg()),
            Cell::Float(number) => Cell::Float(-number),
            _ => Cell::Null,
        },
        Expression::Arithmetic(left, operator, right) => {
            computed(value(left, row), *operator, value(right, row))
        }
        Expression::Call(function, inner) => called(*function, value(inner, row)),
        Expression::Compare(left, comparison, right) => {
            truth(compared(&value(left, row), *comparison, &value(right, row)))
        }
        Expression::Between { value: inner, low, high, is_negated } => {
            let inner = value(inner, row);
            let above = compared(&inner, Comparison::GreaterOrEqual, &value(low, row));
            let below = compared(&inner, Comparison::LessOrEqual, &value(high, row));
            truth(turned(both(above, below), *is_negated))
        }
        Expression::In { value: inner, list, is_negated } => {
            let inner = value(inner, row);
            let answers =
                list.iter().map(|literal| compared(&inner, Comparison::Equal, &of_literal(literal)));
            truth(turned(answers.fold(Some(false), either), *is_negated))
        }
        Expression::IsNull { value: inner, is_negated } => {
            Cell::Truth((value(inner, row) == Cell::Null) != *is_negated)
        }
        Expression::IsNan { value: inner, is_negated } => match value(inner, row) {
            Cell::Float(number) => Cell::Truth(number.is_nan() != *is_negated),
            _ => Cell::Null,
        },
        Expression::Not(inner) => truth(turned(condition(inner, row), true)),
        Expression::And(parts) => truth(parts.iter().map(|part| condition(part, row)).fold(Some(true), both)),
        Expression::Or(parts) => {
            truth(parts.iter().map(|part| condition(part, row)).fold(Some(false), either))
        }
    }
}

/// Whether a condition holds for a row; `None` if that is unknown.
pub(super) fn condition(expression: &Expression, row: &Row) -> Option<bool> {
    match value(expression, row) {
        Cell::Truth(answer) => Some(answer),
        Cell::Null => None,
        other => panic!("{expression} is {other:?}"),
    }
}

fn of_literal(literal: &Literal) -> Cell {
    match literal {
        Literal::Null => Cell::Null,
        Literal::Boolean(answer) => Cell::Truth(*answer),
        Literal::Integer(number) => Cell::Integer(*number),
        Literal::Float(number) => Cell::Float(*number),
        Literal::Text(text) => Cell::Text(text.clone()),
        Literal::Timestamp(instant) => Cell::Instant(*instant),
    }
}

fn truth(answer: Option<bool>) -> Cell {
    answer.map_or(Cell::Null, Cell::Truth)
}

fn whole(number: Option<i128>) -> Cell {
    number.map_or(Cell::Null, Cell::Integer)
}

fn turned(answer: Option<bool>, is_negated: bool) -> Option<bool> {
    answer.map(|answer| answer != is_negated)
}

fn both(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn either(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn computed(left: Cell, operator: Arithmetic, right: Cell) -> Cell {
    match (left, right) {
        (Cell::Null, _) | (_, Cell::Null) => Cell::Null,
        (Cell::Integer(left), Cell::Integer(right)) => match operator {
            Arithmetic::Add => whole(left.checked_add(right)),
            Arithmetic::Subtract => whole(left.checked_sub(right)),
            Arithmetic::Multiply => whole(left.checked_mul(right)),
            Arithmetic::Divide => Cell::Float(left as f64 / right as f64),
            Arithmetic::Modulo if right == 0 => Cell::Null,
            // Python: left - right * floor(left / right).
            Arithmetic::Modulo => {
                let rest = left.unsigned_abs() % right.unsigned_abs();
                let rest = rest as i128;
                let distance = right.unsigned_abs() as i128 - rest;
                Cell::Integer(match (left < 0, right < 0) {
                    _ if rest == 0 => 0,
                    (false, false) => rest,
                    (true, true) => -rest,
                    (true, false) => distance,
                    (false, true) => -distance,
                })
            }
        },
        (left, right) => {
            let (left, right) = (float(&left), float(&right));
            Cell::Float(match operator {
                Arithmetic::Add => left + right,
                Arithmetic::Subtract => left - right,
                Arithmetic::Multiply => left * right,
                Arithmetic::Divide => left / right,
                Arithmetic::Modulo => {
                    let rest = left % right;
                    let is_other_side = (rest > 0.0 && right < 0.0) || (rest < 0.0 && right > 0.0);
                    if is_other_side { rest + right } else { rest }
                }
            })
        }
    }
}

fn float(cell: &Cell) -> f64 {
    match cell {
        Cell::Integer(number) => *number as f64,
        Cell::Float(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

fn called(function: Function, cell: Cell) -> Cell {
    match (function, cell) {
        (_, Cell::Null) => Cell::Null,
        (Function::Abs, Cell::Integer(number)) => whole(number.checked_abs()),
        (Function::Floor | Function::Ceil, Cell::Integer(number)) => Cell::Integer(number),
        (Function::Abs, cell) => Cell::Float(float(&cell).abs()),
        (Function::Floor, cell) => Cell::Float(float(&cell).floor()),
        (Function::Ceil, cell) => Cell::Float(float(&cell).ceil()),
        (Function::Sqrt, cell) => Cell::Float(float(&cell).sqrt()),
    }
}

fn compared(left: &Cell, comparison: Comparison, right: &Cell) -> Option<bool> {
    let order = match (left, right) {
        (Cell::Null, _) | (_, Cell::Null) => return None,
        (Cell::Truth(left), Cell::Truth(right)) => Some(left.cmp(right)),
        (Cell::Integer(left), Cell::Integer(right)) | (Cell::Instant(left), Cell::Instant(right)) => {
            Some(left.cmp(right))
        }
        (Cell::Float(left), Cell::Float(right)) => left.partial_cmp(right),
        (Cell::Integer(left), Cell::Float(right)) => order_of_mixed(*left, *right),
        (Cell::Float(left), Cell::Integer(right)) => order_of_mixed(*right, *left).map(Ordering::reverse),
        (Cell::Text(left), Cell::Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        other => panic!("{other:?} cannot be compared"),
    };
    Some(match (comparison, order) {
        (Comparison::Equal, order) => order == Some(Ordering::Equal),
        (Comparison::NotEqual, order) => order != Some(Ordering::Equal),
        (Comparison::Less, order) => order == Some(Ordering::Less),
        (Comparison::Greater, order) => order == Some(Ordering::Greater),
        (Comparison::LessOrEqual, order) => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        (Comparison::GreaterOrEqual, order) => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// Compares an integer with a double in integer arithmetic: the double is `mantissa * 2^exponent`.
fn order_of_mixed(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    let sign = if float < 0.0 { -1 } else { 1 };
    if float.is_infinite() {
        return Some(0.cmp(&sign));
    }
    let bits = float.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = i128::from(bits & ((1 << 52) - 1));
    let (mantissa, exponent) = match field {
        0 => (fraction, -1074),
        field => (fraction + (1 << 52), field - 1075),
    };
    let mantissa = mantissa * sign;
    Some(match exponent {
        // Beyond 128 bits; a mantissa with such an exponent is not zero.
        75.. => 0.cmp(&sign),
        0..75 => integer.cmp(&(mantissa << exponent)),
        // The double is nearer to zero than one half.
        ..-60 => integer.cmp(&0).then(0.cmp(&mantissa)),
        exponent => match integer.checked_mul(1 << -exponent) {
            Some(integer) => integer.cmp(&mantissa),
            None => integer.cmp(&0),
        },
    })
}
