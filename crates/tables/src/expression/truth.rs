//! SQL's three truth values for all rows of a batch: true, false, and unknown, where neither bit is set.
//!
//! Invariant: no row is both true and false.

use arrow_array::BooleanArray;
use arrow_buffer::{BooleanBuffer, NullBuffer};

/// The truth of each row.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    is_true: BooleanBuffer,
    is_false: BooleanBuffer,
}

impl Truth {
    /// The same truth value for all rows.
    pub(super) fn constant(value: Option<bool>, rows: usize) -> Self {
        let all = |is_set| match is_set {
            true => BooleanBuffer::new_set(rows),
            false => BooleanBuffer::new_unset(rows),
        };
        Self { is_true: all(value == Some(true)), is_false: all(value == Some(false)) }
    }

    /// True where a bit is set, false where it is not, unknown where there is a null.
    pub(super) fn new(bits: BooleanBuffer, nulls: Option<&NullBuffer>) -> Self {
        match nulls {
            None => Self { is_false: !&bits, is_true: bits },
            Some(nulls) => Self { is_true: &bits & nulls.inner(), is_false: &!&bits & nulls.inner() },
        }
    }

    /// As an Arrow array, in which unknown is null.
    pub(super) fn into_array(self) -> BooleanArray {
        let nulls = NullBuffer::new(self.known());
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        BooleanArray::new(self.is_true, nulls)
    }

    /// The rows that are true or false.
    pub(super) fn known(&self) -> BooleanBuffer {
        &self.is_true | &self.is_false
    }

    /// False if either is false, true if both are true.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self { is_true: &self.is_true & &other.is_true, is_false: &self.is_false | &other.is_false }
    }

    /// True if either is true, false if both are false.
    pub(super) fn or(&self, other: &Self) -> Self {
        Self { is_true: &self.is_true | &other.is_true, is_false: &self.is_false & &other.is_false }
    }

    /// Exchanges true and false.
    pub(super) fn not(self) -> Self {
        Self { is_true: self.is_false, is_false: self.is_true }
    }

    /// Whether the two are equal; unknown if either is unknown.
    pub(super) fn equals(&self, other: &Self) -> Self {
        Self {
            is_true: &(&self.is_true & &other.is_true) | &(&self.is_false & &other.is_false),
            is_false: &(&self.is_true & &other.is_false) | &(&self.is_false & &other.is_true),
        }
    }

    /// Whether this one is false and the other true, as false is less than true; unknown if either is
    /// unknown.
    pub(super) fn is_less(&self, other: &Self) -> Self {
        let is_true = &self.is_false & &other.is_true;
        let known = &self.known() & &other.known();
        Self { is_false: &known & &!&is_true, is_true }
    }
}
