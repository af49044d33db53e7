//! Slots whose search for expired keys or silent clients failed: both searches skip them for a while.
//!
//! Invariant: a slot that cannot be read does not hold up the others. Its error is reported only if no other
//! slot is being skipped, because a damaged leaf concerns many slots.

use crate::KeyspaceError;
use std::collections::BTreeMap;

/// How long a slot is skipped, in milliseconds.
const SKIP_MS: u64 = 600_000;

/// The result of a search through slots.
#[derive(Debug)]
pub struct Looked<T> {
    /// What the search found.
    pub found: Vec<T>,
    /// A slot that could not be read, unless others were failing already. Like them it is skipped for ten
    /// minutes.
    pub failed: Option<(u16, KeyspaceError)>,
}

/// The slots that are skipped, and until when.
#[derive(Debug, Default)]
pub(super) struct SkippedSlots {
    until_ms: BTreeMap<u16, u64>,
}

impl SkippedSlots {
    pub(super) fn put(&mut self, slot: u16, now_ms: u64) -> bool {
        self.until_ms.insert(slot, now_ms.saturating_add(SKIP_MS));
        self.until_ms.len() == 1
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.until_ms.contains_key(&slot)
    }

    /// Ends the skipping of slots whose time is over.
    pub(super) fn let_go(&mut self, now_ms: u64) {
        self.until_ms.retain(|_, until_ms| *until_ms > now_ms);
    }
}
