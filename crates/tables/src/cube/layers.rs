//! Bands: the rows of a cube, cut by weight and by place.
//!
//! A cube is cut twice. First by weight into *layers*, so that a sample leaves out whole layers. Then each
//! layer by place into *bands* of about equally many rows, always across the axis along which the rows are
//! spread most, so that a small box leaves out most bands. Within a band rows are again ordered by (weight,
//! id), so that a sample of a band is its beginning.
//!
//! Invariant: no row of a layer is heavier than a row of the next.

use super::Shape;
use super::sizes::RowBytes;
use super::tree::{Spot, spread};
use std::ops::Range;

/// The rows of a layer, band by band, each band ordered by (weight, id).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BandRows {
    pub(super) rows: Vec<u32>,
    /// Where each band ends.
    pub(super) ends: Vec<u32>,
}

impl BandRows {
    /// The range of rows of each band.
    pub(super) fn bands(&self) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        self.ends.iter().map(move |&end| std::mem::replace(&mut from, end as usize)..end as usize)
    }

    /// Whether the first band takes at most `bytes` bytes.
    pub(super) fn begins_within(&self, bytes: usize, sizes: &RowBytes) -> bool {
        self.bands().next().is_none_or(|band| sizes.of_rows(&self.rows[band]) <= bytes)
    }

    /// Keeps the first bands, at least one, as far as they take at most `bytes_max` bytes and are at most
    /// `bands_max`. Returns the others, if any.
    pub(super) fn split_off(
        &mut self,
        (bytes_max, bands_max): (usize, usize),
        sizes: &RowBytes,
    ) -> Option<Self> {
        let mut bytes = 0;
        let fits = |band: &Range<usize>| {
            bytes += sizes.of_rows(&self.rows[band.clone()]);
            bytes <= bytes_max
        };
        let kept = self.bands().take(bands_max).take_while(fits).count().max(1);
        if kept >= self.ends.len() {
            return None;
        }
        let mut ends = self.ends.split_off(kept);
        let from = self.ends.last().copied().unwrap_or(0);
        ends.iter_mut().for_each(|end| *end -= from);
        Some(Self { rows: self.rows.split_off(from as usize), ends })
    }

    /// The same rows in bands of at most `bytes_max` bytes each; a band of a single row may take more.
    pub(super) fn cut_at(self, bytes_max: usize, sizes: &RowBytes) -> Self {
        if sizes.are_alike() {
            return self;
        }
        let parts = |band: Range<usize>| {
            let from = band.start;
            sizes.cut(&self.rows[band], bytes_max).map(move |part| (from + part.end) as u32)
        };
        let ends = self.bands().flat_map(parts).collect();
        Self { rows: self.rows, ends }
    }
}

/// How much more coarsely bands are cut across the axis of the steps than across others. A box of many rows
/// spans many steps and is thin in space, if in anything; a box of few steps has few rows.
const STEPS_COARSENING: f64 = 1.7;

/// What counts as the same spread on each axis: the spread of all rows, times [`STEPS_COARSENING`] on the
/// steps.
pub(super) fn scale<const AXES: usize>(spread: [u32; AXES], steps_axis: Option<usize>) -> [f64; AXES] {
    std::array::from_fn(|axis| {
        f64::from(spread[axis].max(1)) * if steps_axis == Some(axis) { STEPS_COARSENING } else { 1.0 }
    })
}

/// Cuts a cube, whose rows are ordered by (weight, id), into layers, lightest first, and each layer into
/// bands. Bands are divided across the axis on which they are spread most, measured by `scale` (see
/// [`scale`]).
pub(super) fn cut_layers<const AXES: usize>(
    cube: &[Spot<AXES>],
    scale: &[f64; AXES],
    shape: &Shape,
) -> Vec<BandRows> {
    let mut left = cube;
    let (mut keys, mut band_of) = (Vec::new(), Vec::new());
    let layer = |rows: usize| {
        let (layer, rest) = left.split_at(rows);
        left = rest;
        keys.clear();
        keys.extend(0..layer.len() as u64);
        band_of.clear();
        band_of.resize(rows, 0);
        let mut cut =
            Cut { layer, scale, band_rows: shape.band_rows, band_of: &mut band_of, ends: Vec::new() };
        cut.cut(&mut keys);
        cut.band_rows()
    };
    shape.layers(cube.len()).map(layer).collect()
}

/// The state of cutting one layer into bands.
struct Cut<'c, const AXES: usize> {
    layer: &'c [Spot<AXES>],
    scale: &'c [f64; AXES],
    band_rows: usize,
    /// Where each finished band ends.
    band_of: &'c mut [u32],
    /// Where each band ends, of those that were cut.
    ends: Vec<u32>,
}

impl<const AXES: usize> Cut<'_, AXES> {
    /// Cuts rows across the axis of their widest spread until the pieces are small. The lower half of a key
    /// is the row's place in the layer; the upper half is for comparing.
    fn cut(&mut self, keys: &mut [u64]) {
        let place = |key: u64| key as u32 as usize;
        let count = keys.len().div_ceil(self.band_rows);
        if count <= 1 {
            self.close(keys);
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
        self.cut(low);
        self.cut(high);
    }

    /// Finishes a band of these rows.
    fn close(&mut self, keys: &[u64]) {
        if keys.is_empty() {
            return;
        }
        let (band, before) = (self.ends.len() as u32, self.ends.last().copied().unwrap_or(0));
        keys.iter().for_each(|&key| self.band_of[key as u32 as usize] = band);
        self.ends.push(before + keys.len() as u32);
    }

    /// The rows of each band in the order of the layer. Each row is appended to its band, which costs less
    /// than sorting.
    fn band_rows(self) -> BandRows {
        let mut rows = vec![0; self.layer.len()];
        let mut next: Vec<u32> = [0].into_iter().chain(self.ends.iter().copied()).collect();
        for (spot, &band) in self.layer.iter().zip(self.band_of.iter()) {
            let next = &mut next[band as usize];
            rows[*next as usize] = spot.row;
            *next += 1;
        }
        BandRows { rows, ends: self.ends }
    }
}
