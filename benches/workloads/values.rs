//! Values that verify themselves: every byte follows from the key and the version that was written.
//!
//! Invariant: a value of another key or version, or one that is truncated, shifted or has a flipped bit, is
//! distinguished from the right one, except for a version that was also written to the same key.

use super::keys::{KEY_BYTES, Key};

const WORD_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const VERSION_STEP: u64 = 0xd1b5_4a32_d192_ed03;
const WORD_BYTES: usize = 8;

/// The seed of a key's values: cheap, because a scan pays for it at every entry, for every engine.
#[inline]
fn seed_of_key(key: &[u8]) -> u64 {
    let word = |at: usize| {
        let mut bytes = [0; WORD_BYTES];
        bytes.copy_from_slice(&key[at..at + WORD_BYTES]);
        u64::from_le_bytes(bytes)
    };
    let mixed =
        word(0).rotate_left(23) ^ word(8).wrapping_mul(WORD_STEP) ^ word(16).wrapping_mul(VERSION_STEP);
    mixed ^ (mixed >> 29)
}

#[inline]
fn first_word(key: &[u8], version: u64) -> u64 {
    seed_of_key(key).wrapping_add(version.wrapping_mul(VERSION_STEP))
}

/// Fills `target`, which has eight bytes or more, with the value of `key` at `version`.
#[inline]
pub fn fill_value(key: &Key, version: u64, target: &mut [u8]) {
    let mut word = first_word(&key.0, version);
    let value_bytes = target.len();
    for chunk in target.chunks_exact_mut(WORD_BYTES) {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(WORD_STEP);
    }
    if let Some(last) = target.last_chunk_mut() {
        *last = last_bytes(word, value_bytes).to_le_bytes();
    }
}

/// Whether every byte follows from the first word. Needs at least one word.
#[inline]
fn continues_from(first: u64, value: &[u8]) -> bool {
    let mut difference = 0;
    let mut expected = first;
    for chunk in value.chunks_exact(WORD_BYTES) {
        let mut bytes = [0; WORD_BYTES];
        bytes.copy_from_slice(chunk);
        difference |= u64::from_le_bytes(bytes) ^ expected;
        expected = expected.wrapping_add(WORD_STEP);
    }
    let Some(&last) = value.last_chunk() else { return false };
    difference == 0 && u64::from_le_bytes(last) == last_bytes(expected, value.len())
}

/// The last eight bytes of a value: the end of the last whole word and the beginning of the one after it.
///
/// Comparing them at once saves a call for the few bytes that are not a whole word.
#[inline]
fn last_bytes(word_after: u64, value_bytes: usize) -> u64 {
    let last_word = word_after.wrapping_sub(WORD_STEP);
    let bits = 8 * (value_bytes % WORD_BYTES) as u32;
    if bits == 0 { last_word } else { last_word >> bits | word_after << (64 - bits) }
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut round = 0;
    while round < 6 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found
}

const VERSION_STEP_INVERSE: u64 = inverse(VERSION_STEP);

/// The versions that another writer of the same records writes: every second one of a range.
#[derive(Clone, Copy, Debug, Default)]
pub struct Others {
    /// The first.
    pub from: u64,
    /// The first beyond the range.
    pub until: u64,
    /// 0 if they are even, 1 if they are odd.
    pub parity: u64,
}

impl Others {
    /// There is no other writer.
    pub const NONE: Self = Self { from: 0, until: 0, parity: 0 };

    #[inline]
    fn have(self, version: u64) -> bool {
        (self.from..self.until).contains(&version) && version & 1 == self.parity
    }
}

/// Counts the values that were read and those that were wrong.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    /// Length that every value must have.
    pub value_bytes: usize,
    /// Values checked.
    pub checked: u64,
    /// Values absent, of a wrong length, of another key or version, or damaged; keys out of order.
    pub wrong: u64,
    /// A message about the first wrong value.
    pub first_wrong: Option<String>,
}

impl Verifier {
    /// A verifier of values of this length.
    pub fn new(value_bytes: usize) -> Self {
        Self { value_bytes, ..Self::default() }
    }

    /// Checks that `value` is the one of `key` at exactly `version`.
    #[inline]
    pub fn check(&mut self, key: &[u8], version: u64, value: Option<&[u8]>) {
        self.checked += 1;
        match value {
            Some(value)
                if value.len() == self.value_bytes
                    && key.len() == KEY_BYTES
                    && continues_from(first_word(key, version), value) => {}
            other => self.report(key, &format!("version {version} expected"), other),
        }
    }

    /// Checks that `value` is the one of `key` at some version below `versions`.
    #[inline]
    pub fn check_any(&mut self, key: &[u8], versions: u64, value: Option<&[u8]>) {
        self.checked += 1;
        if self.version_of(key, value).is_some_and(|version| version < versions) {
            return;
        }
        self.report(key, &format!("a version below {versions} expected"), value);
    }

    /// Checks that `value` is the one of `key` at `version`, or at a version that the other writer may have
    /// written since.
    #[inline]
    pub fn check_beside(&mut self, key: &[u8], version: u64, others: Others, value: Option<&[u8]>) {
        self.checked += 1;
        if self.version_of(key, value).is_some_and(|found| found == version || others.have(found)) {
            return;
        }
        self.report(key, &format!("version {version} expected, or of {others:?}"), value);
    }

    /// Like [`Self::check_any`], but returns the version; 0 if the value is wrong.
    pub fn find(&mut self, key: &[u8], versions: u64, value: Option<&[u8]>) -> u64 {
        self.check_any(key, versions, value);
        self.version_of(key, value).filter(|version| *version < versions).unwrap_or(0)
    }

    /// Adds another verifier's counts.
    pub fn join(&mut self, other: Self) {
        self.checked += other.checked;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }

    /// The version of a value, if it belongs to this key and is intact.
    #[inline]
    fn version_of(&self, key: &[u8], value: Option<&[u8]>) -> Option<u64> {
        let value = value.filter(|value| value.len() == self.value_bytes && key.len() == KEY_BYTES)?;
        let first = u64::from_le_bytes(*value.first_chunk()?);
        let version = first.wrapping_sub(seed_of_key(key)).wrapping_mul(VERSION_STEP_INVERSE);
        continues_from(first, value).then_some(version)
    }

    /// Records an error that is not about a single value.
    #[cold]
    pub fn note(&mut self, what: String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert(what);
    }

    #[cold]
    fn report(&mut self, key: &[u8], expected: &str, value: Option<&[u8]>) {
        let found = match value {
            None => "nothing".to_owned(),
            Some(value) => {
                format!("{} bytes starting {:02x?}", value.len(), &value[..value.len().min(16)])
            }
        };
        self.note(format!("key {}: {expected}, found {found}", key.escape_ascii()));
    }
}

/// Records on their way into a store; the allocation is reused for the next batch.
pub struct Batch {
    keys: Vec<Key>,
    values: Vec<u8>,
    value_bytes: usize,
}

impl Batch {
    /// An empty batch of values of this length.
    pub fn new(value_bytes: usize) -> Self {
        Self { keys: Vec::new(), values: Vec::new(), value_bytes }
    }

    /// Replaces the records by those of `counters`, at version 0.
    pub fn refill(&mut self, counters: std::ops::Range<u64>) {
        self.keys.clear();
        self.keys.extend(counters.map(Key::of_counter));
        self.values.resize(self.keys.len() * self.value_bytes, 0);
        for (key, value) in self.keys.iter().zip(self.values.chunks_exact_mut(self.value_bytes)) {
            fill_value(key, 0, value);
        }
    }

    /// Keys and values in the order of insertion.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.keys.iter().map(AsRef::as_ref).zip(self.values.chunks_exact(self.value_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: &Key, version: u64, len: usize) -> Vec<u8> {
        let mut value = vec![0; len];
        fill_value(key, version, &mut value);
        value
    }

    #[test]
    fn a_value_is_a_run_of_words_and_the_start_of_one_more() {
        let key = Key::of_counter(1);
        let long = value(&key, 2, 104);
        for len in 8..=104 {
            assert_eq!(value(&key, 2, len), long[..len], "length {len}");
        }
    }

    #[test]
    fn right_values_pass_at_every_length() {
        for len in [8, 9, 15, 99, 100, 1000] {
            let mut verifier = Verifier::new(len);
            for version in [0, 1, 77] {
                let key = Key::of_counter(version + 3);
                verifier.check(&key.0, version, Some(&value(&key, version, len)));
                verifier.check_any(&key.0, 78, Some(&value(&key, version, len)));
            }
            assert_eq!((verifier.checked, verifier.wrong), (6, 0), "{:?}", verifier.first_wrong);
        }
    }

    #[test]
    fn every_planted_wrong_value_is_detected() {
        let key = Key::of_counter(42);
        let right = value(&key, 5, 100);
        let mut planted = vec![
            value(&Key::of_counter(43), 5, 100),
            value(&key, 9, 100),
            right[..99].to_vec(),
            [&right[8..], &right[..8]].concat(),
            vec![0; 100],
            Vec::new(),
        ];
        for bit in 0..800 {
            let mut flipped = right.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            planted.push(flipped);
        }
        for (number, wrong) in planted.iter().enumerate() {
            let mut verifier = Verifier::new(100);
            verifier.check(&key.0, 5, Some(wrong));
            verifier.check_any(&key.0, 8, Some(wrong));
            assert_eq!(verifier.wrong, 2, "planted value {number} passed");
        }
        let mut verifier = Verifier::new(100);
        verifier.check(&key.0, 5, None);
        verifier.check_any(&key.0, 6, None);
        assert_eq!(verifier.wrong, 2);
        assert!(verifier.first_wrong.is_some_and(|message| message.contains("user")));
    }

    #[test]
    fn beside_another_writer_only_its_versions_pass_as_well() {
        let key = Key::of_counter(3);
        let others = Others { from: 10, until: 20, parity: 1 };
        let passes = |version, others| {
            let mut verifier = Verifier::new(100);
            verifier.check_beside(&key.0, 4, others, Some(&value(&key, version, 100)));
            verifier.wrong == 0
        };
        assert!(passes(4, Others::NONE) && passes(4, others) && passes(11, others) && passes(19, others));
        assert!(!passes(11, Others::NONE) && !passes(2, others) && !passes(0, others), "stale");
        assert!(!passes(12, others) && !passes(21, others) && !passes(9, others), "nobody wrote that");
        let mut verifier = Verifier::new(100);
        assert_eq!(verifier.find(&key.0, 20, Some(&value(&key, 11, 100))), 11);
        assert_eq!((verifier.find(&key.0, 20, None), verifier.wrong), (0, 1));
    }

    #[test]
    fn batches_hold_the_records_of_their_counters() {
        let mut batch = Batch::new(100);
        batch.refill(0..10);
        batch.refill(10..13);
        let mut verifier = Verifier::new(100);
        for ((key, value), counter) in batch.records().zip(10..) {
            assert_eq!(key, Key::of_counter(counter).0);
            verifier.check(key, 0, Some(value));
        }
        assert_eq!((verifier.checked, verifier.wrong), (3, 0));
    }
}
