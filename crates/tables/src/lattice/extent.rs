//! Extents: the least and the greatest stored value of some rows, which is all that pruning looks at.

use super::{LatticeError, Numbers, Scalar};
use arrow_array::{Array, ArrayRef};

/// What values some rows have in one index column: the side of a tight box of real rows.
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
        let comparable = |row: usize| !has_nulls || column.is_valid(row);
        Ok(match Numbers::of(column).ok_or_else(not_indexable)? {
            Numbers::Signed(values) => Self::of_values(&values, Scalar::Signed, comparable),
            Numbers::Unsigned(values) => Self::of_values(&values, Scalar::Unsigned, comparable),
            Numbers::Float(values) => {
                Self::of_values(&values, Scalar::Float, |row| comparable(row) && !values[row].is_nan())
            }
        })
    }

    /// The extent from `least` to `greatest`, both of which occur, as a manifest keeps it; with or without rows
    /// that are null or NaN.
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

    /// The least and the greatest value, infinities included; none if there is no value.
    #[must_use]
    pub const fn range(&self) -> Option<(Scalar, Scalar)> {
        self.range
    }

    /// Whether some of the rows are null or NaN.
    #[must_use]
    pub const fn has_incomparable(&self) -> bool {
        self.has_incomparable
    }

    /// The extent of the rows of both.
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

/// The extents of the rows of several boxes, one for each index column.
pub(crate) fn joined<'e>(boxes: impl IntoIterator<Item = &'e [Extent]>) -> Vec<Extent> {
    let mut boxes = boxes.into_iter();
    let first = boxes.next().unwrap_or_default().to_vec();
    boxes.fold(first, |whole, extents| {
        whole.iter().zip(extents).map(|(whole, extent)| whole.joined(extent)).collect()
    })
}
