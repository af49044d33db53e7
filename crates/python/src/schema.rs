//! Schemas: of a table, as Arrow's; and columns as text, the form in which Python passes the schema of a new
//! table.

use crate::capsule;
use crate::error::{Failure, misuse};
use crate::pickled::{Reduced, reduced};
use arrow_schema::{DataType, Field, Fields, SchemaRef, TimeUnit};
use atoll_tables::TypeName;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A column as text: its name, its type, and whether it may be null.
pub(crate) type FieldText = (String, String, bool);

/// The notes on a column, such as its unit, by name.
type Notes = BTreeMap<String, String>;

/// A column of a new table: a [`FieldText`] and its notes.
pub(crate) type NotedField = (String, String, bool, Notes);

/// The metadata of a column that a table keeps. Anything else is of the library or program that made the
/// schema, and differs between sources of the same columns.
const NOTES: [&str; 2] = ["unit", "description"];

/// The columns of a table or of an answer.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Schema(pub(crate) SchemaRef);

#[pymethods]
impl Schema {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_out(py, &self.0)
    }

    /// Name, type and whether it may be null, of each column.
    fn fields(&self) -> Vec<FieldText> {
        self.0.fields().iter().map(|field| text_of(field)).collect()
    }

    /// A line for each column: its type, as a new table takes it, and its notes.
    fn __repr__(&self) -> String {
        let lines = self.0.fields().iter().map(|field| format!("\n  {}", line_of(field)));
        format!("<atoll schema>{}", lines.collect::<String>())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduced(py, "schema_of_stream", &self.0, &[])
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// The columns of anything that has an Arrow schema, with types that a table can hold, and their notes.
#[pyfunction]
pub(crate) fn fields(object: &Bound<'_, PyAny>) -> PyResult<Vec<NotedField>> {
    let schema = if object.hasattr("__arrow_c_schema__")? {
        capsule::schema_in(object)?
    } else if object.hasattr("__arrow_c_stream__")? {
        capsule::schema_of_stream(object)?
    } else {
        return Err(misuse("neither a schema nor a stream"));
    };
    check_all_plain(schema.fields())?;
    let noted = |field: &Field| {
        let (name, type_name, is_nullable) = text_of(field);
        (name, type_name, is_nullable, notes_of(field))
    };
    Ok(schema.fields().iter().map(|field| noted(field)).collect())
}

/// The type of a new column, given as a type or a field of Arrow: its name, whether it may be null, and the
/// notes of a field.
#[pyfunction]
pub(crate) fn type_name(column: &str, object: &Bound<'_, PyAny>) -> PyResult<(String, bool, Notes)> {
    let field = capsule::field_in(object)?;
    check_plain(column, &field)?;
    let (_, name, is_nullable) = text_of(&field);
    Ok((name, is_nullable, notes_of(&field)))
}

/// The extension types of Arrow whose values are those that they are stored as.
const PLAIN: [&str; 2] = ["arrow.fixed_shape_tensor", "arrow.json"];

/// Refuses columns that [`check_plain`] refuses.
pub(crate) fn check_all_plain(fields: &Fields) -> Result<(), Failure> {
    fields.iter().try_for_each(|field| check_plain(field.name(), field))
}

/// Refuses a column `name` of an extension type of Arrow: without the type, the values that it is stored as
/// mean something else, such as a month of pandas, which is a count of months.
pub(crate) fn check_plain(name: &str, field: &Field) -> Result<(), Failure> {
    if let Some(found) = field.extension_type_name().filter(|found| !PLAIN.contains(found)) {
        let problem =
            format!("column \"{name}\" is of Arrow's extension type {found}, which a table cannot hold");
        let hint = match found {
            "pandas.period" => ".dt.to_timestamp() makes instants of periods",
            _ => "to keep the bare values, cast them in PyArrow: values.cast(values.type.storage_type)",
        };
        return Err(Failure::hinted(problem, hint));
    }
    match field.data_type() {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            check_plain(name, item)
        }
        _ => Ok(()),
    }
}

/// What the metadata keys of an extension type of Arrow begin with.
const EXTENSION_KEYS: &str = "ARROW:extension:";

/// A schema without the extension types of its columns. A table that was made like a file may have noted
/// them, although it holds the values as what they are stored as; its own rows would then be refused.
pub(crate) fn without_extensions(schema: &SchemaRef) -> SchemaRef {
    let is_of_extension = |key: &str| key.starts_with(EXTENSION_KEYS);
    if !schema.fields().iter().any(|field| field.metadata().keys().any(|key| is_of_extension(key))) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| {
        let mut kept = field.metadata().clone();
        kept.retain(|key, _| !is_of_extension(key));
        field.as_ref().clone().with_metadata(kept)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(arrow_schema::Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The notes on a column, from its metadata.
fn notes_of(field: &Field) -> Notes {
    let note = |key: &str| Some((key.to_owned(), field.metadata().get(key)?.clone()));
    NOTES.into_iter().filter_map(note).collect()
}

fn text_of(field: &Field) -> FieldText {
    let held = held_as(field.data_type());
    // A type that a table cannot hold keeps Arrow's name, with which the schema refuses the column.
    let name = TypeName::of(&held).map_or_else(|| held.to_string(), |name| name.to_string());
    (field.name().clone(), name, field.is_nullable())
}

/// The notes on a column that are shown.
pub(crate) fn line_of(field: &Field) -> String {
    let (name, type_name, is_nullable) = text_of(field);
    let kind = match field.data_type() {
        DataType::FixedSizeList(item, len) => format!("{}[{len}]", text_of(item).1),
        _ => type_name,
    };
    let note = |key| field.metadata().get(key).map(String::as_str);
    let unit = note("unit").map_or(String::new(), |unit| format!(" in {unit}"));
    let description = note("description").map_or(String::new(), |text| format!(", {text}"));
    format!("{name}: {kind}{}{unit}{description}", if is_nullable { "?" } else { "" })
}

/// The unit of the numbers of a column: the one noted for it, or that of its times.
pub(crate) fn unit_of(field: &Field) -> Option<String> {
    let of_times = |unit: TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    field.metadata().get("unit").cloned().or_else(|| match field.data_type() {
        DataType::Timestamp(unit, _) => Some(format!("{} since 1970-01-01", of_times(*unit))),
        DataType::Duration(unit) => Some(of_times(*unit).to_owned()),
        DataType::Date32 => Some("days since 1970-01-01".to_owned()),
        _ => None,
    })
}

/// The type in which a table holds the values of a type, which may differ in layout.
pub(crate) fn held_as(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => held_as(values),
        DataType::FixedSizeList(item, len) => {
            let item = Field::new("item", item.data_type().clone(), item.is_nullable());
            DataType::FixedSizeList(Arc::new(item), *len)
        }
        other => other.clone(),
    }
}

/// A schema from text.
pub(crate) fn schema_of(fields: Vec<NotedField>) -> Result<SchemaRef, Failure> {
    let field = |(name, type_name, is_nullable, notes): NotedField| {
        let notes: HashMap<String, String> = notes.into_iter().collect();
        Ok::<_, Failure>(field_of(name, &type_name, is_nullable)?.with_metadata(notes))
    };
    let fields: Vec<Field> = fields.into_iter().map(field).collect::<Result<_, _>>()?;
    Ok(Arc::new(arrow_schema::Schema::new(fields)))
}

/// A column from text.
pub(crate) fn field_of(name: String, type_name: &str, is_nullable: bool) -> Result<Field, Failure> {
    let parsed: Result<TypeName, _> = type_name.parse();
    match parsed {
        Ok(parsed) => Ok(Field::new(name, parsed.data_type().clone(), is_nullable)),
        Err(error) => Err(Failure::input(format!("column \"{name}\": {error}"))),
    }
}
