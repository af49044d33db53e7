//! The meter: how many bytes of memory an engine holds, whichever part holds them.
//!
//! A node counts from its creation to its end, whether the current trees, a snapshot or a running checkpoint
//! has it. So do pieces of values that are not on disk yet, lists that a checkpoint empties, and large
//! buffers.
//!
//! Invariant: what was added is taken off exactly once, with its last owner.

use std::cmp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Bytes in memory, and how many of them only a checkpoint can release.
#[derive(Default)]
pub(crate) struct Meter {
    leaves: AtomicU64,
    /// Bytes of everything else, by [`Kind`].
    others: [AtomicU64; KINDS],
    /// Recent peak of the bytes of small things; see [`Meter::held`].
    small_most: AtomicU64,
    /// Peak of all bytes.
    most: AtomicU64,
    unwritten: AtomicU64,
    /// Bytes of leaves and deltas written since the last commit on disk: replaying the log would bring them
    /// back.
    settled: AtomicU64,
    /// [`Meter::unwritten_bytes`] when the last checkpoint ended.
    left_unwritten: AtomicU64,
}

/// What is counted apart from leaves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Inner nodes, which stay for as long as they leave room for others.
    Inner,
    /// What a checkpoint writes or empties: pieces of values without a home, and the lists of what left the
    /// trees.
    Waiting,
    /// Temporary buffers.
    #[default]
    Buffer,
    /// Values that could be read back.
    Value,
    /// Records beside leaves that could be read back.
    Beside,
}

const KINDS: usize = 5;

impl Meter {
    pub(crate) fn leaf_bytes(&self) -> u64 {
        self.leaves.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_of(&self, kind: Kind) -> u64 {
        self.others[kind as usize].load(Ordering::Relaxed)
    }

    /// Bytes of everything that is counted here.
    pub(crate) fn bytes(&self) -> u64 {
        self.leaf_bytes() + self.others.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u64>()
    }

    /// As [`Meter::bytes`], with the recent peak of small things: where hundreds of thousands of them lay, an
    /// allocator keeps the gaps, which later small things fill and leaves do not.
    pub(crate) fn held(&self) -> u64 {
        let small = self.small();
        self.bytes() + self.small_most.load(Ordering::Relaxed).saturating_sub(small)
    }

    fn small(&self) -> u64 {
        [Kind::Inner, Kind::Waiting, Kind::Beside].map(|kind| self.bytes_of(kind)).iter().sum()
    }

    /// Assumes that one in `parts` of the gaps between small things has closed.
    pub(crate) fn gaps_close(&self, parts: u64) {
        let closed = |most: u64| Some(most - most.saturating_sub(self.small()) / parts);
        let _ = self.small_most.fetch_update(Ordering::Relaxed, Ordering::Relaxed, closed);
    }

    /// Peak of [`Meter::bytes`].
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    fn grew(&self) {
        let bytes = self.bytes();
        if bytes > self.most_bytes() {
            self.most.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that cannot be read back yet.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// The part of [`Meter::unwritten_bytes`] that is leaves.
    pub(crate) fn unwritten_leaf_bytes(&self) -> u64 {
        // Read one after the other while writers go on: the difference may be off by what they change.
        self.unwritten_bytes().saturating_sub(self.bytes_of(Kind::Waiting))
    }

    /// Bytes that became unwritten since the last checkpoint ended.
    pub(crate) fn newly_unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes().saturating_sub(self.left_unwritten.load(Ordering::Relaxed))
    }

    /// Bytes that replaying the log would make: everything unwritten, and everything written since the last
    /// commit.
    pub(crate) fn replayed_bytes(&self) -> u64 {
        self.unwritten_bytes() + self.settled.load(Ordering::Relaxed)
    }

    /// Notes that a running checkpoint wrote this many bytes besides leaves.
    pub(crate) fn was_written(&self, bytes: u64) {
        self.settled.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that a checkpoint ended, with a commit on disk if `committed`.
    pub(crate) fn checkpoint_ended(&self, committed: bool) {
        self.left_unwritten.store(self.unwritten_bytes(), Ordering::Relaxed);
        if committed {
            self.settled.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, kind: Kind, bytes: u64) {
        self.others[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        if kind == Kind::Waiting {
            self.unwritten.fetch_add(bytes, Ordering::Relaxed);
        }
        if matches!(kind, Kind::Inner | Kind::Waiting | Kind::Beside) {
            let small = self.small();
            if small > self.small_most.load(Ordering::Relaxed) {
                self.small_most.fetch_max(small, Ordering::Relaxed);
            }
        }
        self.grew();
    }

    pub(crate) fn take_off(&self, kind: Kind, bytes: u64) {
        self.others[kind as usize].fetch_sub(bytes, Ordering::Relaxed);
        if kind == Kind::Waiting {
            self.unwritten.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Bytes of one kind that one owner accounts for; none until it is given a meter.
#[derive(Default)]
pub(crate) struct Weight {
    meter: Option<Arc<Meter>>,
    kind: Kind,
    bytes: u64,
}

impl Weight {
    pub(crate) fn of(meter: &Arc<Meter>, kind: Kind, bytes: u64) -> Self {
        meter.add(kind, bytes);
        Self { meter: Some(Arc::clone(meter)), kind, bytes }
    }

    /// Another weight of the same size, kind and meter.
    pub(crate) fn beside(&self) -> Self {
        match &self.meter {
            Some(meter) => Self::of(meter, self.kind, self.bytes),
            None => Self::default(),
        }
    }

    /// An empty weight of the same kind and meter.
    pub(crate) fn empty_beside(&self) -> Self {
        Self { meter: self.meter.clone(), kind: self.kind, bytes: 0 }
    }

    /// Counts as another kind from here on.
    pub(crate) fn turned_into(mut self, kind: Kind) -> Self {
        if let Some(meter) = &self.meter {
            meter.take_off(self.kind, self.bytes);
            meter.add(kind, self.bytes);
        }
        self.kind = kind;
        self
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn set(&mut self, bytes: u64) {
        let Some(meter) = &self.meter else { return };
        match bytes.cmp(&self.bytes) {
            cmp::Ordering::Greater => meter.add(self.kind, bytes - self.bytes),
            cmp::Ordering::Less => meter.take_off(self.kind, self.bytes - bytes),
            cmp::Ordering::Equal => {}
        }
        self.bytes = bytes;
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.take_off(self.kind, self.bytes);
        }
    }
}

/// The bytes that one leaf counts for; none until it is given a meter.
#[derive(Default)]
pub(crate) struct Counted {
    meter: Option<Arc<Meter>>,
    bytes: AtomicU32,
    is_unwritten: AtomicBool,
    /// Whether the leaf was read since the last scan for leaves to evict.
    was_used: AtomicBool,
}

impl Counted {
    /// Starts counting `bytes`.
    pub(crate) fn begin(&mut self, meter: &Arc<Meter>, bytes: usize, is_unwritten: bool) {
        debug_assert!(self.meter.is_none(), "a leaf counts once");
        self.meter = Some(Arc::clone(meter));
        self.grow(bytes);
        self.set_unwritten(is_unwritten);
    }

    /// As [`Counted::begin`], on the meter of another leaf, for a copy of that leaf.
    pub(crate) fn begin_beside(&mut self, other: &Self) {
        if let Some(meter) = &other.meter {
            self.begin(meter, other.bytes() as usize, true);
        }
    }

    /// The bytes it counts for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).into()
    }

    /// Counts more.
    pub(crate) fn grow(&self, bytes: usize) {
        if let Some(meter) = &self.meter {
            self.bytes.fetch_add(bytes as u32, Ordering::Relaxed);
            meter.leaves.fetch_add(bytes as u64, Ordering::Relaxed);
            meter.grew();
            if self.is_unwritten.load(Ordering::Relaxed) {
                meter.unwritten.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }

    /// Counts less.
    pub(crate) fn shrink(&self, bytes: usize) {
        if let Some(meter) = &self.meter {
            self.bytes.fetch_sub(bytes as u32, Ordering::Relaxed);
            meter.leaves.fetch_sub(bytes as u64, Ordering::Relaxed);
            if self.is_unwritten.load(Ordering::Relaxed) {
                meter.unwritten.fetch_sub(bytes as u64, Ordering::Relaxed);
            }
        }
    }

    /// Notes whether the leaf cannot be read back. Only one thread at a time calls this: the writer while it
    /// owns the leaf, or the checkpoint that wrote it.
    pub(crate) fn set_unwritten(&self, is_unwritten: bool) {
        let Some(meter) = &self.meter else { return };
        match (self.is_unwritten.swap(is_unwritten, Ordering::Relaxed), is_unwritten) {
            (false, true) => meter.unwritten.fetch_add(self.bytes(), Ordering::Relaxed),
            (true, false) => meter.unwritten.fetch_sub(self.bytes(), Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Notes that a running checkpoint wrote the leaf.
    pub(crate) fn settle(&self) {
        self.set_unwritten(false);
        if let Some(meter) = &self.meter {
            meter.settled.fetch_add(self.bytes(), Ordering::Relaxed);
        }
    }

    /// Notes that the leaf was read. Written only if that changes the flag, so that readers share the cache
    /// line.
    #[inline]
    pub(crate) fn note_use(&self) {
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the leaf was read since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set_unwritten(false);
        if let Some(meter) = &self.meter {
            meter.leaves.fetch_sub(self.bytes(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_taken_off_with_its_end_written_or_not() {
        let meter = Arc::new(Meter::default());
        let mut first = Counted::default();
        first.begin(&meter, 100, true);
        first.grow(50);
        first.shrink(30);
        let mut copy = Counted::default();
        copy.begin_beside(&first);
        first.set_unwritten(false);
        assert_eq!((meter.leaf_bytes(), meter.unwritten_bytes()), (240, 120));
        first.set_unwritten(true);
        drop(copy);
        assert_eq!((meter.leaf_bytes(), meter.unwritten_bytes()), (120, 120));
        drop(first);
        assert_eq!((meter.leaf_bytes(), meter.unwritten_bytes()), (0, 0));
    }

    #[test]
    fn a_leaf_that_was_written_would_be_replayed_until_the_commit_is_on_disk() {
        let meter = Arc::new(Meter::default());
        let mut leaf = Counted::default();
        leaf.begin(&meter, 100, true);
        leaf.settle();
        assert_eq!((meter.unwritten_bytes(), meter.replayed_bytes()), (0, 100));
        meter.checkpoint_ended(false);
        assert_eq!(meter.replayed_bytes(), 100);
        meter.checkpoint_ended(true);
        assert_eq!(meter.replayed_bytes(), 0);
    }

    #[test]
    fn gaps_between_small_things_are_held_until_they_close() {
        let meter = Arc::new(Meter::default());
        let (records, waiting) =
            (Weight::of(&meter, Kind::Beside, 600), Weight::of(&meter, Kind::Waiting, 200));
        let value = Weight::of(&meter, Kind::Value, 5000);
        drop((records, value));
        assert_eq!((meter.bytes(), meter.held()), (200, 800), "what is long leaves no gaps");
        let inner = Weight::of(&meter, Kind::Inner, 500);
        assert_eq!((meter.bytes(), meter.held()), (700, 800), "what comes fills them");
        meter.gaps_close(4);
        assert_eq!(meter.held(), 775);
        drop((inner, waiting));
        (0..1000).for_each(|_| meter.gaps_close(2));
        assert!(meter.held() <= 1, "{}", meter.held());
    }

    #[test]
    fn weights_count_what_they_were_set_to_last() {
        let meter = Arc::new(Meter::default());
        let mut first = Weight::of(&meter, Kind::Waiting, 100);
        let second = first.beside();
        first.set(30);
        assert_eq!((meter.bytes(), meter.unwritten_bytes()), (130, 130));
        drop(second);
        let third = Weight::of(&meter, Kind::Inner, 7);
        assert_eq!((meter.bytes(), meter.bytes_of(Kind::Inner), meter.unwritten_bytes()), (37, 7, 30));
        drop((first, third));
        assert_eq!((meter.bytes(), meter.unwritten_bytes()), (0, 0));
    }

    #[test]
    fn use_is_told_once() {
        let counted = Counted::default();
        assert!(!counted.take_use());
        counted.note_use();
        assert!(counted.take_use() && !counted.take_use());
    }
}
