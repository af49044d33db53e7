//! Rows as a table for people.

use super::cells::{flattened, formatter};
use arrow_array::{Array, RecordBatch};
use arrow_schema::ArrowError;

/// Longest text that is shown of a value.
const CELL_CHARACTERS_MAX: usize = 40;

/// The lines of a table: the names of the columns, and one line a row. Numbers stand to the right.
///
/// # Errors
/// If a value cannot be written as a text.
pub fn aligned(rows: &RecordBatch) -> Result<Vec<String>, ArrowError> {
    let columns = flattened(rows)?;
    let mut lines = vec![String::new(); rows.num_rows() + 1];
    let last = columns.len().saturating_sub(1);
    for (place, (name, column)) in columns.iter().enumerate() {
        let formatter = formatter(column)?;
        let mut cells = vec![escaped(name.chars())];
        for row in 0..rows.num_rows() {
            cells.push(if column.is_null(row) {
                "null".to_owned()
            } else {
                shown(&formatter.value(row).try_to_string()?)
            });
        }
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let is_number = column.data_type().is_numeric();
        for (line, cell) in lines.iter_mut().zip(&cells) {
            let space = " ".repeat(width - cell.chars().count());
            line.push_str(if place > 0 { "  " } else { "" });
            match is_number {
                true => line.extend([space.as_str(), cell]),
                // Nothing to align stands behind the last one.
                false if place == last => line.push_str(cell),
                false => line.extend([cell, space.as_str()]),
            }
        }
    }
    Ok(lines)
}

fn shown(text: &str) -> String {
    if text.chars().count() <= CELL_CHARACTERS_MAX {
        return escaped(text.chars());
    }
    let cut = escaped(text.chars().take(CELL_CHARACTERS_MAX - 1));
    format!("{cut}…")
}

/// A text of one line in which what is no letter can be told from a blank: with escapes for control characters, and for
/// the backslashes that these begin with.
#[must_use]
pub fn escaped(characters: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    for character in characters {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0' => text.push_str("\\0"),
            control if control.is_control() => {
                let mut utf8 = [0; 4];
                let bytes = control.encode_utf8(&mut utf8).bytes();
                text.extend(bytes.map(|byte| format!("\\x{byte:02x}")));
            }
            other => text.push(other),
        }
    }
    text
}
