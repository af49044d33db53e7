//! CSV, with a header line.

use super::ReadOptions;
use super::source::{Input, Kept};
use super::text::Records;
use crate::{Format, RowFileError};
use csv::{ByteRecord, Reader, ReaderBuilder};
use std::io;

/// The records of a CSV file.
pub(super) struct Comma {
    file: String,
    rows: Reader<Kept>,
    delimiter: u8,
    names: Vec<String>,
    row: ByteRecord,
    /// Where the record begins: bytes before it, and the line as far as the reader had counted.
    from: (u64, u64),
}

impl Comma {
    pub(super) fn open(input: &Input, options: &ReadOptions) -> Result<Self, RowFileError> {
        Self::new(input.name(), input.stream()?, options)
    }

    pub(super) fn new(file: String, source: Kept, options: &ReadOptions) -> Result<Self, RowFileError> {
        let mut rows = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(options.delimiter)
            .buffer_capacity(64 << 10)
            .from_reader(source);
        let mut header = ByteRecord::new();
        rows.read_byte_record(&mut header).map_err(|error| failure(&file, error))?;
        let names: Vec<String> =
            header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        let mut comma =
            Self { file, rows, delimiter: options.delimiter, names, row: ByteRecord::new(), from: (0, 1) };
        if let Some(first) = comma.names.first_mut() {
            *first = first.trim_start_matches('\u{feff}').to_owned();
        }
        if comma.names.iter().all(String::is_empty) {
            let problem = "there is no header line".to_owned();
            return Err(RowFileError::Malformed { file: comma.file, format: Format::Csv, problem });
        }
        Ok(comma)
    }
}

impl Comma {
    /// Refuses a last record that ends within quotes: the file was cut, or a quote was never closed.
    fn check_quotes(&self) -> Result<(), RowFileError> {
        if !ends_in_quotes(self.rows.get_ref().since(self.from.0), self.delimiter) {
            return Ok(());
        }
        let problem = format!("the record that begins on line {} ends within quotes", self.line());
        Err(RowFileError::Torn { file: self.file.clone(), problem })
    }
}

/// Whether a record of a CSV file ends within a field in quotes. A quote within a field that does not begin with one is
/// a letter.
#[must_use]
pub fn ends_in_quotes(record: &[u8], delimiter: u8) -> bool {
    let (mut is_start, mut is_quoted, mut was_quote) = (true, false, false);
    for &byte in record {
        if is_quoted {
            // Two quotes are one that belongs to the text; one ends the quoted part.
            match (byte, was_quote) {
                (b'"', _) => was_quote = !was_quote,
                (_, true) => {
                    (is_quoted, was_quote) = (false, false);
                    is_start = byte == delimiter || b"\r\n".contains(&byte);
                }
                _ => {}
            }
        } else {
            is_quoted = is_start && byte == b'"';
            is_start = byte == delimiter || b"\r\n".contains(&byte);
        }
    }
    is_quoted && !was_quote
}

impl Records for Comma {
    fn file(&self) -> &str {
        &self.file
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn advance(&mut self) -> Result<bool, RowFileError> {
        let position = self.rows.position();
        self.from = (position.byte(), position.line());
        self.rows.get_mut().use_to(self.from.0);
        let is_record =
            self.rows.read_byte_record(&mut self.row).map_err(|error| failure(&self.file, error))?;
        // A record that has an end is known before the file ends; within quotes everything is one field.
        if is_record && self.rows.get_ref().is_at_end() {
            self.check_quotes()?;
        }
        Ok(is_record)
    }

    fn len(&self) -> usize {
        self.row.len()
    }

    fn field(&self, place: usize) -> &[u8] {
        self.row.get(place).unwrap_or_default()
    }

    /// A record ends before the second byte of its line end; that one and empty lines come before the next.
    fn line(&self) -> u64 {
        self.from.1 + self.rows.get_ref().line_ends_at(self.from.0)
    }

    fn bytes_read(&self) -> u64 {
        self.rows.get_ref().bytes_read()
    }
}

fn failure(file: &str, error: csv::Error) -> RowFileError {
    let source = match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    };
    RowFileError::Read { file: file.to_owned(), source }
}
