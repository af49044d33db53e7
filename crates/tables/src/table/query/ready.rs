//! Ready rows: found rows that come next in the order of (weight, id), sorted, until they are handed over.
//!
//! Far more rows may become known at once than are handed over at a time: in blocks that were never packed,
//! up to half of a table.
//!
//! Invariant: each row is sorted once, in however many portions the rows are handed over, unless that fails.
//! Invariant: rows that become known later are heavier than all that are ready, and come behind them.

use super::TableError;
use super::found_rows::{FoundRows, OrderedRows, split_below};
use crate::{Cut, Weight};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::ops::Range;

/// Sorted rows that wait to be handed over.
#[derive(Debug, Default)]
pub(super) struct ReadyRows {
    ordered: OrderedRows,
    /// How many of them were handed over.
    from: usize,
    /// Number of units among the others.
    units: usize,
    /// How many rows were sorted so far.
    #[cfg(test)]
    pub(super) sorted: usize,
}

/// What was ready before more rows were.
pub(super) struct Earlier {
    parts: usize,
    rows: usize,
    units: usize,
}

impl ReadyRows {
    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.ordered.rows() - self.from
    }

    /// Number of units.
    pub(super) const fn units(&self) -> usize {
        self.units
    }

    /// The weights of the rows.
    pub(super) fn weights(&self) -> &[Weight] {
        &self.ordered.weights[self.from..]
    }

    /// Some of the rows, with some of the columns that were read, given by index.
    pub(super) fn batch(
        &self,
        rows: Range<usize>,
        schema: &SchemaRef,
        columns: &[usize],
    ) -> Result<RecordBatch, TableError> {
        self.ordered.batch(self.from + rows.start..self.from + rows.end, schema, columns)
    }

    /// The piece in which each of some rows lies.
    pub(super) fn pieces(&self, rows: Range<usize>) -> impl Iterator<Item = u64> + '_ {
        self.ordered.pieces(self.from + rows.start..self.from + rows.end)
    }

    /// Sorts the rows below a cut and puts them behind those that are ready. Returns what was ready before.
    /// On an error all rows stay as they are.
    pub(super) fn take_known(
        &mut self,
        found: &mut Vec<FoundRows>,
        known: Cut,
        schema: &SchemaRef,
        id: &[usize],
    ) -> Result<Earlier, TableError> {
        let mut later = OrderedRows::as_found(split_below(found, known));
        if let Err(error) = later.put_in_order(schema, id) {
            found.extend(later.into_parts());
            return Err(error);
        }
        #[cfg(test)]
        {
            self.sorted += later.rows();
        }
        if later.rows() > 0 {
            // Readers read on only once few rows are left, so this touches each row about once.
            self.ordered.drop_first(std::mem::take(&mut self.from));
        }
        let earlier = Earlier { parts: self.ordered.parts(), rows: self.ordered.rows(), units: self.units };
        self.units += units_of(&later.weights);
        self.ordered.put_behind(later);
        Ok(earlier)
    }

    /// Gives back the rows that became ready since, because they could not be handed over.
    pub(super) fn give_back(&mut self, earlier: &Earlier, found: &mut Vec<FoundRows>) {
        found.extend(self.ordered.split_off(earlier.parts, earlier.rows));
        self.units = earlier.units;
    }

    /// Removes the first rows, which were handed over.
    pub(super) fn remove_first(&mut self, rows: usize) {
        // A limit may divide a unit, after which nothing more is handed over.
        self.units = self.units.saturating_sub(units_of(&self.weights()[..rows]));
        self.from += rows;
        if self.rows() == 0 {
            (self.ordered, self.from, self.units) = (OrderedRows::default(), 0, 0);
        }
    }
}

/// The number of units of rows in the order of their weights.
fn units_of(rising: &[Weight]) -> usize {
    rising.chunk_by(PartialEq::eq).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]))
    }

    /// Rows of which two each are of one unit.
    fn found(ids: Range<i64>) -> FoundRows {
        let weights = ids.clone().map(|id| Weight::new(id as u64 / 2 + 1).unwrap()).collect();
        let column: ArrayRef = Arc::new(ids.collect::<Int64Array>());
        FoundRows {
            rows: RecordBatch::try_new(schema(), vec![column]).unwrap(),
            weights,
            lies_at: Vec::new(),
        }
    }

    fn ids(ready: &ReadyRows) -> Vec<i64> {
        let rows = ready.batch(0..ready.rows(), &schema(), &[0]).unwrap();
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn rows_that_become_known_come_behind_and_what_was_handed_over_frees_its_memory() {
        let (mut ready, mut waiting) = (ReadyRows::default(), vec![found(10..20), found(0..10)]);
        // The last two units are not known yet.
        let known = Cut::below(Weight::new(9).unwrap());
        ready.take_known(&mut waiting, known, &schema(), &[0]).unwrap();
        assert_eq!((ids(&ready), ready.units(), waiting.len()), ((0..16).collect(), 8, 1));
        ready.remove_first(12);
        assert_eq!((ids(&ready), ready.units()), ((12..16).collect(), 2));
        waiting.push(found(20..30));
        let earlier = ready.take_known(&mut waiting, Cut::ALL, &schema(), &[0]).unwrap();
        assert_eq!((ids(&ready), ready.units(), waiting.len()), ((12..30).collect(), 9, 0));
        assert_eq!(ready.ordered.parts(), 3, "of the first ten rows nothing is left");
        ready.give_back(&earlier, &mut waiting);
        assert_eq!((ids(&ready), ready.units(), waiting.len()), ((12..16).collect(), 2, 2));
        ready.take_known(&mut waiting, Cut::ALL, &schema(), &[0]).unwrap();
        assert_eq!((ids(&ready), ready.units()), ((12..30).collect(), 9));
        ready.remove_first(18);
        assert_eq!((ready.rows(), ready.units(), ready.ordered.parts()), (0, 0, 0));
    }
}
