//! Marks: which commits brought the first rows of an attempt.
//!
//! A copy of a store keeps them, and an attempt that begins in the copy gets one of its own. So two tables of
//! one identity have the rows of an attempt in common only if both have the same mark for it, whatever packs
//! and vacuums did to the objects since.
//!
//! Invariant: a mark is written in the write that commits the first rows of its attempts, and never changed.

use super::{Edit, Manifest, RunId};
use std::collections::BTreeSet;

/// An attempt of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// The run.
    pub run: RunId,
    /// The attempt; every start of the simulation has a higher number.
    pub attempt: u64,
}

impl Manifest {
    /// The attempts that get their first blocks if the edit follows this version.
    #[must_use]
    pub fn begun_by(&self, edit: &Edit) -> BTreeSet<AttemptId> {
        let has_none = |(run, attempt): &(&RunId, u64)| {
            let known = self.runs.get(*run).filter(|known| known.attempt == *attempt);
            known.is_some_and(|known| known.published.is_none() && known.arriving.is_empty())
        };
        let own = |(run, attempt): (&RunId, u64)| AttemptId { run: run.clone(), attempt };
        match edit {
            Edit::Append { blocks } => {
                let named = blocks.iter().map(|block| (&block.id.run, block.id.attempt));
                named.filter(has_none).map(own).collect()
            }
            Edit::Load { run, attempt, .. } => {
                std::iter::once((run, *attempt)).filter(has_none).map(own).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// The attempts of which this version shows rows of whole steps.
    #[must_use]
    pub fn shown_attempts(&self) -> BTreeSet<AttemptId> {
        let mut all = BTreeSet::new();
        for (run, state) in self.runs.iter() {
            let shown = state.complete.values().filter(|there| !there.is_deleted && there.rows > 0);
            let attempts: BTreeSet<u64> = shown.map(|there| there.attempt).collect();
            all.extend(attempts.into_iter().map(|attempt| AttemptId { run: run.clone(), attempt }));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Block, BlockId, LastStep, LoadedStep, Scope, StepRange};
    use super::*;

    fn begin(attempt: u64, ranks: u32) -> Edit {
        Edit::Begin { run: "a".into(), attempt, ranks, last: LastStep::Any }
    }

    /// A block of a rank without rows.
    fn append(attempt: u64, step: u64, rank: u32) -> Edit {
        let id = BlockId { run: "a".into(), attempt, step, rank };
        Edit::Append { blocks: vec![Block { id, time: None, piece: None }] }
    }

    fn load(attempt: u64, step: u64) -> Edit {
        let steps = vec![LoadedStep { step, time: None, rows: 0 }];
        Edit::Load { run: "a".into(), attempt, steps, add: Vec::new() }
    }

    fn first(attempt: u64) -> BTreeSet<AttemptId> {
        BTreeSet::from([AttemptId { run: "a".into(), attempt }])
    }

    #[test]
    fn only_the_first_block_of_an_attempt_begins_it_even_if_no_step_is_complete_yet() {
        let begun = Manifest::default().apply(&begin(1, 2)).unwrap();
        assert_eq!(begun.begun_by(&append(1, 0, 0)), first(1));
        assert_eq!(begun.begun_by(&load(1, 0)), first(1));
        let arriving = begun.apply(&append(1, 0, 0)).unwrap();
        assert_eq!(arriving.begun_by(&append(1, 0, 1)), BTreeSet::new());
        let complete = arriving.apply(&append(1, 0, 1)).unwrap();
        assert_eq!(complete.begun_by(&append(1, 1, 0)), BTreeSet::new());
        assert_eq!(complete.begun_by(&load(1, 1)), BTreeSet::new());
        // A delete takes the rows, not the beginning.
        let scope = Scope { run: None, steps: StepRange::ALL, expression: None };
        let deleted = complete.apply(&Edit::Delete { scope }).unwrap();
        assert_eq!(deleted.begun_by(&append(1, 1, 0)), BTreeSet::new());
        // The next attempt begins anew, and blocks of the earlier one begin nothing.
        let next = deleted.apply(&begin(2, 1)).unwrap();
        assert_eq!(next.begun_by(&append(2, 1, 0)), first(2));
        assert_eq!(next.begun_by(&append(1, 1, 0)), BTreeSet::new());
        assert_eq!(next.begun_by(&begin(3, 1)), BTreeSet::new());
    }

    #[test]
    fn steps_that_were_deleted_or_have_no_rows_show_nothing_of_their_attempt() {
        let begun = Manifest::default().apply(&begin(1, 1)).unwrap();
        let empty = begun.apply(&append(1, 0, 0)).unwrap();
        assert_eq!(empty.shown_attempts(), BTreeSet::new());
        let mut with_rows = empty;
        let run = with_rows.runs.get_mut("a").unwrap();
        run.complete.get_mut(&0).unwrap().rows = 3;
        assert_eq!(with_rows.shown_attempts(), first(1));
        let run = with_rows.runs.get_mut("a").unwrap();
        run.complete.get_mut(&0).unwrap().is_deleted = true;
        assert_eq!(with_rows.shown_attempts(), BTreeSet::new());
    }
}
