//! Repeats: checks whether new rows have ids that their run already has, in a table with unique ids.
//!
//! The check uses the manifest that a commit is about to be based on, between its look and its write. The
//! write is conditional on this manifest being current; if it is refused, whatever came in the meantime is
//! checked as well. So unique ids need nothing from the protocol beyond what every commit has.
//!
//! Invariant: new rows are compared with every visible or arriving row of the run in the version before,
//! except for rows that are struck and rows that the attempt of the new rows is about to supersede.
//! Invariant: pruning uses boxes, weights and origins, and leaves out only rows that cannot have one of the
//! ids.

mod display;
mod existing;
mod newcomers;
#[cfg(test)]
mod tests;

pub(in crate::table) use newcomers::NewIds;

use super::{Table, TableError};
use crate::Weight;
use crate::planted::{self, Bug};
use crate::protocol::{EditError, Manifest, PieceKey, Placed, Repeat, RepeatedAt, Run, RunId};
use existing::Candidate;
use newcomers::NAMED_MAX;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// The check of one edit's blocks, repeated as often as the table changes before the edit is committed.
pub(in crate::table) struct Repeats<'t> {
    table: &'t Table,
    blocks: Vec<Arc<NewIds>>,
    /// Pieces that were compared as a whole with the blocks of a run, and need not be compared again. The run
    /// is part of the key because a cube may hold rows of several runs.
    compared: HashSet<(RunId, PieceKey)>,
}

impl<'t> Repeats<'t> {
    pub(in crate::table) fn of(table: &'t Table, blocks: Vec<Arc<NewIds>>) -> Self {
        Self { table, blocks, compared: HashSet::new() }
    }

    /// The refusal of the blocks in the version after this one, if the run already has some of their ids.
    ///
    /// # Errors
    /// Errors of reading, and of rows that cannot be compared.
    pub(in crate::table) async fn refusal(
        &mut self,
        manifest: &Manifest,
    ) -> Result<Option<EditError>, TableError> {
        match self.compare(manifest).await {
            Ok(()) => Ok(None),
            Err(TableError::Edit(error)) => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    async fn compare(&mut self, manifest: &Manifest) -> Result<(), TableError> {
        let mut runs: BTreeMap<&RunId, Vec<&Arc<NewIds>>> = BTreeMap::new();
        for block in &self.blocks {
            // A block that the table already has changes nothing, and must not be compared with itself.
            let is_there = manifest.runs.get(&block.block.run).is_some_and(|run| run.has(&block.block));
            if !is_there {
                runs.entry(&block.block.run).or_default().push(block);
            }
        }
        for (name, blocks) in runs {
            let Some(run) = manifest.runs.get(name) else { continue };
            self.compare_among(&blocks)?;
            let since = superseded_since(run, &blocks);
            let mut candidates = arriving(run);
            candidates.extend(visible(manifest, name, since));
            let key = |candidate: &Candidate| (name.clone(), candidate.placed.piece.key());
            candidates.retain(|candidate| !self.compared.contains(&key(candidate)));
            self.table.at(manifest)?.compare_with(&blocks, name, manifest, &candidates).await?;
            // The part of a piece that was left out may count in another version.
            let whole = candidates.iter().filter(|candidate| candidate.superseded_since.is_none());
            self.compared.extend(whole.map(key));
        }
        Ok(())
    }

    /// Refuses blocks of one run if two of them share an id.
    fn compare_among(&self, blocks: &[&Arc<NewIds>]) -> Result<(), TableError> {
        // If any blocks share an id, some two of them are neighbours in this order.
        let mut all: Vec<(Weight, usize)> = (0..)
            .zip(blocks)
            .flat_map(|(place, block)| block.numbers().map(move |number| (number, place)))
            .collect();
        all.sort_unstable();
        let side_by_side = all.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let suspects: BTreeSet<(usize, usize)> = side_by_side.map(|pair| (pair[0].1, pair[1].1)).collect();
        for (earlier, later) in suspects {
            let (earlier, block) = (blocks[earlier], blocks[later]);
            if block.block == earlier.block {
                continue;
            }
            let shared = block.shared_with(earlier)?;
            let there = RepeatedAt::Step(earlier.block.step);
            let named = shared.iter().take(NAMED_MAX);
            let named: Vec<Repeat> =
                named.map(|pair| block.repeat(&self.table.schema, pair.new, there)).collect();
            block.refuse_if_any(named, shared.len() > NAMED_MAX)?;
        }
        Ok(())
    }
}

/// The step from which on earlier attempts are superseded when these blocks become visible; `None` if their
/// attempt has already superseded them. It is the first step of all ranks, since no rank goes on beyond a
/// step that others have written.
fn superseded_since(run: &Run, blocks: &[&Arc<NewIds>]) -> Option<u64> {
    if run.published.is_some() || planted::is(Bug::RepeatsCountSuperseded) {
        return None;
    }
    let given = blocks.iter().map(|block| block.block.step).min();
    [given, run.arriving.keys().next().copied()].into_iter().flatten().min()
}

/// The blocks of a run's arriving steps.
fn arriving(run: &Run) -> Vec<Candidate> {
    if planted::is(Bug::RepeatsForgetArriving) {
        return Vec::new();
    }
    let steps = run.arriving.iter().flat_map(|(step, ranks)| ranks.values().map(move |block| (*step, block)));
    let placed = steps.filter_map(|(step, block)| block.placed.clone().map(|placed| (step, placed)));
    placed
        .map(|(step, placed)| Candidate { placed, arriving_in: Some(step), superseded_since: None })
        .collect()
}

/// The pieces that may hold visible rows of a run, except those superseded from a step on.
fn visible(manifest: &Manifest, name: &RunId, since: Option<u64>) -> Vec<Candidate> {
    let is_of_run = |placed: &&Placed| placed.piece.extent.run.as_ref().is_none_or(|run| run == name);
    let candidate = |placed: &Placed| {
        let steps = placed.piece.extent.steps;
        let superseded_since = since.filter(|since| steps.to.is_none_or(|to| *since < to));
        let is_gone = superseded_since.is_some_and(|since| since <= steps.from);
        (!is_gone).then(|| Candidate { placed: placed.clone(), arriving_in: None, superseded_since })
    };
    manifest.pieces.values().filter(is_of_run).filter_map(candidate).collect()
}
