//! The format that a store has on disk, for callers that consider an upgrade.
//!
//! A store of a newer format, or with a feature that this build does not know, is refused when it is opened.

use crate::engine::Engine;
use crate::superblock::{DELTAS, FORMAT, MOVED_RANGES, UNCOUNTED};
use std::sync::atomic::Ordering;

/// Every feature that a build has to know to read a store, with its name for people.
const NAMES: [(u64, &str); 3] =
    [(MOVED_RANGES, "moved-ranges"), (UNCOUNTED, "uncounted-trees"), (DELTAS, "records-beside-leaves")];

/// The format of an open store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its number.
    pub number: u32,
    /// The newest format that this build writes.
    pub newest: u32,
    /// Names of the features that a build has to know to read it.
    pub features: Vec<&'static str>,
}

impl Engine {
    /// The format of the store.
    #[must_use]
    pub fn format(&self) -> Format {
        let noted = self.shared.features.load(Ordering::Relaxed);
        let features = NAMES.into_iter().filter(|(bit, _)| noted & bit != 0).map(|(_, name)| name).collect();
        Format { number: FORMAT, newest: FORMAT, features }
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use crate::superblock::KNOWN_TO_READ;

    #[test]
    fn every_feature_that_is_needed_to_read_a_store_has_a_name() {
        assert_eq!(NAMES.iter().fold(0, |bits, (bit, _)| bits | bit), KNOWN_TO_READ);
    }
}
