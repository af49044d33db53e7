//! Verdicts: what a condition is for all rows of a box at once, judged by the extents of some columns alone.
//!
//! Stronger than an [`super::Interval`]: of `(a and b) or (c and d)` each side is judged with all of its
//! columns.
//!
//! Invariant: a verdict is never [`Verdict::Never`] if a row satisfies the condition, and never
//! [`Verdict::Always`] if a row does not.

use super::condition::{Condition, Nullable};
use super::criterion::Criterion;
use super::{Bound, Column};
use crate::lattice::{Extent, Scalar};
use crate::planted::{self, Bug};

/// What a condition is for all rows of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every row satisfies it.
    Always,
    /// No row satisfies it.
    Never,
    /// Some rows may satisfy it.
    Perhaps,
}

/// The truth values that the condition may have for rows of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcomes {
    may_be_true: bool,
    may_be_false: bool,
    may_be_unknown: bool,
}

impl Outcomes {
    const ANY: Self = Self { may_be_true: true, may_be_false: true, may_be_unknown: true };
    const TRUE: Self = Self { may_be_true: true, may_be_false: false, may_be_unknown: false };
    const FALSE: Self = Self { may_be_true: false, may_be_false: true, may_be_unknown: false };
    const UNKNOWN: Self = Self { may_be_true: false, may_be_false: false, may_be_unknown: true };
    const KNOWN: Self = Self { may_be_true: true, may_be_false: true, may_be_unknown: false };

    fn not(self) -> Self {
        Self { may_be_true: self.may_be_false, may_be_false: self.may_be_true, ..self }
    }

    fn and(self, other: Self) -> Self {
        if self == Self::FALSE || other == Self::FALSE {
            return Self::FALSE;
        }
        Self {
            may_be_true: self.may_be_true && other.may_be_true,
            may_be_false: self.may_be_false || other.may_be_false,
            may_be_unknown: self.may_be_unknown || other.may_be_unknown,
        }
    }
}

impl Outcomes {
    fn verdict(self) -> Verdict {
        match (self.may_be_true, self == Self::TRUE) {
            (_, true) => Verdict::Always,
            (false, _) => Verdict::Never,
            _ => Verdict::Perhaps,
        }
    }
}

impl Bound {
    /// Judges all rows of a box, given the extents of some columns.
    pub fn verdict(&self, extent_of: &impl Fn(&Column) -> Option<Extent>) -> Verdict {
        judge(self.condition(), extent_of).verdict()
    }

    /// Prepares the condition for judging boxes for which the extents of `columns` are known.
    pub(crate) fn judge(&self, columns: Vec<Column>) -> Judge {
        let mut parts = Vec::new();
        collect_parts(self.condition(), &columns, &mut parts);
        Judge { columns, parts }
    }
}

/// A condition prepared for judging boxes. Columns are resolved once, since a query judges thousands of
/// boxes.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    columns: Vec<Column>,
    /// The conjuncts, all of which have to hold.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// A criterion on the column at this place.
    Placed(usize, Criterion),
    Other(Condition),
}

/// Collects the conjuncts of a condition.
fn collect_parts(condition: &Condition, columns: &[Column], parts: &mut Vec<Part>) {
    match condition {
        Condition::All(all) => all.iter().for_each(|each| collect_parts(each, columns, parts)),
        Condition::Leaf(leaf, criterion) => {
            let place = columns.iter().position(|column| *column == leaf.column);
            let other = || Part::Other(condition.clone());
            parts.push(place.map_or_else(other, |place| Part::Placed(place, criterion.clone())));
        }
        other => parts.push(Part::Other(other.clone())),
    }
}

impl Judge {
    /// As [`Bound::verdict`], given the extents of the columns; empty if nothing is known of any.
    pub(crate) fn verdict(&self, extents: &[Extent]) -> Verdict {
        let extent_of = |column: &Column| {
            let place = self.columns.iter().position(|known| known == column)?;
            extents.get(place).copied()
        };
        let mut outcomes = Outcomes::TRUE;
        for part in &self.parts {
            let of_part = match part {
                Part::Placed(place, criterion) => {
                    extents.get(*place).map_or(Outcomes::ANY, |extent| judge_values(criterion, extent))
                }
                Part::Other(condition) => judge(condition, &extent_of),
            };
            outcomes = outcomes.and(of_part);
            if outcomes == Outcomes::FALSE {
                break;
            }
        }
        outcomes.verdict()
    }
}

fn judge(condition: &Condition, extent_of: &impl Fn(&Column) -> Option<Extent>) -> Outcomes {
    match condition {
        Condition::Constant(Some(true)) => Outcomes::TRUE,
        Condition::Constant(Some(false)) => Outcomes::FALSE,
        Condition::Constant(None) => Outcomes::UNKNOWN,
        Condition::Leaf(leaf, criterion) => {
            extent_of(&leaf.column).map_or(Outcomes::ANY, |extent| judge_values(criterion, &extent))
        }
        Condition::Near(near) => {
            let of_near = near.judge(extent_of);
            Outcomes {
                may_be_true: of_near.may_be_near,
                may_be_false: of_near.may_be_far,
                may_be_unknown: of_near.may_be_null,
            }
        }
        Condition::IsNull(Nullable::Leaf(leaf)) => match extent_of(&leaf.column) {
            Some(extent) if !extent.has_incomparable() => Outcomes::FALSE,
            _ => Outcomes::KNOWN,
        },
        Condition::IsNull(_) => Outcomes::KNOWN,
        Condition::Not(inner) => judge(inner, extent_of).not(),
        Condition::All(parts) => {
            parts.iter().map(|part| judge(part, extent_of)).fold(Outcomes::TRUE, Outcomes::and)
        }
        // A disjunction is the negation of the conjunction of its negated parts.
        Condition::Any(parts) => {
            parts.iter().map(|part| judge(part, extent_of).not()).fold(Outcomes::TRUE, Outcomes::and).not()
        }
        Condition::Computed(..) | Condition::Numbers(..) | Condition::Texts(..) | Condition::Truths(..) => {
            Outcomes::ANY
        }
    }
}

/// The outcomes of a criterion for values in this extent.
fn judge_values(criterion: &Criterion, extent: &Extent) -> Outcomes {
    let of_comparable = match extent.range() {
        // Without values there is nothing to be true or false.
        None => Outcomes { may_be_true: false, may_be_false: false, may_be_unknown: false },
        Some((least, greatest)) => judge_range(criterion, least, greatest),
    };
    if !extent.has_incomparable() || planted::is(Bug::NullsPruned) {
        return of_comparable;
    }
    // Null is unknown under every criterion; NaN is false under every criterion but `IsNan`.
    let may_be_true = of_comparable.may_be_true || *criterion == Criterion::IsNan;
    Outcomes { may_be_true, may_be_false: true, may_be_unknown: true }
}

fn judge_range(criterion: &Criterion, least: Scalar, greatest: Scalar) -> Outcomes {
    let known = |meets: bool, covers: bool| Outcomes {
        may_be_true: meets,
        may_be_false: !covers,
        may_be_unknown: false,
    };
    match criterion {
        Criterion::Never | Criterion::IsNan => Outcomes::FALSE,
        Criterion::Integers { low, high } => match (integer(least), integer(greatest)) {
            (Some(least), Some(greatest)) => {
                known(least <= *high && *low <= greatest, *low <= least && greatest <= *high)
            }
            _ => Outcomes::KNOWN,
        },
        Criterion::Floats { low, high } => match (least, greatest) {
            (Scalar::Float(least), Scalar::Float(greatest)) => {
                known(least <= *high && *low <= greatest, *low <= least && greatest <= *high)
            }
            _ => Outcomes::KNOWN,
        },
        Criterion::IntegerSet(set) => match (integer(least), integer(greatest)) {
            (Some(least), Some(greatest)) => {
                let from = set.partition_point(|value| *value < least);
                let meets = set.get(from).is_some_and(|value| *value <= greatest);
                known(meets, meets && least == greatest)
            }
            _ => Outcomes::KNOWN,
        },
        Criterion::FloatSet(set) => match (least, greatest) {
            (Scalar::Float(least), Scalar::Float(greatest)) => {
                let from = set.partition_point(|value| *value < least);
                let meets = set.get(from).is_some_and(|value| *value <= greatest);
                known(meets, meets && least == greatest)
            }
            _ => Outcomes::KNOWN,
        },
        Criterion::Text(..) | Criterion::TextSet(_) | Criterion::IsTrue => Outcomes::KNOWN,
    }
}

fn integer(scalar: Scalar) -> Option<i128> {
    match scalar {
        Scalar::Signed(value) => Some(value.into()),
        Scalar::Unsigned(value) => Some(value.into()),
        Scalar::Float(_) => None,
    }
}
