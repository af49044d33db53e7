//! Changes to the trees of a store: what a change is, and how a sequence of them is applied.

use super::appended::{Appended, appended};
use super::{Forest, TreeState};
use crate::backing::{Backing, Reading};
use crate::leaf::Leaf;
use crate::node::{Node, common_prefix, head_of};
use crate::retired::RetiredList;
use crate::search;
use crate::tree::{self, Edit, HashedKey, Run};
use crate::value::{Chain, INLINE_BELOW, Piece, Stored};
use crate::visit::{Direction, Range, Visit};
use crate::{Damage, EngineError};
use atoll_buffer::prefetch;
use std::ops::{Bound, ControlFlow};

/// A value to be stored: short bytes, or a chain of one piece that has a home or will get one.
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
    /// Prefetches the key and a small value: in a log that is replayed in key order they lie far apart.
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

/// Keys that a range delete removes before it searches the tree again.
const RANGE_STEP_KEYS: usize = 1024;

impl Forest {
    /// Sets the chain of a key that has one, where nothing changes but the place of its bytes.
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

    /// Applies changes in order, prefetching the leaves of those ahead.
    pub(crate) fn apply(
        &mut self,
        changes: &[(u32, Change<'_>)],
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let mut edit = Edit::new(self.epoch, backing, retired);
        self.make(changes, &mut edit)
    }

    pub(super) fn make(
        &mut self,
        changes: &[(u32, Change<'_>)],
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
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

    /// Applies many puts in key order, a few at a time, prefetching what the next ones touch.
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

    pub(super) fn delete_range(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        passes_lost: bool,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        loop {
            let keys = self.keys_in((from, to), RANGE_STEP_KEYS, passes_lost, edit.backing)?;
            let mut deleted = 0;
            for key in &keys {
                deleted += u64::from(tree::delete(&mut self.root, HashedKey::new(key), edit)?);
            }
            self.records.take_off(deleted);
            if keys.len() < RANGE_STEP_KEYS {
                return Ok(());
            }
            if deleted == 0 {
                // These keys are found where they do not belong, and would be found for ever.
                return Err(edit.backing.corrupt(0, Damage::PageContent));
            }
        }
    }

    /// The keys of a range whose leaves are resident, if there are fewer than `limit`.
    pub(crate) fn few_keys_in(
        &self,
        range: Range<'_>,
        limit: usize,
        backing: &Backing,
    ) -> Option<Vec<Vec<u8>>> {
        self.keys_in(range, limit, false, backing).ok().filter(|keys| keys.len() < limit)
    }

    /// The first keys of a range, up to `limit`; their leaves are resident afterwards.
    fn keys_in(
        &self,
        range: Range<'_>,
        limit: usize,
        passes_lost: bool,
        backing: &Backing,
    ) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut keys = Vec::new();
        let visitor = |key: &[u8], _: Stored<'_>| {
            keys.push(key.to_vec());
            if keys.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut visit = Visit::new(range, Direction::Forward, visitor);
        visit.run(&self.root, &mut |slot| match () {
            // In a salvage, the records of a lost leaf will not be read. Otherwise the whole range was read
            // before the delete was logged.
            _ if passes_lost && slot.is_lost() => Ok(Node::Leaf(Leaf::empty(&[], 0))),
            _ => slot.load(Reading::Along, backing).cloned(),
        })?;
        Ok(keys)
    }
}

/// Indices of the puts in key order; puts of one key keep their order.
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
