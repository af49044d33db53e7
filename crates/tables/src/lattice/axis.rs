//! Axes: exact, monotonic maps from the values of an index column to 64-bit coordinates.
//!
//! An axis is a grid of cells of size `2^cell_exponent`, and the value 0 is the beginning of a cell:
//! `coordinate = clamp(floor(value / 2^cell_exponent) + middle)`. For integers and times a cell is one value,
//! and nothing is ever clamped. For floats the size of a cell is chosen once, from the first rows.
//!
//! Invariant: `a <= b` implies `coordinate(a) <= coordinate(b)`, also between scalars of different kinds.
//! Invariant: halving a span halves the *values* in it, whatever the type; only the two outermost cells are
//! longer.

use super::{Coordinate, Extent, Interval, Kind, LatticeError, Numbers, Scalar, Span};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use std::ops::RangeInclusive;

/// How often the first root of a float column can be halved. 2^32 cells split a kilometre into quarters of a
/// micrometre, and a root about zero can still double 31 times on either side.
const FIRST_ROOT_BITS: i32 = 32;
/// The finest cells that the greatest value can still distinguish; these leave 11 doublings beyond that
/// value.
const MANTISSA_BITS: i32 = 52;
/// The exponent of the smallest positive float, 2^-1074.
const EXPONENT_MIN: i32 = -1074;

/// The map of one index column: its type and the size of its cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    data_type: DataType,
    kind: Kind,
    cell_exponent: i32,
}

/// Why a row has no coordinate on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Missing {
    /// The value is null.
    Null,
    /// The value is NaN.
    NotANumber,
    /// The value is an infinity.
    Infinite,
}

/// The coordinates of a column, and the rows without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coordinates {
    all: Vec<Coordinate>,
    missing: Vec<(usize, Missing)>,
}

impl Coordinates {
    /// The number of rows of the column.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.all.len()
    }

    /// The rows without a coordinate, in rising order, and the reasons. These rows belong in the side cube.
    #[must_use]
    pub fn missing(&self) -> &[(usize, Missing)] {
        &self.missing
    }

    /// The coordinate of a row; `None` if the row has none or does not exist.
    #[must_use]
    pub fn at(&self, row: usize) -> Option<Coordinate> {
        let is_missing = self.missing.binary_search_by_key(&row, |(row, _)| *row).is_ok();
        self.all.get(row).copied().filter(|_| !is_missing)
    }

    /// A coordinate for every row, for loops over whole columns; that of a row without one is meaningless.
    #[must_use]
    pub fn with_gaps(&self) -> &[Coordinate] {
        &self.all
    }
}

impl Axis {
    /// The axis of an index column whose first rows lie within `expected`. For floats this fixes the size of
    /// the cells for the life of the table; integers and times ignore it. Without any rows, `[0, 1)` is
    /// expected.
    ///
    /// # Errors
    /// [`LatticeError::NotIndexable`] if the type is neither a number nor a time, [`LatticeError::Unbounded`]
    /// if `expected` is not finite.
    pub fn new(data_type: &DataType, expected: &Extent) -> Result<Self, LatticeError> {
        let axis = Self::with_cells(data_type, 0)?;
        let (Kind::Float, Some((least, greatest))) = (axis.kind, expected.range()) else {
            let cell_exponent = if axis.kind == Kind::Float { -FIRST_ROOT_BITS } else { 0 };
            return Ok(Self { cell_exponent, ..axis });
        };
        let unbounded = || LatticeError::Unbounded { least, greatest };
        let finite = |scalar: Scalar| scalar.raised_to_float().filter(|value| value.is_finite());
        let low = finite(least).ok_or_else(unbounded)?;
        let high = finite(greatest).ok_or_else(unbounded)?;
        Ok(Self { cell_exponent: cell_exponent(low, high), ..axis })
    }

    /// The axis with cells of size `2^cell_exponent`, as stored in a manifest. For integers and times the
    /// exponent is 0.
    ///
    /// # Errors
    /// [`LatticeError::NotIndexable`] if the type is neither a number nor a time.
    pub fn with_cells(data_type: &DataType, cell_exponent: i32) -> Result<Self, LatticeError> {
        let kind =
            Kind::of(data_type).ok_or_else(|| LatticeError::NotIndexable { data_type: data_type.clone() })?;
        Ok(Self { data_type: data_type.clone(), kind, cell_exponent })
    }

    /// The type of the column.
    #[must_use]
    pub const fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The binary exponent of the size of a cell, in the unit of the column.
    #[must_use]
    pub const fn cell_exponent(&self) -> i32 {
        self.cell_exponent
    }

    /// The coordinate of a value; `None` for NaN and infinities.
    #[must_use]
    pub fn coordinate(&self, value: Scalar) -> Option<Coordinate> {
        self.clamped(value).filter(|_| value.is_finite())
    }

    /// As [`Axis::coordinate`], but infinities are clamped to the ends of the lattice.
    fn clamped(&self, value: Scalar) -> Option<Coordinate> {
        value.floor_shifted(self.cell_exponent).map(|cell| self.coordinate_of_cell(cell))
    }

    fn coordinate_of_cell(&self, cell: i128) -> Coordinate {
        let middle = if self.kind == Kind::Unsigned { 0 } else { 1 << 63 };
        Coordinate(cell.saturating_add(middle).clamp(0, u64::MAX.into()) as u64)
    }

    /// The coordinates of the rows of a column, and the rows without one.
    ///
    /// # Errors
    /// [`LatticeError::OtherType`] if the column has another type than the axis.
    pub fn coordinates(&self, column: &ArrayRef) -> Result<Coordinates, LatticeError> {
        let other_type = || LatticeError::OtherType {
            expected: self.data_type.clone(),
            actual: column.data_type().clone(),
        };
        if *column.data_type() != self.data_type {
            return Err(other_type());
        }
        let all = match Numbers::of(column).ok_or_else(other_type)? {
            Numbers::Signed(values) => self.placed(values.iter().map(|&value| Scalar::Signed(value))),
            Numbers::Unsigned(values) => self.placed(values.iter().map(|&value| Scalar::Unsigned(value))),
            Numbers::Float(values) => {
                let missing = missing_floats(&values, column);
                let all = self.placed(values.iter().map(|&value| Scalar::Float(value)));
                return Ok(Coordinates { all, missing });
            }
        };
        let nulls = column.nulls().into_iter();
        let is_null = nulls.flat_map(|nulls| (0..nulls.len()).filter(move |&row| nulls.is_null(row)));
        Ok(Coordinates { all, missing: is_null.map(|row| (row, Missing::Null)).collect() })
    }

    fn placed(&self, values: impl Iterator<Item = Scalar>) -> Vec<Coordinate> {
        values.map(|value| self.clamped(value).unwrap_or_default()).collect()
    }

    /// All coordinates that rows in this interval can have, both ends included. The planner starts at the
    /// smallest cube around them. A row with one of these coordinates need not be in the interval.
    #[must_use]
    pub fn reach(&self, interval: &Interval<Scalar>) -> RangeInclusive<Coordinate> {
        let first = interval.low.and_then(|low| low.floor_shifted(self.cell_exponent));
        let last = interval.high.and_then(|high| high.floor_shifted_below(self.cell_exponent));
        let first = first.map_or(Coordinate(0), |cell| self.coordinate_of_cell(cell));
        let last = last.map_or(Coordinate(u64::MAX), |cell| self.coordinate_of_cell(cell));
        first..=last
    }

    /// The shortest root that begins at the least of these values and contains the greatest. An extent
    /// without values has the root of `[0, 1)`, or of the value 0.
    #[must_use]
    pub fn root(&self, extent: &Extent) -> Span {
        let zero_to_one = (Scalar::Signed(0), Scalar::Float(1f64.next_down()));
        let (least, greatest) = extent.range().unwrap_or(zero_to_one);
        let at = |value| self.clamped(value).unwrap_or_default();
        Span::around(at(least), at(greatest))
    }
}

fn missing_floats(values: &[f64], column: &ArrayRef) -> Vec<(usize, Missing)> {
    let why = |(row, value): (usize, &f64)| {
        if column.is_null(row) {
            return Some((row, Missing::Null));
        }
        let why = if value.is_nan() { Missing::NotANumber } else { Missing::Infinite };
        (!value.is_finite()).then_some((row, why))
    };
    values.iter().enumerate().filter_map(why).collect()
}

/// The cell size for first rows from `low` to `high`, as a binary exponent.
fn cell_exponent(low: f64, high: f64) -> i32 {
    let greatest = exponent_above(low.abs().max(high.abs()));
    // Halved before subtracting, since the difference of two huge values would be infinite.
    let length = exponent_above(high / 2.0 - low / 2.0).map(|exponent| exponent + 1);
    // A single value says nothing about the length of the domain; its own magnitude is the best guess.
    let root = length.or(greatest).unwrap_or(0);
    let finest = greatest.unwrap_or(0) - MANTISSA_BITS;
    (root - FIRST_ROOT_BITS).max(finest).max(EXPONENT_MIN)
}

/// The least `e` with `value < 2^e`; `None` unless the value is positive and finite.
fn exponent_above(value: f64) -> Option<i32> {
    let bits = value.to_bits();
    match (bits >> MANTISSA_BITS) as i32 {
        _ if value <= 0.0 => None,
        0 => Some(EXPONENT_MIN + (u64::BITS - bits.leading_zeros()) as i32),
        biased => Some(biased - 1022),
    }
}
