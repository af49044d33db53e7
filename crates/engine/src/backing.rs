//! What lies behind the nodes in memory: the disk, the store's identity, and the memory budget.

use crate::meter::{Kind, Meter, Weight};
use crate::pinned::Pinned;
use crate::threads::{AtomicBool, AtomicU64, AtomicUsize, Mutex};
use crate::value::{Chain, PIECE_BYTES, Piece};
use crate::{Damage, EngineError};
use atoll_disk::{Disk, DiskError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Of the budget, buffers of writing and reading have this share.
const BUFFERS_SHARE: u64 = 8;

/// Of the budget, values keep this share even where leaves want more.
const VALUES_SHARE: u64 = 8;

/// Of what may be held, inner nodes have at most this share for long.
const INNER_SHARE: u64 = 2;

/// What a checkpoint writes beyond this goes past the cache of the system: what it writes is in memory here
/// as well, so the cache would hold it twice, and to copy it there takes a sixth of a load. Less than that
/// may be read by others soon.
const CACHED_MOST: u64 = 64 << 20;

/// Of the memory, long buffers that are kept to be used again have at most this share.
const SPARE_SHARE: u64 = 32;

/// About what a value in memory takes beside its bytes: its piece, for the leaf that counts that may be gone,
/// what the allocator adds, and its place in the queue.
const VALUE_BYTES: u64 = PIECE_BYTES as u64;

/// How far ahead the pieces that are let go of at the end are asked for.
const ENDING_AHEAD: usize = 12;

/// What a page is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// For itself: past the cache of the system where memory is short, for nobody wants what is around it.
    One,
    /// With others that lie near it, perhaps asked for before: through the cache, which reads ahead.
    Along,
}

/// The disk under an engine, or none for a store in memory, and what it takes to read it back.
pub struct Backing {
    disk: Option<Arc<dyn Disk>>,
    name: String,
    store_id: u64,
    /// Values that came into memory and could be read back, oldest first.
    values: Mutex<VecDeque<Piece>>,
    meter: Arc<Meter>,
    /// Where there is a disk, without which nothing can go.
    pinned: Option<Pinned>,
    /// Whether a node of the current trees may lie on disk alone.
    has_absent_nodes: AtomicBool,
    /// How often the current trees were told what a delta replaced.
    tells: AtomicU64,
    /// Checks that run.
    checks: AtomicUsize,
    memory_bytes: u64,
    /// Whether it is as if memory were short for puts.
    blind_puts: bool,
}

impl Backing {
    pub(crate) fn new(disk: Option<Arc<dyn Disk>>, store_id: u64, memory_bytes: u64) -> Self {
        if disk.is_some() {
            // Buffers of long values that are used again are memory as well.
            atoll_buffer::keep_at_most(usize::try_from(memory_bytes / SPARE_SHARE).unwrap_or(usize::MAX));
        }
        let name = disk.as_ref().map_or_else(|| "memory".to_owned(), |disk| disk.name().to_owned());
        let pinned = disk.as_ref().map(|_| Pinned::within(room_of(memory_bytes)));
        Self {
            disk,
            name,
            store_id,
            values: Mutex::default(),
            meter: Arc::default(),
            pinned,
            has_absent_nodes: AtomicBool::new(false),
            tells: AtomicU64::new(0),
            checks: AtomicUsize::new(0),
            memory_bytes,
            blind_puts: false,
        }
    }

    /// The same, as such options want it.
    pub(crate) fn with_blind_puts(mut self, blind_puts: bool) -> Self {
        self.blind_puts = blind_puts;
        self
    }

    pub(crate) fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.as_ref()
    }

    /// A number, greater than all before, for the current trees to be told what a delta replaced.
    pub(crate) fn next_tell(&self) -> u64 {
        self.tells.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The greatest of those numbers; for whoever holds the writer's lock and that of checkpoints, nobody is
    /// about to tell.
    pub(crate) fn tells(&self) -> u64 {
        self.tells.load(Ordering::Relaxed)
    }

    /// A check runs for as long as the answer is kept: who lets go of what it will ask for keeps that
    /// meanwhile.
    pub(crate) fn begin_check(&self) -> Checking<'_> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        Checking(self)
    }

    /// Whether a check runs. None begins while the lock of checkpoints is held.
    pub(crate) fn is_checked(&self) -> bool {
        self.checks.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.store_id
    }

    /// Checksum of bytes whose place is known from their referrer.
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

    /// Writes whole blocks, after `before` bytes of the same checkpoint: past the cache of the system where
    /// those are many or memory is short, for what is written would wait there in memory that others need.
    pub(crate) fn write_blocks(&self, offset: u64, blocks: &[u8], before: u64) -> Result<(), DiskError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if self.is_short() || before >= CACHED_MOST {
            disk.write_past(offset, blocks)
        } else {
            disk.write_at(offset, blocks)
        }
    }

    /// Counts a value that is now in memory and could be read back; lets go of the oldest beyond the budget.
    pub(crate) fn admit(&self, piece: Piece, bytes: u64) {
        if self.disk.is_none() {
            return;
        }
        piece.count(bytes);
        self.meter.add(Kind::Value, bytes + VALUE_BYTES);
        self.values.lock().push_back(piece);
        self.shed_values();
    }

    /// Lets go of the bytes of a value that left the trees, if nobody else has it: the next value takes their
    /// memory, which would else be fresh. Its pieces wait for their turn.
    pub(crate) fn has_left(&self, chain: &Chain) {
        for piece in chain.pieces().iter().filter(|piece| piece.is_alone()) {
            self.meter.take_off(Kind::Value, piece.evict());
        }
    }

    /// Lets go of the oldest values while memory is short, down to what values may always have.
    pub(crate) fn shed_values(&self) {
        self.shed_values_for(0);
    }

    /// As [`Backing::shed_values`], while memory is short of `need` bytes.
    pub(crate) fn shed_values_for(&self, need: u64) {
        // What they pin is theirs: to let go of the last of them frees most.
        let theirs = || self.value_bytes() + self.pinned_bytes();
        let is_over = || self.excess_with(need) > 0 && theirs() > self.memory_bytes / VALUES_SHARE;
        // No more than are too many now: those that lie among others free nothing yet, however many go.
        let mut excess = self.excess_with(need);
        while excess > 0 && is_over() {
            let Some(oldest) = self.values.lock().pop_front() else { break };
            // What was counted, not what was let go of: two readers may have brought the same piece in.
            let bytes = oldest.evict() + VALUE_BYTES;
            self.meter.take_off(Kind::Value, bytes);
            excess = excess.saturating_sub(bytes);
        }
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Counts a buffer for as long as the answer is kept.
    pub(crate) fn buffer(&self, bytes: u64) -> Weight {
        Weight::of(&self.meter, Kind::Buffer, bytes)
    }

    /// Notes that a node was let go of, or was never read.
    pub(crate) fn node_is_absent(&self) {
        self.has_absent_nodes.store(true, Ordering::Relaxed);
    }

    /// Whether every node of the current trees has been in memory since the store was made.
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
        self.meter.bytes_of(Kind::Inner) > (self.room() - self.pinned_bytes()) / INNER_SHARE
    }

    /// Bytes of nodes, values and buffers in memory, and of what the allocator and slabs keep between them.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.meter.held() + self.pinned_bytes()
    }

    /// Bytes that are left free between values, as far as this store answers for them.
    fn pinned_bytes(&self) -> u64 {
        self.pinned.as_ref().map_or(0, Pinned::bytes)
    }

    /// Bytes that may be held: a little of the budget is left for small buffers.
    pub(crate) fn room(&self) -> u64 {
        room_of(self.memory_bytes)
    }

    /// Bytes beyond what may be held.
    pub(crate) fn excess(&self) -> u64 {
        self.held_bytes().saturating_sub(self.room())
    }

    /// Whether so many bytes more may be held.
    pub(crate) fn has_spare(&self, need: u64) -> bool {
        self.excess_with(need) == 0
    }

    /// The same of what this store itself holds, whatever others do.
    pub(crate) fn has_spare_of_its_own(&self, need: u64) -> bool {
        self.meter.held() + need <= self.room()
    }

    /// Bytes beyond what may be held, once `need` more are.
    pub(crate) fn excess_with(&self, need: u64) -> u64 {
        (self.held_bytes() + need).saturating_sub(self.room())
    }

    /// Whether there is so little room that what is in memory has to be worth it, or is to be treated so; not
    /// where all of the store is in memory.
    pub(crate) fn is_short(&self) -> bool {
        !self.is_all_resident() && (self.blind_puts || self.held_bytes() > self.room() / 2)
    }

    /// Whether `need` more bytes may be held, and written to: opening again after a crash brings back in one
    /// go what was changed since the last commit.
    pub(crate) fn has_room(&self, need: u64) -> bool {
        self.has_spare(need) && self.meter.replayed_bytes() <= self.room()
    }

    /// Whether so much of the memory cannot be let go of that a checkpoint should write it. What the last one
    /// could not write counts for nothing: the next one could not either.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        // It takes nothing from what is pinned.
        let room = self.room() - self.pinned_bytes();
        self.meter.unwritten_bytes() > room / 2
            && self.meter.newly_unwritten_bytes() > room / 4
            && self.meter.held() > room / 4 * 3
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
            // Each counts its owners where it lies.
            values.get(ENDING_AHEAD).into_iter().for_each(Piece::prefetch);
            drop(piece);
        }
    }
}

/// A check that runs.
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

    #[test]
    fn what_opening_would_bring_back_must_fit_though_it_was_let_go_of() {
        let backing = Backing::new(None, 1, 16_000);
        let leaf_of = |bytes| {
            let mut leaf = Counted::default();
            leaf.begin(backing.meter(), bytes, true);
            leaf
        };
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
