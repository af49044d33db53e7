//! Several estimates from one sample of a table: means of groups, and histograms.
//!
//! Invariant: a group that is known beforehand is in the answer, whether the sample met it or not.

use super::everything::is_everything;
use super::planning::check_numbers;
use super::values::numbers;
use super::{Confidence, Estimate, EstimateError, group_means, histogram, planning};
use crate::expression::Column;
use crate::protocol::Version;
use crate::table::restart_if_gone;
use crate::{Query, Readable, Salt, Table, TableError, TypeName, Weight, Work, weights};
use arrow_array::{Array, ArrayRef, UInt32Array, new_empty_array};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use std::collections::HashMap;
use std::sync::Arc;

/// The means of the groups in a sample.
#[derive(Clone, Debug)]
pub struct GroupMeans {
    /// The value of each group: known ones in their order, then the others as they were met. If the query
    /// leaves nothing out, rows are read in no particular order, and the others come in an order that is
    /// always the same.
    pub groups: ArrayRef,
    /// The mean of each group, `None` for a group that was not seen.
    pub means: Vec<Option<Estimate>>,
    /// The version that was read.
    pub version: Version,
    /// Rows of the sample.
    pub rows_read: u64,
    /// The work it took.
    pub work: Work,
}

/// The share of rows in each bin.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The share of each bin; [`Estimate::scaled`] by the number of rows, it is a count.
    pub bins: Vec<Estimate>,
    /// The number of all rows, if it is known without reading, or because all of them were read. A version
    /// does not know it once rows were deleted by a condition.
    pub rows: Option<u64>,
    /// The version that was read.
    pub version: Version,
    /// Rows of the sample.
    pub rows_read: u64,
    /// The work it took.
    pub work: Work,
}

impl Readable {
    /// The mean of a column in each group of rows that share a value of the column `by`, from the query's
    /// sample.
    ///
    /// `known` are values of groups that are known to exist; those that the sample did not meet are returned
    /// as not seen. Each mean holds by itself; with `is_simultaneous`, all of them hold together.
    ///
    /// # Errors
    /// [`TableError::Column`], [`TableError::NoNumbers`], [`TableError::Estimate`] for known values of
    /// another type than the column, and the errors of [`Table::query`].
    pub async fn estimate_groups(
        &self,
        query: &Query,
        value: &Column,
        by: &str,
        known: Option<ArrayRef>,
        (confidence, is_simultaneous): (Confidence, bool),
    ) -> Result<GroupMeans, TableError> {
        restart_if_gone(query, || {
            self.estimate_groups_once(query, value, by, known.clone(), (confidence, is_simultaneous))
        })
        .await
    }

    async fn estimate_groups_once(
        &self,
        query: &Query,
        value: &Column,
        by: &str,
        known: Option<ArrayRef>,
        (confidence, is_simultaneous): (Confidence, bool),
    ) -> Result<GroupMeans, TableError> {
        let first = self.first_now().await?;
        check_numbers(&first, value)?;
        check_groups(&first, by)?;
        let columns = vec![value.name.clone(), by.to_owned()];
        let query = &Query { columns: Some(columns), ..query.clone() };
        if is_everything(query) {
            return self.groups_of_everything(&first, query, (value, by), known).await;
        }
        let answer = self.query(query).await?;
        let Some(of_rows) = answer.rows.column_by_name(by) else {
            return Err(self.first()?.no_column(by));
        };
        let known = known_groups(by, known, of_rows.data_type())?;
        let grouping = Grouping::new(&known, of_rows)?;
        let confidence =
            if is_simultaneous { confidence.simultaneous(grouping.firsts.len()) } else { confidence };
        let values = numbers(&answer.rows, value).unwrap_or_default();
        let units = planning::units_of(query, &answer.weights)?;
        let means = group_means(&units, &grouping.groups, &values, grouping.firsts.len(), &confidence)?;
        let rows_read = answer.rows.num_rows() as u64;
        Ok(GroupMeans {
            groups: grouping.values()?,
            means,
            version: answer.version,
            rows_read,
            work: answer.work,
        })
    }

    /// The share of the query's rows in each bin, from its sample: bin `i` holds the values from `edges[i]`
    /// up to, but not including, `edges[i + 1]`. Each share holds by itself; with `is_simultaneous`, all of
    /// them hold together.
    ///
    /// # Errors
    /// [`TableError::Column`], [`TableError::NoNumbers`], [`TableError::Estimate`] unless the edges rise, and
    /// the errors of [`Table::query`].
    pub async fn estimate_histogram(
        &self,
        query: &Query,
        value: &Column,
        edges: &[f64],
        how: (Confidence, bool),
    ) -> Result<Histogram, TableError> {
        restart_if_gone(query, || self.estimate_histogram_once(query, value, edges, how)).await
    }

    async fn estimate_histogram_once(
        &self,
        query: &Query,
        value: &Column,
        edges: &[f64],
        (confidence, is_simultaneous): (Confidence, bool),
    ) -> Result<Histogram, TableError> {
        check_numbers(&self.first_now().await?, value)?;
        let mut query = Query { columns: Some(vec![value.name.clone()]), ..query.clone() };
        let is_of_all_rows = query.filter.is_none() && query.runs.is_none();
        let rows = if is_of_all_rows { self.count_all_if_known(&mut query).await?.rows } else { None };
        if is_everything(&query) {
            let mut found = self.histogram_of_everything(&query, value, edges, rows).await?;
            // All rows were read, so their number is known in any case.
            found.rows = found.rows.or(is_of_all_rows.then_some(found.rows_read));
            return Ok(found);
        }
        let answer = self.query(&query).await?;
        let bins = edges.len().saturating_sub(1);
        let confidence = if is_simultaneous { confidence.simultaneous(bins) } else { confidence };
        let values = numbers(&answer.rows, value).unwrap_or_default();
        let units = planning::units_of(&query, &answer.weights)?;
        let bins = histogram(&units, &values, edges, &confidence)?;
        let rows_read = answer.rows.num_rows() as u64;
        Ok(Histogram { bins, rows, version: answer.version, rows_read, work: answer.work })
    }
}

impl Table {
    /// The mean of a column in each group, as [`Readable::estimate_groups`].
    ///
    /// # Errors
    /// As [`Readable::estimate_groups`].
    pub async fn estimate_groups(
        &self,
        query: &Query,
        value: &Column,
        by: &str,
        known: Option<ArrayRef>,
        how: (Confidence, bool),
    ) -> Result<GroupMeans, TableError> {
        Readable::One(self.clone()).estimate_groups(query, value, by, known, how).await
    }

    /// The share of rows in each bin, as [`Readable::estimate_histogram`].
    ///
    /// # Errors
    /// As [`Readable::estimate_histogram`].
    pub async fn estimate_histogram(
        &self,
        query: &Query,
        value: &Column,
        edges: &[f64],
        how: (Confidence, bool),
    ) -> Result<Histogram, TableError> {
        Readable::One(self.clone()).estimate_histogram(query, value, edges, how).await
    }
}

/// Refuses a column that does not exist, or whose values cannot be told apart.
fn check_groups(table: &Table, by: &str) -> Result<(), TableError> {
    let schema = table.schema();
    let found = schema.columns().column_with_name(by);
    let data_type = found.ok_or_else(|| table.no_column(by))?.1.data_type();
    if weights(&[new_empty_array(data_type)], Salt(0)).is_ok() {
        return Ok(());
    }
    let (column, data_type) = (by.to_owned(), TypeName::told(data_type));
    Err(EstimateError::NotGroups { column, data_type }.into())
}

/// The values of the known groups, for a column of this type.
pub(super) fn known_groups(
    by: &str,
    known: Option<ArrayRef>,
    data_type: &DataType,
) -> Result<ArrayRef, EstimateError> {
    let known = known.unwrap_or_else(|| new_empty_array(data_type));
    if known.data_type() != data_type {
        let (column, found) = (by.to_owned(), TypeName::told(known.data_type()));
        return Err(EstimateError::Groups { column, found });
    }
    Ok(known)
}

/// Assigns rows to groups.
struct Grouping {
    /// The values of the known groups, followed by those of the rows.
    all: ArrayRef,
    /// For each group, the place of its first value among these.
    firsts: Vec<u32>,
    /// The group of each row.
    groups: Vec<Option<u32>>,
}

impl Grouping {
    fn new(known: &ArrayRef, of_rows: &ArrayRef) -> Result<Self, TableError> {
        let all = concat(&[known.as_ref(), of_rows.as_ref()]).map_err(of_answer)?;
        // Equal values have equal weights; different values practically never do.
        let keys = weights(&[Arc::clone(&all)], Salt(0)).map_err(of_answer)?;
        let mut numbers: HashMap<Weight, u32> = HashMap::new();
        let (mut firsts, mut groups) = (Vec::new(), Vec::with_capacity(of_rows.len()));
        for (place, key) in (0u32..).zip(keys) {
            let group = *numbers.entry(key).or_insert_with(|| {
                firsts.push(place);
                firsts.len() as u32 - 1
            });
            if place as usize >= known.len() {
                groups.push(Some(group));
            }
        }
        Ok(Self { all, firsts, groups })
    }

    /// The value of each group.
    fn values(&self) -> Result<ArrayRef, TableError> {
        take(&self.all, &UInt32Array::from(self.firsts.clone()), None).map_err(of_answer)
    }
}

pub(super) fn of_answer(error: impl Into<crate::block::BlockError>) -> TableError {
    TableError::Block { object: "the rows of the answer".to_owned(), source: error.into() }
}
