//! JSON Lines: one object per line, with `partition`, `sort` and `value`, each plain or with the suffix
//! `_base64`.
//!
//! A missing `sort` is the empty sort key. A `value` that is not a string is stored as its JSON text.

use crate::transfer::{Parsed, Record, RecordReader, SourcePosition, Tracked, TransferError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Write};

/// Reads records from JSON Lines.
pub(crate) struct JsonLinesReader {
    source: BufReader<Tracked>,
    place: SourcePosition,
    line: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow, default)]
    partition: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    partition_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    sort: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    sort_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    value_base64: Option<Cow<'a, str>>,
}

/// A value that is present, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl JsonLinesReader {
    /// Reads `source` from `place` on.
    pub(crate) fn new(source: Tracked, place: SourcePosition) -> Self {
        Self { source: BufReader::with_capacity(64 << 10, source), place, line: Vec::new() }
    }
}

impl RecordReader for JsonLinesReader {
    fn next(&mut self) -> Result<Option<Parsed>, TransferError> {
        loop {
            self.line.clear();
            // One long line must not keep its memory until the end.
            self.line.shrink_to(1 << 20);
            let line = self.place.lines + 1;
            let read = self.source.read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| self.source.get_ref().failure(error, line))?;
            if read == 0 {
                return Ok(None);
            }
            self.place = SourcePosition { offset: self.place.offset + read as u64, lines: line };
            let first_bom = line == 1 && self.line.starts_with(b"\xef\xbb\xbf");
            let text = if first_bom { &self.line[3..] } else { &self.line[..] }.trim_ascii();
            if !text.is_empty() {
                return Ok(Some(Parsed { record: parse_line(text), line, end: self.place }));
            }
        }
    }

    fn tracked(&mut self) -> &mut Tracked {
        self.source.get_mut()
    }
}

fn parse_line(text: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(text)
        .map_err(|error| format!("not UTF-8 at column {}", error.valid_up_to() + 1))?;
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    let partition = key("partition", line.partition, line.partition_base64)?;
    let sort = key("sort", line.sort, line.sort_base64)?;
    Ok(Record {
        partition: partition.ok_or("field \"partition\" is missing")?,
        sort: sort.unwrap_or_default(),
        value: value(line.value, line.value_base64)?,
    })
}

/// The problem without the parser's line number: it only ever sees one line.
fn json_problem(error: &serde_json::Error) -> String {
    let problem = error.to_string().replace(" at line 1 column ", " at column ");
    if error.is_data() { problem } else { format!("not JSON: {problem}") }
}

fn key(
    name: &str,
    text: Option<Cow<'_, str>>,
    base64: Option<Cow<'_, str>>,
) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("fields \"{name}\" and \"{name}_base64\" exclude each other")),
        (Some(text), None) => Ok(Some(text.into_owned().into_bytes())),
        (None, Some(text)) => decode_base64(name, &text).map(Some),
        (None, None) => Ok(None),
    }
}

fn value(raw: Option<&RawValue>, base64: Option<Cow<'_, str>>) -> Result<Vec<u8>, String> {
    match (raw, base64) {
        (Some(_), Some(_)) => Err("fields \"value\" and \"value_base64\" exclude each other".to_owned()),
        (None, None) => Err("field \"value\" is missing".to_owned()),
        (None, Some(text)) => decode_base64("value", &text),
        (Some(raw), None) if raw.get().starts_with('"') => serde_json::from_str::<String>(raw.get())
            .map(String::into_bytes)
            .map_err(|error| json_problem(&error)),
        (Some(raw), None) => Ok(raw.get().as_bytes().to_vec()),
    }
}

fn decode_base64(name: &str, text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("field \"{name}_base64\" is not base64: {error}"))
}

/// Writes one record as one line.
pub(crate) fn write_line(record: &Record, target: &mut dyn Write) -> io::Result<()> {
    target.write_all(b"{")?;
    write_field("partition", &record.partition, target)?;
    target.write_all(b",")?;
    write_field("sort", &record.sort, target)?;
    target.write_all(b",")?;
    write_field("value", &record.value, target)?;
    target.write_all(b"}\n")
}

fn write_field(name: &str, bytes: &[u8], target: &mut dyn Write) -> io::Result<()> {
    match std::str::from_utf8(bytes) {
        // Control characters take six bytes in JSON; a value full of them would exceed the longest line.
        Ok(text) if !text.bytes().any(|byte| byte < 32 && !b"\n\r\t".contains(&byte)) => {
            write!(target, "\"{name}\":")?;
            serde_json::to_writer(target, text).map_err(io::Error::from)
        }
        _ => write!(target, "\"{name}_base64\":\"{}\"", STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: &str) -> String {
        parse_line(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn any_bytes_survive_a_line() {
        let mut random = fastrand::Rng::with_seed(9);
        for _ in 0..1000 {
            let mut bytes = || (0..random.usize(1..12)).map(|_| random.u8(..)).collect::<Vec<_>>();
            let record = Record { partition: bytes(), sort: bytes(), value: bytes() };
            let mut line = Vec::new();
            write_line(&record, &mut line).unwrap();
            assert_eq!(parse_line(&line), Ok(record));
        }
    }

    #[test]
    fn values_that_are_no_text_keep_their_json() {
        let record = parse_line(br#"{"partition":"p","value":{"a": 1.50}}"#).unwrap();
        assert_eq!((record.sort.as_slice(), record.value.as_slice()), (&b""[..], &br#"{"a": 1.50}"#[..]));
        assert_eq!(parse_line(br#"{"partition":"p","value":null}"#).unwrap().value, b"null");
    }

    #[test]
    fn a_bad_line_says_what_is_wrong_with_it() {
        assert_eq!(problem(r#"{"sort":"s","value":""}"#), "field \"partition\" is missing");
        assert_eq!(problem(r#"{"partition":"p"}"#), "field \"value\" is missing");
        assert!(problem(r#"{"partition":"p","valeu":""}"#).starts_with("unknown field `valeu`"));
        assert!(problem(r#"{"partition":"p","value":"#).starts_with("not JSON: EOF while parsing"));
        assert!(problem(r#"{"partition":"p","value_base64":"!"}"#).contains("is not base64"));
        assert!(
            problem(r#"{"partition":"p","partition_base64":"cA==","value":""}"#)
                .contains("exclude each other")
        );
    }
}
