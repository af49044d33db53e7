//! Names of cells in the tree: slot, kind, key and field.
//!
//! ```text
//! slot 01 key                    head: a string, or how many fields a hash has; sort key 00 of the contract
//! slot 02 escaped-key field      field of a hash; sort key 01 and the field
//! slot 03 deadline key           empty: finds keys by their deadlines
//! slot 04 client                 session: writes of a client that are not done again
//! slot 05 date client            empty: finds sessions by when they were in use
//! ff ff slot                     state of the slot: what was applied, when, how many keys there are
//! ```
//!
//! Heads are adjacent, so that keys are counted and listed without passing over fields. Numbers are
//! big-endian. In an escaped key each zero byte is followed by `ff`, and two zero bytes end it. So names sort
//! by key and then by field, and no escaped key is a prefix of another.
//!
//! Invariant: names of two slots never interleave, and those of a slot never mix with those of states.

use std::ops::Deref;

pub(crate) const HEAD: u8 = 1;
pub(crate) const FIELD: u8 = 2;
pub(crate) const DEADLINE: u8 = 3;
pub(crate) const SESSION: u8 = 4;
pub(crate) const SESSION_USE: u8 = 5;

/// The prefix of the names of states: no slot has this number.
const STATES: [u8; 2] = [0xff, 0xff];

/// Names up to this length are stored inline.
const SHORT: usize = 120;

/// The name of a cell.
pub(crate) struct CellName {
    short: [u8; SHORT],
    len: usize,
    long: Vec<u8>,
}

impl CellName {
    fn new() -> Self {
        Self { short: [0; SHORT], len: 0, long: Vec::new() }
    }

    /// The prefix of all names of a kind in a slot.
    pub(crate) fn kind(slot: u16, kind: u8) -> Self {
        let mut name = Self::new();
        name.push(&slot.to_be_bytes());
        name.push(&[kind]);
        name
    }

    pub(crate) fn head(slot: u16, key: &[u8]) -> Self {
        let mut name = Self::kind(slot, HEAD);
        name.push(key);
        name
    }

    /// The range of the heads of a slot whose keys have a prefix: the first name, and the end, exclusive.
    pub(crate) fn heads(slot: u16, start: &[u8]) -> (Self, Self) {
        let from = Self::head(slot, start);
        // There is one: no kind has the highest byte.
        let same = from.iter().rposition(|&byte| byte != u8::MAX).unwrap_or_default();
        let mut to = Self::new();
        to.push(&from[..=same]);
        to.replace_last(from[same] + 1);
        (from, to)
    }

    /// The prefix of the names of all fields of a key.
    pub(crate) fn fields(slot: u16, key: &[u8]) -> Self {
        let mut name = Self::kind(slot, FIELD);
        let mut rest = key;
        while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
            name.push(&rest[..=zero]);
            name.push(&[0xff]);
            rest = &rest[zero + 1..];
        }
        name.push(rest);
        name.push(&[0, 0]);
        name
    }

    /// The end of the names of a key's fields, exclusive.
    pub(crate) fn fields_end(slot: u16, key: &[u8]) -> Self {
        let mut name = Self::fields(slot, key);
        name.replace_last(1);
        name
    }

    pub(crate) fn field(slot: u16, key: &[u8], field: &[u8]) -> Self {
        let mut name = Self::fields(slot, key);
        name.push(field);
        name
    }

    pub(crate) fn deadline(slot: u16, deadline_ms: u64, key: &[u8]) -> Self {
        let mut name = Self::kind(slot, DEADLINE);
        name.push(&deadline_ms.to_be_bytes());
        name.push(key);
        name
    }

    pub(crate) fn session(slot: u16, client: u128) -> Self {
        let mut name = Self::kind(slot, SESSION);
        name.push(&client.to_be_bytes());
        name
    }

    pub(crate) fn session_use(slot: u16, used_ms: u64, client: u128) -> Self {
        let mut name = Self::kind(slot, SESSION_USE);
        name.push(&used_ms.to_be_bytes());
        name.push(&client.to_be_bytes());
        name
    }

    pub(crate) fn state(slot: u16) -> Self {
        let mut name = Self::new();
        name.push(&STATES);
        name.push(&slot.to_be_bytes());
        name
    }

    /// Adds bytes at the end.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            if let Some(room) = self.short.get_mut(self.len..self.len + bytes.len()) {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.long.reserve(self.len + bytes.len());
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    fn replace_last(&mut self, byte: u8) {
        match self.long.last_mut() {
            Some(last) => *last = byte,
            None => self.short[self.len - 1] = byte,
        }
    }
}

impl Deref for CellName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

/// Appends the name of a head to a buffer of names.
pub(crate) fn push_head(names: &mut Vec<u8>, slot: u16, key: &[u8]) {
    names.extend_from_slice(&slot.to_be_bytes());
    names.push(HEAD);
    names.extend_from_slice(key);
}

/// The key in the name of a head.
pub(crate) fn key_of_head(name: &[u8]) -> &[u8] {
    name.get(3..).unwrap_or_default()
}

/// The deadline and the key in the name of a deadline.
pub(crate) fn parts_of_deadline(name: &[u8]) -> Option<(u64, &[u8])> {
    let (deadline, key) = name.get(3..)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*deadline), key))
}

/// When a session was in use, and its client, in the name of a session's use.
pub(crate) fn parts_of_session_use(name: &[u8]) -> Option<(u64, u128)> {
    let (used_ms, client) = name.get(3..)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*used_ms), u128::from_be_bytes(client.try_into().ok()?)))
}

/// The range of the names of all cells of a slot except its state.
pub(crate) fn all_of(slot: u16) -> (CellName, CellName) {
    (CellName::kind(slot, 0), CellName::kind(slot, u8::MAX))
}

/// Whether this is the name, without the slot's number, of a cell that moves along with its slot.
#[must_use]
pub fn is_moved(name: &[u8]) -> bool {
    matches!(name.first(), Some(&(HEAD | FIELD | DEADLINE | SESSION | SESSION_USE)))
}

/// The prefix of the names of states.
pub(crate) fn states() -> &'static [u8] {
    &STATES
}

pub(crate) fn slot_of_state(name: &[u8]) -> Option<u16> {
    let number = name.get(STATES.len()..)?.first_chunk()?;
    Some(u16::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_keys_and_fields_and_no_key_begins_another() {
        let parts: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"a", b"a\0", b"a\0b", b"\xff"];
        let mut pairs = Vec::new();
        for key in parts {
            for field in parts {
                pairs.push((key, field));
            }
        }
        pairs.sort_unstable();
        let names: Vec<Vec<u8>> =
            pairs.iter().map(|(key, field)| CellName::field(5, key, field).to_vec()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:02x?}");
        for (name, (key, _)) in names.iter().zip(&pairs) {
            for other in parts {
                let (from, to) = (CellName::fields(5, other), CellName::fields_end(5, other));
                let is_inside = name.as_slice() >= &*from && name.as_slice() < &*to;
                assert_eq!(is_inside, *key == other, "{key:02x?} {other:02x?}");
            }
        }
    }

    #[test]
    fn heads_that_begin_so_lie_between_two_names_and_no_others() {
        let parts: [&[u8]; 10] =
            [b"", b"\0", b"a", b"a\0", b"a\xff", b"a\xff\xffz", b"b", b"\xff", b"\xff\xff", b"\xff\xfe"];
        for slot in [0, 255, 16383] {
            for start in parts {
                let (from, to) = CellName::heads(slot, start);
                for key in parts {
                    let name = CellName::head(slot, key);
                    let is_inside = *name >= *from && *name < *to;
                    assert_eq!(is_inside, key.starts_with(start), "{slot} {start:02x?} {key:02x?}");
                }
            }
            let (_, behind) = CellName::heads(slot, b"");
            assert_eq!(*behind, *CellName::kind(slot, HEAD + 1));
        }
    }

    #[test]
    fn long_names_are_as_short_ones() {
        for len in [0, 1, 100, SHORT - 3, SHORT - 2, 5000] {
            let key = vec![0; len];
            assert_eq!(CellName::head(7, &key)[3..], key);
            let mut pushed = vec![9];
            push_head(&mut pushed, 7, &key);
            assert_eq!(pushed[1..], *CellName::head(7, &key));
            assert_eq!(CellName::deadline(7, 12, &key)[11..], key);
            assert_eq!(CellName::fields(7, &key).len(), 3 + 2 * len + 2);
            assert!(*CellName::fields_end(7, &key) > *CellName::field(7, &key, &[0xff; 200]));
        }
        assert_eq!(slot_of_state(&CellName::state(16383)), Some(16383));
    }
}
