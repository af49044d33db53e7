//! The steps that move ranges between trees, and the routing of writes while a range is in a tree of its
//! own.

use super::{Checked, Flow, Run, unexcused};
use crate::state::{Content, Event, Key, Mutation, RangeMove, TREES, WRITTEN_TREES};
use crate::subject::{Durability, Subject};
use atoll_errors::ErrorKind;

impl<S: Subject> Run<S> {
    /// Splits a range off, usually into an empty tree.
    pub(super) fn split_off(
        &mut self,
        store: &S,
        tree: usize,
        at: Key,
        durability: Durability,
    ) -> Checked<Flow> {
        let content = &self.oracle.current().content;
        let free = (WRITTEN_TREES..TREES).find(|&to| to != tree && content.tree(to).is_empty());
        let Some(to) = free.or_else(|| (self.rng.u8(..4) == 0).then_some(TREES - 1)) else {
            return Ok(Flow::Continue);
        };
        self.move_range(store, RangeMove::SplitOff { tree, at, to }, durability)
    }

    /// Absorbs a range that was split off before, if that is possible.
    pub(super) fn absorb(&mut self, store: &S, tree: usize, durability: Durability) -> Checked<Flow> {
        let content = &self.oracle.current().content;
        let ranges = (WRITTEN_TREES..TREES).filter(|&from| from != tree && !content.tree(from).is_empty());
        let moves = ranges.flat_map(|from| {
            (0..WRITTEN_TREES)
                .map(move |other| RangeMove::Absorb { tree: (tree + other) % WRITTEN_TREES, from })
        });
        let moves: Vec<RangeMove> = moves.collect();
        let can_move = moves.iter().find(|range| content.allows(range));
        match can_move.or_else(|| moves.first()).cloned() {
            Some(range) => self.move_range(store, range, durability),
            None => Ok(Flow::Continue),
        }
    }

    fn move_range(&mut self, store: &S, range: RangeMove, durability: Durability) -> Checked<Flow> {
        let can_move = self.oracle.current().content.allows(&range);
        let name = match range {
            RangeMove::SplitOff { .. } => "ranges_split_off",
            RangeMove::Absorb { .. } => "ranges_absorbed",
        };
        match store.move_range(&range, durability) {
            Ok(()) if !can_move => Err(format!("moved although it cannot: {range:?}")),
            Ok(()) => {
                self.counts.bump(name);
                self.oracle.push(Event::Move(range));
                match durability {
                    Durability::Buffered => {}
                    Durability::Flushed => self.oracle.mark_flushed(),
                    Durability::Synced => self.mark_synced(),
                }
                Ok(Flow::Continue)
            }
            Err(failure) if !can_move && failure.kind == ErrorKind::Conflict => {
                self.counts.bump("ranges_that_could_not_move");
                Ok(Flow::Continue)
            }
            Err(failure) if failure.kind == ErrorKind::Conflict => unexcused("moving a range", &failure),
            Err(failure) => self.settle(store, "moving a range", failure, Some(Event::Move(range))),
        }
    }

    /// Routes changes, usually to the tree whose range has their key, so that ranges can be absorbed again.
    pub(super) fn route(&mut self, batch: &mut [Mutation]) {
        let content = &self.oracle.current().content;
        for mutation in batch {
            let (Mutation::Put { tree, key, .. }
            | Mutation::Append { tree, key, .. }
            | Mutation::Delete { tree, key }) = mutation
            else {
                continue;
            };
            let upper = (WRITTEN_TREES..TREES).find(|&upper| lies_above(content, *tree, upper, key));
            if let Some(upper) = upper
                && self.rng.u8(..32) > 0
            {
                *tree = upper;
            }
        }
    }
}

/// Whether a key of `tree` belongs to `upper` now: `upper` lies above all keys of `tree`, and the key is not
/// below its first one.
fn lies_above(content: &Content, tree: usize, upper: usize, key: &Key) -> bool {
    let Some((first, _)) = content.tree(upper).first_key_value() else { return false };
    let last = content.tree(tree).last_key_value();
    first <= key && last.is_none_or(|(last, _)| last < first)
}
