//! What can be wrong with an expression: where, why, and what would be right.
//!
//! Invariant: a span lies within the text that its error carries and begins and ends between characters.

use super::{DEPTH_MAX, LENGTH_MAX};
use atoll_errors::ErrorKind;
use std::fmt;
use std::ops::Range;

/// Why a text is no expression, or why an expression does not fit a schema.
///
/// The text that it is about is the one that was parsed; an expression that was bound is written out anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    problem: Problem,
    text: String,
    span: Range<usize>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is longer than [`LENGTH_MAX`].
    #[error("the text has {bytes} bytes; the most is {}", LENGTH_MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It nests deeper than [`DEPTH_MAX`].
    #[error("it nests more than {} deep", DEPTH_MAX)]
    TooDeep,
    /// Something else was expected there.
    #[error("{expected} was expected, but {found}")]
    Unexpected {
        /// What was found.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A character or symbol that the grammar does not know.
    #[error("`{found}` means nothing here")]
    Symbol {
        /// What was found.
        found: String,
        /// What it is called in this grammar.
        instead: Option<&'static str>,
    },
    /// Something was opened and never closed.
    #[error("{what} is never closed")]
    Unclosed {
        /// What was opened.
        what: &'static str,
    },
    /// It begins like a number and is none.
    #[error("`{text}` is not a number")]
    Number {
        /// The text.
        text: String,
    },
    /// The whole number has more than 64 bits.
    #[error("{text} is beyond the integers of 64 bits")]
    IntegerRange {
        /// The number.
        text: String,
    },
    /// The number is beyond all doubles.
    #[error("{text} is beyond the doubles")]
    FloatRange {
        /// The number.
        text: String,
    },
    /// It is not a timestamp.
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
        /// The most similar column, as it is written in an expression; none where a text is likelier.
        nearest: Option<String>,
        /// Whether it was typed in double quotes, as texts are elsewhere.
        is_text_perhaps: bool,
        /// The columns there are, as they are written in an expression, with how many more if they are too
        /// many to be read.
        present: String,
    },
    /// An element is asked for of what is no vector.
    #[error("{column} is not a vector column, but {data_type}")]
    NotVector {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The vector is shorter.
    #[error("{column} has {size} elements, counted from 0, but no element {element}")]
    NoElement {
        /// The column.
        column: String,
        /// The element asked for.
        element: u32,
        /// How many there are.
        size: u32,
    },
    /// A vector as a whole cannot be compared.
    #[error("{column} is a vector of {size}")]
    Vector {
        /// The column.
        column: String,
        /// How many elements it has.
        size: u32,
    },
    /// Expressions know nothing of this type.
    #[error("{column} has the type {data_type}, of which expressions know only `is null`")]
    Type {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// Two values of different kinds.
    #[error("{left} cannot be compared with {right}")]
    Mismatch {
        /// The one.
        left: Kind,
        /// The other.
        right: Kind,
    },
    /// A value of another kind was expected there.
    #[error("{expected} was expected, but this is {found}")]
    Expected {
        /// What would be right.
        expected: Kind,
        /// What it is.
        found: Kind,
    },
    /// `in` or `between` is asked of a condition.
    #[error("`in` and `between` take a number, a text or a timestamp, but this is {found}")]
    NoMember {
        /// What it is.
        found: Kind,
    },
    /// A point, radius or cell of `near` makes no sense.
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
    /// A range of a box that ends before it begins.
    #[error("the range begins at {low} and ends at {high}")]
    InsideOut {
        /// Where it begins.
        low: String,
        /// Where it ends.
        high: String,
    },
    /// A range of a box begins or ends with what has no place in an order.
    #[error("a range cannot begin or end with {literal}")]
    NoLimit {
        /// The literal.
        literal: String,
    },
}

/// What sort of value something is.
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
    /// `null` as it is written.
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

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// The text that it is about; empty where that is too long or too deep to be shown.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Which bytes of the text it is about.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.problem() {
            Problem::TooLong { .. } | Problem::TooDeep => ErrorKind::Limit,
            _ => ErrorKind::InvalidInput,
        }
    }

    /// What would be right, where that can be guessed.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.problem().hint()
    }

    /// The problem, the line it is in with carets under the place, and the hint: three to four lines.
    #[must_use]
    pub fn render(&self) -> String {
        let mut lines = vec![self.to_string()];
        if !self.text().is_empty() {
            lines.extend(self.pointed());
        }
        lines.extend(self.hint().map(|hint| format!("hint: {hint}")));
        lines.join("\n")
    }

    /// The neighbourhood of the span and carets below it.
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
                "an odd column name stands in \"double quotes\", a text in 'single quotes'"
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
                return Some(format!("did you mean {nearest}? a text stands in 'single quotes'"));
            }
            Self::UnknownColumn { nearest: None, is_text_perhaps: true, .. } => {
                "a text stands in 'single quotes', and only the name of a column in \"double quotes\""
            }
            Self::UnknownFunction { nearest: Some(nearest), .. }
            | Self::UnknownColumn { nearest: Some(nearest), .. } => {
                return Some(format!("did you mean {nearest}?"));
            }
            Self::UnknownColumn { nearest: None, present, .. } => {
                return Some(format!("there are: {present}; a text stands in 'single quotes'"));
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

// Without a source: the problem is what this error displays, and would be told twice.
impl std::error::Error for ExpressionError {}

/// Why a batch cannot be evaluated: it does not belong to the schema that the expression was bound to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The batch lacks a column.
    #[error("the batch has no column {name:?}")]
    MissingColumn {
        /// Its name.
        name: String,
    },
    /// A column of the batch has another type than the schema said.
    #[error("column {column} has the type {found} in the batch, which is not what the schema says")]
    ColumnType {
        /// The column.
        column: String,
        /// The type in the batch.
        found: String,
    },
    /// Arrow could not take the values.
    #[error("column {column} cannot be read")]
    Column {
        /// The column.
        column: String,
        /// What Arrow says.
        #[source]
        source: arrow_schema::ArrowError,
    },
}

impl EvaluateError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::MissingColumn { .. } | Self::ColumnType { .. } => ErrorKind::InvalidInput,
            Self::Column { .. } => ErrorKind::Internal,
        }
    }
}

/// Shortens a text that may be of any length, so that an error stays readable.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
