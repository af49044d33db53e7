//! Runs: which steps are visible, which are arriving, and which attempt may write.

use super::{Block, BlockId, EditError, Placed, RunId, Version};
use std::collections::BTreeMap;

/// What a version knows of one run.
///
/// Invariant: every arriving step belongs to the current attempt and lies behind its last visible one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The attempt that may write.
    pub attempt: u64,
    /// How many ranks write each of its steps.
    pub ranks: u32,
    /// The last step that this attempt made visible; none before the first.
    pub published: Option<u64>,
    /// The visible steps, each with the attempt that wrote it.
    pub complete: BTreeMap<u64, u64>,
    /// The blocks that have come of steps that are not visible yet, by step and rank; none for a rank
    /// without rows.
    pub arriving: BTreeMap<u64, BTreeMap<u32, Option<Placed>>>,
}

impl Run {
    pub(super) const fn begin(attempt: u64, ranks: u32) -> Self {
        Self { attempt, ranks, published: None, complete: BTreeMap::new(), arriving: BTreeMap::new() }
    }

    /// The last visible step; a checkpoint is admissible up to it.
    #[must_use]
    pub fn last_complete(&self) -> Option<u64> {
        self.complete.keys().next_back().copied()
    }

    /// Whether the block is in a visible step, or arriving.
    #[must_use]
    pub fn has(&self, id: &BlockId) -> bool {
        let arrived = self.arriving.get(&id.step).is_some_and(|ranks| ranks.contains_key(&id.rank));
        self.complete.get(&id.step) == Some(&id.attempt) || (id.attempt == self.attempt && arrived)
    }

    /// Takes a block in that is not there yet; answers whether its step now has all ranks' blocks.
    pub(super) fn take(&mut self, block: &Block, at: Version) -> Result<bool, EditError> {
        self.admit(&block.id)?;
        let placed =
            block.piece.as_ref().map(|piece| Placed { piece: piece.clone(), born: at, clean_to: at });
        let step = self.arriving.entry(block.id.step).or_default();
        step.insert(block.id.rank, placed);
        Ok(step.len() == self.ranks as usize)
    }

    /// Whether this attempt, rank and step may be written now.
    fn admit(&self, id: &BlockId) -> Result<(), EditError> {
        let run = || id.run.clone();
        if id.attempt < self.attempt {
            return Err(EditError::StaleAttempt { run: run(), attempt: id.attempt, current: self.attempt });
        }
        if id.attempt > self.attempt {
            return Err(EditError::NotBegun { run: run(), attempt: id.attempt });
        }
        if id.rank >= self.ranks {
            return Err(EditError::Ranks {
                run: run(),
                actual: self.ranks,
                asked: id.rank.saturating_add(1),
            });
        }
        let arriving = self.arriving.range(id.step..).filter(|(_, ranks)| ranks.contains_key(&id.rank));
        let later = arriving.map(|(step, _)| *step).chain(self.published.filter(|last| *last >= id.step));
        match later.max() {
            Some(last) => Err(EditError::StepOrder { id: id.clone(), last }),
            None => Ok(()),
        }
    }

    /// Makes an arriving step visible; answers its pieces, and whether it is the attempt's first.
    pub(super) fn publish(&mut self, step: u64) -> (Vec<Placed>, bool) {
        let first = self.published.replace(step).is_none();
        if first {
            self.complete.split_off(&step);
        }
        self.complete.insert(step, self.attempt);
        let blocks = self.arriving.remove(&step).unwrap_or_default();
        (blocks.into_values().flatten().collect(), first)
    }

    /// The pieces that are arriving.
    pub(super) fn arriving_pieces(&self) -> impl Iterator<Item = &Placed> {
        self.arriving.values().flat_map(BTreeMap::values).flatten()
    }
}

/// The refusal for an attempt of a run that nobody began.
pub(super) fn not_begun(run: &RunId, attempt: u64) -> EditError {
    EditError::NotBegun { run: run.clone(), attempt }
}
