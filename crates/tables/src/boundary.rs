//! Boundaries: the periodic cell of a simulation, and the columns that hold positions in it.
//!
//! A boundary is stored as the attribute `cell` of a table, a run or a step. It is turned into conditions of
//! the expression grammar: rows near a point by the minimum image distance, and boxes that extend across the
//! boundary.
//!
//! Invariant: every condition derived from a boundary is an expression that a user could have typed.

use crate::expression::{Cell, Column, Expression, Literal, Near, Side};
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

/// Name of the attribute of a table, a run or a step that stores its boundary.
pub const CELL_ATTRIBUTE: &str = "cell";

/// Example of a stored boundary, for error messages.
const EXAMPLE: &str = "{\"axes\": [\"x\", \"y\", \"z\"], \"lengths\": [10, 10, null]}";

/// Maximum number of images of a box along one axis.
const IMAGES_MAX: f64 = 64.0;

/// An invalid boundary, or a question that the boundary cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct BoundaryError {
    /// Description of the problem.
    pub problem: String,
}

impl BoundaryError {
    fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into() }
    }
}

/// A periodic cell with the columns of its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Boundary {
    axes: Vec<Column>,
    low: Vec<f64>,
    cell: Cell,
}

/// Stored form. The length of an axis that does not repeat is null.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "axes and lengths")]
struct Stored {
    axes: Vec<String>,
    #[serde(default)]
    low: Vec<f64>,
    lengths: Vec<Option<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tilts: Vec<f64>,
}

impl Boundary {
    /// Makes the boundary of a cell that begins at `low`. `axes` names either one column per axis or a single
    /// vector column. Each name is parsed as the expression grammar writes columns, such as `pos[0]` or `"x
    /// (nm)"`; text that does not parse as a column is taken literally as a column name.
    ///
    /// # Errors
    /// Describes the part that does not fit.
    pub fn new(axes: &[String], low: &[f64], cell: Cell) -> Result<Self, BoundaryError> {
        let count = cell.lengths().len();
        let column = |axis: &String| match Expression::parse(axis) {
            Ok(Expression::Column(column)) => column,
            _ => Column::named(axis),
        };
        let mut columns: Vec<Column> = axes.iter().map(column).collect();
        if let ([Column { name, element: None, .. }], true) = (columns.as_slice(), count > 1) {
            columns = (0..count as u32).map(|element| Column::element(name, element)).collect();
        }
        let low = if low.is_empty() { vec![0.0; count] } else { low.to_vec() };
        if columns.len() != count || low.len() != count || !low.iter().all(|low| low.is_finite()) {
            return Err(BoundaryError::new(format!(
                "a cell with {count} lengths needs as many axes (or one vector column) and as many coordinates in `low`"
            )));
        }
        Ok(Self { axes: columns, low, cell })
    }

    /// Checks that the axes are existing numeric columns.
    ///
    /// # Errors
    /// Names the first axis that is not.
    pub fn check(&self, columns: &Schema) -> Result<(), BoundaryError> {
        let near = Near::new(self.axes.clone(), &vec![0.0; self.axes.len()], 1.0, None);
        let near = near.map(|near| Expression::Near(Box::new(near))).map_err(BoundaryError::new)?;
        match near.bind(columns) {
            Ok(_) => Ok(()),
            Err(error) => Err(BoundaryError::new(format!("an axis of the cell: {error}"))),
        }
    }

    /// The columns of its axes.
    #[must_use]
    pub fn axes(&self) -> &[Column] {
        &self.axes
    }

    /// Where the cell begins, one coordinate per axis.
    #[must_use]
    pub fn low(&self) -> &[f64] {
        &self.low
    }

    /// The periodic cell.
    #[must_use]
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The stored form, an attribute value.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let lengths = self.cell.lengths().iter();
        let stored = Stored {
            axes: self.axes.iter().map(ToString::to_string).collect(),
            low: self.low.clone(),
            lengths: lengths.map(|length| Some(*length).filter(|length| length.is_finite())).collect(),
            tilts: self.cell.tilts().to_vec(),
        };
        serde_json::to_value(stored).unwrap_or_default()
    }

    /// Parses the output of [`Boundary::to_json`].
    ///
    /// # Errors
    /// Describes the part that does not fit.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, BoundaryError> {
        let stored = match value {
            // Serde would accept an array as the fields in order, and then complain about the first of them
            // only.
            serde_json::Value::Array(_) => Err(format!("{value} is a list")),
            _ => Stored::deserialize(value).map_err(|error| error.to_string()),
        };
        let stored = stored.map_err(|problem| {
            BoundaryError::new(format!(
                "the attribute \"{CELL_ATTRIBUTE}\" must be a periodic cell, such as {EXAMPLE}: {problem}"
            ))
        })?;
        let lengths: Vec<f64> = stored.lengths.iter().map(|length| length.unwrap_or(f64::INFINITY)).collect();
        let cell = Cell::new(&lengths, &stored.tilts).map_err(BoundaryError::new)?;
        Self::new(&stored.axes, &stored.low, cell)
    }

    /// Condition for rows at most `radius` from a point, by the minimum image distance.
    ///
    /// # Errors
    /// A point with another number of axes, or an invalid radius.
    pub fn near(&self, point: &[f64], radius: f64) -> Result<Expression, BoundaryError> {
        let near = Near::new(self.axes.clone(), point, radius, Some(self.cell.clone()));
        near.map(|near| Expression::Near(Box::new(near))).map_err(BoundaryError::new)
    }

    /// Condition for rows in a box that extends across the boundary: the union of its images, each half-open
    /// as the box is. `None` if no side restricts anything.
    ///
    /// Positions are assumed to lie in the cell or at most one cell beside it, as simulations write them.
    /// Sides with an open end and axes without a side are not shifted; neither are columns that are not an
    /// axis of the cell.
    ///
    /// # Errors
    /// A side that spans too many cells, or ends before it begins.
    pub fn wrapped(&self, sides: &[Side]) -> Result<Option<Expression>, BoundaryError> {
        let is_inside_out = |side: &&Side| finite(side).is_some_and(|(low, high)| low > high);
        if let Some(side) = sides.iter().find(is_inside_out) {
            return Err(BoundaryError::new(format!("the range {side} ends before it begins")));
        }
        let own = self.axes.iter().map(|axis| sides.iter().find(|side| side.column == *axis).cloned());
        let own: Vec<Option<Side>> = own.collect();
        let others =
            sides.iter().filter(|side| !self.axes.contains(&side.column)).filter_map(Side::condition);
        let is_upright = self.cell.tilts().iter().all(|tilt| *tilt == 0.0);
        let mut parts: Vec<Expression> = Vec::new();
        if is_upright {
            for axis in 0..own.len() {
                let alone = (0..own.len()).map(|other| own[other].clone().filter(|_| other == axis));
                parts.extend(self.union(&alone.collect::<Vec<_>>())?);
            }
        } else {
            parts.extend(self.union(&own)?);
        }
        Ok(parts.into_iter().chain(others).reduce(Expression::and))
    }

    /// The union of the images of a box, given one optional side per axis.
    fn union(&self, sides: &[Option<Side>]) -> Result<Option<Expression>, BoundaryError> {
        let mut shifts = vec![vec![0.0; sides.len()]];
        for axis in (0..sides.len()).rev() {
            let Some(ends) = sides[axis].as_ref().and_then(finite) else { continue };
            let mut further = Vec::new();
            for shift in shifts {
                for count in self.images(axis, (ends.0 + shift[axis], ends.1 + shift[axis]))? {
                    let mut shift = shift.clone();
                    // An axis that does not repeat has an infinite length, and 0 times infinity is NaN.
                    shift[axis] += if count == 0.0 { 0.0 } else { count * self.cell.lengths()[axis] };
                    (0..axis).for_each(|other| shift[other] += count * self.cell.tilt(other, axis));
                    further.push(shift);
                }
            }
            shifts = further;
        }
        let image = |shift: &Vec<f64>| {
            let shifted =
                sides.iter().zip(shift).filter_map(|(side, by)| side.as_ref().map(|side| moved(side, *by)));
            shifted.filter_map(|side| side.condition()).reduce(Expression::and)
        };
        Ok(shifts.iter().filter_map(image).reduce(Expression::or))
    }

    /// The multiples of the cell length by which to shift a side so that it meets the cell or a neighbouring
    /// cell.
    fn images(&self, axis: usize, (low, high): (f64, f64)) -> Result<Vec<f64>, BoundaryError> {
        let length = self.cell.lengths()[axis];
        if length.is_infinite() {
            return Ok(vec![0.0]);
        }
        let tilts = (axis + 1..self.axes.len()).map(|of| self.cell.tilt(axis, of));
        let (mut from, mut to) = (self.low[axis], self.low[axis] + length);
        // The tilts widen the cell itself, and shift a neighbouring cell by the same amount again.
        tilts.for_each(|tilt| {
            (from, to) = (from + tilt.min(0.0) - tilt.abs(), to + tilt.max(0.0) + tilt.abs());
        });
        let first = ((from - length - high) / length).ceil();
        let last = ((to + length - low) / length).floor();
        let count = (last - first + 1.0).max(0.0);
        if count > IMAGES_MAX || count.is_nan() {
            return Err(BoundaryError::new(format!(
                "the box spans too many cells along {}",
                self.axes[axis]
            )));
        }
        Ok((0..count as u32).map(|number| first + f64::from(number)).collect())
    }
}

/// Both ends of a side as numbers, if it has two finite ones.
fn finite(side: &Side) -> Option<(f64, f64)> {
    let ends = (number(side.low.as_ref()?)?, number(side.high.as_ref()?)?);
    Some(ends).filter(|(low, high)| low.is_finite() && high.is_finite())
}

fn number(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::Integer(value) => Some(*value as f64),
        Literal::Float(value) => Some(*value),
        _ => None,
    }
}

fn moved(side: &Side, by: f64) -> Side {
    let end = |end: &Option<Literal>| match end.as_ref().and_then(number) {
        Some(value) if by != 0.0 => Some(Literal::Float(value + by)),
        _ => end.clone(),
    };
    Side { column: side.column.clone(), low: end(&side.low), high: end(&side.high) }
}

#[cfg(test)]
mod tests;
