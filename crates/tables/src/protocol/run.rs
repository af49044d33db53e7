//! Runs: which steps are visible, which are arriving, and which attempt may write.

use super::{Block, BlockId, EditError, Placed, RunId, SharedMap, StepRange, StepTime, Version};
use crate::planted::{self, Bug};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a version knows of one run.
///
/// Invariant: every arriving step belongs to the current attempt, and may become visible: no rank has gone on
/// to a later one without it. Only where that was not asked yet (`admit_in_turn`) may one lie before the last
/// visible one, because a rank skipped it, and that never becomes visible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The attempt that may write.
    pub attempt: u64,
    /// How many ranks write each of its steps.
    pub ranks: u32,
    /// The last step that this attempt made visible; none before the first.
    pub published: Option<u64>,
    /// The visible steps.
    pub complete: SharedMap<u64, Published>,
    /// The blocks that have come of steps that are not visible yet, by step and rank.
    pub arriving: BTreeMap<u64, BTreeMap<u32, Arrived>>,
}

/// A visible step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    /// The attempt that wrote it.
    pub attempt: u64,
    /// Its time, as the lowest rank that told one did.
    pub time: Option<StepTime>,
    /// How many rows were written.
    pub rows: u64,
    /// Whether they were all deleted since, the step as a whole. It stays here, so that none of its blocks
    /// comes again.
    pub is_deleted: bool,
}

/// A block of a step that is not visible yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrived {
    /// The time that it told.
    pub time: Option<StepTime>,
    /// Its rows; none for a rank without rows.
    pub placed: Option<Placed>,
}

/// Which steps of earlier attempts a step takes the place of as it becomes visible, and how many of them
/// there are.
pub(super) struct Shown {
    pub(super) steps: StepRange,
    pub(super) superseded: usize,
}

impl Run {
    pub(super) fn begin(attempt: u64, ranks: u32) -> Self {
        Self { attempt, ranks, published: None, complete: SharedMap::default(), arriving: BTreeMap::new() }
    }

    /// The last visible step; a checkpoint is admissible up to it. A step that was deleted as a whole is
    /// none: what goes on behind it would leave a hole.
    #[must_use]
    pub fn last_complete(&self) -> Option<u64> {
        self.complete.iter().rev().find(|(_, there)| !there.is_deleted).map(|(step, _)| *step)
    }

    /// Whether the block is in a visible step, or arriving.
    #[must_use]
    pub fn has(&self, id: &BlockId) -> bool {
        let arrived = self.arriving.get(&id.step).is_some_and(|ranks| ranks.contains_key(&id.rank));
        self.has_step(id.attempt, id.step) || (id.attempt == self.attempt && arrived)
    }

    /// Whether a block of this rank has come in this attempt.
    pub(crate) fn has_given(&self, rank: u32) -> bool {
        self.published.is_some() || self.arriving.values().any(|ranks| ranks.contains_key(&rank))
    }

    /// Whether the step is visible as this attempt wrote it.
    pub(super) fn has_step(&self, attempt: u64, step: u64) -> bool {
        self.complete.get(&step).is_some_and(|step| step.attempt == attempt)
    }

    /// Takes a block in that is not there yet; answers whether its step now has all ranks' blocks. More is
    /// asked of a wish than of what is true already.
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

    /// Whether this attempt, rank and step may be written now.
    fn admit(&self, id: &BlockId) -> Result<(), EditError> {
        self.admit_attempt(id)?;
        self.admit_rank(id)?;
        self.admit_step(id, |ranks| ranks.contains_key(&id.rank))
    }

    /// Whether this attempt has the rank; what other attempts had is not known here.
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

    /// Whether this attempt may write all of a step now, whatever its rank: not while anything is arriving,
    /// an earlier step neither. Its other ranks could not come any more, and if it is the first of its
    /// attempt it tells from where on what earlier attempts wrote goes.
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

    /// Whether the step lies behind all that is visible of this attempt, and all that is arriving of these
    /// ranks.
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

    /// Refuses a block with which a step would wait for a rank for ever: for the block's own, which goes on
    /// behind a step that others gave, or for another one, which has gone on behind the block's step.
    ///
    /// As long as this is asked of every block, an arriving step has all ranks that later ones have. So the
    /// neighbours tell.
    fn admit_in_turn(&self, id: &BlockId) -> Result<(), EditError> {
        let refused = |lost, rank, later| Err(EditError::Skipped { id: id.clone(), lost, rank, later });
        // What lies before the visible ones is lost already, and keeps nobody.
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

    /// Makes an arriving step visible; answers its pieces.
    pub(super) fn publish(&mut self, step: u64) -> (Vec<Placed>, Shown) {
        let blocks = self.arriving.remove(&step).unwrap_or_default();
        let time = blocks.values().find_map(|arrived| arrived.time);
        let pieces: Vec<Placed> = blocks.into_values().filter_map(|arrived| arrived.placed).collect();
        let rows = pieces.iter().map(|placed| placed.piece.rows).fold(0, u64::saturating_add);
        (pieces, self.show(step, time, rows))
    }

    /// Makes a step visible. The first of an attempt takes the place of those from it on of earlier attempts;
    /// a later one of one at most, and that only in what is looked at as if it were complete: a step that a
    /// rank skipped, when it still might, is arriving for ever.
    pub(super) fn show(&mut self, step: u64, time: Option<StepTime>, rows: u64) -> Shown {
        let is_first = self.published.replace(step).is_none();
        let (steps, superseded) = if is_first {
            (StepRange::since(step), self.complete.split_off(&step).len())
        } else {
            (StepRange::only(step), usize::from(self.complete.get(&step).is_some()))
        };
        let published = Published { attempt: self.attempt, time, rows, is_deleted: false };
        self.complete.insert(step, published);
        Shown { steps, superseded }
    }

    /// Notes that the visible steps of a range were deleted as a whole.
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

    /// The pieces that are arriving.
    pub(super) fn arriving_pieces(&self) -> impl Iterator<Item = &Placed> {
        self.arriving.values().flat_map(BTreeMap::values).filter_map(|arrived| arrived.placed.as_ref())
    }
}

/// The refusal for an attempt of a run that nobody began.
pub(super) fn not_begun(run: &RunId, attempt: u64) -> EditError {
    EditError::NotBegun { run: run.clone(), attempt }
}
