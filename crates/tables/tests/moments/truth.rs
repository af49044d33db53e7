//! The truth about a table as plain lists of rows: runs, attempts, steps and deletes, without anything about
//! how a table stores them.

use crate::conditions::Condition;
use crate::particles::Particle;
use atoll_tables::protocol::BlockId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The rows of one step of one rank.
pub type Rows = Arc<[Particle]>;

/// The id of a row.
type Id = (i64, i64);

fn id_of(row: &Particle) -> Id {
    (row.pid, row.step)
}

/// The truth about one run.
#[derive(Clone, Debug, Default)]
struct Run {
    attempt: u64,
    ranks: u32,
    /// The last step that this attempt published.
    published: Option<u64>,
    /// The visible steps, with the attempts that wrote them.
    complete: BTreeMap<u64, (u64, Vec<Rows>)>,
    /// Visible steps that were deleted as a whole.
    deleted: BTreeSet<u64>,
    /// The blocks of steps that are not visible yet, by step and rank.
    arriving: BTreeMap<u64, BTreeMap<u32, Rows>>,
}

impl Run {
    fn has(&self, id: &BlockId) -> bool {
        let is_arriving = self.arriving.get(&id.step).is_some_and(|ranks| ranks.contains_key(&id.rank));
        let is_complete = self.complete.get(&id.step).is_some_and(|(attempt, _)| *attempt == id.attempt);
        is_complete || (is_arriving && id.attempt == self.attempt)
    }

    /// Whether a missing block may be appended: the steps of a rank come in order.
    fn admits(&self, id: &BlockId) -> bool {
        let mut later = self.arriving.range(id.step..).filter(|(_, ranks)| ranks.contains_key(&id.rank));
        let is_behind = later.next().is_some() || self.published.is_some_and(|last| last >= id.step);
        id.attempt == self.attempt && id.rank < self.ranks && !is_behind && !self.would_lose_a_step(id)
    }

    /// Whether this block would make a step wait for ever that some ranks have written: a rank that has
    /// written a later step never writes an earlier one.
    fn would_lose_a_step(&self, id: &BlockId) -> bool {
        let mut given: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (step, ranks) in &self.arriving {
            given.entry(*step).or_default().extend(ranks.keys());
        }
        given.entry(id.step).or_default().insert(id.rank);
        given.iter().any(|(step, ranks)| given.range(step + 1..).any(|(_, later)| !later.is_subset(ranks)))
    }

    /// The ids that count when blocks of these steps are appended: visible ones that are not about to be
    /// superseded, and arriving ones.
    fn ids(&self, steps: impl Iterator<Item = u64>) -> BTreeSet<Id> {
        let since = steps.chain(self.arriving.keys().copied()).min().filter(|_| self.published.is_none());
        let visible = self.complete.range(..since.unwrap_or(u64::MAX)).flat_map(|(_, (_, blocks))| blocks);
        let arriving = self.arriving.values().flat_map(BTreeMap::values);
        visible.chain(arriving).flat_map(|rows| rows.iter().map(id_of)).collect()
    }

    /// Makes a step visible. The first step of an attempt replaces everything from that step on.
    fn publish(&mut self, step: u64) {
        if self.published.replace(step).is_none() {
            self.complete.split_off(&step);
            self.deleted.split_off(&step);
        }
        self.deleted.remove(&step);
        let blocks = self.arriving.remove(&step).unwrap_or_default().into_values();
        self.complete.insert(step, (self.attempt, blocks.collect()));
    }
}

/// The rows that a delete affects.
#[derive(Clone)]
pub struct Scope {
    pub run: Option<String>,
    pub steps: Option<Range<u64>>,
    pub condition: Option<Arc<Condition>>,
}

impl Scope {
    fn strikes(&self, row: &Particle) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.takes(row))
    }
}

/// The truth about a table in one version.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    runs: BTreeMap<String, Run>,
}

impl Truth {
    /// All visible rows, with or without those of arriving steps.
    pub fn rows(&self, with_arriving: bool) -> Vec<Particle> {
        let mut rows = Vec::new();
        for run in self.runs.values() {
            let mut run = run.clone();
            if with_arriving {
                run.arriving.clone().into_keys().for_each(|step| run.publish(step));
            }
            let blocks = run.complete.values().flat_map(|(_, blocks)| blocks);
            blocks.for_each(|block| rows.extend_from_slice(block));
        }
        rows
    }

    /// The attempt of a run that may write, and its number of ranks.
    pub fn attempt(&self, run: &str) -> Option<(u64, u32)> {
        self.runs.get(run).map(|run| (run.attempt, run.ranks))
    }

    /// The last visible step of a run.
    pub fn last(&self, run: &str) -> Option<u64> {
        let run = self.runs.get(run)?;
        run.complete.keys().rev().find(|step| !run.deleted.contains(step)).copied()
    }

    /// An id that would occur twice within a run if the blocks of one edit became true.
    pub fn repeated(&self, blocks: &[(BlockId, Rows)]) -> Option<Id> {
        let is_new = |id: &BlockId| self.runs.get(&*id.run.0).is_some_and(|run| !run.has(id));
        let names: BTreeSet<&str> = blocks.iter().map(|(id, _)| &*id.run.0).collect();
        names.into_iter().find_map(|name| {
            let mut new: Vec<&(BlockId, Rows)> =
                blocks.iter().filter(|(id, _)| &*id.run.0 == name && is_new(id)).collect();
            new.dedup_by(|left, right| left.0 == right.0);
            let mut known = self.runs.get(name)?.ids(new.iter().map(|(id, _)| id.step));
            new.into_iter().flat_map(|(_, rows)| rows.iter().map(id_of)).find(|id| !known.insert(*id))
        })
    }

    /// Whether a block is there or may be appended.
    pub fn admits(&self, id: &BlockId) -> bool {
        self.runs.get(&*id.run.0).is_some_and(|run| run.has(id) || run.admits(id))
    }

    /// Whether all ranks' blocks of some steps may be loaded at once: none of them is there, and no step is
    /// arriving.
    pub fn admits_load(&self, ids: &[BlockId]) -> bool {
        ids.iter().all(|id| {
            let run = self.runs.get(&*id.run.0);
            run.is_some_and(|run| run.admits(id) && run.arriving.is_empty())
        })
    }

    /// The runs.
    pub fn runs(&self) -> Vec<String> {
        self.runs.keys().cloned().collect()
    }

    pub fn begin(&mut self, name: &str, attempt: u64, ranks: u32) {
        let run = self.runs.entry(name.to_owned()).or_default();
        assert!(attempt > run.attempt, "attempt {attempt} of run {name} began after {}", run.attempt);
        let (complete, deleted) = (std::mem::take(&mut run.complete), std::mem::take(&mut run.deleted));
        *run = Run { attempt, ranks, complete, deleted, ..Run::default() };
    }

    /// Records that a block became true. A block that is there already changes nothing.
    pub fn append(&mut self, id: &BlockId, rows: Rows) {
        let run = self.runs.get_mut(&*id.run.0).expect("a run that nobody began");
        if run.has(id) {
            return;
        }
        assert!(run.admits(id), "{id:?} became true and must not");
        let step = run.arriving.entry(id.step).or_default();
        step.insert(id.rank, rows);
        if step.len() == run.ranks as usize {
            run.publish(id.step);
        }
    }

    /// Deletes the rows that are visible.
    pub fn delete(&mut self, scope: &Scope) {
        for (name, run) in &mut self.runs {
            if scope.run.as_ref().is_some_and(|run| run != name) {
                continue;
            }
            for (step, (_, blocks)) in &mut run.complete {
                if scope.steps.as_ref().is_some_and(|steps| !steps.contains(step)) {
                    continue;
                }
                if scope.condition.is_none() {
                    run.deleted.insert(*step);
                }
                for rows in blocks {
                    *rows = rows.iter().filter(|row| !scope.strikes(row)).cloned().collect();
                }
            }
        }
    }
}
