//! Edits: the wishes that make the next version.

use super::{Piece, RunId, Scope, StepTime, Version, WeightRange};
use std::sync::Arc;

/// Which block: one rank's rows of one step, as one attempt wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    /// The run.
    pub run: RunId,
    /// The attempt; every start of the simulation has a higher one.
    pub attempt: u64,
    /// The step.
    pub step: u64,
    /// The rank, `0..ranks`.
    pub rank: u32,
}

/// A block and where it lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Which block.
    pub id: BlockId,
    /// The time of its step, if the writer told it.
    pub time: Option<StepTime>,
    /// Its rows; none for a rank that had no rows in the step.
    pub piece: Option<Piece>,
}

/// A step of which all ranks' rows come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadedStep {
    /// The step.
    pub step: u64,
    /// Its time, if the writer told it.
    pub time: Option<StepTime>,
    /// How many rows it has.
    pub rows: u64,
}

/// Rows that a pack takes over from a piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Removal {
    /// The piece's object and part, and the weights that are taken; the rest of the piece stays.
    pub object: super::ObjectId,
    /// Which part of the object.
    pub part: u32,
    /// Which weights of that part.
    pub weights: WeightRange,
    /// How many rows that is, dead ones included.
    pub rows: u64,
}

/// A column that was added to a table after it was made. The protocol looks at its name alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddedColumn {
    /// Its name.
    pub name: Arc<str>,
    /// All of it, as it is stored: one text for one column.
    pub text: Arc<str>,
}

/// What is asked of the last complete step of a run as an attempt of it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LastStep {
    /// Whatever it is.
    Any,
    /// It is this one still; none for a run that has no complete step, or is not there.
    Is(Option<u64>),
}

/// A wish to change a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Starts an attempt of a run. Attempts before it can append no longer, and what has come of their
    /// incomplete steps goes.
    Begin {
        /// The run; a new one if nobody began it before.
        run: RunId,
        /// The attempt, higher than any before.
        attempt: u64,
        /// How many ranks write each step, at least 1.
        ranks: u32,
        /// What the run has to be like in the version before, so that whoever goes on from a step that it saw
        /// takes nothing away that came since.
        last: LastStep,
    },
    /// Adds blocks. The version in which the last rank's block of a step comes is the one in which the step
    /// becomes visible; the first such step of an attempt supersedes the same and all later steps of earlier
    /// attempts, in that version.
    Append {
        /// The blocks; those that are there already are passed over.
        blocks: Vec<Block>,
    },
    /// Adds whole steps of one run, whose rows lie together in pieces. All of them become visible in one
    /// version, each as with its last rank's block; either all are there afterwards, or none.
    Load {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: u64,
        /// The steps, in rising order.
        steps: Vec<LoadedStep>,
        /// Where their rows lie, and no others.
        add: Vec<Piece>,
    },
    /// Replaces pieces, or ranges of them, by pieces in new objects that hold the same rows.
    Pack {
        /// The version that the packer read; it has heeded every tombstone up to this one.
        base: Version,
        /// What the packer read.
        remove: Vec<Removal>,
        /// What it wrote.
        add: Vec<Piece>,
        /// How many rows it left out because tombstones up to `base` had struck them.
        dropped: u64,
    },
    /// Removes the rows in scope that are visible when the edit becomes true.
    Delete {
        /// Which rows.
        scope: Scope,
    },
    /// Ends the promise that versions below `to` can still be read: the first half of a vacuum.
    RaiseFloor {
        /// The lowest version that stays readable.
        to: Version,
    },
    /// Forgets retired objects that a vacuum has removed from the store: its second half.
    Forget {
        /// The objects; those that somebody else has forgotten already are passed over.
        objects: Vec<super::ObjectId>,
    },
    /// Adds a column behind all others. Rows that are there already have no value in it.
    AddColumn {
        /// The column.
        column: AddedColumn,
    },
}
