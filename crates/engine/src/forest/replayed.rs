//! Changes from a replayed log: what they touch is read first. Where that cannot be read, small puts go
//! beside it, and a salvage applies the others as far as possible.

use super::{Change, Forest, NewValue};
use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::node::Node;
use crate::retired::RetiredList;
use crate::search;
use crate::slot::Slot;
use crate::tree::{self, Edit};
use std::ops::Bound;

/// Outcome of a change that was applied as far as possible.
#[derive(Clone, Copy, Default)]
pub(crate) struct Salvaged {
    /// Leaves, or nodes above them, that it lost.
    pub(crate) lost: u64,
    /// Whether it met something that cannot be read.
    pub(crate) met_damage: bool,
}

impl Forest {
    /// As [`Forest::apply`], for changes from the log: small puts go beside a leaf that cannot be read, even
    /// though it is unknown whether the leaf would have taken them.
    pub(crate) fn replay(
        &mut self,
        changes: &[(u32, Change<'_>)],
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let mut edit = Edit::new(self.epoch, backing, retired).replaying();
        self.make(changes, &mut edit)
    }

    /// Reads what a change needs to see before it is applied.
    fn load_for(&self, tree: u32, change: &Change<'_>, backing: &Backing) -> Result<(), EngineError> {
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

    /// As [`Forest::load_for`], except that the leaf of a small put may be unreadable: the record then goes
    /// beside it. Returns whether that is so.
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
        // Where memory is short, the leaf is not read if it is known to be one.
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

    /// Applies a change as far as what it touches can be read. Of the rest, only values from the log are
    /// known from then on: what else would be there after the change is unknown.
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
                    // The leaf could not be read a moment ago, and can be read at this attempt.
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
            tracing::warn!(store, tree, %error, "the log changes a leaf that cannot be read; only values put since then are shown");
        }
        Ok(Salvaged { lost: edit.lost, met_damage: true })
    }
}

/// Reads the leaf whose range holds `key`.
fn load_leaf(root: &Slot, key: &[u8], backing: &Backing) -> Result<(), EngineError> {
    let mut slot = root;
    while let Node::Inner(inner) = slot.load(Reading::Along, backing)? {
        slot = &inner.children[inner.child_of(key)];
    }
    Ok(())
}
