//! `near` compared with a search over all images, for random cells, points and rows, and for boxes of rows.

use super::super::{Cell, Column, Expression, Near, Verdict};
use crate::lattice::Extent;
use crate::seeds::for_seeds;
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const AXES: [&str; 3] = ["x", "y", "z"];

/// A random cell whose edges lean up to twice their own length, and which may be open along an axis.
fn some_cell(random: &mut Rng, axes: usize) -> Cell {
    let is_upright = random.bool();
    let lengths: Vec<f64> = (0..axes)
        .map(|_| if random.u8(..5) == 0 { f64::INFINITY } else { 2.0 + 8.0 * random.f64() })
        .collect();
    let mut tilts = Vec::new();
    for (of, length) in lengths.iter().enumerate().skip(1) {
        let reach = if is_upright || length.is_infinite() { 0.0 } else { length.min(5.0) * 2.0 };
        tilts.extend((0..of).map(|_| (random.f64() * 2.0 - 1.0) * reach));
    }
    Cell::new(&lengths, &tilts).unwrap()
}

/// Tries every image within reach, in the documented order of operations.
fn brute(away: [f64; 3], cell: &Cell, radius: f64) -> bool {
    let edge = |axis: usize| cell.lengths().get(axis).copied().filter(|length| length.is_finite());
    let counts = |axis: usize, most: i32| if edge(axis).is_some() { -most..=most } else { 0..=0 };
    let length = |axis: usize| edge(axis).unwrap_or(0.0);
    for k in counts(2, 20).map(f64::from) {
        let z = away[2] - k * length(2);
        if z.abs() > radius {
            continue;
        }
        for j in counts(1, 120).map(f64::from) {
            let y = (away[1] - k * cell.tilt(1, 2)) - j * length(1);
            if y.abs() > radius {
                continue;
            }
            for i in counts(0, 800).map(f64::from) {
                let x = ((away[0] - k * cell.tilt(0, 2)) - j * cell.tilt(0, 1)) - i * length(0);
                if x * x + y * y + z * z <= radius * radius {
                    return true;
                }
            }
        }
    }
    false
}

struct Rows {
    batch: RecordBatch,
    /// `None` where a coordinate is null.
    places: Vec<Option<[f64; 3]>>,
}

fn some_rows(random: &mut Rng, axes: usize, count: usize) -> Rows {
    let mut places = vec![Some([0.0; 3]); count];
    let mut columns: Vec<(&str, ArrayRef, bool)> = Vec::new();
    for (axis, name) in AXES.into_iter().enumerate().take(axes) {
        let value = |random: &mut Rng| match random.u8(..60) {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(f64::INFINITY),
            3 => Some(f64::NEG_INFINITY),
            _ => Some((random.f64() * 2.0 - 1.0) * 10.0),
        };
        let values: Vec<Option<f64>> = (0..count).map(|_| value(random)).collect();
        let (values, column): (Vec<Option<f64>>, ArrayRef) = match random.u8(..3) {
            0 => {
                let narrow =
                    values.iter().map(|value| value.map(|value| value as f32)).collect::<Float32Array>();
                (narrow.iter().map(|value| value.map(f64::from)).collect(), Arc::new(narrow))
            }
            1 => {
                let whole = values
                    .iter()
                    .map(|value| value.map(|value| if value.is_finite() { value as i64 } else { 0 }))
                    .collect::<Int64Array>();
                (whole.iter().map(|value| value.map(|value| value as f64)).collect(), Arc::new(whole))
            }
            _ => (values.clone(), Arc::new(values.iter().copied().collect::<Float64Array>())),
        };
        for (place, value) in places.iter_mut().zip(values) {
            *place = place.zip(value).map(|(mut place, value)| {
                place[axis] = value;
                place
            });
        }
        columns.push((name, column, true));
    }
    Rows { batch: RecordBatch::try_from_iter_with_nullable(columns).unwrap(), places }
}

fn extents(batch: &RecordBatch) -> BTreeMap<Column, Extent> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    columns.map(|(field, column)| (Column::named(field.name()), Extent::of(column).unwrap())).collect()
}

#[test]
fn a_row_is_near_if_some_image_of_it_is_and_no_box_is_wrong_about_its_rows() {
    let (mut near_rows, mut never, mut always) = (0, 0, 0);
    for_seeds("a_row_is_near_if_some_image_of_it_is", 60, |random| {
        let axes = random.usize(1..4);
        let has_cell = random.u8(..4) > 0;
        let endless = Cell::new(&vec![f64::INFINITY; axes], &[]).unwrap();
        let cell = if has_cell { some_cell(random, axes) } else { endless };
        let point: Vec<f64> = (0..axes).map(|_| (random.f64() * 2.0 - 1.0) * 10.0).collect();
        let radius = random.f64() * if random.bool() { 5.0 } else { 1.0 };
        let columns = AXES[..axes].iter().map(|name| Column::named(*name)).collect();
        let near = Near::new(columns, &point, radius, has_cell.then(|| cell.clone())).unwrap();
        let expression = Expression::Near(Box::new(near));
        assert_eq!(Expression::parse(&expression.to_string()).as_ref(), Ok(&expression), "{expression}");
        let rows = some_rows(random, axes, 80);
        let bound = expression.bind(&rows.batch.schema()).unwrap();
        let found = bound.evaluate(&rows.batch).unwrap();
        let expected = rows.places.iter().map(|place| {
            place.map(|place| {
                let mut away = [0.0; 3];
                (0..axes).for_each(|axis| away[axis] = place[axis] - point[axis]);
                brute(away, &cell, radius)
            })
        });
        let expected: Vec<Option<bool>> = expected.collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{expression}");
        near_rows += expected.iter().filter(|near| **near == Some(true)).count();
        for _ in 0..40 {
            let from = random.usize(..80);
            let part = rows.batch.slice(from, random.usize(1..=(80 - from).min(3)));
            let all = extents(&part);
            let known = |column: &Column| all.get(column).copied().filter(|_| random_bit(from, column));
            let verdict = bound.verdict(&known);
            let holds = || expected[from..from + part.num_rows()].iter().map(|near| *near == Some(true));
            match verdict {
                Verdict::Never => assert!(!holds().any(|near| near), "{expression} is not never true"),
                Verdict::Always => assert!(holds().all(|near| near), "{expression} is not always true"),
                Verdict::Perhaps => {}
            }
            never += usize::from(verdict == Verdict::Never);
            always += usize::from(verdict == Verdict::Always);
            for (row, near) in expected.iter().enumerate().skip(from).take(part.num_rows()) {
                for (axis, name) in AXES.into_iter().enumerate().take(axes) {
                    let range = bound.ranges(&Column::named(name)).values;
                    if let (super::super::Values::Floats { low, high }, Some(true)) = (range, near) {
                        let value = rows.places[row].unwrap()[axis];
                        assert!(low <= value && value <= high, "{expression}: {name} {value}");
                    }
                }
            }
        }
    });
    assert!(
        near_rows > 300 && never > 300 && always > 10,
        "{near_rows} near, {never} never, {always} always"
    );
}

/// Some columns have no extent, as if they were not index columns.
fn random_bit(from: usize, column: &Column) -> bool {
    !(from + column.name.len() + usize::from(column.name.as_bytes()[0])).is_multiple_of(5)
}

#[test]
fn the_other_side_of_a_cell_is_near_and_of_an_open_axis_is_not() {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![9.5, 0.5, 1.5, 8.0, 19.5, -90.5]));
    let z: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
    let batch = RecordBatch::try_from_iter([("x", x), ("z", z)]).unwrap();
    let check = |text: &str, expected: [bool; 6]| {
        let found = Expression::parse(text).unwrap().bind(&batch.schema()).unwrap().evaluate(&batch).unwrap();
        assert_eq!(found.values().iter().collect::<Vec<_>>(), expected, "{text}");
    };
    check("near((x), (0.5), 1, cell(10))", [true, true, true, false, true, true]);
    check("near((x), (0.5), 1.0)", [false, true, true, false, false, false]);
    check("near((x), (0.5), 1.0, cell(inf))", [false, true, true, false, false, false]);
    check("near((x, z), (0.5, 10), 1.0, cell(10, 10, 0))", [true, true, true, false, true, true]);
    // The upper edge leans by 3: the image of a row one cell up lies 3 to its right.
    check("near((x, z), (3.5, 10), 1.0, cell(inf, 10, 0))", [false; 6]);
    check("near((x, z), (3.5, 10), 1.0, cell(100, 10, 3))", [false, true, true, false, false, false]);
    check("not near((x), (0.5), 1, cell(10)) and x > 0", [false, false, false, true, false, false]);
}

#[test]
fn a_vector_has_a_place_by_its_elements() {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let elements = Float32Array::from(vec![Some(1.0), Some(1.0), Some(1.0), None, Some(1.0), Some(1.0)]);
    let list: ArrayRef = Arc::new(FixedSizeListArray::new(item, 3, Arc::new(elements), None));
    let batch = RecordBatch::try_from_iter([("pos", list)]).unwrap();
    let expression = Expression::parse("near(pos, (1, 1, 0), 1)").unwrap();
    assert_eq!(expression.to_string(), "near(pos, (1.0, 1.0, 0.0), 1.0)");
    let bound = expression.bind(&batch.schema()).unwrap();
    assert_eq!(bound.columns(), ["pos"]);
    let found = bound.evaluate(&batch).unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), [Some(true), None]);
    let short = Expression::parse("near(pos, (1, 1), 1)").unwrap().bind(&batch.schema()).unwrap_err();
    assert!(short.to_string().contains("as many numbers"), "{short}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |text: &str| Expression::parse(text).unwrap_err().to_string();
    assert!(refused("near((x, y), (1, 2, 3), 1)").contains("as many coordinates"));
    assert!(refused("near((x), (1), -1)").contains("0 or more"));
    assert!(refused("near((x), (nan), 1)").contains("numbers of a point must be finite"));
    assert!(refused("near((x), (1), 1, cell(0))").contains("above 0"));
    assert!(refused("near((x, y), (1, 2), 1, cell(1, 2, 3, 4))").contains("tilt"));
    assert!(refused("near((x, y), (1, 2), 1, cell(1, inf, 1))").contains("cannot have a tilt"));
    assert!(refused("near((x), (1), 100, cell(1))").contains("32 cells"));
    assert!(refused("near((x), (1), 1, box(1))").contains("a cell such as"));
    assert!(refused("near((x), (1)").contains("radius"));
}

#[test]
fn a_radius_whose_square_is_no_number_is_refused() {
    let of = |radius: f64| Near::new(vec![Column::named("x")], &[0.0], radius, None);
    assert!(of(1e153).is_ok());
    for radius in [1.4e154, 1e300, f64::MAX] {
        assert!(of(radius).unwrap_err().contains("1e154"), "{radius}");
    }
    let parsed = |radius: &str| Expression::parse(&format!("near((x, y), (0.0, 0.0), {radius})"));
    assert!(parsed("1e100").is_ok() && parsed("1e200").is_err());
}

#[test]
fn rows_whose_squared_distance_is_rounded_to_zero_are_not_left_out_by_their_range() {
    let places = [0.0, 1e-165, -1e-163, 1e-100];
    let x: ArrayRef = Arc::new(Float64Array::from(places.to_vec()));
    let batch = RecordBatch::try_from_iter([("x", x)]).unwrap();
    for radius in [0.0, 1e-170, 1e-163] {
        let near = Near::new(vec![Column::named("x")], &[0.0], radius, None).unwrap();
        let bound = Expression::Near(Box::new(near)).bind(&batch.schema()).unwrap();
        let found = bound.evaluate(&batch).unwrap();
        assert_eq!(found.values().iter().collect::<Vec<_>>(), [true, true, true, false], "{radius:e}");
        let super::super::Values::Floats { low, high } = bound.ranges(&Column::named("x")).values else {
            panic!("radius {radius:e} gives no range");
        };
        assert!(
            places[..3].iter().all(|place| low <= *place && *place <= high),
            "{radius:e}: {low:e} to {high:e}"
        );
    }
}
