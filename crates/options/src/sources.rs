//! Sources of values: texts of files, pairs from the environment, flags.

use crate::OptionsError;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere; it is the default.
    Default,
    /// In a file.
    File {
        /// Its name.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// In the environment.
    Environment {
        /// The variable.
        variable: String,
    },
    /// On the command line.
    Flag {
        /// The flag.
        flag: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, line } => write!(f, "{name}, line {line}"),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}

/// The text of one TOML file.
#[derive(Clone, Copy, Debug)]
pub struct TomlText<'a> {
    /// The name of the file in errors.
    pub name: &'a str,
    /// Its contents.
    pub text: &'a str,
}

/// One value that one source sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Dotted key.
    pub key: String,
    /// The value as text.
    pub text: String,
    /// Where it was set.
    pub origin: Origin,
}

/// All layers above the defaults, weakest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// Files; a later one wins over an earlier one.
    pub files: &'a [TomlText<'a>],
    /// Pairs from the environment; those that do not start with `ATOLL_` are ignored.
    pub environment: &'a [(String, String)],
    /// Variables with the prefix that are not options, but have a meaning for the program.
    pub reserved_variables: &'a [&'a str],
    /// Flags, by the key they set.
    pub flags: &'a [Assignment],
}

/// The prefix of all variables of Atoll.
pub(crate) const PREFIX: &str = "ATOLL_";

/// The variable that sets `key`: `engine.memory` is `ATOLL_ENGINE_MEMORY`.
#[must_use]
pub fn environment_name(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

/// Parses a TOML text into assignments with their lines.
///
/// # Errors
/// The place and nature of the first fault.
pub fn parse_toml(file: TomlText<'_>) -> Result<Vec<Assignment>, OptionsError> {
    let table = DeTable::parse(file.text).map_err(|error| {
        let (line, column) = position(file.text, error.span().map_or(0, |span| span.start));
        OptionsError::Syntax {
            file: file.name.to_owned(),
            line,
            column,
            problem: error.message().trim().replace('\n', "; "),
        }
    })?;
    let mut assignments = Vec::new();
    flatten(file, table.get_ref(), "", &mut assignments)?;
    Ok(assignments)
}

/// Walks the tables; their depth is bounded by the TOML parser.
fn flatten(
    file: TomlText<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    assignments: &mut Vec<Assignment>,
) -> Result<(), OptionsError> {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        let (line, _) = position(file.text, name.span().start);
        let origin = Origin::File { name: file.name.to_owned(), line };
        let found = match value.get_ref() {
            DeValue::Table(inner) => {
                flatten(file, inner, &format!("{key}."), assignments)?;
                continue;
            }
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.to_string()),
            DeValue::Boolean(truth) => Ok(truth.to_string()),
            DeValue::Array(_) => Err("a list"),
            DeValue::Datetime(_) => Err("a date"),
        };
        match found {
            Ok(text) => assignments.push(Assignment { key, text, origin }),
            Err(found) => return Err(OptionsError::NotSingle { key, origin, found }),
        }
    }
    Ok(())
}

/// Line and column in characters of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}
