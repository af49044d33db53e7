//! The schema of a table: its columns, and which of them identify, sample and index rows.
//!
//! Invariant: every [`TableSchema`] is valid; [`TableSchema::new`] refuses anything else.

mod added_columns;
mod difference;
mod index_column;
mod json;
mod notes;
mod suggestion;
mod types;

pub use index_column::IndexColumn;
pub(crate) use notes::UNIT;
pub use notes::is_same_column;
pub use types::TypeName;
pub(crate) use types::number_bytes;

use crate::name;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use atoll_errors::ErrorKind;
use std::collections::HashSet;
use std::sync::Arc;

/// The most index columns of a table.
pub const INDEX_COLUMNS_MAX: usize = 8;

/// The most columns of a table.
pub const COLUMNS_MAX: usize = 1000;

/// Why a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A table needs at least one column, and no more than [`COLUMNS_MAX`].
    #[error("a table has 1 to {COLUMNS_MAX} columns, not {count}")]
    ColumnCount {
        /// The number of columns given.
        count: usize,
    },
    /// Two columns have the same name.
    #[error("there are two columns \"{column}\"")]
    Twice {
        /// The name.
        column: String,
    },
    /// The table already has the column that is being added.
    #[error("the table has a column \"{column}\" already, of {there}")]
    Taken {
        /// The name.
        column: String,
        /// The type of the existing column.
        there: String,
    },
    /// A column's name cannot be used.
    #[error("a column cannot be called {column:?}: {problem}")]
    Name {
        /// The name.
        column: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A column has a type that tables do not hold.
    #[error(
        "column \"{column}\" has type {found}, which a table cannot hold; it can hold {}",
        TypeName::SUPPORTED
    )]
    Type {
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// A role names a column that does not exist.
    #[error("{role} names \"{column}\", which is not a column of the table{}", suggested(.nearest))]
    Unknown {
        /// The role.
        role: Role,
        /// The name given.
        column: String,
        /// The column with the most similar name, if there is one.
        nearest: Option<String>,
    },
    /// A role names a column twice.
    #[error("{role} names \"{column}\" twice")]
    RoleTwice {
        /// The role.
        role: Role,
        /// The name.
        column: String,
    },
    /// A role has no columns, or too many.
    #[error("{role} needs {least} to {most} columns, not {count}")]
    RoleCount {
        /// The role.
        role: Role,
        /// The number of columns given.
        count: usize,
        /// The fewest columns of the role.
        least: usize,
        /// The most columns of the role.
        most: usize,
    },
    /// A column that is added to a table is not nullable.
    #[error("column \"{column}\" must be nullable: earlier rows have no value in it")]
    AddedNotNullable {
        /// The column.
        column: String,
    },
    /// An index column names an element that the vectors of the column do not have.
    #[error("index names element {element} of \"{column}\", whose vectors have {len}: 0 to {}", .len.saturating_sub(1))]
    Element {
        /// The vector column.
        column: String,
        /// The element asked for.
        element: u32,
        /// The number of elements of each vector.
        len: u32,
    },
    /// A column has the name under which an index column, an element of a vector, is written.
    #[error("there is an index column {name}, an element of a vector, and a column \"{name}\"")]
    Ambiguous {
        /// The common name.
        name: String,
    },
    /// A column's type does not fit its role.
    #[error("{role} cannot use \"{column}\": it is {found}, and {role} takes {takes}")]
    RoleType {
        /// The role.
        role: Role,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The types that the role takes.
        takes: &'static str,
    },
    /// An id or sample key column is nullable.
    #[error("{role} cannot use \"{column}\": it may be null; declare it not nullable")]
    RoleNullable {
        /// The role.
        role: Role,
        /// The column.
        column: String,
    },
    /// The unit of the times of steps cannot be used.
    #[error("the times of steps cannot be in {unit:?}: {problem}")]
    TimeUnit {
        /// The unit.
        unit: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A stored schema cannot be read.
    #[error("the stored schema is damaged: {problem}")]
    Damaged {
        /// What is wrong.
        problem: String,
    },
    /// A stored schema was written by a newer release.
    #[error("the schema has format {found}; this release reads up to {supported}")]
    NewerFormat {
        /// The format found.
        found: u64,
        /// The newest known format.
        supported: u64,
    },
}

pub(crate) fn suggested(name: &Option<String>) -> String {
    name.as_deref().map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}

impl SchemaError {
    /// The error kind that all doors share.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::NewerFormat { .. } => ErrorKind::NewerFormat,
            _ => ErrorKind::InvalidInput,
        }
    }
}

/// What a column is used for, besides holding values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Identifies a row: no two rows agree in all id columns.
    Id,
    /// Identifies a unit of sampling: rows that agree in these columns are sampled together.
    SampleKey,
    /// Spans the regions: boxes are given over these columns.
    Index,
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Id => "id",
            Self::SampleKey => "sample key",
            Self::Index => "index",
        })
    }
}

/// The columns of a table and their roles.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    columns: SchemaRef,
    id: Vec<usize>,
    sample_key: Vec<usize>,
    index: Vec<IndexColumn>,
    salt: u64,
    has_unique_ids: bool,
    time_unit: Option<Arc<str>>,
}

/// The roles of columns, by name, for [`TableSchema::new`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The id: at least one column.
    pub id: Vec<String>,
    /// The sample key; if empty, the id, so that each row is a unit of its own.
    pub sample_key: Vec<String>,
    /// 1 to [`INDEX_COLUMNS_MAX`] numeric columns. An element of a vector column is `name[0]`.
    pub index: Vec<String>,
    /// Mixed into every weight. With salt 0, equal entities are sampled alike in every table.
    pub salt: u64,
}

impl TableSchema {
    /// The schema of a table with these columns and roles. It names the elements of vectors `item`, whatever
    /// their name in `columns`.
    ///
    /// # Errors
    /// [`SchemaError`], which names the column and the role.
    pub fn new(columns: impl Into<SchemaRef>, roles: &Roles) -> Result<Self, SchemaError> {
        let columns: SchemaRef = columns.into();
        check_columns(&columns)?;
        let columns = with_plain_vectors(columns);
        let id = resolve(&columns, Role::Id, &roles.id, (1, columns.fields().len()))?;
        let sample_key = if roles.sample_key.is_empty() {
            id.clone()
        } else {
            resolve(&columns, Role::SampleKey, &roles.sample_key, (1, columns.fields().len()))?
        };
        let index = index_column::resolve(&columns, &roles.index)?;
        Ok(Self { columns, id, sample_key, index, salt: roles.salt, has_unique_ids: false, time_unit: None })
    }

    /// The same schema, for a table that refuses rows whose ids exist in their run.
    #[must_use]
    pub fn with_unique_ids(self) -> Self {
        Self { has_unique_ids: true, ..self }
    }

    /// Whether the table refuses rows whose ids exist in their run; otherwise writers have to keep ids
    /// distinct.
    #[must_use]
    pub const fn has_unique_ids(&self) -> bool {
        self.has_unique_ids
    }

    /// The same schema, for a table whose steps have times in this unit, such as `ps`. It is a text of the
    /// user's choice, as the units of columns are.
    ///
    /// # Errors
    /// [`SchemaError::TimeUnit`] for a text that is empty, longer than 255 bytes, or has control characters.
    pub fn with_time_unit(self, unit: &str) -> Result<Self, SchemaError> {
        match name::problem(unit) {
            None => Ok(Self { time_unit: Some(unit.into()), ..self }),
            Some(problem) => Err(SchemaError::TimeUnit { unit: unit.to_owned(), problem }),
        }
    }

    /// The unit of the times of steps; `None` if the table does not say.
    #[must_use]
    pub fn time_unit(&self) -> Option<&str> {
        self.time_unit.as_deref()
    }

    /// Bytes that the numbers and truth values of a row take in memory, at most.
    pub(crate) fn row_bytes(&self) -> u64 {
        let bytes = |field: &Arc<Field>| match field.data_type() {
            DataType::Boolean => 1,
            other => number_bytes(other),
        };
        self.columns.fields().iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// The columns, in their order.
    #[must_use]
    pub fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// The places of the id columns.
    #[must_use]
    pub fn id(&self) -> &[usize] {
        &self.id
    }

    /// The places of the sample key columns.
    #[must_use]
    pub fn sample_key(&self) -> &[usize] {
        &self.sample_key
    }

    /// The index columns.
    #[must_use]
    pub fn index(&self) -> &[IndexColumn] {
        &self.index
    }

    /// The salt, which is mixed into every weight.
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// Whether several rows may share a weight, because the sample key identifies less than a row.
    #[must_use]
    pub fn samples_entities(&self) -> bool {
        self.id.iter().any(|column| !self.sample_key.contains(column))
    }

    /// The roles by name, as they were given.
    #[must_use]
    pub fn roles(&self) -> Roles {
        let names = |places: &[usize]| -> Vec<String> {
            places.iter().map(|&place| self.columns.field(place).name().clone()).collect()
        };
        Roles {
            id: names(&self.id),
            sample_key: names(&self.sample_key),
            index: self.index.iter().map(|index| index.name(&self.columns)).collect(),
            salt: self.salt,
        }
    }

    /// The stored form: JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// The stored form with sorted object keys: the same text for the same schema in every build.
    pub(crate) fn to_sorted_json(&self) -> String {
        json::write_sorted(self)
    }

    /// Parses the text from [`TableSchema::to_json`].
    ///
    /// # Errors
    /// [`SchemaError::Damaged`], [`SchemaError::NewerFormat`], or the error of an invalid schema.
    pub fn from_json(text: &str) -> Result<Self, SchemaError> {
        json::read(text)
    }
}

/// The same columns, with vectors as a schema from the store has them. Parquet and its writers use other
/// names and metadata for elements, which are not part of the type.
fn with_plain_vectors(columns: SchemaRef) -> SchemaRef {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::FixedSizeList(item, len) => {
            let item = Field::new("item", item.data_type().clone(), item.is_nullable());
            let vector = DataType::FixedSizeList(Arc::new(item), *len);
            Arc::new(field.as_ref().clone().with_data_type(vector))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<Arc<Field>> = columns.fields().iter().map(plain).collect();
    Arc::new(Schema::new_with_metadata(fields, columns.metadata().clone()))
}

fn check_columns(columns: &Schema) -> Result<(), SchemaError> {
    let count = columns.fields().len();
    if count == 0 || count > COLUMNS_MAX {
        return Err(SchemaError::ColumnCount { count });
    }
    check_fields(columns)
}

/// As [`check_columns`], without a limit on their number.
fn check_fields(columns: &Schema) -> Result<(), SchemaError> {
    let mut seen = HashSet::new();
    for field in columns.fields() {
        if let Some(problem) = name::problem(field.name()) {
            return Err(SchemaError::Name { column: field.name().clone(), problem });
        }
        if !seen.insert(field.name()) {
            return Err(SchemaError::Twice { column: field.name().clone() });
        }
        if TypeName::of(field.data_type()).is_none() {
            let (column, found) = (field.name().clone(), TypeName::told(field.data_type()));
            return Err(SchemaError::Type { column, found });
        }
    }
    Ok(())
}

/// The places of the columns that a role names.
fn resolve(
    columns: &Schema,
    role: Role,
    names: &[String],
    (least, most): (usize, usize),
) -> Result<Vec<usize>, SchemaError> {
    check_count(role, names.len(), (least, most))?;
    let mut places = Vec::with_capacity(names.len());
    for name in names {
        let Some((place, field)) = columns.column_with_name(name) else {
            let nearest = nearest_column(columns, name);
            return Err(SchemaError::Unknown { role, column: name.clone(), nearest });
        };
        if places.contains(&place) {
            return Err(SchemaError::RoleTwice { role, column: name.clone() });
        }
        check_role(role, field)?;
        places.push(place);
    }
    Ok(places)
}

fn check_count(role: Role, count: usize, (least, most): (usize, usize)) -> Result<(), SchemaError> {
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(SchemaError::RoleCount { role, count, least, most })
}

fn check_role(role: Role, field: &Field) -> Result<(), SchemaError> {
    if matches!(field.data_type(), DataType::FixedSizeList(..)) {
        let (column, found) = (field.name().clone(), TypeName::told(field.data_type()));
        let takes = "numbers, strings, bytes, booleans, dates and times, not vectors";
        return Err(SchemaError::RoleType { role, column, found, takes });
    }
    // Rows without an index value live in the side cube; a row without a name could not be told from others.
    if field.is_nullable() {
        return Err(SchemaError::RoleNullable { role, column: field.name().clone() });
    }
    Ok(())
}

pub(crate) fn nearest_column(columns: &Schema, name: &str) -> Option<String> {
    most_similar(name, columns.fields().iter().map(|field| field.name().as_str()), 0.5).map(str::to_owned)
}

/// The name most similar to `name`, if its similarity, from 0 to 1, is at least `least`.
fn most_similar<'a>(name: &str, names: impl IntoIterator<Item = &'a str>, least: f64) -> Option<&'a str> {
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(other, name);
    let scored = names.into_iter().map(|other| (likeness(other), other));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= least).map(|(_, other)| other)
}

/// A field of a table, for schemas made in code.
#[must_use]
pub fn column(name: &str, data_type: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, nullable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::TimeUnit;

    fn particles() -> Schema {
        let position = Arc::new(Field::new("item", DataType::Float64, false));
        Schema::new(vec![
            column("pid", DataType::Int64, false),
            column("step", DataType::Int64, false),
            column("x", DataType::Float32, true),
            column("time", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
            column("name", DataType::Utf8, false),
            column("pos", DataType::FixedSizeList(position, 3), false),
        ])
    }

    fn roles(id: &[&str], sample_key: &[&str], index: &[&str]) -> Roles {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Roles { id: names(id), sample_key: names(sample_key), index: names(index), salt: 0 }
    }

    fn refused(id: &[&str], sample_key: &[&str], index: &[&str]) -> String {
        TableSchema::new(particles(), &roles(id, sample_key, index)).unwrap_err().to_string()
    }

    #[test]
    fn roles_are_found_by_name_and_the_sample_key_is_the_id_unless_said() {
        let rows = TableSchema::new(particles(), &roles(&["pid", "step"], &[], &["x", "time"])).unwrap();
        assert_eq!((rows.id(), rows.sample_key()), (&[0, 1][..], &[0, 1][..]));
        assert_eq!(rows.index().iter().map(|index| index.place).collect::<Vec<_>>(), [2, 3]);
        assert!(!rows.samples_entities());
        let paths = TableSchema::new(particles(), &roles(&["pid", "step"], &["pid"], &["x"])).unwrap();
        assert!(paths.samples_entities());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_column_and_the_role() {
        let message = refused(&["pdi"], &[], &["x"]);
        assert_eq!(message, "id names \"pdi\", which is not a column of the table; did you mean \"pid\"?");
        assert!(refused(&[], &[], &["x"]).contains("id needs 1 to 6 columns, not 0"));
        assert!(refused(&["pid"], &[], &[]).contains("index needs 1 to 8 columns, not 0"));
        assert!(refused(&["pid"], &[], &["name"]).contains("index cannot use \"name\""));
        assert!(refused(&["pos"], &[], &["x"]).contains("not vectors"));
        assert!(refused(&["x"], &[], &["x"]).contains("may be null"));
        assert!(refused(&["pid"], &["step", "step"], &["x"]).contains("sample key names \"step\" twice"));
    }

    #[test]
    fn what_elements_of_a_vector_are_called_is_no_part_of_a_schema() {
        let with_elements = |element: Field| {
            let vector = column("v", DataType::FixedSizeList(Arc::new(element), 2), true);
            TableSchema::new(
                Schema::new(vec![column("a", DataType::Int64, false), vector]),
                &roles(&["a"], &[], &["a"]),
            )
            .unwrap()
        };
        for nullable in [false, true] {
            let element = |name: &str| Field::new(name, DataType::Float32, nullable);
            let noted = [("PARQUET:field_id".to_owned(), "7".to_owned())];
            let schema = with_elements(element("element").with_metadata(noted));
            assert_eq!(schema, with_elements(element("item")));
            assert_eq!(TableSchema::from_json(&schema.to_json()).unwrap(), schema);
        }
    }

    #[test]
    fn columns_that_cannot_be_held_are_refused() {
        let refused = |fields: Vec<Arc<Field>>| {
            TableSchema::new(Schema::new(fields), &roles(&["a"], &[], &["a"])).unwrap_err().to_string()
        };
        let a = || column("a", DataType::Int32, false);
        assert!(refused(vec![]).contains("1 to 1000 columns, not 0"));
        assert!(refused(vec![a(), a()]).contains("two columns \"a\""));
        assert!(refused(vec![a(), column("", DataType::Int8, false)]).contains("it is empty"));
        assert!(
            refused(vec![a(), column("d", DataType::Decimal128(9, 2), false)]).contains("decimal128(9, 2)")
        );
    }
}
