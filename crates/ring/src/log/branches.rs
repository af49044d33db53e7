//! Which branch of its slot each copy of this node is of: every loss that an operator accepts begins another
//! one, and copies of different branches share no history.
//!
//! A node that starts again keeps a copy of the current branch, in sync or not. One whose record says
//! otherwise, or has none, is dropped unless it is in sync: it may be what a loss gave up.
//!
//! ```text
//! slot     branch     for each slot that had another branch than 0 while it was here
//! ```
//! Both numbers are big-endian. Builds from before this tree existed pass over it.
//!
//! Invariant: a record is written behind the commit that empties the cells of a former branch, never before
//! or with it. If it is lost, the copy counts as one of an earlier branch.

use super::LogError;
use atoll_engine::{Direction, Engine, Tree, WriteBatch};
use atoll_replica::{Slot, Version};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// The branches of a node's copies.
pub(super) struct Branches {
    tree: Tree,
    /// What is recorded, including what the next commit of the log writes.
    recorded: BTreeMap<Slot, Version>,
}

impl Branches {
    /// Opens the records beside the logs in the tree with this name, or makes a tree for them.
    pub(super) fn open(engine: &Engine, log: &str) -> Result<Self, LogError> {
        Ok(Self { tree: engine.tree(&format!("{log}-branches"))?, recorded: BTreeMap::new() })
    }

    /// Reads what is recorded. Nothing may be on its way.
    pub(super) fn read(&mut self) -> Result<(), LogError> {
        let (mut recorded, mut wrong) = (BTreeMap::new(), None);
        self.tree.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, |name, value| {
            let read = value.bytes().map_err(LogError::from).and_then(|bytes| record_of(name, &bytes));
            match read {
                Ok((slot, branch)) => {
                    recorded.insert(slot, branch);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    wrong = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        self.recorded = recorded;
        wrong.map_or(Ok(()), Err)
    }

    /// The branch of what this node has of a slot, as far as is recorded.
    pub(super) fn of(&self, slot: Slot) -> Version {
        self.recorded.get(&slot).copied().unwrap_or_default()
    }

    /// Records the branch of what this node has of a slot, with the commit of a batch.
    pub(super) fn record(&mut self, slot: Slot, branch: Version, batch: &mut WriteBatch) {
        if self.recorded.insert(slot, branch) != Some(branch) {
            batch.put(&self.tree, &slot.0.to_be_bytes(), &branch.0.to_be_bytes());
        }
    }

    /// Removes the records of slots of which nothing is there: whatever comes there is of another branch, and
    /// perhaps of another ring.
    pub(super) fn keep(&mut self, is_there: impl Fn(Slot) -> bool, batch: &mut WriteBatch) {
        let Self { tree, recorded } = self;
        recorded.retain(|&slot, _| {
            let stays = is_there(slot);
            if !stays {
                batch.delete(tree, &slot.0.to_be_bytes());
            }
            stays
        });
    }
}

fn record_of(name: &[u8], value: &[u8]) -> Result<(Slot, Version), LogError> {
    let slot = name.first_chunk::<4>().map(|slot| u32::from_be_bytes(*slot)).unwrap_or_default();
    let branch = <[u8; 8]>::try_from(value).map(u64::from_be_bytes);
    match branch {
        Ok(branch) if name.len() == 4 => Ok((Slot(slot), Version(branch))),
        _ => Err(LogError::Damaged { slot, problem: "the record of its branch has a wrong length" }),
    }
}
