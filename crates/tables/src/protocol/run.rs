//! Runs: which steps are visible, which are arriving, and which attempt may write.

use super::{Block, BlockId, EditError, Placed, RunId, SharedMap, StepRange, StepTime, Version};
use crate::planted::{self, Bug};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The state of one run in a version.
///
/// Invariant: every arriving step belongs to the current attempt and may still become visible, since no rank
/// has gone on to a later step without it. The exception are tables from before `admit_in_turn` was checked:
/// there, a step that a rank skipped may lie before the last visible one, and never becomes visible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The attempt that may write.
    pub attempt: u64,
    /// Number of ranks that write each of its steps.
    pub ranks: u32,
    /// The last step that this attempt made visible; `None` before the first.
    pub published: Option<u64>,
    /// The visible steps.
    pub complete: SharedMap<u64, Published>,
    /// The blocks received of steps that are not visible yet, by step and rank.
    pub arriving: BTreeMap<u64, BTreeMap<u32, Arrived>>,
}

/// A visible step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    /// The attempt that wrote it.
    pub attempt: u64,
    /// Its time, as given by the lowest rank that gave one.
    pub time: Option<StepTime>,
    /// Number of rows written.
    pub rows: u64,
    /// Whether the step was deleted whole. A deleted step stays in the map, so that its blocks are not
    /// accepted again.
    pub is_deleted: bool,
}

/// A block of a step that is not visible yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrived {
    /// The time of the step, if the block gave one.
    pub time: Option<StepTime>,
    /// Its rows; `None` for a rank without rows.
    pub placed: Option<Placed>,
}

/// The steps of earlier attempts that a step supersedes when it becomes visible, and how many of them exist.
pub(super) struct SupersededSteps {
    pub(super) steps: StepRange,
    pub(super) superseded: usize,
}

impl Run {
    pub(super) fn begin(attempt: u64, ranks: u32) -> Self {
        Self { attempt, ranks, published: None, complete: SharedMap::default(), arriving: BTreeMap::new() }
    }

    /// The last visible step, up to which a checkpoint is admissible. Steps that were deleted whole do not
    /// count: a run that continued after them would have a hole.
    #[must_use]
    pub fn last_complete(&self) -> Option<u64> {
        self.complete.iter().rev().find(|(_, there)| !there.is_deleted).map(|(step, _)| *step)
    }

    /// Whether the block is in a visible step or in an arriving one.
    #[must_use]
    pub fn has(&self, id: &BlockId) -> bool {
        let arrived = self.arriving.get(&id.step).is_some_and(|ranks| ranks.contains_key(&id.rank));
        self.has_step(id.attempt, id.step) || (id.attempt == self.attempt && arrived)
    }

    /// Whether this attempt has received a block of this rank.
    pub(crate) fn has_given(&self, rank: u32) -> bool {
        self.published.is_some() || self.arriving.values().any(|ranks| ranks.contains_key(&rank))
    }

    /// Whether the step is visible and was written by this attempt.
    pub(super) fn has_step(&self, attempt: u64, step: u64) -> bool {
        self.complete.get(&step).is_some_and(|step| step.attempt == attempt)
    }

    /// Adds a block that is not there yet; returns whether its step is now complete. A new edit (`is_wish`)
    /// must meet more conditions than one that is already committed.
    pub(super) fn take(&mut self, block: &Block, at: Version, is_wish: bool) -> Result<bool, EditError> {
        self.admit(&block.id)?;
        if is_wish {
            self.admit_in_turn(&block.id)?;
        }
        let placed =
            block.piece.as_ref().map(|piece| Placed { piece: piece.clone(), born: at, clean_to: at });
        let step = self.arriving.entry(block.id.step).or_default();
        step.insert(block.id.rank, Arrived { time: block.time, placed });
        Ok(step.len() == self.ranks as usize)
    }

    /// Checks that this attempt, rank and step may be written now.
    fn admit(&self, id: &BlockId) -> Result<(), EditError> {
        self.admit_attempt(id)?;
        self.admit_rank(id)?;
        self.admit_step(id, |ranks| ranks.contains_key(&id.rank))
    }

    /// Checks that this attempt has the rank. The ranks of other attempts are not known here.
    pub(super) fn admit_rank(&self, id: &BlockId) -> Result<(), EditError> {
        if id.attempt == self.attempt && id.rank >= self.ranks {
            return Err(EditError::Ranks {
                run: id.run.clone(),
                actual: self.ranks,
                asked: id.rank.saturating_add(1),
            });
        }
        Ok(())
    }

    /// Checks that this attempt may write all ranks' blocks of a step now. It may not while any step is
    /// arriving, even an earlier one: that step's missing blocks could no longer be added, and if it is the
    /// first step of its attempt, it determines from where on earlier attempts are superseded.
    pub(super) fn admit_whole(&self, id: &BlockId) -> Result<(), EditError> {
        self.admit_attempt(id)?;
        match self.arriving.keys().next() {
            Some(&arriving) if !planted::is(Bug::LoadIgnoresArriving) => {
                Err(EditError::StepArriving { id: id.clone(), arriving })
            }
            _ => self.admit_step(id, |_| false),
        }
    }

    fn admit_attempt(&self, id: &BlockId) -> Result<(), EditError> {
        let run = || id.run.clone();
        if id.attempt < self.attempt && !planted::is(Bug::OldAttemptWrites) {
            return Err(EditError::StaleAttempt { run: run(), attempt: id.attempt, current: self.attempt });
        }
        if id.attempt > self.attempt {
            return Err(EditError::NotBegun { run: run(), attempt: id.attempt });
        }
        Ok(())
    }

    /// Checks that the step comes after all visible steps of this attempt, and after all arriving steps
    /// selected by `is_of`.
    fn admit_step(
        &self,
        id: &BlockId,
        is_of: impl Fn(&BTreeMap<u32, Arrived>) -> bool,
    ) -> Result<(), EditError> {
        let arriving = self.arriving.range(id.step..).filter(|(_, ranks)| is_of(ranks));
        let later = arriving.map(|(step, _)| *step).chain(self.published.filter(|last| *last >= id.step));
        match later.max() {
            Some(last) => Err(EditError::StepOrder { id: id.clone(), last }),
            None => Ok(()),
        }
    }

    /// Refuses a block that would leave a step waiting for a rank for ever: because the block's own rank
    /// skips a step that other ranks have written, or because another rank has already gone on beyond the
    /// block's step without it.
    ///
    /// Since every block is checked, an arriving step has the blocks of all ranks that have written a later
    /// one. Therefore the neighbouring steps decide.
    fn admit_in_turn(&self, id: &BlockId) -> Result<(), EditError> {
        let refused = |lost, rank, later| Err(EditError::Skipped { id: id.clone(), lost, rank, later });
        // Arriving steps before the last visible one are lost already and block nothing.
        let after = self.published.map_or(Bound::Unbounded, Bound::Excluded);
        let mut earlier = self.arriving.range((after, Bound::Excluded(id.step)));
        if earlier.next_back().is_some_and(|(_, ranks)| !ranks.contains_key(&id.rank)) {
            let mut lost = self.arriving.range((after, Bound::Excluded(id.step)));
            if let Some((lost, _)) = lost.find(|(_, ranks)| !ranks.contains_key(&id.rank)) {
                return refused(*lost, id.rank, id.step);
            }
        }
        let Some((later, ranks)) = self.arriving.range((Bound::Excluded(id.step), Bound::Unbounded)).next()
        else {
            return Ok(());
        };
        let given = self.arriving.get(&id.step);
        let has_given = |rank: &&u32| given.is_some_and(|given| given.contains_key(rank));
        match ranks.keys().find(|rank| !has_given(rank)) {
            Some(rank) => refused(id.step, *rank, *later),
            None => Ok(()),
        }
    }

    /// Makes an arriving step visible; returns its pieces.
    pub(super) fn publish(&mut self, step: u64) -> (Vec<Placed>, SupersededSteps) {
        let blocks = self.arriving.remove(&step).unwrap_or_default();
        let time = blocks.values().find_map(|arrived| arrived.time);
        let pieces: Vec<Placed> = blocks.into_values().filter_map(|arrived| arrived.placed).collect();
        let rows = pieces.iter().map(|placed| placed.piece.rows).fold(0, u64::saturating_add);
        (pieces, self.show(step, time, rows))
    }

    /// Makes a step visible. The first step of an attempt supersedes the same and all later steps of earlier
    /// attempts. A later one supersedes at most one step, and only in
    /// [`Manifest::with_arriving`](super::Manifest::with_arriving): there, a step that a rank skipped before
    /// that was refused still counts as arriving.
    pub(super) fn show(&mut self, step: u64, time: Option<StepTime>, rows: u64) -> SupersededSteps {
        let is_first = self.published.replace(step).is_none();
        let (steps, superseded) = if is_first {
            (StepRange::since(step), self.complete.split_off(&step).len())
        } else {
            (StepRange::only(step), usize::from(self.complete.get(&step).is_some()))
        };
        let published = Published { attempt: self.attempt, time, rows, is_deleted: false };
        self.complete.insert(step, published);
        SupersededSteps { steps, superseded }
    }

    /// Marks the visible steps in a range as deleted whole.
    pub(super) fn delete(&mut self, steps: StepRange) {
        let within = |step: &u64| steps.contains(*step);
        let since = self.complete.since(&steps.from).map(|(step, _)| *step);
        let deleted: Vec<u64> = since.take_while(within).collect();
        for step in deleted {
            if let Some(published) = self.complete.get_mut(&step) {
                published.is_deleted = true;
            }
        }
    }

    /// The pieces of arriving steps.
    pub(super) fn arriving_pieces(&self) -> impl Iterator<Item = &Placed> {
        self.arriving.values().flat_map(BTreeMap::values).filter_map(|arrived| arrived.placed.as_ref())
    }
}

/// The refusal for an attempt that has not begun.
pub(super) fn not_begun(run: &RunId, attempt: u64) -> EditError {
    EditError::NotBegun { run: run.clone(), attempt }
}
