//! What can be wrong with options, where, and what would be right.

use crate::Origin;
use atoll_errors::ErrorKind;

/// Why a text is not a value of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Nothing was given.
    #[error("it is empty; {expected} was expected")]
    Empty {
        /// What would be right.
        expected: &'static str,
    },
    /// The text does not have the form.
    #[error("\"{text}\" is not {expected}")]
    Form {
        /// The text, shortened when it is long.
        text: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The number has no unit, and without one it could mean several things.
    #[error("\"{text}\" has no unit; {expected} was expected")]
    NoUnit {
        /// The text.
        text: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The unit is not known.
    #[error("\"{unit}\" is not a unit; {expected} was expected")]
    Unit {
        /// The unit found.
        unit: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The number is too large.
    #[error("\"{text}\" is too large; the most is {max}")]
    TooLarge {
        /// The text.
        text: String,
        /// The largest value.
        max: String,
    },
    /// The fraction is finer than the smallest unit.
    #[error("\"{text}\" is not a whole number of {unit}")]
    TooFine {
        /// The text.
        text: String,
        /// The smallest unit.
        unit: &'static str,
    },
}

/// Shortens a long text, so that an error stays readable.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Why options cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The file is not TOML.
    #[error("{file}, line {line}, column {column}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What the TOML parser found.
        problem: String,
    },
    /// No component declares this key.
    #[error("{origin}: there is no option \"{key}\"")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// Where it was written.
        origin: Origin,
        /// The most similar key that exists, in the notation of the origin.
        nearest: Option<String>,
    },
    /// A list, table or date stands where a single value belongs.
    #[error("{origin}: option \"{key}\" is {found}, but a single value belongs there")]
    NotSingle {
        /// The key.
        key: String,
        /// Where it was written.
        origin: Origin,
        /// What was found.
        found: &'static str,
    },
    /// The value does not have the type of the option.
    #[error("{origin}: option \"{key}\" cannot be used")]
    Value {
        /// The key.
        key: String,
        /// Where it was written.
        origin: Origin,
        /// What is wrong with it.
        #[source]
        source: ValueError,
    },
    /// A program asked for an option that its schema does not have: a bug of that program.
    #[error("option \"{key}\" was asked for but never declared")]
    Undeclared {
        /// The key.
        key: String,
    },
}

impl OptionsError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Undeclared { .. } => ErrorKind::Internal,
            _ => ErrorKind::InvalidInput,
        }
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { nearest: Some(nearest), .. } => Some(format!("did you mean \"{nearest}\"?")),
            Self::UnknownKey { nearest: None, .. } => {
                Some("`atoll config show` lists every option".to_owned())
            }
            Self::NotSingle { key, .. } => Some(format!("write it as {key} = \"...\"")),
            Self::Syntax { .. } => {
                Some("the file must be TOML: one `key = value` a line, texts in quotes".into())
            }
            Self::Value { .. } => {
                Some("`atoll config show --json` shows its default and its purpose".to_owned())
            }
            Self::Undeclared { .. } => None,
        }
    }
}
