//! The vocabulary of the grammar: literals, columns, operators and functions.
//!
//! Invariant: the parser reads back what is displayed here.

use super::instant;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Reserved words: a column with such a name is written in double quotes.
const RESERVED: [&str; 11] =
    ["and", "or", "not", "in", "is", "between", "null", "nan", "inf", "true", "false"];

/// Whether an unquoted word is a keyword, in upper or lower case.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// A constant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Literal {
    /// `null`: no value.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// An integer, exact; from the least `i64` to the greatest `u64`.
    Integer(i128),
    /// A number with a point or an exponent, `inf` or `nan`: the nearest double.
    Float(f64),
    /// `'text'`.
    Text(String),
    /// `timestamp '2026-01-01T00:00:00Z'`: nanoseconds since 1970 in UTC, years 0001 to 9999.
    Timestamp(i128),
}

impl Literal {
    /// The integers that can be written.
    pub(crate) const INTEGERS: std::ops::RangeInclusive<i128> = (i64::MIN as i128)..=(u64::MAX as i128);
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Boolean(left), Self::Boolean(right)) => left == right,
            (Self::Integer(left), Self::Integer(right)) => left == right,
            // Compared by bits, so that -0.0 differs from 0.0; any NaN equals any NaN.
            (Self::Float(left), Self::Float(right)) => {
                left.to_bits() == right.to_bits() || (left.is_nan() && right.is_nan())
            }
            (Self::Text(left), Self::Text(right)) => left == right,
            (Self::Timestamp(left), Self::Timestamp(right)) => left == right,
            _ => false,
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) if value.is_nan() => f.write_str("nan"),
            // The shortest text that parses back as the same double, always with a point or an exponent.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "'{}'", value.replace('\'', "''")),
            Self::Timestamp(nanoseconds) => write!(f, "timestamp '{}'", instant::show(*nanoseconds)),
        }
    }
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i32> for Literal {
    fn from(value: i32) -> Self {
        Self::Integer(i128::from(value))
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Self::Integer(i128::from(value))
    }
}

impl From<u64> for Literal {
    fn from(value: u64) -> Self {
        Self::Integer(i128::from(value))
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Literal {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// A column, or an element of a vector column: `vz`, `"odd name"`, `pos[0]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Column {
    /// The name in the schema; case matters.
    pub name: String,
    /// The element of a vector, counted from 0.
    pub element: Option<u32>,
    /// How the name was typed.
    pub(super) typing: Typing,
}

/// Whether a name was typed in double quotes. Names compare equal either way; only messages differ.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Typing {
    pub(super) is_quoted: bool,
}

impl PartialEq for Typing {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Typing {}

impl Hash for Typing {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for Typing {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Typing {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl Column {
    /// A whole column.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), element: None, typing: Typing::default() }
    }

    /// One element of a vector column.
    #[must_use]
    pub fn element(name: impl Into<String>, element: u32) -> Self {
        Self { name: name.into(), element: Some(element), typing: Typing::default() }
    }

    /// Whether the name can be written without double quotes.
    pub(super) fn is_plain(&self) -> bool {
        let mut characters = self.name.chars();
        characters.next().is_some_and(starts_word)
            && characters.all(continues_word)
            && !is_reserved(&self.name)
    }

    /// Writes the name as it was typed, including needless quotes.
    pub(super) fn write_typed(&self, text: &mut String) -> fmt::Result {
        use fmt::Write as _;
        match self.typing.is_quoted && self.is_plain() {
            true => write!(text, "\"{}\"", self.name)?,
            false => return write!(text, "{self}"),
        }
        self.element.map_or(Ok(()), |element| write!(text, "[{element}]"))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_plain() {
            true => f.write_str(&self.name)?,
            false => write!(f, "\"{}\"", self.name.replace('"', "\"\""))?,
        }
        self.element.map_or(Ok(()), |element| write!(f, "[{element}]"))
    }
}

/// Whether an unquoted name may begin with this character.
pub(super) fn starts_word(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

/// Whether an unquoted name may continue with this character.
pub(super) fn continues_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// All comparison operators.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// The symbol of the operator.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// The comparison with its sides exchanged.
    #[must_use]
    pub fn flipped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// Whether it holds for two values of this order; `None` means that they have no order, because one is
    /// NaN.
    #[must_use]
    pub fn holds(self, order: Option<Ordering>) -> bool {
        match order {
            None => self == Self::NotEqual,
            Some(order) => match self {
                Self::Equal => order.is_eq(),
                Self::NotEqual => order.is_ne(),
                Self::Less => order.is_lt(),
                Self::LessOrEqual => order.is_le(),
                Self::Greater => order.is_gt(),
                Self::GreaterOrEqual => order.is_ge(),
            },
        }
    }
}

/// An arithmetic operator. Integers stay integers except under `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, always a float, as in Python.
    Divide,
    /// `%`, with the sign of the divisor, as in Python; null for an integer modulo 0.
    Modulo,
}

impl Arithmetic {
    /// All arithmetic operators.
    pub const ALL: [Self; 5] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide, Self::Modulo];

    /// The symbol of the operator.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Function {
    /// The absolute value; of an integer, an integer.
    Abs,
    /// The square root as a float; NaN for a negative number.
    Sqrt,
    /// The greatest whole number that is not greater; of an integer, an integer, of a float, a float.
    Floor,
    /// The least whole number that is not less; of an integer, an integer, of a float, a float.
    Ceil,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 4] = [Self::Abs, Self::Sqrt, Self::Floor, Self::Ceil];

    /// The name of the function.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Sqrt => "sqrt",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
        }
    }
}
