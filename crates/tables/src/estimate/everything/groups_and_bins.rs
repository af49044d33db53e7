//! Several numbers of everything: means of groups and shares of bins.

use super::{Moments, UnitsSeen, of_share};
use crate::estimate::table_groups::{known_groups, of_answer};
use crate::estimate::values::{missing, numbers};
use crate::estimate::{Estimate, EstimateError, GroupMeans, Histogram, groups};
use crate::expression::Column;
use crate::{Query, Readable, Salt, Table, TableError, Weight, weights};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use std::collections::HashMap;
use std::sync::Arc;

impl Readable {
    /// The means of groups, as [`Readable::estimate_groups`], for a query of everything.
    pub(in crate::estimate) async fn groups_of_everything(
        &self,
        first: &Table,
        query: &Query,
        (value, by): (&Column, &str),
        known: Option<ArrayRef>,
    ) -> Result<GroupMeans, TableError> {
        let schema = first.schema();
        let found = schema.columns().column_with_name(by);
        let data_type = found.ok_or_else(|| first.no_column(by))?.1.data_type();
        let mut folded = GroupsFolded::new(&known_groups(by, known, data_type)?)?;
        let take = |rows: &RecordBatch, weights: Option<&[Weight]>| {
            let of_rows = rows.column_by_name(by).ok_or_else(|| first.no_column(by))?;
            folded.take(&numbers(rows, value).unwrap_or_default(), of_rows, weights)
        };
        let read = self.fold(query, take).await?;
        let (groups, means) = folded.means(data_type)?;
        Ok(GroupMeans { groups, means, version: read.version, rows_read: read.rows, work: read.work })
    }

    /// The shares of bins, as [`Readable::estimate_histogram`], for a query of everything.
    pub(in crate::estimate) async fn histogram_of_everything(
        &self,
        query: &Query,
        value: &Column,
        edges: &[f64],
        rows: Option<u64>,
    ) -> Result<Histogram, TableError> {
        let mut folded = BinsFolded::new(edges)?;
        let take = |rows: &RecordBatch, weights: Option<&[Weight]>| {
            folded.take(&numbers(rows, value).unwrap_or_default(), weights);
            Ok(())
        };
        let read = self.fold(query, take).await?;
        let bins = folded.shares(read.rows);
        Ok(Histogram { bins, rows, version: read.version, rows_read: read.rows, work: read.work })
    }
}

/// The means of groups, over the rows folded so far.
struct GroupsFolded {
    /// Groups by the hashes of their values. Equal values have equal hashes; different values practically
    /// never do.
    places: HashMap<Weight, usize>,
    /// The values of groups in the order in which they were met, and their hashes.
    values: Vec<ArrayRef>,
    hashes: Vec<Weight>,
    /// How many of the groups were known beforehand.
    known: usize,
    groups: Vec<GroupFolded>,
}

/// One group, over the rows folded so far.
#[derive(Default)]
struct GroupFolded {
    moments: Moments,
    units: UnitsSeen,
    /// Rows with or without a value.
    rows: u64,
}

impl GroupsFolded {
    /// Groups without rows yet; `known` are the values of known groups.
    fn new(known: &ArrayRef) -> Result<Self, TableError> {
        let (places, values, hashes, groups) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        let mut folded = Self { places, values, hashes, known: 0, groups };
        folded.groups_of(known)?;
        folded.known = folded.groups.len();
        Ok(folded)
    }

    /// The group of each of these values; new values make new groups.
    fn groups_of(&mut self, values: &ArrayRef) -> Result<Vec<usize>, TableError> {
        let mut new = Vec::new();
        let mut of_rows = Vec::with_capacity(values.len());
        for (row, hash) in (0u32..).zip(weights(&[Arc::clone(values)], Salt(0)).map_err(of_answer)?) {
            let place = *self.places.entry(hash).or_insert_with(|| {
                new.push(row);
                self.hashes.push(hash);
                self.groups.push(GroupFolded::default());
                self.groups.len() - 1
            });
            of_rows.push(place);
        }
        if !new.is_empty() {
            self.values.push(take(values, &UInt32Array::from(new), None).map_err(of_answer)?);
        }
        Ok(of_rows)
    }

    /// Folds rows: their values, NaN for no value, and the values of their groups.
    fn take(&mut self, numbers: &[f64], by: &ArrayRef, weights: Option<&[Weight]>) -> Result<(), TableError> {
        let groups = self.groups_of(by)?;
        for (row, (number, group)) in numbers.iter().zip(groups).enumerate() {
            let group = &mut self.groups[group];
            group.rows += 1;
            if !number.is_nan() {
                group.moments.take(*number);
                group.units.take(weights.map(|weights| weights[row]));
            }
        }
        Ok(())
    }

    /// The value of each group, and its mean, `None` for a group without rows. Known groups come first, in
    /// their order; the others follow in the order of their hashes, since the order in which they were met
    /// means nothing.
    fn means(self, by: &DataType) -> Result<(ArrayRef, Vec<Option<Estimate>>), TableError> {
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order[self.known..].sort_unstable_by_key(|&place| self.hashes[place]);
        let mean = |&place: &usize| {
            let GroupFolded { moments, units, rows } = &self.groups[place];
            (*rows > 0).then(|| {
                Estimate::of_everything(moments.mean(), moments.deviation(), units.count(), *rows)
                    .without(rows - moments.count)
            })
        };
        let means = order.iter().map(mean).collect();
        let parts: Vec<&dyn Array> = self.values.iter().map(|values| values.as_ref()).collect();
        let values =
            if parts.is_empty() { new_empty_array(by) } else { concat(&parts).map_err(of_answer)? };
        let order = order.into_iter().map(|place| place as u32).collect::<UInt32Array>();
        Ok((take(&values, &order, None).map_err(of_answer)?, means))
    }
}

/// The shares of bins, over the rows folded so far.
struct BinsFolded<'e> {
    edges: &'e [f64],
    inside: Vec<u64>,
    missing: u64,
    units: UnitsSeen,
}

impl<'e> BinsFolded<'e> {
    /// Bins without rows yet.
    fn new(edges: &'e [f64]) -> Result<Self, EstimateError> {
        groups::check_edges(edges)?;
        Ok(Self { edges, inside: vec![0; edges.len() - 1], missing: 0, units: UnitsSeen::default() })
    }

    /// Folds the values of rows, NaN for no value.
    fn take(&mut self, numbers: &[f64], weights: Option<&[Weight]>) {
        self.missing += missing(numbers);
        for (row, number) in numbers.iter().enumerate() {
            if let Some(bin) = groups::bin_of(self.edges, *number) {
                self.inside[bin] += 1;
            }
            self.units.take(weights.map(|weights| weights[row]));
        }
    }

    /// The share of each bin.
    fn shares(self, rows: u64) -> Vec<Estimate> {
        let units = self.units.count();
        let share = |&inside: &u64| {
            let (share, deviation) = of_share(inside as f64, rows);
            Estimate::of_everything(share, deviation, units, rows).without(self.missing)
        };
        self.inside.iter().map(share).collect()
    }
}
