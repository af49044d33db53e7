//! The number of records of a tree, even where it is unknown.
//!
//! A tree is *uncounted* once a part of it was split off, or records were put beside a leaf that was not read
//! ([`crate::delta`]): how many of its records went, or are new, is known only after reading them. A request
//! for the number counts the tree by reading it, and from then on the number is known again.
//!
//! Invariant: the number of a counted tree is that of its records; the number of an uncounted tree means
//! nothing.

use crate::EngineError;
use crate::engine::Tree;
use crate::forest::{Forest, TreeState};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::view::View;
use crate::visit::Direction;
use std::ops::{Bound, ControlFlow};

impl Tree {
    /// Number of records in the tree. It is known, except after a part of the tree was split off or absorbed,
    /// or after much was written while the tree did not fit into memory: then the caller waits until the
    /// whole tree was read, and for a write that is under way. So this must not be called within
    /// [`Engine::update`](crate::Engine::update).
    ///
    /// # Errors
    /// As [`Tree::get`], and only where the tree has to be read.
    pub fn len(&self) -> Result<u64, EngineError> {
        self.engine.shared.records_of(self.id())
    }

    /// Whether the tree holds no records.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn is_empty(&self) -> Result<bool, EngineError> {
        if let Some(records) = self.engine.shared.known_records(self.id())? {
            return Ok(records == 0);
        }
        let found = self
            .scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, |_, _| ControlFlow::Break(()))?;
        Ok(found.is_none())
    }
}

impl Snapshot {
    /// Number of records that `tree` had; see [`Tree::len`].
    ///
    /// # Errors
    /// As [`Tree::len`].
    pub fn len(&self, tree: &Tree) -> Result<u64, EngineError> {
        tree.engine.shared.check_open()?;
        match self.view.records(tree.id()) {
            Some(known) => Ok(known),
            None => counted(&self.view, tree.id(), &tree.engine.shared),
        }
    }

    /// Whether `tree` had no records.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn is_empty(&self, tree: &Tree) -> Result<bool, EngineError> {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let found = self.scan(tree, everything, Direction::Forward, |_, _| ControlFlow::Break(()))?;
        Ok(found.is_none())
    }
}

impl Shared {
    fn known_records(&self, tree: u32) -> Result<Option<u64>, EngineError> {
        let forest = self.forest.read();
        self.check_open()?;
        Ok(forest.tree(tree).map_or(Some(0), TreeState::known_records))
    }

    fn records_of(&self, tree: u32) -> Result<u64, EngineError> {
        if let Some(known) = self.known_records(tree)? {
            return Ok(known);
        }
        let (view, noted, round) = {
            let _still = self.writer.still();
            let forest = self.forest.read();
            self.check_open()?;
            let Some(state) = forest.tree(tree) else { return Ok(0) };
            let only = TreeState { id: 0, ..state.clone() };
            let pin = self.pins.pin(forest.epoch);
            (self.views.add(vec![only], forest.epoch, pin), state.records.get(), state.count_round)
        };
        let found = counted(&view, 0, self)?;
        // The delete of a long range reads what it deletes with the forest lock shared, and lookups would
        // queue up behind whoever asks for that lock alone. The delete has the gate, so wait there.
        let _alone = self.writer.alone();
        self.forest.write().note_count(tree, found.wrapping_sub(noted), round);
        Ok(found)
    }
}

/// Counts the records of a tree in a view, by reading all of them.
fn counted(view: &View, tree: u32, shared: &Shared) -> Result<u64, EngineError> {
    let mut count = 0;
    let everything = (Bound::Unbounded, Bound::Unbounded);
    view.scan(tree, shared, everything, Direction::Forward, |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

impl TreeState {
    /// Number of its records, if that is known.
    pub(crate) fn known_records(&self) -> Option<u64> {
        self.is_counted.then(|| self.records.get())
    }

    /// Marks the tree as uncounted.
    pub(crate) fn is_not_counted(&mut self) {
        self.is_counted = false;
        self.count_round += 1;
    }

    /// Adds the count of this tree, all of whose records move to `other`, to that of `other`.
    pub(crate) fn hand_count_to(&mut self, other: &mut Self) {
        other.records.add(self.records.get());
        other.is_counted &= self.is_counted;
        other.count_round += 1;
        (self.records, self.is_counted) = (Default::default(), true);
        self.count_round += 1;
    }
}

impl Forest {
    /// Notes that a tree has `more` records than its number says, unless its number was affected since
    /// `round`.
    fn note_count(&mut self, tree: u32, more: u64, round: u64) {
        let state = self.trees.get_mut(tree as usize).filter(|state| state.count_round == round);
        if let Some(state) = state {
            state.records.add(more);
            state.is_counted = true;
            // A concurrent count of the same tree would add the difference a second time.
            state.count_round += 1;
        }
    }
}
