//! Manifests: the content of one version.

use super::{
    AddedColumn, BlockId, ObjectId, PieceKey, Placed, Run, RunId, Scope, SharedMap, Struck, Version,
};
use crate::planted::{self, Bug};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of entries of a whole manifest that cost as much as one edit.
const ENTRIES_EACH: u64 = 4;

/// Minimum and maximum number of edits between whole manifests.
const EDITS_MIN: u64 = 64;
const EDITS_MAX: u64 = 4096;

/// Minimum number of entries of edits between whole manifests, if these come earlier because edits are long.
const ENTRIES_MIN: u64 = 4096;

/// The content of one version.
///
/// The fields are public so that they can be encoded; they are changed only by [`Manifest::apply`]. Clones
/// share what they have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// The version whose content this is.
    pub version: Version,
    /// The lowest version that can be read without a snapshot.
    pub floor: Version,
    /// The columns added since the table was created, in order. Later versions never have fewer.
    pub columns: Arc<[AddedColumn]>,
    /// The pieces that hold the visible rows.
    pub pieces: SharedMap<PieceKey, Placed>,
    /// The runs.
    pub runs: SharedMap<RunId, Run>,
    /// The runs with arriving steps, usually few of many.
    pub(crate) busy: BTreeSet<RunId>,
    /// The objects of arriving steps, which are asked for by name.
    pub(crate) arriving_objects: SharedMap<ObjectId, ()>,
    /// Total number of visible steps of all runs.
    pub(crate) steps: usize,
    /// Deletes that some piece has not applied yet, oldest first; of those with one scope the newest.
    pub tombstones: Vec<Tombstone>,
    /// Objects that this and later versions do not name, and that a vacuum has yet to remove.
    pub retired: SharedMap<ObjectId, Life>,
}

/// Rows struck by a delete or by a superseding step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tombstone {
    /// The version that struck them. The tombstone holds for pieces that are clean to a lower version.
    pub version: Version,
    /// Which rows.
    pub scope: Scope,
}

/// The versions that name an object: `born..retired`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    /// The first version that names it.
    pub born: Version,
    /// The first later version that does not.
    pub retired: Version,
}

impl Tombstone {
    /// Whether it may strike rows of this piece, judged without reading them.
    #[must_use]
    pub fn holds_for(&self, placed: &Placed) -> bool {
        self.version > placed.clean_to && self.scope.may_touch(&placed.piece.extent)
    }
}

impl Manifest {
    /// The tombstones that a reader of this piece must apply.
    pub fn tombstones_of<'a>(&'a self, placed: &'a Placed) -> impl Iterator<Item = &'a Tombstone> {
        self.tombstones.iter().filter(|tombstone| tombstone.holds_for(placed))
    }

    /// What a reader of this piece must leave out: rows that match at least one of these.
    #[must_use]
    pub fn struck_of(&self, placed: &Placed) -> Vec<Struck> {
        let tombstones = self.tombstones_of(placed).skip(usize::from(planted::is(Bug::TombstoneForgotten)));
        tombstones.map(|tombstone| tombstone.scope.beyond(&placed.piece.extent)).collect()
    }

    /// All objects that this version names, including those of arriving steps.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let arriving = self.arriving().map(|placed| placed.piece.object);
        self.pieces.keys().map(|key| key.object).chain(arriving)
    }

    /// The pieces of arriving steps.
    fn arriving(&self) -> impl Iterator<Item = &Placed> {
        let runs = self.busy.iter().filter_map(|run| self.runs.get(run));
        runs.flat_map(Run::arriving_pieces)
    }

    /// Whether this version names the object.
    pub(super) fn names(&self, object: ObjectId) -> bool {
        let first = PieceKey { object, part: 0, weight_from: 0 };
        let holds = self.pieces.since(&first).next().is_some_and(|(key, _)| key.object == object);
        holds || self.arriving_objects.contains_key(&object)
    }

    /// Whether this version or an earlier one has named the object of a block.
    pub(crate) fn has_named(&self, block: &BlockId, object: ObjectId) -> bool {
        // Look where the block would be arriving first, which avoids a search of all names.
        let run = self.runs.get(&block.run);
        let arriving = run.and_then(|run| run.arriving.get(&block.step)?.get(&block.rank)?.placed.as_ref());
        arriving.is_some_and(|placed| placed.piece.object == object) || self.check_unused(object).is_err()
    }

    /// Recomputes the derived fields, after all runs of a stored manifest were filled in.
    pub(crate) fn count(&mut self) {
        let is_busy = |(name, run): (&RunId, &Run)| (!run.arriving.is_empty()).then(|| name.clone());
        self.busy = self.runs.iter().filter_map(is_busy).collect();
        self.steps = self.runs.values().map(|run| run.complete.len()).sum();
        self.arriving_objects = self.arriving().map(|placed| (placed.piece.object, ())).collect();
    }

    /// The maximum number of edits between two whole manifests.
    ///
    /// It grows with the cost of writing a whole manifest, so that all of these together cost no more than
    /// the edits do. It is capped, because the edits must be read to resolve a version.
    #[must_use]
    pub fn edits_max(&self) -> u64 {
        (self.entries() / ENTRIES_EACH).clamp(EDITS_MIN, EDITS_MAX)
    }

    /// Whether this version should get a whole manifest although the edits since the last one are few: they
    /// have this many entries, at least half as many as the whole manifest. Whoever opens the table reads
    /// them all, and a load has thousands. So all whole manifests together have at most about twice as many
    /// entries as the edits.
    #[must_use]
    pub fn is_whole_due(&self, entries_since: u64) -> bool {
        entries_since >= ENTRIES_MIN && entries_since.saturating_mul(2) >= self.entries()
    }

    fn entries(&self) -> u64 {
        (self.pieces.len() + self.runs.len() + self.steps + self.retired.len()) as u64
    }

    /// Removes and returns the pieces whose rows are all in scope, and strikes the rows in scope of the
    /// others.
    ///
    /// Of several tombstones with one scope only the newest is kept. It holds for every piece for which an
    /// older one holds, and strikes the same rows of it. That includes the pieces of packs under way: a pack
    /// that read a version before it is clean to that version, so it is struck, whether or not that version
    /// had the older one.
    pub(super) fn strike(&mut self, scope: &Scope) -> Vec<Placed> {
        let gone = self.pieces.extract(|_, placed| scope.covers(&placed.piece.extent));
        let tombstone = Tombstone { version: self.version, scope: scope.clone() };
        if self.pieces.values().any(|placed| tombstone.holds_for(placed)) {
            self.tombstones.retain(|older| older.scope != tombstone.scope);
            self.tombstones.push(tombstone);
        }
        gone.into_iter().map(|(_, placed)| placed).collect()
    }

    /// Retires the objects of removed pieces that this version no longer names, and drops tombstones that no
    /// longer strike anything.
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
