//! All trees of a store at one moment, and the changes that a commit makes to them.
//!
//! Invariant: a change is applied only after its group is part of the log.

use crate::backing::{Backing, Reading};
use crate::frames;
use crate::leaf::Leaf;
use crate::node::{Node, common_prefix, head_of};
use crate::prefetch::prefetch;
use crate::ranges::empty_root;
use crate::retired::RetiredList;
use crate::search;
use crate::slot::Slot;
use crate::tree::{self, Edit, HashedKey, Run};
use crate::value::{Added, Chain, INLINE_BELOW, Piece, Stored};
use crate::visit::{Direction, Range, Visit};
use crate::{Damage, EngineError};
use atoll_buffer::Buffer;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is changed by whoever may, also while others look.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn of(count: u64) -> Self {
        Self(AtomicU64::new(count))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// What it is then.
    pub(crate) fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }

    pub(crate) fn take_off(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

impl Clone for Count {
    fn clone(&self) -> Self {
        Self::of(self.get())
    }
}

/// One tree: its root, and how many records it holds, if that is known; see [`crate::count`].
#[derive(Clone)]
pub(crate) struct TreeState {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) root: Slot,
    pub(crate) records: Count,
    pub(crate) is_counted: bool,
    /// Grows with everything that makes a count which began before useless.
    pub(crate) count_round: u64,
}

/// A named snapshot: all trees as they were.
#[derive(Clone)]
pub(crate) struct NamedSnapshot {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) trees: Vec<TreeState>,
}

/// What became of a change that was made as far as could be.
#[derive(Clone, Copy, Default)]
pub(crate) struct Salvaged {
    /// Leaves, or nodes above them, that are lost since.
    pub(crate) lost: u64,
    /// Whether it met something that cannot be read.
    pub(crate) met_damage: bool,
}

/// All trees, at one moment.
#[derive(Clone, Default)]
pub(crate) struct Forest {
    pub(crate) epoch: u64,
    /// Sequence of the last commit applied.
    pub(crate) sequence: Count,
    pub(crate) trees: Vec<TreeState>,
    pub(crate) snapshots: Vec<NamedSnapshot>,
}

impl Drop for Forest {
    fn drop(&mut self) {
        let _ending = frames::ending();
        self.trees.clear();
        self.snapshots.clear();
    }
}

/// A value to be stored: small bytes, or a chain of one piece that knows or will know its home.
#[derive(Clone)]
pub(crate) enum NewValue<'a> {
    Inline(&'a [u8]),
    Chain(Chain),
}

impl NewValue<'_> {
    pub(crate) fn piece(piece: Piece) -> Self {
        Self::Chain(Chain::One(piece))
    }

    pub(crate) fn stored(&self) -> Stored<'_> {
        match self {
            Self::Inline(bytes) => Stored::Inline(bytes),
            Self::Chain(chain) => Stored::Chain(chain),
        }
    }
}

/// A change that is ready to be applied.
pub(crate) enum Change<'a> {
    Put(&'a [u8], NewValue<'a>),
    Append(&'a [u8], NewValue<'a>),
    Delete(&'a [u8]),
    DeleteRange(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl Change<'_> {
    /// Brings the key and a small value nearer: in a log that is replayed in key order they lie far apart.
    fn prefetch(&self) {
        if let Self::Put(key, value) = self {
            prefetch(key.as_ptr(), 1);
            if let NewValue::Inline(bytes) = value {
                prefetch(bytes.as_ptr(), bytes.len().div_ceil(64));
            }
        }
    }

    fn is_put(&self) -> bool {
        matches!(self, Self::Put(..))
    }

    /// The one key that it touches.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put(key, _) | Self::Append(key, _) | Self::Delete(key) => Some(key),
            Self::DeleteRange(..) => None,
        }
    }
}

/// Keys that a range delete removes between two looks at the tree.
const RANGE_STEP: usize = 1024;

impl Forest {
    pub(crate) fn tree(&self, id: u32) -> Option<&TreeState> {
        self.trees.get(id as usize)
    }

    /// Adds an empty tree; trees are numbered in the order of their making.
    pub(crate) fn add_tree(&mut self, name: &str, backing: &Backing) -> u32 {
        let id = self.trees.len() as u32;
        let (name, root) = (name.to_owned(), empty_root(self.epoch, backing));
        let (records, is_counted, count_round) = (Count::default(), true, 0);
        self.trees.push(TreeState { id, name, root, records, is_counted, count_round });
        id
    }

    pub(crate) fn add_snapshot(&mut self, name: &str) {
        let (epoch, sequence, trees) = (self.epoch, self.sequence.get(), self.trees.clone());
        self.snapshots.push(NamedSnapshot { name: name.to_owned(), epoch, sequence, trees });
    }

    /// Lets go of the nodes of named snapshots that can be read back; for the caller to drop outside the lock.
    pub(crate) fn let_go_of_snapshots(&mut self) -> Vec<Slot> {
        let trees = self.snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.trees);
        trees.filter_map(|tree| tree.root.replaced_by_home()).collect()
    }

    pub(crate) fn remove_snapshot(&mut self, name: &str) {
        self.snapshots.retain(|snapshot| snapshot.name != name);
    }

    /// Reads what a change needs to see before it is applied.
    pub(crate) fn load_for(
        &self,
        tree: u32,
        change: &Change<'_>,
        backing: &Backing,
    ) -> Result<(), EngineError> {
        let Some(state) = self.tree(tree) else { return Ok(()) };
        match change {
            // Goes beside its leaf, or is looked at when it is applied.
            Change::Put(..) if backing.is_short() => Ok(()),
            Change::Put(key, _) | Change::Append(key, _) | Change::Delete(key) => {
                load_leaf(&state.root, key, backing)
            }
            // Reads what it needs itself, a few leaves at a time.
            Change::DeleteRange(..) => Ok(()),
        }
    }

    /// As [`Forest::load_for`], where the leaf of a small put may be one that cannot be read: the record goes beside it then.
    /// Whether that is so.
    pub(crate) fn load_if_whole(
        &mut self,
        (tree, change): &(u32, Change<'_>),
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<bool, EngineError> {
        let Change::Put(key, NewValue::Inline(_)) = change else {
            return self.load_for(*tree, change, backing).map(|()| false);
        };
        let Some(state) = self.trees.get_mut(*tree as usize) else { return Ok(false) };
        // Where memory is short the leaf is not read, if it is known to be one.
        let loaded = if backing.is_short() && search::is_leaf_known(&state.root, key) {
            Ok(())
        } else {
            load_leaf(&state.root, key, backing)
        };
        let error = match loaded {
            Err(error) if error.is_damage() => error,
            loaded => return loaded.map(|()| false),
        };
        let mut edit = Edit::new(self.epoch, backing, retired);
        if tree::learn_leaves(&mut state.root, key, &mut edit)? { Ok(true) } else { Err(error) }
    }

    /// Makes a change as far as what it touches can be read. Of the rest only what the log has of values is known from then on:
    /// nobody knows what else would be there after the change.
    pub(crate) fn salvage(
        &mut self,
        change: &(u32, Change<'_>),
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<Salvaged, EngineError> {
        let made = self.load_if_whole(change, backing, retired).and_then(|is_beside| {
            self.replay(std::slice::from_ref(change), backing, retired)?;
            Ok(Salvaged { lost: 0, met_damage: is_beside })
        });
        let error = match made {
            Err(error) if error.is_damage() => error,
            made => return made,
        };
        let mut edit = Edit::new(self.epoch, backing, retired).salvaging();
        let Some(state) = self.trees.get_mut(change.0 as usize) else { return Ok(Salvaged::default()) };
        state.is_not_counted();
        match &change.1 {
            Change::Put(key, _) | Change::Append(key, _) | Change::Delete(key) => {
                tree::lose(&mut state.root, (Bound::Included(key), Bound::Included(key)), &mut edit)?;
                if !search::slot_of(&state.root, key).is_lost() {
                    // What could not be read a moment ago can be now.
                    let made = self.replay(std::slice::from_ref(change), backing, retired);
                    return made.map(|()| Salvaged { lost: 0, met_damage: true });
                }
                if let Change::Put(_, value) = &change.1 {
                    tree::put_beside_lost(&mut state.root, key, &value.stored(), &mut edit)?;
                }
            }
            Change::DeleteRange(from, to) => {
                tree::lose(&mut state.root, (*from, *to), &mut edit)?;
                state.delete_range(*from, *to, true, &mut edit)?;
            }
        }
        if edit.lost > 0 {
            let (store, tree) = (backing.name(), &state.name);
            tracing::warn!(store, tree, %error, "the log changes what cannot be read; of that nothing is shown but what was put since");
        }
        Ok(Salvaged { lost: edit.lost, met_damage: true })
    }

    /// Sets the chain of a key that has one, without any trace of a change but where its bytes lie.
    pub(crate) fn replace(
        &mut self,
        tree: u32,
        key: &[u8],
        chain: &Chain,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let mut edit = Edit::new(self.epoch, backing, retired);
        match self.trees.get_mut(tree as usize) {
            Some(state) => state.put_run(&[(HashedKey::new(key), Stored::Chain(chain))], &mut edit),
            None => Ok(()),
        }
    }

    /// Applies changes in order, bringing the leaves of those ahead nearer.
    pub(crate) fn apply(
        &mut self,
        changes: &[(u32, Change<'_>)],
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let mut edit = Edit::new(self.epoch, backing, retired);
        self.make(changes, &mut edit)
    }

    /// As [`Forest::apply`], of what the log has: small puts go beside a leaf that cannot be read, though it is not known whether
    /// it would have taken them.
    pub(crate) fn replay(
        &mut self,
        changes: &[(u32, Change<'_>)],
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let mut edit = Edit::new(self.epoch, backing, retired).replaying();
        self.make(changes, &mut edit)
    }

    fn make(&mut self, changes: &[(u32, Change<'_>)], edit: &mut Edit<'_>) -> Result<(), EngineError> {
        let mut rest = changes;
        while let Some((tree, first)) = rest.first() {
            let puts = rest.iter().take_while(|(other, change)| other == tree && change.is_put()).count();
            let (now, later) = rest.split_at(puts.max(1));
            if let Some(state) = self.trees.get_mut(*tree as usize) {
                match now {
                    [_] => state.apply(first, edit)?,
                    puts => state.put_all(puts, edit)?,
                }
            }
            rest = later;
        }
        Ok(())
    }
}

impl TreeState {
    fn apply(&mut self, change: &Change<'_>, edit: &mut Edit<'_>) -> Result<(), EngineError> {
        match change {
            Change::Put(key, value) => self.put(HashedKey::new(key), value, edit),
            Change::Append(key, value) => self.append(HashedKey::new(key), value, edit),
            Change::Delete(key) => {
                self.records.take_off(u64::from(tree::delete(&mut self.root, HashedKey::new(key), edit)?));
                Ok(())
            }
            Change::DeleteRange(from, to) => self.delete_range(*from, *to, false, edit),
        }
    }

    fn put(
        &mut self,
        key: HashedKey<'_>,
        value: &NewValue<'_>,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        self.put_run(&[(key, value.stored())], edit)
    }

    fn put_run(
        &mut self,
        items: &[(HashedKey<'_>, Stored<'_>)],
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        let mut run = Run::of(items);
        tree::put(&mut self.root, &mut run, edit)?;
        self.records.add(run.added);
        if run.is_unsure {
            self.is_not_counted();
        }
        Ok(())
    }

    /// Many puts, in the order of their keys, a few at a time, what the next ones touch brought nearer before.
    fn put_all(&mut self, puts: &[(u32, Change<'_>)], edit: &mut Edit<'_>) -> Result<(), EngineError> {
        let order = key_order(puts);
        let depth = puts[0].1.key().map_or(0, |key| search::depth_of(&self.root, key));
        let mut windows = order.chunks(search::LANES).peekable();
        while let Some(window) = windows.next() {
            for &index in windows.peek().into_iter().copied().flatten() {
                puts[index as usize].1.prefetch();
            }
            let mut items = [(HashedKey::default(), Stored::Inline(&[])); search::LANES];
            for (&index, item) in window.iter().zip(&mut items) {
                if let Change::Put(key, value) = &puts[index as usize].1 {
                    *item = (HashedKey::new(key), value.stored());
                }
            }
            let items = &mut items[..window.len()];
            search::prefetch_for_puts(&self.root, depth, items);
            self.put_run(items, edit)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        key: HashedKey<'_>,
        added: &NewValue<'_>,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        let current = search::get(&self.root, key.bytes).unwrap_or_default();
        let mut room = [0; INLINE_BELOW];
        match appended(current, added, &mut room, false, (edit.backing, edit.epoch)) {
            Appended::Nothing => Ok(()),
            Appended::To(value) => self.put(key, &value, edit),
            Appended::Joined(value, piece) => {
                // It was joined at once; pieces of the old value are retired when they are replaced.
                edit.retired.piece(&piece, edit.epoch);
                self.put(key, &value, edit)
            }
        }
    }

    fn delete_range(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        passes_lost: bool,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        loop {
            let keys = self.keys_in((from, to), passes_lost, edit.backing)?;
            let mut deleted = 0;
            for key in &keys {
                deleted += u64::from(tree::delete(&mut self.root, HashedKey::new(key), edit)?);
            }
            self.records.take_off(deleted);
            if keys.len() < RANGE_STEP {
                return Ok(());
            }
            if deleted == 0 {
                // They are found where they do not belong, and would be for ever.
                return Err(edit.backing.corrupt(0, Damage::PageContent));
            }
        }
    }

    /// The first keys of a range, up to [`RANGE_STEP`], whose leaves are resident then.
    fn keys_in(
        &self,
        range: Range<'_>,
        passes_lost: bool,
        backing: &Backing,
    ) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut keys = Vec::new();
        let visitor = |key: &[u8], _: Stored<'_>| {
            keys.push(key.to_vec());
            if keys.len() < RANGE_STEP { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut visit = Visit::new(range, Direction::Forward, visitor);
        visit.run(&self.root, &mut |slot, _| match () {
            // Salvaged: nobody will read what it had. Elsewhere it was not logged before all of the range was read.
            _ if passes_lost && slot.is_lost() => Ok(Node::Leaf(Leaf::empty(&[], 0))),
            _ => slot.load(Reading::Along, backing).cloned(),
        })?;
        Ok(keys)
    }
}

/// What an append makes of a value.
pub(crate) enum Appended<'a> {
    /// The value that there is, or none where there is none.
    Nothing,
    /// This.
    To(NewValue<'a>),
    /// This, in which a piece that was added is no more.
    Joined(NewValue<'a>, Piece),
}

/// What `added` makes of a value; a short one is put together in `room`. A longer one `grows` in place next time.
pub(crate) fn appended<'a>(
    current: Option<Stored<'_>>,
    added: &NewValue<'a>,
    room: &'a mut [u8; INLINE_BELOW],
    grows: bool,
    (backing, epoch): (&Backing, u64),
) -> Appended<'a> {
    let last = match added {
        NewValue::Inline([]) if current.is_some() => return Appended::Nothing,
        NewValue::Inline(bytes) => Added::Bytes(bytes),
        NewValue::Chain(chain) => Added::Piece(&chain.pieces()[0]),
    };
    let front;
    let chain = match (current, last) {
        (None | Some(Stored::Inline(&[])), _) => return Appended::To(added.clone()),
        (Some(Stored::Inline(old)), Added::Bytes(new)) if old.len() + new.len() < INLINE_BELOW => {
            let len = old.len() + new.len();
            room[..old.len()].copy_from_slice(old);
            room[old.len()..len].copy_from_slice(new);
            return Appended::To(NewValue::Inline(&room[..len]));
        }
        (Some(Stored::Inline(old)), Added::Bytes(new)) => {
            return Appended::To(NewValue::Chain(Chain::begun(old, new, grows, backing, epoch)));
        }
        (Some(Stored::Inline(old)), Added::Piece(_)) => {
            front = Chain::One(Piece::waiting(Buffer::copy_from(old), epoch, backing));
            &front
        }
        (Some(Stored::Chain(chain)), _) => chain,
    };
    match (chain.appended(last, grows, backing, epoch), last) {
        ((whole, true), Added::Piece(piece)) => Appended::Joined(NewValue::Chain(whole), piece.clone()),
        ((whole, _), _) => Appended::To(NewValue::Chain(whole)),
    }
}

/// Reads the leaf whose range holds `key`.
pub(crate) fn load_leaf(root: &Slot, key: &[u8], backing: &Backing) -> Result<(), EngineError> {
    let mut slot = root;
    while let Node::Inner(inner) = slot.load(Reading::Along, backing)? {
        slot = &inner.children[inner.child_of(key)];
    }
    Ok(())
}

/// Indices of the puts in the order of their keys; those of one key in the order in which they came.
fn key_order(puts: &[(u32, Change<'_>)]) -> Vec<u32> {
    let key = |index: u32| puts[index as usize].1.key().unwrap_or_default();
    let shared = (1..puts.len() as u32).fold(key(0).len(), |len, index| {
        let first = &key(0)[..len];
        common_prefix(first, key(index))
    });
    let mut order: Vec<(u64, u32)> =
        (0..puts.len() as u32).map(|index| (head_of(&key(index)[shared..]), index)).collect();
    order.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))).then_with(|| a.1.cmp(&b.1))
    });
    order.into_iter().map(|(_, index)| index).collect()
}
