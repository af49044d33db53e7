//! Weights: the fixed place of a unit of sampling in every sample.
//!
//! A weight is the XXH3-64 of the unit's canonical key, with the table's salt as seed.
//! docs/internals/tables-weights.md specifies the bytes of a key, and has test vectors that Python
//! reproduces. A sample is every unit below a [`Cut`].
//!
//! Invariant: a weight depends only on the values of the sample key and on the salt: not on the width of an
//! integer or a float, the unit of a timestamp, a dictionary, an offset, or other rows of the batch.
//! Invariant: no weight is 0, so a cut can express "nothing", and all weights lie below [`Cut::ALL`].

mod cut;
mod keys;
mod order;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use cut::{Cut, Window};
pub use order::order;
pub(crate) use order::{order_of_rows, rows_in_order, same_keys};

use crate::room::Lent;
use crate::threads::map_owned;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use atoll_errors::ErrorKind;
use keys::KeyColumns;
use std::num::NonZeroU64;
use twox_hash::XxHash3_64;

/// Rows that are weighed at a time, so that their keys fit in a cache.
const ROWS_AT_ONCE: usize = 1 << 13;

/// The seed of a table's weights. Equal keys have equal weights in all tables of one salt, so joins of
/// samples are samples of the join. Samples under different salts are independent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Salt(pub u64);

/// The place of a unit in every sample: a lower weight comes earlier. From 1 to 2^64 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(NonZeroU64);

impl Weight {
    /// The lightest possible weight.
    pub const LEAST: Self = Self(NonZeroU64::MIN);

    /// The heaviest possible weight.
    pub const GREATEST: Self = Self(NonZeroU64::MAX);

    /// The weight with this number, as stored in a block; `None` for 0, which is not a weight.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The weight of a canonical key.
    #[must_use]
    pub fn of_key(key: &[u8], salt: Salt) -> Self {
        Self::of_hash(XxHash3_64::oneshot_with_seed(salt.0, key))
    }

    /// Maps 0 to 1. A cut at 2 or above still takes exactly its share of all hashes; only the cut at 1 takes
    /// nothing where it would take one of 2^64.
    const fn of_hash(hash: u64) -> Self {
        match NonZeroU64::new(hash) {
            Some(number) => Self(number),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// The weight of each row's sample key, given its columns in the order of the schema.
///
/// # Errors
/// [`WeightError::NoColumns`], [`WeightError::Rows`], or [`WeightError::NotAKey`] for lists, structures,
/// decimals, intervals of calendar time and other types that have no canonical form.
pub fn weights(columns: &[ArrayRef], salt: Salt) -> Result<Vec<Weight>, WeightError> {
    Ok(KeyColumns::new(columns)?.weights(salt))
}

/// As [`weights`], into a slice with one place for each row.
pub(crate) fn weigh(columns: &[ArrayRef], salt: Salt, weights: &mut [Weight]) -> Result<(), WeightError> {
    let keys = KeyColumns::new(columns)?;
    if keys.rows() != weights.len() {
        return Err(WeightError::Rows { column: 0, rows: keys.rows(), expected: weights.len() });
    }
    keys.weigh(salt, weights);
    Ok(())
}

/// As [`weights`], for many rows and on `threads` threads.
///
/// # Errors
/// As [`weights`].
pub(crate) fn weights_of_rows(
    columns: &[ArrayRef],
    salt: Salt,
    threads: usize,
) -> Result<Lent<Weight>, WeightError> {
    let expected = columns.first().ok_or(WeightError::NoColumns)?.len();
    if let Some(column) = columns.iter().position(|column| column.len() != expected) {
        return Err(WeightError::Rows { column, rows: columns[column].len(), expected });
    }
    let mut weights = Lent::filled(expected, Weight::LEAST);
    let parts = (0..).step_by(ROWS_AT_ONCE).zip(weights.chunks_mut(ROWS_AT_ONCE));
    let weighed = map_owned(parts, threads, |(from, weights)| {
        let part = |column: &ArrayRef| column.slice(from, weights.len());
        weigh(&columns.iter().map(part).collect::<Vec<_>>(), salt, weights)
    });
    weighed.into_iter().collect::<Result<(), _>>()?;
    Ok(weights)
}

/// Why there are no weights, no order or no cut.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// There are no columns, so there is nothing to hash.
    #[error("a key needs at least one column")]
    NoColumns,
    /// The columns do not have the same number of rows.
    #[error("key column {column} has {rows} rows where {expected} are expected")]
    Rows {
        /// The place among the columns of the key.
        column: usize,
        /// The rows of that column.
        rows: usize,
        /// The rows of the first column, or the number of weights.
        expected: usize,
    },
    /// The type has no canonical form.
    #[error("key column {column} has type {data_type}, which cannot be part of a key")]
    NotAKey {
        /// The place among the columns of the key.
        column: usize,
        /// Its type.
        data_type: DataType,
    },
    /// There are more rows than a permutation can number.
    #[error("{rows} rows are too many to sort at once; at most {max} are possible")]
    TooManyRows {
        /// The rows that were given.
        rows: usize,
        /// The most rows.
        max: u32,
    },
    /// The share is not a number from 0 to 1.
    #[error("a share must be from 0 to 1, not {share}")]
    NotAShare {
        /// The share given.
        share: f64,
    },
    /// The window ends before it begins.
    #[error("the ends of the window are reversed: it goes from {from} to {to}")]
    WindowInsideOut {
        /// The lower share.
        from: f64,
        /// The upper share.
        to: f64,
    },
}

impl WeightError {
    /// The error kind that all doors share.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAKey { .. } => ErrorKind::Unsupported,
            Self::TooManyRows { .. } => ErrorKind::Limit,
            Self::NoColumns | Self::Rows { .. } | Self::NotAShare { .. } | Self::WindowInsideOut { .. } => {
                ErrorKind::InvalidInput
            }
        }
    }
}
