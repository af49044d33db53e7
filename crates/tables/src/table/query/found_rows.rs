//! Found rows: rows of bands, and how they become an answer in the order of (weight, id).
//!
//! Invariant: rows that are equal in both are ordered by where they are stored. So their order depends
//! neither on how much was read at a time, nor on how bands were decoded, nor on the number of threads.

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

/// Matching rows of one or several bands, with their weights.
#[derive(Clone, Debug)]
pub(super) struct FoundRows {
    pub(super) rows: RecordBatch,
    pub(super) weights: Vec<Weight>,
    /// Where each row is stored ([`place_of`]; for a union, the index of its table): the order of rows that
    /// are equal in weight and id. Empty if all rows found are in that order already.
    pub(super) lies_at: Vec<u64>,
}

/// Where a row is stored: the index of its piece among the pieces of the version, and of its band in the
/// piece.
pub(super) fn place_of(piece: usize, band: usize) -> u64 {
    ((piece as u64) << 32) | band as u64
}

impl FoundRows {
    /// The same rows in weight order.
    pub(super) fn rising(self) -> Result<Self, TableError> {
        if self.weights.is_sorted() {
            return Ok(self);
        }
        if self.rows.num_columns() == 0 {
            // Rows without columns, which are only counted, are interchangeable.
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

    /// Splits off the rows below a cut.
    fn split_below(&mut self, cut: Cut) -> Option<Self> {
        let count = cut.prefix(&self.weights);
        if count == 0 {
            return None;
        }
        let rows = self.rows.slice(0, count);
        self.rows = self.rows.slice(count, self.weights.len() - count);
        let rest = self.weights.split_off(count);
        let weights = std::mem::replace(&mut self.weights, rest);
        let rest = self.lies_at.split_off(count.min(self.lies_at.len()));
        let lies_at = std::mem::replace(&mut self.lies_at, rest);
        Some(Self { rows, weights, lies_at })
    }
}

/// Splits off the rows below a cut.
pub(super) fn split_below(found: &mut Vec<FoundRows>, cut: Cut) -> Vec<FoundRows> {
    let below = found.iter_mut().filter_map(|found| found.split_below(cut)).collect();
    found.retain(|found| !found.weights.is_empty());
    below
}

/// The number of distinct weights.
pub(super) fn units<'f>(found: impl Iterator<Item = &'f [Weight]>) -> usize {
    let mut weights: Vec<Weight> = found.flatten().copied().collect();
    weights.sort_unstable();
    weights.dedup();
    weights.len()
}

/// How many of these weights, in rising order, belong to the first units.
pub(super) fn rows_of_units(rising: &[Weight], units: usize) -> usize {
    rising.chunk_by(PartialEq::eq).take(units).map(<[Weight]>::len).sum()
}

/// Rows of several bands under one numbering, in the order of the answer.
#[derive(Debug, Default)]
pub(super) struct OrderedRows {
    parts: Vec<FoundRows>,
    /// The part of each row, and its index in that part.
    places: Vec<(usize, usize)>,
    pub(super) weights: Vec<Weight>,
}

impl OrderedRows {
    /// All rows in the order of (weight, id), with the id in the given columns of the schema. Rows that are
    /// equal in both are ordered by where they are stored, or as found.
    pub(super) fn by_weight(
        parts: Vec<FoundRows>,
        schema: &SchemaRef,
        id: &[usize],
    ) -> Result<Self, TableError> {
        let mut ordered = Self::as_found(parts);
        ordered.put_in_order(schema, id)?;
        Ok(ordered)
    }

    /// Sorts rows that are as found into the order of (weight, id). On an error they stay as they are.
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

    /// All rows in the order in which they were found.
    pub(super) fn as_found(parts: Vec<FoundRows>) -> Self {
        let places = parts.iter().enumerate();
        let places = places.flat_map(|(part, found)| (0..found.weights.len()).map(move |row| (part, row)));
        let weights = parts.iter().flat_map(|found| found.weights.iter().copied()).collect();
        Self { places: places.collect(), weights, parts }
    }

    /// Where each row is stored; `None` if the rows are in that order already.
    fn places_of_rows(&self) -> Option<ArrayRef> {
        let places: Vec<u64> = self.parts.iter().flat_map(|part| part.lies_at.iter().copied()).collect();
        (!places.is_empty()).then(|| Arc::new(UInt64Array::from(places)) as ArrayRef)
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.places.len()
    }

    /// For each of some rows the index of its piece among the pieces of the version, from where it is stored
    /// ([`place_of`]).
    pub(super) fn pieces(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = u64> + '_ {
        let piece = |&(part, row): &(usize, usize)| {
            self.parts[part].lies_at.get(row).map_or(u64::MAX, |place| place >> 32)
        };
        self.places[rows].iter().map(piece)
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

    /// A range of the rows, with some of the columns that were read, given by index.
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

    /// Number of parts.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The parts, as found.
    pub(super) fn into_parts(self) -> Vec<FoundRows> {
        self.parts
    }

    /// Puts rows behind these, which they must follow in the order of the answer.
    pub(super) fn put_behind(&mut self, later: Self) {
        if self.parts.is_empty() {
            *self = later;
            return;
        }
        let parts = self.parts.len();
        self.parts.extend(later.parts);
        self.places.extend(later.places.into_iter().map(|(part, row)| (parts + part, row)));
        self.weights.extend(later.weights);
    }

    /// Takes off what was put behind the first `parts` parts and their `rows` rows; returns its parts.
    pub(super) fn split_off(&mut self, parts: usize, rows: usize) -> Vec<FoundRows> {
        self.places.truncate(rows);
        self.weights.truncate(rows);
        self.parts.split_off(parts)
    }

    /// Drops the first `rows` rows, and the parts of which nothing is left.
    pub(super) fn drop_first(&mut self, rows: usize) {
        if rows == 0 {
            return;
        }
        self.places.drain(..rows);
        self.weights.drain(..rows);
        let mut is_left = vec![false; self.parts.len()];
        for &(part, _) in &self.places {
            is_left[part] = true;
        }
        let mut count = 0;
        let number = |is_left: &bool| {
            count += usize::from(*is_left);
            count.saturating_sub(1)
        };
        let numbers: Vec<usize> = is_left.iter().map(number).collect();
        for (part, _) in &mut self.places {
            *part = numbers[*part];
        }
        let mut is_left = is_left.into_iter();
        self.parts.retain(|_| is_left.next().unwrap_or(true));
    }
}

pub(super) fn of_answer(source: BlockError) -> TableError {
    TableError::Block { object: "the rows of the answer".to_owned(), source }
}

/// The error for a column of the answer.
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
        let parts = vec![FoundRows { rows, weights, lies_at: Vec::new() }];
        // The same row over and over, which avoids allocating gigabytes.
        let count = TEXT_BYTES_MAX / (1 << 20) + 1;
        let ordered = OrderedRows { parts, places: vec![(0, 0); count], weights: vec![Weight::LEAST; count] };
        let refused = ordered.batch(0..count, &schema, &[0]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
        assert!(refused.to_string().contains("column \"note\" of the answer: 2147483648 bytes"), "{refused}");
        assert!(refused.hint().unwrap().contains("fewer rows"), "{refused}");
        assert!(ordered.batch(0..2, &schema, &[0]).is_ok());
    }
}
