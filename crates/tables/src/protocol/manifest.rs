//! Manifests: the content of one version.

use super::{ObjectId, PieceKey, Placed, Run, RunId, Scope, Version};
use std::collections::{BTreeMap, BTreeSet};

/// The content of one version.
///
/// Its fields are public so that they can be encoded; they change only in [`Manifest::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// The version whose content this is.
    pub version: Version,
    /// The lowest version that can still be read without a snapshot.
    pub floor: Version,
    /// What answers for the visible rows.
    pub pieces: BTreeMap<PieceKey, Placed>,
    /// The runs.
    pub runs: BTreeMap<RunId, Run>,
    /// Rows that are struck in the pieces that have not heeded them, oldest first.
    pub tombstones: Vec<Tombstone>,
    /// Objects that no version from this one on names, and that a vacuum has yet to remove.
    pub retired: BTreeMap<ObjectId, Life>,
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

    /// Every object that this version names, those of arriving steps included.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let arriving = self.runs.values().flat_map(Run::arriving_pieces);
        self.pieces.values().chain(arriving).map(|placed| placed.piece.object)
    }

    /// Removes the pieces whose rows are all in scope and strikes the rows of the others.
    pub(super) fn strike(&mut self, scope: &Scope) {
        self.pieces.retain(|_, placed| !scope.covers(&placed.piece.extent));
        self.tombstones.push(Tombstone { version: self.version, scope: scope.clone() });
    }

    /// Retires what this version names no longer though the last one did, and drops tombstones that strike
    /// nothing any more.
    pub(super) fn settle(&mut self, before: &Self) {
        let named: BTreeSet<ObjectId> = self.objects().collect();
        let arrived = before.runs.values().flat_map(Run::arriving_pieces);
        for placed in before.pieces.values().chain(arrived) {
            if !named.contains(&placed.piece.object) {
                let life = Life { born: placed.born, retired: self.version };
                self.retired.insert(placed.piece.object, life);
            }
        }
        let pieces = &self.pieces;
        self.tombstones.retain(|tombstone| pieces.values().any(|placed| tombstone.holds_for(placed)));
    }
}
