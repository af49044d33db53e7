//! Index columns: a column, or one element of a vector column.
//!
//! Invariant: an index column of a schema names a column of it, and an element that its vectors have.

use super::{
    INDEX_COLUMNS_MAX, Role, SchemaError, TableSchema, TypeName, check_count, nearest_column, types,
};
use crate::expression::Column;
use crate::lattice::LatticeError;
use crate::vector;
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;

const TAKES: &str = "numbers, dates and times, and elements of vectors, written pos[0]";

/// What boxes are given over: a column, or one element of a vector column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexColumn {
    /// The place of the column.
    pub place: usize,
    /// The element of its vectors, counted from 0; `None` for a column of numbers.
    pub element: Option<u32>,
}

impl IndexColumn {
    /// The name of the index column: `x`, or `pos[0]`.
    pub(super) fn name(&self, columns: &Schema) -> String {
        let name = columns.field(self.place).name();
        self.element.map_or_else(|| name.clone(), |element| element_name(name, element))
    }

    /// The values, given the columns of a table; null where the vector or its element is null.
    fn values(&self, columns: &[ArrayRef]) -> Result<ArrayRef, LatticeError> {
        self.of_column(&columns[self.place])
    }

    /// The values, given its column.
    pub(crate) fn of_column(&self, column: &ArrayRef) -> Result<ArrayRef, LatticeError> {
        let Some(element) = self.element else { return Ok(Arc::clone(column)) };
        let not_indexable = || LatticeError::NotIndexable { data_type: column.data_type().clone() };
        let list = column.as_fixed_size_list_opt().ok_or_else(not_indexable)?;
        vector::element(list, element).ok().flatten().ok_or_else(not_indexable)
    }
}

impl TableSchema {
    /// The index columns as expressions refer to them.
    #[must_use]
    pub fn index_columns(&self) -> Vec<Column> {
        let column = |index: &IndexColumn| {
            let name = self.columns.field(index.place).name();
            index.element.map_or_else(|| Column::named(name), |element| Column::element(name, element))
        };
        self.index.iter().map(column).collect()
    }

    /// The type of an index column's values.
    #[must_use]
    pub fn index_type(&self, index: IndexColumn) -> &DataType {
        match self.columns.field(index.place).data_type() {
            DataType::FixedSizeList(item, _) => item.data_type(),
            plain => plain,
        }
    }

    /// The values of all index columns, in their order, given the columns of the table.
    ///
    /// # Errors
    /// [`LatticeError::NotIndexable`] where a column has another type than in the schema.
    pub(crate) fn index_values(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>, LatticeError> {
        self.index.iter().map(|index| index.values(columns)).collect()
    }
}

/// The name of an element of a vector column.
pub(super) fn element_name(column: &str, element: u32) -> String {
    format!("{column}[{element}]")
}

/// Resolves the names of index columns.
pub(super) fn resolve(columns: &Schema, names: &[String]) -> Result<Vec<IndexColumn>, SchemaError> {
    check_count(Role::Index, names.len(), (1, INDEX_COLUMNS_MAX))?;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let index = find(columns, name)?;
        if found.contains(&index) {
            return Err(SchemaError::RoleTwice { role: Role::Index, column: name.clone() });
        }
        found.push(index);
    }
    Ok(found)
}

fn find(columns: &Schema, name: &str) -> Result<IndexColumn, SchemaError> {
    let parts = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    let of_vector = parts.and_then(|(vector, element)| {
        let element = element.parse::<u32>().ok().filter(|number| number.to_string() == element)?;
        let (place, field) = columns.column_with_name(vector)?;
        Some((place, field, element))
    });
    match (columns.column_with_name(name), of_vector) {
        (Some(_), Some((_, vector, _))) if is_vector(vector) => {
            Err(SchemaError::Ambiguous { name: name.to_owned() })
        }
        (Some((place, field)), _) => {
            check_type(field, field.data_type())?;
            Ok(IndexColumn { place, element: None })
        }
        (None, Some((place, field, element))) => {
            check_element(field, element)?;
            Ok(IndexColumn { place, element: Some(element) })
        }
        (None, None) => {
            let nearest = nearest_column(columns, parts.map_or(name, |(vector, _)| vector));
            Err(SchemaError::Unknown { role: Role::Index, column: name.to_owned(), nearest })
        }
    }
}

/// Refuses the name of a new column if an index column, an element of a vector, is written in the same way.
pub(super) fn check_name(schema: &TableSchema, name: &str) -> Result<(), SchemaError> {
    let is_taken = |index: &IndexColumn| index.element.is_some() && index.name(&schema.columns) == name;
    if schema.index.iter().any(is_taken) {
        return Err(SchemaError::Ambiguous { name: name.to_owned() });
    }
    Ok(())
}

fn is_vector(field: &Field) -> bool {
    matches!(field.data_type(), DataType::FixedSizeList(..))
}

fn check_element(field: &Field, element: u32) -> Result<(), SchemaError> {
    let DataType::FixedSizeList(item, len) = field.data_type() else {
        return Err(unfit(field));
    };
    let len = u32::try_from(*len).unwrap_or(0);
    if element >= len {
        return Err(SchemaError::Element { column: field.name().clone(), element, len });
    }
    check_type(field, item.data_type())
}

fn check_type(field: &Field, data_type: &DataType) -> Result<(), SchemaError> {
    if types::is_ordered_number(data_type) { Ok(()) } else { Err(unfit(field)) }
}

fn unfit(field: &Field) -> SchemaError {
    let (column, found) = (field.name().clone(), TypeName::told(field.data_type()));
    SchemaError::RoleType { role: Role::Index, column, found, takes: TAKES }
}

#[cfg(test)]
mod tests {
    use super::super::{Roles, column};
    use super::*;
    use arrow_array::{FixedSizeListArray, Float32Array};
    use arrow_buffer::NullBuffer;

    fn vectors(len: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), len)
    }

    fn schema(index: &[&str], more: &str) -> Result<TableSchema, SchemaError> {
        let columns = vec![
            column("pid", DataType::Int64, false),
            column("pos", vectors(3), true),
            column(more, DataType::Float64, true),
        ];
        let index = index.iter().map(|name| (*name).to_owned()).collect();
        TableSchema::new(Schema::new(columns), &Roles { id: vec!["pid".into()], index, ..Roles::default() })
    }

    #[test]
    fn an_element_of_a_vector_is_an_index_column_and_comes_back_from_the_stored_schema() {
        let schema = schema(&["pos[2]", "pos[0]", "t"], "t").unwrap();
        assert_eq!(schema.roles().index, ["pos[2]", "pos[0]", "t"]);
        let elements: Vec<_> = schema.index().iter().map(|index| (index.place, index.element)).collect();
        assert_eq!(elements, [(1, Some(2)), (1, Some(0)), (2, None)]);
        assert_eq!(TableSchema::from_json(&schema.to_json()).unwrap(), schema);
        assert_eq!(schema.index_columns()[0], Column::element("pos", 2));
    }

    #[test]
    fn what_is_no_element_is_refused_with_what_there_is() {
        let refused = |index: &[&str]| schema(index, "t").unwrap_err().to_string();
        assert_eq!(refused(&["pos[3]"]), "index names element 3 of \"pos\", whose vectors have 3: 0 to 2");
        assert!(refused(&["pos"]).contains("written pos[0]"));
        assert!(refused(&["t[0]"]).contains("index cannot use \"t\""));
        assert!(refused(&["ps[0]"]).ends_with("did you mean \"pos\"?"));
        assert!(refused(&["pos[0]", "pos[0]"]).contains("twice"));
        assert!(refused(&["pos[00]"]).contains("not a column"));
        assert_eq!(
            schema(&["pos[0]"], "pos[0]").unwrap_err(),
            SchemaError::Ambiguous { name: "pos[0]".to_owned() }
        );
        assert!(schema(&["x[0]"], "x[0]").is_ok(), "a column may be called so where no vector is");
    }

    #[test]
    fn the_values_of_an_element_are_null_where_the_vector_or_the_element_is() {
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let numbers =
            [Some(1.0), Some(2.0), Some(3.0), None, Some(5.0), Some(6.0), Some(7.0), Some(8.0), None];
        let nulls = NullBuffer::from(vec![true, true, false]);
        let list =
            FixedSizeListArray::new(item, 3, Arc::new(Float32Array::from(numbers.to_vec())), Some(nulls));
        let columns: Vec<ArrayRef> = vec![Arc::new(Float32Array::from(vec![0.0; 3])), Arc::new(list)];
        let schema = schema(&["pos[0]", "pos[1]"], "t").unwrap();
        let values = schema.index_values(&columns).unwrap();
        let expected: [ArrayRef; 2] = [
            Arc::new(Float32Array::from(vec![Some(1.0), None, None])),
            Arc::new(Float32Array::from(vec![Some(2.0), Some(5.0), None])),
        ];
        assert_eq!(values, expected);
        let sliced: Vec<ArrayRef> = columns.iter().map(|column| column.slice(1, 2)).collect();
        assert_eq!(&schema.index_values(&sliced).unwrap()[1], &expected[1].slice(1, 2));
    }
}
