//! Growing a tree: which cube each row lives in.
//!
//! The root is the smallest cube of the lattice around all rows. A cube holds the lightest rows of its domain
//! that no ancestor holds; the others go to its 2^D children, each a half of it along every axis. A domain with
//! few rows is not divided any more, and its cube holds all of them.
//!
//! Invariant: a row lives in one cube, and what a cube holds is no heavier than anything below it.

use super::Shape;
use crate::TableSchema;
use crate::lattice::{Axis, Coordinates, Extent, LatticeError, Missing, Scalar, Span};
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::collections::BTreeMap;

/// Bits of a fraction.
const FRACTION_BITS: u32 = u32::BITS;

/// The lattice of one tree: an axis and the side of the root for each index column.
#[derive(Clone, Debug, PartialEq)]
pub struct Root {
    axes: Vec<Axis>,
    spans: Vec<Span>,
}

/// Where rows lie in the root of a tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// For each axis and row, how far from the beginning of the root, in 2^-32 of its side.
    pub(super) fractions: Vec<Vec<u32>>,
    /// For each row, the halves that it lies in, from the root down: a bit for each axis and level.
    codes: Vec<u64>,
    /// Rows without a place, in rising order: some index column is null, NaN or infinite.
    missing: Vec<u32>,
    /// Levels that the codes tell apart.
    levels: u32,
}

/// Which cube of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CubeId {
    /// 0 for the root.
    pub level: u8,
    /// The halves that lead to it from the root, a bit for each axis and level, from the highest bit on.
    pub code: u64,
    /// Whether it is the side cube, of the rows without a place.
    pub is_side: bool,
}

/// A cube and the rows that live in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cube {
    pub(super) id: CubeId,
    /// In rising order, which is that of (weight, id).
    pub(super) rows: Vec<u32>,
}

impl Root {
    /// The root around rows of a table.
    ///
    /// # Errors
    /// [`LatticeError`] where the rows have not the columns of the table.
    pub fn around(schema: &TableSchema, rows: &RecordBatch) -> Result<Self, LatticeError> {
        let columns = schema.index_values(rows.columns())?;
        let mut root = Self { axes: Vec::new(), spans: Vec::new() };
        for column in columns {
            let finite = finite_extent(&column)?;
            let axis = Axis::new(column.data_type(), &finite)?;
            root.spans.push(axis.root(&finite));
            root.axes.push(axis);
        }
        Ok(root)
    }

    /// The root with these axes and sides, one of each for each index column.
    pub(super) const fn new(axes: Vec<Axis>, spans: Vec<Span>) -> Self {
        Self { axes, spans }
    }

    /// The axes, one for each index column.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The sides of the root, one for each axis.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Where rows lie in this root, which holds all of them.
    pub(super) fn places(&self, schema: &TableSchema, rows: &RecordBatch) -> Result<Places, LatticeError> {
        let mut places =
            Places { levels: (u64::BITS / self.axes.len() as u32).min(FRACTION_BITS), ..Places::default() };
        let mut missing = Vec::new();
        let columns = schema.index_values(rows.columns())?;
        for ((axis, span), column) in self.axes.iter().zip(&self.spans).zip(columns) {
            let coordinates = axis.coordinates(&column)?;
            missing.extend(coordinates.missing().iter().map(|(row, _)| *row as u32));
            places.fractions.push(fractions(&coordinates, *span));
        }
        missing.sort_unstable();
        missing.dedup();
        places.missing = missing;
        places.codes = codes(&places.fractions, rows.num_rows(), places.levels);
        Ok(places)
    }
}

/// The extent of the values that have a place.
fn finite_extent(column: &ArrayRef) -> Result<Extent, LatticeError> {
    let whole = Extent::of(column)?;
    let is_finite = |(least, greatest): (Scalar, Scalar)| least.is_finite() && greatest.is_finite();
    if whole.range().is_none_or(is_finite) {
        return Ok(whole);
    }
    let any_axis = Axis::with_cells(column.data_type(), 0)?;
    let missing = any_axis.coordinates(column)?;
    let infinite: Vec<usize> =
        missing.missing().iter().filter(|(_, why)| *why == Missing::Infinite).map(|(row, _)| *row).collect();
    let (mut extent, mut from) = (Extent::default(), 0);
    for row in infinite.into_iter().chain([column.len()]) {
        extent = extent.joined(&Extent::of(&column.slice(from, row - from))?);
        from = row + 1;
    }
    Ok(extent)
}

fn fractions(coordinates: &Coordinates, span: Span) -> Vec<u32> {
    let bits = u32::from(span.bits());
    let of = |coordinate: u64| {
        let offset = (i128::from(coordinate) - span.low()).max(0) as u128;
        if bits > FRACTION_BITS {
            (offset >> (bits - FRACTION_BITS)) as u32
        } else {
            (offset << (FRACTION_BITS - bits)) as u32
        }
    };
    coordinates.with_gaps().iter().map(|coordinate| of(coordinate.0)).collect()
}

/// The bits of all axes, level by level: what comes first in this order lies together.
fn codes(fractions: &[Vec<u32>], rows: usize, levels: u32) -> Vec<u64> {
    let axes = fractions.len() as u32;
    let mut codes = vec![0_u64; rows];
    for (axis, fractions) in (0..).zip(fractions) {
        for (code, fraction) in codes.iter_mut().zip(fractions) {
            for level in 0..levels {
                let bit = u64::from(fraction >> (FRACTION_BITS - 1 - level) & 1);
                *code |= bit << (u64::BITS - 1 - level * axes - axis);
            }
        }
    }
    codes
}

/// The cubes of a tree over rows that are in the order of (weight, id), a father before its children.
pub(super) fn grow(places: &Places, shape: &Shape) -> Vec<Cube> {
    let rows = places.codes.len() as u32;
    let mut cubes = Vec::new();
    let root = CubeId { level: 0, code: 0, is_side: false };
    if places.missing.is_empty() {
        divide(places, shape, root, (0..rows).collect(), &mut cubes);
    } else {
        let has_place = |row: &u32| places.missing.binary_search(row).is_err();
        divide(places, shape, root, (0..rows).filter(has_place).collect(), &mut cubes);
        cubes.push(Cube { id: CubeId { is_side: true, ..root }, rows: places.missing.clone() });
    }
    cubes
}

fn divide(places: &Places, shape: &Shape, id: CubeId, mut rows: Vec<u32>, cubes: &mut Vec<Cube>) {
    if rows.is_empty() {
        return;
    }
    let axes = places.fractions.len() as u32;
    if rows.len() <= shape.leaf_rows || u32::from(id.level) >= places.levels {
        cubes.push(Cube { id, rows });
        return;
    }
    let rest = rows.split_off(shape.cube_rows.min(rows.len()));
    cubes.push(Cube { id, rows });
    let shift = u64::BITS - (u32::from(id.level) + 1) * axes;
    let child_of = |row: u32| (places.codes[row as usize] >> shift) & ((1 << axes) - 1);
    // Few of the up to 256 children have rows; the map keeps them in the order of their codes.
    let mut children: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for row in rest {
        children.entry(child_of(row)).or_default().push(row);
    }
    for (child, rows) in children {
        let id = CubeId { level: id.level + 1, code: id.code | child << shift, is_side: false };
        divide(places, shape, id, rows, cubes);
    }
}
