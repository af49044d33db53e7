//! Growing a tree: which cube each row lives in.
//!
//! The root is the smallest cube of the lattice around all rows. A cube holds the lightest rows of its domain
//! that no ancestor holds; the others go to its 2^D children, each a half of it along every axis. A domain
//! with few rows is not divided any more, and its cube holds all of them.
//!
//! Invariant: a row lives in one cube, and what a cube holds is no heavier than anything below it.

use super::Shape;
use crate::TableSchema;
use crate::lattice::{Axis, Extent, FRACTION_BITS, LatticeError, Missing, Scalar, Span, fractions};
use crate::room::Lent;
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::ops::Range;

/// Rows that are placed at a time.
const ROWS_AT_ONCE: usize = 1 << 12;

/// The lattice of one tree: an axis and the side of the root for each index column.
#[derive(Clone, Debug, PartialEq)]
pub struct Root {
    axes: Vec<Axis>,
    spans: Vec<Span>,
}

/// A row and where it lies in the root of a tree: for each axis how far from its beginning, in 2^-32 of its
/// side; beyond the axes there is nothing. Rows are moved as such, since all that is asked of a row then lies
/// together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<const AXES: usize> {
    pub(super) at: [u32; AXES],
    pub(super) row: u32,
}

/// Where rows lie in the root of a tree.
#[derive(Debug)]
pub(super) struct Places<const AXES: usize> {
    /// As in [`Spot`], of each row.
    at: Lent<[u32; AXES]>,
    /// Rows without a place, in rising order: some index column is null, NaN or infinite.
    missing: Vec<u32>,
    axes: u32,
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

/// The rows of a tree, cube by cube.
#[derive(Debug)]
pub(super) struct Divided<const AXES: usize> {
    /// Rows of two turns: those of the cubes of even levels are in the first, the others in the second.
    spots: [Lent<Spot<AXES>>; 2],
    /// The cubes, a father before its children, and which rows of its turn live in each; these are in the
    /// order of (weight, id).
    cubes: Vec<(CubeId, usize, Range<usize>)>,
    /// To which child each row goes of the domain that is divided.
    children: Lent<u8>,
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

    /// Where rows lie in this root, which holds all of them and has no more axes than that.
    pub(super) fn places<const AXES: usize>(
        &self,
        schema: &TableSchema,
        rows: &RecordBatch,
    ) -> Result<Places<AXES>, LatticeError> {
        let mut at = Lent::filled(rows.num_rows(), [0; AXES]);
        let mut missing = Vec::new();
        let columns = schema.index_values(rows.columns())?;
        // All axes of some rows, which stay in a cache meanwhile, before the next rows.
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

impl<const AXES: usize> Places<AXES> {
    /// How far all rows are spread over each axis.
    pub(super) fn spread(&self) -> [u32; AXES] {
        spread(self.at.iter().copied())
    }

    /// The cubes of a tree over rows that come in the order of (weight, id).
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
    /// The cubes and the rows of each.
    pub(super) fn cubes(&self) -> Vec<(CubeId, &[Spot<AXES>])> {
        let rows = |(id, turn, rows): &(CubeId, usize, Range<usize>)| (*id, &self.spots[*turn][rows.clone()]);
        self.cubes.iter().map(rows).collect()
    }
}

/// How a tree is divided.
struct Division<'s> {
    axes: u32,
    /// Levels that a code tells apart.
    levels: u32,
    shape: &'s Shape,
}

impl Division<'_> {
    /// Divides a domain: rows that lie in the turn of its level, in the order of (weight, id).
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

    /// Moves rows to where those of the same child lie together, each child's in the order in which they
    /// came; how many each child has.
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

    /// The halves of a cube of this level in which a row lies, a bit for each axis, of which there are eight
    /// at most.
    fn child<const AXES: usize>(&self, level: u32, spot: &Spot<AXES>) -> u8 {
        let bit = |at: u32| (at >> (FRACTION_BITS - 1 - level) & 1) as u8;
        let whole = spot.at.iter().fold(0, |child, &at| child << 1 | bit(at));
        // What lies beyond the axes is no half.
        whole >> (AXES as u32 - self.axes)
    }
}

/// How far some rows are spread over each axis.
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
