//! Where each wanted column comes from: a column of the file, several of them, or nowhere.
//!
//! A vector column may lie in a file as columns `pos[0]`, `pos[1]`, and so on.

use super::ReadOptions;
use crate::{RowFileError, nearest};
use arrow_schema::{DataType, Schema};
use std::collections::HashSet;

/// Where the values of a wanted column are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the column at this place.
    Column(usize),
    /// Element by element in the columns at these places.
    Elements(Vec<usize>),
    /// Nowhere: all are null.
    Absent,
}

/// The origins of the wanted columns in a file with these columns, which have their new names.
pub(super) fn origins(
    file: &str,
    present: &[String],
    wanted: &Schema,
    options: &ReadOptions,
) -> Result<Vec<Origin>, RowFileError> {
    let mut seen = HashSet::new();
    if let Some(twice) = present.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(RowFileError::Twice { file: file.to_owned(), column: twice.clone() });
    }
    let mut used = HashSet::new();
    let mut found = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        let origin = origin(present, field.name(), field.data_type());
        match &origin {
            Origin::Column(place) => used.extend([*place]),
            Origin::Elements(places) => used.extend(places.iter().copied()),
            Origin::Absent if field.is_nullable() => {}
            Origin::Absent => return Err(missing(file, field.name(), present)),
        }
        found.push(origin);
    }
    let extra = present.iter().enumerate().find(|(place, _)| !used.contains(place));
    match extra.filter(|_| !options.ignore_extra) {
        None => Ok(found),
        Some((_, column)) => Err(RowFileError::Extra {
            file: file.to_owned(),
            column: column.clone(),
            nearest: nearest(column, wanted.fields().iter().map(|field| field.name().as_str()))
                .map(str::to_owned),
        }),
    }
}

fn origin(present: &[String], name: &str, data_type: &DataType) -> Origin {
    let place = |wanted: &str| present.iter().position(|name| name == wanted);
    if let Some(place) = place(name) {
        return Origin::Column(place);
    }
    let DataType::FixedSizeList(_, len) = data_type else { return Origin::Absent };
    let elements: Option<Vec<usize>> =
        (0..*len).map(|element| place(&format!("{name}[{element}]"))).collect();
    elements.map_or(Origin::Absent, Origin::Elements)
}

fn missing(file: &str, column: &str, present: &[String]) -> RowFileError {
    RowFileError::Missing {
        file: file.to_owned(),
        column: column.to_owned(),
        nearest: nearest(column, present.iter().map(String::as_str)).map(str::to_owned),
        present: present.to_vec(),
    }
}
