//! Fractions: how far each row of a column lies from the beginning of a span, computed for whole columns.
//!
//! Invariant: for every value, the fraction is that of the coordinate from [`Axis::coordinate`].

use super::{Axis, LatticeError, Numbers, Scalar, Span};
use arrow_array::{Array, ArrayRef};

/// The number of bits in a fraction.
pub(crate) const FRACTION_BITS: u32 = u32::BITS;

/// Below this magnitude, the cell of a float is a 64-bit integer.
const CELLS_MAX: f64 = (1_u64 << 62) as f64;

/// Above this magnitude, a float divided by the cell size keeps all of its bits.
const NORMAL: f64 = 1e-300;

/// Up to this binary exponent, positive or negative, the cell size and its inverse are normal floats.
const EXPONENT_MAX: i32 = 1000;

/// Below this magnitude, the last bit of a float is worth at most a quarter, and adding [`ROUNDING`] rounds
/// the float to an integer at most one half away.
const ROUNDED_MAX: f64 = (1_u64 << 50) as f64;

/// Added to a float to round it: the last bit of the sum has the value 1.
const ROUNDING: f64 = 1.5 * (1_u64 << 52) as f64;

/// Rows that are widened at a time, so that they stay in a cache.
const ROWS_AT_ONCE: usize = 1 << 12;

/// Computes the fractions of a column on one axis.
struct Fractions<'a> {
    axis: &'a Axis,
    low: u64,
    bits: u32,
    /// Cells in a unit; `None` where that is not a normal float.
    cells: Option<f64>,
}

/// Passes to `put` how far each row of a column lies from the beginning of a span, in 2^-32 of its side. The
/// span must contain all rows that have a place. Returns the rows without a place, which are put at the
/// beginning.
pub(crate) fn fractions(
    axis: &Axis,
    span: Span,
    column: &ArrayRef,
    mut put: impl FnMut(usize, u32),
) -> Result<Vec<u32>, LatticeError> {
    let other_type =
        || LatticeError::OtherType { expected: axis.data_type().clone(), actual: column.data_type().clone() };
    if column.data_type() != axis.data_type() {
        return Err(other_type());
    }
    let of = Fractions::of(axis, span);
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let has_value = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let mut missing = Vec::new();
    for from in (0..column.len()).step_by(ROWS_AT_ONCE) {
        let rows = column.slice(from, ROWS_AT_ONCE.min(column.len() - from));
        let numbers = Numbers::of(&rows).ok_or_else(other_type)?;
        if let Numbers::Float(values) = &numbers
            && nulls.is_none()
            && of.put_plain(from, values, &mut put)
        {
            continue;
        }
        let mut place = |row: usize, fraction: Option<u32>| {
            let fraction = fraction.filter(|_| has_value(row));
            if fraction.is_none() {
                missing.push(row as u32);
            }
            put(row, fraction.unwrap_or_default());
        };
        match numbers {
            Numbers::Signed(values) => {
                (from..).zip(values.iter()).for_each(|(row, &value)| place(row, of.of_signed(value)));
            }
            Numbers::Unsigned(values) => {
                (from..).zip(values.iter()).for_each(|(row, &value)| place(row, of.of_unsigned(value)));
            }
            Numbers::Float(values) => {
                (from..).zip(values.iter()).for_each(|(row, &value)| place(row, of.of_float(value)));
            }
        }
    }
    Ok(missing)
}

impl<'a> Fractions<'a> {
    fn of(axis: &'a Axis, span: Span) -> Self {
        let exponent = axis.cell_exponent();
        let cells = (exponent.abs() <= EXPONENT_MAX).then(|| 2_f64.powi(-exponent));
        Self { axis, low: span.low().clamp(0, u64::MAX.into()) as u64, bits: span.bits().into(), cells }
    }

    fn of_coordinate(&self, coordinate: u64) -> u32 {
        let offset = coordinate.saturating_sub(self.low);
        if self.bits > FRACTION_BITS {
            offset.checked_shr(self.bits - FRACTION_BITS).unwrap_or(0) as u32
        } else {
            (offset << (FRACTION_BITS - self.bits)) as u32
        }
    }

    fn of_signed(&self, value: i64) -> Option<u32> {
        if self.axis.cell_exponent() == 0 {
            return Some(self.of_coordinate(value as u64 ^ 1 << 63));
        }
        self.exactly(Scalar::Signed(value))
    }

    fn of_unsigned(&self, value: u64) -> Option<u32> {
        if self.axis.cell_exponent() == 0 {
            return Some(self.of_coordinate(value));
        }
        self.exactly(Scalar::Unsigned(value))
    }

    /// Multiplying by a power of two is exact, and so is the integral part of the product, unless either is
    /// out of range.
    fn of_float(&self, value: f64) -> Option<u32> {
        let cell = value * self.cells.unwrap_or(f64::NAN);
        let size = cell.abs();
        // Both are false for NaN.
        if size < CELLS_MAX && size > NORMAL {
            let whole = cell as i64;
            let below = whole - i64::from((whole as f64) > cell);
            return Some(self.of_coordinate(below as u64 ^ 1 << 63));
        }
        self.exactly(Scalar::Float(value))
    }

    /// Passes the fractions of floats to `put` if all of them can be rounded to cells by an addition. Returns
    /// whether that is so. No value needs a branch of its own, so the processor works on several at once.
    fn put_plain(&self, from: usize, values: &[f64], put: &mut impl FnMut(usize, u32)) -> bool {
        let Some(cells) = self.cells else { return false };
        let is_plain = |value: f64| {
            let size = (value * cells).abs();
            (size < ROUNDED_MAX) & ((size > NORMAL) | (value == 0.0))
        };
        if !values.iter().fold(true, |all, &value| all & is_plain(value)) {
            return false;
        }
        for (row, value) in (from..).zip(values) {
            let cell = value * cells;
            let sum = cell + ROUNDING;
            let whole = (sum.to_bits() as i64).wrapping_sub(ROUNDING.to_bits() as i64);
            let below = whole - i64::from(sum - ROUNDING > cell);
            put(row, self.of_coordinate(below as u64 ^ 1 << 63));
        }
        true
    }

    #[cold]
    fn exactly(&self, value: Scalar) -> Option<u32> {
        self.axis.coordinate(value).map(|coordinate| self.of_coordinate(coordinate.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lattice::Extent;
    use crate::seeds::for_seeds;
    use arrow_array::{Float32Array, Float64Array, Int16Array, Int64Array, UInt64Array};
    use std::sync::Arc;

    /// The fraction of a coordinate, in integer arithmetic with twice the bits.
    fn exact(coordinate: u64, span: Span) -> u32 {
        let offset = (i128::from(coordinate) - span.low()) as u128;
        ((offset << FRACTION_BITS) >> span.bits()) as u32
    }

    fn column(random: &mut fastrand::Rng) -> ArrayRef {
        let rows = random.usize(1..60);
        // Whether all values can be rounded to cells by an addition.
        let is_plain = random.bool();
        let float = |random: &mut fastrand::Rng| match random.u8(if is_plain { 6 } else { 0 }..10) {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(f64::NEG_INFINITY),
            3 => Some(-0.0),
            4 => Some(f64::from_bits(random.u64(..))),
            5 => Some(-5e-324),
            6 => Some(0.0),
            7 => Some(f64::from(random.i16(-9..9)) / 4.0),
            _ => Some((random.f64() - 0.3) * 1e3),
        };
        match random.u8(..5) {
            0 => Arc::new((0..rows).map(|_| float(random)).collect::<Float64Array>()),
            1 => Arc::new((0..rows).map(|_| float(random).map(|x| x as f32)).collect::<Float32Array>()),
            2 => Arc::new((0..rows).map(|_| random.bool().then(|| random.i64(..))).collect::<Int64Array>()),
            3 => Arc::new((0..rows).map(|_| Some(random.u64(..))).collect::<UInt64Array>()),
            _ => Arc::new((0..rows).map(|_| random.bool().then(|| random.i16(..9))).collect::<Int16Array>()),
        }
    }

    #[test]
    fn a_fraction_is_that_of_the_exact_coordinate() {
        for_seeds("a_fraction_is_that_of_the_exact_coordinate", 2_000, |random| {
            let column = column(random);
            let whole = Axis::with_cells(column.data_type(), 0).unwrap();
            let missing = whole.coordinates(&column).unwrap();
            let is_missing = |row: usize| missing.at(row).is_none();
            let placed = (0..column.len()).filter(|&row| !is_missing(row));
            let extents = placed.map(|row| Extent::of(&column.slice(row, 1)).unwrap());
            let extent = extents.reduce(|one, other| one.joined(&other)).unwrap_or_default();
            let axis = Axis::new(column.data_type(), &extent).unwrap();
            let span = axis.root(&extent);
            let coordinates = axis.coordinates(&column).unwrap();
            let mut found = vec![0; column.len()];
            let none = fractions(&axis, span, &column, |row, fraction| found[row] = fraction).unwrap();
            assert!(
                (0..column.len()).filter(|&row| is_missing(row)).eq(none.iter().map(|&row| row as usize))
            );
            for (row, fraction) in found.into_iter().enumerate() {
                let expected = coordinates.at(row).map_or(0, |coordinate| exact(coordinate.0, span));
                assert_eq!(fraction, expected, "row {row} of {column:?}, {axis:?}, {span:?}");
            }
        });
    }
}
