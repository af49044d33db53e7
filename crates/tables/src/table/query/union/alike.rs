//! Decides which tables can form a union: those with the same roles and equal columns of the same name.

use crate::{TableError, TableSchema};
use arrow_schema::{Field, FieldRef};
use std::sync::Arc;

/// The schema of a union: the columns of the first table, followed by those that only later ones have.
pub(super) fn alike(schemas: &[Arc<TableSchema>]) -> Result<TableSchema, TableError> {
    let first = schemas.first().ok_or(TableError::Unlike { place: 1 })?;
    let mut all = first.as_ref().clone();
    for (place, schema) in (1..).zip(schemas) {
        if schema.roles() != first.roles() {
            return Err(TableError::Unlike { place });
        }
        let unlike = |field: &FieldRef, problem: String| TableError::UnlikeColumn {
            place,
            column: field.name().clone(),
            problem,
        };
        let missing = |field: &&FieldRef| schema.columns().column_with_name(field.name()).is_none();
        if let Some(field) = all.columns().fields().iter().filter(missing).find(|field| !field.is_nullable())
        {
            return Err(unlike(field, "it is missing here and not nullable".to_owned()));
        }
        let mut more = Vec::new();
        for field in schema.columns().fields() {
            match all.columns().field_with_name(field.name()) {
                Ok(known) if known == field.as_ref() => {}
                Ok(known) => return Err(unlike(field, told_apart(field, known))),
                Err(_) if field.is_nullable() => more.push(Arc::clone(field)),
                Err(_) => {
                    return Err(unlike(
                        field,
                        "the earlier tables lack it and it is not nullable".to_owned(),
                    ));
                }
            }
        }
        all = all.with_added(more)?;
    }
    Ok(all)
}

/// Describes how two columns of the same name differ.
fn told_apart(field: &Field, known: &Field) -> String {
    let described = |field: &Field| {
        let null = if field.is_nullable() { ", nullable" } else { "" };
        let mut notes: Vec<String> =
            field.metadata().iter().map(|(key, value)| format!(", {key} {value}")).collect();
        notes.sort_unstable();
        format!("{}{null}{}", field.data_type(), notes.concat())
    };
    format!("{} instead of {}", described(field), described(known))
}
