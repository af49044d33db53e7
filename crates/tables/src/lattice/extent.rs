//! Extents: the least and the greatest stored value of some rows, which is all that pruning looks at.

use super::{Kind, LatticeError, Numbers, Scalar};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// The values of some rows in one index column: one side of a tight box of real rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extent {
    range: Option<(Scalar, Scalar)>,
    has_incomparable: bool,
}

impl Extent {
    /// The extent of a column.
    ///
    /// # Errors
    /// [`LatticeError::NotIndexable`] if the type is neither a number nor a time.
    pub fn of(column: &ArrayRef) -> Result<Self, LatticeError> {
        let not_indexable = || LatticeError::NotIndexable { data_type: column.data_type().clone() };
        let has_nulls = column.null_count() > 0;
        if !has_nulls && let Some(extent) = plain(column) {
            return Ok(extent);
        }
        let comparable = |row: usize| !has_nulls || column.is_valid(row);
        Ok(match Numbers::of(column).ok_or_else(not_indexable)? {
            Numbers::Signed(values) => Self::of_values(&values, Scalar::Signed, comparable),
            Numbers::Unsigned(values) => Self::of_values(&values, Scalar::Unsigned, comparable),
            Numbers::Float(values) => {
                Self::of_values(&values, Scalar::Float, |row| comparable(row) && !values[row].is_nan())
            }
        })
    }

    /// The extent of values stored one after the other, little-endian, none of them null; equals
    /// [`Extent::of`] their column. `None` for a type that has to be decoded into a column first.
    pub(crate) fn of_bytes(data_type: &DataType, bytes: &[u8]) -> Option<Self> {
        Some(match (Kind::of(data_type)?, data_type.primitive_width()?) {
            (Kind::Signed, 1) => {
                Self::of_words(bytes, i8::from_le_bytes, |v| Scalar::Signed(v.into()), |_| true)
            }
            (Kind::Signed, 2) => {
                Self::of_words(bytes, i16::from_le_bytes, |v| Scalar::Signed(v.into()), |_| true)
            }
            (Kind::Signed, 4) => {
                Self::of_words(bytes, i32::from_le_bytes, |v| Scalar::Signed(v.into()), |_| true)
            }
            (Kind::Signed, 8) => Self::of_words(bytes, i64::from_le_bytes, Scalar::Signed, |_| true),
            (Kind::Unsigned, 1) => {
                Self::of_words(bytes, u8::from_le_bytes, |v| Scalar::Unsigned(v.into()), |_| true)
            }
            (Kind::Unsigned, 2) => {
                Self::of_words(bytes, u16::from_le_bytes, |v| Scalar::Unsigned(v.into()), |_| true)
            }
            (Kind::Unsigned, 4) => {
                Self::of_words(bytes, u32::from_le_bytes, |v| Scalar::Unsigned(v.into()), |_| true)
            }
            (Kind::Unsigned, 8) => Self::of_words(bytes, u64::from_le_bytes, Scalar::Unsigned, |_| true),
            (Kind::Float, 4) => {
                Self::of_words(bytes, f32::from_le_bytes, |v| Scalar::Float(v.into()), |v| !v.is_nan())
            }
            (Kind::Float, 8) => Self::of_words(bytes, f64::from_le_bytes, Scalar::Float, |v| !v.is_nan()),
            _ => return None,
        })
    }

    fn of_words<const WIDTH: usize, T: Copy + PartialOrd>(
        bytes: &[u8],
        value: impl Fn([u8; WIDTH]) -> T,
        scalar: impl Fn(T) -> Scalar,
        is_comparable: impl Fn(&T) -> bool,
    ) -> Self {
        let values = || bytes.as_chunks::<WIDTH>().0.iter().map(|word| value(*word));
        let Some(first) = values().find(&is_comparable) else {
            return Self { range: None, has_incomparable: !bytes.is_empty() };
        };
        let (mut least, mut greatest, mut has_incomparable) = (first, first, false);
        // Comparisons with NaN are false, so the loop needs no branch for it.
        for value in values() {
            least = if value < least { value } else { least };
            greatest = if value > greatest { value } else { greatest };
            has_incomparable |= !is_comparable(&value);
        }
        Self { range: Some((scalar(least), scalar(greatest))), has_incomparable }
    }

    /// The extent from `least` to `greatest`, both of which occur, as stored in a manifest, and whether some
    /// rows are null or NaN.
    #[must_use]
    pub const fn new(range: Option<(Scalar, Scalar)>, has_incomparable: bool) -> Self {
        Self { range, has_incomparable }
    }

    fn of_values<T: Copy + PartialOrd>(
        values: &[T],
        scalar: impl Fn(T) -> Scalar,
        comparable: impl Fn(usize) -> bool,
    ) -> Self {
        let mut range: Option<(T, T)> = None;
        let mut has_incomparable = false;
        for (row, &value) in values.iter().enumerate() {
            if !comparable(row) {
                has_incomparable = true;
                continue;
            }
            let (least, greatest) = range.get_or_insert((value, value));
            *least = if value < *least { value } else { *least };
            *greatest = if value > *greatest { value } else { *greatest };
        }
        Self { range: range.map(|(least, greatest)| (scalar(least), scalar(greatest))), has_incomparable }
    }

    /// The least and the greatest value, infinities included; `None` if there are no values.
    #[must_use]
    pub const fn range(&self) -> Option<(Scalar, Scalar)> {
        self.range
    }

    /// Whether some of the rows are null or NaN.
    #[must_use]
    pub const fn has_incomparable(&self) -> bool {
        self.has_incomparable
    }

    /// Whether the two may have a value in common.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let ranges = self.range.zip(other.range);
        // Values of different kinds do not compare; they are assumed to be equal.
        ranges.is_some_and(|((least, greatest), (from, to))| !(greatest < from || to < least))
            || (self.has_incomparable && other.has_incomparable)
    }

    /// The extent of the rows of both together.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let range = match (self.range, other.range) {
            (Some((least, greatest)), Some((other_least, other_greatest))) => Some((
                if other_least < least { other_least } else { least },
                if other_greatest > greatest { other_greatest } else { greatest },
            )),
            (range, other_range) => range.or(other_range),
        };
        Self { range, has_incomparable: self.has_incomparable || other.has_incomparable }
    }
}

/// The extent of a column without nulls; `None` for a type that has to be widened first.
fn plain(column: &ArrayRef) -> Option<Extent> {
    let width = column.data_type().primitive_width()?;
    let parts = column.to_data();
    let bytes = parts.buffers().first()?.as_slice();
    Extent::of_bytes(column.data_type(), bytes.get(parts.offset() * width..)?.get(..parts.len() * width)?)
}

/// The extents of the rows of several boxes together, one for each index column.
pub(crate) fn joined<'e>(boxes: impl IntoIterator<Item = &'e [Extent]>) -> Vec<Extent> {
    let mut boxes = boxes.into_iter();
    let first = boxes.next().unwrap_or_default().to_vec();
    boxes.fold(first, |whole, extents| {
        whole.iter().zip(extents).map(|(whole, extent)| whole.joined(extent)).collect()
    })
}
