//! Entry points for the fuzzer: any bytes may come in, nothing may panic.

use crate::text::{Encoding, unescape};
use crate::transfer::{
    BinaryReader, Columns, CsvReader, JsonLinesReader, RecordReader, Tracked, TransferError,
};
use std::io::Cursor;

/// Reads the bytes as an import in the format that the first byte chooses.
///
/// Returns whether a record came out, so that a fuzzer sees that it gets past the surface.
#[must_use]
pub fn import(bytes: &[u8]) -> bool {
    let [choice, rest @ ..] = bytes else { return false };
    let source = Tracked::new(Box::new(Cursor::new(rest.to_vec())), "fuzz".to_owned());
    match choice % 4 {
        0 => read(Ok(JsonLinesReader::new(source, Default::default()))),
        1 => read(BinaryReader::new(source, Default::default())),
        2 => read(CsvReader::new(source, &columns(&[]))),
        _ => read(CsvReader::new(source, &columns(&["a", "b"]))),
    }
}

/// Reads the bytes as an escaped, hexadecimal or base64 text of the command line.
#[must_use]
pub fn text(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let encodings = [Encoding::Hex, Encoding::Base64];
    unescape(&text).is_ok() | encodings.into_iter().any(|encoding| encoding.decode(&text).is_ok())
}

fn columns(partition: &[&str]) -> Columns {
    let names: Vec<String> = partition.iter().map(|name| (*name).to_owned()).collect();
    Columns {
        sort: names.clone(),
        partition: names,
        value: Vec::new(),
        as_json: false,
        separator: "/".to_owned(),
        delimiter: b',',
    }
}

fn read(reader: Result<impl RecordReader, TransferError>) -> bool {
    let Ok(mut reader) = reader else { return false };
    let (mut records, mut end) = (0, 0);
    while let Ok(Some(parsed)) = reader.next() {
        assert!(parsed.end.offset > end, "a record that takes no bytes would never end");
        end = parsed.end.offset;
        reader.tracked().use_to(end);
        records += usize::from(parsed.record.is_ok());
    }
    let _ = reader.tracked().checksum();
    records > 0
}
