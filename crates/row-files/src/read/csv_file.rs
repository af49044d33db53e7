//! CSV with a header line. A quoted empty field is an empty text; an unquoted one may stand for no value.

use super::ReadOptions;
use super::source::{Input, RecordStream};
use super::text::Records;
use crate::{Format, RowFileError};
use csv::{ByteRecord, Reader, ReaderBuilder};
use std::io;

/// The records of a CSV file.
pub(super) struct CsvRecords {
    file: String,
    rows: Reader<RecordStream>,
    delimiter: u8,
    names: Vec<String>,
    row: ByteRecord,
    /// Which fields of the record begin with a quote; empty where that does not matter.
    quoted: Vec<bool>,
    /// Where the record begins: its byte offset, and its line as far as the reader has counted.
    from: (u64, u64),
}

impl CsvRecords {
    pub(super) fn open(input: &Input, options: &ReadOptions) -> Result<Self, RowFileError> {
        Self::new(input.name(), input.stream(Format::Csv)?, options)
    }

    pub(super) fn new(
        file: String,
        source: RecordStream,
        options: &ReadOptions,
    ) -> Result<Self, RowFileError> {
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
        let mut records = Self {
            file,
            rows,
            delimiter: options.delimiter,
            names,
            row: ByteRecord::new(),
            quoted: Vec::new(),
            from: (0, 1),
        };
        if let Some(first) = records.names.first_mut() {
            *first = first.trim_start_matches('\u{feff}').to_owned();
        }
        if records.names.iter().all(String::is_empty) {
            return Err(RowFileError::Header { file: records.file });
        }
        Ok(records)
    }
}

impl CsvRecords {
    /// Refuses a last record that ends inside quotes: the file was cut off, or a quote was never closed.
    fn check_quotes(&self) -> Result<(), RowFileError> {
        if !ends_in_quotes(self.rows.get_ref().since(self.from.0), self.delimiter) {
            return Ok(());
        }
        let problem = format!("the record that begins on line {} ends within quotes", self.line());
        Err(RowFileError::Torn { file: self.file.clone(), problem })
    }
}

impl CsvRecords {
    /// Finds quoted fields where they matter, which is seldom.
    fn note_quotes(&mut self) {
        self.quoted.clear();
        if self.row.iter().all(|field| !field.is_empty()) {
            return;
        }
        let length = self.rows.position().byte().saturating_sub(self.from.0);
        let kept = self.rows.get_ref().since(self.from.0);
        let record = &kept[..usize::try_from(length).unwrap_or(usize::MAX).min(kept.len())];
        if record.contains(&b'"') {
            self.quoted = quoted_fields(record, self.delimiter);
        }
    }
}

/// The state of a CSV scanner within a record. A quote inside a field that does not begin with one is a plain
/// character.
struct Quotes {
    delimiter: u8,
    is_start: bool,
    is_quoted: bool,
    was_quote: bool,
}

impl Quotes {
    const fn new(delimiter: u8) -> Self {
        Self { delimiter, is_start: true, is_quoted: false, was_quote: false }
    }

    fn pass(&mut self, byte: u8) {
        let is_end = byte == self.delimiter || b"\r\n".contains(&byte);
        if self.is_quoted {
            // A doubled quote is one quote of the text; a single one ends the quoted part.
            match (byte, self.was_quote) {
                (b'"', _) => self.was_quote = !self.was_quote,
                (_, true) => {
                    (self.is_quoted, self.was_quote) = (false, false);
                    self.is_start = is_end;
                }
                _ => {}
            }
        } else {
            self.is_quoted = self.is_start && byte == b'"';
            self.is_start = is_end;
        }
    }
}

/// Whether a CSV record ends inside a quoted field. A quote inside a field that does not begin with one is a
/// plain character.
#[must_use]
pub fn ends_in_quotes(record: &[u8], delimiter: u8) -> bool {
    let mut quotes = Quotes::new(delimiter);
    record.iter().for_each(|&byte| quotes.pass(byte));
    quotes.is_quoted && !quotes.was_quote
}

/// Which fields of a record begin with a quote; an empty last field may be missing from the result.
fn quoted_fields(record: &[u8], delimiter: u8) -> Vec<bool> {
    // Skips the rest of the line end before the record, and empty lines.
    let start = record.iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let mut quotes = Quotes::new(delimiter);
    let mut fields = Vec::new();
    for &byte in &record[start..] {
        if quotes.is_start && !quotes.is_quoted {
            fields.push(byte == b'"');
        }
        quotes.pass(byte);
    }
    fields
}

impl Records for CsvRecords {
    fn file(&self) -> &str {
        &self.file
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn advance(&mut self) -> Result<bool, RowFileError> {
        let position = self.rows.position();
        self.from = (position.byte(), position.line());
        self.rows.get_mut().release_to(self.from.0);
        let is_record =
            self.rows.read_byte_record(&mut self.row).map_err(|error| failure(&self.file, error))?;
        // A terminated record is returned before the end of the file is noticed; an open quote swallows
        // everything up to that end.
        if is_record && self.rows.get_ref().is_at_end() {
            self.check_quotes()?;
        }
        self.note_quotes();
        Ok(is_record)
    }

    fn len(&self) -> usize {
        self.row.len()
    }

    fn field(&self, place: usize) -> &[u8] {
        self.row.get(place).unwrap_or_default()
    }

    /// A line with a single empty field must be quoted to be a record at all, so the quotes mean nothing
    /// there.
    fn is_empty_text(&self, place: usize) -> bool {
        self.names.len() > 1 && self.quoted.get(place).copied().unwrap_or(false)
    }

    fn is_cut(&self) -> bool {
        let kept = self.rows.get_ref();
        kept.is_at_end() && kept.since(self.from.0).last().is_some_and(|last| !b"\r\n".contains(last))
    }

    /// The reader ends a record before the second byte of its line end; that byte and empty lines precede the
    /// next.
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
