//! Which columns go where in a dump, and what a dump cannot hold.

use super::boxes::{Axis, SnapshotBoxes};
use crate::RowFileError;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Schema};
use std::collections::BTreeSet;

/// The column that becomes the number of a snapshot.
const STEP: &str = "step";
/// The column that becomes the time of a snapshot.
const TIME: &str = "time";

/// The columns of a dump by their places.
pub(super) struct Layout {
    pub(super) step: usize,
    pub(super) time: Option<usize>,
    /// The columns of `ITEM: ATOMS`.
    pub(super) atoms: Vec<usize>,
    /// Their names, as that line has them.
    pub(super) names: String,
    /// What the box spans, if no box is given: `None` for an axis that the rows do not have.
    pub(super) axes: [Option<Axis>; 3],
}

impl Layout {
    /// Refuses columns that a dump cannot hold.
    pub(super) fn of(schema: &Schema, boxes: &SnapshotBoxes) -> Result<Self, RowFileError> {
        let Some((step, _)) =
            schema.column_with_name(STEP).filter(|(_, field)| field.data_type().is_integer())
        else {
            return Err(RowFileError::Unsupported {
                what: "a LAMMPS dump consists of steps, and there is no column \"step\" of integers"
                    .to_owned(),
                hint: "add step to --columns; rows without steps can be written as Parquet, Arrow IPC or CSV",
            });
        };
        let is_time = |field: &Field| matches!(field.data_type(), DataType::Float32 | DataType::Float64);
        let time = schema.column_with_name(TIME).filter(|(_, field)| is_time(field)).map(|(place, _)| place);
        let (mut atoms, mut names) = (Vec::new(), Vec::new());
        for (place, field) in schema.fields().iter().enumerate() {
            if place == step || Some(place) == time {
                continue;
            }
            check_type(field)?;
            atoms.push(place);
            names.extend(names_of(field)?);
        }
        check_apart(&names)?;
        let axes = Axis::all(schema, boxes)?;
        Ok(Self { step, time, atoms, names: names.join(" "), axes })
    }
}

fn check_type(field: &Field) -> Result<(), RowFileError> {
    let item = match field.data_type() {
        DataType::FixedSizeList(item, _) => item.data_type(),
        plain => plain,
    };
    if item.is_numeric() || matches!(item, DataType::Boolean | DataType::Utf8) {
        return Ok(());
    }
    Err(RowFileError::Unsupported {
        what: format!(
            "column \"{}\" is {}, and a LAMMPS dump holds numbers and words",
            field.name(),
            field.data_type().to_string().to_lowercase()
        ),
        hint: "leave the column out with --columns, or write Parquet, Arrow IPC or CSV",
    })
}

/// The names of the columns that a column becomes.
fn names_of(field: &Field) -> Result<Vec<String>, RowFileError> {
    let name = field.name();
    if name.is_empty() || name.contains(|character: char| character.is_whitespace()) {
        return Err(RowFileError::Unsupported {
            what: format!("the name of column {name:?} has blanks, which end a name in a LAMMPS dump"),
            hint: "leave the column out with --columns, or write Parquet, Arrow IPC or CSV",
        });
    }
    Ok(match field.data_type() {
        DataType::FixedSizeList(_, len) => (0..*len).map(|element| format!("{name}[{element}]")).collect(),
        _ => vec![name.clone()],
    })
}

/// Refuses two columns of one name, as of a vector `pos` and of a number that is called `pos[0]`: readers
/// find columns by name, and would take one for both.
fn check_apart(names: &[String]) -> Result<(), RowFileError> {
    let mut known = BTreeSet::new();
    match names.iter().find(|name| !known.insert(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(RowFileError::Unsupported {
            what: format!("two columns would be called \"{name}\" in the LAMMPS dump"),
            hint: "leave one of them out with --columns, or write Parquet or Arrow IPC",
        }),
    }
}

/// Refuses a text that would be no word or several.
pub(super) fn check_texts(name: &str, column: &ArrayRef, step: i128) -> Result<(), RowFileError> {
    let is_word =
        |text: &str| !text.is_empty() && !text.contains(|character: char| character.is_whitespace());
    match column.as_string::<i32>().iter().flatten().find(|text| !is_word(text)) {
        None => Ok(()),
        Some(text) => Err(RowFileError::Unsupported {
            what: format!(
                "column \"{name}\" has the text {text:?} in step {step}, and a LAMMPS dump holds single words"
            ),
            hint: "leave the column out with --columns, or write Parquet, Arrow IPC or CSV",
        }),
    }
}

/// The values of a column of doubles; nulls count as not there.
pub(super) fn doubles(column: &ArrayRef) -> Vec<f64> {
    match column.null_count() {
        0 => column.as_primitive::<Float64Type>().values().to_vec(),
        _ => column.as_primitive::<Float64Type>().iter().flatten().collect(),
    }
}
