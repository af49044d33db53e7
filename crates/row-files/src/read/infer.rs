//! Inference of column types in text files: the narrowest type that all inspected fields admit.
//!
//! Invariant: no value is kept, so that many records take no more memory than one.

use super::ReadOptions;
use super::field::{boolean, date, float, instant, integer};
use super::text::Records;
use crate::RowFileError;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use atoll_errors::nearest;
use std::collections::HashMap;

/// The metadata key of a column that has no value in the file: its type is assumed to be text, not known to
/// be.
pub const NO_VALUE_KEY: &str = "atoll.no_value";

/// The most records that are inspected.
const RECORDS_MAX: usize = 100_000;

/// The most columns of a file. A table has far fewer, but others of the file may be left out.
const NAMES_MAX: usize = 1 << 15;

/// A type that a column may have.
struct Candidate {
    data_type: DataType,
    /// Whether a text without white space around it has a value of the type.
    has_value: fn(&str) -> bool,
}

/// The types of columns, from narrow to wide; text is always possible.
fn candidates() -> [Candidate; 7] {
    let instants = |unit: TimeUnit| DataType::Timestamp(unit, Some("UTC".into()));
    [
        Candidate { data_type: DataType::Int64, has_value: |text| integer::<i64>(text).is_some() },
        Candidate { data_type: DataType::UInt64, has_value: |text| integer::<u64>(text).is_some() },
        Candidate { data_type: DataType::Float64, has_value: |text| float::<f64>(text).is_some() },
        Candidate { data_type: DataType::Boolean, has_value: |text| boolean(text).is_some() },
        Candidate { data_type: DataType::Date32, has_value: |text| date(text).is_some() },
        Candidate {
            data_type: instants(TimeUnit::Microsecond),
            has_value: |text| instant::<1_000>(text).is_some(),
        },
        Candidate {
            data_type: instants(TimeUnit::Nanosecond),
            has_value: |text| instant::<1>(text).is_some(),
        },
    ]
}

/// The columns of a text file, under their new names.
pub(super) fn columns(mut records: impl Records, options: &ReadOptions) -> Result<Schema, RowFileError> {
    if records.names().len() > NAMES_MAX {
        let (file, columns) = (records.file(), records.names().len());
        return Err(RowFileError::Unsupported {
            what: format!("{file} has {columns} columns; up to {NAMES_MAX} are read"),
            hint: "is its first line a header? write a file with only the columns that the table should have",
        });
    }
    let names = options.all_renamed(records.file(), records.names().iter().map(String::as_str))?;
    check_named(records.file(), &names, options)?;
    let candidates = candidates();
    // One bit for each candidate that all texts of the column admit.
    let mut possible = vec![u8::MAX; names.len()];
    let mut has_value = vec![false; names.len()];
    let mut seen = 0;
    while seen < RECORDS_MAX {
        match records.advance() {
            Ok(true) => seen += 1,
            Ok(false) => break,
            // The records so far of a file that is still being written tell its columns.
            Err(RowFileError::Torn { .. }) if seen > 0 && records.tells_columns_early() => break,
            Err(error) => return Err(error),
        }
        // Bad records are reported when the file is read. Fields of one that has too few or too many may
        // stand in a place that is not theirs.
        if records.problem().is_some() || records.len() != names.len() {
            continue;
        }
        for place in 0..names.len() {
            let Ok(text) = std::str::from_utf8(records.field(place)) else { continue };
            if text.is_empty() || options.null.as_deref() == Some(text) {
                continue;
            }
            has_value[place] = true;
            let is_quoted = records.is_quoted(place);
            for (bit, candidate) in candidates.iter().enumerate() {
                if possible[place] & (1 << bit) != 0 && !candidate.admits(text, is_quoted) {
                    possible[place] &= !(1 << bit);
                }
            }
        }
    }
    let fields = names.iter().zip(possible).zip(has_value).map(|((name, possible), has_value)| {
        let named = options.types.iter().find(|(column, _)| column == name);
        if let Some((_, data_type)) = named {
            return Field::new(name, data_type.clone(), true);
        }
        let narrowest = candidates.get(possible.trailing_zeros() as usize);
        let guessed = narrowest.map_or(DataType::Utf8, |candidate| candidate.data_type.clone());
        match has_value {
            true => Field::new(name, guessed, true),
            false => {
                let mark = HashMap::from([(NO_VALUE_KEY.to_owned(), String::new())]);
                Field::new(name, DataType::Utf8, true).with_metadata(mark)
            }
        }
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

impl Candidate {
    /// Whether a text stands for a value of the type, and not merely resembles one. A quoted text is not a
    /// number, except for those that JSON cannot write otherwise.
    fn admits(&self, text: &str, is_quoted: bool) -> bool {
        let is_like_one = match &self.data_type {
            // 0 and 1 are taken for numbers.
            DataType::Boolean => !is_quoted && !matches!(text, "0" | "1"),
            // An integer that is written like a float, such as 3.0, counts as a float.
            DataType::Int64 | DataType::UInt64 => !is_quoted && digits(text).is_some() && !is_numbered(text),
            DataType::Float64 if is_quoted => text.parse().is_ok_and(|number: f64| !number.is_finite()),
            DataType::Float64 => !is_numbered(text) && is_given_back(text),
            DataType::Date32 => is_day(text),
            DataType::Timestamp(..) => text.len() > 10 && !is_day(text),
            _ => true,
        };
        is_like_one && (self.has_value)(text.trim())
    }
}

/// Whether a text for an instant is a date without a time: a four-digit year has a fixed length, and a signed
/// year has no time separator.
fn is_day(text: &str) -> bool {
    text.len() == 10 || (text.starts_with(['+', '-']) && !text.contains(['T', 't', ' ']))
}

/// The digits of a text that consists of digits and an optional sign.
fn digits(text: &str) -> Option<&str> {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

/// Whether it is an identifier made of digits, such as 007, which a number would not distinguish from others.
fn is_numbered(text: &str) -> bool {
    digits(text).is_some_and(|digits| digits.len() > 1 && digits.starts_with('0'))
}

/// Whether an integer survives the conversion to a double.
fn is_given_back(text: &str) -> bool {
    digits(text).is_none_or(|digits| digits.parse().is_ok_and(|number: f64| format!("{number:.0}") == digits))
}

/// Refuses types that are given for columns that do not exist.
pub(super) fn check_named(file: &str, names: &[String], options: &ReadOptions) -> Result<(), RowFileError> {
    let unknown = options.types.iter().find(|(column, _)| !names.contains(column));
    match unknown {
        None => Ok(()),
        Some((column, _)) => Err(RowFileError::Missing {
            file: file.to_owned(),
            column: column.clone(),
            nearest: nearest(column, names.iter().map(String::as_str)).map(str::to_owned),
            present: names.to_vec(),
        }),
    }
}
