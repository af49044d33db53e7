//! Notes on columns: texts in the metadata of a column that say what its values mean and change none of them.
//!
//! Only the unit decides whether two columns can hold the same values. Libraries keep texts of their own in
//! the metadata, which differ from file to file and from build to build.

use super::TableSchema;
use arrow_schema::{Field, FieldRef, Schema};
use std::sync::Arc;

/// The metadata key of the unit of a column.
pub(crate) const UNIT: &str = "unit";

/// The metadata key of the description of a column.
const DESCRIPTION: &str = "description";

/// What a table notes on a column. Any other text is a note of a library.
pub(super) const TOLD: [&str; 2] = [UNIT, DESCRIPTION];

/// Whether two columns have the same name, type and nullability, and no two units that differ. A column
/// without a unit may hold the same values as one that has a unit.
#[must_use]
pub fn is_same_column(one: &Field, other: &Field) -> bool {
    let has_other_unit = match (one.metadata().get(UNIT), other.metadata().get(UNIT)) {
        (Some(one), Some(other)) => one != other,
        _ => false,
    };
    one.name() == other.name()
        && one.data_type() == other.data_type()
        && one.is_nullable() == other.is_nullable()
        && !has_other_unit
}

impl TableSchema {
    /// This schema with the units and descriptions that its columns lack and those of another schema have.
    /// The times of steps have a unit likewise.
    pub(crate) fn with_notes_of(&self, other: &Self) -> Self {
        let noted = |field: &FieldRef| -> FieldRef {
            let Ok(told) = other.columns.field_with_name(field.name()) else { return Arc::clone(field) };
            let mut notes = field.metadata().clone();
            for key in TOLD {
                if let Some(text) = told.metadata().get(key)
                    && !notes.contains_key(key)
                {
                    notes.insert(key, text.as_str());
                }
            }
            Arc::new(field.as_ref().clone().with_metadata(notes))
        };
        let fields: Vec<FieldRef> = self.columns.fields().iter().map(noted).collect();
        let columns = Schema::new_with_metadata(fields, self.columns.metadata().clone());
        let time_unit = self.time_unit.clone().or_else(|| other.time_unit.clone());
        Self { columns: Arc::new(columns), time_unit, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Metadata};

    fn mass(notes: &[(&str, &str)]) -> Field {
        Field::new("mass", DataType::Float32, true).with_metadata(notes.iter().copied().collect::<Metadata>())
    }

    #[test]
    fn of_all_notes_only_two_units_tell_columns_apart() {
        let (plain, unit) = (mass(&[]), mass(&[(UNIT, "u")]));
        assert!(is_same_column(&plain, &unit) && is_same_column(&unit, &plain));
        assert!(is_same_column(&unit, &mass(&[(UNIT, "u"), (DESCRIPTION, "of an ion"), ("seen by", "us")])));
        assert!(!is_same_column(&unit, &mass(&[(UNIT, "g")])));
        assert!(!is_same_column(&plain, &plain.clone().with_name("weight")));
        assert!(!is_same_column(&plain, &plain.clone().with_data_type(DataType::Float64)));
        assert!(!is_same_column(&plain, &plain.clone().with_nullable(false)));
    }
}
