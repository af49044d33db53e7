//! Contained rows: those of blocks and trees of which every row matches a query, whatever its weight. Their
//! exact number is known without reading them.
//!
//! A block counts by itself, since which rows a program appended together does not depend on weights. What
//! `gather` and `import` append may have been read in the order of weights, so that each block is a range of
//! them; estimators recognize that by the number of its rows in the sample (`estimate/calibrated.rs`). A tree
//! counts only as a whole. Its light rows lie in wide pieces, which a region rarely contains, and its heavy
//! rows in narrow ones: the rows of those pieces that a region contains are heavier than others, so a sample
//! has too few of them.
//!
//! Invariant: of a tree, whether a row is contained does not depend on any weight.

use super::bound_query::BoundQuery;
use super::source::verdict_on;
use crate::expression::Verdict;
use crate::protocol::{Form, Manifest, Placed, Version, WeightRange};
use std::collections::BTreeMap;

/// Which pieces of a version are contained in a query.
#[derive(Debug)]
pub(super) struct Contained {
    /// The number of their rows.
    rows: u64,
    /// For each piece of the version, whether it is one of them.
    pieces: Vec<bool>,
}

/// The rows of an answer that are contained, and the number of all such rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainedRows {
    /// The number of contained rows, with any weight; 0 if nothing is known of them.
    pub(crate) total: u64,
    /// Whether each row of the answer is contained; empty if nothing is known of them.
    pub(crate) of_rows: Vec<bool>,
}

impl Contained {
    pub(super) fn of(asked: &BoundQuery, manifest: &Manifest) -> Self {
        if asked.objects.is_some() {
            // A split has only some of the pieces of a tree.
            return Self { rows: 0, pieces: vec![false; manifest.pieces.len()] };
        }
        let matches_whole = |placed: &Placed| {
            let is_of_runs = asked
                .runs
                .as_ref()
                .is_none_or(|runs| matches!(runs.within(&placed.piece.extent), Some(None)));
            let is_untouched = manifest.tombstones_of(placed).next().is_none();
            is_of_runs && is_untouched && verdict_on(&placed.piece, asked) == Verdict::Always
        };
        let whole: Vec<bool> = manifest.pieces.values().map(matches_whole).collect();
        // The objects of a tree were first named by one version (see `pack/plan.rs`).
        let mut trees: BTreeMap<Version, bool> = BTreeMap::new();
        for (placed, is_whole) in manifest.pieces.values().zip(&whole) {
            if placed.piece.form == Form::Cube {
                *trees.entry(placed.born).or_insert(true) &= *is_whole;
            }
        }
        let is_contained = |(placed, is_whole): (&Placed, &bool)| match placed.piece.form {
            Form::Block => *is_whole && placed.piece.weights == WeightRange::ALL,
            Form::Cube => trees.get(&placed.born) == Some(&true),
        };
        let pieces: Vec<bool> = manifest.pieces.values().zip(&whole).map(is_contained).collect();
        let of_contained = manifest.pieces.values().zip(&pieces).filter(|(_, is_contained)| **is_contained);
        let rows = of_contained.map(|(placed, _)| placed.piece.rows).fold(0, u64::saturating_add);
        Self { rows, pieces }
    }

    /// The number of rows of the contained pieces.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the piece with this index is contained.
    pub(super) fn has(&self, piece: u64) -> bool {
        usize::try_from(piece).ok().and_then(|piece| self.pieces.get(piece)).is_some_and(|is_it| *is_it)
    }
}
