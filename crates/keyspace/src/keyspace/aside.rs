//! Slots that could not be looked through for what time did to them: they are left alone for a while.
//!
//! Invariant: a slot that cannot be read keeps no other waiting. It is told of while no other is aside: a
//! damaged leaf is one of many slots.

use crate::KeyspaceError;
use std::collections::BTreeMap;

/// For how long, in milliseconds.
const ASIDE_MS: u64 = 600_000;

/// What was found by looking through slots.
#[derive(Debug)]
pub struct Looked<T> {
    /// That.
    pub found: Vec<T>,
    /// A slot that could not be read, if there was none for a while: it is left alone for ten minutes, as all
    /// others are that cannot.
    pub failed: Option<(u16, KeyspaceError)>,
}

/// Those slots, and until when they are left alone.
#[derive(Debug, Default)]
pub(super) struct Aside {
    until_ms: BTreeMap<u16, u64>,
}

impl Aside {
    pub(super) fn put(&mut self, slot: u16, now_ms: u64) -> bool {
        self.until_ms.insert(slot, now_ms.saturating_add(ASIDE_MS));
        self.until_ms.len() == 1
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.until_ms.contains_key(&slot)
    }

    /// Those whose time is over may be tried again.
    pub(super) fn let_go(&mut self, now_ms: u64) {
        self.until_ms.retain(|_, until_ms| *until_ms > now_ms);
    }
}
