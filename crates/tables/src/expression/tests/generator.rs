//! Random expressions: any that can be written, and conditions that fit the schema of the random rows.

use super::super::{Arithmetic, Column, Comparison, Expression, Function, Literal};
use super::rows::{FLOATS, INTEGERS, TEXTS, instant};
use fastrand::Rng;

const INTEGER_COLUMNS: [&str; 9] = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "code"];
const FLOAT_COLUMNS: [&str; 4] = ["f16", "f32", "f64", "odd name"];
const INSTANT_COLUMNS: [&str; 6] = ["sec", "milli", "micro", "nano", "day", "date"];
const TEXT_COLUMNS: [&str; 4] = ["word", "other", "view", "tag"];
const ODD_NAMES: [&str; 14] = [
    "x",
    "and",
    "NULL",
    "timestamp",
    "abs",
    "odd name",
    "with \"quotes\"",
    "",
    "1st",
    "größe",
    "_",
    "a.b",
    "it's",
    "line\nbreak",
];

/// The kind of value that an expression has.
#[derive(Clone, Copy)]
enum Sort {
    Number,
    Instant,
    Text,
}

pub(super) struct Generator<'a> {
    random: &'a mut Rng,
}

impl<'a> Generator<'a> {
    pub(super) fn new(random: &'a mut Rng) -> Self {
        Self { random }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())].clone()
    }

    /// Any tree, whether it makes sense or not.
    pub(super) fn anything(&mut self, depth: usize) -> Expression {
        if depth == 0 {
            return if self.random.bool() {
                Expression::Literal(self.any_literal())
            } else {
                self.any_column()
            };
        }
        let is_negated = self.random.bool();
        let count = self.random.usize(2..4);
        let mut next = || Box::new(self.anything(depth - 1));
        let (first, second, third) = (next(), next(), next());
        match self.random.u8(..14) {
            0 => Expression::Negate(first),
            1..4 => Expression::Arithmetic(first, self.pick(&Arithmetic::ALL), second),
            4 => Expression::Call(self.pick(&Function::ALL), first),
            5 | 6 => Expression::Compare(first, self.pick(&Comparison::ALL), second),
            7 => Expression::Between { value: first, low: second, high: third, is_negated },
            8 => {
                let list = (1..count).map(|_| self.any_literal()).collect();
                Expression::In { value: first, list, is_negated }
            }
            9 => Expression::IsNull { value: first, is_negated },
            10 => Expression::IsNan { value: first, is_negated },
            11 => Expression::Not(first),
            12 => Expression::And([first, second, third].into_iter().take(count).map(|part| *part).collect()),
            _ => Expression::Or([first, second, third].into_iter().take(count).map(|part| *part).collect()),
        }
    }

    fn any_column(&mut self) -> Expression {
        let name = self.pick(&ODD_NAMES);
        match self.random.u8(..3) {
            0 => Expression::Column(Column::element(name, self.random.u32(..) >> self.random.u32(..32))),
            _ => Expression::column(name),
        }
    }

    fn any_literal(&mut self) -> Literal {
        match self.random.u8(..10) {
            0 => Literal::Null,
            1 => Literal::Boolean(self.random.bool()),
            2 => Literal::Integer(i128::from(self.random.i64(..) >> self.random.u32(..64))),
            3 => Literal::Integer(self.pick(&INTEGERS)),
            4 => Literal::Float(f64::from_bits(self.random.u64(..))),
            5 => Literal::Float(self.pick(&FLOATS)),
            6 => Literal::Text(self.pick(&TEXTS).to_owned()),
            7 => Literal::Text(
                (0..self.random.usize(..6)).map(|_| self.pick(&['\'', '"', 'a', '\n', '年'])).collect(),
            ),
            8 => Literal::Timestamp(i128::from(self.random.i64(..))),
            _ => Literal::Timestamp(instant(self.random)),
        }
    }

    /// A condition on the columns of the random rows.
    pub(super) fn condition(&mut self, depth: usize) -> Expression {
        if depth == 0 {
            return self.simple_condition();
        }
        let is_negated = self.random.bool();
        match self.random.u8(..11) {
            0..3 => {
                Expression::And((0..self.random.usize(2..4)).map(|_| self.condition(depth - 1)).collect())
            }
            3..5 => Expression::Or((0..self.random.usize(2..4)).map(|_| self.condition(depth - 1)).collect()),
            5 => Expression::Not(Box::new(self.condition(depth - 1))),
            6 => {
                let (left, right) = (self.condition(depth - 1), self.condition(depth - 1));
                left.compare(self.pick(&Comparison::ALL), right)
            }
            7 => Expression::IsNull { value: Box::new(self.condition(depth - 1)), is_negated },
            _ => self.simple_condition(),
        }
    }

    fn simple_condition(&mut self) -> Expression {
        let is_negated = self.random.bool();
        let sort = self.pick(&[Sort::Number, Sort::Number, Sort::Number, Sort::Instant, Sort::Text]);
        match self.random.u8(..12) {
            0 => Expression::column(self.pick(&["flag", "mark"])),
            1 => Expression::Literal(self.pick(&[true.into(), false.into(), Literal::Null])),
            2 => {
                let name = self.pick(&["pos", "blob", "flag", "tag", "i64", "f32", "nano"]);
                Expression::IsNull { value: Box::new(Expression::column(name)), is_negated }
            }
            3 => Expression::IsNull { value: Box::new(self.value(sort, 2)), is_negated },
            4 => Expression::IsNan { value: Box::new(self.float()), is_negated },
            5 => Expression::Between {
                value: Box::new(self.value(sort, 1)),
                low: Box::new(self.value(sort, 0)),
                high: Box::new(self.value(sort, 0)),
                is_negated,
            },
            6 | 7 => {
                let list = (0..self.random.usize(1..5)).map(|_| self.literal(sort)).collect();
                Expression::In { value: Box::new(self.value(sort, 1)), list, is_negated }
            }
            8 => self.value(sort, 2).compare(self.pick(&Comparison::ALL), self.value(sort, 2)),
            _ => {
                let literal = Expression::Literal(self.literal(sort));
                let (column, comparison) = (self.column(sort), self.pick(&Comparison::ALL));
                if is_negated {
                    literal.compare(comparison, column)
                } else {
                    column.compare(comparison, literal)
                }
            }
        }
    }

    fn column(&mut self, sort: Sort) -> Expression {
        Expression::Column(match sort {
            Sort::Number => match self.random.u8(..3) {
                0 => Column::named(self.pick(&INTEGER_COLUMNS)),
                1 => Column::named(self.pick(&FLOAT_COLUMNS)),
                _ => Column::element("pos", self.random.u32(..3)),
            },
            Sort::Instant => Column::named(self.pick(&INSTANT_COLUMNS)),
            Sort::Text => Column::named(self.pick(&TEXT_COLUMNS)),
        })
    }

    fn literal(&mut self, sort: Sort) -> Literal {
        if self.random.u8(..12) == 0 {
            return Literal::Null;
        }
        match sort {
            Sort::Number if self.random.bool() => Literal::Integer(self.pick(&INTEGERS)),
            Sort::Number => Literal::Float(self.pick(&FLOATS)),
            Sort::Instant => Literal::Timestamp(instant(self.random)),
            Sort::Text => Literal::Text(self.pick(&TEXTS).to_owned()),
        }
    }

    /// A float, or an expression that computes to one.
    fn float(&mut self) -> Expression {
        match self.random.u8(..3) {
            0 => Expression::Call(Function::Sqrt, Box::new(self.value(Sort::Number, 1))),
            1 => Expression::Column(Column::element("pos", self.random.u32(..3))),
            _ => Expression::column(self.pick(&FLOAT_COLUMNS)),
        }
    }

    fn value(&mut self, sort: Sort, depth: usize) -> Expression {
        let is_number = matches!(sort, Sort::Number);
        match self.random.u8(..6) {
            0 => Expression::Literal(self.literal(sort)),
            1 | 2 if is_number && depth > 0 => {
                let (left, right) = (self.value(sort, depth - 1), self.value(sort, depth - 1));
                Expression::Arithmetic(Box::new(left), self.pick(&Arithmetic::ALL), Box::new(right))
            }
            3 if is_number && depth > 0 => {
                let inner = Box::new(self.value(sort, depth - 1));
                if self.random.bool() {
                    Expression::Negate(inner)
                } else {
                    Expression::Call(self.pick(&Function::ALL), inner)
                }
            }
            _ => self.column(sort),
        }
    }
}
