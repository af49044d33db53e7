//! Binding an expression to a schema: checks every name and every type before any row is read.
//!
//! Invariant: a bound condition never compares values of different kinds.

use super::boxes::kind as kind_of_literal;
use super::condition::{Condition, Nullable};
use super::criterion::{Criterion, Scalar};
use super::error::{EvaluateError, ExpressionError, Kind, Problem, shortened};
use super::interval::{Interval, necessary};
use super::leaf::{Leaf, Shape};
use super::near::BoundNear;
use super::numbers::Number;
use super::{Arithmetic, Column, Comparison, Expression, Literal, Near, show};
use crate::TypeName;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_errors::nearest;
use std::collections::{BTreeSet, HashSet};

/// The most columns that an error lists when a column does not exist.
const COLUMNS_SHOWN_MAX: usize = 30;

/// A condition on the rows of a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    condition: Condition,
    columns: Vec<String>,
}

impl Expression {
    /// Binds the expression to a schema.
    ///
    /// # Errors
    /// `invalid-input` for a column that the schema lacks, for kinds of values that do not go together, and
    /// for an expression that is not a condition; `limit` for an expression nested deeper than
    /// [`super::DEPTH_MAX`].
    pub fn bind(&self, schema: &Schema) -> Result<Bound, ExpressionError> {
        if !self.is_shallow() {
            return Err(ExpressionError::new(Problem::TooDeep, "", 0..0));
        }
        let binder = Binder { schema, root: self };
        Ok(Bound { condition: binder.condition(self)?, columns: self.mentioned() })
    }

    /// The names of all columns in the expression, each once, in the order of their first mention.
    pub(crate) fn mentioned(&self) -> Vec<String> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut rest = vec![self];
        while let Some(expression) = rest.pop() {
            let mentioned = match expression {
                Self::Column(column) => std::slice::from_ref(column),
                Self::Near(near) => near.columns(),
                _ => &[],
            };
            for column in mentioned {
                if seen.insert(column.name.as_str()) {
                    names.push(column.name.clone());
                }
            }
            rest.extend(expression.children().into_iter().rev());
        }
        names
    }
}

impl Bound {
    /// For each row, whether the condition is true or false; null where that is unknown.
    ///
    /// The batch needs the columns of [`Bound::columns`], in any order, and may have others.
    ///
    /// # Errors
    /// If the batch lacks one of these columns, or has it with another type than the schema.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray, EvaluateError> {
        Ok(self.condition.evaluate(batch)?.into_array())
    }

    /// The columns that the condition reads, in the order of their first mention.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(super) fn condition(&self) -> &Condition {
        &self.condition
    }

    /// The interval in which a column's values must lie for a row to satisfy the condition.
    #[must_use]
    pub fn ranges(&self, column: &Column) -> Interval {
        necessary(&self.condition, true, column)
    }
}

/// A part of an expression with its type.
#[derive(Clone)]
enum Value {
    Condition(Condition),
    Number(Number),
    Instant(Number),
    Text(String),
    TextColumn(Leaf),
    Null,
    /// A whole vector, or a column of an unknown type: only `is null` can be asked of it.
    Opaque(Leaf),
}

impl Value {
    fn kind(&self) -> Kind {
        match self {
            Self::Condition(_) => Kind::Condition,
            Self::Number(number) if number.is_float() => Kind::Float,
            Self::Number(_) => Kind::Integer,
            Self::Instant(_) => Kind::Timestamp,
            Self::Text(_) | Self::TextColumn(_) => Kind::Text,
            Self::Null => Kind::Null,
            Self::Opaque(_) => Kind::Opaque,
        }
    }
}

impl From<Condition> for Value {
    fn from(condition: Condition) -> Self {
        Self::Condition(condition)
    }
}

struct Binder<'a> {
    schema: &'a Schema,
    root: &'a Expression,
}

impl Binder<'_> {
    fn fail(&self, problem: Problem, part: &Expression) -> ExpressionError {
        let (text, span) = show::locate(self.root, part);
        ExpressionError::new(problem, &text, span)
    }

    fn expected(&self, expected: Kind, found: Kind, part: &Expression) -> ExpressionError {
        self.fail(Problem::Expected { expected, found }, part)
    }

    fn condition(&self, part: &Expression) -> Result<Condition, ExpressionError> {
        match self.value(part)? {
            Value::Condition(condition) => Ok(condition),
            Value::Null => Ok(Condition::Constant(None)),
            other => Err(self.expected(Kind::Condition, other.kind(), part)),
        }
    }

    /// A part as a number; `None` for the literal `null`.
    fn number(&self, part: &Expression) -> Result<Option<Number>, ExpressionError> {
        match self.value(part)? {
            Value::Number(number) => Ok(Some(number)),
            Value::Null => Ok(None),
            other => Err(self.expected(Kind::Number, other.kind(), part)),
        }
    }

    /// A part as a value that can be computed with.
    fn value(&self, part: &Expression) -> Result<Value, ExpressionError> {
        match (self.any_value(part)?, part) {
            (Value::Opaque(leaf), Expression::Column(column)) => Err(self.opaque(&leaf, column, part)),
            (value, _) => Ok(value),
        }
    }

    fn opaque(&self, leaf: &Leaf, column: &Column, part: &Expression) -> ExpressionError {
        let data_type = self.schema.field_with_name(&leaf.column.name).map(|field| field.data_type());
        let problem = match (data_type, column.element) {
            (Ok(DataType::FixedSizeList(_, size)), None) => {
                Problem::Vector { column: column.to_string(), size: u32::try_from(*size).unwrap_or(0) }
            }
            (data_type, _) => Problem::Type {
                column: column.to_string(),
                data_type: data_type.map(TypeName::told).unwrap_or_default(),
            },
        };
        self.fail(problem, part)
    }

    fn any_value(&self, part: &Expression) -> Result<Value, ExpressionError> {
        match part {
            Expression::Literal(literal) => Ok(literal_value(literal)),
            Expression::Column(column) => self.column(column, part),
            Expression::Negate(value) => self.changed(value, Number::Negate),
            Expression::Arithmetic(left, operator, right) => self.arithmetic(left, *operator, right),
            Expression::Call(function, value) => {
                self.changed(value, |number| Number::Call(*function, number))
            }
            // Large arms are functions of their own to keep the stack frame small: every level of nesting
            // passes through here.
            Expression::Compare(left, comparison, right) => self.compare(left, *comparison, right, part),
            Expression::Between { value, low, high, is_negated } => {
                self.between(value, low, high, part).map(|between| between.negated(*is_negated).into())
            }
            Expression::In { value, list, is_negated } => {
                self.member(value, list, part).map(|member| member.negated(*is_negated).into())
            }
            Expression::IsNull { value, is_negated } => self.is_null(value, *is_negated),
            Expression::IsNan { value, is_negated } => self.is_nan(value, *is_negated),
            Expression::Near(near) => self.near(near, part),
            Expression::Not(value) => self.condition(value).map(|value| value.negated(true).into()),
            Expression::And(parts) => self.conditions(parts).map(|parts| Condition::All(parts).into()),
            Expression::Or(parts) => self.conditions(parts).map(|parts| Condition::Any(parts).into()),
        }
    }

    fn conditions(&self, parts: &[Expression]) -> Result<Vec<Condition>, ExpressionError> {
        parts.iter().map(|part| self.condition(part)).collect()
    }

    fn column(&self, column: &Column, part: &Expression) -> Result<Value, ExpressionError> {
        let Ok(field) = self.schema.field_with_name(&column.name) else {
            return Err(self.unknown(column, part));
        };
        let shape = match (field.data_type(), column.element) {
            (DataType::FixedSizeList(inner, size), Some(element)) => {
                let size = u32::try_from(*size).unwrap_or(0);
                if element >= size {
                    let column = Column::named(&column.name).to_string();
                    return Err(self.fail(Problem::NoElement { column, element, size }, part));
                }
                Shape::of(inner.data_type())
            }
            (data_type, Some(_)) => {
                let (column, data_type) =
                    (Column::named(&column.name).to_string(), TypeName::told(data_type));
                return Err(self.fail(Problem::NotVector { column, data_type }, part));
            }
            (data_type, None) => Shape::of(data_type),
        };
        let leaf = Leaf { column: column.clone(), shape };
        Ok(match shape {
            Shape::Boolean => Value::Condition(Condition::Leaf(leaf, Criterion::IsTrue)),
            Shape::Integer | Shape::Float => Value::Number(Number::Column(leaf)),
            Shape::Instant { .. } => Value::Instant(Number::Column(leaf)),
            Shape::Text => Value::TextColumn(leaf),
            Shape::Opaque => Value::Opaque(leaf),
        })
    }

    fn near(&self, near: &Near, part: &Expression) -> Result<Value, ExpressionError> {
        if let (Some(len), [vector]) = (near.vector_len(), near.columns()) {
            let field = self.schema.field_with_name(&vector.name).map(|field| field.data_type());
            let fits = !matches!(field, Ok(DataType::FixedSizeList(_, size)) if *size as usize != len);
            if !fits {
                let problem = "the point must have as many numbers as the vectors have elements";
                return Err(self.fail(Problem::Near { problem }, part));
            }
        }
        let leaf = |column: Column| match self.column(&column, part)? {
            Value::Number(Number::Column(leaf)) => Ok(leaf),
            other => Err(self.expected(Kind::Number, other.kind(), part)),
        };
        let leaves = near.coordinates().into_iter().map(leaf).collect::<Result<_, _>>()?;
        Ok(Condition::Near(Box::new(BoundNear::new(near, leaves))).into())
    }

    fn unknown(&self, column: &Column, part: &Expression) -> ExpressionError {
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        let nearest = nearest(&column.name, names).map(|name| Column::named(name).to_string());
        let is_text_perhaps = column.typing.is_quoted;
        // A user quotes a name that needs no quotes only to write a text.
        let nearest = nearest.filter(|_| !(is_text_perhaps && column.is_plain()));
        let (name, present) = (shortened(&column.name), self.present());
        self.fail(Problem::UnknownColumn { name, nearest, is_text_perhaps, present }, part)
    }

    /// The existing columns for an error text, limited in number and in length.
    fn present(&self) -> String {
        let fields = self.schema.fields();
        let shown = |name: &str| shortened(&Column::named(name).to_string());
        let mut present: Vec<String> =
            fields.iter().take(COLUMNS_SHOWN_MAX).map(|field| shown(field.name())).collect();
        if let Some(more) = fields.len().checked_sub(COLUMNS_SHOWN_MAX + 1) {
            present.push(format!("and {} more", more + 1));
        }
        present.join(", ")
    }

    fn arithmetic(
        &self,
        left: &Expression,
        operator: Arithmetic,
        right: &Expression,
    ) -> Result<Value, ExpressionError> {
        Ok(match (self.number(left)?, self.number(right)?) {
            (Some(left), Some(right)) => {
                Value::Number(Number::Arithmetic(Box::new(left), operator, Box::new(right)))
            }
            _ => Value::Null,
        })
    }

    /// A number computed from one other number.
    fn changed(
        &self,
        value: &Expression,
        change: impl Fn(Box<Number>) -> Number,
    ) -> Result<Value, ExpressionError> {
        Ok(match self.number(value)? {
            Some(number) => Value::Number(change(Box::new(number))),
            None => Value::Null,
        })
    }

    fn compare(
        &self,
        left: &Expression,
        comparison: Comparison,
        right: &Expression,
        part: &Expression,
    ) -> Result<Value, ExpressionError> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        self.compared(left, comparison, right, part).map(Value::Condition)
    }

    fn is_null(&self, value: &Expression, is_negated: bool) -> Result<Value, ExpressionError> {
        let nullable = match self.any_value(value)? {
            Value::Null => return Ok(Value::Condition(Condition::Constant(Some(!is_negated)))),
            Value::Text(_) => return Ok(Value::Condition(Condition::Constant(Some(is_negated)))),
            Value::Condition(Condition::Leaf(leaf, Criterion::IsTrue))
            | Value::Number(Number::Column(leaf))
            | Value::Instant(Number::Column(leaf))
            | Value::TextColumn(leaf)
            | Value::Opaque(leaf) => Nullable::Leaf(leaf),
            Value::Number(number) | Value::Instant(number) => Nullable::Number(number),
            Value::Condition(condition) => Nullable::Condition(Box::new(condition)),
        };
        Ok(Value::Condition(Condition::IsNull(nullable).negated(is_negated)))
    }

    fn is_nan(&self, value: &Expression, is_negated: bool) -> Result<Value, ExpressionError> {
        match self.value(value)? {
            Value::Null => Ok(Value::Condition(Condition::Constant(None))),
            Value::Number(number) if number.is_float() => {
                Ok(Value::Condition(Condition::about(number, Criterion::IsNan).negated(is_negated)))
            }
            other => Err(self.expected(Kind::Float, other.kind(), value)),
        }
    }

    fn between(
        &self,
        value: &Expression,
        low: &Expression,
        high: &Expression,
        part: &Expression,
    ) -> Result<Condition, ExpressionError> {
        // The value is computed once for each end, so it must not contain conditions: nested ones would
        // double the work at every level.
        let bound = self.value(value)?;
        if matches!(bound, Value::Condition(_)) {
            return Err(self.fail(Problem::NoMember { found: Kind::Condition }, value));
        }
        let low = self.compared(bound.clone(), Comparison::GreaterOrEqual, self.value(low)?, part)?;
        let high = self.compared(bound, Comparison::LessOrEqual, self.value(high)?, part)?;
        Ok(Condition::All(vec![low, high]))
    }

    fn compared(
        &self,
        left: Value,
        comparison: Comparison,
        right: Value,
        part: &Expression,
    ) -> Result<Condition, ExpressionError> {
        let mismatch = Problem::Mismatch { left: left.kind(), right: right.kind() };
        match (left, right) {
            (Value::Null, _) | (_, Value::Null) => Ok(Condition::Constant(None)),
            (Value::Number(left), Value::Number(right)) | (Value::Instant(left), Value::Instant(right)) => {
                Ok(compared_numbers(left, comparison, right))
            }
            (Value::Text(left), Value::Text(right)) => {
                Ok(Condition::Constant(Some(comparison.holds(Some(left.cmp(&right))))))
            }
            (Value::TextColumn(leaf), Value::Text(text)) => {
                Ok(Condition::Leaf(leaf, Criterion::Text(comparison, text)))
            }
            (Value::Text(text), Value::TextColumn(leaf)) => {
                Ok(Condition::Leaf(leaf, Criterion::Text(comparison.flipped(), text)))
            }
            (Value::TextColumn(left), Value::TextColumn(right)) => {
                Ok(Condition::Texts(left, comparison, right))
            }
            (Value::Condition(left), Value::Condition(right)) => {
                Ok(Condition::Truths(Box::new(left), comparison, Box::new(right)))
            }
            _ => Err(self.fail(mismatch, part)),
        }
    }

    /// `value in (1, 2, 3)`
    fn member(
        &self,
        value: &Expression,
        list: &[Literal],
        part: &Expression,
    ) -> Result<Condition, ExpressionError> {
        let bound = self.value(value)?;
        let found = bound.kind();
        let mismatch = |literal: &Literal| {
            self.fail(Problem::Mismatch { left: found, right: kind_of_literal(literal) }, part)
        };
        let members = || list.iter().filter(|literal| **literal != Literal::Null);
        let is_member = match bound {
            Value::Condition(_) => return Err(self.fail(Problem::NoMember { found }, value)),
            Value::Number(number) => {
                let scalars = members().map(|literal| scalar(literal).ok_or_else(|| mismatch(literal)));
                one_of(number, &scalars.collect::<Result<Vec<_>, _>>()?)
            }
            Value::Instant(number) => {
                let scalars = members().map(|literal| match literal {
                    Literal::Timestamp(instant) => Ok(Scalar::Integer(*instant)),
                    other => Err(mismatch(other)),
                });
                one_of(number, &scalars.collect::<Result<Vec<_>, _>>()?)
            }
            Value::Text(text) => {
                let texts = members().map(|literal| text_of(literal).ok_or_else(|| mismatch(literal)));
                Condition::Constant(Some(texts.collect::<Result<BTreeSet<_>, _>>()?.contains(&text)))
            }
            Value::TextColumn(leaf) => {
                let texts = members().map(|literal| text_of(literal).ok_or_else(|| mismatch(literal)));
                Condition::Leaf(leaf, Criterion::TextSet(texts.collect::<Result<_, _>>()?))
            }
            Value::Null | Value::Opaque(_) => return Ok(Condition::Constant(None)),
        };
        // A value that equals no listed member may still equal the unknown one.
        Ok(match list.contains(&Literal::Null) {
            true => Condition::Any(vec![is_member, Condition::Constant(None)]),
            false => is_member,
        })
    }
}

fn literal_value(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Boolean(value) => Value::Condition(Condition::Constant(Some(*value))),
        Literal::Integer(value) => Value::Number(Number::Integer(*value)),
        Literal::Float(value) => Value::Number(Number::Float(*value)),
        Literal::Text(text) => Value::Text(text.clone()),
        Literal::Timestamp(nanoseconds) => Value::Instant(Number::Integer(*nanoseconds)),
    }
}

fn scalar(literal: &Literal) -> Option<Scalar> {
    match literal {
        Literal::Integer(value) => Some(Scalar::Integer(*value)),
        Literal::Float(value) => Some(Scalar::Float(*value)),
        _ => None,
    }
}

fn text_of(literal: &Literal) -> Option<String> {
    match literal {
        Literal::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// Compares two numbers of one kind. A literal is moved to the right, where it becomes a criterion.
fn compared_numbers(left: Number, comparison: Comparison, right: Number) -> Condition {
    let (left, comparison, right) = match left.scalar() {
        Some(_) => (right, comparison.flipped(), left),
        None => (left, comparison, right),
    };
    let Some(scalar) = right.scalar() else { return Condition::Numbers(left, comparison, right) };
    let about = |comparison| Criterion::compared(left.stored(), comparison, scalar);
    match comparison {
        Comparison::NotEqual => {
            let equal = about(Comparison::Equal);
            Condition::about(left, equal).negated(true)
        }
        comparison => {
            let criterion = about(comparison);
            Condition::about(left, criterion)
        }
    }
}

fn one_of(number: Number, scalars: &[Scalar]) -> Condition {
    let criterion = Criterion::one_of(number.stored(), scalars);
    Condition::about(number, criterion)
}
