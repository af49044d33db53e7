//! JSON Lines: one object a line, whose members are the fields.
//!
//! A list of numbers is a vector: its elements are fields `name[0]`, `name[1]` and so on, as in a CSV file; null in its
//! place is a vector without values, and no field of its own. The names are those of the first records; a member that
//! is missing has no value, and an empty text is a text.
//!
//! Invariant: a line that is cut at the end of the file is a bad record, never a shorter one, nor one that is passed
//! over.

use super::ReadOptions;
use super::source::{Input, Kept};
use super::text::Records;
use crate::{Format, RowFileError};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader};

/// How many records tell the names: what is missing in the first may be there in the next.
const NAMING_RECORDS: usize = 1000;

/// The records of a file.
pub(super) struct JsonLines {
    file: String,
    lines: BufReader<Kept>,
    /// Lines that were read.
    read: u64,
    /// Records that were read to learn the names, and are still to come.
    ahead: VecDeque<Numbered>,
    names: Vec<String>,
    places: HashMap<String, usize>,
    /// The names that have no value in the first records.
    nulls: HashSet<String>,
    ignore_extra: bool,
    /// Whether the last line that was read has no end.
    is_open: bool,
    /// The record: its line, and a text for each name; none for null and for a member that is missing.
    line: u64,
    fields: Vec<Option<Vec<u8>>>,
    problem: Option<String>,
}

/// Names and texts of one record; none for null.
type Fields = Vec<(String, Option<Vec<u8>>)>;

/// A line's number, and its fields or what is wrong with it.
type Numbered = (u64, Result<Fields, String>);

impl JsonLines {
    pub(super) fn open(input: &Input, options: &ReadOptions) -> Result<Self, RowFileError> {
        Self::new(input.name(), input.stream()?, options)
    }

    pub(super) fn new(file: String, source: Kept, options: &ReadOptions) -> Result<Self, RowFileError> {
        let mut records = Self {
            file,
            lines: BufReader::with_capacity(64 << 10, source),
            read: 0,
            ahead: VecDeque::new(),
            names: Vec::new(),
            places: HashMap::new(),
            nulls: HashSet::new(),
            ignore_extra: options.ignore_extra,
            is_open: false,
            line: 0,
            fields: Vec::new(),
            problem: None,
        };
        records.learn_names()?;
        if records.names.is_empty() {
            let problem = records.ahead.iter().find_map(|(line, record)| {
                record.as_ref().err().map(|problem| format!("line {line}: {problem}"))
            });
            let problem = problem.unwrap_or_else(|| "there is no record in it".to_owned());
            return Err(RowFileError::Malformed { file: records.file, format: Format::JsonLines, problem });
        }
        Ok(records)
    }

    /// Reads the first records for their names. What is only ever null has the name of a vector where there is one.
    fn learn_names(&mut self) -> Result<(), RowFileError> {
        let (mut names, mut seen, mut filled) = (Vec::new(), HashSet::new(), HashSet::new());
        while self.ahead.len() < NAMING_RECORDS {
            let Some(record) = self.read_record()? else { break };
            for (name, text) in record.1.iter().flatten() {
                if seen.insert(name.clone()) {
                    names.push(name.clone());
                }
                if text.is_some() && !filled.contains(name) {
                    filled.insert(name.clone());
                }
            }
            self.ahead.push_back(record);
        }
        names.retain(|name| filled.contains(name) || !seen.contains(&first_element(name)));
        self.nulls = names.iter().filter(|name| !filled.contains(*name)).cloned().collect();
        self.name(names);
        Ok(())
    }

    fn name(&mut self, names: Vec<String>) {
        self.places = names.iter().enumerate().map(|(place, name)| (name.clone(), place)).collect();
        self.names = names;
    }

    /// The same, where what is only null in the first records may be vectors: only who wants them knows how long they
    /// are.
    pub(super) fn with_vectors(mut self, wanted: &Schema) -> Self {
        let mut names = Vec::with_capacity(self.names.len());
        for name in std::mem::take(&mut self.names) {
            let field = wanted.field_with_name(&name).ok().filter(|_| self.nulls.contains(&name));
            match field.map(Field::data_type) {
                Some(DataType::FixedSizeList(_, len)) => {
                    names.extend((0..*len).map(|element| format!("{name}[{element}]")));
                }
                _ => names.push(name),
            }
        }
        self.name(names);
        self
    }

    /// The next line that is not empty, as a record; none at the end.
    fn read_record(&mut self) -> Result<Option<Numbered>, RowFileError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let consumed = self.lines.read_until(b'\n', &mut line);
            let consumed =
                consumed.map_err(|source| RowFileError::Read { file: self.file.clone(), source })?;
            if consumed == 0 {
                return Ok(None);
            }
            let read = self.lines.get_ref().bytes_read();
            self.lines.get_mut().use_to(read);
            self.read += 1;
            self.is_open = !line.ends_with(b"\n");
            if !line.trim_ascii().is_empty() {
                return Ok(Some((self.read, fields_of(&line))));
            }
        }
    }

    /// Lays the fields of a record out by the names.
    fn take(&mut self, record: Fields) -> Result<(), String> {
        self.fields.clear();
        self.fields.resize(self.names.len(), None);
        for (name, text) in record {
            match self.places.get(&name) {
                Some(&place) => self.fields[place] = text,
                None if self.ignore_extra => {}
                // A vector that is null.
                None if text.is_none() && self.places.contains_key(&first_element(&name)) => {}
                None => return Err(format!("a member \"{name}\", which none of the first records has")),
            }
        }
        Ok(())
    }
}

/// What the first element of a vector is called.
fn first_element(name: &str) -> String {
    format!("{name}[0]")
}

fn fields_of(line: &[u8]) -> Result<Fields, String> {
    // A byte order mark is no JSON, and some programs write one.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let record: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("it is no JSON object: {error}"))?;
    let mut fields = Vec::with_capacity(record.len());
    for (name, value) in record {
        match value {
            Value::Array(elements) => {
                for (place, element) in elements.iter().enumerate() {
                    fields.push((format!("{name}[{place}]"), text_of(&name, element)?));
                }
            }
            value => {
                let text = text_of(&name, &value)?;
                fields.push((name, text));
            }
        }
    }
    Ok(fields)
}

fn text_of(name: &str, value: &Value) -> Result<Option<Vec<u8>>, String> {
    Ok(match value {
        Value::Null => None,
        Value::Bool(value) => Some(value.to_string().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Array(_) | Value::Object(_) => {
            return Err(format!("\"{name}\" holds lists or objects within, which no column can hold"));
        }
    })
}

impl Records for JsonLines {
    fn file(&self) -> &str {
        &self.file
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn advance(&mut self) -> Result<bool, RowFileError> {
        let next = match self.ahead.pop_front() {
            Some(record) => Some(record),
            None => self.read_record()?,
        };
        let Some((line, record)) = next else { return Ok(false) };
        self.line = line;
        self.problem = record.and_then(|record| self.take(record)).err();
        Ok(true)
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn field(&self, place: usize) -> &[u8] {
        self.fields.get(place).and_then(Option::as_deref).unwrap_or_default()
    }

    fn is_absent(&self, place: usize) -> bool {
        self.fields.get(place).is_none_or(Option::is_none)
    }

    fn is_empty_text(&self, place: usize) -> bool {
        !self.is_absent(place)
    }

    fn is_cut(&self) -> bool {
        self.is_open && self.line == self.read
    }

    fn line(&self) -> u64 {
        self.line
    }

    fn bytes_read(&self) -> u64 {
        self.lines.get_ref().bytes_read()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn records(text: &str) -> Vec<Result<Vec<String>, (u64, String)>> {
        let source = Kept::of(text.as_bytes().to_vec());
        let mut records = JsonLines::new("a.jsonl".to_owned(), source, &ReadOptions::default()).unwrap();
        let mut found = Vec::new();
        while records.advance().unwrap() {
            found.push(match records.problem() {
                Some(problem) => Err((records.line(), problem.to_owned())),
                None => Ok((0..records.len())
                    .map(|place| String::from_utf8(records.field(place).to_vec()).unwrap())
                    .collect()),
            });
        }
        found
    }

    fn texts(fields: &[&str]) -> Result<Vec<String>, (u64, String)> {
        Ok(fields.iter().map(|field| (*field).to_owned()).collect())
    }

    #[test]
    fn members_are_fields_by_name_whatever_their_order_and_lists_are_vectors() {
        let found = records(
            "{\"pid\": 7, \"pos\": [1.5, 2e3], \"on\": true}\n\n{\"on\": false, \"name\": \"a\\nb\", \"pid\": 8}\n",
        );
        assert_eq!(
            found,
            [texts(&["7", "1.5", "2000.0", "true", ""]), texts(&["8", "", "", "false", "a\nb"])]
        );
    }

    #[test]
    fn a_line_that_is_no_record_is_told_with_its_number() {
        let found = records("{\"pid\": 1}\nnonsense\n\n{\"pid\": {\"a\": 1}}\n{\"pid\": 2}\n{\"pid\": 3");
        let lines: Vec<_> = found.iter().map(|record| record.as_ref().map_err(|(line, _)| *line)).collect();
        assert!(matches!(lines[..], [Ok(_), Err(2), Err(4), Ok(_), Err(6)]), "{lines:?}");
    }

    #[test]
    fn a_name_that_comes_late_is_a_bad_record_and_no_record_at_all_an_error() {
        let mut text = "{\"pid\": 1}\n".repeat(NAMING_RECORDS);
        text += "{\"pid\": 1, \"late\": 2}\n";
        assert!(records(&text).last().unwrap().as_ref().is_err_and(|(_, problem)| problem.contains("late")));
        for empty in ["", "\n\n", "[1]\n"] {
            let source = Kept::of(empty.as_bytes().to_vec());
            assert!(JsonLines::new("a".to_owned(), source, &ReadOptions::default()).is_err());
        }
    }
}
