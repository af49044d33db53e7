//! Newcomers: the ids of blocks that are to be committed, prepared for comparison with existing rows.
//!
//! Invariant: rows with the same id have the same number; rows with the same number are compared by value
//! before they count as repeats.
//! Invariant: an existing row with the id of a newcomer has one of [`NewIds::weights`], if these are known,
//! and lies in [`NewIds::extents`] in each index column that is part of the id.

use super::super::{Table, TableError};
use super::display::display_value;
use crate::block::BlockError;
use crate::lattice::Extent;
use crate::protocol::{BlockId, EditError, Repeat, RepeatedAt};
use crate::weight::{same_keys, weights};
use crate::{Salt, TableSchema, Weight};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use std::sync::Arc;

/// How many repeated ids an error names.
pub(super) const NAMED_MAX: usize = 5;

/// The ids of one block.
pub(in crate::table) struct NewIds {
    pub(super) block: BlockId,
    /// The id columns, in row order.
    columns: Vec<ArrayRef>,
    /// The number of each row's id with the row, in rising order.
    numbered: Vec<(Weight, u32)>,
    /// The weights of the rows, in rising order, without duplicates; `None` if an id does not determine the
    /// weight.
    weights: Option<Vec<Weight>>,
    /// The range of the rows in each index column that is part of the id.
    extents: Vec<Extent>,
}

/// A row of a block and another row whose id has the same number.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    /// Index of the row in the block.
    pub(super) new: u32,
    /// Index of the other row.
    pub(super) other: u32,
}

impl NewIds {
    /// The ids of the rows of a block.
    ///
    /// # Errors
    /// [`EditError::RepeatedIds`] if two of the rows have the same id; [`TableError::Block`] if they do not
    /// fit the table.
    pub(in crate::table) fn of(
        schema: &TableSchema,
        block: &BlockId,
        rows: &RecordBatch,
    ) -> Result<Self, TableError> {
        let of_places = |places: &[usize]| -> Vec<ArrayRef> {
            places.iter().map(|&place| Arc::clone(rows.column(place))).collect()
        };
        let columns = of_places(schema.id());
        let numbers = numbers(schema, &columns)?;
        let mut numbered: Vec<(Weight, u32)> = numbers.into_iter().zip(0..).collect();
        numbered.sort_unstable();
        let weights =
            weights_tell(schema).then(|| weights(&of_places(schema.sample_key()), Salt(schema.salt())));
        let mut weights = weights.transpose().map_err(in_new_rows)?;
        if let Some(weights) = &mut weights {
            weights.sort_unstable();
            weights.dedup();
        }
        let extents = id_axes(schema).map(|(_, place)| Extent::of(rows.column(place)));
        let extents = extents.collect::<Result<_, _>>().map_err(in_new_rows)?;
        let ids = Self { block: block.clone(), columns, numbered, weights, extents };
        ids.check_alone(schema)?;
        Ok(ids)
    }

    /// Refuses rows if two of them have the same id.
    fn check_alone(&self, schema: &TableSchema) -> Result<(), TableError> {
        let beside = self.numbered.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let pairs: Vec<Pair> = beside.map(|pair| Pair { new: pair[0].1, other: pair[1].1 }).collect();
        let same = self.truly(&pairs, &self.columns)?;
        let there = |pair: &Pair| RepeatedAt::Rows(pair.new.into(), pair.other.into());
        let named = same.iter().take(NAMED_MAX).map(|pair| self.repeat(schema, pair.new, there(pair)));
        self.refuse_if_any(named.collect(), same.len() > NAMED_MAX)
    }

    /// Refuses the block if any of its ids are repeated.
    pub(super) fn refuse_if_any(&self, repeats: Vec<Repeat>, has_more: bool) -> Result<(), TableError> {
        if repeats.is_empty() {
            return Ok(());
        }
        Err(EditError::RepeatedIds { block: self.block.clone(), repeats, has_more }.into())
    }

    /// Describes the id of a row, as an error names it.
    pub(super) fn repeat(&self, schema: &TableSchema, row: u32, there: RepeatedAt) -> Repeat {
        let fields = schema.columns().fields();
        let parts = schema.id().iter().zip(&self.columns);
        let parts =
            parts.map(|(&place, column)| format!("{}={}", fields[place].name(), display_value(column, row)));
        Repeat { id: parts.collect::<Vec<_>>().join(", "), there }
    }

    /// Pairs each of the given numbered rows with the rows of this block that have the same number.
    pub(super) fn pairs(&self, numbers: impl Iterator<Item = (Weight, u32)>) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (number, other) in numbers {
            let from = self.numbered.partition_point(|(known, _)| *known < number);
            let same = self.numbered[from..].iter().take_while(|(known, _)| *known == number);
            pairs.extend(same.map(|&(_, new)| Pair { new, other }));
        }
        pairs
    }

    /// The numbers of all ids.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Weight> {
        self.numbered.iter().map(|(number, _)| *number)
    }

    /// The pairs whose ids are equal, value by value.
    pub(super) fn truly(&self, pairs: &[Pair], others: &[ArrayRef]) -> Result<Vec<Pair>, TableError> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let new = taken(&self.columns, pairs.iter().map(|pair| pair.new))?;
        let other = taken(others, pairs.iter().map(|pair| pair.other))?;
        let same = same_keys(&new, &other).map_err(in_new_rows)?;
        Ok(pairs.iter().zip(same).filter(|(_, same)| *same).map(|(pair, _)| *pair).collect())
    }

    /// The ids of another block that are also in this one.
    pub(super) fn shared_with(&self, other: &Self) -> Result<Vec<Pair>, TableError> {
        self.truly(&self.pairs(other.numbered.iter().copied()), &other.columns)
    }

    /// Whether rows with these extents, one per index column, may have one of these ids.
    pub(super) fn may_meet(&self, schema: &TableSchema, extents: &[Extent]) -> bool {
        // A piece without a box rules out nothing.
        let mut axes = id_axes(schema).zip(&self.extents);
        axes.all(|((axis, _), extent)| extents.get(axis).is_none_or(|there| there.meets(extent)))
    }

    /// The least and greatest weight in a range, both ends included, that a row with one of these ids can
    /// have; `None` if there is no such weight.
    pub(super) fn between(&self, least: Weight, greatest: Weight) -> Option<(Weight, Weight)> {
        let Some(weights) = &self.weights else { return Some((least, greatest)) };
        let from = weights.partition_point(|weight| *weight < least);
        let to = weights.partition_point(|weight| *weight <= greatest);
        Some((*weights.get(from..to)?.first()?, *weights.get(from..to)?.last()?))
    }
}

/// The numbers of some ids: equal ids have equal numbers, different ids hardly ever.
pub(super) fn numbers(schema: &TableSchema, columns: &[ArrayRef]) -> Result<Vec<Weight>, TableError> {
    weights(columns, Salt(schema.salt())).map_err(in_new_rows)
}

/// Whether rows with the same id have the same weight.
fn weights_tell(schema: &TableSchema) -> bool {
    schema.sample_key().iter().all(|column| schema.id().contains(column))
}

/// The index columns that are part of the id, as indices among the index columns and among all columns.
fn id_axes(schema: &TableSchema) -> impl Iterator<Item = (usize, usize)> {
    // An id has no vector columns, so none of these is an element of one.
    let axes = schema.index().iter().map(|index| index.place).enumerate();
    axes.filter(|(_, place)| schema.id().contains(place))
}

fn taken(columns: &[ArrayRef], rows: impl Iterator<Item = u32> + Clone) -> Result<Vec<ArrayRef>, TableError> {
    let rows = UInt32Array::from_iter_values(rows);
    columns.iter().map(|column| take(column, &rows, None).map_err(in_new_rows)).collect()
}

fn in_new_rows(source: impl Into<BlockError>) -> TableError {
    Table::of_new_rows(source.into())
}
