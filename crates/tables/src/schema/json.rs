//! The stored form of a schema: human-readable JSON.
//!
//! ```text
//! {"format":1,"columns":[{"name":"x","type":"float64","nullable":false,"metadata":{"unit":"m"}}],
//!  "id":["pid","step"],"sample_key":["pid"],"index":["x"],"salt":"0"}
//! ```
//!
//! The salt is a string, because not every JSON reader keeps 64 bits of a number.
//!
//! Format 2 adds `"unique":true`, and is written only for such tables: a release that does not know the
//! property would append rows that the table has to refuse.
//!
//! The unit of the times of steps, `"time_unit":"ps"`, is written only where there is one. It needs no format
//! of its own: to a release that does not know it, the times have no unit.

use super::{Roles, SchemaError, TableSchema, TypeName};
use arrow_schema::{Field, Schema};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The newest known format.
const FORMAT: u64 = 2;

/// The format of a schema without later additions.
const PLAIN_FORMAT: u64 = 1;

pub(super) fn write(schema: &TableSchema) -> String {
    let mut stored = plain(schema);
    if schema.has_unique_ids() {
        stored["format"] = FORMAT.into();
        stored["unique"] = true.into();
    }
    if let Some(unit) = schema.time_unit() {
        stored["time_unit"] = unit.into();
    }
    stored.to_string()
}

/// The part of a schema that describes rows, leaving out which rows the table accepts.
fn plain(schema: &TableSchema) -> Value {
    let columns: Vec<Value> = schema.columns().fields().iter().map(|field| column_to_json(field)).collect();
    let roles = schema.roles();
    json!({
        "format": PLAIN_FORMAT,
        "columns": columns,
        "id": roles.id,
        "sample_key": roles.sample_key,
        "index": roles.index,
        "salt": roles.salt.to_string(),
    })
}

/// The stored form with the keys of every object sorted. The order of keys otherwise depends on the features
/// of the JSON library that other crates in the build enable, and a checksum of the text must not. Whether
/// ids are unique and the unit of times are left out, since they do not affect blocks.
pub(super) fn write_sorted(schema: &TableSchema) -> String {
    sorted(plain(schema)).to_string()
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(pairs) => {
            let mut pairs: Vec<(String, Value)> = pairs.into_iter().collect();
            pairs.sort_unstable_by(|left, right| left.0.cmp(&right.0));
            Value::Object(pairs.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(sorted).collect()),
        other => other,
    }
}

fn column_to_json(field: &Field) -> Value {
    let type_name = TypeName::of(field.data_type()).map(|name| name.to_string());
    let mut column = Map::new();
    column.insert("name".into(), field.name().as_str().into());
    column.insert("type".into(), type_name.into());
    column.insert("nullable".into(), field.is_nullable().into());
    if !field.metadata().is_empty() {
        let mut metadata: Vec<(&String, &String)> = field.metadata().iter().collect();
        metadata.sort_unstable();
        let metadata = metadata.into_iter().map(|(key, value)| (key.clone(), value.as_str().into()));
        column.insert("metadata".into(), Value::Object(metadata.collect()));
    }
    Value::Object(column)
}

/// A column by itself: the same text for the same column.
pub(super) fn write_column(field: &Field) -> String {
    sorted(column_to_json(field)).to_string()
}

pub(super) fn read_column(text: &str) -> Result<Field, SchemaError> {
    let stored: Value = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    column_from_json(&stored)
}

pub(super) fn read(text: &str) -> Result<TableSchema, SchemaError> {
    let stored: Value = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    let found = stored["format"].as_u64().ok_or_else(|| damaged("it has no format"))?;
    if found > FORMAT {
        return Err(SchemaError::NewerFormat { found, supported: FORMAT });
    }
    let columns = stored["columns"].as_array().ok_or_else(|| damaged("it has no columns"))?;
    let columns = columns.iter().map(column_from_json).collect::<Result<Vec<Field>, _>>()?;
    let roles = Roles {
        id: names(&stored, "id")?,
        sample_key: names(&stored, "sample_key")?,
        index: names(&stored, "index")?,
        salt: text_of(&stored, "salt")?.parse().map_err(|_| damaged("its salt is not a number"))?,
    };
    let schema = TableSchema::new(Schema::new(columns), &roles)?;
    let schema = match &stored["unique"] {
        Value::Null | Value::Bool(false) => schema,
        Value::Bool(true) => schema.with_unique_ids(),
        _ => return Err(damaged("its \"unique\" is neither true nor false")),
    };
    match &stored["time_unit"] {
        Value::Null => Ok(schema),
        Value::String(unit) => schema.with_time_unit(unit),
        _ => Err(damaged("its \"time_unit\" is not text")),
    }
}

fn column_from_json(column: &Value) -> Result<Field, SchemaError> {
    let name = text_of(column, "name")?;
    let type_name: TypeName = text_of(column, "type")?
        .parse()
        .map_err(|error: super::types::UnknownType| damaged(error.to_string()))?;
    let nullable = column["nullable"].as_bool().ok_or_else(|| damaged("a column has no \"nullable\""))?;
    let metadata = match &column["metadata"] {
        Value::Null => HashMap::new(),
        Value::Object(pairs) => pairs
            .iter()
            .map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect::<Option<_>>()
            .ok_or_else(|| damaged("a column's metadata holds something other than text"))?,
        _ => return Err(damaged("a column's metadata is not an object")),
    };
    Ok(Field::new(name, type_name.data_type().clone(), nullable).with_metadata(metadata))
}

fn names(stored: &Value, role: &str) -> Result<Vec<String>, SchemaError> {
    let names = stored[role].as_array().ok_or_else(|| damaged(format!("it has no {role}")))?;
    let names = names.iter().map(|name| name.as_str().map(str::to_owned));
    names
        .collect::<Option<_>>()
        .ok_or_else(|| damaged(format!("its {role} holds something other than names")))
}

fn text_of<'v>(value: &'v Value, key: &str) -> Result<&'v str, SchemaError> {
    value[key].as_str().ok_or_else(|| damaged(format!("\"{key}\" is missing or not text")))
}

fn damaged(problem: impl Into<String>) -> SchemaError {
    SchemaError::Damaged { problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::super::column;
    use super::*;
    use arrow_schema::DataType;

    fn schema() -> TableSchema {
        let position = Field::new("x", DataType::Float64, true)
            .with_metadata(HashMap::from([("unit".to_owned(), "m".to_owned())]));
        let columns = Schema::new(vec![
            column("pid", DataType::UInt64, false),
            column("step", DataType::Int64, false),
            std::sync::Arc::new(position),
        ]);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let roles = Roles {
            id: names(&["pid", "step"]),
            sample_key: names(&["pid"]),
            index: names(&["x", "step"]),
            salt: u64::MAX,
        };
        TableSchema::new(columns, &roles).unwrap()
    }

    #[test]
    fn a_schema_comes_back_as_it_was_with_its_units_and_all_bits_of_its_salt() {
        let schema = schema();
        assert_eq!(TableSchema::from_json(&schema.to_json()).unwrap(), schema);
        assert!(schema.to_json().contains(r#""metadata":{"unit":"m"}"#));
    }

    #[test]
    fn what_blocks_know_their_schema_by_is_the_same_in_every_build() {
        // Fails if the order of keys depends on what else is built: the whole workspace, or this crate alone.
        assert_eq!(
            write_sorted(&schema()),
            r#"{"columns":[{"name":"pid","nullable":false,"type":"uint64"},{"name":"step","nullable":false,"type":"int64"},{"metadata":{"unit":"m"},"name":"x","nullable":true,"type":"float64"}],"format":1,"id":["pid","step"],"index":["x","step"],"salt":"18446744073709551615","sample_key":["pid"]}"#
        );
        assert_eq!(crate::block::schema_sum(&schema()), 16_975_136_302_135_720_268);
    }

    #[test]
    fn a_schema_with_unique_ids_says_so_and_older_releases_leave_its_table_alone() {
        let unique = schema().with_unique_ids();
        assert_eq!(TableSchema::from_json(&unique.to_json()).unwrap(), unique);
        // A release that reads up to format 1 refuses this schema, and so appends nothing that it cannot
        // check.
        assert!(unique.to_json().contains("\"format\":2"), "{}", unique.to_json());
        assert!(schema().to_json().contains("\"format\":1"), "others are readable by it");
        assert_ne!(unique, schema());
        assert_eq!(write_sorted(&unique), write_sorted(&schema()), "blocks are the same");
        let odd = unique.to_json().replace("\"unique\":true", "\"unique\":1");
        assert!(matches!(TableSchema::from_json(&odd), Err(SchemaError::Damaged { .. })));
    }

    #[test]
    fn the_unit_of_times_is_kept_and_releases_that_do_not_know_it_read_the_table() {
        let timed = schema().with_time_unit("ps").unwrap();
        assert_eq!(TableSchema::from_json(&timed.to_json()).unwrap(), timed);
        assert_eq!((timed.time_unit(), schema().time_unit()), (Some("ps"), None));
        assert!(timed.to_json().contains("\"format\":1"), "{}", timed.to_json());
        assert_eq!(timed.to_json().replace(",\"time_unit\":\"ps\"", ""), schema().to_json());
        assert_ne!(timed, schema());
        assert_eq!(write_sorted(&timed), write_sorted(&schema()), "blocks are the same");
        let both = timed.clone().with_unique_ids();
        assert_eq!(TableSchema::from_json(&both.to_json()).unwrap(), both);
        let odd = timed.to_json().replace("\"ps\"", "7");
        assert!(matches!(TableSchema::from_json(&odd), Err(SchemaError::Damaged { .. })));
        for unit in ["", "p\ns"] {
            assert!(matches!(schema().with_time_unit(unit), Err(SchemaError::TimeUnit { .. })), "{unit:?}");
        }
    }

    #[test]
    fn a_damaged_or_newer_schema_says_so() {
        let text = schema().to_json();
        for cut in 0..text.len() {
            let read = TableSchema::from_json(&text[..cut]);
            assert!(matches!(read, Err(SchemaError::Damaged { .. })), "cut at {cut}: {read:?}");
        }
        let newer = text.replace("\"format\":1", "\"format\":3");
        assert!(matches!(TableSchema::from_json(&newer), Err(SchemaError::NewerFormat { found: 3, .. })));
        let unknown = text.replace("uint64", "uint63");
        assert!(matches!(TableSchema::from_json(&unknown), Err(SchemaError::Damaged { .. })));
    }
}
