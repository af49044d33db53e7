//! Splits: partition keys distributed by hash, so that each key is in exactly one split.

use atoll_store::{Place, Split, StoreError, Token};
use std::hash::{DefaultHasher, Hash, Hasher};

/// More readers than this gain nothing on one map.
const SPLITS_MAX: usize = 1024;

/// Part `index` of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitPart {
    index: u32,
    count: u32,
}

impl SplitPart {
    /// The whole store.
    pub(crate) const ALL: Self = Self { index: 0, count: 1 };

    /// Divides the store among about `readers` readers.
    pub(crate) fn deal(readers: usize) -> Result<Vec<Split>, StoreError> {
        if readers == 0 {
            return Err(StoreError::InvalidInput {
                what: "number of readers",
                problem: "it is 0".into(),
                hint: "ask for at least one split",
            });
        }
        let count = readers.min(SPLITS_MAX) as u32;
        Ok((0..count).map(|index| Self { index, count }.to_split()).collect())
    }

    fn to_split(self) -> Split {
        let token = Token([self.index.to_le_bytes(), self.count.to_le_bytes()].concat());
        Split { token, place: Place::Here }
    }

    /// The part that a split describes.
    pub(crate) fn of(split: &Split) -> Result<Self, StoreError> {
        let field = |at: usize| Some(u32::from_le_bytes(split.token.0.get(at..at + 4)?.try_into().ok()?));
        match (field(0), field(4), split.token.0.len()) {
            (Some(index), Some(count), 8) if index < count && count as usize <= SPLITS_MAX => {
                Ok(Self { index, count })
            }
            _ => Err(StoreError::InvalidInput {
                what: "split",
                problem: "this store did not return it".into(),
                hint: "pass a split of the same store unchanged",
            }),
        }
    }

    pub(crate) fn contains(self, partition: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        partition.hash(&mut hasher);
        hasher.finish() % u64::from(self.count) == u64::from(self.index)
    }
}
