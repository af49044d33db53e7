//! Rows near a point: `near((x, y, z), (1.0, 2.0, 3.0), 0.5)`, followed by `cell(10, 10, 10)` where space is
//! periodic.
//!
//! A cell has the edges `a = (lx, 0, 0)`, `b = (xy, ly, 0)` and `c = (xz, yz, lz)`, as in LAMMPS; a length of
//! `inf` marks an axis that is not periodic. A row is near if the distance from the point to *some* image of
//! the row, shifted by whole edges, is at most the radius. This is the exact minimum image distance, however
//! much the cell leans. Neither the point nor the row has to lie in the cell.
//!
//! Everything is computed in doubles, in one order of operations, each of which is monotonic. The bounds of a
//! box of rows, computed in the same way, therefore hold for each of its rows.
//!
//! Invariant: the verdict on a box of rows agrees with every row in it.

mod bound;

pub(super) use bound::BoundNear;

use super::Column;
use std::fmt;

/// The most axes of a point.
const AXES_MAX: usize = 3;

/// The most cells over which a radius may reach.
const CELLS_MAX: f64 = 32.0;

/// A periodic cell: a box of one to three axes, possibly leaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    lengths: Vec<f64>,
    tilts: Vec<f64>,
}

/// A condition: rows within a distance of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Near {
    columns: Vec<Column>,
    point: Vec<f64>,
    radius: f64,
    cell: Option<Cell>,
}

impl Cell {
    /// A cell of one to three axes. `lengths` are positive, and infinite along an axis that is not periodic.
    /// `tilts` are empty, or `[xy]` for two axes and `[xy, xz, yz]` for three, in the unit of the lengths.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn new(lengths: &[f64], tilts: &[f64]) -> Result<Self, &'static str> {
        let axes = lengths.len();
        if !(1..=AXES_MAX).contains(&axes) {
            return Err("a cell has one to three lengths");
        }
        if !lengths.iter().all(|length| *length > 0.0) {
            return Err("the lengths of a cell must be above 0; inf marks an axis that does not repeat");
        }
        let upright = vec![0.0; axes * (axes - 1) / 2];
        let tilts = if tilts.is_empty() { upright.clone() } else { tilts.to_vec() };
        if tilts.len() != upright.len() || !tilts.iter().all(|tilt| tilt.is_finite()) {
            return Err("a cell of two axes has the tilt xy, and one of three xy, xz and yz");
        }
        let cell = Self { lengths: lengths.to_vec(), tilts };
        let leans = |of: usize| (0..of).any(|axis| cell.tilt(axis, of) != 0.0);
        if (0..axes).any(|axis| cell.lengths[axis].is_infinite() && leans(axis)) {
            return Err("an axis that does not repeat cannot have a tilt");
        }
        Ok(cell)
    }

    /// The lengths, one for each axis.
    #[must_use]
    pub fn lengths(&self) -> &[f64] {
        &self.lengths
    }

    /// The tilts: none, `xy`, or `xy, xz, yz`.
    #[must_use]
    pub fn tilts(&self) -> &[f64] {
        &self.tilts
    }

    /// How far the edge of axis `of` reaches along an earlier axis.
    #[must_use]
    pub fn tilt(&self, axis: usize, of: usize) -> f64 {
        if axis >= of {
            return 0.0;
        }
        // In the order xy, xz, yz.
        self.tilts.get(of * (of - 1) / 2 + axis).copied().unwrap_or(0.0)
    }

    /// The length of an axis; infinite if the cell lacks it.
    fn length(&self, axis: usize) -> f64 {
        self.lengths.get(axis).copied().unwrap_or(f64::INFINITY)
    }
}

impl Near {
    /// Rows at most `radius` from a point. `columns` are the coordinates, or one column of vectors.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn new(
        columns: Vec<Column>,
        point: &[f64],
        radius: f64,
        cell: Option<Cell>,
    ) -> Result<Self, &'static str> {
        let axes = point.len();
        if !(1..=AXES_MAX).contains(&axes) {
            return Err("a point has one to three numbers");
        }
        if !point.iter().all(|number| number.is_finite()) {
            return Err("the numbers of a point must be finite");
        }
        let is_vector = columns.len() == 1 && columns[0].element.is_none();
        if columns.len() != axes && !is_vector {
            return Err("near needs as many coordinates as the point has numbers, or one vector column");
        }
        if !(radius >= 0.0 && radius.is_finite()) {
            return Err("a radius must be 0 or more");
        }
        if !(radius * radius).is_finite() {
            // Any distance would be near, even an infinite one.
            return Err("a radius must be below 1e154, so that its square is finite");
        }
        if cell.as_ref().is_some_and(|cell| cell.lengths.len() != axes) {
            return Err("the cell must have as many lengths as the point has numbers");
        }
        if cell.as_ref().is_some_and(|cell| cell.lengths.iter().any(|length| radius / length > CELLS_MAX)) {
            return Err("the radius spans more than 32 cells");
        }
        Ok(Self { columns, point: point.to_vec(), radius, cell })
    }

    /// The columns in the condition.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The columns of the coordinates, one for each axis.
    pub(super) fn coordinates(&self) -> Vec<Column> {
        match self.columns.as_slice() {
            [vector] if self.point.len() > 1 => {
                (0..self.point.len() as u32).map(|element| Column::element(&vector.name, element)).collect()
            }
            columns => columns.to_vec(),
        }
    }

    /// The number of elements of the vector column; `None` if the coordinates are columns of their own.
    pub(super) fn vector_len(&self) -> Option<usize> {
        (self.columns.len() < self.point.len()).then_some(self.point.len())
    }
}

struct List<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let literals =
            |numbers: &[f64]| numbers.iter().map(|number| super::Literal::Float(*number)).collect::<Vec<_>>();
        match self.vector_len() {
            Some(_) => write!(f, "near({}, ", List(&self.columns))?,
            None => write!(f, "near(({}), ", List(&self.columns))?,
        }
        write!(f, "({}), {}", List(&literals(&self.point)), super::Literal::Float(self.radius))?;
        if let Some(cell) = &self.cell {
            let is_upright = cell.tilts.iter().all(|tilt| *tilt == 0.0);
            let tilts = if is_upright { &[][..] } else { &cell.tilts };
            let numbers = literals(&[&cell.lengths[..], tilts].concat());
            write!(f, ", cell({})", List(&numbers))?;
        }
        f.write_str(")")
    }
}
