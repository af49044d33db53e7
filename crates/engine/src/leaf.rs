//! A leaf in memory: one allocation that holds the sorted records of a key range.
//!
//! ```text
//! header | fingerprints, 1 B each | offsets, 2 B | heads, 4 B | prefix | free … | records, growing down
//! ```
//!
//! Every key of a leaf starts with the leaf's *prefix*: the common prefix of the two separators around it.
//! A record holds the rest (the *suffix*); its *head* is the first four bytes of the suffix, big-endian, so
//! that one integer comparison orders most keys; its *fingerprint* is a hash of the whole key, so that a
//! point lookup touches one or two lines and then the one record (Tucana keeps a fixed-size prefix and a
//! hash for the same reason; there the prefix starts at the key's first byte, where keys are most alike).
//!
//! Invariant: slots are sorted by key; `fingerprints`, `offsets` and `heads` run in parallel.
//! Invariant: record offsets count in words of four bytes and lie within the heap.

use crate::node::HomeCell;
use crate::prefetch::prefetch;
use crate::value::{Chain, Stored};
use std::cmp::Ordering;
use std::sync::Arc;

/// Words (of 8 bytes) of the leaf sizes: regular, and for long keys.
const CLASSES: [usize; 3] = [1024, 4096, 32768];

/// Bytes of slot arrays for each record.
const SLOT_BYTES: usize = 7;

const RECORD_HEADER: usize = 4;
const SUFFIX_BITS: u32 = 17;
const SUFFIX_MASK: u32 = (1 << SUFFIX_BITS) - 1;
const CHAIN_FLAG: u32 = 1 << 31;

/// A leaf; `T` is an array of words of one of the classes, or their slice.
#[repr(C)]
pub(crate) struct LeafOf<T: ?Sized> {
    pub(crate) birth: u64,
    pub(crate) home: HomeCell,
    chains: Vec<Option<Chain>>,
    count: u16,
    capacity: u16,
    prefix_len: u32,
    heap_start: u32,
    garbage: u32,
    vacant_chains: u16,
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

    /// Bytes that it takes in a leaf with a prefix of this length.
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
    /// An empty leaf for keys that start with `prefix`.
    pub(crate) fn empty(prefix: &[u8], birth: u64) -> Arc<Self> {
        Self::build(prefix, birth, &[], 64)
    }

    /// A leaf of `records`, which are sorted and start with `prefix`, with room for a few more of about
    /// `spare` bytes.
    pub(crate) fn build(prefix: &[u8], birth: u64, records: &[Record<'_>], spare: usize) -> Arc<Self> {
        let heap: usize = records.iter().map(|record| record.bytes_after(prefix.len())).sum();
        let average = if records.is_empty() { spare } else { (heap / records.len()).max(spare.min(heap)) };
        let least = (records.len() + usize::from(spare > 0)).next_multiple_of(16);
        let fixed = heap + prefix.len().next_multiple_of(4);
        let need = fixed + spare + least * SLOT_BYTES;
        let words = CLASSES.into_iter().find(|words| words * 8 >= need).unwrap_or(CLASSES[2]);
        let fitting = (words * 8 - prefix.len()) / (average.max(8) + SLOT_BYTES);
        let most = (words * 8).saturating_sub(fixed) / SLOT_BYTES / 16 * 16;
        let capacity = fitting.next_multiple_of(16).min(most).max(least).min(8192);
        let mut leaf = allocate(words, birth);
        if let Some(fresh) = Arc::get_mut(&mut leaf) {
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
        records.len() <= 8192 && heap + prefix.len().next_multiple_of(4) + slots <= CLASSES[2] * 8
    }

    /// A copy that nobody shares, without a home on disk.
    pub(crate) fn fork(&self, birth: u64) -> Arc<Self> {
        let mut leaf = allocate(self.words.len(), birth);
        if let Some(fresh) = Arc::get_mut(&mut leaf) {
            fresh.chains.clone_from(&self.chains);
            fresh.count = self.count;
            fresh.capacity = self.capacity;
            fresh.prefix_len = self.prefix_len;
            fresh.heap_start = self.heap_start;
            fresh.garbage = self.garbage;
            fresh.vacant_chains = self.vacant_chains;
            fresh.words.copy_from_slice(&self.words);
        }
        leaf
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self)
    }

    /// Bytes that its records take now.
    pub(crate) fn live_bytes(&self) -> usize {
        self.bytes().len() - self.heap_start as usize - self.garbage as usize + self.len() * SLOT_BYTES
    }

    /// Whether so little is left that it should join a neighbour.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live_bytes() < CLASSES[0] * 8 / 4
    }

    /// Whether it and `other` fit well into one regular leaf, whose prefix has this length. What their own
    /// prefixes save is then written out for each record.
    pub(crate) fn joins_well(&self, other: &Self, prefix_len: usize) -> bool {
        let joined =
            |leaf: &Self| leaf.live_bytes() + leaf.len() * leaf.prefix().len().saturating_sub(prefix_len);
        joined(self) + joined(other) < CLASSES[0] * 8 * 2 / 3
    }

    /// Brings what a lookup touches first nearer.
    pub(crate) fn prefetch_slots(&self) {
        // Header, fingerprints, offsets: what a point lookup reads before it knows the record.
        prefetch(&raw const self.count, 4);
    }

    /// Brings what a change looks at first nearer: header, fingerprints, offsets, heads.
    pub(crate) fn prefetch_for_change(&self) {
        // The counts of its owners lie in front of it.
        prefetch((&raw const self.birth).wrapping_sub(2), 9);
    }

    /// Brings nearer what setting `key` will touch: its record, or the place where it will be written, or
    /// everything if the leaf must be built anew.
    pub(crate) fn prefetch_for_put(&self, key: &[u8]) {
        let Some(suffix) = key.get(self.prefix_len as usize..) else { return };
        let head = head_of(suffix);
        let slot = heads_below(self.heads(), head);
        if self.heads().get(slot) == Some(&head) {
            self.prefetch_record(slot);
        } else if self.is_about_full() {
            self.prefetch_all();
        } else {
            self.prefetch_heap_end();
        }
    }

    fn is_about_full(&self) -> bool {
        let used = self.prefix_at() + self.prefix_len as usize;
        let average = (self.bytes().len() - self.heap_start as usize) / self.len().max(1);
        self.count == self.capacity || (self.heap_start as usize) < used + average
    }

    /// Brings all records nearer.
    pub(crate) fn prefetch_all(&self) {
        prefetch(&raw const self.birth, 9);
        let bytes = self.bytes();
        let tail = bytes.len().min(6400);
        prefetch(bytes[bytes.len() - tail..].as_ptr(), tail / 64);
    }

    /// Brings the place nearer where the next record will be written.
    pub(crate) fn prefetch_heap_end(&self) {
        let at = (self.heap_start as usize).saturating_sub(128);
        prefetch(self.bytes()[at..].as_ptr(), 3);
    }

    /// Brings the record of a slot nearer.
    pub(crate) fn prefetch_record(&self, slot: usize) {
        prefetch(self.bytes()[self.offset(slot)..].as_ptr(), 3);
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

    fn header(&self, slot: usize) -> (usize, u32) {
        let at = self.offset(slot);
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes()[at..at + 4]);
        (at, u32::from_le_bytes(word))
    }

    pub(crate) fn suffix(&self, slot: usize) -> &[u8] {
        let (at, header) = self.header(slot);
        &self.bytes()[at + RECORD_HEADER..][..(header & SUFFIX_MASK) as usize]
    }

    pub(crate) fn fingerprint(&self, slot: usize) -> u8 {
        self.fingerprints()[slot]
    }

    pub(crate) fn value(&self, slot: usize) -> Stored<'_> {
        let (at, header) = self.header(slot);
        let start = at + RECORD_HEADER + (header & SUFFIX_MASK) as usize;
        if header & CHAIN_FLAG == 0 {
            let len = (header >> SUFFIX_BITS) as usize;
            return Stored::Inline(&self.bytes()[start..start + len]);
        }
        match &self.chains[self.chain_index(start)] {
            Some(chain) => Stored::Chain(chain),
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
                if self.suffix(slot) == suffix {
                    return Some(slot);
                }
                candidates &= candidates - 1;
            }
        }
        None
    }

    /// The first slot whose fingerprint fits: where the record of a point lookup most likely lies.
    pub(crate) fn likely_slot(&self, fingerprint: u8) -> Option<usize> {
        self.fingerprints().iter().position(|&candidate| candidate == fingerprint)
    }

    /// The slot of `key`, or where it belongs; for a key between the separators around the leaf, which starts
    /// with the prefix therefore.
    pub(crate) fn locate(&self, key: &[u8]) -> Result<usize, usize> {
        debug_assert!(key.starts_with(self.prefix()));
        let suffix = &key[self.prefix_len as usize..];
        let head = head_of(suffix);
        let heads = self.heads();
        let mut slot = heads_below(heads, head);
        while slot < heads.len() && heads[slot] == head {
            match self.suffix(slot).cmp(suffix) {
                Ordering::Less => slot += 1,
                Ordering::Equal => return Ok(slot),
                Ordering::Greater => break,
            }
        }
        Err(slot)
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

    /// Whether the key of a slot is `key`.
    pub(crate) fn is_key(&self, slot: usize, key: &[u8]) -> bool {
        slot < self.len() && key.strip_prefix(self.prefix()) == Some(self.suffix(slot))
    }

    /// Inserts a record whose key is not there yet, at the slot that [`Leaf::locate`] names.
    pub(crate) fn insert_at(
        &mut self,
        slot: usize,
        key: &[u8],
        fingerprint: u8,
        value: &Stored<'_>,
    ) -> Result<(), Full> {
        let suffix = &key[self.prefix_len as usize..];
        if !self.has_room(suffix.len(), value) {
            return Err(Full);
        }
        let count = self.len();
        let capacity = self.capacity as usize;
        let offset = self.write_record(suffix, value);
        let bytes = self.bytes_mut();
        bytes.copy_within(slot..count, slot + 1);
        bytes[slot] = fingerprint;
        let offsets: &mut [u16] = bytemuck::cast_slice_mut(&mut bytes[capacity..3 * capacity]);
        offsets.copy_within(slot..count, slot + 1);
        offsets[slot] = offset;
        let heads: &mut [u32] = bytemuck::cast_slice_mut(&mut bytes[3 * capacity..7 * capacity]);
        heads.copy_within(slot..count, slot + 1);
        heads[slot] = head_of(suffix);
        self.count += 1;
        Ok(())
    }

    /// Replaces the value of a slot; the old chain comes back, so that its pieces can be let go.
    pub(crate) fn replace(&mut self, slot: usize, value: &Stored<'_>) -> Result<Option<Chain>, Full> {
        let (at, header) = self.header(slot);
        let suffix_len = (header & SUFFIX_MASK) as usize;
        let start = at + RECORD_HEADER + suffix_len;
        match (*value, header & CHAIN_FLAG != 0) {
            (Stored::Inline(bytes), false) if bytes.len() == (header >> SUFFIX_BITS) as usize => {
                self.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
                return Ok(None);
            }
            (Stored::Chain(chain), true) => {
                let index = self.chain_index(start);
                return Ok(self.chains[index].replace(chain.clone()));
            }
            _ => {}
        }
        if !self.has_room(suffix_len, value) {
            return Err(Full);
        }
        let suffix = self.suffix(slot).to_vec();
        let old = self.forget_record(slot);
        let offset = self.write_record(&suffix, value);
        let capacity = self.capacity as usize;
        let offsets: &mut [u16] = bytemuck::cast_slice_mut(&mut self.bytes_mut()[capacity..3 * capacity]);
        offsets[slot] = offset;
        Ok(old)
    }

    /// Removes a slot; its chain comes back, so that its pieces can be let go.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Chain> {
        let old = self.forget_record(slot);
        let count = self.len();
        let capacity = self.capacity as usize;
        let bytes = self.bytes_mut();
        bytes.copy_within(slot + 1..count, slot);
        let offsets: &mut [u16] = bytemuck::cast_slice_mut(&mut bytes[capacity..3 * capacity]);
        offsets.copy_within(slot + 1..count, slot);
        let heads: &mut [u32] = bytemuck::cast_slice_mut(&mut bytes[3 * capacity..7 * capacity]);
        heads.copy_within(slot + 1..count, slot);
        self.count -= 1;
        old
    }

    fn has_room(&self, suffix: usize, value: &Stored<'_>) -> bool {
        let used = self.prefix_at() + self.prefix_len as usize;
        self.count < self.capacity
            && (self.heap_start as usize).saturating_sub(used) >= record_bytes(suffix, value)
    }

    /// Writes a record into the heap; its offset in words.
    fn write_record(&mut self, suffix: &[u8], value: &Stored<'_>) -> u16 {
        let at = self.heap_start as usize - record_bytes(suffix.len(), value);
        let start = at + RECORD_HEADER + suffix.len();
        let header = match value {
            Stored::Inline(inline) => {
                self.bytes_mut()[start..start + inline.len()].copy_from_slice(inline);
                suffix.len() as u32 | ((inline.len() as u32) << SUFFIX_BITS)
            }
            Stored::Chain(chain) => {
                let index = self.keep_chain(chain);
                self.bytes_mut()[start..start + 4].copy_from_slice(&index.to_le_bytes());
                suffix.len() as u32 | CHAIN_FLAG
            }
        };
        let bytes = self.bytes_mut();
        bytes[at..at + 4].copy_from_slice(&header.to_le_bytes());
        bytes[at + RECORD_HEADER..start].copy_from_slice(suffix);
        self.heap_start = at as u32;
        (at / 4) as u16
    }

    fn keep_chain(&mut self, chain: &Chain) -> u32 {
        let vacant =
            if self.vacant_chains == 0 { None } else { self.chains.iter().position(Option::is_none) };
        let index = match vacant {
            Some(index) => {
                self.vacant_chains -= 1;
                index
            }
            None => {
                self.chains.push(None);
                self.chains.len() - 1
            }
        };
        self.chains[index] = Some(chain.clone());
        index as u32
    }

    fn forget_record(&mut self, slot: usize) -> Option<Chain> {
        let (at, header) = self.header(slot);
        let suffix_len = (header & SUFFIX_MASK) as usize;
        self.garbage += record_bytes(suffix_len, &self.value(slot)) as u32;
        if header & CHAIN_FLAG == 0 {
            return None;
        }
        let index = self.chain_index(at + RECORD_HEADER + suffix_len);
        self.vacant_chains += 1;
        self.chains[index].take()
    }

    /// Adds a record that is above all others to a leaf that was built with room for it.
    fn push(&mut self, record: &Record<'_>) {
        let prefix = self.prefix_len as usize;
        let front = record.key[0].len();
        let joined;
        let suffix = if front <= prefix {
            &record.key[1][prefix - front..]
        } else {
            joined = record.key.concat();
            &joined[prefix..]
        };
        let (slot, capacity) = (self.len(), self.capacity as usize);
        let offset = self.write_record(suffix, &record.value);
        let bytes = self.bytes_mut();
        bytes[slot] = record.fingerprint;
        bytemuck::cast_slice_mut::<_, u16>(&mut bytes[capacity..3 * capacity])[slot] = offset;
        bytemuck::cast_slice_mut::<_, u32>(&mut bytes[3 * capacity..7 * capacity])[slot] = head_of(suffix);
        self.count += 1;
    }
}

/// How many of the sorted `heads` are below `head`, without branches that depend on them.
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

fn allocate(words: usize, birth: u64) -> Arc<Leaf> {
    fn of<const WORDS: usize>(birth: u64) -> Arc<Leaf> {
        Arc::new(LeafOf {
            birth,
            home: HomeCell::default(),
            chains: Vec::new(),
            count: 0,
            capacity: 0,
            prefix_len: 0,
            heap_start: 0,
            garbage: 0,
            vacant_chains: 0,
            words: [0u64; WORDS],
        })
    }
    match words {
        1024 => of::<1024>(birth),
        4096 => of::<4096>(birth),
        _ => of::<32768>(birth),
    }
}
