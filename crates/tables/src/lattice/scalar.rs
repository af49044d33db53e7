//! Scalars: one value of an index column, or one bound of an interval.
//!
//! Invariant: scalars of different kinds compare by their exact values; no integer passes through a float.

use super::Kind;
use arrow_array::types::{ArrowPrimitiveType, Float16Type};
use arrow_array::{Array, ArrayRef, make_array, new_null_array};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use std::cmp::Ordering;
use std::fmt;

/// One number. Dates, times, timestamps and durations are [`Signed`](Self::Signed), in the unit of their
/// column.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A signed integer or a time.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A float; `f16` and `f32` are widened, which is exact.
    Float(f64),
}

impl Scalar {
    /// Whether this is NaN, which does not compare with anything.
    #[must_use]
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }

    /// Whether this is neither NaN nor infinite.
    #[must_use]
    pub fn is_finite(self) -> bool {
        !matches!(self, Self::Float(value) if !value.is_finite())
    }

    /// A column of this single value, which a column of the type can hold; `None` for a type of another kind.
    #[must_use]
    pub fn array(self, data_type: &DataType) -> Option<ArrayRef> {
        type Half = <Float16Type as ArrowPrimitiveType>::Native;
        let width = data_type.primitive_width()?;
        // The low bytes of an integer are the same integer in fewer bytes.
        let bytes = match (Kind::of(data_type)?, self, width) {
            (Kind::Signed, Self::Signed(value), _) => value.to_le_bytes().get(..width)?.to_vec(),
            (Kind::Unsigned, Self::Unsigned(value), _) => value.to_le_bytes().get(..width)?.to_vec(),
            (Kind::Float, Self::Float(value), 2) => Half::from_f64(value).to_le_bytes().to_vec(),
            (Kind::Float, Self::Float(value), 4) => (value as f32).to_le_bytes().to_vec(),
            (Kind::Float, Self::Float(value), 8) => value.to_le_bytes().to_vec(),
            _ => return None,
        };
        let one = new_null_array(data_type, 1).to_data().into_builder();
        let one = one.nulls(None).buffers(vec![Buffer::from_slice_ref(&bytes)]).build();
        one.ok().map(make_array)
    }

    /// `floor(self / 2^exponent)`, exactly; beyond 127 bits the nearest `i128`. `None` for NaN.
    ///
    /// Monotonic in `self`, since the floor of a quotient by a positive number is, and so is the clamp.
    pub(super) fn floor_shifted(self, exponent: i32) -> Option<i128> {
        let (mantissa, scale) = self.parts()?;
        Some(shifted(mantissa, scale, exponent))
    }

    /// The greatest `floor(x / 2^exponent)` of all `x < self`, clamped in the same way.
    pub(super) fn floor_shifted_below(self, exponent: i32) -> Option<i128> {
        let (mantissa, scale) = self.parts()?;
        // Equals the ceiling minus one; the ceiling is the negated floor of the negated value.
        let ceiling = shifted(-mantissa, scale, exponent).saturating_neg();
        Some(ceiling.saturating_sub(1))
    }

    /// Mantissa and scale, such that this is `mantissa * 2^scale` and the mantissa has at most 64 bits;
    /// `None` for NaN.
    fn parts(self) -> Option<(i128, i32)> {
        match self {
            Self::Signed(value) => Some((value.into(), 0)),
            Self::Unsigned(value) => Some((value.into(), 0)),
            Self::Float(value) => float_parts(value),
        }
    }

    /// The least integer at or above this; `None` for NaN. Infinities and huge floats give the ends of
    /// `i128`.
    ///
    /// For integers `x`, `x >= self` is `x >= raised`, and `x < self` is `x < raised`.
    pub(super) fn raised_to_integer(self) -> Option<i128> {
        match self {
            Self::Signed(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
            Self::Float(value) if value.is_nan() => None,
            // The cast saturates; a float beyond 2^53 is an integer already.
            Self::Float(value) => Some(value.ceil() as i128),
        }
    }

    /// The least `f64` at or above this, used like [`Self::raised_to_integer`]. `None` for NaN.
    pub(super) fn raised_to_float(self) -> Option<f64> {
        let exact = match self {
            Self::Float(value) => return (!value.is_nan()).then_some(value),
            Self::Signed(value) => i128::from(value),
            Self::Unsigned(value) => i128::from(value),
        };
        let nearest = exact as f64;
        Some(if (nearest as i128) < exact { nearest.next_up() } else { nearest })
    }
}

/// `floor(value)` in units of `2^exponent`, where `value` is `mantissa * 2^scale`.
fn shifted(mantissa: i128, scale: i32, exponent: i32) -> i128 {
    let shift = scale.saturating_sub(exponent);
    if shift <= 0 {
        // Shifting to the right rounds down, for negative numbers too.
        return mantissa >> shift.unsigned_abs().min(127);
    }
    let room = mantissa.unsigned_abs().leading_zeros();
    match (mantissa, shift.unsigned_abs() < room) {
        (0, _) => 0,
        (_, true) => mantissa << shift,
        (1.., false) => i128::MAX,
        (_, false) => i128::MIN,
    }
}

fn float_parts(value: f64) -> Option<(i128, i32)> {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const EXPONENT_MASK: u64 = 0x7FF;
    const BIAS: i32 = 1075;
    /// Treats infinity as a number beyond all finite ones.
    const INFINITE: (u64, i32) = (1, i32::MAX);
    if value.is_nan() {
        return None;
    }
    let bits = value.to_bits();
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    let biased = (bits >> MANTISSA_BITS) & EXPONENT_MASK;
    let (magnitude, scale) = match biased {
        // Subnormals have the exponent of the least normal number and no hidden bit.
        0 => (fraction, 1 - BIAS),
        EXPONENT_MASK => INFINITE,
        _ => (fraction | 1 << MANTISSA_BITS, biased as i32 - BIAS),
    };
    let magnitude = i128::from(magnitude);
    Some((if value.is_sign_negative() { -magnitude } else { magnitude }, scale))
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let integer = |scalar: &Self| match *scalar {
            Self::Signed(value) => Some(i128::from(value)),
            Self::Unsigned(value) => Some(i128::from(value)),
            Self::Float(_) => None,
        };
        match (integer(self), integer(other), self, other) {
            (Some(left), Some(right), ..) => left.partial_cmp(&right),
            (None, None, Self::Float(left), Self::Float(right)) => left.partial_cmp(right),
            (None, Some(right), Self::Float(left), _) => float_with_integer(*left, right),
            (Some(left), None, _, Self::Float(right)) => {
                float_with_integer(*right, left).map(Ordering::reverse)
            }
            // Anything that is not an integer is a float.
            _ => None,
        }
    }
}

/// `x < n` is `ceil(x) < n` or, if the two are equal, `x < ceil(x)`.
fn float_with_integer(float: f64, integer: i128) -> Option<Ordering> {
    let ceiling = Scalar::Float(float).raised_to_integer()?;
    let whole_or_less = if float < float.ceil() { Ordering::Less } else { Ordering::Equal };
    Some(ceiling.cmp(&integer).then(whole_or_less))
}

#[cfg(test)]
mod tests {
    use super::super::Extent;
    use super::*;
    use arrow_schema::TimeUnit;

    #[test]
    fn a_value_comes_back_from_a_column_of_any_width() {
        let signed = [
            (-3, DataType::Int8),
            (-300, DataType::Int16),
            (i64::MIN, DataType::Int64),
            (17, DataType::Date32),
            (i64::MAX, DataType::Timestamp(TimeUnit::Nanosecond, None)),
        ];
        let unsigned = [(200, DataType::UInt8), (u64::MAX, DataType::UInt64)];
        let floats = [
            (0.5, DataType::Float16),
            (-1.25, DataType::Float32),
            (f64::NEG_INFINITY, DataType::Float32),
            (0.1, DataType::Float64),
        ];
        let values = signed.map(|(value, of)| (Scalar::Signed(value), of)).into_iter();
        let values = values.chain(unsigned.map(|(value, of)| (Scalar::Unsigned(value), of)));
        for (value, data_type) in values.chain(floats.map(|(value, of)| (Scalar::Float(value), of))) {
            let array = value.array(&data_type).unwrap();
            assert_eq!((array.data_type(), array.len(), array.null_count()), (&data_type, 1, 0));
            assert_eq!(Extent::of(&array).unwrap().range(), Some((value, value)), "{data_type}");
        }
        assert!(Scalar::Signed(1).array(&DataType::Utf8).is_none());
        assert!(Scalar::Signed(1).array(&DataType::Float64).is_none());
    }

    #[test]
    fn integers_and_floats_compare_by_their_exact_values() {
        let past = (1_i64 << 53) + 1;
        assert!(Scalar::Float((1_u64 << 53) as f64) < Scalar::Signed(past));
        assert!(Scalar::Signed(past) < Scalar::Float(((1_u64 << 53) + 2) as f64));
        assert!(Scalar::Unsigned(u64::MAX) < Scalar::Float(2f64.powi(64)));
        assert!(Scalar::Signed(-1) < Scalar::Unsigned(0));
        assert!(Scalar::Float(-0.5) < Scalar::Signed(0));
        assert!(Scalar::Float(-0.5) > Scalar::Signed(-1));
        assert_eq!(Scalar::Float(-0.0), Scalar::Unsigned(0));
        assert!(Scalar::Float(f64::NEG_INFINITY) < Scalar::Signed(i64::MIN));
        assert_eq!(Scalar::Float(f64::NAN).partial_cmp(&Scalar::Signed(0)), None);
    }

    #[test]
    fn bounds_raised_to_a_column_of_another_kind_take_the_same_values() {
        let past = (1_i64 << 53) + 1;
        assert_eq!(Scalar::Signed(past).raised_to_float(), Some(((1_i64 << 53) + 2) as f64));
        assert_eq!(Scalar::Signed(-past).raised_to_float(), Some(-((1_i64 << 53) as f64)));
        assert_eq!(Scalar::Unsigned(u64::MAX).raised_to_float(), Some(2f64.powi(64)));
        assert_eq!(Scalar::Float(0.5).raised_to_integer(), Some(1));
        assert_eq!(Scalar::Float(-0.5).raised_to_integer(), Some(0));
        assert_eq!(Scalar::Float(f64::NAN).raised_to_float(), None);
    }

    #[test]
    fn the_floor_of_a_quotient_by_a_power_of_two_is_exact() {
        let floor = |value: f64, exponent| Scalar::Float(value).floor_shifted(exponent);
        assert_eq!(floor(0.75, -2), Some(3));
        assert_eq!(floor(-0.75, 0), Some(-1));
        assert_eq!(floor(-5e-324, 0), Some(-1));
        assert_eq!(floor(5e-324, -1074), Some(1));
        assert_eq!(floor(f64::MIN_POSITIVE, -1074), Some(1 << 52));
        assert_eq!(floor(f64::MAX, 960), Some((1 << 64) - (1 << 11)));
        assert_eq!(floor(f64::MAX, 0), Some(i128::MAX));
        assert_eq!(floor(-f64::MAX, -1074), Some(i128::MIN));
        assert_eq!(floor(-0.0, -1074), Some(0));
        assert_eq!(Scalar::Signed(i64::MIN).floor_shifted(1), Some(-(1 << 62)));
        assert_eq!(Scalar::Unsigned(u64::MAX).floor_shifted(-40), Some(i128::from(u64::MAX) << 40));
        assert_eq!(floor(f64::INFINITY, 1000), Some(i128::MAX));
        assert_eq!(floor(f64::NEG_INFINITY, -1074), Some(i128::MIN));
        assert_eq!(floor(f64::NAN, 0), None);
    }

    #[test]
    fn the_cell_before_a_bound_is_the_last_with_smaller_values() {
        let below = |value: f64, exponent| Scalar::Float(value).floor_shifted_below(exponent);
        assert_eq!(below(16.0, 0), Some(15));
        assert_eq!(below(15.5, 0), Some(15));
        assert_eq!(below(-15.5, 0), Some(-16));
        assert_eq!(below(0.0, -1074), Some(-1));
        assert_eq!(below(5e-324, 0), Some(0));
        assert_eq!(below(f64::INFINITY, 0), Some(i128::MAX - 1));
        assert_eq!(Scalar::Signed(i64::MIN).floor_shifted_below(0), Some(i128::from(i64::MIN) - 1));
        assert_eq!(Scalar::Signed(7).floor_shifted_below(1), Some(3));
    }
}
