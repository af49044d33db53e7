//! Columns that grow: bands decoded one behind the other, without an array for each.
//!
//! A large answer is thousands of bands. An array of Arrow costs more than the hundred numbers in it.
//!
//! Invariant: what grew is what the arrays of the bands would be, one behind the other.

use super::column::{Numeric, OTHER, Packed, build, decode};
use crate::block::BlockError;
use arrow_array::{Array, ArrayRef, new_empty_array, new_null_array};
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

    /// Appends rows without a value.
    pub(super) fn append_nulls(&mut self, rows: usize) -> Result<(), BlockError> {
        self.set_aside()?;
        self.before.push(new_null_array(&self.data_type, rows));
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::super::column::encode;
    use super::super::words::SLACK_BYTES;
    use super::*;
    use crate::seeds::for_seeds;
    use arrow_array::{
        BooleanArray, FixedSizeListArray, Float32Array, Float64Array, Int16Array, StringArray, UInt8Array,
    };
    use arrow_buffer::NullBuffer;
    use arrow_schema::Field;
    use fastrand::Rng;
    use std::sync::Arc;

    /// Values of a column, some of them null or none.
    fn some<T>(random: &mut Rng, rows: usize, value: impl Fn(&mut Rng) -> T) -> Vec<Option<T>> {
        let has_nulls = random.bool();
        (0..rows).map(|_| (!has_nulls || random.u8(..5) > 0).then(|| value(random))).collect()
    }

    /// Vectors that are null, or have elements that are, or neither: only these are packed.
    fn vectors(random: &mut Rng, rows: usize) -> ArrayRef {
        let elements: Float32Array = match random.bool() {
            true => (0..3 * rows).map(|_| Some(random.f32())).collect(),
            false => some(random, 3 * rows, Rng::f32).into(),
        };
        let nulls = NullBuffer::from((0..rows).map(|_| random.u8(..5) > 0).collect::<Vec<_>>());
        let nulls = random.bool().then_some(nulls);
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        Arc::new(FixedSizeListArray::new(item, 3, Arc::new(elements), nulls))
    }

    fn band(random: &mut Rng, kind: u8, rows: usize) -> ArrayRef {
        match kind {
            0 => Arc::new(Float64Array::from(some(random, rows, |random| random.f64() - 0.5))),
            1 => Arc::new(Int16Array::from(some(random, rows, |random| random.i16(..)))),
            2 => Arc::new(UInt8Array::from(some(random, rows, |_| 7))),
            3 => Arc::new(BooleanArray::from(some(random, rows, Rng::bool))),
            4 => Arc::new(StringArray::from(some(random, rows, |random| "n".repeat(random.usize(..5))))),
            _ => vectors(random, rows),
        }
    }

    #[test]
    fn what_grew_is_what_the_bands_are_one_behind_the_other() {
        for_seeds("what_grew_is_what_the_bands_are", 200, |random| {
            let kind = random.u8(..6);
            let mut growing = Growing::new(band(random, kind, 1).data_type(), random.usize(..300));
            // What was taken out is gone, and it can grow again.
            for _ in 0..2 {
                let mut expected: Vec<ArrayRef> = vec![band(random, kind, 0)];
                for _ in 0..random.usize(..8) {
                    let rows = random.usize(1..140);
                    let from = random.usize(..=rows);
                    let wanted = from..random.usize(from..=rows);
                    let array = band(random, kind, rows);
                    let mut bytes = Vec::new();
                    encode(&array, &mut bytes).unwrap();
                    bytes.extend_from_slice(&[0xA5; SLACK_BYTES]);
                    growing.append(rows, wanted.clone(), &bytes).unwrap();
                    expected.push(array.slice(wanted.start, wanted.len()));
                }
                let expected: Vec<&dyn Array> = expected.iter().map(AsRef::as_ref).collect();
                assert_eq!(&growing.finish().unwrap(), &concat(&expected).unwrap());
            }
        });
    }
}
