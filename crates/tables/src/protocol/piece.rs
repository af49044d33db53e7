//! Pieces: weight ranges of object parts that hold rows of a version, with the facts known about those rows.

use super::{ObjectId, RunId, Version};
use std::sync::Arc;

/// Weights `from..to`, half open; unbounded above if `to` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightRange {
    /// The lowest weight in it.
    pub from: u64,
    /// The first weight above it.
    pub to: Option<u64>,
}

impl WeightRange {
    /// Every weight.
    pub const ALL: Self = Self { from: 0, to: None };

    /// Whether no weight can lie in it.
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

    /// The ranges left below and above `taken`, which must lie within this one; empty ones are left out.
    pub(super) fn without(&self, taken: &Self) -> impl Iterator<Item = Self> + use<> {
        let below = Self { from: self.from, to: Some(taken.from) };
        let (above, end) = (taken.to, self.to);
        let above = above.map(|to| Self { from: to, to: end });
        std::iter::once(below).chain(above).filter(|range| !range.is_empty())
    }
}

/// Steps `from..to`, half open; unbounded above if `to` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepRange {
    /// The first step in it.
    pub from: u64,
    /// The first step after it.
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

/// The origin of a piece's rows, which lets most tombstones be judged without reading the piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The run of all rows; `None` if they may belong to several.
    pub run: Option<RunId>,
    /// A range that contains the steps of all rows.
    pub steps: StepRange,
}

/// The form in which an object holds rows.
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
    /// The part of the object; the cubes of a subtree share one object.
    pub part: u32,
    /// The form of the object.
    pub form: Form,
    /// The weights of that part.
    pub weights: WeightRange,
    /// Number of rows, including struck ones.
    pub rows: u64,
    /// Approximate number of bytes that they take in the object; 0 if unknown.
    pub bytes: u64,
    /// Length in bytes of the head and directory at the front of the object; 0 if unknown.
    pub front_bytes: u64,
    /// The runs and steps of the rows.
    pub extent: Extent,
    /// A box around the rows, whose ends are values of theirs; `None` if unknown.
    pub tight: Option<TightBox>,
}

/// A box around all rows of a piece in the index columns of its table, in its stored form. The protocol does
/// not interpret it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TightBox(pub Arc<[u8]>);

/// The key of a piece in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceKey {
    /// The object.
    pub object: ObjectId,
    /// The part of the object.
    pub part: u32,
    /// The lowest weight of the range.
    pub weight_from: u64,
}

/// A piece as part of a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placed {
    /// The piece.
    pub piece: Piece,
    /// The version that first named its object.
    pub born: Version,
    /// The version up to which every tombstone has been applied to its rows: for a block, the version in
    /// which its step became visible; for a cube, the version that its packer read.
    pub clean_to: Version,
}

impl Piece {
    /// The key of the piece in a manifest.
    #[must_use]
    pub const fn key(&self) -> PieceKey {
        PieceKey { object: self.object, part: self.part, weight_from: self.weights.from }
    }
}

/// The rows that a delete or a superseding step strikes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Rows of this run; of every run if `None`.
    pub run: Option<RunId>,
    /// Rows of these steps.
    pub steps: StepRange,
    /// Rows for which this expression of the tables' grammar holds; all rows if `None`.
    pub expression: Option<Arc<str>>,
}

/// Which rows of a piece are struck: those that match all of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Struck {
    /// Rows of this run; `None` if all rows of the piece match in this respect.
    pub run: Option<RunId>,
    /// Rows of these steps; `None` if all rows of the piece match in this respect.
    pub steps: Option<StepRange>,
    /// Rows for which this expression holds; all rows if `None`.
    pub expression: Option<Arc<str>>,
}

impl Scope {
    /// The conditions that not all rows of a piece with this extent are known to meet.
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
