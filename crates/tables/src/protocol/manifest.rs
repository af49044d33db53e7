//! Manifests: the content of one version.

use super::{
    AddedColumn, BlockId, ObjectId, PieceKey, Placed, Run, RunId, Scope, SharedMap, Struck, Version,
};
use crate::planted::{self, Bug};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many entries of a whole manifest cost as much as an edit.
const ENTRIES_EACH: u64 = 4;

/// How many edits lie between whole manifests, at least and at most.
const EDITS_MIN: u64 = 64;
const EDITS_MAX: u64 = 4096;

/// The content of one version.
///
/// Its fields are public so that they can be encoded; they change only in [`Manifest::apply`]. Copies share
/// what they have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// The version whose content this is.
    pub version: Version,
    /// The lowest version that can still be read without a snapshot.
    pub floor: Version,
    /// The columns that were added since the table was made, in their order: they are never fewer later.
    pub columns: Arc<[AddedColumn]>,
    /// What answers for the visible rows.
    pub pieces: SharedMap<PieceKey, Placed>,
    /// The runs.
    pub runs: SharedMap<RunId, Run>,
    /// The runs of which something is arriving: a few of many.
    pub(crate) busy: BTreeSet<RunId>,
    /// How many visible steps they have.
    pub(crate) steps: usize,
    /// Rows that are struck in the pieces that have not heeded them, oldest first.
    pub tombstones: Vec<Tombstone>,
    /// Objects that no version from this one on names, and that a vacuum has yet to remove.
    pub retired: SharedMap<ObjectId, Life>,
}

/// Rows that are struck.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tombstone {
    /// The version that struck them: it holds for pieces that are clean to a lower one.
    pub version: Version,
    /// Which rows.
    pub scope: Scope,
}

/// Which versions name an object: `born..retired`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    /// The first version that names it.
    pub born: Version,
    /// The first version after that which does not.
    pub retired: Version,
}

impl Tombstone {
    /// Whether it strikes rows of this piece, as far as can be said without reading them.
    #[must_use]
    pub fn holds_for(&self, placed: &Placed) -> bool {
        self.version > placed.clean_to && self.scope.may_touch(&placed.piece.extent)
    }
}

impl Manifest {
    /// The tombstones that a reader of this piece has to heed.
    pub fn tombstones_of<'a>(&'a self, placed: &'a Placed) -> impl Iterator<Item = &'a Tombstone> {
        self.tombstones.iter().filter(|tombstone| tombstone.holds_for(placed))
    }

    /// What a reader of this piece has to leave out: rows that meet all that is said by one of these.
    #[must_use]
    pub fn struck_of(&self, placed: &Placed) -> Vec<Struck> {
        let tombstones = self.tombstones_of(placed).skip(usize::from(planted::is(Bug::TombstoneForgotten)));
        tombstones.map(|tombstone| tombstone.scope.beyond(&placed.piece.extent)).collect()
    }

    /// Every object that this version names, those of arriving steps included.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let arriving = self.arriving().map(|placed| placed.piece.object);
        self.pieces.keys().map(|key| key.object).chain(arriving)
    }

    /// The pieces of steps that are not visible yet.
    fn arriving(&self) -> impl Iterator<Item = &Placed> {
        let runs = self.busy.iter().filter_map(|run| self.runs.get(run));
        runs.flat_map(Run::arriving_pieces)
    }

    /// Whether this version names the object.
    pub(super) fn names(&self, object: ObjectId) -> bool {
        let first = PieceKey { object, part: 0, weight_from: 0 };
        let holds = self.pieces.since(&first).next().is_some_and(|(key, _)| key.object == object);
        holds || self.arriving().any(|placed| placed.piece.object == object)
    }

    /// Whether this version names the object of a block, or one before it has.
    pub(crate) fn has_named(&self, block: &BlockId, object: ObjectId) -> bool {
        // Where it lies while its step is arriving, so that not all of these have to be looked at.
        let run = self.runs.get(&block.run);
        let arriving = run.and_then(|run| run.arriving.get(&block.step)?.get(&block.rank)?.placed.as_ref());
        arriving.is_some_and(|placed| placed.piece.object == object) || self.check_unused(object).is_err()
    }

    /// Counts anew what is told apart for speed, once all runs of a stored manifest are there.
    pub(crate) fn count(&mut self) {
        let is_busy = |(name, run): (&RunId, &Run)| (!run.arriving.is_empty()).then(|| name.clone());
        self.busy = self.runs.iter().filter_map(is_busy).collect();
        self.steps = self.runs.values().map(|run| run.complete.len()).sum();
    }

    /// How many edits may follow a whole manifest before the next one is due.
    ///
    /// It rises with what a whole manifest costs to write, so that all of them together cost no more than the
    /// edits do; it ends where the edits would cost too much to read.
    #[must_use]
    pub fn edits_max(&self) -> u64 {
        let entries = self.pieces.len() + self.runs.len() + self.steps + self.retired.len();
        (entries as u64 / ENTRIES_EACH).clamp(EDITS_MIN, EDITS_MAX)
    }

    /// Removes the pieces whose rows are all in scope and strikes the rows of the others; answers what was
    /// removed.
    pub(super) fn strike(&mut self, scope: &Scope) -> Vec<Placed> {
        let gone = self.pieces.extract(|_, placed| scope.covers(&placed.piece.extent));
        let tombstone = Tombstone { version: self.version, scope: scope.clone() };
        if self.pieces.values().any(|placed| tombstone.holds_for(placed)) {
            self.tombstones.push(tombstone);
        }
        gone.into_iter().map(|(_, placed)| placed).collect()
    }

    /// Retires the objects of removed pieces that this version names no longer, and drops tombstones that
    /// strike nothing any more.
    pub(super) fn settle(&mut self, gone: &[Placed]) {
        for placed in gone {
            if !self.names(placed.piece.object) {
                let life = Life { born: placed.born, retired: self.version };
                self.retired.insert(placed.piece.object, life);
            }
        }
        if planted::is(Bug::PackTakesTombstones) && !gone.is_empty() {
            self.tombstones.clear();
        }
        if !gone.is_empty() {
            let pieces = &self.pieces;
            self.tombstones.retain(|tombstone| pieces.values().any(|placed| tombstone.holds_for(placed)));
        }
    }
}
