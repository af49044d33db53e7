//! Pieces: which range of weights of which part of which object answers for rows, and what is known of them.

use super::{ObjectId, RunId, Version};
use std::sync::Arc;

/// Weights `from..to`, half open; no end for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightRange {
    /// The lowest weight in it.
    pub from: u64,
    /// The lowest weight above it.
    pub to: Option<u64>,
}

impl WeightRange {
    /// Every weight.
    pub const ALL: Self = Self { from: 0, to: None };

    /// Whether there can be no weight in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.is_some_and(|to| to <= self.from)
    }

    /// Whether the weight lies in it.
    #[must_use]
    pub fn contains(&self, weight: u64) -> bool {
        weight >= self.from && self.to.is_none_or(|to| weight < to)
    }

    /// Whether all of `other` lies in it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let ends_in_time = match (self.to, other.to) {
            (None, _) => true,
            (Some(to), Some(other_to)) => other_to <= to,
            (Some(_), None) => false,
        };
        self.from <= other.from && ends_in_time
    }

    /// Whether the two have a weight in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.to.is_none_or(|to| other.from < to) && other.to.is_none_or(|to| self.from < to)
    }

    /// What is left below and above `taken`, which it covers; empty ranges are left out.
    pub(super) fn without(&self, taken: &Self) -> impl Iterator<Item = Self> + use<> {
        let below = Self { from: self.from, to: Some(taken.from) };
        let (above, end) = (taken.to, self.to);
        let above = above.map(|to| Self { from: to, to: end });
        std::iter::once(below).chain(above).filter(|range| !range.is_empty())
    }
}

/// Steps `from..to`, half open; no end for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepRange {
    /// The first step in it.
    pub from: u64,
    /// The first step behind it.
    pub to: Option<u64>,
}

impl StepRange {
    /// Every step.
    pub const ALL: Self = Self { from: 0, to: None };

    /// Just this step.
    #[must_use]
    pub const fn only(step: u64) -> Self {
        Self { from: step, to: step.checked_add(1) }
    }

    /// This step and all after it.
    #[must_use]
    pub const fn since(step: u64) -> Self {
        Self { from: step, to: None }
    }

    /// Whether the step lies in it.
    #[must_use]
    pub fn contains(&self, step: u64) -> bool {
        step >= self.from && self.to.is_none_or(|to| step < to)
    }

    fn weights(&self) -> WeightRange {
        WeightRange { from: self.from, to: self.to }
    }
}

/// Where the rows of a piece come from, so that most tombstones need not look into it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The run they all belong to; none if they may belong to several.
    pub run: Option<RunId>,
    /// The steps that they lie in.
    pub steps: StepRange,
}

/// In which form an object holds rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// A block, as a writer appended it.
    #[default]
    Block,
    /// A cube, as a packer made it.
    Cube,
}

/// Rows that a writer or packer put into an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The object.
    pub object: ObjectId,
    /// Which part of it; the cubes of a subtree share an object.
    pub part: u32,
    /// In which form it lies there.
    pub form: Form,
    /// Which weights of that part.
    pub weights: WeightRange,
    /// How many rows that is, dead ones included.
    pub rows: u64,
    /// How many bytes of the object they take, about; 0 where nobody counted.
    pub bytes: u64,
    /// How many bytes at the front of the object tell what lies where; 0 where nobody counted.
    pub front_bytes: u64,
    /// Where they come from.
    pub extent: Extent,
    /// Where they lie; none where nobody looked.
    pub tight: Option<TightBox>,
}

/// A box around all rows of a piece, in the index columns of its table, as it is stored; the protocol does
/// not look into it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TightBox(pub Arc<[u8]>);

/// How a manifest finds a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceKey {
    /// The object.
    pub object: ObjectId,
    /// Which part of it.
    pub part: u32,
    /// The lowest weight of the range.
    pub weight_from: u64,
}

/// A piece as a version has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placed {
    /// The piece.
    pub piece: Piece,
    /// The version that first named its object.
    pub born: Version,
    /// Up to which version its rows have heeded every tombstone: for a block the version in which its step
    /// became visible, for a cube the version that its packer read.
    pub clean_to: Version,
}

impl Piece {
    /// How a manifest finds it.
    #[must_use]
    pub const fn key(&self) -> PieceKey {
        PieceKey { object: self.object, part: self.part, weight_from: self.weights.from }
    }
}

/// What a delete or a supersede is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Rows of this run; of every run for none.
    pub run: Option<RunId>,
    /// Rows of these steps.
    pub steps: StepRange,
    /// Rows for which this expression holds, in the grammar of the tables; all for none.
    pub expression: Option<Arc<str>>,
}

/// Which rows of a piece are struck: those that meet all that is said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Struck {
    /// Rows of this run; none where the whole piece is of it, or of any.
    pub run: Option<RunId>,
    /// Rows of these steps; none where the whole piece lies in them.
    pub steps: Option<StepRange>,
    /// Rows for which this expression holds; all for none.
    pub expression: Option<Arc<str>>,
}

impl Scope {
    /// What it asks of the rows of a piece with this extent, beyond what all of them meet.
    pub(super) fn beyond(&self, extent: &Extent) -> Struck {
        let covers_steps = self.steps.weights().covers(&extent.steps.weights());
        Struck {
            run: self.run.clone().filter(|run| extent.run.as_ref() != Some(run)),
            steps: (!covers_steps).then_some(self.steps),
            expression: self.expression.clone(),
        }
    }

    /// Whether a row of a piece with this extent can be in scope.
    #[must_use]
    pub fn may_touch(&self, extent: &Extent) -> bool {
        let runs_meet = match (&self.run, &extent.run) {
            (Some(run), Some(other)) => run == other,
            _ => true,
        };
        runs_meet && self.steps.weights().meets(&extent.steps.weights())
    }

    /// Whether every row of a piece with this extent is in scope.
    #[must_use]
    pub fn covers(&self, extent: &Extent) -> bool {
        self.expression.is_none() && self.covers_origin(extent)
    }

    /// Whether every row of a piece with this extent comes from a run and step in scope, so that the
    /// expression alone decides.
    #[must_use]
    pub fn covers_origin(&self, extent: &Extent) -> bool {
        (self.run.is_none() || self.run == extent.run) && self.steps.weights().covers(&extent.steps.weights())
    }
}
