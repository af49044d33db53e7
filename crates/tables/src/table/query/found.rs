//! What was found: rows of bands, and how they become an answer in the order of (weight, id).
//!
//! Invariant: rows that are equal in both come in the order of the places where they lie, so that they do not
//! depend on how far was read at a time, on how bands were decoded, or on how many threads did so.

use super::TableError;
use crate::block::BlockError;
use crate::threads::{map, threads};
use crate::{Cut, Weight};
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array, new_empty_array,
};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use arrow_select::take::take_record_batch;
use std::sync::Arc;

/// Rows that answer, of one band or of several, and their weights.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) rows: RecordBatch,
    pub(super) weights: Vec<Weight>,
    /// Where each row lies ([`place_of`]; of a union, in which table): rows that are equal in weight and id
    /// come in this order. Of none where all that was found is in it already.
    pub(super) lies_at: Vec<u64>,
}

/// Where a row lies: in which of the pieces that its version names, in their order, and in which band of
/// that.
pub(super) fn place_of(piece: usize, band: usize) -> u64 {
    ((piece as u64) << 32) | band as u64
}

impl Found {
    /// The same rows in the order of their weights.
    pub(super) fn rising(self) -> Result<Self, TableError> {
        if self.weights.is_sorted() {
            return Ok(self);
        }
        if self.rows.num_columns() == 0 {
            // Rows that are only counted are all alike.
            let mut weights = self.weights;
            weights.sort_unstable();
            return Ok(Self { weights, lies_at: Vec::new(), ..self });
        }
        let mut order: Vec<u32> = (0..self.weights.len() as u32).collect();
        order.sort_by_key(|&row| self.weights[row as usize]);
        let weights = order.iter().map(|&row| self.weights[row as usize]).collect();
        let lies_at = order.iter().filter_map(|&row| self.lies_at.get(row as usize).copied()).collect();
        let rows = take_record_batch(&self.rows, &UInt32Array::from(order)).map_err(arrow)?;
        Ok(Self { rows, weights, lies_at })
    }

    /// Takes out the rows below a cut.
    fn split_below(&mut self, cut: Cut) -> Option<Self> {
        let count = cut.prefix(&self.weights);
        let rows = self.rows.slice(0, count);
        self.rows = self.rows.slice(count, self.weights.len() - count);
        let rest = self.weights.split_off(count);
        let weights = std::mem::replace(&mut self.weights, rest);
        let rest = self.lies_at.split_off(count.min(self.lies_at.len()));
        let lies_at = std::mem::replace(&mut self.lies_at, rest);
        (count > 0).then_some(Self { rows, weights, lies_at })
    }
}

/// Takes out the rows below a cut.
pub(super) fn split_below(found: &mut Vec<Found>, cut: Cut) -> Vec<Found> {
    let below = found.iter_mut().filter_map(|found| found.split_below(cut)).collect();
    found.retain(|found| !found.weights.is_empty());
    below
}

/// How many different weights these have.
pub(super) fn units<'f>(found: impl Iterator<Item = &'f [Weight]>) -> usize {
    let mut weights: Vec<Weight> = found.flatten().copied().collect();
    weights.sort_unstable();
    weights.dedup();
    weights.len()
}

/// How many of these weights, which rise, belong to the first units.
pub(super) fn rows_of_units(rising: &[Weight], units: usize) -> usize {
    rising.chunk_by(PartialEq::eq).take(units).map(<[Weight]>::len).sum()
}

/// Rows of several bands that share one numbering, in the order in which they are to be answered.
pub(super) struct Ordered {
    parts: Vec<Found>,
    /// For each row its part and its place in it.
    places: Vec<(usize, usize)>,
    pub(super) weights: Vec<Weight>,
}

impl Ordered {
    /// All rows in the order of (weight, id), where the id is in these columns of the schema; those that are
    /// equal in both as they were found.
    pub(super) fn by_weight(parts: Vec<Found>, schema: &SchemaRef, id: &[usize]) -> Result<Self, TableError> {
        let mut ordered = Self::as_found(parts);
        ordered.put_in_order(schema, id)?;
        Ok(ordered)
    }

    /// Puts the rows, which are as they were found, in the order of (weight, id); where that fails they stay
    /// as they are.
    pub(super) fn put_in_order(&mut self, schema: &SchemaRef, id: &[usize]) -> Result<(), TableError> {
        let threads = threads(self.rows());
        let keys = map(id, threads, |&column| self.whole(schema, column));
        let mut keys = keys.into_iter().collect::<Result<Vec<_>, _>>()?;
        keys.extend(self.places_of_rows());
        let order = crate::order(&self.weights, &keys).map_err(|error| of_answer(error.into()))?;
        self.places = order.iter().map(|&row| self.places[row as usize]).collect();
        self.weights = order.iter().map(|&row| self.weights[row as usize]).collect();
        Ok(())
    }

    /// All rows as they were found.
    pub(super) fn as_found(parts: Vec<Found>) -> Self {
        let places = parts.iter().enumerate();
        let places = places.flat_map(|(part, found)| (0..found.weights.len()).map(move |row| (part, row)));
        let weights = parts.iter().flat_map(|found| found.weights.iter().copied()).collect();
        Self { places: places.collect(), weights, parts }
    }

    /// Where each row lies; none where the rows are in that order already.
    fn places_of_rows(&self) -> Option<ArrayRef> {
        let places: Vec<u64> = self.parts.iter().flat_map(|part| part.lies_at.iter().copied()).collect();
        (!places.is_empty()).then(|| Arc::new(UInt64Array::from(places)) as ArrayRef)
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.places.len()
    }

    /// A column of all rows, in the order of the parts.
    fn whole(&self, schema: &SchemaRef, column: usize) -> Result<ArrayRef, TableError> {
        let parts: Vec<&dyn Array> =
            self.parts.iter().map(|part| part.rows.column(column).as_ref()).collect();
        if parts.is_empty() {
            return Ok(new_empty_array(schema.field(column).data_type()));
        }
        concat(&parts).map_err(|error| in_column(schema, column, error))
    }

    /// Some columns, by their places among those that were read, of the rows from one to another.
    pub(super) fn batch(
        &self,
        rows: std::ops::Range<usize>,
        schema: &SchemaRef,
        columns: &[usize],
    ) -> Result<RecordBatch, TableError> {
        let places = &self.places[rows];
        let column = |&column: &usize| -> Result<ArrayRef, TableError> {
            let parts: Vec<&dyn Array> =
                self.parts.iter().map(|part| part.rows.column(column).as_ref()).collect();
            if parts.is_empty() {
                return Ok(new_empty_array(schema.field(column).data_type()));
            }
            interleave(&parts, places).map_err(|error| in_column(schema, column, error))
        };
        let arrays =
            map(columns, threads(places.len()), column).into_iter().collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        let schema = Arc::new(schema.project(columns).map_err(arrow)?);
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(arrow)
    }

    /// What was taken in, without the rows of the first so many that were handed over.
    pub(super) fn without_first(self, rows: usize) -> Vec<Found> {
        let mut parts = self.parts;
        match rows.checked_sub(1).and_then(|last| self.weights.get(last)) {
            None => parts,
            Some(&last) => {
                split_below(&mut parts, Cut::through(last));
                parts
            }
        }
    }
}

pub(super) fn of_answer(source: BlockError) -> TableError {
    TableError::Block { object: "the rows of the answer".to_owned(), source }
}

/// What went wrong with a column of the answer.
fn in_column(schema: &SchemaRef, column: usize, error: ArrowError) -> TableError {
    let object = format!("column \"{}\" of the answer", schema.field(column).name());
    TableError::Block { object, source: error.into() }
}

pub(in crate::table) fn arrow(error: ArrowError) -> TableError {
    of_answer(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::TEXT_BYTES_MAX;
    use arrow_array::StringArray;
    use arrow_schema::{DataType, Field, Schema};
    use atoll_errors::ErrorKind;

    #[test]
    fn more_text_than_an_array_holds_is_a_limit_and_the_error_says_what_to_do() {
        let schema = Arc::new(Schema::new(vec![Field::new("note", DataType::Utf8, false)]));
        let text = "t".repeat(1 << 20);
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(vec![text]))]);
        let (rows, weights) = (rows.unwrap(), vec![Weight::LEAST]);
        let parts = vec![Found { rows, weights, lies_at: Vec::new() }];
        // The one row again and again: no gigabytes are needed to ask for as many.
        let count = TEXT_BYTES_MAX / (1 << 20) + 1;
        let ordered = Ordered { parts, places: vec![(0, 0); count], weights: vec![Weight::LEAST; count] };
        let refused = ordered.batch(0..count, &schema, &[0]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
        assert!(refused.to_string().contains("column \"note\" of the answer: 2147483648 bytes"), "{refused}");
        assert!(refused.hint().unwrap().contains("fewer rows"), "{refused}");
        assert!(ordered.batch(0..2, &schema, &[0]).is_ok());
    }
}
