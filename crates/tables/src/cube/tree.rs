//! Growing a tree: the cube in which each row lives.
//!
//! The root is the smallest cube of the lattice around all rows. A cube holds the lightest rows of its domain
//! that no ancestor holds. The others go to its 2^D children, each half as long along every axis. A domain
//! with few rows is not divided further; its cube holds all of them.
//!
//! Invariant: a row lives in one cube, and no row of a cube is heavier than a row below it.

use super::Shape;
use crate::TableSchema;
use crate::lattice::{Axis, Extent, FRACTION_BITS, LatticeError, Missing, Scalar, Span, fractions};
use crate::room::Lent;
use crate::{INDEX_COLUMNS_MAX, Weight};
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::ops::Range;

/// Rows that are placed at a time.
const ROWS_AT_ONCE: usize = 1 << 12;

/// A row of a tree with at most this many axes carries only these; any other one carries as many as a table
/// may have.
pub(super) const AXES_FEW: usize = 4;

/// Bytes that a growing tree keeps for each row beside its columns, with so many index columns.
pub(crate) const fn bytes_beside_row(index_columns: usize) -> u64 {
    /// Its weight, run and step, its number in the order of weights, its place, a spot in each of the two
    /// buffers, and the child to which it goes.
    const fn with<const AXES: usize>() -> usize {
        let origin = size_of::<u32>() + size_of::<u64>();
        let divided = size_of::<[u32; AXES]>() + 2 * size_of::<Spot<AXES>>() + size_of::<u8>();
        size_of::<Weight>() + origin + size_of::<u32>() + divided
    }
    let bytes = if index_columns <= AXES_FEW { with::<AXES_FEW>() } else { with::<INDEX_COLUMNS_MAX>() };
    bytes as u64
}

/// The lattice of one tree: an axis and the side of the root for each index column.
#[derive(Clone, Debug, PartialEq)]
pub struct Root {
    axes: Vec<Axis>,
    spans: Vec<Span>,
}

/// A row and its place in the root of a tree: on each axis the distance from the root's low end, in units of
/// 2^-32 of its side, and nothing on unused axes. Rows move as spots, so that all that is asked of a row lies
/// together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<const AXES: usize> {
    pub(super) at: [u32; AXES],
    pub(super) row: u32,
}

/// The places of rows in the root of a tree.
#[derive(Debug)]
pub(super) struct Places<const AXES: usize> {
    /// The place of each row, as in [`Spot`].
    at: Lent<[u32; AXES]>,
    /// Rows without a place, in rising order: an index column of theirs is null, NaN or infinite.
    missing: Vec<u32>,
    axes: u32,
}

/// Identifies a cube within a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CubeId {
    /// 0 for the root.
    pub level: u8,
    /// The path from the root: one half for each axis and level, as a bit, from the highest bit on.
    pub code: u64,
    /// Whether this is the side cube, which holds the rows without a place.
    pub is_side: bool,
}

/// The rows of a tree, cube by cube.
#[derive(Debug)]
pub(super) struct Divided<const AXES: usize> {
    /// Two buffers of rows: the cubes of even levels lie in the first, those of odd levels in the second.
    spots: [Lent<Spot<AXES>>; 2],
    /// The cubes, each parent before its children: the id, the buffer, and the range of rows in it, which are
    /// ordered by (weight, id).
    cubes: Vec<(CubeId, usize, Range<usize>)>,
    /// The child to which each row of the domain being divided goes.
    children: Lent<u8>,
}

impl Root {
    /// The smallest root around the rows of a table.
    ///
    /// # Errors
    /// [`LatticeError`] where the columns of the rows differ from those of the table.
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

    /// The root with these axes and sides, one of each for every index column.
    pub(super) const fn new(axes: Vec<Axis>, spans: Vec<Span>) -> Self {
        Self { axes, spans }
    }

    /// The axes, one for each index column.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The sides of the root, one for every axis.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The places of rows in this root, which must contain all of them and have at most `AXES` axes.
    pub(super) fn places<const AXES: usize>(
        &self,
        schema: &TableSchema,
        rows: &RecordBatch,
    ) -> Result<Places<AXES>, LatticeError> {
        let mut at = Lent::filled(rows.num_rows(), [0; AXES]);
        let mut missing = Vec::new();
        let columns = schema.index_values(rows.columns())?;
        // All axes of a few rows, while these are in the cache, before the next rows.
        for (from, at) in (0..).step_by(ROWS_AT_ONCE).zip(at.chunks_mut(ROWS_AT_ONCE)) {
            let axes = self.axes.iter().zip(&self.spans).zip(&columns).take(AXES);
            for (number, ((axis, span), column)) in axes.enumerate() {
                let some = column.slice(from, at.len());
                let none = fractions(axis, *span, &some, |row, fraction| at[row][number] = fraction)?;
                missing.extend(none.into_iter().map(|row| row + from as u32));
            }
        }
        missing.sort_unstable();
        missing.dedup();
        Ok(Places { at, missing, axes: self.axes.len() as u32 })
    }
}

/// The extent of the finite values.
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

impl<const AXES: usize> Places<AXES> {
    /// How far the rows are spread on each axis.
    pub(super) fn spread(&self) -> [u32; AXES] {
        spread(self.at.iter().copied())
    }

    /// Divides rows, given in the order of (weight, id), among the cubes of a tree.
    pub(super) fn divided(&self, order: &[u32], shape: &Shape) -> Divided<AXES> {
        let spot = |&row: &u32| Spot { at: self.at[row as usize], row };
        let is_missing = |row: &u32| self.missing.binary_search(row).is_ok();
        let mut spots = Lent::new(order.len());
        let mut side: Vec<Spot<AXES>> = Vec::new();
        match self.missing.as_slice() {
            [] => spots.extend(order.iter().map(spot)),
            _ => {
                spots.extend(order.iter().filter(|row| !is_missing(row)).map(spot));
                side.extend(order.iter().filter(|row| is_missing(row)).map(spot));
            }
        }
        let levels = (u64::BITS / self.axes).min(FRACTION_BITS);
        let empty = Spot { at: [0; AXES], row: 0 };
        let other = Lent::filled(spots.len(), empty);
        let rows = spots.len();
        let children = Lent::new(rows);
        let mut divided = Divided { spots: [spots, other], cubes: Vec::new(), children };
        let root = CubeId { level: 0, code: 0, is_side: false };
        Division { axes: self.axes, levels, shape }.divide(&mut divided, root, 0..rows);
        if !side.is_empty() {
            divided.spots[0].extend(side);
            divided.cubes.push((CubeId { is_side: true, ..root }, 0, rows..divided.spots[0].len()));
        }
        divided
    }
}

impl<const AXES: usize> Divided<AXES> {
    /// The cubes with their rows.
    pub(super) fn cubes(&self) -> Vec<(CubeId, &[Spot<AXES>])> {
        let rows = |(id, turn, rows): &(CubeId, usize, Range<usize>)| (*id, &self.spots[*turn][rows.clone()]);
        self.cubes.iter().map(rows).collect()
    }
}

/// The parameters of dividing a tree.
struct Division<'s> {
    axes: u32,
    /// The number of levels that a code can distinguish.
    levels: u32,
    shape: &'s Shape,
}

impl Division<'_> {
    /// Divides a domain: a range of rows in the buffer of its level, ordered by (weight, id).
    fn divide<const AXES: usize>(&self, divided: &mut Divided<AXES>, id: CubeId, rows: Range<usize>) {
        if rows.is_empty() {
            return;
        }
        let level = u32::from(id.level);
        let turn = usize::from(id.level % 2);
        if rows.len() <= self.shape.leaf_rows || level >= self.levels {
            divided.cubes.push((id, turn, rows));
            return;
        }
        let rest = (rows.start + self.shape.cube_rows).min(rows.end);
        divided.cubes.push((id, turn, rows.start..rest));
        let [even, odd] = &mut divided.spots;
        let (from, to) = if turn == 0 { (even, odd) } else { (odd, even) };
        let counts = self.deal(level, &from[rest..rows.end], &mut to[rest..rows.end], &mut divided.children);
        let shift = u64::BITS - (level + 1) * self.axes;
        let mut at = rest;
        for (child, count) in (0_u64..).zip(counts) {
            let id = CubeId { level: id.level + 1, code: id.code | child << shift, is_side: false };
            self.divide(divided, id, at..at + count);
            at += count;
        }
    }

    /// Groups the rows of a domain by child in the other buffer, keeping their order. Returns how many rows
    /// each child has.
    fn deal<const AXES: usize>(
        &self,
        level: u32,
        from: &[Spot<AXES>],
        to: &mut [Spot<AXES>],
        children: &mut Vec<u8>,
    ) -> Vec<usize> {
        let mut counts = vec![0; 1 << self.axes];
        children.clear();
        children.extend(from.iter().map(|spot| self.child(level, spot)));
        children.iter().for_each(|&child| counts[usize::from(child)] += 1);
        let mut next = 0;
        let mut places: Vec<usize> = Vec::with_capacity(counts.len());
        for count in &counts {
            places.push(next);
            next += count;
        }
        for (spot, &child) in from.iter().zip(children.iter()) {
            let place = &mut places[usize::from(child)];
            to[*place] = *spot;
            *place += 1;
        }
        counts
    }

    /// The child of a cube of this level in which a row lies: one bit for each axis, at most eight.
    fn child<const AXES: usize>(&self, level: u32, spot: &Spot<AXES>) -> u8 {
        let bit = |at: u32| (at >> (FRACTION_BITS - 1 - level) & 1) as u8;
        let whole = spot.at.iter().fold(0, |child, &at| child << 1 | bit(at));
        // Unused axes contribute no bit.
        whole >> (AXES as u32 - self.axes)
    }
}

/// How far some rows are spread on each axis.
pub(super) fn spread<const AXES: usize>(spots: impl Iterator<Item = [u32; AXES]>) -> [u32; AXES] {
    let (mut least, mut greatest) = ([u32::MAX; AXES], [0; AXES]);
    for at in spots {
        for axis in 0..AXES {
            least[axis] = least[axis].min(at[axis]);
            greatest[axis] = greatest[axis].max(at[axis]);
        }
    }
    std::array::from_fn(|axis| greatest[axis].saturating_sub(least[axis]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roles;
    use crate::seeds::for_seeds;
    use arrow_array::{Float64Array, Int64Array};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    #[test]
    fn a_row_has_the_place_that_it_has_alone() {
        for_seeds("a_row_has_the_place_that_it_has_alone", 4, |random| {
            let count = random.usize(ROWS_AT_ONCE..3 * ROWS_AT_ONCE);
            let columns = Schema::new(vec![
                Field::new("id", DataType::Int64, false),
                Field::new("x", DataType::Float64, true),
            ]);
            let roles =
                Roles { id: vec!["id".into()], index: vec!["id".into(), "x".into()], ..Roles::default() };
            let schema = TableSchema::new(columns, &roles).unwrap();
            let id: Int64Array = (0..count as i64).collect::<Vec<_>>().into();
            let x: Float64Array =
                (0..count).map(|_| (random.u16(..500) > 0).then(|| random.f64() - 0.5)).collect();
            let expected: Vec<u32> = (0..count as u32).filter(|&row| x.is_null(row as usize)).collect();
            let rows =
                RecordBatch::try_new(Arc::clone(schema.columns()), vec![Arc::new(id), Arc::new(x)]).unwrap();
            let root = Root::around(&schema, &rows).unwrap();
            let places = root.places::<4>(&schema, &rows).unwrap();
            assert_eq!(places.missing, expected);
            for row in (0..100).map(|_| random.usize(..count)).chain([count - 1, ROWS_AT_ONCE]) {
                let alone = root.places::<4>(&schema, &rows.slice(row % count, 1)).unwrap();
                assert_eq!(places.at[row % count], alone.at[0], "row {row}");
            }
        });
    }
}
