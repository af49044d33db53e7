//! Text files: records of fields become rows, and bad records are reported with their lines.
//!
//! Invariant: a bad record leaves nothing behind in the rows.
//! Invariant: a bad record is skipped only once its line has an end.

use super::ReadOptions;
use super::field::{Values, values};
use super::origin::{Origin, origins};
use crate::{BadRecord, FailedAt, Part, PartLimits, RowFileError, RowReader};
use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use std::sync::Arc;

/// The most bad records of a part; they are held in memory until the part has been read.
const BAD_RECORDS_MAX: usize = 1 << 16;

/// The records of a text file, one after the other.
pub(super) trait Records: Send {
    /// The name of the file in messages.
    fn file(&self) -> &str;
    /// The names of the fields in the file.
    fn names(&self) -> &[String];
    /// Moves to the next record; false at the end.
    fn advance(&mut self) -> Result<bool, RowFileError>;
    /// The number of fields in the record.
    fn len(&self) -> usize;
    /// One field of the record.
    fn field(&self, place: usize) -> &[u8];
    /// Whether the record marks a field as having no value; an empty field need not be marked.
    fn is_absent(&self, _place: usize) -> bool {
        false
    }
    /// Whether the record marks a field as text, whatever it looks like.
    fn is_quoted(&self, _place: usize) -> bool {
        false
    }
    /// Whether an empty field is marked as an empty text, rather than as no value.
    fn is_empty_text(&self, _place: usize) -> bool {
        false
    }
    /// Whether the record states that the vector with elements at these places exists, even if all of them
    /// are null; `None` if the format cannot tell.
    fn has_vector(&self, _places: &[usize]) -> Option<bool> {
        None
    }
    /// What is wrong with the record as a whole, if it therefore has no fields.
    fn problem(&self) -> Option<&str> {
        None
    }
    /// Whether the file ends within the line of the record, which may still be being written.
    fn is_cut(&self) -> bool {
        false
    }
    /// Whether the records before one that is cut off tell the columns. They do not if that record may have
    /// swallowed others.
    fn tells_columns_early(&self) -> bool {
        false
    }
    /// The line on which the record begins, counted from 1.
    fn line(&self) -> u64;
    /// The first line of the snapshot being read, which is that of the record in a format without snapshots.
    fn snapshot_line(&self) -> u64 {
        self.line()
    }
    /// The number of bytes read from the file.
    fn bytes_read(&self) -> u64;
}

/// Reads the records of a text file as rows.
pub(super) struct TextReader<R> {
    records: R,
    rows: TextRows,
    count: u64,
    skips_left: u64,
    skipped: u64,
    failed: Option<RowFileError>,
    failed_at: Option<FailedAt>,
    is_done: bool,
}

impl<R: Records> TextReader<R> {
    pub(super) fn new(records: R, wanted: &SchemaRef, options: &ReadOptions) -> Result<Self, RowFileError> {
        let present = options.all_renamed(records.file(), records.names().iter().map(String::as_str))?;
        let origins = origins(records.file(), &present, wanted, options)?;
        let rows = TextRows::new(records.file(), wanted, origins, options)?;
        let (skips_left, skipped) = (options.skip_bad, 0);
        Ok(Self {
            records,
            rows,
            count: 0,
            skips_left,
            skipped,
            failed: None,
            failed_at: None,
            is_done: false,
        })
    }

    /// Notes where reading fails.
    fn note_failure(&mut self) {
        let (record, snapshot) = (self.records.line(), self.records.snapshot_line());
        self.failed_at = Some(FailedAt { record, snapshot });
    }

    /// Reads one record; false at the end.
    fn step(&mut self, bad: &mut Vec<BadRecord>) -> Result<bool, RowFileError> {
        if !self.records.advance()? {
            return Ok(false);
        }
        let (there, expected) = (self.records.len(), self.records.names().len());
        let taken = if let Some(problem) = self.records.problem() {
            Err(problem.to_owned())
        } else if there == expected {
            self.rows.push(&self.records)
        } else {
            Err(format!("{there} fields where the header has {expected}"))
        };
        if let Err(problem) = taken {
            let line = self.records.line();
            // Skipping a record that is still being written would count it, and reading would later continue
            // after it, once it is complete.
            let is_cut = self.records.is_cut();
            if self.skips_left == 0 || is_cut {
                return Err(RowFileError::Record {
                    file: self.records.file().to_owned(),
                    unit: "line",
                    number: line,
                    problem: if is_cut { format!("{problem}; the line has no end") } else { problem },
                    skipped: self.skipped,
                });
            }
            self.skips_left -= 1;
            self.skipped += 1;
            bad.push(BadRecord { line, problem });
        }
        self.count += 1;
        Ok(true)
    }
}

impl<R: Records> RowReader for TextReader<R> {
    fn next(&mut self, limits: PartLimits) -> Result<Option<Part>, RowFileError> {
        let mut bad = Vec::new();
        let bad_max = limits.rows.min(BAD_RECORDS_MAX);
        while !self.is_done
            && bad.len() < bad_max
            && self.rows.rows < limits.rows
            && self.rows.bytes < limits.bytes
        {
            match self.step(&mut bad) {
                Ok(true) => {}
                Ok(false) => self.is_done = true,
                Err(error) => {
                    self.note_failure();
                    self.failed = Some(error);
                    self.is_done = true;
                }
            }
        }
        let rows = self.rows.finish(self.records.file())?;
        if rows.num_rows() == 0 && bad.is_empty() {
            return self.failed.take().map_or(Ok(None), Err);
        }
        Ok(Some(Part { rows, end: self.count, bad }))
    }

    fn skip(&mut self, records: u64) -> Result<u64, RowFileError> {
        while self.count < records {
            match self.records.advance() {
                Ok(true) => self.count += 1,
                Ok(false) => break,
                Err(error) => {
                    self.note_failure();
                    return Err(error);
                }
            }
        }
        Ok(self.count)
    }

    fn bytes_read(&self) -> u64 {
        self.records.bytes_read()
    }

    fn failed_at(&self) -> Option<FailedAt> {
        self.failed_at
    }
}

/// Rows that grow field by field.
struct TextRows {
    schema: SchemaRef,
    columns: Vec<TextColumn>,
    null: Option<String>,
    rows: usize,
    /// The approximate memory of the rows in bytes.
    bytes: usize,
    /// The rows of bad records, which are removed in the end.
    spoiled: Vec<usize>,
}

struct TextColumn {
    field: FieldRef,
    origin: Origin,
    values: Box<dyn Values>,
    /// For a vector column: the element field, the length, and which rows have a vector.
    vector: Option<(FieldRef, i32, Vec<bool>)>,
    /// Whether an empty field is a value, where null is not allowed.
    is_text: bool,
    /// Whether there is a value of length zero.
    has_empty: bool,
}

impl TextRows {
    fn new(
        file: &str,
        wanted: &SchemaRef,
        origins: Vec<Origin>,
        options: &ReadOptions,
    ) -> Result<Self, RowFileError> {
        let columns = wanted.fields().iter().zip(origins);
        let columns = columns.map(|(field, origin)| TextColumn::new(file, field, origin));
        Ok(Self {
            schema: Arc::clone(wanted),
            columns: columns.collect::<Result<_, _>>()?,
            null: options.null.clone(),
            rows: 0,
            bytes: 0,
            spoiled: Vec::new(),
        })
    }

    /// Adds a record as a row. A bad record is added too, and removed in the end.
    fn push(&mut self, records: &impl Records) -> Result<(), String> {
        let mut problem = None;
        for column in &mut self.columns {
            if problem.is_some() {
                column.push_nothing();
                continue;
            }
            match column.push(records, self.null.as_deref()) {
                Ok(bytes) => self.bytes += bytes,
                Err(found) => problem = Some(format!("column \"{}\": {found}", column.field.name())),
            }
        }
        self.rows += 1;
        match problem {
            None => Ok(()),
            Some(problem) => {
                self.spoiled.push(self.rows - 1);
                Err(problem)
            }
        }
    }

    /// Takes the rows so far, without the bad ones.
    fn finish(&mut self, file: &str) -> Result<RecordBatch, RowFileError> {
        let arrow = |error: arrow_schema::ArrowError| RowFileError::Malformed {
            file: file.to_owned(),
            format: crate::Format::Csv,
            problem: error.to_string(),
        };
        let (rows, spoiled) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.spoiled));
        self.bytes = 0;
        let columns: Vec<ArrayRef> =
            self.columns.iter_mut().map(TextColumn::finish).collect::<Result<_, _>>().map_err(arrow)?;
        if spoiled.is_empty() {
            return RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(arrow);
        }
        let mut is_good = vec![true; rows];
        spoiled.into_iter().for_each(|row| is_good[row] = false);
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let loose = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let all = RecordBatch::try_new(loose, columns).map_err(arrow)?;
        let good = filter_record_batch(&all, &BooleanArray::from(is_good)).map_err(arrow)?;
        RecordBatch::try_new(Arc::clone(&self.schema), good.columns().to_vec()).map_err(arrow)
    }
}

impl TextColumn {
    fn new(file: &str, field: &FieldRef, origin: Origin) -> Result<Self, RowFileError> {
        let (element, vector) = match field.data_type() {
            DataType::FixedSizeList(item, len) => {
                (item.data_type(), Some((Arc::clone(item), *len, Vec::new())))
            }
            plain => (plain, None),
        };
        let is_vector_in_one = vector.is_some() && matches!(origin, Origin::Column(_));
        let values = values(element).filter(|_| !is_vector_in_one).ok_or_else(|| RowFileError::Type {
            file: file.to_owned(),
            column: field.name().clone(),
            found: "text".to_owned(),
            wanted: type_name(field.data_type()),
        })?;
        let is_text = matches!(element, DataType::Utf8);
        let has_empty = matches!(element, DataType::Utf8 | DataType::Binary);
        Ok(Self { field: Arc::clone(field), origin, values, vector, is_text, has_empty })
    }

    /// Adds the value of a record. Returns its approximate size in bytes.
    fn push(&mut self, records: &impl Records, null: Option<&str>) -> Result<usize, String> {
        match &self.origin {
            Origin::Absent => {
                self.push_nothing();
                Ok(8)
            }
            Origin::Column(place) => {
                let text = records.field(*place);
                let may_be_empty = (self.is_text && !self.field.is_nullable())
                    || (self.has_empty && records.is_empty_text(*place));
                let problem = match std::str::from_utf8(text) {
                    Ok(text)
                        if records.is_absent(*place)
                            || null == Some(text)
                            || (text.is_empty() && !may_be_empty) =>
                    {
                        self.values.push_null();
                        (!self.field.is_nullable()).then(|| "there is no value".to_owned())
                    }
                    Ok(text) => {
                        let is_value = self.values.push(text);
                        (!is_value).then(|| no_value(text, self.field.data_type()))
                    }
                    Err(_) => {
                        self.values.push_null();
                        Some("it is not UTF-8".to_owned())
                    }
                };
                problem.map_or(Ok(8 + text.len()), Err)
            }
            Origin::Elements(places) => {
                let places = places.clone();
                self.push_elements(records, &places, null)
            }
        }
    }

    fn push_elements(
        &mut self,
        records: &impl Records,
        places: &[usize],
        null: Option<&str>,
    ) -> Result<usize, String> {
        let Some((item, _, valid)) = &mut self.vector else { return Ok(0) };
        let text_of = |place: &usize| std::str::from_utf8(records.field(*place)).unwrap_or("\u{fffd}");
        let nulls = places.iter().filter(|place| is_null(text_of(place), null)).count();
        // If the format cannot tell a vector of nulls from a null vector, it is read as the one that is
        // allowed.
        let is_there = nulls < places.len()
            || records.has_vector(places).unwrap_or(item.is_nullable() && !self.field.is_nullable());
        valid.push(is_there);
        let mut problem = None;
        for (element, place) in places.iter().enumerate() {
            let text = text_of(place);
            if is_null(text, null) {
                self.values.push_null();
            } else if !self.values.push(text) {
                problem = Some(format!("element {element}: {}", no_value(text, item.data_type())));
            }
        }
        let is_whole = if is_there { nulls == 0 || item.is_nullable() } else { self.field.is_nullable() };
        let missing = || "a value is missing".to_owned();
        match problem.or_else(|| (!is_whole).then(missing)) {
            None => Ok(8 * places.len()),
            Some(problem) => Err(problem),
        }
    }

    fn push_nothing(&mut self) {
        match &mut self.vector {
            None => self.values.push_null(),
            Some((_, len, valid)) => {
                valid.push(false);
                (0..*len).for_each(|_| self.values.push_null());
            }
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, arrow_schema::ArrowError> {
        let values = self.values.finish();
        let Some((item, len, valid)) = &mut self.vector else { return Ok(values) };
        let valid = NullBuffer::from(std::mem::take(valid));
        // The elements of a missing vector are null, or zero if they may not be null.
        let values = if item.is_nullable() { values } else { super::convert::without_nulls(&values)? };
        let valid = (valid.null_count() > 0).then_some(valid);
        Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *len, values, valid)?))
    }
}

fn is_null(text: &str, null: Option<&str>) -> bool {
    text.is_empty() || null == Some(text)
}

fn no_value(text: &str, data_type: &DataType) -> String {
    let shown: String = text.chars().take(40).collect();
    let rest = if shown.len() < text.len() { "..." } else { "" };
    format!("{shown:?}{rest} is not {}", with_article(&type_name(data_type)))
}

fn with_article(name: &str) -> String {
    let article = if name.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// The name of a type in messages.
pub(super) fn type_name(data_type: &DataType) -> String {
    data_type.to_string().to_lowercase()
}
