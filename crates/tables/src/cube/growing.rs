//! Columns that grow: bands decoded one behind the other, without an array for each.
//!
//! A large answer is thousands of bands. An array of Arrow costs more than the hundred numbers in it.
//!
//! Invariant: what grew is what the arrays of the bands would be, one behind the other.

use super::column::{Numeric, OTHER, Packed, build, decode};
use crate::block::BlockError;
use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::{Buffer, NullBufferBuilder};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use std::ops::Range;

/// A column that grows.
#[derive(Debug)]
pub struct Growing {
    data_type: DataType,
    /// What grew before something came that is not packed numbers.
    before: Vec<ArrayRef>,
    numbers: Option<GrowingNumbers>,
}

/// Packed numbers, as they come out.
#[derive(Debug)]
struct GrowingNumbers {
    numeric: Numeric,
    values: Values,
    nulls: NullBufferBuilder,
    rows: usize,
}

/// Values of any width.
#[derive(Debug)]
enum Values {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

impl Growing {
    /// A column without rows, with room for some.
    pub(crate) fn new(data_type: &DataType, rows: usize) -> Self {
        let numbers = Numeric::of(data_type).map(|numeric| GrowingNumbers::new(numeric, rows));
        Self { data_type: data_type.clone(), before: Vec::new(), numbers }
    }

    /// Appends the rows `wanted` of a column of a band of `rows` rows, from its bytes and the slack behind them.
    pub(super) fn append(
        &mut self,
        rows: usize,
        wanted: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), BlockError> {
        match &mut self.numbers {
            Some(numbers) if bytes.first() != Some(&OTHER) => numbers.append(rows, wanted, bytes),
            _ => {
                let array = decode(&self.data_type, rows, wanted, bytes)?;
                self.set_aside()?;
                self.before.push(array);
                Ok(())
            }
        }
    }

    /// Makes an array of the numbers that grew so far.
    fn set_aside(&mut self) -> Result<(), BlockError> {
        let Some(numbers) = &mut self.numbers else { return Ok(()) };
        if numbers.rows > 0 {
            let grown = std::mem::replace(numbers, GrowingNumbers::new(numbers.numeric, 0));
            self.before.push(grown.finish(&self.data_type)?);
        }
        Ok(())
    }

    /// The whole column; it is empty then, and can grow again.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, BlockError> {
        self.set_aside()?;
        let arrays = std::mem::take(&mut self.before);
        match arrays.as_slice() {
            [] => Ok(new_empty_array(&self.data_type)),
            [array] => Ok(array.clone()),
            several => {
                let several: Vec<&dyn Array> = several.iter().map(AsRef::as_ref).collect();
                Ok(concat(&several)?)
            }
        }
    }
}

impl GrowingNumbers {
    fn new(numeric: Numeric, rows: usize) -> Self {
        let count = rows * numeric.per_row;
        let values = match numeric.width {
            1 => Values::One(Vec::with_capacity(count)),
            2 => Values::Two(Vec::with_capacity(count)),
            4 => Values::Four(Vec::with_capacity(count)),
            _ => Values::Eight(Vec::with_capacity(count)),
        };
        Self { numeric, values, nulls: NullBufferBuilder::new(0), rows: 0 }
    }

    fn append(&mut self, rows: usize, wanted: Range<usize>, bytes: &[u8]) -> Result<(), BlockError> {
        let packed = Packed::read(self.numeric, rows, bytes)?;
        match &mut self.values {
            Values::One(values) => packed.unpack(wanted.clone(), values)?,
            Values::Two(values) => packed.unpack(wanted.clone(), values)?,
            Values::Four(values) => packed.unpack(wanted.clone(), values)?,
            Values::Eight(values) => packed.unpack(wanted.clone(), values)?,
        }
        match packed.nulls(wanted.clone()) {
            Some(nulls) => self.nulls.append_buffer(&nulls),
            None => self.nulls.append_n_non_nulls(wanted.len()),
        }
        self.rows += wanted.len();
        Ok(())
    }

    fn finish(mut self, data_type: &DataType) -> Result<ArrayRef, BlockError> {
        let buffer = match self.values {
            Values::One(values) => Buffer::from_vec(values),
            Values::Two(values) => Buffer::from_vec(values),
            Values::Four(values) => Buffer::from_vec(values),
            Values::Eight(values) => Buffer::from_vec(values),
        };
        build(data_type, self.numeric, self.rows, buffer, self.nulls.finish())
    }
}
