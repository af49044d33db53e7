//! What all handles of one engine share, and the order in which its locks are taken.
//!
//! Order: `placing`, `checkpointing`, `writer`, `forest`, `latches`, `space`, `pins`; an earlier lock is
//! never taken while a later one is held. A placing write in the gate of `writer` takes the gate's content
//! after the latch. The weight of hot records is noted last of all. While the lock in `settled` is held, no
//! other is taken.

use crate::backing::{Backing, Reading};
use crate::broken::{Answering, Spoiled};
use crate::cleaning::{Fruitless, ResumePoint};
use crate::fence::{FenceWatch, Ownership};
use crate::forest::Forest;
use crate::full_disk::Settled;
use crate::gate::{CachePadded, Gate, Latches, Look};
use crate::hot::Hot;
use crate::leaf::{SLOT_LINES, SharedLeaf};
use crate::log::Log;
use crate::node::Node;
use crate::options::Options;
use crate::page;
use crate::pins::{Pin, Pins};
use crate::recovery::RecoveryReport;
use crate::retired::RetiredList;
use crate::revocable_disk::GivenUp;
use crate::room::Room;
use crate::search::{self, MissingNode, Sought};
use crate::sharded_lock::ShardedLock;
use crate::slot::Slot;
use crate::space::{Extent, Space};
use crate::superblock::Superblock;
use crate::sync::Syncer;
use crate::threads::{AtomicU64, AtomicUsize, Condvar, Mutex, RwLock};
use crate::value::Stored;
use crate::view::Views;
use crate::{Damage, EngineError};
use atoll_disk::Window;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
// Nothing waits for these counters, so their steps are none that a schedule has to order.
use std::sync::atomic::AtomicU64 as Counter;

/// Rounds in which a lookup reads for the trees, about as many as a tree of a terabyte has levels. Where a
/// writer puts something beside a missing leaf during each read, what was read is of no use to the trees.
/// After these rounds a lookup therefore reads for itself alone.
pub(crate) const ROUNDS_MAX: usize = 4;

/// What a lookup beside a leaf may bring in: two pages, and what is kept of them.
const SOUGHT_BYTES: u64 = 16 << 10;

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) backing: Arc<Backing>,
    /// Shared by writers that write large values ahead of their commit; closing waits for them.
    pub(crate) placing: RwLock<()>,
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) spoiled: Spoiled,
    pub(crate) writer: Gate<Writer>,
    pub(crate) forest: ShardedLock<Forest>,
    /// Latches of the leaves of the current trees, for concurrent readers and writers of one leaf.
    pub(crate) latches: Latches,
    /// Copies of frequently read records.
    pub(crate) hot: Hot,
    pub(crate) space: Mutex<Space>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) syncer: Syncer,
    /// Position up to which the log was handed to the disk.
    pub(crate) flushed: CachePadded<AtomicU64>,
    pub(crate) answering: Answering,
    /// Whether the disk belongs to another owner; it then takes no writes any more.
    pub(crate) is_given_up: GivenUp,
    /// The token of this owner, and where its store's fence is.
    pub(crate) ownership: Mutex<Ownership>,
    pub(crate) fence: Arc<FenceWatch>,
    pub(crate) recovery: RecoveryReport,
    pub(crate) nudge: Nudge,
    /// Wakes the thread that prepares log segments.
    pub(crate) log_nudge: Nudge,
    /// A window on the segment that is ready, and one that has ended, for that thread to unmap.
    pub(crate) window_ahead: Mutex<Option<Window>>,
    pub(crate) window_former: Mutex<Option<Window>>,
    /// Searching for leaves to evict is known to be futile while fewer bytes than this are held.
    pub(crate) evict_above: AtomicU64,
    /// Past states that readers hold.
    pub(crate) views: Views,
    /// Whether another checkpoint would free nothing.
    pub(crate) settled: Settled,
    /// Where the next search for leaves to evict begins.
    pub(crate) turn: AtomicUsize,
    pub(crate) room: Room,
    /// Place of the table of the last commit.
    pub(crate) table: Mutex<Option<Extent>>,
    /// Contents of both superblocks; none after a commit that failed half-way.
    pub(crate) committed: Mutex<Option<Superblock>>,
    /// Features that the next superblock names, and those that both copies on disk name.
    pub(crate) features: AtomicU64,
    pub(crate) features_noted: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) segments_cleaned: AtomicU64,
    pub(crate) values_moved: AtomicU64,
    pub(crate) second_pages: Counter,
    pub(crate) leaves_merged: Counter,
    /// Log segments, by offset, from which nothing could be moved.
    pub(crate) fruitless: Mutex<BTreeMap<u64, Fruitless>>,
    /// Where cleaning stopped in long segments from which something was moved.
    pub(crate) resume_points: Mutex<BTreeMap<u64, ResumePoint>>,
    /// The copy of the superblock that was written last, which may be damaged if that write failed.
    pub(crate) doubtful_copy: AtomicUsize,
}

/// Epochs whose first log segment is known.
const EPOCHS_KEPT: usize = 1024;

/// State that only the writer touches.
pub(crate) struct Writer {
    /// None for a store in memory or one that is open for reading.
    pub(crate) log: Option<Log>,
    pub(crate) retired: RetiredList,
    /// Position of the log at the last checkpoint.
    pub(crate) checkpointed: u64,
    /// Bytes of the large values that the log has named since then.
    pub(crate) placed_bytes: u64,
    /// The log's segment at the beginning of each epoch, oldest first and without gaps: of the one in which
    /// the store was opened, and of each since then.
    pub(crate) epochs: VecDeque<(u64, u64)>,
}

impl Writer {
    /// For a store in memory.
    pub(crate) fn without_log() -> Self {
        Self {
            log: None,
            retired: RetiredList::default(),
            checkpointed: 0,
            placed_bytes: 0,
            epochs: VecDeque::new(),
        }
    }

    /// Notes that an epoch begins.
    pub(crate) fn note_epoch(&mut self, epoch: u64, log_number: u64) {
        if self.epochs.len() == EPOCHS_KEPT {
            self.epochs.pop_front();
        }
        self.epochs.push_back((epoch, log_number));
    }

    /// The log's segment at the end of `epoch`, or now if it has not ended; values of this epoch lie in no
    /// later one. None for an epoch whose end is not known, because it is too long ago or the store was
    /// opened since: the segment of any later moment would be one of values that are newer.
    pub(crate) fn last_segment_of(&self, epoch: u64) -> Option<u64> {
        match self.epochs.iter().find(|(began, _)| *began > epoch) {
            Some(&(began, number)) => (began == epoch + 1).then_some(number),
            None => self.log.as_ref().map(|log| log.point().number),
        }
    }
}

/// Wakes a background thread.
#[derive(Default)]
pub(crate) struct Nudge {
    pub(crate) wanted: Mutex<Wanted>,
    pub(crate) changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    Nothing,
    Checkpoint,
    Segment,
    Exit,
}

impl Nudge {
    pub(crate) fn ask(&self, wanted: Wanted) {
        let mut current = self.wanted.lock();
        if *current != Wanted::Exit {
            *current = wanted;
            self.changed.notify_all();
        }
    }

    /// Waits until something is wanted.
    pub(crate) fn wait(&self) -> Wanted {
        let mut wanted = self.wanted.lock();
        while *wanted == Wanted::Nothing {
            self.changed.wait(&mut wanted);
        }
        if *wanted == Wanted::Exit { Wanted::Exit } else { std::mem::take(&mut *wanted) }
    }
}

impl Shared {
    /// A store with these trees and an empty file.
    pub(crate) fn new(
        options: Options,
        backing: Arc<Backing>,
        writer: Writer,
        forest: Forest,
        recovery: RecoveryReport,
    ) -> Self {
        let hot = Hot::new(options.hot_bytes, options.memory_bytes, backing.meter());
        Self {
            hot,
            options,
            backing,
            placing: RwLock::new(()),
            checkpointing: Mutex::new(()),
            spoiled: Spoiled::default(),
            writer: Gate::new(writer),
            forest: ShardedLock::new(forest),
            latches: Latches::default(),
            space: Mutex::default(),
            pins: Arc::default(),
            syncer: Syncer::default(),
            flushed: CachePadded(AtomicU64::new(0)),
            answering: Answering::default(),
            is_given_up: Arc::default(),
            ownership: Mutex::default(),
            fence: Arc::default(),
            recovery,
            nudge: Nudge::default(),
            log_nudge: Nudge::default(),
            window_ahead: Mutex::new(None),
            window_former: Mutex::new(None),
            table: Mutex::new(None),
            committed: Mutex::new(None),
            features: AtomicU64::new(0),
            features_noted: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            segments_cleaned: AtomicU64::new(0),
            values_moved: AtomicU64::new(0),
            second_pages: Counter::new(0),
            leaves_merged: Counter::new(0),
            fruitless: Mutex::default(),
            resume_points: Mutex::default(),
            doubtful_copy: AtomicUsize::new(0),
            evict_above: AtomicU64::new(0),
            views: Views::default(),
            settled: Settled::default(),
            turn: AtomicUsize::new(0),
            room: Room::default(),
        }
    }

    /// Fails if the engine was closed, or broke because a write failed after its group was in the log.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<(), EngineError> {
        if self.answering.is_on() { Ok(()) } else { Err(self.answering.refusal(self.backing.name())) }
    }

    /// Fails if nothing may be written.
    pub(crate) fn check_writable(&self) -> Result<(), EngineError> {
        self.check_open()?;
        if self.options.read_only {
            return Err(EngineError::ReadOnly { store: self.backing.name() });
        }
        if self.backing.disk().is_some() && self.syncer.is_poisoned() {
            return Err(self.of_failed_sync());
        }
        Ok(())
    }

    /// Reads a missing node of the current trees into its place. `pin` keeps its page from being reused.
    ///
    /// Room is made afterwards, when nothing here holds a node any more, and the node just read is not the
    /// one that is evicted. If a leaf cannot be read, the records beside it are read instead, so that the
    /// caller looks there once more; the next attempt returns the error.
    pub(crate) fn load_missing(&self, tree: u32, missing: MissingNode, pin: Pin) -> Result<(), EngineError> {
        match self.load_into_place(tree, &missing) {
            Err(error) if error.is_damage() && missing.bring_in_beside(&self.backing) => {}
            loaded => loaded?,
        }
        drop((missing, pin));
        self.make_room();
        Ok(())
    }

    /// A reader holds neither a lock nor a node of the trees during the read: writers go on in place, and
    /// what was read is handed over to whichever slot has its place then.
    fn load_into_place(&self, tree: u32, missing: &MissingNode) -> Result<(), EngineError> {
        let is_there =
            self.at_place_of(tree, missing, |slot| slot.get().inspect(|node| self.note_use(node)).is_some());
        if is_there == Some(false) {
            let node = missing.slot.read(Reading::One, &self.backing)?;
            self.hand_over(tree, missing, node);
        }
        Ok(())
    }

    /// Puts a missing node, just read, into its place in the current trees. Does nothing if that was filled
    /// or is to be read otherwise since.
    fn hand_over(&self, tree: u32, missing: &MissingNode, node: Node) {
        self.at_place_of(tree, missing, |slot| {
            if let Some(node) = slot.take_over(&missing.slot, node) {
                self.note_use(node);
            }
        });
    }

    /// Shows the slot of the current trees that has the place of a missing node, or that of the first one
    /// below it that is not in memory.
    fn at_place_of<R>(&self, tree: u32, missing: &MissingNode, show: impl FnOnce(&Slot) -> R) -> Option<R> {
        let forest = self.forest.read();
        forest.tree(tree).map(|state| show(search::slot_of(&state.root, &missing.key)))
    }

    /// Reads the leaf of a missing node's key for one lookup alone, if there is no room for it or the lookup
    /// `insists`; none where it should be loaded. A lookup that insists gets the leaf also where a node above
    /// it is missing. The leaf is as it was when the lookup found the node missing.
    pub(crate) fn leaf_apart(
        &self,
        tree: u32,
        missing: &MissingNode,
        insists: bool,
    ) -> Result<Option<SharedLeaf>, EngineError> {
        if missing.is_root() || !insists && self.backing.excess() == 0 {
            return Ok(None);
        }
        let read = if insists {
            missing.slot.read_leaf(&missing.key, &self.backing).map(Node::Leaf)
        } else {
            missing.slot.read_once(Reading::One, &self.backing)
        };
        match read {
            Ok(Node::Leaf(leaf)) => {
                self.read_in_vain();
                Ok(Some(leaf))
            }
            // Small, and on the path to everything below it.
            Ok(inner) => {
                self.hand_over(tree, missing, inner);
                Ok(None)
            }
            // Loading it will find the same, and look beside it.
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where memory is short and a missing leaf has records beside it on disk: reads those records, if the
    /// key may be among them, or else the leaf without them. That is one read, and only the record that was
    /// looked up stays in memory.
    pub(crate) fn find_apart(&self, tree: u32, missing: &MissingNode) -> Result<Sought, EngineError> {
        let (backing, key) = (&self.backing, &*missing.key);
        if missing.is_root() || !backing.is_short() || !backing.has_spare(SOUGHT_BYTES) {
            return Ok(Sought::Elsewhere);
        }
        // While there is room for leaves, a leaf that lies on a single page is worth its memory.
        let needs_second = backing.has_spare(backing.room() / 16);
        let Some((delta, home)) = missing.slot.apart(needs_second, backing) else {
            return Ok(Sought::Elsewhere);
        };
        if delta.has_seen_much(&home) {
            return Ok(Sought::Elsewhere);
        }
        if delta.bring_in_for(key, &home, backing)? {
            return Ok(Sought::Nearer);
        }
        let leaf = match page::read(&home.page, missing.level, Reading::One, backing)? {
            Node::Leaf(leaf) => leaf,
            // Inner nodes are few, and stay.
            inner if home.delta.is_none() => {
                self.hand_over(tree, missing, inner);
                return Ok(Sought::Nearer);
            }
            Node::Inner(_) => return Err(backing.corrupt(home.page.offset, Damage::PageContent)),
        };
        match leaf.value_of(key) {
            Some(Stored::Inline(value)) => delta.note_seen(key, value),
            // There is no record to keep by itself: the leaf stays, if it has no second page.
            _ if home.delta.is_none() => {
                self.hand_over(tree, missing, Node::Leaf(leaf));
                return Ok(Sought::Nearer);
            }
            _ => {}
        }
        self.read_in_vain();
        Ok(Sought::In(leaf))
    }

    /// Keeps writers from a leaf of the current trees, whose first lines are prefetched.
    #[inline]
    pub(crate) fn latch(&self, leaf: &SharedLeaf) -> Look<'_> {
        leaf.prefetch(SLOT_LINES);
        self.latches.of(leaf.address()).look()
    }

    fn note_use(&self, node: &Node) {
        if let Node::Leaf(leaf) = node {
            let _latch = self.latch(leaf);
            leaf.counted.note_use();
        }
    }

    /// The node of a slot that does not change while it is read.
    pub(crate) fn load_slot(&self, slot: &Slot) -> Result<Node, EngineError> {
        // Leaves that a long scan reads beyond the budget are not kept. Nor are the inner nodes on the way,
        // of which each view has its own, once those fill the memory.
        let excess = self.backing.excess();
        if excess > self.options.memory_bytes / 32 {
            return slot.look_at(Reading::Along, &self.backing);
        }
        if excess > 0 {
            return slot.read_apart(Reading::Along, &self.backing);
        }
        slot.load(Reading::Along, &self.backing).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::Writer;

    #[test]
    fn the_last_segment_of_an_epoch_is_known_only_if_its_end_is() {
        let mut writer = Writer::without_log();
        [(5, 50), (6, 60), (7, 70)].into_iter().for_each(|(epoch, number)| writer.note_epoch(epoch, number));
        let found = [1, 3, 4, 5, 6].map(|epoch| writer.last_segment_of(epoch));
        assert_eq!(found, [None, None, Some(50), Some(60), Some(70)]);
    }
}
