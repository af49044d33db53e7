//! JSON Lines: one object for each line, whose members are the fields.
//!
//! A list of numbers is a vector: its elements are fields `name[0]`, `name[1]` and so on, as in a CSV file.
//! Null in its place is a null vector, and not a field of its own. The names are those of the first records;
//! a missing member has no value, and an empty text is a text.
//!
//! Invariant: a line that is cut off at the end of the file is a bad record, never a shorter one, and never
//! skipped.

use super::ReadOptions;
use super::json_object::{Cell, Fields, Member, NESTED, fields_of};
use super::origin::vector_of_element;
use super::source::{Input, RecordStream};
use super::text::Records;
use crate::{Format, RowFileError};
use arrow_schema::{DataType, Schema};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader};

/// The number of records from which the names are learned: a member missing in the first may be in the next.
const NAMING_RECORDS: usize = 1000;

/// The bytes after which no more records are read to learn names, since they are held in memory.
const NAMING_BYTES: usize = 16 << 20;

/// The records of a file.
pub(super) struct JsonLines {
    file: String,
    lines: BufReader<RecordStream>,
    /// The number of lines read.
    read: u64,
    /// Records that were read to learn the names, and have not been returned yet.
    ahead: VecDeque<Numbered>,
    names: Vec<String>,
    places: HashMap<String, usize>,
    /// The names that have no value in the first records, and the names that have a list.
    nulls: HashSet<String>,
    lists: HashSet<String>,
    /// The required length of lists, by name.
    lengths: HashMap<String, usize>,
    /// The wanted columns; vectors are listed element by element.
    wanted: HashSet<String>,
    options: ReadOptions,
    /// Whether the last line that was read lacks a line end.
    is_open: bool,
    /// The current record: its line, and a text for each name, `None` for null and for a missing member.
    line: u64,
    fields: Vec<Cell>,
    /// Whether a list begins at each place.
    begins_list: Vec<bool>,
    problem: Option<String>,
}

/// A line with its number.
type Numbered = (u64, Vec<u8>);

impl JsonLines {
    pub(super) fn open(input: &Input, options: &ReadOptions) -> Result<Self, RowFileError> {
        Self::new(input.name(), input.stream(Format::JsonLines)?, options)
    }

    pub(super) fn new(
        file: String,
        source: RecordStream,
        options: &ReadOptions,
    ) -> Result<Self, RowFileError> {
        let mut records = Self {
            file,
            lines: BufReader::with_capacity(64 << 10, source),
            read: 0,
            ahead: VecDeque::new(),
            names: Vec::new(),
            places: HashMap::new(),
            nulls: HashSet::new(),
            lists: HashSet::new(),
            lengths: HashMap::new(),
            wanted: HashSet::new(),
            options: options.clone(),
            is_open: false,
            line: 0,
            fields: Vec::new(),
            begins_list: Vec::new(),
            problem: None,
        };
        records.learn_names()?;
        if records.names.is_empty() {
            let problem = records.ahead.iter().find_map(|(line, record)| {
                fields_of(record).err().map(|problem| format!("line {line}: {problem}"))
            });
            let problem = problem.unwrap_or_else(|| "there is no record in it".to_owned());
            if problem.ends_with(NESTED) {
                return Err(RowFileError::Unsupported {
                    what: format!("{} cannot be read: {problem}", records.file),
                    hint: "write each value within as a member of its own, such as pos_x, or numbers as one list",
                });
            }
            return Err(RowFileError::Malformed { file: records.file, format: Format::JsonLines, problem });
        }
        Ok(records)
    }

    /// Reads the first records to learn the names. A member that is null in all of them keeps its own name,
    /// unless a list of that name was met.
    fn learn_names(&mut self) -> Result<(), RowFileError> {
        let (mut known, mut bytes) = (Names::default(), 0);
        while self.ahead.len() < NAMING_RECORDS && bytes < NAMING_BYTES {
            let Some(record) = self.read_record()? else { break };
            bytes += record.1.len();
            // Parsed again when its turn comes: as fields, a list takes many times the memory of its line.
            for (name, member) in fields_of(&record.1).iter().flatten() {
                match member {
                    Member::Plain(text) => known.see(name, text),
                    Member::List(elements) => {
                        self.lists.insert(name.clone());
                        for (place, text) in elements.iter().enumerate() {
                            known.see(&element(name, place), text);
                        }
                    }
                }
            }
            self.ahead.push_back(record);
        }
        let Names { mut names, seen, filled } = known;
        names.retain(|name| filled.contains(name) || !seen.contains(&element(name, 0)));
        self.nulls = names.iter().filter(|name| !filled.contains(*name)).cloned().collect();
        self.name(names);
        Ok(())
    }

    fn name(&mut self, names: Vec<String>) {
        self.places = names.iter().enumerate().map(|(place, name)| (name.clone(), place)).collect();
        self.names = names;
    }

    /// Treats lists, and members that are null in all of the first records, as vectors of the wanted lengths:
    /// only the wanted columns tell these lengths.
    pub(super) fn with_vectors(mut self, wanted: &Schema) -> Self {
        let length_of = |data_type: &DataType| match data_type {
            DataType::FixedSizeList(_, length) => usize::try_from(*length).ok(),
            _ => None,
        };
        let wanted_as = |name: &str| wanted.field_with_name(&self.options.renamed(name)).ok();
        let length = |name: &str| length_of(wanted_as(name)?.data_type());
        let vectors = self.nulls.iter().chain(&self.lists);
        self.lengths = vectors.filter_map(|name| Some((name.clone(), length(name)?))).collect();
        for field in wanted.fields() {
            let length = length_of(field.data_type()).unwrap_or(0);
            self.wanted.insert(field.name().clone());
            self.wanted.extend((0..length).map(|place| element(field.name(), place)));
        }
        let mut names = Vec::with_capacity(self.names.len());
        let mut laid_out = HashSet::new();
        for name in std::mem::take(&mut self.names) {
            let of = vector_of_element(&name).filter(|of| self.lists.contains(*of)).unwrap_or(&name);
            match self.lengths.get(of) {
                Some(length) if laid_out.insert(of.to_owned()) => {
                    names.extend((0..*length).map(|place| element(of, place)));
                }
                Some(_) => {}
                None => names.push(name),
            }
        }
        self.name(names);
        self
    }

    /// The next line that is not empty; `None` at the end.
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
            self.lines.get_mut().release_to(read);
            self.read += 1;
            self.is_open = !line.ends_with(b"\n");
            if !line.trim_ascii().is_empty() {
                return Ok(Some((self.read, line)));
            }
        }
    }

    /// Arranges the fields of a record by name.
    fn take(&mut self, record: Fields) -> Result<(), String> {
        self.fields.clear();
        self.fields.resize_with(self.names.len(), || None);
        self.begins_list.clear();
        self.begins_list.resize(self.names.len(), false);
        for (name, member) in record {
            match member {
                Member::Plain(text) => self.take_field(&name, text)?,
                Member::List(elements) => self.take_list(&name, elements)?,
            }
        }
        Ok(())
    }

    fn take_list(&mut self, name: &str, elements: Vec<Cell>) -> Result<(), String> {
        let there = elements.len();
        if let Some(length) = self.lengths.get(name).filter(|length| **length != there) {
            return Err(format!("\"{name}\" is a list of {there}, but a vector of {length} is needed"));
        }
        if let Some(&place) = self.places.get(&element(name, 0)) {
            self.begins_list[place] = true;
        }
        let mut elements = elements.into_iter().enumerate();
        elements.try_for_each(|(place, text)| self.take_field(&element(name, place), text))
    }

    fn take_field(&mut self, name: &str, text: Cell) -> Result<(), String> {
        match self.places.get(name) {
            Some(&place) if self.fields[place].is_some() => {
                return Err(format!("\"{name}\" has two values, one of them in a list"));
            }
            Some(&place) => self.fields[place] = text,
            // A wanted member is never superfluous, however late it first occurs.
            None if self.options.ignore_extra
                && (text.is_none() || !self.wanted.contains(&self.options.renamed(name))) => {}
            // A null vector.
            None if text.is_none() && self.places.contains_key(&element(name, 0)) => {}
            None => return Err(format!("a member \"{name}\", which none of the first records has")),
        }
        Ok(())
    }
}

/// The names in the first records, in the order in which they occur.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    seen: HashSet<String>,
    /// The names that have a value in some record.
    filled: HashSet<String>,
}

impl Names {
    fn see(&mut self, name: &str, text: &Cell) {
        if self.seen.insert(name.to_owned()) {
            self.names.push(name.to_owned());
        }
        if text.is_some() && !self.filled.contains(name) {
            self.filled.insert(name.to_owned());
        }
    }
}

/// The name of an element of a list.
fn element(name: &str, place: usize) -> String {
    format!("{name}[{place}]")
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
        self.problem = fields_of(&record).and_then(|fields| self.take(fields)).err();
        Ok(true)
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn field(&self, place: usize) -> &[u8] {
        self.fields.get(place).and_then(Option::as_ref).map_or(&[], |text| text.bytes.as_slice())
    }

    fn is_absent(&self, place: usize) -> bool {
        self.fields.get(place).is_none_or(Option::is_none)
    }

    fn is_quoted(&self, place: usize) -> bool {
        self.fields.get(place).and_then(Option::as_ref).is_some_and(|text| text.is_quoted)
    }

    fn is_empty_text(&self, place: usize) -> bool {
        !self.is_absent(place)
    }

    fn has_vector(&self, places: &[usize]) -> Option<bool> {
        let begins = places.first().and_then(|first| self.begins_list.get(*first)).copied();
        Some(begins.unwrap_or(false))
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
        let source = RecordStream::of(text.as_bytes().to_vec());
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
        assert_eq!(found, [texts(&["7", "1.5", "2e3", "true", ""]), texts(&["8", "", "", "false", "a\nb"])]);
    }

    #[test]
    fn an_element_that_is_a_member_too_makes_a_bad_record_and_loses_neither() {
        let lines = [
            r#"{"pos": [1, 2], "pos[0]": 9}"#,
            r#"{"pos[0]": 9, "pos": [1, 2]}"#,
            r#"{"pos": [1, 2], "pos[0]": null}"#,
            r#"{"pos": [3, 4]}"#,
            r#"{"pos[0]": 5, "pos[1]": 6}"#,
        ];
        let found = records(&lines.join("\n"));
        let problem = |at: usize| found[at].as_ref().unwrap_err().1.as_str();
        assert!((0..3).all(|at| problem(at).contains("\"pos[0]\" has two values")), "{found:?}");
        assert_eq!(found[3..], [texts(&["3", "4"]), texts(&["5", "6"])]);
    }

    #[test]
    fn a_line_that_is_no_record_is_told_with_its_number() {
        let found = records("{\"pid\": 1}\nnonsense\n\n{\"pid\": {\"a\": 1}}\n{\"pid\": 2}\n{\"pid\": 3");
        let lines: Vec<_> = found.iter().map(|record| record.as_ref().map_err(|(line, _)| *line)).collect();
        assert!(matches!(lines[..], [Ok(_), Err(2), Err(4), Ok(_), Err(6)]), "{lines:?}");
    }

    #[test]
    fn what_tells_the_names_takes_no_more_memory_where_lines_are_long() {
        let line = format!("{{\"pid\": 1, \"text\": \"{}\"}}\n", "x".repeat(1 << 20));
        let source = RecordStream::of(line.repeat(40).into_bytes());
        let mut records = JsonLines::new("a".to_owned(), source, &ReadOptions::default()).unwrap();
        assert!(records.bytes_read() <= 18 << 20, "{} bytes are read", records.bytes_read());
        let mut count = 0;
        while records.advance().unwrap() {
            count += 1;
            assert_eq!((records.line(), records.problem(), records.field(0)), (count, None, &b"1"[..]));
        }
        assert_eq!(count, 40);
    }

    #[test]
    fn a_name_that_comes_late_is_a_bad_record_and_no_record_at_all_an_error() {
        let mut text = "{\"pid\": 1}\n".repeat(NAMING_RECORDS);
        text += "{\"pid\": 1, \"late\": 2}\n";
        assert!(records(&text).last().unwrap().as_ref().is_err_and(|(_, problem)| problem.contains("late")));
        for empty in ["", "\n\n", "[1]\n"] {
            let source = RecordStream::of(empty.as_bytes().to_vec());
            assert!(JsonLines::new("a".to_owned(), source, &ReadOptions::default()).is_err());
        }
    }
}
