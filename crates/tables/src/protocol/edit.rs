//! Edits: the requests that make the next version.

use super::{Piece, RunId, Scope, StepTime, Version, WeightRange};
use std::sync::Arc;

/// Identifies a block: the rows of one rank and step, as one attempt wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    /// The run.
    pub run: RunId,
    /// The attempt; every start of the simulation has a higher number.
    pub attempt: u64,
    /// The step.
    pub step: u64,
    /// The rank, `0..ranks`.
    pub rank: u32,
}

/// A block and where its rows are stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Identifies the block.
    pub id: BlockId,
    /// The time of its step, if the writer gave one.
    pub time: Option<StepTime>,
    /// The piece with its rows; `None` if the rank had no rows in the step.
    pub piece: Option<Piece>,
}

/// A step whose rows of all ranks are loaded at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadedStep {
    /// The step.
    pub step: u64,
    /// Its time, if the writer gave one.
    pub time: Option<StepTime>,
    /// Number of rows in the step.
    pub rows: u64,
}

/// Rows that a pack takes from a piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Removal {
    /// The object of the piece.
    pub object: super::ObjectId,
    /// Which part of the object.
    pub part: u32,
    /// The weights that are taken. The rest of the piece stays.
    pub weights: WeightRange,
    /// Number of rows in that range, including struck ones.
    pub rows: u64,
}

/// A column that was added to an existing table. The protocol looks at its name only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddedColumn {
    /// The name of the column.
    pub name: Arc<str>,
    /// The stored definition of the column; equal columns have equal texts.
    pub text: Arc<str>,
}

/// What an edit that begins an attempt requires of the last complete step of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LastStep {
    /// Nothing.
    Any,
    /// It must still be this one; `None` for a run that has no complete step or does not exist.
    Is(Option<u64>),
}

/// A request to change a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Begins an attempt of a run. Earlier attempts can no longer append, and the blocks of their incomplete
    /// steps are removed.
    Begin {
        /// The run; created if it does not exist.
        run: RunId,
        /// The attempt; higher than any before.
        attempt: u64,
        /// Number of ranks that write each step, at least 1.
        ranks: u32,
        /// The required state of the run in the version before, so that a writer that continues from a step
        /// it has seen does not supersede steps that came since.
        last: LastStep,
    },
    /// Adds blocks. A step becomes visible in the version that adds its last rank's block. The first step of
    /// an attempt to do so supersedes, in the same version, that step and all later steps of earlier
    /// attempts.
    Append {
        /// The blocks; those that the table already has are skipped.
        blocks: Vec<Block>,
    },
    /// Adds whole steps of one run, whose rows are stored together in pieces. All steps become visible in one
    /// version, each as if its last rank's block had arrived. Either all are added or none.
    Load {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: u64,
        /// The steps, in rising order.
        steps: Vec<LoadedStep>,
        /// The pieces with the rows of these steps, and no other rows.
        add: Vec<Piece>,
    },
    /// Replaces pieces, or weight ranges of them, by pieces in new objects that hold the same rows.
    Pack {
        /// The version that the packer read. It has applied every tombstone up to this version.
        base: Version,
        /// The ranges that the packer read.
        remove: Vec<Removal>,
        /// The pieces that it wrote.
        add: Vec<Piece>,
        /// Number of rows left out because tombstones up to `base` had struck them.
        dropped: u64,
    },
    /// Removes the rows in scope that are visible when the edit is committed.
    Delete {
        /// The scope.
        scope: Scope,
    },
    /// Ends the promise that versions below `to` can be read: the first half of a vacuum.
    RaiseFloor {
        /// The lowest version that stays readable.
        to: Version,
    },
    /// Forgets retired objects that a vacuum has removed from the store: the second half of a vacuum.
    Forget {
        /// The objects; those that have already been forgotten are skipped.
        objects: Vec<super::ObjectId>,
    },
    /// Adds a column after all others. Existing rows have no value in it.
    AddColumn {
        /// The column.
        column: AddedColumn,
    },
}

impl Edit {
    /// Number of steps, blocks, pieces and objects that the edit names. Its text is about as long as those of
    /// as many entries of a whole manifest.
    #[must_use]
    pub fn entries(&self) -> u64 {
        let entries = match self {
            Self::Append { blocks } => blocks.len(),
            Self::Load { steps, add, .. } => steps.len() + add.len(),
            Self::Pack { remove, add, .. } => remove.len() + add.len(),
            Self::Forget { objects } => objects.len(),
            Self::Begin { .. } | Self::Delete { .. } | Self::RaiseFloor { .. } | Self::AddColumn { .. } => 1,
        };
        entries as u64
    }
}
