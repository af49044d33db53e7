//! Listing keys: some of one slot, or all of a node, a page at a time.
//!
//! A cursor is self-contained: it holds the slot and a number. The keys of a slot are listed by their hashes,
//! starting from that number, because a position between two keys could not be found again after they are
//! deleted. If a slot has more keys than a page, each page covers a part of the range of hashes. It has to
//! look at all of the slot's keys, but there are at most [`PARTS_MAX`] parts. If only keys with a certain
//! prefix are wanted, no others are looked at. If keys are long, a part ends once it has enough bytes; and if
//! a pattern takes long, once it has taken long enough.
//!
//! Invariant: a key that exists from the first page to the last is on one of them.

use super::Keyspace;
use super::cells::TreeCells;
use crate::cell::{self, CellName};
use crate::cells::Cells;
use crate::evaluate::kind_name;
use crate::head::{HEAD_BYTES_MAX, Head};
use crate::{KeyspaceError, PAGE_BYTES_MAX, SLOTS, glob, slot_of};
use atoll_engine::Direction;
use atoll_resp::ScanRequest;
use std::ops::{Bound, ControlFlow};
use twox_hash::XxHash3_64;

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Where the next page begins; 0 at the end, and always less than 2^46.
    pub cursor: u64,
    /// The keys; possibly none.
    pub keys: Vec<Vec<u8>>,
}

impl ScanPage {
    /// The cursor that begins at a slot; 0, the end, after the last one.
    #[must_use]
    pub fn cursor_of(slot: u16) -> u64 {
        u64::from(slot % SLOTS) * HASHES
    }

    /// The cursor that begins at a key: pages list keys in the order of their cursors, whatever is deleted
    /// meanwhile.
    #[must_use]
    pub fn cursor_of_key(key: &[u8]) -> u64 {
        Self::cursor_of(slot_of(key)) + hash(key)
    }

    /// The slot in which a cursor continues; [`SLOTS`] if there is no such slot.
    #[must_use]
    pub fn slot_of(cursor: u64) -> u16 {
        u16::try_from(cursor / HASHES).unwrap_or(SLOTS).min(SLOTS)
    }
}

/// Most parts into which the keys of a slot are divided.
const PARTS_MAX: u64 = 64;

/// Most keys that are looked at for a page of small slots, whatever the request asks for.
const COUNT_MAX: u64 = 10_000;

/// Starting a search by prefix costs as much as looking at this many adjacent keys.
const LOOK_KEYS: u64 = 8;

/// A page ends after this many steps of pattern matching: some ten milliseconds. In a slot with many keys, a
/// part takes a few times as many.
const STEPS_MAX: u64 = 8 << 20;

/// Hashes are below this number.
const HASHES: u64 = 1 << 32;

fn hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key) % HASHES
}

/// The keys of one part of a slot.
struct ScanPart {
    keys: Vec<Vec<u8>>,
    /// Total length of `keys`.
    bytes: usize,
    /// How many keys were looked at, including those that do not match.
    looked_at: u64,
    /// An upper limit on the steps of matching those that are still in the part.
    steps: u64,
    /// The part is complete up to this hash, exclusive.
    to: u64,
    /// Beyond this many bytes some keys are dropped.
    bytes_max: usize,
}

impl ScanPart {
    fn push(&mut self, key: &[u8]) {
        self.keys.push(key.to_vec());
        self.bytes += key.len();
        if self.bytes > self.bytes_max {
            self.cut();
            // Many keys of one hash are not sorted again for each new one.
            self.bytes_max = 2 * self.bytes.max(PAGE_BYTES_MAX);
        }
    }

    /// Drops the upper half of the part's hashes, as often as matching took too long; keys of a single hash
    /// stay.
    fn halve(&mut self, from: u64) {
        while self.steps > STEPS_MAX {
            self.to = from + self.to.min(HASHES).saturating_sub(from).div_ceil(2);
            // About this many steps were for keys that stay.
            self.steps /= 2;
        }
        self.keys.retain(|key| hash(key) < self.to);
        self.bytes = self.keys.iter().map(Vec::len).sum();
    }

    /// Drops the keys with the highest hashes until no more bytes are left than a page holds; keys of the
    /// same hash stay or go together.
    fn cut(&mut self) {
        let hashed = |key: Vec<u8>| (hash(&key), key);
        let mut keys: Vec<_> = std::mem::take(&mut self.keys).into_iter().map(hashed).collect();
        keys.sort_unstable();
        let mut kept = 0;
        self.bytes = 0;
        for of_one in keys.chunk_by(|(one, _), (other, _)| one == other) {
            let bytes: usize = of_one.iter().map(|(_, key)| key.len()).sum();
            if kept > 0 && self.bytes + bytes > PAGE_BYTES_MAX {
                self.to = of_one.first().map_or(self.to, |(hash, _)| *hash);
                break;
            }
            self.bytes += bytes;
            kept += of_one.len();
        }
        keys.truncate(kept);
        self.keys = keys.into_iter().map(|(_, key)| key).collect();
    }
}

impl Keyspace {
    /// The first keys of a slot, at most `most`, in byte order.
    ///
    /// # Errors
    /// [`KeyspaceError`] if the tree cannot be read.
    pub fn keys_of_slot(&self, slot: u16, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError> {
        let mut keys = Vec::new();
        if most > 0 {
            self.visit_keys(slot, &[], |key| {
                keys.push(key.to_vec());
                if keys.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(keys)
    }

    /// Keys of all slots for which `held` is true, from the cursor on. Looks at about as many as the request
    /// asks for, including those that it does not want, and returns no more than about twice
    /// [`PAGE_BYTES_MAX`] bytes. A page has fewer keys if the pattern takes long.
    ///
    /// # Errors
    /// [`KeyspaceError`] if the tree cannot be read.
    pub fn scan(
        &self,
        now_ms: u64,
        request: &ScanRequest<'_>,
        held: impl Fn(u16) -> bool,
    ) -> Result<ScanPage, KeyspaceError> {
        let count = request.count.clamp(1, COUNT_MAX);
        let start = request.pattern.map(glob::plain_start).unwrap_or_default();
        let (first, mut from) = (request.cursor / HASHES, request.cursor % HASHES);
        let (mut keys, mut bytes, mut cost, mut steps) = (Vec::new(), 0, 0, 0);
        for slot in u16::try_from(first).unwrap_or(SLOTS)..SLOTS {
            let held = self.keys_in(slot) > 0 && held(slot);
            if held && (cost >= count || bytes >= PAGE_BYTES_MAX || steps >= STEPS_MAX) {
                let cursor = u64::from(slot) * HASHES + from;
                return Ok(ScanPage { cursor, keys });
            }
            if held {
                let parts = self.keys_that_begin(slot, &start, count)?.div_ceil(count).clamp(1, PARTS_MAX);
                let to = from + HASHES.div_ceil(parts);
                let part = self.scan_part(now_ms, slot, (from, to), &start, request)?;
                let look = if start.is_empty() { 0 } else { LOOK_KEYS.min(self.keys_in(slot)) };
                cost += part.looked_at.max(look);
                bytes += part.bytes;
                steps += part.steps;
                keys.extend(part.keys);
                if part.to < HASHES {
                    let cursor = u64::from(slot) * HASHES + part.to;
                    return Ok(ScanPage { cursor, keys });
                }
            }
            from = 0;
        }
        Ok(ScanPage { cursor: 0, keys })
    }

    /// How many keys of a slot have a prefix, if that is no more than `most`; otherwise how many keys the
    /// slot has.
    fn keys_that_begin(&self, slot: u16, start: &[u8], most: u64) -> Result<u64, KeyspaceError> {
        let mut count = 0;
        if !start.is_empty() {
            self.visit_keys(slot, start, |_| {
                count += 1;
                if count <= most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(if start.is_empty() || count > most { self.keys_in(slot) } else { count })
    }

    /// The wanted keys of a slot with hashes in a range; if keys are long, only up to a lower hash.
    fn scan_part(
        &self,
        now_ms: u64,
        slot: u16,
        (from, to): (u64, u64),
        start: &[u8],
        request: &ScanRequest<'_>,
    ) -> Result<ScanPart, KeyspaceError> {
        let (keys, bytes_max) = (Vec::new(), 2 * PAGE_BYTES_MAX);
        let mut part = ScanPart { keys, bytes: 0, looked_at: 0, steps: 0, to, bytes_max };
        self.visit_keys(slot, start, |key| {
            let is_all = from == 0 && part.to >= HASHES;
            if is_all || (from..part.to).contains(&hash(key)) {
                part.looked_at += 1;
                part.steps += request.pattern.map_or(0, |pattern| glob::steps_max(pattern, key.len()));
                if request.pattern.is_none_or(|pattern| glob::matches(pattern, key)) {
                    part.push(key);
                }
                if part.steps > STEPS_MAX {
                    part.halve(from);
                }
            }
            ControlFlow::Continue(())
        })?;
        if part.bytes > PAGE_BYTES_MAX {
            part.cut();
        }
        if request.kind.is_some() || self.state(slot)?.soonest_ms <= now_ms {
            let mut kept = Vec::new();
            for key in part.keys {
                if self.is_meant(now_ms, slot, &key, request.kind)? {
                    kept.push(key);
                }
            }
            part.keys = kept;
        }
        Ok(part)
    }

    /// Whether a key is of this kind and not expired.
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

    /// Visits the keys of a slot with this prefix, in byte order.
    fn visit_keys(
        &self,
        slot: u16,
        start: &[u8],
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), KeyspaceError> {
        let (from, to) = CellName::heads(slot, start);
        let range = (Bound::Included(&*from), Bound::Excluded(&*to));
        self.tree.scan(range, Direction::Forward, |name, _| visit(cell::key_of_head(name)))?;
        Ok(())
    }
}
