//! How many records a tree has, also after a part of it moved.
//!
//! When a range is split off, nobody knows how many records went with it without reading all of them. So both trees are
//! *uncounted* from then on: what stands beside each is what it had before and what came and went since, and only the sum
//! over all uncounted trees is true, as numbers modulo 2^64. Who asks for the number of one has it counted, and the
//! difference goes to another one; the last uncounted tree has the right number without being counted.
//!
//! Invariant: the numbers of all uncounted trees add up to their records.

use crate::EngineError;
use crate::engine::Tree;
use crate::forest::{Forest, TreeState};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::view::View;
use crate::visit::Direction;
use std::ops::{Bound, ControlFlow};

impl Tree {
    /// How many records it holds. That is known, but after a part of the tree was split off, or it absorbed such a part:
    /// then the first who asks has to wait until all of it was read.
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
        let known =
            self.engine.shared.forest.read().tree(self.id()).map_or(Some(0), TreeState::known_records);
        if let Some(records) = known {
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
    fn records_of(&self, tree: u32) -> Result<u64, EngineError> {
        let known = self.forest.read().tree(tree).map_or(Some(0), TreeState::known_records);
        if let Some(known) = known {
            return Ok(known);
        }
        let (view, noted, round) = {
            let _still = self.writer.still();
            let forest = self.forest.read();
            self.check_open()?;
            let Some(state) = forest.tree(tree) else { return Ok(0) };
            let only = TreeState { id: 0, ..state.clone() };
            let pin = self.pins.pin(forest.epoch);
            (self.views.add(vec![only], forest.epoch, pin), state.records.get(), forest.count_round)
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

    /// All its records go to `other`.
    pub(crate) fn hand_count_to(&mut self, other: &mut Self) {
        other.records.add(self.records.get());
        other.is_counted &= self.is_counted;
        (self.records, self.is_counted) = (Default::default(), true);
    }
}

impl Forest {
    /// Notes that numbers of uncounted trees have changed otherwise than by a commit, or trees ceased to be counted.
    pub(crate) fn counts_changed(&mut self) {
        self.count_round += 1;
        let mut uncounted = self.trees.iter_mut().filter(|tree| !tree.is_counted);
        if let (Some(only), None) = (uncounted.next(), uncounted.next()) {
            only.is_counted = true;
        }
    }

    /// Notes that a tree has so many records more than its number says, unless numbers changed since `round`.
    fn note_count(&mut self, tree: u32, more: u64, round: u64) {
        if self.count_round != round {
            return;
        }
        let Some(state) = self.trees.get_mut(tree as usize) else { return };
        state.records.add(more);
        state.is_counted = true;
        if let Some(other) = self.trees.iter().find(|tree| !tree.is_counted) {
            other.records.take_off(more);
        }
        self.counts_changed();
    }
}
