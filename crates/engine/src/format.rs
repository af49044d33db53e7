//! Which format a store has on disk, for whoever asks whether it is to be upgraded.
//!
//! A store of a newer format, or with a feature that this build does not know, was refused when it was opened.

use crate::engine::Engine;
use crate::superblock::FORMAT;

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
        Format { number: FORMAT, newest: FORMAT, features: Vec::new() }
    }
}
