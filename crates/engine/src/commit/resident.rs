//! Reads what a commit will touch into memory before the log has the commit, so that nothing can fail
//! afterwards.
//!
//! Small puts need no leaf where memory is short: they go beside it ([`crate::delta`]), and a leaf that is
//! not being read is evicted for them.

use crate::EngineError;
use crate::batch::{Action, Given, Op};
use crate::beside::Beside;
use crate::delta::{MERGED_GROWTH_BYTES_MAX, record_bytes};
use crate::pins::Pin;
use crate::search::{self, MissingNode};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::tree;
use crate::value::INLINE_BELOW;
use std::collections::HashMap;
use std::ops::Bound;

impl Shared {
    /// Reads what the changes will touch, so that applying them needs no disk. The values of the first
    /// `placed` ops are pieces that were placed before, whatever the ops say: these never go beside a leaf,
    /// however short they look.
    pub(super) fn make_resident(&self, ops: &[Op<'_>], placed: usize) -> Result<(), EngineError> {
        // Nodes are evicted only under the writer lock, which is held.
        if self.backing.is_all_resident() {
            return Ok(());
        }
        let (is_short, mut beside) = (self.backing.is_short(), Beside::default());
        let mut all_beside = true;
        for (index, op) in ops.iter().enumerate() {
            let may_go = is_short && index >= placed;
            match op.action {
                Action::Put(key, given) if may_go && self.goes_beside(op.tree, key, given, &mut beside) => {
                    continue;
                }
                Action::Put(key, _) | Action::Append(key, _) | Action::Delete(key) => {
                    self.make_key_resident(op.tree, key)?;
                }
                Action::DeleteRange(from, to) => self.make_range_resident(op.tree, from, to)?,
            }
            all_beside = false;
        }
        // If all puts go beside their leaves, none of the leaves is in memory to be evicted.
        if is_short && !all_beside && placed == 0 {
            self.let_go_for(ops);
        }
        Ok(())
    }

    /// Evicts leaves that were not read lately and to which only small records are put: changing such a leaf
    /// would cost its memory until the next checkpoint.
    fn let_go_for(&self, ops: &[Op<'_>]) {
        let Some(puts) = ops.iter().map(small_put).collect::<Option<Vec<_>>>() else { return };
        let mut forest = self.forest.write();
        let mut bytes: HashMap<*const Slot, usize> = HashMap::new();
        for &(tree, key, value) in &puts {
            if let Some(slot) = forest.tree(tree).map(|state| search::slot_of(&state.root, key)) {
                *bytes.entry(std::ptr::from_ref(slot)).or_default() += record_bytes(key, value);
            }
        }
        for (tree, key, _) in puts {
            if let Some(state) = forest.trees.get_mut(tree as usize) {
                let of_slot =
                    |slot| bytes.get(&slot).map_or(usize::MAX / 2, |bytes| bytes + MERGED_GROWTH_BYTES_MAX);
                tree::make_way(&mut state.root, key, of_slot, &self.backing);
            }
        }
    }

    /// Whether a record goes beside its leaf, which is not resident. `beside` counts the records before it.
    fn goes_beside(&self, tree: u32, key: &[u8], given: Given<'_>, beside: &mut Beside) -> bool {
        if given.bytes().len() >= INLINE_BELOW {
            return false;
        }
        let forest = self.forest.read();
        let absent = forest.tree(tree).and_then(|state| search::leaf_of(&state.root, key).err());
        absent.is_some_and(|absent| beside.takes(absent, key.len(), given.bytes().len()))
    }

    pub(crate) fn make_key_resident(&self, tree: u32, key: &[u8]) -> Result<(), EngineError> {
        loop {
            let Some((missing, pin)) = self.missing_for(tree, key)? else { return Ok(()) };
            self.load_missing(tree, missing, pin)?;
        }
    }

    fn missing_for(&self, tree: u32, key: &[u8]) -> Result<Option<(MissingNode, Pin)>, EngineError> {
        let forest = self.forest.read();
        let Some(state) = forest.tree(tree) else { return Ok(None) };
        let absent = tree::missing_for(&state.root, key, &self.backing)?;
        Ok(absent.map(|absent| (absent.to_read(key), self.pins.pin(forest.epoch))))
    }

    fn make_range_resident(
        &self,
        tree: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<(), EngineError> {
        let forest = self.forest.read();
        let Some(state) = forest.tree(tree) else { return Ok(()) };
        // A leaf is read even if there is no room to keep it: one that cannot be read is then an error before
        // the log has anything.
        tree::load_range(&state.root, (from, to), &|slot| self.load_slot(slot), &self.backing)
    }
}

/// Tree, key and value of a put whose value will lie in the leaf.
fn small_put<'a>(op: &Op<'a>) -> Option<(u32, &'a [u8], &'a [u8])> {
    match op.action {
        Action::Put(key, given) if given.bytes().len() < INLINE_BELOW => Some((op.tree, key, given.bytes())),
        _ => None,
    }
}
