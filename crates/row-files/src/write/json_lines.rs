//! JSON Lines: one object for each row. Numbers that are not finite become the texts "NaN", "inf" and "-inf".

use super::cells::{formatter, readable};
use super::{RowWriter, Target, arrow_error, no_text, write_error};
use crate::RowFileError;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::ArrayFormatter;
use arrow_schema::{ArrowError, DataType};
use std::io::Write as _;

pub(super) struct JsonWriter {
    target: Target,
    name: String,
    text: String,
}

/// A column, prepared for writing value by value.
enum Column<'a> {
    /// Written as the formatter formats it.
    Number(ArrayFormatter<'a>, &'a ArrayRef),
    /// Written in quotes.
    Text(ArrayFormatter<'a>, &'a ArrayRef),
    /// A column of vectors, and the column of all their elements.
    Vector(&'a ArrayRef, Box<Column<'a>>),
}

impl JsonWriter {
    pub(super) fn new(target: Target, name: String) -> Self {
        Self { target, name, text: String::new() }
    }

    fn push(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        let arrow = |error| arrow_error(&self.name, error);
        let names: Vec<String> = rows
            .schema()
            .fields()
            .iter()
            .map(|field| serde_json::Value::from(field.name().as_str()).to_string())
            .collect();
        let arrays = rows.columns().iter().map(readable).collect::<Result<Vec<_>, _>>().map_err(arrow)?;
        let columns = arrays.iter().map(Column::new).collect::<Result<Vec<_>, _>>().map_err(arrow)?;
        for row in 0..rows.num_rows() {
            self.text.push('{');
            for (place, (name, column)) in names.iter().zip(&columns).enumerate() {
                self.text.push_str(if place > 0 { "," } else { "" });
                self.text.push_str(name);
                self.text.push(':');
                let pushed = column.push(row, &mut self.text);
                pushed.map_err(|error| no_text(rows.schema().field(place).name(), &error))?;
            }
            self.text.push_str("}\n");
        }
        Ok(())
    }
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef) -> Result<Self, ArrowError> {
        Ok(match array.data_type() {
            DataType::FixedSizeList(..) => {
                Self::Vector(array, Box::new(Self::new(array.as_fixed_size_list().values())?))
            }
            DataType::Boolean => Self::Number(formatter(array)?, array),
            plain if plain.is_numeric() => Self::Number(formatter(array)?, array),
            _ => Self::Text(formatter(array)?, array),
        })
    }

    fn push(&self, row: usize, text: &mut String) -> Result<(), ArrowError> {
        match self {
            Self::Number(_, array) | Self::Text(_, array) | Self::Vector(array, _) if array.is_null(row) => {
                text.push_str("null");
            }
            Self::Number(formatter, _) => {
                let start = text.len();
                formatter.value(row).write(text)?;
                // JSON has no numbers that are not finite, and null means something else.
                if text[start..].ends_with(['N', 'f']) {
                    text.insert(start, '"');
                    text.push('"');
                }
            }
            Self::Text(formatter, _) => {
                text.push_str(&serde_json::Value::from(formatter.value(row).try_to_string()?).to_string());
            }
            Self::Vector(array, elements) => {
                let vectors = array.as_fixed_size_list();
                let start = vectors.value_offset_at(row);
                let len = usize::try_from(vectors.value_length()).unwrap_or(0);
                text.push('[');
                for element in 0..len {
                    text.push_str(if element > 0 { "," } else { "" });
                    elements.push(start + element, text)?;
                }
                text.push(']');
            }
        }
        Ok(())
    }
}

impl RowWriter for JsonWriter {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        for start in (0..rows.num_rows()).step_by(8192) {
            let piece = rows.slice(start, (rows.num_rows() - start).min(8192));
            self.push(&piece)?;
            let written = self.target.write_all(self.text.as_bytes());
            self.text.clear();
            written.map_err(|source| write_error(&self.name, source))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Target, RowFileError> {
        Ok(self.target)
    }
}
