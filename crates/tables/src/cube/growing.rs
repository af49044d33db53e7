//! Growing columns: bands are decoded one after the other into one column, without an array for each.
//!
//! A large answer is thousands of bands, and an Arrow array costs more than the hundred numbers in it.
//!
//! Invariant: the result equals the arrays of the bands, concatenated.

use super::column::{Numeric, Packed, TAG_OTHER, build, decode};
use super::groups::Number;
use crate::block::{BlockError, slice};
use crate::room::{buffer, room};
use arrow_array::BooleanArray;
use arrow_array::{Array, ArrayRef, new_empty_array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer, NullBufferBuilder};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use std::ops::Range;

/// A column that grows.
#[derive(Debug)]
pub struct Growing {
    data_type: DataType,
    /// The arrays that were finished whenever something other than packed numbers was appended.
    before: Vec<ArrayRef>,
    numbers: Option<GrowingNumbers>,
}

/// Unpacked numbers.
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
    /// A column without rows, with room for `rows` of them.
    pub(crate) fn new(data_type: &DataType, rows: usize) -> Self {
        let numbers = Numeric::of(data_type).map(|numeric| GrowingNumbers::new(numeric, rows));
        Self { data_type: data_type.clone(), before: Vec::new(), numbers }
    }

    /// Appends the rows `wanted` of a column of a band of `rows` rows, from its bytes and the slack after
    /// them.
    pub(super) fn append(
        &mut self,
        rows: usize,
        wanted: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), BlockError> {
        match &mut self.numbers {
            Some(numbers) if bytes.first() != Some(&TAG_OTHER) => numbers.append(rows, wanted, bytes),
            _ => {
                let array = decode(&self.data_type, rows, wanted, bytes)?;
                self.append_array(array)
            }
        }
    }

    /// As [`Growing::append`], but only those of the wanted rows that are kept.
    pub(super) fn append_some(
        &mut self,
        rows: usize,
        wanted: Range<usize>,
        kept: &BooleanBuffer,
        bytes: &[u8],
    ) -> Result<(), BlockError> {
        match &mut self.numbers {
            Some(numbers) if bytes.first() != Some(&TAG_OTHER) => {
                numbers.append_some(rows, wanted, kept, bytes)
            }
            _ => {
                let array = decode(&self.data_type, rows, wanted, bytes)?;
                self.append_array(filter(&array, &BooleanArray::new(kept.clone(), None))?)
            }
        }
    }

    /// Appends all rows of a slice of a block.
    pub(crate) fn append_slice(&mut self, rows: usize, bytes: &[u8]) -> Result<(), BlockError> {
        let plain = slice::plain(bytes);
        let is_appended = self
            .numbers
            .as_mut()
            .zip(plain)
            .is_some_and(|(numbers, (is_alike, values))| numbers.append_plain(rows, is_alike, values));
        if is_appended { Ok(()) } else { self.append_array(slice::decode(&self.data_type, rows, bytes)?) }
    }

    /// Appends an array.
    pub(crate) fn append_array(&mut self, array: ArrayRef) -> Result<(), BlockError> {
        self.set_aside()?;
        self.before.push(array);
        Ok(())
    }

    /// Appends rows that are null.
    pub(crate) fn append_nulls(&mut self, rows: usize) -> Result<(), BlockError> {
        self.set_aside()?;
        self.before.push(new_null_array(&self.data_type, rows));
        Ok(())
    }

    /// Finishes the numbers so far as an array in `before`.
    fn set_aside(&mut self) -> Result<(), BlockError> {
        let Some(numbers) = &mut self.numbers else { return Ok(()) };
        if numbers.rows > 0 {
            let grown = std::mem::replace(numbers, GrowingNumbers::new(numbers.numeric, 0));
            self.before.push(grown.finish(&self.data_type)?);
        }
        Ok(())
    }

    /// The whole column. Leaves it empty and ready to grow again.
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
        let count = rows.saturating_mul(numeric.per_row);
        let values = match numeric.width {
            1 => Values::One(room(count)),
            2 => Values::Two(room(count)),
            4 => Values::Four(room(count)),
            _ => Values::Eight(room(count)),
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

    /// Appends numbers as they lie in memory, or one number repeated for all rows. Returns whether the bytes
    /// had the length that this takes.
    fn append_plain(&mut self, rows: usize, is_alike: bool, bytes: &[u8]) -> bool {
        let (width, per_row) = (self.numeric.width, self.numeric.per_row);
        let count = if is_alike { 1 } else { rows.saturating_mul(per_row) };
        if bytes.len() != count.saturating_mul(width) || (is_alike && per_row != 1) {
            return false;
        }
        let times = if is_alike { rows } else { 1 };
        match &mut self.values {
            Values::One(values) => extend(values, bytes, times, |[byte]: [u8; 1]| byte),
            Values::Two(values) => extend(values, bytes, times, u16::from_le_bytes),
            Values::Four(values) => extend(values, bytes, times, u32::from_le_bytes),
            Values::Eight(values) => extend(values, bytes, times, u64::from_le_bytes),
        }
        self.nulls.append_n_non_nulls(rows);
        self.rows += rows;
        true
    }

    fn append_some(
        &mut self,
        rows: usize,
        wanted: Range<usize>,
        kept: &BooleanBuffer,
        bytes: &[u8],
    ) -> Result<(), BlockError> {
        let packed = Packed::read(self.numeric, rows, bytes)?;
        let per_row = self.numeric.per_row;
        match &mut self.values {
            Values::One(values) => unpack_some(&packed, wanted.clone(), kept, per_row, values)?,
            Values::Two(values) => unpack_some(&packed, wanted.clone(), kept, per_row, values)?,
            Values::Four(values) => unpack_some(&packed, wanted.clone(), kept, per_row, values)?,
            Values::Eight(values) => unpack_some(&packed, wanted.clone(), kept, per_row, values)?,
        }
        let count = kept.count_set_bits();
        match packed.nulls(wanted) {
            Some(nulls) => {
                let kept = kept.set_indices().map(|row| nulls.is_valid(row)).collect::<BooleanBuffer>();
                self.nulls.append_buffer(&NullBuffer::new(kept));
            }
            None => self.nulls.append_n_non_nulls(count),
        }
        self.rows += count;
        Ok(())
    }

    fn finish(mut self, data_type: &DataType) -> Result<ArrayRef, BlockError> {
        let buffer = match self.values {
            Values::One(values) => buffer(values.into()),
            Values::Two(values) => buffer(values.into()),
            Values::Four(values) => buffer(values.into()),
            Values::Eight(values) => buffer(values.into()),
        };
        build(data_type, self.numeric, self.rows, buffer, self.nulls.finish())
    }
}

/// Appends the numbers in some bytes; with `is_alike`, a single number that is repeated.
fn extend<const WIDTH: usize, N: Copy>(
    values: &mut Vec<N>,
    bytes: &[u8],
    times: usize,
    number: impl Fn([u8; WIDTH]) -> N,
) {
    let numbers = bytes.as_chunks::<WIDTH>().0;
    match (numbers, times) {
        ([one], _) => values.extend(std::iter::repeat_n(number(*one), times)),
        _ => values.extend(numbers.iter().map(|bytes| number(*bytes))),
    }
}

/// Unpacks numbers and removes the rows that are not kept.
fn unpack_some<N: Number>(
    packed: &Packed<'_>,
    wanted: Range<usize>,
    kept: &BooleanBuffer,
    per_row: usize,
    values: &mut Vec<N>,
) -> Result<(), BlockError> {
    let mut to = values.len();
    packed.unpack(wanted, values)?;
    let from = to;
    for (first, end) in kept.set_slices() {
        let run = from + first * per_row..from + end * per_row;
        let len = run.len();
        values.copy_within(run, to);
        to += len;
    }
    values.truncate(to);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::source::{Room, Source};
    use super::super::words::SLACK_BYTES;
    use super::*;
    use crate::seeds::for_seeds;
    use arrow_array::{FixedSizeListArray, Float32Array, Float64Array, Int16Array, StringArray, UInt8Array};
    use arrow_schema::Field;
    use fastrand::Rng;
    use std::sync::Arc;

    /// Values of a column, some of them null or none.
    fn some<T>(random: &mut Rng, rows: usize, value: impl Fn(&mut Rng) -> T) -> Vec<Option<T>> {
        let has_nulls = random.bool();
        (0..rows).map(|_| (!has_nulls || random.u8(..5) > 0).then(|| value(random))).collect()
    }

    /// Vectors that are null, that have null elements, or neither: only the last are packed.
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
            // `finish` leaves it empty, and it can grow again.
            for _ in 0..2 {
                let mut expected: Vec<ArrayRef> = vec![band(random, kind, 0)];
                for _ in 0..random.usize(..8) {
                    let rows = random.usize(1..140);
                    let from = random.usize(..=rows);
                    let wanted = from..random.usize(from..=rows);
                    let array = band(random, kind, rows);
                    let mut bytes = Vec::new();
                    Source::of(&array).encode(0..rows, &mut Room::default(), &mut bytes).unwrap();
                    bytes.extend_from_slice(&[0xA5; SLACK_BYTES]);
                    let array = array.slice(wanted.start, wanted.len());
                    if random.bool() {
                        growing.append(rows, wanted.clone(), &bytes).unwrap();
                        expected.push(array);
                    } else {
                        let kept: BooleanBuffer = wanted.clone().map(|_| random.u8(..4) > 0).collect();
                        growing.append_some(rows, wanted.clone(), &kept, &bytes).unwrap();
                        expected.push(filter(&array, &BooleanArray::new(kept, None)).unwrap());
                    }
                }
                let expected: Vec<&dyn Array> = expected.iter().map(AsRef::as_ref).collect();
                assert_eq!(&growing.finish().unwrap(), &concat(&expected).unwrap());
            }
        });
    }
}
