//! CSV: which columns make up the keys and the value, and rows as records.
//!
//! Unless columns are named, the file must have those of an export: `partition`, `sort` and `value`, each
//! plain or with the suffix `_escaped` or `_base64`.

use crate::text::Encoding;
use crate::transfer::{Parsed, Record, RecordReader, SourcePosition, Tracked, TransferError};
use atoll_row_files::ends_in_quotes;
use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::io;

/// Which columns make up a record, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Joined by `separator` they are the partition key; empty if the file has the columns of an export.
    pub(crate) partition: Vec<String>,
    /// Joined by `separator` they are the sort key; empty for the empty key.
    pub(crate) sort: Vec<String>,
    /// The columns that make up the value; empty for all columns.
    pub(crate) value: Vec<String>,
    /// Whether the value is a JSON object, even of one column.
    pub(crate) as_json: bool,
    /// Text between the parts of a key.
    pub(crate) separator: String,
    /// Byte between the fields of a row.
    pub(crate) delimiter: u8,
}

/// Reads records from CSV.
pub(crate) struct CsvReader {
    rows: Reader<Tracked>,
    start: SourcePosition,
    width: usize,
    plan: Plan,
    separator: String,
    delimiter: u8,
    row: ByteRecord,
}

/// Which fields of a row make up a record.
enum Plan {
    Export { partition: (usize, Encoding), sort: Option<(usize, Encoding)>, value: (usize, Encoding) },
    Named { partition: Vec<usize>, sort: Vec<usize>, value: ValuePlan },
}

enum ValuePlan {
    Text(usize),
    Json(Vec<(String, usize)>),
}

impl CsvReader {
    /// Reads `source` from its beginning.
    pub(crate) fn new(source: Tracked, columns: &Columns) -> Result<Self, TransferError> {
        let mut rows = rows(source, columns);
        let header = read_header(&mut rows, columns.delimiter)?;
        Self::with_header(rows, SourcePosition::default(), &header, columns)
    }

    /// Continues at `place`, with the header from the beginning of the same file.
    pub(crate) fn resume(
        header_source: Tracked,
        source: Tracked,
        place: SourcePosition,
        columns: &Columns,
    ) -> Result<Self, TransferError> {
        let header = read_header(&mut rows(header_source, columns), columns.delimiter)?;
        Self::with_header(rows(source, columns), place, &header, columns)
    }

    fn with_header(
        rows: Reader<Tracked>,
        start: SourcePosition,
        header: &[String],
        columns: &Columns,
    ) -> Result<Self, TransferError> {
        let plan = plan(header, columns).map_err(|problem| TransferError::Columns {
            file: rows.get_ref().name().to_owned(),
            problem,
            present: header.to_vec(),
        })?;
        let (width, separator, delimiter) = (header.len(), columns.separator.clone(), columns.delimiter);
        Ok(Self { rows, start, width, plan, separator, delimiter, row: ByteRecord::new() })
    }

    fn record(&self) -> Result<Record, String> {
        if self.row.len() != self.width {
            return Err(format!("{} fields where the header has {}", self.row.len(), self.width));
        }
        let field = |at: usize| self.row.get(at).unwrap_or_default();
        match &self.plan {
            Plan::Export { partition, sort, value } => Ok(Record {
                partition: decoded(field(partition.0), partition.1)?,
                sort: sort.as_ref().map_or(Ok(Vec::new()), |sort| decoded(field(sort.0), sort.1))?,
                value: decoded(field(value.0), value.1)?,
            }),
            Plan::Named { partition, sort, value } => Ok(Record {
                partition: self.joined("partition", partition)?,
                sort: self.joined("sort", sort)?,
                value: match value {
                    ValuePlan::Text(at) => field(*at).to_vec(),
                    ValuePlan::Json(columns) => self.json(columns)?,
                },
            }),
        }
    }

    /// The fields joined by the separator. If splitting the key at each separator does not give them back,
    /// they are refused: two keys could become the same.
    fn joined(&self, what: &str, columns: &[usize]) -> Result<Vec<u8>, String> {
        let fields: Vec<&[u8]> = columns.iter().map(|at| self.row.get(*at).unwrap_or_default()).collect();
        let separator = self.separator.as_bytes();
        let joined = fields.join(separator);
        if fields.len() > 1 && !is_split_into(&joined, separator, &fields) {
            return Err(format!(
                "the parts of the {what} key hold the separator \"{}\", or make it where they are joined; choose another with \
                 --separator",
                self.separator
            ));
        }
        Ok(joined)
    }

    fn json(&self, columns: &[(String, usize)]) -> Result<Vec<u8>, String> {
        let mut object = Map::new();
        for (name, at) in columns {
            let text = std::str::from_utf8(self.row.get(*at).unwrap_or_default())
                .map_err(|_| format!("column \"{name}\" is not UTF-8"))?;
            object.insert(name.clone(), Value::from(text));
        }
        serde_json::to_vec(&object).map_err(|error| error.to_string())
    }
}

/// Whether splitting the joined fields at each separator, from left to right, gives them back.
fn is_split_into(joined: &[u8], separator: &[u8], fields: &[&[u8]]) -> bool {
    let next = |rest: &[u8]| rest.windows(separator.len().max(1)).position(|part| part == separator);
    let Some((_, before_last)) = fields.split_last() else { return true };
    let mut rest = joined;
    for field in before_last {
        if next(rest) != Some(field.len()) {
            return false;
        }
        rest = rest.get(field.len() + separator.len()..).unwrap_or_default();
    }
    next(rest).is_none()
}

impl RecordReader for CsvReader {
    fn next(&mut self) -> Result<Option<Parsed>, TransferError> {
        let from = self.rows.position().clone();
        let line = self.start.lines + from.line();
        match self.rows.read_byte_record(&mut self.row) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => return Err(failure(&self.rows, error, line)),
        }
        // A row ends before the second byte of its line end; that byte and empty lines precede the next row.
        let begin = self.start.offset + from.byte();
        let line = line + self.rows.get_ref().line_ends_at(begin);
        check_quotes(self.rows.get_ref(), begin, line, self.delimiter)?;
        let position = self.rows.position();
        let end = SourcePosition {
            offset: self.start.offset + position.byte(),
            lines: self.start.lines + position.line().saturating_sub(1),
        };
        Ok(Some(Parsed { record: self.record(), line, end }))
    }

    fn tracked(&mut self) -> &mut Tracked {
        self.rows.get_mut()
    }
}

fn rows(source: Tracked, columns: &Columns) -> Reader<Tracked> {
    ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(columns.delimiter)
        .buffer_capacity(64 << 10)
        .from_reader(source)
}

/// Refuses a record whose open quote runs to the end of the file: everything after a quote that was never
/// closed would be one field.
fn check_quotes(source: &Tracked, begin: u64, line: u64, delimiter: u8) -> Result<(), TransferError> {
    // A record that is terminated is recognised before the file ends.
    if source.is_at_end() && ends_in_quotes(source.since(begin), delimiter) {
        return Err(TransferError::OpenQuote { file: source.name().to_owned(), line });
    }
    Ok(())
}

fn read_header(rows: &mut Reader<Tracked>, delimiter: u8) -> Result<Vec<String>, TransferError> {
    let mut header = ByteRecord::new();
    rows.read_byte_record(&mut header).map_err(|error| failure(rows, error, 1))?;
    check_quotes(rows.get_ref(), 0, 1, delimiter)?;
    let mut names: Vec<String> =
        header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    if let Some(first) = names.first_mut() {
        *first = first.trim_start_matches('\u{feff}').to_owned();
    }
    Ok(names)
}

fn failure(rows: &Reader<Tracked>, error: csv::Error, line: u64) -> TransferError {
    let source = match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    };
    rows.get_ref().failure(source, line)
}

fn plan(header: &[String], columns: &Columns) -> Result<Plan, String> {
    if header.iter().all(String::is_empty) {
        return Err("there is no header line".to_owned());
    }
    if columns.partition.is_empty() {
        return export_plan(header);
    }
    let place = |name: &String| {
        only(header.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at), name)?
            .ok_or_else(|| format!("there is no column \"{name}\""))
    };
    let places = |names: &[String]| names.iter().map(place).collect::<Result<Vec<_>, _>>();
    let value = match (columns.value.as_slice(), columns.as_json) {
        ([only], false) => ValuePlan::Text(place(only)?),
        ([], _) => match doubled(header) {
            None => ValuePlan::Json(header.iter().cloned().zip(0..).collect()),
            Some(name) => return Err(format!("there are two columns \"{name}\"")),
        },
        (several, _) => ValuePlan::Json(several.iter().cloned().zip(places(several)?).collect()),
    };
    Ok(Plan::Named { partition: places(&columns.partition)?, sort: places(&columns.sort)?, value })
}

/// A name that two columns share.
fn doubled(header: &[String]) -> Option<&String> {
    let mut seen = HashSet::new();
    header.iter().find(|name| !seen.insert(*name))
}

/// The position of a column, if there is exactly one; of two, one would be lost.
fn only<P>(mut places: impl Iterator<Item = P>, name: &str) -> Result<Option<P>, String> {
    let first = places.next();
    if places.next().is_some() { Err(format!("there are two columns \"{name}\"")) } else { Ok(first) }
}

fn export_plan(header: &[String]) -> Result<Plan, String> {
    let find = |name: &str| {
        let places = header.iter().enumerate().filter_map(|(at, column)| {
            let encoding = match column.strip_prefix(name)? {
                "" => Encoding::Text,
                "_escaped" => Encoding::Escaped,
                "_base64" => Encoding::Base64,
                _ => return None,
            };
            Some((at, encoding))
        });
        only(places, name)
    };
    match (find("partition")?, find("value")?) {
        (Some(partition), Some(value)) => Ok(Plan::Export { partition, sort: find("sort")?, value }),
        _ => Err("it does not have the columns of an export, and no columns were named".to_owned()),
    }
}

fn decoded(field: &[u8], encoding: Encoding) -> Result<Vec<u8>, String> {
    if encoding == Encoding::Text {
        return Ok(field.to_vec());
    }
    let text = std::str::from_utf8(field).map_err(|_| "an encoded field is not UTF-8".to_owned())?;
    encoding.decode(text).map_err(|error| error.to_string())
}

/// The header of an export in this encoding.
pub(crate) fn header(encoding: Encoding) -> [String; 3] {
    let ending = match encoding {
        Encoding::Base64 | Encoding::Hex => "_base64",
        Encoding::Text | Encoding::Escaped => "_escaped",
    };
    ["partition", "sort", "value"].map(|name| format!("{name}{ending}"))
}

/// One record as the fields of a row.
pub(crate) fn fields(record: &Record, encoding: Encoding) -> [String; 3] {
    let encoding = if encoding == Encoding::Hex { Encoding::Base64 } else { encoding };
    [&record.partition, &record.sort, &record.value].map(|bytes| encoding.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(partition: &[&str], sort: &[&str], value: &[&str]) -> Columns {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Columns {
            partition: owned(partition),
            sort: owned(sort),
            value: owned(value),
            as_json: false,
            separator: "/".to_owned(),
            delimiter: b',',
        }
    }

    fn read(text: &str, columns: &Columns) -> Result<Vec<Parsed>, TransferError> {
        let source = Tracked::new(Box::new(io::Cursor::new(text.as_bytes().to_vec())), "test".into());
        let mut reader = CsvReader::new(source, columns)?;
        std::iter::from_fn(|| reader.next().transpose()).collect()
    }

    fn texts(parsed: &Parsed) -> (String, String, String) {
        let record = parsed.record.as_ref().unwrap();
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        (text(&record.partition), text(&record.sort), text(&record.value))
    }

    #[test]
    fn named_columns_make_keys_and_values() {
        let text = "carrier,flight,hour,delay\nUA,1545,05:00,2\n\"A,A\",7,06:00,\n";
        let rows = read(text, &columns(&["carrier", "flight"], &["hour"], &["delay"])).unwrap();
        assert_eq!(texts(&rows[0]), ("UA/1545".into(), "05:00".into(), "2".into()));
        assert_eq!(texts(&rows[1]), ("A,A/7".into(), "06:00".into(), String::new()));
        assert_eq!(rows[1].end, SourcePosition { offset: text.len() as u64, lines: 3 });
        let rows = read(text, &columns(&["carrier"], &[], &["hour", "delay"])).unwrap();
        assert_eq!(texts(&rows[0]).2, r#"{"hour":"05:00","delay":"2"}"#);
    }

    #[test]
    fn bad_rows_are_named_with_their_line_and_do_not_end_the_reading() {
        let rows = read("a,b\n1,2\n\"x\ny\",2\n1\n1/2,3\n4,5\n", &columns(&["a", "b"], &[], &["b"])).unwrap();
        let problems: Vec<_> = rows.iter().map(|row| (row.line, row.record.is_ok())).collect();
        assert_eq!(problems, [(2, true), (3, true), (5, false), (6, false), (7, true)]);
        assert_eq!(rows[2].record, Err("1 fields where the header has 2".to_owned()));
        assert!(rows[3].record.as_ref().unwrap_err().contains("separator"));
    }

    #[test]
    fn parts_that_make_the_separator_where_they_are_joined_are_no_key() {
        let wanted = |separator: &str| Columns {
            separator: separator.to_owned(),
            ..columns(&["a", "b"], &[], &["c"])
        };
        // `a:::b` is the key of `a` and `:b`, and of no other parts.
        let rows = read("a,b,c\na:,b,1\na,:b,2\na,b,3\n:a,b:,4\n", &wanted("::")).unwrap();
        let kept: Vec<_> = rows.iter().map(|row| row.record.is_ok()).collect();
        assert_eq!(kept, [false, true, true, true]);
        assert_eq!([texts(&rows[1]).0, texts(&rows[3]).0], ["a:::b", ":a::b:"]);
        let rows = read("a,b,c\nx-,-y,1\nx,y,2\n", &wanted("--")).unwrap();
        assert_eq!([rows[0].record.is_ok(), rows[1].record.is_ok()], [false, true]);
        // Parts may be empty.
        let three = Columns { separator: "::".to_owned(), ..columns(&["a", "b", "c"], &[], &["c"]) };
        let rows = read("a,b,c\n,,\nx,,y\n", &three).unwrap();
        assert_eq!([texts(&rows[0]).0, texts(&rows[1]).0], ["::::", "x::::y"]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_an_error_and_takes_no_row_along() {
        let wanted = columns(&["a"], &[], &["b"]);
        let torn = read("a,b\n1,2\n\n3,\"4\n5,6\n7,8\n", &wanted).unwrap_err();
        assert_eq!(torn.to_string(), "test ends early: the record that begins on line 4 ends within quotes");
        assert_eq!(torn.kind(), atoll_errors::ErrorKind::Corrupt);
        assert!(read("a,\"b\n1,2\n", &wanted).unwrap_err().to_string().contains("line 1"));
        // A quote inside an unquoted field is an ordinary character, and the last row needs no line end.
        for whole in ["a,b\n1,2\"\n3,4", "a,b\n1,2\n3,\"4\"", "a,b\n1,2\n3,\"4\"\"\"\n"] {
            assert_eq!(read(whole, &wanted).unwrap().len(), 2, "{whole}");
        }
    }

    #[test]
    fn a_missing_or_doubled_column_is_named() {
        let problem = |text, columns| read(text, &columns).unwrap_err().to_string();
        assert_eq!(problem("a,b\n", columns(&["c"], &[], &[])), "test: there is no column \"c\"");
        assert_eq!(problem("a,a\n", columns(&["a"], &[], &[])), "test: there are two columns \"a\"");
        // With two columns of one name, a value of all columns would lose one.
        assert_eq!(problem("a,b,b\n", columns(&["a"], &[], &[])), "test: there are two columns \"b\"");
        assert_eq!(read("a,b,b,c\n1,2,3,4\n", &columns(&["a"], &[], &["c"])).unwrap().len(), 1);
        for header in ["partition,value,value\n", "partition,value,value_base64\n"] {
            assert_eq!(problem(header, columns(&[], &[], &[])), "test: there are two columns \"value\"");
        }
        assert_eq!(problem("", columns(&["a"], &[], &[])), "test: there is no header line");
        assert!(problem("a,b\n", columns(&[], &[], &[])).contains("columns of an export"));
    }
}
