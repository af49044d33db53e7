//! How many records a tree has, also where nobody knows.
//!
//! A tree is *uncounted* once a part of it was split off, or records were put beside a leaf that nobody read
//! ([`crate::delta`]): how many of them went, or were new, is known only to who reads them. Who asks for the
//! number has the tree counted, and from then on it is known again.
//!
//! Invariant: the number of a tree that is counted is that of its records; that of an uncounted one means
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
    /// How many records it holds. That is known, but after a part of the tree was split off or absorbed, or
    /// much was written while the tree did not fit into memory: then who asks has to wait until all of it was
    /// read.
    ///
    /// # Errors
    /// As [`Tree::get`], only where it has to be read.
    pub fn len(&self) -> Result<u64, EngineError> {
        self.engine.shared.records_of(self.id())
    }

    /// Whether it holds no records.
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
    /// How many records `tree` had; see [`Tree::len`].
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
        self.forest.write().note_count(tree, found.wrapping_sub(noted), round);
        Ok(found)
    }
}

/// Counts the records that a tree had, by reading all of them.
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
    /// How many records it has, if that is known.
    pub(crate) fn known_records(&self) -> Option<u64> {
        self.is_counted.then(|| self.records.get())
    }

    /// Notes that its number means nothing any more.
    pub(crate) fn is_not_counted(&mut self) {
        self.is_counted = false;
        self.count_round += 1;
    }

    /// All its records go to `other`.
    pub(crate) fn hand_count_to(&mut self, other: &mut Self) {
        other.records.add(self.records.get());
        other.is_counted &= self.is_counted;
        other.count_round += 1;
        (self.records, self.is_counted) = (Default::default(), true);
        self.count_round += 1;
    }
}

impl Forest {
    /// Notes that a tree has so many records more than its number says, unless that is not so any more since
    /// `round`.
    fn note_count(&mut self, tree: u32, more: u64, round: u64) {
        let state = self.trees.get_mut(tree as usize).filter(|state| state.count_round == round);
        if let Some(state) = state {
            state.records.add(more);
            state.is_counted = true;
            // Who counts it at the same time would add the same once more.
            state.count_round += 1;
        }
    }
}
