//! Puts of one small record into a leaf that stays where it is: they do not wait for each other.
//!
//! Such a put needs no other leaf and no change of shape, so it is done while others do the same elsewhere. It has the
//! latch of its leaf from before its group is in the log until the record is in the leaf: changes of one leaf happen in
//! the order of the log. Those of two leaves may be seen in either order while both are on their way; whoever looks at
//! more than one leaf asks for stillness and sees the trees as they are between two commits.
//!
//! Invariant: what is decided here before the log is written cannot fail afterwards.
//! Invariant: what is decided under the latch holds until it is given back, since nobody else writes into the leaf.

use crate::EngineError;
use crate::batch::{Action, Op};
use crate::commit::{Visible, check_sizes};
use crate::forest::{Forest, TreeState};
use crate::leaf::{HEAD_LINES, SharedLeaf};
use crate::node::Node;
use crate::shared::Shared;
use crate::tree::HashedKey;
use crate::value::{INLINE_BELOW, Stored};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

impl Shared {
    /// Commits a put in place; none, and nothing done, where that is not possible.
    pub(crate) fn put_in_place(&self, op: &Op<'_>, flush: bool) -> Result<Option<Visible>, EngineError> {
        let Action::Put(key, given) = op.action else { return Ok(None) };
        if given.bytes().len() >= INLINE_BELOW {
            return Ok(None);
        }
        check_sizes(std::slice::from_ref(op))?;
        let done = self.place_record(op, key, given.bytes(), flush)?;
        Ok(done.map(|(visible, waiting)| {
            self.ask_if_due(waiting);
            visible
        }))
    }

    /// The commit, and how many bytes wait for a checkpoint with it.
    fn place_record(
        &self,
        op: &Op<'_>,
        key: &[u8],
        bytes: &[u8],
        flush: bool,
    ) -> Result<Option<(Visible, u64)>, EngineError> {
        let value = Stored::Inline(bytes);
        let placing = self.writer.placing();
        self.check_writable()?;
        let forest = self.forest.read();
        let key = HashedKey::new(key);
        let Some((tree, leaf)) = leaf_to_change(&forest, op.tree, key.bytes) else { return Ok(None) };
        let mut latched = leaf.latched(&self.latches, &placing);
        let is_ours = latched.leaf().birth == forest.epoch && latched.leaf().home.get().is_none();
        let place = latched.leaf().locate(key.bytes, usize::MAX);
        if !is_ours || !latched.leaf().takes(place, key.bytes, &value) {
            return Ok(None);
        }
        let Some(leaf) = latched.get_mut() else { return Ok(None) };
        let mut writer = placing.content();
        self.log_ops(&mut writer, std::slice::from_ref(op), &[None], flush)?;
        let ended = self.end_commit(&writer, &forest.sequence);
        drop(writer);
        let done = match place {
            Ok(slot) => leaf.replace(slot, &value).map(|_| ()),
            Err(slot) => leaf.insert_at(slot, key.bytes, key.fingerprint, &value),
        };
        tree.records.add(u64::from(place.is_err()));
        if done.is_err() {
            unreachable!("a leaf takes what it said it would");
        }
        Ok(Some(ended))
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
