//! Decides which tables can form a union: those with the same roles and equal columns of the same name. Of
//! what is noted on a column, only two units that differ keep tables apart; so do two units of the times of
//! steps.

use crate::schema::UNIT;
use crate::{TableError, TableSchema, is_same_column};
use arrow_schema::{Field, FieldRef};
use std::sync::Arc;

/// The schema of a union: the columns of the first table, followed by those that only later ones have. Unit
/// and description of a column are those of the first table that has one.
pub(super) fn alike(schemas: &[Arc<TableSchema>]) -> Result<TableSchema, TableError> {
    let first = schemas.first().ok_or(TableError::Unlike { place: 1 })?;
    let mut all = first.as_ref().clone();
    for (place, schema) in (1..).zip(schemas) {
        if schema.roles() != first.roles() {
            return Err(TableError::Unlike { place });
        }
        if let (Some(unit), Some(earlier)) = (schema.time_unit(), all.time_unit())
            && unit != earlier
        {
            return Err(TableError::UnlikeTimes {
                place,
                unit: unit.to_owned(),
                earlier: earlier.to_owned(),
            });
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
                Ok(known) if is_same_column(known, field) => {}
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
        // With the unit of this table, so that a later one cannot have another.
        all = all.with_notes_of(schema).with_added(more)?;
    }
    Ok(all)
}

/// Describes how two columns of the same name differ.
fn told_apart(field: &Field, known: &Field) -> String {
    let described = |field: &Field| {
        let null = if field.is_nullable() { ", nullable" } else { "" };
        let unit = field.metadata().get(UNIT).map_or(String::new(), |unit| format!(", unit {unit}"));
        format!("{}{null}{unit}", field.data_type())
    };
    format!("{} instead of {}", described(field), described(known))
}
