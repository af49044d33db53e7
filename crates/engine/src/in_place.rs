//! Puts, appends and deletes of one record in a leaf that stays where it is. Such writes do not wait for each
//! other.
//!
//! Such a write needs no other leaf and no change of shape, so it goes on while others do the same elsewhere.
//! It holds the latch of its leaf from before its group is in the log until the record is in the leaf, so the
//! changes of one leaf happen in the order of the log. Changes of two leaves may be seen in either order
//! while both are under way; a reader of more than one leaf takes the gate's *still* and sees the trees as
//! they are between two commits.
//!
//! The piece of a value that lies in the log is made before the latch is taken, so that only the group is
//! written under it. The pieces that leave the tree are noted together with the group, while the log is held.
//!
//! Invariant: what is decided here before the log is written cannot fail afterwards.
//! Invariant: what is decided under the latch holds until it is released, since nothing else writes into the
//! leaf.

use crate::EngineError;
use crate::amend::{Amending, Amendment};
use crate::batch::{Action, Op};
use crate::commit::{PlacedValue, Visible, Waiting, check_size, check_sizes};
use crate::forest::{Appended, Count, Forest, NewValue, TreeState, appended};
use crate::gate::Placing;
use crate::hot::HotKey;
use crate::leaf::{Full, HEAD_LINES, Leaf, SharedLeaf};
use crate::log::Chores;
use crate::node::Node;
use crate::planted::{self, Bug};
use crate::shared::{Shared, Writer};
use crate::threads::fence;
use crate::tree::HashedKey;
use crate::value::{Chain, Front, INLINE_BELOW, Piece, Stored, VALUE_MAX};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Values up to this many bytes are put in place: their groups are copied into the window of the log, which
/// takes about a microsecond. A lookup should not wait for the call that writes a longer value.
const IN_PLACE_VALUE_BYTES_MAX: usize = 8 << 10;

impl Shared {
    /// Commits a put, an append or a delete in place. Returns none, with nothing done, where that is not
    /// possible.
    pub(crate) fn write_in_place(&self, op: &Op<'_>, flush: bool) -> Result<Option<Visible>, EngineError> {
        match op.action {
            Action::Put(_, given) | Action::Append(_, given)
                if given.bytes().len() <= IN_PLACE_VALUE_BYTES_MAX => {}
            Action::Delete(_) => {}
            _ => return Ok(None),
        }
        check_sizes(std::slice::from_ref(op))?;
        Ok(self.change_record(op, flush)?.map(|done| self.after(done)))
    }

    /// The rest of a commit in place, once all locks are released.
    pub(crate) fn after(&self, done: InPlaceCommit) -> Visible {
        self.do_chores(done.chores);
        self.ask_if_due(done.waiting);
        done.left.iter().for_each(|chain| self.backing.has_left(chain));
        done.visible
    }

    fn change_record(&self, op: &Op<'_>, flush: bool) -> Result<Option<InPlaceCommit>, EngineError> {
        let Some(key) = op.action.key() else { return Ok(None) };
        let placing = self.writer.placing();
        self.check_writable()?;
        let forest = self.forest.read();
        let key = HashedKey::new(key);
        if !self.hot.is_empty() {
            self.hot.prefetch(&HotKey::of(op.tree, key.bytes));
        }
        let Some((tree, leaf)) = leaf_to_change(&forest, op.tree, key.bytes) else { return Ok(None) };
        // The first lines of the leaf are being fetched meanwhile.
        let (value, placed) = match op.action {
            Action::Put(_, given) | Action::Append(_, given) if given.bytes().len() < INLINE_BELOW => {
                (Some(NewValue::Inline(given.bytes())), None)
            }
            Action::Put(_, given) | Action::Append(_, given) => {
                let checksum = self.backing.checksum(given.bytes());
                // They have arrived: fetch the record while the value is copied.
                let slot = self.bring_record_nearer(leaf, &key);
                let placed = self.place_summed(given, checksum, forest.epoch, false)?;
                self.bring_chain_nearer(leaf, slot);
                (Some(placed.to_value()), Some(placed))
            }
            _ => (None, None),
        };
        let mut latched = leaf.latched(&self.latches, &placing);
        let Some(leaf) = latched.get_mut().filter(|leaf| is_ours(leaf, &forest)) else { return Ok(None) };
        // The previous holder of the latch may have left half of a change there.
        self.check_open()?;
        let at =
            RecordLocation { placing: &placing, forest: &forest, tree, place: leaf.locate(&key), leaf, key };
        self.change_at(at, op, value, placed, flush)
    }

    /// Shows the beginning of a key's value where it lies, and makes the change that `decide` then wants.
    pub(crate) fn amend_in_place<'c, const N: usize>(
        &self,
        tree: u32,
        key: &'c [u8],
        flush: bool,
        decide: impl FnOnce(Option<Front<N>>) -> Option<Amendment<'c>>,
    ) -> Result<Amending, EngineError> {
        let placing = self.writer.placing();
        self.check_writable()?;
        let forest = self.forest.read();
        let hashed = HashedKey::new(key);
        let Some((state, leaf)) = leaf_to_change(&forest, tree, key) else { return Ok(Amending::Unseen) };
        let mut latched = leaf.latched(&self.latches, &placing);
        let Some(leaf) = latched.get_mut().filter(|leaf| is_ours(leaf, &forest)) else {
            return Ok(Amending::Unseen);
        };
        self.check_open()?;
        let place = leaf.locate(&hashed);
        let front = place.ok().map(|slot| self.value_ref(leaf.value(slot), forest.epoch).front());
        if front == Some(None) {
            return Ok(Amending::Unseen);
        }
        let Some(action) = decide(front.flatten()).map(|change| change.of(key)) else {
            return Ok(Amending::Seen);
        };
        let op = Op { tree, action };
        let value = match action {
            Action::Put(_, given) | Action::Append(_, given) if given.bytes().len() < INLINE_BELOW => {
                Some(NewValue::Inline(given.bytes()))
            }
            Action::Delete(_) => None,
            _ => return Ok(Amending::Seen),
        };
        check_sizes(std::slice::from_ref(&op))?;
        let at = RecordLocation { placing: &placing, forest: &forest, tree: state, place, leaf, key: hashed };
        Ok(self.change_at(at, &op, value, None, flush)?.map_or(Amending::Seen, Amending::Committed))
    }

    /// Logs a change of a record and makes it. Returns none, with nothing done, if the leaf does not take it
    /// as it is.
    fn change_at(
        &self,
        at: RecordLocation<'_, '_>,
        op: &Op<'_>,
        value: Option<NewValue<'_>>,
        placed: Option<PlacedValue>,
        flush: bool,
    ) -> Result<Option<InPlaceCommit>, EngineError> {
        let RecordLocation { placing, forest, tree, leaf, place, key } = at;
        let is_append = matches!(op.action, Action::Append(..));
        let mut room = [0; INLINE_BELOW];
        let (edit, joined) = match value {
            Some(added) if is_append => self.append_to(leaf, key, place, &added, &mut room, forest.epoch)?,
            value => (Edit::of(leaf, key, place, value), None),
        };
        let Some(edit) = edit else { return Ok(None) };
        // Fetched while the log is written.
        edit.chain_that_goes(leaf).iter().for_each(|(old, _)| old.prefetch());
        let mut writer = placing.content();
        let in_log = self.log_ops(&mut writer, std::slice::from_ref(op), &[placed], flush)?;
        if let Some((old, new)) = edit.chain_that_goes(leaf) {
            // It is dropped once the locks are released.
            old.prefetch_owners();
            writer.retired.chain(old, new, forest.epoch);
        }
        joined.iter().for_each(|piece| writer.retired.piece(piece, forest.epoch));
        let (visible, waiting) = self.end_commit(&writer, &forest.sequence);
        let chores = writer.log.as_mut().map(|log| log.chores(&self.backing));
        drop(writer);
        // Pieces of a value that was appended to may be part of the new value.
        let left = edit.make(leaf, key, &tree.records, forest.epoch, |value| {
            if !self.hot.is_empty() && !planted::is(Bug::HotNotChanged) {
                self.hot.note_change(&HotKey::of(op.tree, key.bytes), value);
            }
        });
        in_log.done();
        let left = left.filter(|_| !is_append);
        // Fetched while locks are released.
        left.iter().for_each(Chain::prefetch_end_of_bytes);
        Ok(Some(InPlaceCommit { visible, waiting, chores, left }))
    }

    /// The edit that an append makes in its leaf, if the leaf takes it as it is, and the piece that it joined
    /// with others at once.
    fn append_to<'a>(
        &self,
        leaf: &mut Leaf,
        key: HashedKey<'_>,
        place: Result<usize, usize>,
        added: &NewValue<'a>,
        room: &'a mut [u8; INLINE_BELOW],
        epoch: u64,
    ) -> Result<(Option<Edit<'a>>, Option<Piece>), EngineError> {
        let length = place.map_or(0, |slot| leaf.value(slot).len());
        check_size("value", length + added.stored().len(), 0, VALUE_MAX)?;
        if let (Ok(slot), NewValue::Inline(bytes)) = (place, added)
            && leaf.can_grow(slot, epoch)
        {
            return Ok((Some(Edit::Grow(slot, bytes)), None));
        }
        let current = place.ok().map(|slot| leaf.value(slot));
        let (value, joined) = match appended(current, added, room, true, (&self.backing, epoch)) {
            Appended::Nothing => return Ok((None, None)),
            Appended::To(value) => (value, None),
            Appended::Joined(value, piece) => (value, Some(piece)),
        };
        Ok((Edit::at(place, leaf, key, value), joined))
    }

    /// Replaces the chain of a key by what `changed` makes of it in this epoch, where nothing changes but the
    /// place of its bytes. Returns whether there was anything to change; none, with nothing done, where that
    /// is not possible in place.
    pub(crate) fn replace_in_place(
        &self,
        tree: u32,
        key: &[u8],
        changed: impl FnOnce(&Chain, u64) -> Option<Chain>,
    ) -> Option<bool> {
        let placing = self.writer.placing();
        let forest = self.forest.read();
        let (_, leaf) = leaf_to_change(&forest, tree, key)?;
        let mut latched = leaf.latched(&self.latches, &placing);
        let leaf = latched.get_mut().filter(|leaf| is_ours(leaf, &forest))?;
        let Ok(slot) = leaf.locate(&HashedKey::new(key)) else { return Some(false) };
        let Stored::Chain(old) = leaf.value(slot) else { return Some(false) };
        let Some(new) = changed(old, forest.epoch) else { return Some(false) };
        placing.content().retired.chain(old, Some(&new), forest.epoch);
        if leaf.replace(slot, &Stored::Chain(&new)).is_err() {
            unreachable!("a chain takes the place of another");
        }
        Some(true)
    }
}

/// Whether a leaf of the current trees may be changed without noting it: it is newer than the last
/// checkpoint.
fn is_ours(leaf: &Leaf, forest: &Forest) -> bool {
    leaf.birth == forest.epoch && leaf.home.get().is_none()
}

/// The position of a record, present or absent, and what is held meanwhile.
struct RecordLocation<'a, 'l> {
    placing: &'a Placing<'a, Writer>,
    forest: &'a Forest,
    tree: &'a TreeState,
    leaf: &'l mut Leaf,
    place: Result<usize, usize>,
    key: HashedKey<'a>,
}

/// A commit in place.
pub(crate) struct InPlaceCommit {
    visible: Visible,
    /// What waits for a checkpoint, this commit included.
    waiting: Waiting,
    /// Work that the log left to this commit.
    chores: Option<Chores>,
    /// The chain that left the tree.
    left: Option<Chain>,
}

/// What a write in place does to its leaf.
enum Edit<'a> {
    Replace(usize, NewValue<'a>),
    Insert(usize, NewValue<'a>),
    Remove(usize),
    /// Adds bytes behind the last ones of the value.
    Grow(usize, &'a [u8]),
}

impl<'a> Edit<'a> {
    /// The edit, if the leaf takes it as it is; none for a delete of an absent record.
    fn of(
        leaf: &Leaf,
        key: HashedKey<'_>,
        place: Result<usize, usize>,
        value: Option<NewValue<'a>>,
    ) -> Option<Self> {
        match value {
            None => place.ok().filter(|&slot| leaf.spares(slot)).map(Self::Remove),
            Some(value) => Self::at(place, leaf, key, value),
        }
    }

    /// As [`Edit::of`], for a value at the place of its key.
    fn at(place: Result<usize, usize>, leaf: &Leaf, key: HashedKey<'_>, value: NewValue<'a>) -> Option<Self> {
        leaf.takes(place, key.bytes, &value.stored()).then_some(match place {
            Ok(slot) => Self::Replace(slot, value),
            Err(slot) => Self::Insert(slot, value),
        })
    }

    /// The chain that leaves the tree with this edit, and the chain that replaces it, which may share pieces
    /// with it.
    fn chain_that_goes<'l>(&'l self, leaf: &'l Leaf) -> Option<(&'l Chain, Option<&'l Chain>)> {
        match self {
            Self::Replace(slot, value) => Some((leaf.value(*slot).chain()?, value.stored().chain())),
            Self::Remove(slot) => Some((leaf.value(*slot).chain()?, None)),
            Self::Insert(..) | Self::Grow(..) => None,
        }
    }

    /// Makes the edit, and tells the inline value that the leaf has for the key afterwards. Returns the chain
    /// that left the tree.
    fn make(
        self,
        leaf: &mut Leaf,
        key: HashedKey<'_>,
        records: &Count,
        epoch: u64,
        tell: impl FnOnce(Option<&[u8]>),
    ) -> Option<Chain> {
        assert!(!planted::is(Bug::ChangePanics), "planted");
        let done = match &self {
            Self::Replace(slot, value) => leaf.replace(*slot, &value.stored()),
            Self::Insert(slot, value) => {
                leaf.insert_at(*slot, key.bytes, key.fingerprint, &value.stored()).map(|()| None)
            }
            Self::Remove(slot) => Ok(leaf.remove(*slot)),
            Self::Grow(slot, bytes) => {
                if leaf.grow(*slot, bytes, epoch) {
                    Ok(None)
                } else {
                    Err(Full)
                }
            }
        };
        let Ok(left) = done else { unreachable!("a leaf takes what it said it would") };
        tell(match &self {
            Self::Replace(_, NewValue::Inline(value)) | Self::Insert(_, NewValue::Inline(value)) => {
                Some(value)
            }
            _ => None,
        });
        match self {
            Self::Replace(..) | Self::Grow(..) => {}
            Self::Insert(..) => drop(records.add(1)),
            Self::Remove(_) => records.take_off(1),
        }
        left
    }
}

/// The leaf of `key`, if only the current tree leads to it and a change need note nothing on the path.
fn leaf_to_change<'f>(forest: &'f Forest, tree: u32, key: &[u8]) -> Option<(&'f TreeState, &'f SharedLeaf)> {
    let tree = forest.tree(tree)?;
    let mut slot = &tree.root;
    loop {
        match slot.get()? {
            Node::Inner(inner) => {
                if Arc::strong_count(inner) > 1 || inner.birth != forest.epoch || inner.home.get().is_some() {
                    return None;
                }
                // A thread that released this node may have owned one below it: the fence orders the load of
                // that node's count after this one. Whatever was released here was shared once, and its sole
                // owner now reads no more than the count.
                fence(Ordering::Acquire);
                slot = &inner.children[inner.child_of(key)];
            }
            Node::Leaf(leaf) => {
                leaf.prefetch(HEAD_LINES);
                return Some((tree, leaf));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::plant;
    use crate::{Durability, Engine, Options, Tree};
    use atoll_disk::MemoryDisk;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_change_that_panics_when_the_log_has_it_leaves_a_store_that_answers_nothing() {
        let disk: Arc<MemoryDisk> = Arc::default();
        let open = |disk: Arc<MemoryDisk>| {
            let engine = Engine::open(disk, Options { background: false, ..Options::default() }).unwrap();
            let tree = engine.tree("t").unwrap();
            (engine, tree)
        };
        let (engine, tree) = open(disk.clone());
        let put = |value: &[u8]| tree.put(b"key", value, Durability::Flushed);
        put(b"old").unwrap();
        plant(Some(Bug::ChangePanics));
        let ended = catch_unwind(AssertUnwindSafe(|| put(b"new")));
        plant(None);
        ended.unwrap_err();
        let is_broken = |error: EngineError| matches!(error, EngineError::Broken { .. });
        assert!(put(b"newer").is_err_and(is_broken));
        assert!(tree.get(b"key").is_err_and(is_broken));
        assert!(engine.close().is_err_and(is_broken));
        let (_engine, tree) = open(Arc::new(MemoryDisk::with_bytes(disk.to_bytes())));
        assert_eq!(*tree.get(b"key").unwrap().unwrap().to_buffer().unwrap(), *b"new");
    }

    /// Runs `waits` while another thread, which holds the latch of the leaf, panics in the middle of a
    /// change.
    fn behind_a_panic(waits: impl Fn(&Tree) -> Result<(), EngineError> + Sync) -> Result<(), EngineError> {
        let options = Options { background: false, hot_bytes: Some(0), ..Options::default() };
        let engine = Engine::open(Arc::new(MemoryDisk::default()), options).unwrap();
        let tree = engine.tree("t").unwrap();
        tree.put(b"key", b"old", Durability::Flushed).unwrap();
        let (go, going) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                go.wait();
                going.store(true, Ordering::Release);
                waits(&tree)
            });
            plant(Some(Bug::ChangePanics));
            let changed = catch_unwind(AssertUnwindSafe(|| {
                tree.amend::<8>(b"key", Durability::Flushed, |_| {
                    go.wait();
                    while !going.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    // The other thread reaches the latch meanwhile, or finds a broken store.
                    (0..1000).for_each(|_| std::thread::yield_now());
                    Some(Amendment::Put(b"new"))
                })
            }));
            plant(None);
            assert!(changed.is_err(), "no change was made");
            waiting.join().unwrap()
        })
    }

    #[test]
    fn who_waits_at_the_latch_of_a_change_that_panics_sees_nothing_of_it_and_writes_nothing_over_it() {
        let is_broken = |ended: Result<(), EngineError>| matches!(ended, Err(EngineError::Broken { .. }));
        for _ in 0..20 {
            assert!(is_broken(behind_a_panic(|tree| tree.get(b"key").map(drop))), "get");
            assert!(is_broken(behind_a_panic(|tree| tree.try_get(b"key").map(drop))), "try_get");
            let put = |tree: &Tree| tree.put(b"key", b"newer", Durability::Flushed).map(drop);
            assert!(is_broken(behind_a_panic(put)), "put");
            let amend = |tree: &Tree| {
                let change = |_| Some(Amendment::Put(b"newer"));
                tree.amend::<8>(b"key", Durability::Flushed, change).map(drop)
            };
            assert!(is_broken(behind_a_panic(amend)), "amend");
        }
    }
}
