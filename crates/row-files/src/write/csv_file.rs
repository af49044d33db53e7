//! CSV. Null is an empty field; an empty text is a quoted empty field.
//!
//! Invariant: an empty text is not read back as null. In a file of one column quotes mark null, since an
//! empty line is not a record, so an empty text is refused there.

use super::cells::{flattened, formatter};
use super::{RowWriter, Target, arrow_error, no_text, write_error};
use crate::RowFileError;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use std::io::Write as _;

pub(super) struct CsvWriter {
    target: Target,
    name: String,
    text: String,
    /// Whether quotes around nothing stand for null, which leaves no way to write an empty text.
    is_quoted_null: bool,
}

impl CsvWriter {
    pub(super) fn new(schema: &SchemaRef, target: Target, name: String) -> Result<Self, RowFileError> {
        let is_quoted_null = matches!(&schema.fields()[..], [only] if only.is_nullable());
        let mut writer = Self { target, name, text: String::new(), is_quoted_null };
        let empty = RecordBatch::new_empty(SchemaRef::clone(schema));
        let columns = flattened(&empty).map_err(|error| arrow_error(&writer.name, error))?;
        for (place, (name, _)) in columns.iter().enumerate() {
            writer.text.push_str(if place > 0 { "," } else { "" });
            push_field(name, &mut writer.text);
        }
        writer.text.push('\n');
        writer.hand_over()?;
        Ok(writer)
    }

    fn push(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        let arrow = |error| arrow_error(&self.name, error);
        let columns = flattened(rows).map_err(arrow)?;
        let formatters: Result<Vec<_>, _> = columns.iter().map(|(_, column)| formatter(column)).collect();
        let formatters = formatters.map_err(arrow)?;
        let has_empty = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::Binary);
        let is_text: Vec<bool> = columns.iter().map(|(_, column)| has_empty(column.data_type())).collect();
        let mut field = String::new();
        for row in 0..rows.num_rows() {
            for (place, formatter) in formatters.iter().enumerate() {
                self.text.push_str(if place > 0 { "," } else { "" });
                if columns[place].1.is_null(row) {
                    continue;
                }
                field.clear();
                let target = if is_text[place] { &mut field } else { &mut self.text };
                formatter.value(row).write(target).map_err(|error| no_text(&columns[place].0, &error))?;
                if is_text[place] && self.is_quoted_null && field.is_empty() {
                    return Err(no_empty_text(&columns[place].0));
                }
                if is_text[place] {
                    push_field(&field, &mut self.text);
                }
            }
            // An empty line is not a record, so quotes mark the row of a single null.
            if columns.len() == 1 && columns[0].1.is_null(row) {
                self.text.push_str("\"\"");
            }
            self.text.push('\n');
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), RowFileError> {
        let written = self.target.write_all(self.text.as_bytes());
        self.text.clear();
        written.map_err(|source| write_error(&self.name, source))
    }
}

fn no_empty_text(column: &str) -> RowFileError {
    RowFileError::Unsupported {
        what: format!(
            "column \"{column}\" has an empty text, which CSV cannot tell from a missing value in a file of one column"
        ),
        hint: "write another column beside it, or write JSON Lines, Parquet or Arrow IPC",
    }
}

fn push_field(field: &str, text: &mut String) {
    if !field.is_empty() && !field.contains([',', '"', '\n', '\r']) {
        text.push_str(field);
        return;
    }
    text.push('"');
    text.push_str(&field.replace('"', "\"\""));
    text.push('"');
}

impl RowWriter for CsvWriter {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        // In pieces, so that the text of a large batch is never held as a whole.
        for start in (0..rows.num_rows()).step_by(8192) {
            let piece = rows.slice(start, (rows.num_rows() - start).min(8192));
            self.push(&piece)?;
            self.hand_over()?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Target, RowFileError> {
        Ok(self.target)
    }
}
