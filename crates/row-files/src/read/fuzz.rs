//! Readers of bytes in memory, for the fuzzer.

use super::source::RecordStream;
use super::text::{Records, TextReader};
use super::{ReadOptions, csv_file, dump, infer, json_lines, numpy as arrays};
use crate::RowReader;
use std::sync::Arc;

/// A text format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Csv,
    Dump,
    JsonLines,
}

/// A reader of the bytes, with the columns that the file itself declares.
pub(crate) fn text_reader(source: Source, bytes: &[u8]) -> Option<Box<dyn RowReader>> {
    let options = ReadOptions { skip_bad: 3, ..ReadOptions::default() };
    let kept = || RecordStream::of(bytes.to_vec());
    let name = || "fuzz".to_owned();
    match source {
        Source::Csv => reader(|| csv_file::CsvRecords::new(name(), kept(), &options).ok(), &options),
        Source::JsonLines => reader(|| json_lines::JsonLines::new(name(), kept(), &options).ok(), &options),
        Source::Dump => reader(|| dump::Dump::new(name(), kept(), &options).ok(), &options),
    }
}

fn reader<R: Records + 'static>(
    open: impl Fn() -> Option<R>,
    options: &ReadOptions,
) -> Option<Box<dyn RowReader>> {
    let columns = Arc::new(infer::columns(open()?, options).ok()?);
    Some(Box::new(TextReader::new(open()?, &columns, options).ok()?))
}

/// Reads the bytes as a NumPy array. Returns whether it has any row.
pub(crate) fn numpy(bytes: &[u8]) -> bool {
    arrays::read_bytes(bytes).is_some_and(|columns| columns > 0)
}
