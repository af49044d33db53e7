//! A cache of what never changes: created cells that were read under their vow, and chunks.
//!
//! The contract allows caching of bytes under the vow. A chunk's name is never reused, so any reader that has
//! the head that names it may take the chunk from here.
//!
//! Invariant: nothing is cached whose checksum did not match.
//! Invariant: the cache takes at most the bytes that it was given, shard by shard; an entry that was read
//! again since it was inserted outlasts one that was not.

use crate::codec::{ChunkId, PieceHead};
use atoll_store::{Batch, Buffer, Mutation, PartitionKey, SortKey};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use twox_hash::XxHash3_64;

const SHARDS: usize = 16;

/// The memory of an entry besides its bytes: maps, queue, allocations.
const ENTRY_BYTES: usize = 200;

/// A created cell.
#[derive(Clone, Debug)]
pub(crate) struct Created {
    pub(crate) head: PieceHead,
    /// Its bytes, if they lie in its row.
    pub(crate) inline: Buffer,
}

type CellKey = (PartitionKey, SortKey);
type ChunkKey = (ChunkId, u64);

/// The number of removals in a shard at the time at which a read began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn(u64);

/// The cache of one store.
pub(crate) struct Kept {
    cells: [Mutex<Shelf<CellKey, Created>>; SHARDS],
    chunks: [Mutex<Shelf<ChunkKey, Buffer>>; SHARDS],
}

impl Kept {
    /// A cache of `bytes_max` bytes in all. An eighth is for cells, whose heads and inline values are small.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / SHARDS;
        let for_cells = bytes_max / 8;
        Self {
            cells: std::array::from_fn(|_| Mutex::new(Shelf::new(for_cells))),
            chunks: std::array::from_fn(|_| Mutex::new(Shelf::new(bytes_max - for_cells))),
        }
    }

    pub(crate) fn cell(&self, partition: &[u8], sort: &[u8]) -> Option<Created> {
        self.cells_of(partition).lock().get(&(partition.to_vec(), sort.to_vec()))
    }

    /// Must be called before reading a cell that is to be cached.
    pub(crate) fn turn(&self, partition: &[u8]) -> Turn {
        Turn(self.cells_of(partition).lock().forgotten)
    }

    /// Caches a cell, unless a cell of its shard was removed since `turn`: it may have been this one.
    pub(crate) fn keep_cell(&self, turn: Turn, partition: &[u8], sort: &[u8], created: Created) {
        // The key is stored in both the map and the queue.
        let bytes = 2 * (partition.len() + sort.len()) + created.inline.allocated_bytes();
        let mut shelf = self.cells_of(partition).lock();
        if shelf.forgotten == turn.0 {
            shelf.put((partition.to_vec(), sort.to_vec()), created, bytes);
        }
    }

    pub(crate) fn chunk(&self, id: &ChunkId, number: u64) -> Option<Buffer> {
        self.chunks_of(id, number).lock().get(&(*id, number))
    }

    pub(crate) fn keep_chunk(&self, id: &ChunkId, number: u64, chunk: &Buffer) {
        let bytes = chunk.allocated_bytes();
        self.chunks_of(id, number).lock().put((*id, number), chunk.clone(), bytes);
    }

    /// Removes what this client itself deletes: the vow would allow returning it, but no caller expects that.
    pub(crate) fn forget(&self, partition: &[u8], batch: &Batch) {
        let mut shelf = self.cells_of(partition).lock();
        shelf.forgotten += 1;
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Delete(sort) => shelf.remove(&(partition.to_vec(), sort.clone())),
                Mutation::DeleteRange(range) => {
                    shelf.remove_where(|(of, sort)| of == partition && range.contains(sort));
                }
                Mutation::Put(..) | Mutation::Append(..) => {}
            }
        }
    }

    fn cells_of(&self, partition: &[u8]) -> &Mutex<Shelf<CellKey, Created>> {
        &self.cells[XxHash3_64::oneshot(partition) as usize % SHARDS]
    }

    fn chunks_of(&self, id: &ChunkId, number: u64) -> &Mutex<Shelf<ChunkKey, Buffer>> {
        // Chunks of one value lie in different shards, because they are read together.
        &self.chunks[(XxHash3_64::oneshot(id).wrapping_add(number)) as usize % SHARDS]
    }
}

/// Entries in insertion order. An entry that was read since it was last examined gets another turn instead of
/// being evicted.
struct Shelf<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The key of each entry, exactly once.
    turns: VecDeque<K>,
    bytes: usize,
    bytes_max: usize,
    /// How often a removal was requested, whether or not the entry was present or still on its way here.
    forgotten: u64,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    was_asked: bool,
}

impl<K: Hash + Eq + Clone, V: Clone> Shelf<K, V> {
    fn new(bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), turns: VecDeque::new(), bytes: 0, bytes_max, forgotten: 0 }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        entry.was_asked = true;
        Some(entry.value.clone())
    }

    fn put(&mut self, key: K, value: V, bytes: usize) {
        let bytes = bytes + ENTRY_BYTES;
        if bytes > self.bytes_max || self.entries.contains_key(&key) {
            return;
        }
        self.make_room(self.bytes_max - bytes);
        self.bytes += bytes;
        self.turns.push_back(key.clone());
        self.entries.insert(key, Entry { value, bytes, was_asked: false });
    }

    /// Evicts entries until at most `bytes_left` bytes are left.
    fn make_room(&mut self, bytes_left: usize) {
        while self.bytes > bytes_left {
            let Some(key) = self.turns.pop_front() else { return };
            match self.entries.get_mut(&key) {
                Some(entry) if entry.was_asked => {
                    entry.was_asked = false;
                    self.turns.push_back(key);
                }
                _ => self.take_out(&key),
            }
        }
    }

    fn remove(&mut self, key: &K) {
        if self.entries.contains_key(key) {
            self.take_out(key);
            self.turns.retain(|other| other != key);
        }
    }

    fn remove_where(&mut self, is_gone: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self.entries.keys().filter(|key| is_gone(key)).cloned().collect();
        gone.iter().for_each(|key| self.take_out(key));
        if !gone.is_empty() {
            self.turns.retain(|key| !is_gone(key));
        }
    }

    fn take_out(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Body;

    fn shelf_of(entries: usize) -> Shelf<u32, ()> {
        Shelf::new(entries * ENTRY_BYTES)
    }

    #[test]
    fn a_shelf_never_holds_more_than_it_may_and_what_was_asked_for_stays() {
        let mut shelf = shelf_of(4);
        for key in 0..4 {
            shelf.put(key, (), 0);
        }
        assert!(shelf.get(&0).is_some() && shelf.get(&2).is_some());
        for key in 4..6 {
            shelf.put(key, (), 0);
            assert!(shelf.bytes <= shelf.bytes_max && shelf.turns.len() == shelf.entries.len());
        }
        assert!(shelf.get(&0).is_some() && shelf.get(&2).is_some());
        assert!(shelf.get(&1).is_none() && shelf.get(&3).is_none());
        shelf.put(9, (), 4 * ENTRY_BYTES);
        assert!(shelf.get(&9).is_none(), "what is larger than the shelf is not kept");
    }

    #[test]
    fn random_use_keeps_the_count_of_bytes_right() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut shelf = shelf_of(20);
        for _ in 0..20_000 {
            let key = random.u32(0..60);
            match random.u8(0..4) {
                0 => drop(shelf.get(&key)),
                1 => shelf.remove(&key),
                2 => shelf.remove_where(|other| other % 50 == key),
                _ => shelf.put(key, (), random.usize(0..900)),
            }
            let held: usize = shelf.entries.values().map(|entry| entry.bytes).sum();
            assert_eq!(held, shelf.bytes, "seed {seed}");
            assert!(held <= shelf.bytes_max && shelf.turns.len() == shelf.entries.len(), "seed {seed}");
        }
    }

    #[test]
    fn what_this_client_deletes_is_forgotten_and_nothing_else() {
        let kept = Kept::new(1 << 20);
        let created = |bytes: &[u8]| Created {
            head: PieceHead { checksum: 0, bytes: 1, body: Body::Inline, is_created: true },
            inline: bytes.into(),
        };
        for (partition, sort) in [(&b"p"[..], &b"a"[..]), (b"p", b"b"), (b"p", b"c"), (b"q", b"b")] {
            kept.keep_cell(kept.turn(partition), partition, sort, created(sort));
        }
        let before = kept.turn(b"p");
        kept.forget(b"p", &Batch::on(*b"p").delete(*b"a"));
        kept.forget(b"p", &Batch::on(*b"p").delete_range(atoll_store::SortRange::prefix(b"b")));
        let is_there = |partition: &[u8], sort: &[u8]| kept.cell(partition, sort).is_some();
        assert!(!is_there(b"p", b"a") && !is_there(b"p", b"b"));
        assert!(is_there(b"p", b"c") && is_there(b"q", b"b"));
        // It was read before it was deleted, and the answer arrives afterwards.
        kept.keep_cell(before, b"p", b"a", created(b"a"));
        assert!(!is_there(b"p", b"a"));
        kept.keep_cell(kept.turn(b"p"), b"p", b"d", created(b"d"));
        assert!(is_there(b"p", b"d"));
    }
}
