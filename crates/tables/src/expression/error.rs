//! Errors of expressions: what is wrong, where, and what would be right.
//!
//! Invariant: a span lies within the text that its error carries and begins and ends between characters.

use super::{DEPTH_MAX, LENGTH_MAX};
use atoll_errors::ErrorKind;
use std::fmt;
use std::ops::Range;

/// Why a text is not an expression, or why an expression does not fit a schema.
///
/// The error carries the text it is about: the parsed text, or, for an expression that was bound, its
/// displayed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    problem: Problem,
    text: String,
    span: Range<usize>,
}

/// The problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is longer than [`LENGTH_MAX`].
    #[error("the text has {bytes} bytes; the most is {}", LENGTH_MAX)]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// The text nests deeper than [`DEPTH_MAX`].
    #[error("it nests more than {} deep", DEPTH_MAX)]
    TooDeep,
    /// Something else was expected at this place.
    #[error("{expected} was expected, but {found}")]
    Unexpected {
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A character or symbol that the grammar does not know.
    #[error("`{found}` is not part of the grammar")]
    Symbol {
        /// What was found.
        found: String,
        /// The equivalent in this grammar.
        instead: Option<&'static str>,
    },
    /// An opening token that is never closed.
    #[error("{what} is never closed")]
    Unclosed {
        /// The opening token.
        what: &'static str,
    },
    /// The token begins like a number, but is not one.
    #[error("`{text}` is not a number")]
    Number {
        /// The text.
        text: String,
    },
    /// The integer exceeds 64 bits.
    #[error("{text} is beyond the range of 64-bit integers")]
    IntegerRange {
        /// The number.
        text: String,
    },
    /// The number exceeds the range of doubles.
    #[error("{text} is beyond the range of doubles")]
    FloatRange {
        /// The number.
        text: String,
    },
    /// The text is not a timestamp.
    #[error("'{text}' is not a timestamp: {problem}")]
    Timestamp {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A comparison of a comparison, such as `0 < x < 1`.
    #[error("comparisons cannot be chained")]
    Chained,
    /// No function has this name.
    #[error("there is no function `{name}`")]
    UnknownFunction {
        /// The name.
        name: String,
        /// The most similar function.
        nearest: Option<String>,
    },
    /// The schema has no such column.
    #[error("there is no column {name:?}")]
    UnknownColumn {
        /// The name.
        name: String,
        /// The most similar column, as an expression spells it; `None` if a text is likelier.
        nearest: Option<String>,
        /// Whether the name was typed in double quotes, which mark texts in other languages.
        is_text_perhaps: bool,
        /// The existing columns, as expressions spell them; of a long list the first ones, and the number of
        /// the others.
        present: String,
    },
    /// The column is not a vector, but an element of it was asked for.
    #[error("{column} is not a vector column, but {data_type}")]
    NotVector {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The vector has fewer elements.
    #[error("{column} has {size} elements, counted from 0, but no element {element}")]
    NoElement {
        /// The column.
        column: String,
        /// The element that was asked for.
        element: u32,
        /// The number of elements.
        size: u32,
    },
    /// A vector as a whole cannot be compared.
    #[error("{column} is a vector of {size}")]
    Vector {
        /// The column.
        column: String,
        /// The number of elements.
        size: u32,
    },
    /// Expressions cannot handle this type.
    #[error("{column} has the type {data_type}, which supports only `is null`")]
    Type {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The values are of different kinds.
    #[error("{left} cannot be compared with {right}")]
    Mismatch {
        /// The left kind.
        left: Kind,
        /// The right kind.
        right: Kind,
    },
    /// A value of another kind was expected.
    #[error("{expected} was expected, but this is {found}")]
    Expected {
        /// The kind that was expected.
        expected: Kind,
        /// The kind that was found.
        found: Kind,
    },
    /// The operand of `in` or `between` is a condition.
    #[error("`in` and `between` take a number, a text or a timestamp, but this is {found}")]
    NoMember {
        /// The kind of the operand.
        found: Kind,
    },
    /// The values are numbers of which no type holds all.
    #[error("{column} is {whole} in one place and a number of another kind elsewhere; no type holds both")]
    NoCommonType {
        /// The column.
        column: String,
        /// The whole number that no double equals.
        whole: i128,
    },
    /// A point, radius or cell of `near` is invalid.
    #[error("{problem}")]
    Near {
        /// What is wrong.
        problem: &'static str,
    },
    /// A box has two ranges for one column.
    #[error("{column} has two ranges")]
    Twice {
        /// The column.
        column: String,
    },
    /// A range of a box ends before it begins.
    #[error("the range begins at {low} and ends at {high}")]
    InsideOut {
        /// The low end.
        low: String,
        /// The high end.
        high: String,
    },
    /// A range of a box begins or ends with a value that has no order.
    #[error("a range cannot begin or end with {literal}")]
    NoLimit {
        /// The literal.
        literal: String,
    },
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// True, false or unknown.
    Condition,
    /// A whole number.
    Integer,
    /// A double.
    Float,
    /// Integer or float.
    Number,
    /// Text.
    Text,
    /// A point in time.
    Timestamp,
    /// The literal `null`.
    Null,
    /// A type of which only `is null` can be asked.
    Opaque,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Condition => "a condition",
            Self::Integer => "an integer",
            Self::Float => "a float",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Timestamp => "a timestamp",
            Self::Null => "null",
            Self::Opaque => "a value of another type",
        })
    }
}

impl ExpressionError {
    pub(super) fn new(problem: Problem, text: &str, span: Range<usize>) -> Self {
        Self(Box::new(Fault { problem, text: text.to_owned(), span }))
    }

    /// The values of a column are numbers of which no type holds all, such as this whole number.
    pub(crate) fn no_common_type(column: &str, whole: i128) -> Self {
        Self::new(Problem::NoCommonType { column: column.to_owned(), whole }, "", 0..0)
    }

    /// The problem.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// The text that the error is about; empty if it is too long or too deep to be shown.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The bytes of the text that the error is about.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// The error kind that all doors share.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.problem() {
            Problem::TooLong { .. } | Problem::TooDeep => ErrorKind::Limit,
            _ => ErrorKind::InvalidInput,
        }
    }

    /// A suggestion, if one can be guessed.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.problem().hint()
    }

    /// The problem, the line it is in with carets below the place, and the hint: three to four lines.
    #[must_use]
    pub fn render(&self) -> String {
        let mut lines = vec![self.to_string()];
        if !self.text().is_empty() {
            lines.extend(self.pointed());
        }
        lines.extend(self.hint().map(|hint| format!("hint: {hint}")));
        lines.join("\n")
    }

    /// The surroundings of the span, and carets below it.
    fn pointed(&self) -> [String; 2] {
        const BEFORE_MAX: usize = 60;
        const WITHIN_MAX: usize = 40;
        const AFTER_MAX: usize = 40;
        let Range { start, end } = self.span();
        let (before, within, after) = (&self.text()[..start], &self.text()[start..end], &self.text()[end..]);
        let line =
            |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let before = line(before.rsplit('\n').next().unwrap_or_default());
        let (within, is_cut) = match within.char_indices().nth(WITHIN_MAX) {
            Some((end, _)) => (line(&within[..end]), true),
            None => (line(within), false),
        };
        let skipped = before.chars().count().saturating_sub(BEFORE_MAX);
        let mut shown: String = "…".repeat(usize::from(skipped > 0));
        shown.extend(before.chars().skip(skipped));
        let indent = shown.chars().count();
        shown.push_str(&within);
        let after = if is_cut { "…" } else { after.lines().next().unwrap_or_default() };
        shown.extend(line(after).chars().take(AFTER_MAX));
        if after.chars().nth(AFTER_MAX).is_some() {
            shown.push('…');
        }
        let carets = "^".repeat(within.chars().count().max(1));
        [format!("  {}", shown.trim_end()), format!("  {}{carets}", " ".repeat(indent))]
    }
}

impl Problem {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::TooLong { .. } => "filter in several steps, or keep the ids in a table of their own",
            Self::TooDeep => "a chain of `and` or of `or` may be of any length",
            Self::Symbol { instead: Some("\""), .. } => {
                "an unusual column name is written in \"double quotes\", a text in 'single quotes'"
            }
            Self::Symbol { instead: Some(instead), .. } => return Some(format!("did you mean `{instead}`?")),
            Self::Unexpected { found, .. } if found == "`not` was found" => {
                "put it in parentheses: a = (not b)"
            }
            Self::Unclosed { what } if what.ends_with("quotes") => {
                "a quote within quotes is written twice: 'it''s'"
            }
            Self::Number { .. } => "numbers are 12, 1.5 or 2e-3, without separators or units",
            Self::IntegerRange { .. } => "with a decimal point it is the nearest double",
            Self::FloatRange { .. } => "infinity is written inf",
            Self::Timestamp { .. } => "such as timestamp '2026-01-01T12:30:00Z'",
            Self::Chained => "write `a < b and b < c`, or put one of them in parentheses",
            Self::UnknownFunction { nearest: None, .. } => "there are abs, sqrt, floor and ceil",
            Self::UnknownColumn { nearest: Some(nearest), is_text_perhaps: true, .. } => {
                return Some(format!("did you mean {nearest}? a text is written in 'single quotes'"));
            }
            Self::UnknownColumn { nearest: None, is_text_perhaps: true, .. } => {
                "a text is written in 'single quotes', and only the name of a column in \"double quotes\""
            }
            Self::UnknownFunction { nearest: Some(nearest), .. }
            | Self::UnknownColumn { nearest: Some(nearest), .. } => {
                return Some(format!("did you mean {nearest}?"));
            }
            Self::UnknownColumn { nearest: None, present, .. } => {
                return Some(format!("there are: {present}; a text is written in 'single quotes'"));
            }
            Self::NotVector { column, .. } => return Some(format!("write {column} alone")),
            Self::Vector { column, .. } => return Some(format!("compare one of its elements: {column}[0]")),
            Self::Mismatch { left: Kind::Timestamp, .. } | Self::Mismatch { right: Kind::Timestamp, .. } => {
                "a point in time is written timestamp '2026-01-01T12:30:00Z'"
            }
            Self::Mismatch { left: Kind::Text, right }
            | Self::Mismatch { left: right, right: Kind::Text }
                if matches!(right, Kind::Integer | Kind::Float) =>
            {
                "a number is written without quotes, a text with 'single quotes'"
            }
            Self::Expected { expected: Kind::Condition, .. } => "compare it with something, as in `x > 0`",
            Self::Expected { expected: Kind::Float, found: Kind::Integer } => {
                "an integer is never NaN; a missing one is null"
            }
            Self::NoCommonType { .. } => {
                "note it as a text everywhere, or with a sign and a fraction nowhere"
            }
            Self::InsideOut { .. } => "a range is low:high, without its high end",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.problem, f)
    }
}

// Has no source: this error displays the problem itself, which a source would repeat.
impl std::error::Error for ExpressionError {}

/// Why a batch cannot be evaluated: it does not match the schema that the expression was bound to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The batch lacks a column.
    #[error("the batch has no column {name:?}")]
    MissingColumn {
        /// Its name.
        name: String,
    },
    /// A column of the batch has another type than in the schema.
    #[error("column {column} has the type {found} in the batch, which differs from the schema")]
    ColumnType {
        /// The column.
        column: String,
        /// The type in the batch.
        found: String,
    },
    /// Arrow refused the values.
    #[error("column {column} cannot be read")]
    Column {
        /// The column.
        column: String,
        /// The error from Arrow.
        #[source]
        source: arrow_schema::ArrowError,
    },
}

impl EvaluateError {
    /// The error kind that all doors share.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::MissingColumn { .. } | Self::ColumnType { .. } => ErrorKind::InvalidInput,
            Self::Column { .. } => ErrorKind::Internal,
        }
    }
}

/// Shortens a text of any length, so that an error stays readable.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
