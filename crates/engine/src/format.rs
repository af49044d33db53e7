//! Which format a store has on disk, for whoever asks whether it is to be upgraded.
//!
//! A store of a newer format, or with a feature that this build does not know, was refused when it was opened.

use crate::engine::Engine;
use crate::superblock::{FORMAT, MOVED_RANGES, UNCOUNTED};
use std::sync::atomic::Ordering;

/// The format of an open store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its number.
    pub number: u32,
    /// The newest one that this build writes.
    pub newest: u32,
    /// Names of the features that a build has to know to read it.
    pub features: Vec<&'static str>,
}

impl Engine {
    /// The format of the store.
    #[must_use]
    pub fn format(&self) -> Format {
        let noted = self.shared.features.load(Ordering::Relaxed);
        let names = [(MOVED_RANGES, "moved-ranges"), (UNCOUNTED, "uncounted-trees")];
        let features = names.into_iter().filter(|(bit, _)| noted & bit != 0).map(|(_, name)| name).collect();
        Format { number: FORMAT, newest: FORMAT, features }
    }
}
