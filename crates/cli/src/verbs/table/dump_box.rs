//! The boxes of a LAMMPS dump: given, the periodic cells that are noted, or as far as rows reach.

use crate::Failure;
use atoll_row_files::{AxisBounds, SnapshotBox, SnapshotBoxes};
use atoll_tables::expression::Column;
use atoll_tables::{Boundary, Query, STEP_COLUMN, Table};
use std::collections::BTreeMap;

/// The number of axes that a box has, whatever the positions have.
const AXES: usize = 3;

/// A box as it is typed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds([(f64, f64); AXES]);

/// Parses a box: `0:10,0:10,-1:1`.
pub(super) fn parse_bounds(text: &str) -> Result<Bounds, String> {
    let needs = "a box is LO:HI for x, y and z, such as 0:10,0:10,-1:1";
    let end = |text: &str| text.trim().parse::<f64>().ok().filter(|end| end.is_finite());
    let side = |text: &str| {
        let (low, high) = text.split_once(':')?;
        Some((end(low)?, end(high)?)).filter(|(low, high)| low <= high)
    };
    let sides = text.split(',').map(side).collect::<Option<Vec<_>>>();
    let sides: Option<[(f64, f64); AXES]> = sides.and_then(|sides| sides.try_into().ok());
    sides.map(Bounds).ok_or_else(|| format!("{text:?} is not a box: {needs}"))
}

/// The boxes of the steps of an answer. If its rows are of one run, those are the cells of the run and of its
/// steps; otherwise that of the table.
pub(super) async fn boxes_of(
    table: &Table,
    query: &Query,
    given: Option<Bounds>,
) -> Result<SnapshotBoxes, Failure> {
    if let Some(Bounds(sides)) = given {
        let axes = sides.map(|(low, high)| AxisBounds::Fixed(low, high));
        let all = SnapshotBox { axes, ..SnapshotBox::default() };
        return Ok(SnapshotBoxes { all, ..SnapshotBoxes::default() });
    }
    let run = only_run(table, query).await?;
    let boundary = table.boundary(run.as_deref(), None).await?;
    let axes = match &boundary {
        Some(boundary) => boundary.axes().iter().map(column_name).collect(),
        None => positions(table),
    };
    let mut of_steps = BTreeMap::new();
    if let Some(run) = &run {
        let own = table.boundaries_of_steps(run).await?;
        of_steps.extend(own.iter().map(|(step, boundary)| (*step, box_of(boundary))));
    }
    Ok(SnapshotBoxes { axes, all: boundary.as_ref().map(box_of).unwrap_or_default(), of_steps })
}

/// The run whose rows a query returns, if it is one.
async fn only_run(table: &Table, query: &Query) -> Result<Option<String>, Failure> {
    let mut names: Vec<String> = match &query.runs {
        Some(runs) => runs.names().map(ToString::to_string).collect(),
        None => table.runs().await?.into_iter().map(|run| run.name).collect(),
    };
    let last = names.pop();
    Ok(last.filter(|_| names.is_empty()))
}

/// The index columns that hold positions: x, y and z if there are such, or else the first numbers that are no
/// steps and no times.
fn positions(table: &Table) -> Vec<String> {
    let schema = table.schema();
    let names = schema.index_columns().iter().map(column_name).collect::<Vec<_>>();
    if ["x", "y", "z"].iter().all(|axis| names.iter().any(|name| name == axis)) {
        return ["x", "y", "z"].map(str::to_owned).to_vec();
    }
    let of_space = names.into_iter().zip(schema.index()).filter(|(name, index)| {
        name != STEP_COLUMN && name != "time" && schema.index_type(**index).is_numeric()
    });
    of_space.map(|(name, _)| name).take(AXES).collect()
}

/// The name of a column, or of an element of a vector, as a file has it.
fn column_name(column: &Column) -> String {
    match column.element {
        None => column.name.clone(),
        Some(element) => format!("{}[{element}]", column.name),
    }
}

fn box_of(boundary: &Boundary) -> SnapshotBox {
    let cell = boundary.cell();
    let mut axes = [AxisBounds::OfRows; AXES];
    for (axis, (low, length)) in axes.iter_mut().zip(boundary.low().iter().zip(cell.lengths())) {
        if length.is_finite() {
            *axis = AxisBounds::Periodic(*low, low + length);
        }
    }
    let tilts = [(0, 1), (0, 2), (1, 2)];
    let is_there = |of: usize| of < cell.lengths().len();
    SnapshotBox { axes, tilts: tilts.map(|(axis, of)| if is_there(of) { cell.tilt(axis, of) } else { 0.0 }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_tables::expression::Cell;

    #[test]
    fn a_box_has_three_sides_and_each_a_low_and_a_high_end() {
        let Bounds(sides) = parse_bounds("0:10, -1.5:2e3,0:0").unwrap();
        assert_eq!(sides, [(0.0, 10.0), (-1.5, 2000.0), (0.0, 0.0)]);
        for text in [
            "",
            "0:1",
            "0:1,0:1",
            "0:1,0:1,0:1,0:1",
            "0:1,0:1,1:0",
            "0:1,0:1,0",
            "0:1,0:1,0:inf",
            "0:1,0:1,:1",
        ] {
            let told = parse_bounds(text).unwrap_err();
            assert!(told.contains("LO:HI for x, y and z"), "{text}: {told}");
        }
    }

    #[test]
    fn a_cell_is_a_box_that_repeats_where_it_has_a_length_and_keeps_its_tilts() {
        let axes = ["x", "y", "z"].map(str::to_owned);
        let cell = Cell::new(&[10.0, 20.0, f64::INFINITY], &[1.0, 0.0, 0.0]).unwrap();
        let found = box_of(&Boundary::new(&axes, &[-5.0, 0.0, 0.0], cell).unwrap());
        let expected = [AxisBounds::Periodic(-5.0, 5.0), AxisBounds::Periodic(0.0, 20.0), AxisBounds::OfRows];
        assert_eq!((found.axes, found.tilts), (expected, [1.0, 0.0, 0.0]));
        let plane = Cell::new(&[10.0, 20.0], &[3.0]).unwrap();
        let found = box_of(&Boundary::new(&axes[..2], &[], plane).unwrap());
        assert_eq!((found.axes[2], found.tilts), (AxisBounds::OfRows, [3.0, 0.0, 0.0]));
    }
}
