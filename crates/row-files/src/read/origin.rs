//! Where each wanted column comes from: one column of the file, several of them, or none.
//!
//! A vector column may be stored as columns `pos[0]`, `pos[1]`, and so on.

use super::ReadOptions;
use crate::RowFileError;
use arrow_schema::{DataType, Field, Schema};
use atoll_errors::nearest;
use std::collections::HashSet;

/// The source of the values of a wanted column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The column at this place.
    Column(usize),
    /// The columns at these places, one for each element.
    Elements(Vec<usize>),
    /// No column: all values are null.
    Absent,
}

/// The origins of the wanted columns, given the new names of the columns of a file.
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
        check_length(file, present, field, &origin)?;
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

/// Refuses a vector of another length: whatever may be ignored, it is neither cut nor treated as missing.
fn check_length(file: &str, present: &[String], field: &Field, origin: &Origin) -> Result<(), RowFileError> {
    let DataType::FixedSizeList(_, wanted) = field.data_type() else { return Ok(()) };
    let is_element = |name: &&String| vector_of_element(name).is_some_and(|list| list == field.name());
    let there = present.iter().filter(is_element).count();
    if there == 0 || usize::try_from(*wanted) == Ok(there) || matches!(origin, Origin::Column(_)) {
        return Ok(());
    }
    Err(RowFileError::Type {
        file: file.to_owned(),
        column: field.name().clone(),
        found: format!("a vector of {there} elements"),
        wanted: format!("one of {wanted}"),
    })
}

/// The name of the vector to which an element with this name belongs.
pub(super) fn vector_of_element(name: &str) -> Option<&str> {
    let (list, place) = name.strip_suffix(']')?.rsplit_once('[')?;
    place.parse::<usize>().is_ok().then_some(list)
}

fn missing(file: &str, column: &str, present: &[String]) -> RowFileError {
    RowFileError::Missing {
        file: file.to_owned(),
        column: column.to_owned(),
        nearest: nearest(column, present.iter().map(String::as_str)).map(str::to_owned),
        present: present.to_vec(),
    }
}
