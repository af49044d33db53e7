//! The boxes of a LAMMPS dump: given, the periodic cells that are noted, or as far as rows reach.

use crate::Failure;
use arrow_schema::{DataType, Field};
use atoll_row_files::{AxisBounds, SnapshotBox, SnapshotBoxes};
use atoll_tables::expression::Column;
use atoll_tables::{Boundary, Query, STEP_COLUMN, Table, TableSchema};
use std::collections::BTreeMap;

/// The number of axes that a box has, whatever the positions have.
const AXES: usize = 3;

/// The usual names of its axes.
const SPACE: [&str; AXES] = ["x", "y", "z"];

/// The axes of its tilts: along which, and of which edge.
const TILTS: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];

/// What helps if a cell cannot be a box.
const GIVE_THE_BOX: &str = "give the box, such as --bounds 0:10,0:10,0:10";

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
/// steps; otherwise that of the table. Refuses rows of several runs that would end up in one snapshot.
pub(super) async fn boxes_of(
    table: &Table,
    query: &Query,
    given: Option<Bounds>,
) -> Result<SnapshotBoxes, Failure> {
    let steps = table.steps_asked(query).await?;
    check_apart(&steps)?;
    if let Some(Bounds(sides)) = given {
        let axes = sides.map(|(low, high)| AxisBounds::Fixed(low, high));
        let all = SnapshotBox { axes, ..SnapshotBox::default() };
        return Ok(SnapshotBoxes { all, ..SnapshotBoxes::default() });
    }
    let run = only_run(&steps);
    let boundary = table.boundary(run, None).await?;
    let own = match run {
        Some(run) => table.boundaries_of_steps(run).await?,
        None => BTreeMap::new(),
    };
    let noted: Vec<&Boundary> = boundary.iter().chain(own.values()).collect();
    let axes = axes_of(&table.schema(), &noted)?;
    let all = match &boundary {
        Some(boundary) => box_of(boundary, &axes)?,
        None => SnapshotBox::default(),
    };
    let mut of_steps = BTreeMap::new();
    for (step, boundary) in &own {
        of_steps.insert(*step, box_of(boundary, &axes)?);
    }
    Ok(SnapshotBoxes { axes, all, of_steps })
}

/// Refuses two runs with rows of one step: a snapshot would have each atom twice, and nothing would tell of
/// which run.
fn check_apart(steps: &BTreeMap<String, Vec<u64>>) -> Result<(), Failure> {
    let mut run_of: BTreeMap<u64, &str> = BTreeMap::new();
    for (run, steps) in steps {
        for step in steps {
            if let Some(other) = run_of.insert(*step, run) {
                return Err(Failure::Usage {
                    problem: format!(
                        "the runs \"{other}\" and \"{run}\" both have rows of step {step}, which one snapshot of a \
                         LAMMPS dump would mix"
                    ),
                    hint: "export each run by itself with --run, or write Parquet, Arrow IPC or CSV"
                        .to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// The run whose rows a query may return, if it is one.
fn only_run(steps: &BTreeMap<String, Vec<u64>>) -> Option<&str> {
    let mut with_rows = steps.keys();
    let run = with_rows.next()?;
    with_rows.next().is_none().then_some(run.as_str())
}

/// The columns along x, y and z: those in the index, unless a cell that is noted has others.
fn axes_of(schema: &TableSchema, noted: &[&Boundary]) -> Result<Vec<String>, Failure> {
    let cells: Vec<Vec<String>> =
        noted.iter().map(|boundary| boundary.axes().iter().map(column_name).collect()).collect();
    let mut choices = vec![positions(schema), space(schema)];
    choices.extend(noted.first().map(|boundary| elements(schema, boundary)));
    choices.extend(cells.iter().max_by_key(|axes| axes.len()).cloned());
    let holds_all = |choice: &Vec<String>| cells.iter().flatten().all(|axis| choice.contains(axis));
    choices.into_iter().find(holds_all).ok_or_else(|| Failure::Usage {
        problem: "the periodic cells that are noted name other columns from step to step".to_owned(),
        hint: GIVE_THE_BOX.to_owned(),
    })
}

/// The index columns that hold positions: x, y and z if there are such, or else the first numbers that are no
/// steps and no times.
fn positions(schema: &TableSchema) -> Vec<String> {
    let names = schema.index_columns().iter().map(column_name).collect::<Vec<_>>();
    if SPACE.iter().all(|axis| names.iter().any(|name| name == axis)) {
        return SPACE.map(str::to_owned).to_vec();
    }
    let of_space = names.into_iter().zip(schema.index()).filter(|(name, index)| {
        name != STEP_COLUMN && name != "time" && schema.index_type(**index).is_numeric()
    });
    of_space.map(|(name, _)| name).take(AXES).collect()
}

/// The columns x, y and z, if the table has them, in its index or not.
fn space(schema: &TableSchema) -> Vec<String> {
    let is_there = |axis: &&str| {
        schema.columns().field_with_name(axis).is_ok_and(|field| field.data_type().is_numeric())
    };
    if SPACE.iter().all(is_there) { SPACE.map(str::to_owned).to_vec() } else { Vec::new() }
}

/// All elements of the vectors whose first elements are axes of a cell.
fn elements(schema: &TableSchema, boundary: &Boundary) -> Vec<String> {
    let Some(Column { name, element: Some(_), .. }) = boundary.axes().first() else { return Vec::new() };
    match schema.columns().field_with_name(name).map(Field::data_type) {
        Ok(DataType::FixedSizeList(_, len)) => {
            (0..*len).take(AXES).map(|element| format!("{name}[{element}]")).collect()
        }
        _ => Vec::new(),
    }
}

/// The name of a column, or of an element of a vector, as a file has it.
fn column_name(column: &Column) -> String {
    match column.element {
        None => column.name.clone(),
        Some(element) => format!("{}[{element}]", column.name),
    }
}

/// A cell as a box along these columns, each axis in the place of its column. A column that is no axis of the
/// cell reaches as far as the rows.
fn box_of(boundary: &Boundary, axes: &[String]) -> Result<SnapshotBox, Failure> {
    let cell = boundary.cell();
    let mut found = SnapshotBox::default();
    let place_of = |axis: &Column| axes.iter().position(|name| *name == column_name(axis));
    let places: Vec<Option<usize>> = boundary.axes().iter().map(place_of).collect();
    for ((place, low), length) in places.iter().zip(boundary.low()).zip(cell.lengths()) {
        let side = place.and_then(|place| found.axes.get_mut(place));
        if let Some(side) = side.filter(|_| length.is_finite()) {
            *side = AxisBounds::Periodic(*low, low + length);
        }
    }
    for (of, later) in places.iter().enumerate() {
        for (axis, earlier) in places.iter().enumerate().take(of) {
            let tilt = cell.tilt(axis, of);
            if tilt == 0.0 {
                continue;
            }
            let slot = TILTS.iter().position(|pair| Some(*pair) == earlier.zip(*later));
            let slot = slot.and_then(|slot| found.tilts.get_mut(slot));
            *slot.ok_or_else(|| Failure::Usage {
                problem:
                    "the periodic cell that is noted is tilted along axes in another order than x, y and z"
                        .to_owned(),
                hint: GIVE_THE_BOX.to_owned(),
            })? = tilt;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::Schema;
    use atoll_tables::expression::Cell;
    use atoll_tables::{Roles, column};

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

    /// A table whose columns are all numbers, with these in its index.
    fn table(columns: &[&str], index: &[&str]) -> TableSchema {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let vector = DataType::FixedSizeList(column("item", DataType::Float64, false), 3);
        let all = columns.iter().map(|name| match *name {
            "pos" => column(name, vector.clone(), false),
            _ => column(name, DataType::Float64, false),
        });
        let all: Vec<_> = [column("pid", DataType::Int64, false)].into_iter().chain(all).collect();
        let roles = Roles { id: names(&["pid"]), sample_key: Vec::new(), index: names(index), salt: 0 };
        TableSchema::new(Schema::new(all), &roles).unwrap()
    }

    fn boundary(axes: &[&str], lengths: &[f64], tilts: &[f64]) -> Boundary {
        let axes: Vec<String> = axes.iter().map(|axis| (*axis).to_owned()).collect();
        Boundary::new(&axes, &[], Cell::new(lengths, tilts).unwrap()).unwrap()
    }

    #[test]
    fn a_cell_is_a_box_that_repeats_where_it_has_a_length_and_keeps_its_tilts() {
        let axes = SPACE.map(str::to_owned);
        let cell = Cell::new(&[10.0, 20.0, f64::INFINITY], &[1.0, 0.0, 0.0]).unwrap();
        let found = box_of(&Boundary::new(&axes, &[-5.0, 0.0, 0.0], cell).unwrap(), &axes).unwrap();
        let expected = [AxisBounds::Periodic(-5.0, 5.0), AxisBounds::Periodic(0.0, 20.0), AxisBounds::OfRows];
        assert_eq!((found.axes, found.tilts), (expected, [1.0, 0.0, 0.0]));
        let plane = Cell::new(&[10.0, 20.0], &[3.0]).unwrap();
        let found = box_of(&Boundary::new(&axes[..2], &[], plane).unwrap(), &axes).unwrap();
        assert_eq!((found.axes[2], found.tilts), (AxisBounds::OfRows, [3.0, 0.0, 0.0]));
    }

    #[test]
    fn an_axis_of_a_cell_has_the_place_of_its_column_and_the_others_reach_as_far_as_the_rows() {
        let (cube, along_z) = (table(&SPACE, &SPACE), boundary(&["z"], &[7.0], &[]));
        let axes = axes_of(&cube, &[&along_z, &boundary(&["y", "x"], &[1.0, 2.0], &[])]).unwrap();
        assert_eq!(axes, SPACE);
        let expected = [AxisBounds::OfRows, AxisBounds::OfRows, AxisBounds::Periodic(0.0, 7.0)];
        assert_eq!(box_of(&along_z, &axes).unwrap().axes, expected);
        // In LAMMPS, an edge tilts along those before it only.
        let tilted = box_of(&boundary(&["x", "z"], &[1.0, 2.0], &[0.5]), &axes).unwrap();
        assert_eq!(tilted.tilts, [0.0, 0.5, 0.0]);
        let refused = box_of(&boundary(&["z", "x"], &[1.0, 2.0], &[0.5]), &axes);
        assert!(matches!(refused, Err(Failure::Usage { .. })));
        assert!(box_of(&boundary(&["z", "x"], &[1.0, 2.0], &[]), &axes).is_ok());
    }

    #[test]
    fn the_axes_of_a_box_are_in_the_index_or_beside_those_that_a_cell_names() {
        let none: [&Boundary; 0] = [];
        assert_eq!(axes_of(&table(&["a", "b"], &["b", "a"]), &none).unwrap(), ["b", "a"]);
        let plane = boundary(&["x", "y"], &[1.0, 2.0], &[]);
        assert_eq!(axes_of(&table(&["x", "y", "z", "a"], &["a"]), &[&plane]).unwrap(), SPACE);
        assert_eq!(axes_of(&table(&["x", "y", "a"], &["a"]), &[&plane]).unwrap(), ["x", "y"]);
        let start = boundary(&["pos[0]", "pos[1]"], &[1.0, 2.0], &[]);
        let vectors = table(&["pos", "a"], &["a"]);
        assert_eq!(axes_of(&vectors, &[&start]).unwrap(), ["pos[0]", "pos[1]", "pos[2]"]);
        let other = boundary(&["a"], &[1.0], &[]);
        assert!(matches!(axes_of(&vectors, &[&start, &other]), Err(Failure::Usage { .. })));
    }

    #[test]
    fn rows_of_two_runs_are_refused_only_if_these_share_a_step() {
        let steps =
            |second: u64| BTreeMap::from([("a".to_owned(), vec![0, 5]), ("b".to_owned(), vec![second])]);
        assert!(check_apart(&steps(6)).is_ok() && only_run(&steps(6)).is_none());
        assert!(matches!(check_apart(&steps(5)), Err(Failure::Usage { .. })));
        assert_eq!(only_run(&BTreeMap::from([("a".to_owned(), vec![0])])), Some("a"));
    }
}
