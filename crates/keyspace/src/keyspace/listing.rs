//! Keys of slots: some of one, or all of a node, a few at a time.
//!
//! A cursor says all that there is to know: the slot, and a number. Keys of a slot are gone through by their hashes, from
//! that number on, since no number tells where between two keys one was that is gone. Where a slot has more keys than are
//! asked for, each page is a part of all hashes: it costs a look at all its keys, but at no more than [`PARTS`] times all.
//!
//! Invariant: a key that is there from the first page to the last is on one of them.

use super::Keyspace;
use super::cells::TreeCells;
use crate::cell::{self, CellName, HEAD};
use crate::cells::Cells;
use crate::evaluate::kind_name;
use crate::head::{HEAD_BYTES_MAX, Head};
use crate::{KeyspaceError, SLOTS, glob, slot_of};
use atoll_engine::Direction;
use atoll_resp::ScanRequest;
use std::ops::{Bound, ControlFlow};
use twox_hash::XxHash3_64;

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Where to go on; 0 at the end, and less than 2^46.
    pub cursor: u64,
    /// Keys; perhaps none.
    pub keys: Vec<Vec<u8>>,
}

impl ScanPage {
    /// The cursor that begins at a slot; 0, the end, behind the last one.
    #[must_use]
    pub fn cursor_of(slot: u16) -> u64 {
        u64::from(slot % SLOTS) * HASHES
    }

    /// The cursor that begins at a key: pages hold keys in the order of these, whatever is deleted meanwhile.
    #[must_use]
    pub fn cursor_of_key(key: &[u8]) -> u64 {
        Self::cursor_of(slot_of(key)) + hash(key)
    }

    /// The slot that a cursor goes on in; behind the last one if there is no such slot.
    #[must_use]
    pub fn slot_of(cursor: u64) -> u16 {
        u16::try_from(cursor / HASHES).unwrap_or(SLOTS).min(SLOTS)
    }
}

/// Most parts that the keys of a slot are gone through in.
const PARTS: u64 = 64;

/// Most keys that are looked at for a page where slots have few, whatever is asked for.
const COUNT_MAX: u64 = 10_000;

/// Hashes are numbers below this one.
const HASHES: u64 = 1 << 32;

fn hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key) % HASHES
}

impl Keyspace {
    /// The first keys of a slot, at most so many, in the order of their bytes.
    ///
    /// # Errors
    /// [`KeyspaceError`] when the tree cannot be read.
    pub fn keys_of_slot(&self, slot: u16, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError> {
        let mut keys = Vec::new();
        if most > 0 {
            self.visit_keys(slot, |key| {
                keys.push(key.to_vec());
                if keys.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(keys)
    }

    /// Keys of all slots that are `held`, from the cursor on: about as many as are asked for, before those are left out that
    /// are not meant.
    ///
    /// # Errors
    /// [`KeyspaceError`] when the tree cannot be read.
    pub fn scan(
        &self,
        now_ms: u64,
        request: &ScanRequest<'_>,
        held: impl Fn(u16) -> bool,
    ) -> Result<ScanPage, KeyspaceError> {
        let count = request.count.clamp(1, COUNT_MAX);
        let (first, mut from) = (request.cursor / HASHES, request.cursor % HASHES);
        let (mut keys, mut looked_at) = (Vec::new(), 0);
        for slot in u16::try_from(first).unwrap_or(SLOTS)..SLOTS {
            let held = self.keys_in(slot) > 0 && held(slot);
            if held && looked_at >= count {
                let cursor = u64::from(slot) * HASHES + from;
                return Ok(ScanPage { cursor, keys });
            }
            if held {
                let to = from + HASHES.div_ceil(self.keys_in(slot).div_ceil(count).min(PARTS));
                looked_at += self.scan_part(now_ms, slot, (from, to), request, &mut keys)?;
                if to < HASHES {
                    let cursor = u64::from(slot) * HASHES + to;
                    return Ok(ScanPage { cursor, keys });
                }
            }
            from = 0;
        }
        Ok(ScanPage { cursor: 0, keys })
    }

    /// Adds the keys of a slot whose hashes lie between two numbers, and that are meant; how many there were before.
    fn scan_part(
        &self,
        now_ms: u64,
        slot: u16,
        (from, to): (u64, u64),
        request: &ScanRequest<'_>,
        keys: &mut Vec<Vec<u8>>,
    ) -> Result<u64, KeyspaceError> {
        let (mut looked_at, before) = (0, keys.len());
        let is_all = from == 0 && to >= HASHES;
        self.visit_keys(slot, |key| {
            if is_all || (from..to).contains(&hash(key)) {
                looked_at += 1;
                if request.pattern.is_none_or(|pattern| glob::matches(pattern, key)) {
                    keys.push(key.to_vec());
                }
            }
            ControlFlow::Continue(())
        })?;
        if request.kind.is_some() || self.state(slot)?.soonest_ms <= now_ms {
            let mut kept = Vec::new();
            for key in keys.split_off(before) {
                if self.is_meant(now_ms, slot, &key, request.kind)? {
                    kept.push(key);
                }
            }
            keys.append(&mut kept);
        }
        Ok(looked_at)
    }

    /// Whether a key is of this kind and its time is not over.
    fn is_meant(
        &self,
        now_ms: u64,
        slot: u16,
        key: &[u8],
        kind: Option<&[u8]>,
    ) -> Result<bool, KeyspaceError> {
        let cells = TreeCells { tree: &self.tree };
        let Some(cell) = cells.value(&CellName::head(slot, key))? else { return Ok(false) };
        let head = Head::decode(&cell.read(0, HEAD_BYTES_MAX as u64)?)?;
        let is_kind = |kind: &[u8]| kind.eq_ignore_ascii_case(kind_name(head.kind).as_bytes());
        Ok(!head.is_overdue(now_ms) && kind.is_none_or(is_kind))
    }

    fn visit_keys(
        &self,
        slot: u16,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), KeyspaceError> {
        let (from, to) = (CellName::kind(slot, HEAD), CellName::kind(slot, HEAD + 1));
        let range = (Bound::Included(&*from), Bound::Excluded(&*to));
        self.tree.scan(range, Direction::Forward, |name, _| visit(cell::key_of_head(name)))?;
        Ok(())
    }
}
