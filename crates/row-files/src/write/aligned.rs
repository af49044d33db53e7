//! Rows as a table for people to read.

use super::cells::{flattened, formatter};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::ArrowError;

/// The most characters that are shown of a value.
const CELL_CHARACTERS_MAX: usize = 40;

/// The number of blanks between two columns.
const GAP: usize = 2;

/// Shown in place of columns that are left out.
const LEFT_OUT: &str = "…";

/// Rows as lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aligned {
    /// The names of the columns, then one line for each row; for a single row on its side, one line for each
    /// column.
    pub lines: Vec<String>,
    /// The names of the columns that did not fit.
    pub left_out: Vec<String>,
}

/// Rows as a table: the names of the columns, and one line for each row. Numbers are aligned to the right.
///
/// If lines are limited to `room` characters, a single row that is wider is put on its side, and of several
/// rows columns in the middle are left out.
///
/// # Errors
/// If a value cannot be written as a text.
pub fn aligned(rows: &RecordBatch, room: Option<usize>) -> Result<Aligned, ArrowError> {
    let mut columns = columns_of(rows)?;
    let widths: Vec<usize> = columns.iter().map(|column| column.width).collect();
    let mut left_out = Vec::new();
    let lines = match room.and_then(|room| ends(&widths, room)) {
        None => beside(&columns),
        Some(_) if rows.num_rows() == 1 => on_its_side(&columns),
        Some((left, right)) => {
            let cells = vec![LEFT_OUT.to_owned(); rows.num_rows() + 1];
            let gap = Column { cells, width: 1, is_number: false };
            left_out.extend(columns.splice(left..widths.len() - right, [gap]).map(Column::into_name));
            beside(&columns)
        }
    };
    Ok(Aligned { lines, left_out })
}

/// A column as texts: its name, then its value in each row.
struct Column {
    cells: Vec<String>,
    width: usize,
    is_number: bool,
}

impl Column {
    fn into_name(mut self) -> String {
        std::mem::take(&mut self.cells[0])
    }
}

fn columns_of(rows: &RecordBatch) -> Result<Vec<Column>, ArrowError> {
    let column = |(name, column): &(String, ArrayRef)| {
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
        Ok(Column { cells, width, is_number: column.data_type().is_numeric() })
    };
    flattened(rows)?.iter().map(column).collect()
}

/// How many columns from the left and from the right fit beside the mark for those left out; `None` if all
/// columns fit. The first column is always shown, however little room there is.
fn ends(widths: &[usize], room: usize) -> Option<(usize, usize)> {
    let whole: usize = widths.iter().map(|width| width + GAP).sum();
    if whole <= room + GAP || widths.len() < 2 {
        return None;
    }
    let (mut left, mut right) = (1, 0);
    let mut free = room.saturating_sub(widths[0] + GAP + 1);
    // Takes columns from both ends in turn, until the next one does not fit.
    loop {
        let is_left = left <= right;
        let next = if is_left { left } else { widths.len() - 1 - right };
        let needed = widths[next] + GAP;
        if needed > free || left + right + 1 == widths.len() {
            return Some((left, right));
        }
        free -= needed;
        if is_left { left += 1 } else { right += 1 }
    }
}

/// All columns side by side.
fn beside(columns: &[Column]) -> Vec<String> {
    let mut lines = vec![String::new(); columns.first().map_or(1, |column| column.cells.len())];
    let last = columns.len().saturating_sub(1);
    for (place, Column { cells, width, is_number }) in columns.iter().enumerate() {
        for (line, cell) in lines.iter_mut().zip(cells) {
            let space = " ".repeat(width - cell.chars().count());
            line.push_str(if place > 0 { "  " } else { "" });
            match is_number {
                true => line.extend([space.as_str(), cell]),
                // Nothing after the last column has to be aligned.
                false if place == last => line.push_str(cell),
                false => line.extend([cell, space.as_str()]),
            }
        }
    }
    lines
}

/// The columns of a single row, one below the other: names, followed by values.
fn on_its_side(columns: &[Column]) -> Vec<String> {
    let name = |column: &Column| column.cells[0].chars().count();
    let width = columns.iter().map(name).max().unwrap_or(0);
    let line = |column: &Column| {
        let space = " ".repeat(width - name(column) + GAP);
        format!("{}{space}{}", column.cells[0], column.cells[1])
    };
    columns.iter().map(line).collect()
}

fn shown(text: &str) -> String {
    if text.chars().count() <= CELL_CHARACTERS_MAX {
        return escaped(text.chars());
    }
    let cut = escaped(text.chars().take(CELL_CHARACTERS_MAX - 1));
    format!("{cut}…")
}

/// A single line of text in which every character is recognizable: control characters are escaped, and so are
/// the backslashes that begin escapes.
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
