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

/// The images of a box of rows that are looked at over all axes; with more, the box may be anywhere.
const JUDGED_MAX: u32 = 1 << 12;

/// More than how far beyond a radius a row may lie whose squared distance underflows, and so equals the
/// squared radius: the square root of the least double is 2e-162.
const UNDERFLOW_REACH: f64 = 1e-150;

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

/// What the images of a box of rows prove.
struct Judged {
    may_be_near: bool,
    may_be_far: bool,
    /// How many images were looked at.
    images: u32,
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
        let Judged { may_be_near, may_be_far, .. } = self.judge_images(away);
        NearOutcomes { may_be_near, may_be_far: may_be_far || !is_known || may_be_null, may_be_null }
    }

    /// Looks at images of a box until the others could not change the outcome.
    fn judge_images(&self, away: [Span; AXES_MAX]) -> Judged {
        let square = self.radius * self.radius;
        let mut judged = Judged { may_be_near: false, may_be_far: true, images: 0 };
        if (0..AXES_MAX).any(|axis| self.is_out_along(axis, away[axis])) {
            return judged;
        }
        // No image of such a box lies within the radius whole.
        let is_wide = away.iter().any(|span| span.high - span.low > 2.0 * self.radius);
        let is_complete = self.each_image(away, |squares| {
            judged.images += 1;
            judged.may_be_near |= squares.least <= square || judged.images >= JUDGED_MAX;
            judged.may_be_far &= squares.greatest > square;
            let is_told = judged.may_be_near && (is_wide || !judged.may_be_far);
            !is_told && judged.images < JUDGED_MAX
        });
        judged.may_be_near |= !is_complete;
        judged
    }

    /// Whether all images are too far away along one axis, if no other axis shifts them along it.
    fn is_out_along(&self, axis: usize, away: Span) -> bool {
        let is_far =
            |number: f64| away.less(number * self.edge(axis)).squares().0 > self.radius * self.radius;
        let is_shifted = (axis + 1..AXES_MAX).any(|of| self.cell.tilt(axis, of) != 0.0);
        !is_shifted && self.images(axis, away).is_some_and(|mut images| images.all(is_far))
    }

    /// Passes the images of a span of rows that may be near to `take`, until it returns false. Returns
    /// whether no image was left out for being one of too many.
    fn each_image(&self, away: [Span; AXES_MAX], mut take: impl FnMut(Squares) -> bool) -> bool {
        let ([x, y, z], square) = (away, self.radius * self.radius);
        let Some(along_z) = self.images(2, z) else { return false };
        for k in along_z {
            let z = z.less(k * self.edge(2));
            let (least_z, greatest_z) = z.squares();
            // A sum is never less than a part of it, also where both are rounded.
            if least_z > square {
                continue;
            }
            let (x, y) = (x.less(k * self.cell.tilt(0, 2)), y.less(k * self.cell.tilt(1, 2)));
            let Some(along_y) = self.images(1, y) else { return false };
            for j in along_y {
                let y = y.less(j * self.edge(1));
                let (least_y, greatest_y) = y.squares();
                if least_y + least_z > square {
                    continue;
                }
                let x = x.less(j * self.cell.tilt(0, 1));
                let Some(along_x) = self.images(0, x) else { return false };
                for i in along_x {
                    let (least_x, greatest_x) = x.less(i * self.edge(0)).squares();
                    let least = least_x + least_y + least_z;
                    if !take(Squares { least, greatest: greatest_x + greatest_y + greatest_z }) {
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
        let reach = self.radius + slack + UNDERFLOW_REACH;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows within 1 of a point in a cell of 10 a side, by how the cell leans.
    fn near(tilts: &[f64]) -> BoundNear {
        let columns = ["x", "y", "z"].map(Column::named).to_vec();
        let cell = Cell::new(&[10.0; 3], tilts).unwrap();
        BoundNear::new(&Near::new(columns, &[0.0; 3], 1.0, Some(cell)).unwrap(), Vec::new())
    }

    #[test]
    fn a_box_over_many_cells_is_judged_by_few_of_its_images() {
        let wide = Span { low: -500.0, high: 500.0 };
        for tilts in [&[][..], &[3.0, -2.0, 4.0]] {
            let judged = near(tilts).judge_images([wide; 3]);
            assert!(judged.may_be_near && judged.may_be_far);
            assert!(judged.images < 100, "{tilts:?}: {} images", judged.images);
        }
        // Half a cell from each image of the point along one axis, wherever that is.
        let half = Span { low: 204.0, high: 206.0 };
        for axis in 0..AXES_MAX {
            let mut away = [wide; 3];
            away[axis] = half;
            let judged = near(&[]).judge_images(away);
            assert!(!judged.may_be_near && judged.may_be_far, "axis {axis}");
            assert!(judged.images < 100, "axis {axis}: {} images", judged.images);
        }
        let thin = Span { low: 4.0, high: 4.001 };
        let judged = near(&[0.001, 0.0, 0.0]).judge_images([thin, wide, wide]);
        assert!(judged.may_be_near && judged.may_be_far, "it is given up");
        assert_eq!(judged.images, JUDGED_MAX);
    }
}
