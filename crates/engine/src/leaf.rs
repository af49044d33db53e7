//! A leaf in memory: one allocation that holds the sorted records of a key range.
//!
//! ```text
//! header | fingerprints, 1 B each | offsets, 2 B | heads, 4 B | prefix | free … | records, growing down
//! ```
//!
//! Every key of a leaf starts with the leaf's *prefix*: the common prefix of the two separators around it.
//! A record holds the rest (the *suffix*); its *head* is the first four bytes of the suffix, big-endian, so
//! that one integer comparison orders most keys; its *fingerprint* is a hash of the whole key, so that a
//! point lookup touches one or two cache lines and then the one record (Tucana keeps a fixed-size prefix and
//! a hash for the same reason; there the prefix starts at the first byte of the key, where keys are most
//! alike).
//!
//! Invariant: slots are sorted by key; `fingerprints`, `offsets` and `heads` run in parallel.
//! Invariant: record offsets count in words of four bytes and lie within the heap.

mod change;
mod key_buffer;
mod latched;
mod nearer;
mod shared;
mod size;

pub(crate) use key_buffer::KeyBuffer;
pub(crate) use shared::SharedLeaf;

use crate::checksum::key_hash;
use crate::frames::Purpose;
use crate::meter::Counted;
use crate::node::HomeCell;
use crate::tree::HashedKey;
use crate::value::{Chain, Stored};
use std::sync::atomic::AtomicUsize;

/// Leaf sizes in words of 8 bytes: the regular one, which fills a frame; one for the sum of a regular leaf
/// and a delta; and two for long keys.
const CLASSES: [usize; 4] = [1017, 2041, 4096, LARGEST_WORDS];

/// Words of the largest size.
const LARGEST_WORDS: usize = 32768;

/// Cache lines of a leaf that a lookup reads before it knows the record: header, fingerprints, offsets.
pub(crate) const SLOT_LINES: usize = 5;

/// Cache lines of a leaf that a change reads before it knows the place: those of a lookup, and the heads.
pub(crate) const HEAD_LINES: usize = 9;

/// Bytes of slot arrays for each record.
const SLOT_BYTES: usize = 7;

const RECORD_HEADER: usize = 4;
const SUFFIX_BITS: u32 = 17;
const SUFFIX_MASK: u32 = (1 << SUFFIX_BITS) - 1;
const CHAIN_FLAG: u32 = 1 << 31;

/// A leaf; `T` is an array of words of one of the size classes, or the slice of it.
#[repr(C)]
pub(crate) struct LeafOf<T: ?Sized> {
    owners: AtomicUsize,
    pub(crate) birth: u64,
    word_count: u32,
    count: u16,
    capacity: u16,
    prefix_len: u32,
    heap_start: u32,
    garbage: u32,
    vacant_chains: u16,
    chains: Vec<Option<Chain>>,
    pub(crate) counted: Counted,
    pub(crate) home: HomeCell,
    words: T,
}

pub(crate) type Leaf = LeafOf<[u64]>;

/// A record during a rebuild: the key in two parts, its fingerprint, its value.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) key: [&'a [u8]; 2],
    pub(crate) fingerprint: u8,
    pub(crate) value: Stored<'a>,
}

/// The leaf has no room; it must be rebuilt or split.
pub(crate) struct Full;

impl<'a> Record<'a> {
    pub(crate) fn key_len(&self) -> usize {
        self.key[0].len() + self.key[1].len()
    }

    pub(crate) fn key_to_vec(self) -> Vec<u8> {
        self.key.concat()
    }

    /// Bytes that the record takes in a leaf with a prefix of this length.
    pub(crate) fn memory(&self, prefix_len: usize) -> usize {
        self.bytes_after(prefix_len) + SLOT_BYTES
    }

    fn bytes_after(&self, prefix_len: usize) -> usize {
        record_bytes(self.key_len() - prefix_len, &self.value)
    }
}

fn record_bytes(suffix: usize, value: &Stored<'_>) -> usize {
    let payload = match value {
        Stored::Inline(bytes) => bytes.len(),
        Stored::Chain(_) => 4,
    };
    (RECORD_HEADER + suffix + payload).next_multiple_of(4)
}

/// The first four bytes as an integer that orders like them; shorter strings are padded with zeros.
fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(first) => u32::from_be_bytes(*first),
        None => {
            let mut padded = [0; 4];
            padded[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(padded)
        }
    }
}

impl Leaf {
    /// Bytes of the largest size, slots included.
    pub(crate) const BYTES_MAX: usize = LARGEST_WORDS * 8;

    /// An empty leaf for keys that start with `prefix`.
    pub(crate) fn empty(prefix: &[u8], birth: u64) -> SharedLeaf {
        Self::build(prefix, birth, &[], 64, Purpose::Writing)
    }

    /// A leaf of the smallest size that holds `records`, which are sorted and start with `prefix`. Where
    /// there is room, it has slots for a few more records of about `spare` bytes.
    pub(crate) fn build(
        prefix: &[u8],
        birth: u64,
        records: &[Record<'_>],
        spare: usize,
        purpose: Purpose,
    ) -> SharedLeaf {
        let heap: usize = records.iter().map(|record| record.bytes_after(prefix.len())).sum();
        let average = if records.is_empty() { spare } else { (heap / records.len()).max(spare.min(heap)) };
        let fixed = heap + prefix.len().next_multiple_of(4);
        // Room for more records is welcome where it exists, but not worth a larger leaf.
        let need = fixed + records.len().next_multiple_of(16) * SLOT_BYTES;
        let words = CLASSES.into_iter().find(|words| words * 8 >= need).unwrap_or(LARGEST_WORDS);
        let fitting = (words * 8 - prefix.len()) / (average.max(8) + SLOT_BYTES);
        let most = (words * 8).saturating_sub(fixed) / SLOT_BYTES / 16 * 16;
        let least = (records.len() + usize::from(spare > 0)).next_multiple_of(16).min(most);
        let capacity = fitting.next_multiple_of(16).min(most).max(least).min(8192);
        let mut leaf = SharedLeaf::allocate(words, birth, purpose);
        if let Some(fresh) = leaf.get_mut() {
            fresh.capacity = capacity as u16;
            fresh.prefix_len = prefix.len() as u32;
            fresh.heap_start = (words * 8) as u32;
            let at = fresh.prefix_at();
            fresh.bytes_mut()[at..at + prefix.len()].copy_from_slice(prefix);
            for record in records {
                fresh.push(record);
            }
        }
        leaf
    }

    /// Whether a leaf of the largest size can hold `records`.
    pub(crate) fn can_hold(prefix: &[u8], records: &[Record<'_>]) -> bool {
        let heap: usize = records.iter().map(|record| record.bytes_after(prefix.len())).sum();
        let slots = records.len().next_multiple_of(16) * SLOT_BYTES;
        records.len() <= 8192 && heap + prefix.len().next_multiple_of(4) + slots <= Self::BYTES_MAX
    }

    /// An unshared copy without a home on disk.
    pub(crate) fn fork(&self, birth: u64) -> SharedLeaf {
        let mut leaf = SharedLeaf::allocate(self.words.len(), birth, Purpose::Writing);
        if let Some(fresh) = leaf.get_mut() {
            fresh.chains.clone_from(&self.chains);
            fresh.count = self.count;
            fresh.capacity = self.capacity;
            fresh.prefix_len = self.prefix_len;
            fresh.heap_start = self.heap_start;
            fresh.garbage = self.garbage;
            fresh.vacant_chains = self.vacant_chains;
            fresh.words.copy_from_slice(&self.words);
            fresh.counted.begin_beside(&self.counted);
        }
        leaf
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words)
    }

    fn fingerprints(&self) -> &[u8] {
        &self.bytes()[..self.len()]
    }

    fn offsets(&self) -> &[u16] {
        let capacity = self.capacity as usize;
        &bytemuck::cast_slice(&self.bytes()[capacity..3 * capacity])[..self.len()]
    }

    fn heads(&self) -> &[u32] {
        let capacity = self.capacity as usize;
        &bytemuck::cast_slice(&self.bytes()[3 * capacity..7 * capacity])[..self.len()]
    }

    fn prefix_at(&self) -> usize {
        self.capacity as usize * SLOT_BYTES
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.bytes()[self.prefix_at()..][..self.prefix_len as usize]
    }

    fn offset(&self, slot: usize) -> usize {
        self.offsets()[slot] as usize * 4
    }

    #[inline(always)]
    fn header(&self, slot: usize) -> (usize, u32) {
        let at = self.offset(slot);
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes()[at..at + 4]);
        (at, u32::from_le_bytes(word))
    }

    #[inline]
    pub(crate) fn suffix(&self, slot: usize) -> &[u8] {
        let (at, header) = self.header(slot);
        &self.bytes()[at + RECORD_HEADER..][..(header & SUFFIX_MASK) as usize]
    }

    pub(crate) fn fingerprint(&self, slot: usize) -> u8 {
        self.fingerprints()[slot]
    }

    #[inline(always)]
    pub(crate) fn value(&self, slot: usize) -> Stored<'_> {
        let (at, header) = self.header(slot);
        let start = at + RECORD_HEADER + (header & SUFFIX_MASK) as usize;
        if header & CHAIN_FLAG == 0 {
            return Stored::Inline(&self.bytes()[start..][..(header >> SUFFIX_BITS) as usize]);
        }
        Stored::Chain(self.chain_at(start))
    }

    fn chain_at(&self, at: usize) -> &Chain {
        match &self.chains[self.chain_index(at)] {
            Some(chain) => chain,
            None => unreachable!("a record names a chain that was removed"),
        }
    }

    fn chain_index(&self, at: usize) -> usize {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes()[at..at + 4]);
        u32::from_le_bytes(word) as usize
    }

    pub(crate) fn record(&self, slot: usize) -> Record<'_> {
        Record {
            key: [self.prefix(), self.suffix(slot)],
            fingerprint: self.fingerprint(slot),
            value: self.value(slot),
        }
    }

    pub(crate) fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.chains.iter().flatten()
    }

    /// The slot of `key`, by fingerprint.
    pub(crate) fn find(&self, key: &[u8], fingerprint: u8) -> Option<usize> {
        let suffix = key.get(self.prefix_len as usize..)?;
        let all = self.fingerprints();
        for (block, chunk) in all.chunks(16).enumerate() {
            let mut candidates = matches(chunk, fingerprint);
            while candidates != 0 {
                let slot = block * 16 + candidates.trailing_zeros() as usize;
                // Where its value begins is known only when its first line has arrived: fetch all of them at
                // once.
                self.prefetch_record(slot);
                if self.suffix(slot) == suffix {
                    return Some(slot);
                }
                candidates &= candidates - 1;
            }
        }
        None
    }

    /// The value of `key`.
    pub(crate) fn value_of(&self, key: &[u8]) -> Option<Stored<'_>> {
        self.find(key, key_hash(key)).map(|slot| self.value(slot))
    }

    /// The first slot whose fingerprint fits: where the record of a point lookup most likely lies.
    pub(crate) fn likely_slot(&self, fingerprint: u8) -> Option<usize> {
        self.fingerprints().iter().position(|&candidate| candidate == fingerprint)
    }

    /// The slot of `key`, or where it belongs; the hint of the key's way is tried first. The key lies between
    /// the separators around the leaf, and therefore starts with the prefix.
    pub(crate) fn locate(&self, key: &HashedKey<'_>) -> Result<usize, usize> {
        debug_assert!(key.bytes.starts_with(self.prefix()));
        let suffix = &key.bytes[self.prefix_len as usize..];
        let head = head_of(suffix);
        let heads = self.heads();
        let is_below = |slot: usize| heads[slot] < head;
        let guess = key.way.slot();
        let guess_fits = guess <= heads.len()
            && (guess == 0 || is_below(guess - 1))
            && (guess == heads.len() || !is_below(guess));
        let first = if guess_fits { guess } else { heads_below(heads, head) };
        let alike = heads[first..].iter().take_while(|&&other| other == head).count();
        // Each record lies elsewhere in memory: of those with the same head, look first at the one whose
        // fingerprint fits.
        let is_key = |&slot: &usize| self.fingerprint(slot) == key.fingerprint && self.suffix(slot) == suffix;
        if let Some(slot) = (first..first + alike).find(is_key) {
            return Ok(slot);
        }
        let (mut low, mut high) = (first, first + alike);
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix(middle) < suffix {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Err(low)
    }

    /// The first slot whose key is at least `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return if key < prefix { 0 } else { self.len() };
        };
        let head = head_of(suffix);
        let heads = self.heads();
        let mut slot = heads_below(heads, head);
        while slot < heads.len() && heads[slot] == head && self.suffix(slot) < suffix {
            slot += 1;
        }
        slot
    }

    /// Whether the leaf belongs between these separators: its prefix is shared by both, and none of its keys
    /// lies beyond them.
    pub(crate) fn suits(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> bool {
        let prefix = self.prefix();
        let is_shared = match (low, high) {
            (Some(low), Some(high)) => low.starts_with(prefix) && high.starts_with(prefix),
            _ => prefix.is_empty(),
        };
        let Some(last) = self.len().checked_sub(1) else { return is_shared };
        is_shared
            && low.is_none_or(|low| self.suffix(0) >= &low[prefix.len()..])
            && high.is_none_or(|high| self.suffix(last) < &high[prefix.len()..])
    }

    /// Whether the key of a slot is `key`.
    pub(crate) fn is_key(&self, slot: usize, key: &[u8]) -> bool {
        slot < self.len() && key.strip_prefix(self.prefix()) == Some(self.suffix(slot))
    }
}

/// How many of the sorted `heads` are below `head`.
fn heads_below(heads: &[u32], head: u32) -> usize {
    let (mut low, mut left) = (0, heads.len());
    while left > 1 {
        let half = left / 2;
        low += usize::from(heads[low + half - 1] < head) * half;
        left -= half;
    }
    low + usize::from(heads.get(low).is_some_and(|&last| last < head))
}

/// Bits of the bytes of `chunk` (at most 16) that equal `wanted`.
fn matches(chunk: &[u8], wanted: u8) -> u32 {
    match <&[u8; 16]>::try_from(chunk) {
        Ok(block) => block
            .iter()
            .enumerate()
            .fold(0, |bits, (index, &byte)| bits | (u32::from(byte == wanted) << index)),
        Err(_) => chunk
            .iter()
            .enumerate()
            .fold(0, |bits, (index, &byte)| bits | (u32::from(byte == wanted) << index)),
    }
}
