//! Puts and deletes of one small record in a leaf that stays where it is: they do not wait for each other.
//!
//! Such a write needs no other leaf and no change of shape, so it is done while others do the same elsewhere. It has the
//! latch of its leaf from before its group is in the log until the record is in the leaf: changes of one leaf happen in
//! the order of the log. Those of two leaves may be seen in either order while both are on their way; whoever looks at
//! more than one leaf asks for stillness and sees the trees as they are between two commits.
//!
//! Invariant: what is decided here before the log is written cannot fail afterwards.
//! Invariant: what is decided under the latch holds until it is given back, since nobody else writes into the leaf.

use crate::EngineError;
use crate::batch::{Action, Op};
use crate::commit::{Visible, check_sizes};
use crate::forest::{Count, Forest, TreeState};
use crate::leaf::{HEAD_LINES, Leaf, SharedLeaf};
use crate::log::Log;
use crate::node::Node;
use crate::shared::Shared;
use crate::threads::fence;
use crate::tree::HashedKey;
use crate::value::{INLINE_BELOW, Stored};
use atoll_disk::Ahead;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Shared {
    /// Commits a put or a delete in place; none, and nothing done, where that is not possible.
    pub(crate) fn write_in_place(&self, op: &Op<'_>, flush: bool) -> Result<Option<Visible>, EngineError> {
        let (key, value) = match op.action {
            Action::Put(key, given) if given.bytes().len() < INLINE_BELOW => (key, Some(given.bytes())),
            Action::Delete(key) => (key, None),
            _ => return Ok(None),
        };
        check_sizes(std::slice::from_ref(op))?;
        let done = self.change_record(op, key, value, flush)?;
        Ok(done.map(|done| {
            done.ahead.into_iter().for_each(Ahead::ask);
            self.ask_if_due(done.waiting);
            done.visible
        }))
    }

    fn change_record(
        &self,
        op: &Op<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        flush: bool,
    ) -> Result<Option<Done>, EngineError> {
        let placing = self.writer.placing();
        self.check_writable()?;
        let forest = self.forest.read();
        let key = HashedKey::new(key);
        let Some((tree, leaf)) = leaf_to_change(&forest, op.tree, key.bytes) else { return Ok(None) };
        let mut latched = leaf.latched(&self.latches, &placing);
        let is_ours = latched.leaf().birth == forest.epoch && latched.leaf().home.get().is_none();
        if !is_ours {
            return Ok(None);
        }
        let Some(edit) = Edit::of(latched.leaf(), key, value) else { return Ok(None) };
        let Some(leaf) = latched.get_mut() else { return Ok(None) };
        let mut writer = placing.content();
        self.log_ops(&mut writer, std::slice::from_ref(op), &[None], flush)?;
        let (visible, waiting) = self.end_commit(&writer, &forest.sequence);
        let ahead = writer.log.as_mut().and_then(Log::ahead);
        drop(writer);
        edit.make(leaf, key, &tree.records);
        Ok(Some(Done { visible, waiting, ahead }))
    }
}

/// A commit in place.
struct Done {
    visible: Visible,
    /// Bytes that wait for a checkpoint with it.
    waiting: u64,
    /// What it found the log to need soon.
    ahead: Option<Ahead>,
}

/// What a write in place does to its leaf.
enum Edit<'a> {
    Replace(usize, Stored<'a>),
    Insert(usize, Stored<'a>),
    Remove(usize),
}

impl<'a> Edit<'a> {
    /// The edit, if the leaf takes it as it is and lets go of nothing on disk; none for a delete of what is not there.
    fn of(leaf: &Leaf, key: HashedKey<'_>, value: Option<&'a [u8]>) -> Option<Self> {
        let place = leaf.locate(key.bytes, usize::MAX);
        let Some(value) = value.map(Stored::Inline) else {
            return place.ok().filter(|&slot| leaf.spares(slot)).map(Self::Remove);
        };
        leaf.takes(place, key.bytes, &value).then_some(match place {
            Ok(slot) => Self::Replace(slot, value),
            Err(slot) => Self::Insert(slot, value),
        })
    }

    fn make(self, leaf: &mut Leaf, key: HashedKey<'_>, records: &Count) {
        let done = match &self {
            Self::Replace(slot, value) => leaf.replace(*slot, value).is_ok(),
            Self::Insert(slot, value) => leaf.insert_at(*slot, key.bytes, key.fingerprint, value).is_ok(),
            Self::Remove(slot) => leaf.remove(*slot).is_none(),
        };
        if !done {
            unreachable!("a leaf takes what it said it would");
        }
        match self {
            Self::Replace(..) => {}
            Self::Insert(..) => drop(records.add(1)),
            Self::Remove(_) => records.take_off(1),
        }
    }
}

/// The leaf of `key`, if only the current tree has the way there, and a change need note nothing on it.
fn leaf_to_change<'f>(forest: &'f Forest, tree: u32, key: &[u8]) -> Option<(&'f TreeState, &'f SharedLeaf)> {
    let tree = forest.tree(tree)?;
    let mut slot = &tree.root;
    loop {
        match slot.get()? {
            Node::Inner(inner) => {
                if Arc::strong_count(inner) > 1 || inner.birth != forest.epoch || inner.home.get().is_some() {
                    return None;
                }
                // Who let go of this node may own one below it since before: its count is looked at after that.
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
