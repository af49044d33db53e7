//! Extremes: the least and the greatest value of a column, exactly.
//!
//! Of an index column, versions and directories have the ends of the values of each piece, layer and band. So
//! only bands are read of which some rows match and others do not, as those across the border of a region,
//! and of these only such as may reach beyond what was found before ([`super::reading`]). Of any other column
//! nothing is known beforehand: the column is read of all bands that may match, and so are the columns of the
//! condition where they must decide.
//!
//! Invariant: the value is that of a matching row, and no matching row has a value beyond it. Null and NaN
//! are no values; infinities are.

use super::bound_query::BoundQuery;
use super::found_rows::of_answer;
use super::reading::{Reach, Reading};
use super::{Query, Table, TableError, Union, Work, query_of, sum_of};
use crate::expression::Column;
use crate::lattice::{Extent, Kind, Scalar};
use crate::protocol::{Manifest, Version};
use crate::{IndexColumn, TableSchema, TypeName};
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::DataType;
use futures::future::try_join_all;
use std::cmp::Ordering;
use std::sync::Arc;

/// One of the two ends of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Least,
    Greatest,
}

/// The least or the greatest value of a column among the rows of a query.
#[derive(Clone, Debug)]
pub struct Extreme {
    /// The version read.
    pub version: Version,
    /// The value as it is stored; `None` if no row has one, as where all are null or NaN.
    pub value: Option<Scalar>,
    /// The type of the values.
    pub data_type: DataType,
    /// The work it took.
    pub work: Work,
}

impl Extreme {
    /// The value as a column of one row, which is null if there is no value.
    #[must_use]
    pub fn array(&self) -> ArrayRef {
        let value = self.value.and_then(|value| value.array(&self.data_type));
        value.unwrap_or_else(|| new_null_array(&self.data_type, 1))
    }
}

impl End {
    /// The value at this end of a range.
    pub(super) fn of(self, (least, greatest): (Scalar, Scalar)) -> Scalar {
        match self {
            Self::Least => least,
            Self::Greatest => greatest,
        }
    }

    /// How two values are ordered as seen from this end. All values of a column compare.
    pub(super) fn order(self, left: &Scalar, right: &Scalar) -> Ordering {
        let rising = left.partial_cmp(right).unwrap_or(Ordering::Equal);
        match self {
            Self::Least => rising,
            Self::Greatest => rising.reverse(),
        }
    }
}

/// The value nearest to an end among those that were met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    end: End,
    value: Option<Scalar>,
}

impl Best {
    pub(super) const fn none(end: End) -> Self {
        Self { end, value: None }
    }

    pub(super) const fn end(&self) -> End {
        self.end
    }

    pub(super) const fn value(&self) -> Option<Scalar> {
        self.value
    }

    /// Whether a value would be nearer to the end than all that were met.
    pub(super) fn is_improved_by(&self, value: Scalar) -> bool {
        self.value.is_none_or(|known| self.end.order(&value, &known) == Ordering::Less)
    }

    /// Takes the values of some matching rows.
    pub(super) fn take(&mut self, values: &Extent) {
        let value = values.range().map(|range| self.end.of(range));
        if let Some(value) = value.filter(|value| self.is_improved_by(*value)) {
            self.value = Some(value);
        }
    }
}

impl Table {
    /// The least value of a column of numbers or times among the rows of a query, exactly. Of a sample it is
    /// that of the rows of the sample, as [`Table::count`] counts these.
    ///
    /// # Errors
    /// [`TableError::Column`], [`TableError::Unordered`] for a column of other types; as [`Table::query`].
    pub async fn minimum(&self, query: &Query, column: &Column) -> Result<Extreme, TableError> {
        self.extreme(query, column, End::Least).await
    }

    /// The greatest value of a column of numbers or times among the rows of a query, as [`Table::minimum`].
    ///
    /// # Errors
    /// As [`Table::minimum`].
    pub async fn maximum(&self, query: &Query, column: &Column) -> Result<Extreme, TableError> {
        self.extreme(query, column, End::Greatest).await
    }

    pub(crate) async fn extreme(
        &self,
        query: &Query,
        column: &Column,
        end: End,
    ) -> Result<Extreme, TableError> {
        self.restart_if_vacuumed(query, |table, query, manifest| {
            extreme_of(table, query, manifest, column, end)
        })
        .await
    }
}

impl Union {
    /// The least or the greatest value of a column in all tables together, as [`Table::minimum`].
    ///
    /// # Errors
    /// As [`Table::minimum`] and [`Union::query`].
    pub(crate) async fn extreme(
        &self,
        query: &Query,
        column: &Column,
        end: End,
    ) -> Result<Extreme, TableError> {
        self.ask(query, || self.extreme_once(query, column, end)).await
    }

    async fn extreme_once(&self, query: &Query, column: &Column, end: End) -> Result<Extreme, TableError> {
        let (union, version, of_each, _) = self.pinned(query).await?;
        let (of, data_type) = values_of(union.first()?, &union.schema(), column)?;
        if query.is_cut_short() {
            // Which rows these are depends on the order of the rows of all tables.
            let asked = Query { columns: Some(vec![column.name.clone()]), ..query.clone() };
            let answer = union.query(&asked).await?;
            let mut best = Best::none(end);
            best.take(&extent_of(of, answer.rows.column(0))?);
            return Ok(Extreme {
                version: answer.version,
                value: best.value(),
                data_type,
                work: answer.work,
            });
        }
        let ends = union.tables().iter().zip(&of_each);
        let ends = try_join_all(ends.map(|(table, query)| table.extreme(query, column, end))).await?;
        let value = ends.iter().filter_map(|found| found.value).min_by(|left, right| end.order(left, right));
        let work = ends.iter().map(|found| found.work).fold(Work::default(), sum_of);
        Ok(Extreme { version, value, data_type, work })
    }
}

async fn extreme_of(
    table: Table,
    query: &Query,
    manifest: Arc<Manifest>,
    column: &Column,
    end: End,
) -> Result<Extreme, TableError> {
    let (of, data_type) = values_of(&table, &table.schema, column)?;
    if query.is_cut_short() {
        let asked = Query { columns: Some(vec![column.name.clone()]), ..query.clone() };
        let answer = query_of(table, &asked, manifest).await?;
        let mut best = Best::none(end);
        best.take(&extent_of(of, answer.rows.column(0))?);
        return Ok(Extreme { version: answer.version, value: best.value(), data_type, work: answer.work });
    }
    let asked = BoundQuery::values(&table, query, of.place)?;
    let mut reading = Reading::open(&table, asked, &manifest, Reach::AsNeeded).await?;
    let axis = table.schema.index().iter().position(|index| *index == of);
    let value = match axis {
        Some(axis) => reading.extreme_of_index(axis, end).await?,
        None => reading.extreme_of_all(of, end).await?,
    };
    Ok(Extreme { version: manifest.version, value, data_type, work: reading.work() })
}

/// A column, or an element of one, and the type of its values, which must be numbers or times.
fn values_of(
    table: &Table,
    schema: &TableSchema,
    column: &Column,
) -> Result<(IndexColumn, DataType), TableError> {
    let found = schema.columns().column_with_name(&column.name);
    let (place, field) = found.ok_or_else(|| table.no_column(&column.name))?;
    let data_type = match (field.data_type(), column.element) {
        (DataType::FixedSizeList(item, length), Some(element)) if i64::from(element) < i64::from(*length) => {
            Some(item.data_type())
        }
        (plain, None) => Some(plain),
        (_, Some(_)) => None,
    };
    let unordered =
        || TableError::Unordered { column: column.to_string(), data_type: TypeName::told(field.data_type()) };
    let data_type = data_type.filter(|data_type| Kind::of(data_type).is_some()).ok_or_else(unordered)?;
    Ok((IndexColumn { place, element: column.element }, data_type.clone()))
}

/// The extent of the values of a column, or of an element of it.
pub(super) fn extent_of(of: IndexColumn, column: &ArrayRef) -> Result<Extent, TableError> {
    let values = of.of_column(column).map_err(|error| of_answer(error.into()))?;
    Extent::of(&values).map_err(|error| of_answer(error.into()))
}
