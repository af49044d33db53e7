//! Columns added to an existing table, and rows written before them.
//!
//! Invariant: an added column comes after all others and is nullable, so nothing written before has to
//! change.

use super::{COLUMNS_MAX, SchemaError, TableSchema, TypeName, check_fields, index_column, json};
use crate::planted::{self, Bug};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use std::sync::Arc;

impl TableSchema {
    /// This schema with more columns appended, each of which must be nullable.
    ///
    /// # Errors
    /// [`SchemaError::Taken`], [`SchemaError::AddedNotNullable`], and the errors of [`TableSchema::new`] for
    /// names and types.
    pub fn with_added(&self, added: impl IntoIterator<Item = FieldRef>) -> Result<Self, SchemaError> {
        let added: Vec<FieldRef> = added.into_iter().collect();
        for field in &added {
            if let Ok(there) = self.columns.field_with_name(field.name()) {
                let (column, there) = (field.name().clone(), TypeName::told(there.data_type()));
                return Err(SchemaError::Taken { column, there });
            }
        }
        let schema = self.with_stored(added)?;
        let count = schema.columns.fields().len();
        if count > COLUMNS_MAX { Err(SchemaError::ColumnCount { count }) } else { Ok(schema) }
    }

    /// As [`TableSchema::with_added`], for columns that a version names. Writers that concurrently add the
    /// last possible column exceed [`COLUMNS_MAX`] together; the table stays readable all the same.
    pub(crate) fn with_stored(&self, added: impl IntoIterator<Item = FieldRef>) -> Result<Self, SchemaError> {
        let fields: Vec<FieldRef> = self.columns.fields().iter().cloned().chain(added).collect();
        let columns = Schema::new_with_metadata(fields, self.columns.metadata().clone());
        check_fields(&columns)?;
        for field in &columns.fields()[self.columns.fields().len()..] {
            if !field.is_nullable() {
                return Err(SchemaError::AddedNotNullable { column: field.name().clone() });
            }
            index_column::check_name(self, field.name())?;
        }
        Ok(Self { columns: Arc::new(columns), ..self.clone() })
    }

    /// A column as JSON text: the same text for the same column in every build.
    pub(crate) fn column_to_json(field: &Field) -> String {
        json::write_column(field)
    }

    /// Parses the text from [`TableSchema::column_to_json`].
    pub(crate) fn column_from_json(text: &str) -> Result<Field, SchemaError> {
        json::read_column(text)
    }

    /// The columns at these places, for rows written when the table had only its first `there` columns: later
    /// columns are null. `rows` has the columns that existed, in the order of the places.
    pub(crate) fn widened(
        &self,
        rows: RecordBatch,
        places: &[usize],
        there: usize,
    ) -> Result<RecordBatch, ArrowError> {
        if places.iter().all(|&place| place < there) {
            return Ok(rows);
        }
        let count = rows.num_rows();
        let mut written = rows.columns().iter();
        let column = |place: &usize| -> ArrayRef {
            let field = self.columns.field(*place);
            let own = if *place < there { written.next() } else { None };
            own.map_or_else(|| missing(field, count), Arc::clone)
        };
        let arrays: Vec<ArrayRef> = places.iter().map(column).collect();
        let fields: Vec<FieldRef> =
            places.iter().map(|&place| Arc::clone(&self.columns.fields()[place])).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
    }
}

/// The values of a column in rows written before it was added.
fn missing(field: &Field, rows: usize) -> ArrayRef {
    let nulls = nulls(field.data_type(), rows);
    if planted::is(Bug::MissingIsZero) {
        // The buffers of a null array are zero.
        let bare = nulls.to_data().into_builder().nulls(None).build();
        return bare.map_or(nulls, make_array);
    }
    nulls
}

/// Rows without a value. The elements of null vectors are zeros, not nulls of their own, which would cost the
/// code that reorders rows one more word for each.
fn nulls(data_type: &DataType, rows: usize) -> ArrayRef {
    let nulls = new_null_array(data_type, rows).to_data();
    let zeros = nulls.child_data().iter().map(|child| child.clone().into_builder().nulls(None).build());
    let bare = zeros.collect::<Result<Vec<_>, _>>();
    make_array(bare.and_then(|zeros| nulls.clone().into_builder().child_data(zeros).build()).unwrap_or(nulls))
}

#[cfg(test)]
mod tests {
    use super::super::{Roles, column};
    use super::*;
    use arrow_array::{Array, Int64Array};

    fn schema() -> TableSchema {
        let position = Arc::new(Field::new("item", DataType::Float64, false));
        let columns = vec![
            column("pid", DataType::Int64, false),
            column("pos", DataType::FixedSizeList(position, 3), false),
        ];
        let roles = Roles { id: vec!["pid".into()], index: vec!["pos[0]".into()], ..Roles::default() };
        TableSchema::new(Schema::new(columns), &roles).unwrap()
    }

    #[test]
    fn an_added_column_lies_behind_the_others_and_comes_back_from_its_text() {
        let unit = std::collections::HashMap::from([("unit".to_owned(), "e".to_owned())]);
        let charge = Field::new("charge", DataType::Float32, true).with_metadata(unit);
        let added = schema().with_added([Arc::new(charge.clone())]).unwrap();
        assert_eq!(added.columns().field(2), &charge);
        assert_eq!((added.id(), added.index()), (schema().id(), schema().index()));
        let text = TableSchema::column_to_json(&charge);
        assert_eq!(text, r#"{"metadata":{"unit":"e"},"name":"charge","nullable":true,"type":"float32"}"#);
        assert_eq!(TableSchema::column_from_json(&text).unwrap(), charge);
    }

    #[test]
    fn what_cannot_be_added_is_refused_with_the_reason() {
        let refused = |name: &str, data_type, nullable| {
            schema().with_added([column(name, data_type, nullable)]).unwrap_err().to_string()
        };
        assert!(refused("charge", DataType::Float32, false).contains("earlier rows have no value"));
        assert_eq!(
            refused("pid", DataType::Float32, true),
            "the table has a column \"pid\" already, of int64"
        );
        assert!(refused("pos[0]", DataType::Float32, true).contains("an element of a vector"));
        assert!(refused("when", DataType::Null, true).contains("cannot hold"));
    }

    #[test]
    fn rows_that_were_written_before_have_nulls_in_whatever_order_columns_are_wanted() {
        let added = schema().with_added([column("charge", DataType::Utf8, true)]).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![3, 4]));
        let written = RecordBatch::try_from_iter([("pid", Arc::clone(&numbers))]).unwrap();
        let widened = added.widened(written.clone(), &[2, 0], 2).unwrap();
        assert_eq!((widened.column(0).null_count(), widened.column(1)), (2, &numbers));
        assert_eq!(widened.schema().field(0).name(), "charge");
        assert_eq!(added.widened(written.clone(), &[0], 2).unwrap(), written);
        let none = written.project(&[]).unwrap();
        assert_eq!(added.widened(none, &[2], 2).unwrap().column(0).null_count(), 2);
    }
}
