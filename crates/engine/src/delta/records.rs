//! The records of a delta: puts into one leaf, one behind the other, in memory and on disk.
//!
//! ```text
//! page of a delta:   3 | record…   record: key | value, both length-prefixed
//! ```
//!
//! Invariant: keys ascend, and each occurs once.

use crate::backing::{Backing, Reading};
use crate::checksum::{checksum, key_hash};
use crate::codec::{Decoder, Encode, Malformed};
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record, SharedLeaf};
use crate::node::PageRef;
use crate::page;
use crate::value::{INLINE_BELOW, Stored};
use crate::visit::Range;
use crate::{Damage, EngineError, KEY_MAX};
use std::cmp::Ordering as Order;
use std::ops::RangeBounds;

/// First byte of the page of a delta; pages of nodes have other first bytes.
pub(crate) const DELTA: u8 = 3;

/// Most bytes that a record takes in a delta.
pub(crate) fn record_bytes(key: &[u8], value: &[u8]) -> usize {
    record_len(key.len(), value.len())
}

/// As [`record_bytes`], of a key and a value of these lengths.
pub(crate) fn record_len(key_len: usize, value_len: usize) -> usize {
    key_len + value_len + 6
}

/// The bits of a key in [`Records::filter`].
pub(crate) fn filter_bits(key: &[u8]) -> u64 {
    let hash = checksum(0, key);
    1 << (hash % 64) | 1 << (hash / 64 % 64)
}

/// Records in key order, one behind the other: length of the key, key, length of the value, value.
#[derive(Clone, Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = Decoder::new(&self.bytes);
        // Bytes that were encoded here always decode.
        std::iter::from_fn(move || Some((rest.bytes().ok()?, rest.bytes().ok()?)))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.iter()
            .take_while(|(other, _)| *other <= key)
            .find(|(other, _)| *other == key)
            .map(|(_, value)| value)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        let mut rest = Decoder::new(&self.bytes);
        let (mut start, mut end) = (self.bytes.len(), self.bytes.len());
        loop {
            let at = rest.position();
            let (Ok(other), Ok(_)) = (rest.bytes(), rest.bytes()) else { break };
            match other.cmp(key) {
                Order::Less => {}
                Order::Equal => {
                    (start, end) = (at, rest.position());
                    break;
                }
                Order::Greater => {
                    (start, end) = (at, at);
                    break;
                }
            }
        }
        let mut record = Vec::with_capacity(record_bytes(key, value));
        record.put_bytes(key);
        record.put_bytes(value);
        let more = record.len().saturating_sub(end - start);
        if self.bytes.capacity() - self.bytes.len() < more {
            // In small steps: there may be as many deltas as leaves.
            self.bytes.reserve_exact(more + self.bytes.len() / 8);
        }
        self.bytes.splice(start..end, record);
    }

    fn of<'r>(records: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> Self {
        let mut bytes = Vec::new();
        for (key, value) in records {
            bytes.put_bytes(key);
            bytes.put_bytes(value);
        }
        Self { bytes }
    }

    /// The records outside of a range.
    pub(crate) fn without(&self, range: Range<'_>) -> Self {
        Self::of(self.iter().filter(|(key, _)| !range.contains(key)))
    }

    /// The records below a key, and the others.
    pub(crate) fn parted_at(&self, at: &[u8]) -> [Self; 2] {
        [
            Self::of(self.iter().filter(|(key, _)| *key < at)),
            Self::of(self.iter().filter(|(key, _)| *key >= at)),
        ]
    }

    /// The key of the first record in the second half of the bytes; none where there is no such record.
    pub(crate) fn middle(&self) -> Option<&[u8]> {
        let mut rest = Decoder::new(&self.bytes);
        while rest.position() < self.bytes.len() / 2 {
            rest.bytes().and_then(|_| rest.bytes()).ok()?;
        }
        rest.bytes().ok()
    }

    /// A leaf for inspection with all their keys and empty values. Values beside a lost page may be longer
    /// than a leaf takes.
    pub(crate) fn to_leaf_of_keys(&self) -> SharedLeaf {
        let record = |(key, _)| {
            let fingerprint = key_hash(key);
            Record { key: [key, &[]], fingerprint, value: Stored::Inline(&[]) }
        };
        let records: Vec<Record<'_>> = self.iter().map(record).collect();
        Leaf::build(&[], 0, &records, 0, Purpose::Reading)
    }

    /// Becomes the records of a page that was just encoded.
    pub(crate) fn take_over(&mut self, page: &[u8]) {
        let bytes = page.get(1..).unwrap_or_default();
        self.bytes.clear();
        self.bytes.reserve_exact(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that they take in memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Puts all of `newer` over these records.
    pub(crate) fn put_all(&mut self, newer: &Self) {
        let mut bytes = Vec::with_capacity(self.len() + newer.len());
        let (mut below, mut above) = (self.iter().peekable(), newer.iter().peekable());
        let mut put = |(key, value): (&[u8], &[u8])| {
            bytes.put_bytes(key);
            bytes.put_bytes(value);
        };
        while let (Some((old, _)), Some((new, _))) = (below.peek(), above.peek()) {
            let order = old.cmp(new);
            if order == Order::Less {
                below.next().into_iter().for_each(&mut put);
                continue;
            }
            if order == Order::Equal {
                below.next();
            }
            above.next().into_iter().for_each(&mut put);
        }
        below.chain(above).for_each(&mut put);
        self.bytes = bytes;
    }

    /// A word with the bits of all keys: a key whose bits are not all set is not among them (a Bloom filter
    /// of 64 bits, two for each key: with ten keys in it, one absent key in thirteen seems to be present).
    pub(crate) fn filter(&self) -> u64 {
        self.iter().fold(0, |bits, (key, _)| bits | filter_bits(key))
    }

    /// Reads and verifies the records on a page of their own.
    pub(crate) fn read(home: &PageRef, reading: Reading, backing: &Backing) -> Result<Self, EngineError> {
        let bytes = page::read_bytes(home, reading, backing)?;
        Self::decode(&bytes).map_err(|Malformed| backing.corrupt(home.offset, Damage::PageContent))
    }

    /// Appends their page.
    pub(crate) fn encode(&self, page: &mut Vec<u8>) {
        page.put_u8(DELTA);
        page.extend_from_slice(&self.bytes);
    }

    /// Decodes the records of a page. The whole page is checked, so that later code need not be careful.
    pub(crate) fn decode(page: &[u8]) -> Result<Self, Malformed> {
        let Some((&DELTA, bytes)) = page.split_first() else { return Err(Malformed) };
        let mut rest = Decoder::new(bytes);
        let mut last: Option<&[u8]> = None;
        while !rest.is_at_end() {
            let (key, value) = (rest.bytes()?, rest.bytes()?);
            let is_fit = (1..=KEY_MAX).contains(&key.len()) && value.len() < INLINE_BELOW;
            if !is_fit || last.is_some_and(|last| last >= key) {
                return Err(Malformed);
            }
            last = Some(key);
        }
        Ok(Self { bytes: bytes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn records_are_those_that_were_put_last_in_the_order_of_their_keys() {
        let mut records = Records::default();
        let mut model = BTreeMap::new();
        for step in 0..500u32 {
            let (number, len) = (step.wrapping_mul(7919) % 97, step % 41);
            let (key, value) = (format!("key {number}"), vec![step as u8; len as usize]);
            records.put(key.as_bytes(), &value);
            model.insert(key.into_bytes(), value);
            assert!(records.iter().eq(model.iter().map(|(key, value)| (&**key, &**value))), "step {step}");
        }
        for number in 0..200 {
            let key = format!("key {number}").into_bytes();
            assert_eq!(records.get(&key), model.get(&key).map(Vec::as_slice), "{number}");
        }
    }

    fn some(seed: u32, count: u32) -> (Records, BTreeMap<Vec<u8>, Vec<u8>>) {
        let (mut records, mut model) = (Records::default(), BTreeMap::new());
        for step in 0..count {
            let number = (step + seed).wrapping_mul(7919) % 89;
            let (key, value) = (format!("key {number}").into_bytes(), vec![seed as u8; (step % 41) as usize]);
            records.put(&key, &value);
            model.insert(key, value);
        }
        (records, model)
    }

    #[test]
    fn what_is_put_over_others_is_what_counts() {
        for (below, above) in [(0, 0), (0, 9), (9, 0), (1, 1), (30, 40), (70, 70), (88, 3)] {
            let ((mut records, mut model), (newer, newest)) = (some(1, below), some(2, above));
            records.put_all(&newer);
            model.extend(newest);
            assert!(
                records.iter().eq(model.iter().map(|(key, value)| (&**key, &**value))),
                "{below} {above}"
            );
        }
    }

    #[test]
    fn a_page_comes_back_as_it_was_and_a_wrong_one_is_refused() {
        let (records, model) = some(3, 40);
        let mut page = Vec::new();
        records.encode(&mut page);
        let again = Records::decode(&page).unwrap_or_default();
        assert!(again.iter().eq(model.iter().map(|(key, value)| (&**key, &**value))));
        assert!(Records::decode(&[]).is_err() && Records::decode(&[1]).is_err());
        assert!(Records::decode(&page[..page.len() - 1]).is_err(), "cut short");
        let encode = |pairs: &[(&[u8], &[u8])]| {
            let mut bytes = vec![DELTA];
            pairs.iter().for_each(|(key, value)| {
                bytes.put_bytes(key);
                bytes.put_bytes(value);
            });
            bytes
        };
        assert!(Records::decode(&encode(&[(b"b", b""), (b"a", b"")])).is_err(), "out of order");
        assert!(Records::decode(&encode(&[(b"a", b""), (b"a", b"")])).is_err(), "twice");
        assert!(Records::decode(&encode(&[(b"", b"")])).is_err(), "no key");
        assert!(Records::decode(&encode(&[(b"a", &[0; INLINE_BELOW])])).is_err(), "a long value");
    }
}
