//! Bands: the rows of a cube, cut into pieces that are light or heavy, and here or there.
//!
//! A cube is cut twice. By weight into *layers*, so that a sample leaves out whole layers; and each layer by
//! place into *bands* of about equal numbers of rows, always across the axis along which the rows are spread
//! most, so that a small box leaves out most bands. Within a band rows rise in (weight, id) again, so that a
//! sample of a band is its beginning.
//!
//! Invariant: no row of a layer is heavier than a row of the next.

use super::Shape;
use super::tree::{Cube, Places};

/// Rows that are stored and read together: in rising order, which is that of (weight, id).
pub(super) type BandRows = Vec<u32>;

/// How far rows are spread over each axis, in units of a fraction.
fn spread(places: &Places, rows: &[u32]) -> Vec<u32> {
    let of_axis = |fractions: &Vec<u32>| {
        let of_rows = || rows.iter().map(|&row| fractions[row as usize]);
        of_rows().max().unwrap_or_default() - of_rows().min().unwrap_or_default()
    };
    places.fractions.iter().map(of_axis).collect()
}

/// How much less bands are cut across the axis of the steps than across others. A box of many rows spans many steps
/// and is thin in space, if anywhere; one of few steps has few rows.
const STEPS_COARSER: f64 = 1.7;

/// What counts as the same spread over each axis: that of all rows, and more of it over the steps.
pub(super) fn scale(places: &Places, rows: &[u32], steps_axis: Option<usize>) -> Vec<f64> {
    let of_axis = |(axis, spread): (usize, u32)| {
        f64::from(spread.max(1)) * if steps_axis == Some(axis) { STEPS_COARSER } else { 1.0 }
    };
    spread(places, rows).into_iter().enumerate().map(of_axis).collect()
}

/// The bands of each layer of a cube, lightest first; rows are divided where they are spread most, by this [`scale`].
pub(super) fn layers(cube: &Cube, places: &Places, scale: &[f64], shape: &Shape) -> Vec<Vec<BandRows>> {
    let mut layers = Vec::new();
    let mut left = cube.rows.as_slice();
    for rows in shape.layers(left.len()) {
        let (layer, rest) = left.split_at(rows);
        left = rest;
        let mut bands = Vec::new();
        cut(&mut layer.to_vec(), places, scale, shape.band_rows, &mut bands);
        layers.push(bands);
    }
    layers
}

/// Cuts rows across the axis of their widest spread, until what is left has few rows.
fn cut(rows: &mut [u32], places: &Places, scale: &[f64], band_rows: usize, bands: &mut Vec<BandRows>) {
    let count = rows.len().div_ceil(band_rows);
    if count <= 1 {
        rows.sort_unstable();
        bands.extend((!rows.is_empty()).then(|| rows.to_vec()));
        return;
    }
    let spread = spread(places, rows);
    let relative = |axis: &usize| f64::from(spread[*axis]) / scale[*axis];
    let widest = (0..spread.len()).max_by(|left, right| relative(left).total_cmp(&relative(right)));
    let middle = rows.len() * (count / 2) / count;
    if let Some(fractions) = widest.map(|axis| &places.fractions[axis]) {
        rows.select_nth_unstable_by_key(middle, |&row| (fractions[row as usize], row));
    }
    let (low, high) = rows.split_at_mut(middle);
    cut(low, places, scale, band_rows, bands);
    cut(high, places, scale, band_rows, bands);
}
