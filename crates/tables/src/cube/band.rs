//! Bands: the rows of a cube, cut into pieces that are light or heavy, and here or there.
//!
//! A cube is cut twice. By weight into *layers*, so that a sample leaves out whole layers; and each layer by
//! place into *bands* of about equal numbers of rows, always across the axis along which the rows are spread
//! most, so that a small box leaves out most bands. Within a band rows rise in (weight, id) again, so that a
//! sample of a band is its beginning.
//!
//! Invariant: no row of a layer is heavier than a row of the next.

use super::Shape;
use super::tree::{Spot, spread};
use std::ops::Range;

/// Rows of a layer, band by band; within a band in the order of (weight, id).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BandRows {
    pub(super) rows: Vec<u32>,
    /// Where each band ends.
    pub(super) ends: Vec<u32>,
}

impl BandRows {
    /// Where the rows of each band lie.
    pub(super) fn bands(&self) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        self.ends.iter().map(move |&end| std::mem::replace(&mut from, end as usize)..end as usize)
    }
}

/// How much less bands are cut across the axis of the steps than across others. A box of many rows spans many steps
/// and is thin in space, if anywhere; one of few steps has few rows.
const STEPS_COARSER: f64 = 1.7;

/// What counts as the same spread over each axis: that of all rows, and more of it over the steps.
pub(super) fn scale<const AXES: usize>(spread: [u32; AXES], steps_axis: Option<usize>) -> [f64; AXES] {
    std::array::from_fn(|axis| {
        f64::from(spread[axis].max(1)) * if steps_axis == Some(axis) { STEPS_COARSER } else { 1.0 }
    })
}

/// The bands of each layer of a cube, lightest first, of its rows in the order of (weight, id); they are divided where
/// they are spread most, by this [`scale`].
pub(super) fn layers<const AXES: usize>(
    cube: &[Spot<AXES>],
    scale: &[f64; AXES],
    shape: &Shape,
) -> Vec<BandRows> {
    let mut left = cube;
    let mut keys = Vec::new();
    let layer = |rows| {
        let (layer, rest) = left.split_at(rows);
        left = rest;
        keys.clear();
        keys.extend(0..layer.len() as u64);
        let mut found = BandRows { rows: Vec::with_capacity(rows), ends: Vec::new() };
        Cut { layer, scale, band_rows: shape.band_rows }.cut(&mut keys, &mut found);
        found
    };
    shape.layers(cube.len()).map(layer).collect()
}

/// How a layer is cut.
struct Cut<'c, const AXES: usize> {
    layer: &'c [Spot<AXES>],
    scale: &'c [f64; AXES],
    band_rows: usize,
}

impl<const AXES: usize> Cut<'_, AXES> {
    /// Cuts rows across the axis of their widest spread, until what is left has few rows. The lower half of a key is the
    /// place of a row in the layer; the upper half is for comparing.
    fn cut(&self, keys: &mut [u64], found: &mut BandRows) {
        let place = |key: u64| key as u32 as usize;
        let count = keys.len().div_ceil(self.band_rows);
        if count <= 1 {
            self.close(keys, found);
            return;
        }
        let spread = spread(keys.iter().map(|&key| self.layer[place(key)].at));
        let relative = |axis: &usize| f64::from(spread[*axis]) / self.scale[*axis];
        let widest = (0..AXES).max_by(|left, right| relative(left).total_cmp(&relative(right)));
        let middle = keys.len() * (count / 2) / count;
        if let Some(axis) = widest {
            for key in keys.iter_mut() {
                *key = u64::from(self.layer[place(*key)].at[axis]) << 32 | u64::from(*key as u32);
            }
            keys.select_nth_unstable(middle);
        }
        let (low, high) = keys.split_at_mut(middle);
        self.cut(low, found);
        self.cut(high, found);
    }

    /// Puts the rows of a band in their order.
    fn close(&self, keys: &mut [u64], found: &mut BandRows) {
        if keys.is_empty() {
            return;
        }
        keys.iter_mut().for_each(|key| *key = u64::from(*key as u32));
        keys.sort_unstable();
        found.rows.extend(keys.iter().map(|&key| self.layer[key as usize].row));
        found.ends.push(found.rows.len() as u32);
    }
}
