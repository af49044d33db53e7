//! `near` bound to a schema: evaluated on stored values, and judged on boxes of them.

use super::super::EvaluateError;
use super::super::interval::{Interval, Values};
use super::super::leaf::{Leaf, Shape};
use super::super::numbers::Number;
use super::super::truth::Truth;
use super::{AXES_MAX, Cell, Column, Near};
use crate::lattice::{Extent, Scalar};
use crate::planted::{self, Bug};
use arrow_array::RecordBatch;
use arrow_buffer::{BooleanBuffer, NullBuffer};

/// The images of a box of rows that are looked at along one axis; with more, the box may be anywhere.
const IMAGES_MAX: f64 = 64.0;

/// A condition of nearness with typed columns.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct BoundNear {
    leaves: Vec<Leaf>,
    point: Vec<f64>,
    radius: f64,
    cell: Cell,
}

/// What is known of the rows in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct NearOutcomes {
    pub(in super::super) may_be_near: bool,
    pub(in super::super) may_be_far: bool,
    pub(in super::super) may_be_null: bool,
}

/// A range of values, both ends included.
#[derive(Clone, Copy)]
struct Span {
    low: f64,
    high: f64,
}

impl Span {
    const ANYWHERE: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };

    fn of(value: f64) -> Self {
        Self { low: value, high: value }
    }

    fn less(self, shift: f64) -> Self {
        Self { low: self.low - shift, high: self.high - shift }
    }

    /// The least and the greatest square of a value in the span.
    fn squares(self) -> (f64, f64) {
        let (low, high) = (self.low * self.low, self.high * self.high);
        let least = if self.low <= 0.0 && self.high >= 0.0 { 0.0 } else { low.min(high) };
        (least, low.max(high))
    }
}

/// Bounds on the squared distance to one image.
#[derive(Clone, Copy)]
struct Squares {
    least: f64,
    greatest: f64,
}

impl BoundNear {
    /// Binds the condition; `leaves` are the coordinates, one for each axis.
    pub(in super::super) fn new(near: &Near, leaves: Vec<Leaf>) -> Self {
        let endless = || Cell { lengths: vec![f64::INFINITY; near.point.len()], tilts: Vec::new() };
        let cell = near.cell.clone().unwrap_or_else(endless);
        Self { leaves, point: near.point.clone(), radius: near.radius, cell }
    }

    /// Which rows are near; unknown where a coordinate is null.
    pub(in super::super) fn evaluate(&self, batch: &RecordBatch) -> Result<Truth, EvaluateError> {
        let (mut values, mut nulls) = (Vec::with_capacity(self.leaves.len()), None);
        for leaf in &self.leaves {
            let computed = Number::Column(leaf.clone()).evaluate(batch)?;
            nulls = NullBuffer::union(nulls.as_ref(), computed.nulls.as_ref());
            values.push(computed.values.into_floats());
        }
        let is_near = |row: usize| {
            let mut away = [0.0; AXES_MAX];
            for (axis, values) in values.iter().enumerate() {
                away[axis] = values[row] - self.point[axis];
            }
            self.is_near(away)
        };
        Ok(Truth::new(BooleanBuffer::collect_bool(batch.num_rows(), is_near), nulls.as_ref()))
    }

    fn is_near(&self, away: [f64; AXES_MAX]) -> bool {
        let square = self.radius * self.radius;
        let mut is_near = false;
        self.each_image(away.map(Span::of), |squares| {
            is_near |= squares.least <= square;
            !is_near
        });
        is_near
    }

    /// Judges a box of rows by the extents of its columns, as far as they are known.
    pub(in super::super) fn judge(&self, extent_of: &impl Fn(&Column) -> Option<Extent>) -> NearOutcomes {
        let (mut away, mut is_known, mut may_be_null) = ([Span::of(0.0); AXES_MAX], true, false);
        for (axis, leaf) in self.leaves.iter().enumerate() {
            let Some(extent) = extent_of(&leaf.column) else {
                (away[axis], is_known, may_be_null) = (Span::ANYWHERE, false, true);
                continue;
            };
            may_be_null |= extent.has_incomparable();
            let Some((least, greatest)) = extent.range() else {
                // Without a value, no row has a distance.
                return NearOutcomes { may_be_near: false, may_be_far: true, may_be_null: true };
            };
            away[axis] = Span { low: float(least), high: float(greatest) }.less(self.point[axis]);
        }
        let square = self.radius * self.radius;
        let mut outcomes = NearOutcomes { may_be_near: false, may_be_far: true, may_be_null };
        let is_complete = self.each_image(away, |squares| {
            outcomes.may_be_near |= squares.least <= square;
            outcomes.may_be_far &= squares.greatest > square;
            true
        });
        outcomes.may_be_near |= !is_complete;
        outcomes.may_be_far |= !is_known || may_be_null;
        outcomes
    }

    /// Passes the images of a span of rows that may be near to `take`, until it returns false. Returns
    /// whether no image was left out for being one of too many.
    fn each_image(&self, away: [Span; AXES_MAX], mut take: impl FnMut(Squares) -> bool) -> bool {
        let [x, y, z] = away;
        let Some(along_z) = self.images(2, z) else { return false };
        for k in along_z {
            let z = z.less(k * self.edge(2));
            let (x, y) = (x.less(k * self.cell.tilt(0, 2)), y.less(k * self.cell.tilt(1, 2)));
            let Some(along_y) = self.images(1, y) else { return false };
            for j in along_y {
                let y = y.less(j * self.edge(1));
                let x = x.less(j * self.cell.tilt(0, 1));
                let Some(along_x) = self.images(0, x) else { return false };
                for i in along_x {
                    let x = x.less(i * self.edge(0));
                    let (near, far): (Vec<f64>, Vec<f64>) = [x, y, z].map(Span::squares).into_iter().unzip();
                    let sum = |squares: &[f64]| squares[0] + squares[1] + squares[2];
                    if !take(Squares { least: sum(&near), greatest: sum(&far) }) {
                        return true;
                    }
                }
            }
        }
        true
    }

    /// The length of an edge; 0 for an axis that is not periodic, along which nothing is shifted.
    fn edge(&self, axis: usize) -> f64 {
        Some(self.cell.length(axis)).filter(|length| length.is_finite()).unwrap_or(0.0)
    }

    /// The shifts along an axis, in whole edges, that may bring a span near. `None` if there are more than
    /// are looked at.
    fn images(&self, axis: usize, span: Span) -> Option<impl Iterator<Item = f64> + use<>> {
        let length = self.cell.length(axis);
        let leans = (0..axis).any(|other| self.cell.tilt(other, axis) != 0.0);
        // Rows between -inf and a number have more images than are looked at. Rows that may be anywhere need
        // only one.
        let is_anywhere = span.low == f64::NEG_INFINITY && span.high == f64::INFINITY;
        let is_endless = length.is_infinite() || (is_anywhere && !leans);
        // One extra image on either side: the distance decides what is near, not this range.
        let first = ((span.low - self.radius) / length).ceil() - 1.0;
        let last = ((span.high + self.radius) / length).floor() + 1.0;
        let (first, count) = if is_endless { (0.0, 1.0) } else { (first, last - first + 1.0) };
        let skipped = f64::from(u8::from(planted::is(Bug::ImageForgotten) && !is_endless)) * 2.0;
        // A NaN is nowhere.
        let count = if count.is_nan() { 0.0 } else { (count - skipped).max(0.0) };
        let is_too_many = count > 4.0 * super::CELLS_MAX + IMAGES_MAX;
        (!is_too_many).then(|| (0..count as u32).map(move |number| first + f64::from(number)))
    }

    /// The interval in which a column's values must lie for a row to be near, or not near; everything for a
    /// column that the condition does not read.
    pub(in super::super) fn interval(&self, column: &Column, is_near: bool) -> Interval {
        let Some(axis) = self.leaves.iter().position(|leaf| leaf.column == *column) else {
            return Interval::EVERYTHING;
        };
        let is_shifted = (axis + 1..AXES_MAX).any(|of| self.cell.tilt(axis, of) != 0.0);
        let is_bounded = is_near && self.cell.length(axis).is_infinite() && !is_shifted;
        let known = Interval::known();
        if !is_bounded || self.leaves[axis].shape != Shape::Float {
            return known;
        }
        // Slightly more than the radius, since a squared distance may be rounded down to the squared radius.
        let (at, slack) = (self.point[axis], (self.point[axis].abs() + self.radius) * 1e-12);
        let reach = self.radius + slack;
        let (low, high) = ((at - reach).next_down(), (at + reach).next_up());
        Interval { values: Values::Floats { low, high }, may_be_nan: false, ..known }
    }
}

fn float(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::Signed(value) => value as f64,
        Scalar::Unsigned(value) => value as f64,
        Scalar::Float(value) => value,
    }
}
