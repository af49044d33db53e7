//! What backs the nodes in memory: the disk, the store's identity, and the memory budget.

use crate::fragmentation::Fragmentation;
use crate::meter::{Kind, Meter, Weight};
use crate::threads::{AtomicBool, AtomicU64, AtomicUsize, Mutex};
use crate::value::{Chain, PIECE_BYTES, Piece};
use crate::{Damage, EngineError};
use atoll_disk::{Disk, DiskError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Buffers for writing and reading have this share of the budget.
const BUFFERS_SHARE: u64 = 8;

/// Values keep this share of the budget even where leaves want more.
const VALUES_SHARE: u64 = 8;

/// Inner nodes stay above this share of the room for a short time only.
const INNER_SHARE: u64 = 2;

/// Where nodes lie on disk alone, this many parts in [`LEFT_PARTS`] of the room that is left beside what
/// stays may be unwritten before a checkpoint is due.
const UNWRITTEN_PARTS: u64 = 4;
const LEFT_PARTS: u64 = 5;

/// What a checkpoint writes beyond this bypasses the system's page cache. The pages it writes are in memory
/// here as well, so the cache would hold them twice, and copying them there takes a sixth of the time of a
/// load. A smaller checkpoint goes through the cache, since other processes may read it soon.
const CACHED_BYTES_MAX: u64 = 64 << 20;

/// Long buffers that are kept for reuse take at most this share of the memory.
const SPARE_SHARE: u64 = 32;

/// About what a value in memory takes beside its bytes: its piece, since the leaf that counts the piece may
/// be gone, the allocator's overhead, and its place in the queue.
const VALUE_BYTES: u64 = PIECE_BYTES as u64;

/// How many pieces ahead the end of the store prefetches those that it drops.
const ENDING_AHEAD: usize = 12;

/// Why a page is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// On its own: past the system's page cache where memory is short, since nothing around it is wanted.
    One,
    /// With others that lie near it, perhaps prefetched: through the page cache, which reads ahead.
    Along,
}

/// The disk under an engine, or none for a store in memory, and what reading from it takes.
pub struct Backing {
    disk: Option<Arc<dyn Disk>>,
    name: String,
    store_id: u64,
    /// Values in memory that could be read back from disk, oldest first.
    values: Mutex<VecDeque<Piece>>,
    meter: Arc<Meter>,
    /// Only where there is a disk; without one nothing can be evicted.
    fragmentation: Option<Fragmentation>,
    /// Whether a node of the current trees may lie on disk alone.
    has_absent_nodes: AtomicBool,
    /// How often the current trees retired what a delta replaced.
    retirements: AtomicU64,
    /// Number of checks that run.
    checks: AtomicUsize,
    memory_bytes: u64,
    /// Whether puts behave as if memory were short.
    blind_puts: bool,
}

impl Backing {
    pub(crate) fn new(disk: Option<Arc<dyn Disk>>, store_id: u64, memory_bytes: u64) -> Self {
        if disk.is_some() {
            // Long-value buffers that are kept for reuse are memory as well.
            atoll_buffer::keep_at_most(usize::try_from(memory_bytes / SPARE_SHARE).unwrap_or(usize::MAX));
        }
        let name = disk.as_ref().map_or_else(|| "memory".to_owned(), |disk| disk.name().to_owned());
        let fragmentation = disk.as_ref().map(|_| Fragmentation::within(room_of(memory_bytes)));
        Self {
            disk,
            name,
            store_id,
            values: Mutex::default(),
            meter: Arc::default(),
            fragmentation,
            has_absent_nodes: AtomicBool::new(false),
            retirements: AtomicU64::new(0),
            checks: AtomicUsize::new(0),
            memory_bytes,
            blind_puts: false,
        }
    }

    /// Sets [`Options::blind_puts`](crate::Options::blind_puts).
    pub(crate) fn with_blind_puts(mut self, blind_puts: bool) -> Self {
        self.blind_puts = blind_puts;
        self
    }

    pub(crate) fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.as_ref()
    }

    /// The next number, greater than all before, under which the current trees retire what a delta
    /// replaced.
    pub(crate) fn next_retirement(&self) -> u64 {
        self.retirements.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The greatest number given out by [`Backing::next_retirement`]. For a caller that holds the writer
    /// lock and the checkpoint lock, no use of a number is pending.
    pub(crate) fn retirements(&self) -> u64 {
        self.retirements.load(Ordering::Relaxed)
    }

    /// Marks a check as running until the returned guard is dropped. Meanwhile, code that releases something
    /// the check will ask for keeps it.
    pub(crate) fn begin_check(&self) -> Checking<'_> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        Checking(self)
    }

    /// Whether a check runs. No check begins while the checkpoint lock is held.
    pub(crate) fn is_checked(&self) -> bool {
        self.checks.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.store_id
    }

    /// Checksum of bytes whose place their referrer knows.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u64 {
        crate::checksum::checksum(self.store_id, bytes)
    }

    pub(crate) fn corrupt(&self, offset: u64, problem: Damage) -> EngineError {
        EngineError::Corrupt { store: self.name(), offset, problem }
    }

    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), EngineError> {
        self.read_as(Reading::Along, offset, target)
    }

    pub(crate) fn read_as(
        &self,
        reading: Reading,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), EngineError> {
        let Some(disk) = &self.disk else { return Err(self.corrupt(offset, Damage::PageContent)) };
        match reading {
            Reading::One if self.is_short() => disk.read_past(offset, target)?,
            Reading::One | Reading::Along => disk.read_at(offset, target)?,
        }
        Ok(())
    }

    /// Writes whole blocks, after `before` bytes of the same checkpoint. They bypass the system's page cache
    /// where those are many or memory is short, because the pages to be written would take memory there that
    /// others need.
    pub(crate) fn write_blocks(&self, offset: u64, blocks: &[u8], before: u64) -> Result<(), DiskError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if self.is_short() || before >= CACHED_BYTES_MAX {
            disk.write_past(offset, blocks)
        } else {
            disk.write_at(offset, blocks)
        }
    }

    /// Counts a value that is now in memory and could be read back, and evicts the oldest values beyond the
    /// budget.
    pub(crate) fn admit(&self, piece: Piece, bytes: u64) {
        if self.disk.is_none() {
            return;
        }
        piece.count(bytes);
        self.meter.add(Kind::Value, bytes + VALUE_BYTES);
        self.values.lock().push_back(piece);
        self.shed_values();
    }

    /// Evicts the bytes of a value that left the trees, unless it is shared: the next value takes over its
    /// memory instead of fresh memory. Its pieces stay in the queue until their turn.
    pub(crate) fn has_left(&self, chain: &Chain) {
        for piece in chain.pieces().iter().filter(|piece| piece.is_alone()) {
            self.meter.take_off(Kind::Value, piece.evict());
        }
    }

    /// Evicts the oldest values while memory is short, down to the share that values always have.
    pub(crate) fn shed_values(&self) {
        self.shed_values_for(0);
    }

    /// As [`Backing::shed_values`], while memory is short of `need` bytes.
    pub(crate) fn shed_values_for(&self, need: u64) {
        // The gaps that values pin count as theirs: evicting the last value around a gap frees most.
        let theirs = || self.value_bytes() + self.fragmentation_bytes();
        let is_over = || self.excess_with(need) > 0 && theirs() > self.memory_bytes / VALUES_SHARE;
        // Evict no more than the present excess: values that lie among others free nothing yet, however many
        // go.
        let mut excess = self.excess_with(need);
        while excess > 0 && is_over() {
            let Some(oldest) = self.values.lock().pop_front() else { break };
            // Take off what was counted, not what was evicted: two readers may have loaded the same piece.
            let bytes = oldest.evict() + VALUE_BYTES;
            self.meter.take_off(Kind::Value, bytes);
            excess = excess.saturating_sub(bytes);
        }
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Counts a buffer for as long as the returned weight lives.
    pub(crate) fn buffer(&self, bytes: u64) -> Weight {
        Weight::of(&self.meter, Kind::Buffer, bytes)
    }

    /// Notes that a node was evicted, or was never read.
    pub(crate) fn node_is_absent(&self) {
        self.has_absent_nodes.store(true, Ordering::Relaxed);
    }

    /// Whether every node of the current trees has stayed in memory since the store was made.
    pub(crate) fn is_all_resident(&self) -> bool {
        !self.has_absent_nodes.load(Ordering::Relaxed)
    }

    pub(crate) fn leaf_bytes(&self) -> u64 {
        self.meter.leaf_bytes()
    }

    pub(crate) fn value_bytes(&self) -> u64 {
        self.meter.bytes_of(Kind::Value)
    }

    /// Whether inner nodes take so much that little is left for leaves, and so for everything else.
    pub(crate) fn has_too_many_inner_nodes(&self) -> bool {
        self.meter.bytes_of(Kind::Inner) > (self.room() - self.fragmentation_bytes()) / INNER_SHARE
    }

    /// Bytes of nodes, values and buffers in memory, plus the gaps that the allocator and slabs keep between
    /// them.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.meter.held() + self.fragmentation_bytes()
    }

    /// Bytes left free between values, as far as this store accounts for them.
    fn fragmentation_bytes(&self) -> u64 {
        self.fragmentation.as_ref().map_or(0, Fragmentation::bytes)
    }

    /// Bytes that may be held: the budget less what is reserved for small buffers.
    pub(crate) fn room(&self) -> u64 {
        room_of(self.memory_bytes)
    }

    /// Bytes held beyond the room.
    pub(crate) fn excess(&self) -> u64 {
        self.held_bytes().saturating_sub(self.room())
    }

    /// Whether `need` more bytes may be held.
    pub(crate) fn has_spare(&self, need: u64) -> bool {
        self.excess_with(need) == 0
    }

    /// The same for what this store itself holds, regardless of what others do.
    pub(crate) fn has_spare_of_its_own(&self, need: u64) -> bool {
        self.meter.held() + need <= self.room()
    }

    /// Bytes beyond the room, once `need` more are held.
    pub(crate) fn excess_with(&self, need: u64) -> u64 {
        (self.held_bytes() + need).saturating_sub(self.room())
    }

    /// Whether memory is so short, or is to be treated as so short, that what stays in memory has to be worth
    /// it. Never where the whole store is in memory.
    pub(crate) fn is_short(&self) -> bool {
        !self.is_all_resident() && (self.blind_puts || self.held_bytes() > self.room() / 2)
    }

    /// Whether `need` more bytes may be held and modified. Recovery after a crash brings back everything
    /// changed since the last commit at once, so that has to fit too.
    pub(crate) fn has_room(&self, need: u64) -> bool {
        self.has_spare(need) && self.meter.replayed_bytes() <= self.room()
    }

    /// Whether so much memory is unwritten that a checkpoint should write it. What the last checkpoint could
    /// not write does not count: the next one could not write it either.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        // A checkpoint frees none of the fragmentation.
        let room = self.room() - self.fragmentation_bytes();
        let unwritten = self.meter.unwritten_bytes();
        // Asked with every commit, and most stores are far from it.
        unwritten > room / 2
            && (self.meter.unwritten_leaf_bytes() > room / 2 || unwritten > self.unwritten_most(room))
            && self.meter.newly_unwritten_bytes() > room / 4
            && self.meter.held() > room / 4 * 3
    }

    /// How many bytes may be unwritten where no more than half of the room is changed leaves.
    ///
    /// A store that fits into memory changes leaves, and copies them while a checkpoint runs: the other half
    /// is for these copies. One that does not fit puts records beside leaves, and copies little. Each of its
    /// checkpoints visits nearly every leaf, however few records came since the last one, so it makes them
    /// as seldom as its memory allows; but a third of the room is left for what comes while one runs, since
    /// writers that fill it wait.
    fn unwritten_most(&self, room: u64) -> u64 {
        if self.is_all_resident() {
            return room / 2;
        }
        let leaves = self.meter.unwritten_leaf_bytes();
        let left = room.saturating_sub(self.staying_bytes() + leaves);
        (leaves + left / LEFT_PARTS * UNWRITTEN_PARTS).clamp(room / 2, room / 3 * 2)
    }

    /// How much room a checkpoint frees beforehand for the copies that writers make while it runs: a quarter
    /// of all, but no more than half of what is neither unwritten nor stays. Looking for more would pass over
    /// all leaves in vain, while nobody else proceeds, and evict each that can be.
    pub(crate) fn headroom(&self) -> u64 {
        let taken = self.meter.unwritten_bytes() + self.staying_bytes();
        (self.room() / 4).min(self.room().saturating_sub(taken) / 2)
    }

    /// Bytes that neither a checkpoint nor eviction frees: inner nodes, buffers, and the values that are kept
    /// even where leaves want more.
    fn staying_bytes(&self) -> u64 {
        let values = self.value_bytes().min(self.memory_bytes / VALUES_SHARE);
        self.meter.bytes_of(Kind::Inner) + self.meter.bytes_of(Kind::Buffer) + values
    }
}

fn room_of(memory_bytes: u64) -> u64 {
    memory_bytes - memory_bytes / BUFFERS_SHARE
}

impl Drop for Backing {
    fn drop(&mut self) {
        let _ending = atoll_buffer::ending();
        let values = self.values.get_mut();
        while let Some(piece) = values.pop_front() {
            // The owners of each piece are counted in the piece itself.
            values.get(ENDING_AHEAD).into_iter().for_each(Piece::prefetch);
            drop(piece);
        }
    }
}

/// A check that runs; dropping it ends the check.
pub(crate) struct Checking<'a>(&'a Backing);

impl Drop for Checking<'_> {
    fn drop(&mut self) {
        self.0.checks.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Counted;

    /// A changed leaf of this many bytes.
    fn changed_leaf(backing: &Backing, bytes: usize) -> Counted {
        let mut leaf = Counted::default();
        leaf.begin(backing.meter(), bytes, true);
        leaf
    }

    #[test]
    fn what_lies_beside_leaves_may_take_more_before_a_checkpoint_than_changed_leaves() {
        // Room for 14,000 bytes; 2,000 of them are for values.
        let backing = Backing::new(None, 1, 16_000);
        let weight = |kind, bytes| Weight::of(backing.meter(), kind, bytes);
        let values = weight(Kind::Value, 4_000);
        let half = weight(Kind::Waiting, 7_000);
        assert!(!backing.wants_checkpoint());
        let more = weight(Kind::Waiting, 100);
        assert!(backing.wants_checkpoint(), "all of it is in memory");
        backing.node_is_absent();
        assert!(!backing.wants_checkpoint());
        // Two thirds of the room.
        let beside = weight(Kind::Waiting, 2_200);
        assert!(!backing.wants_checkpoint());
        let last = weight(Kind::Waiting, 100);
        assert!(backing.wants_checkpoint());
        drop((last, beside));
        // Of 10,000 bytes, four fifths are 8,000; and never less than half of the room.
        let inner = weight(Kind::Inner, 2_000);
        assert!(!backing.wants_checkpoint());
        let beside = weight(Kind::Waiting, 1_000);
        assert!(backing.wants_checkpoint());
        drop((beside, more));
        let many = weight(Kind::Inner, 11_000);
        assert!(!backing.wants_checkpoint());
        let more = weight(Kind::Waiting, 100);
        assert!(backing.wants_checkpoint());
        drop((many, inner, half, more));
        let leaves = changed_leaf(&backing, 7_000);
        assert!(!backing.wants_checkpoint());
        let leaf = changed_leaf(&backing, 100);
        assert!(backing.wants_checkpoint(), "the rest is for copies of leaves");
        drop((leaf, leaves, values));
    }

    #[test]
    fn a_checkpoint_frees_no_more_beforehand_than_there_can_be() {
        let backing = Backing::new(None, 1, 16_000);
        assert_eq!(backing.headroom(), 3_500, "a quarter of the room");
        let inner = Weight::of(backing.meter(), Kind::Inner, 2_000);
        let _leaf = changed_leaf(&backing, 3_000);
        assert_eq!(backing.headroom(), 3_500);
        let beside = Weight::of(backing.meter(), Kind::Waiting, 5_000);
        assert_eq!(backing.headroom(), 2_000, "half of what is left");
        let more = Weight::of(backing.meter(), Kind::Waiting, 5_000);
        assert_eq!(backing.headroom(), 0);
        drop((inner, beside, more));
        assert_eq!(backing.headroom(), 3_500);
    }

    #[test]
    fn what_opening_would_bring_back_must_fit_though_it_was_let_go_of() {
        let backing = Backing::new(None, 1, 16_000);
        let leaf_of = |bytes| changed_leaf(&backing, bytes);
        // Written by a checkpoint whose commit failed, and evicted.
        let written = leaf_of(10_000);
        written.settle();
        drop(written);
        assert!(backing.has_room(1_000));
        let _changed = leaf_of(8_000);
        assert!(backing.held_bytes() < backing.room() && !backing.has_room(0));
        backing.meter().checkpoint_ended(true);
        assert!(backing.has_room(0));
    }
}
