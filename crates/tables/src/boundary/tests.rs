//! Tests boxes across a boundary against brute-force enumeration of images, for random cells and positions.

use super::*;
use crate::expression::parse_box;
use crate::seeds::for_seeds;
use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use fastrand::Rng;
use std::sync::Arc;

fn boundary(lengths: &[f64], tilts: &[f64], low: &[f64]) -> Boundary {
    let axes: Vec<String> = ["x", "y", "z"].iter().map(|axis| (*axis).to_owned()).collect();
    Boundary::new(&axes[..lengths.len()], low, Cell::new(lengths, tilts).unwrap()).unwrap()
}

fn evaluate(expression: &Expression, columns: &[(&str, Vec<f64>)]) -> Vec<bool> {
    let arrays = columns
        .iter()
        .map(|(name, values)| (*name, Arc::new(Float64Array::from(values.clone())) as ArrayRef));
    let batch = RecordBatch::try_from_iter(arrays).unwrap();
    let text = expression.to_string();
    let bound = Expression::parse(&text).unwrap().bind(&batch.schema()).unwrap();
    bound.evaluate(&batch).unwrap().values().iter().collect()
}

#[test]
fn a_box_that_crosses_the_boundary_is_the_union_of_its_pieces_half_open() {
    let sides = parse_box("x=9:11").unwrap();
    let wrapped = boundary(&[10.0], &[], &[]).wrapped(&sides).unwrap().unwrap();
    let x = vec![8.9, 9.0, 9.999, 10.0, 11.0, 0.0, 0.999, 1.0, -1.0, -0.001];
    let expected = [false, true, true, true, false, true, true, false, true, true];
    assert_eq!(evaluate(&wrapped, &[("x", x)]), expected, "{wrapped}");
}

#[test]
fn open_ends_and_other_columns_are_as_they_are() {
    let cell = boundary(&[10.0, f64::INFINITY], &[], &[]);
    let sides = parse_box("x=9:, y=9:11, step=3:4").unwrap();
    let plain = sides.iter().filter_map(Side::condition).collect::<Vec<_>>();
    let wrapped = cell.wrapped(&sides).unwrap().unwrap();
    for part in plain {
        assert!(wrapped.to_string().contains(&part.to_string()), "{wrapped}");
    }
    assert_eq!(cell.wrapped(&[]).unwrap(), None);
    let far = parse_box("x=0:1000").unwrap();
    assert!(cell.wrapped(&far).unwrap_err().to_string().contains("too many cells along x"));
}

#[test]
fn a_range_inside_out_is_refused_and_no_condition_that_all_rows_meet() {
    // With its ends this close, the reversed side would still have images; with ends this far apart it has
    // none.
    for high in [99.0, 0.0] {
        let side = Side {
            column: Column::named("x"),
            low: Some(Literal::Integer(100)),
            high: Some(Literal::Float(high)),
        };
        let refused = boundary(&[10.0], &[], &[]).wrapped(&[side]).unwrap_err();
        assert!(refused.to_string().contains("ends before it begins"), "{refused}");
    }
}

/// Whether some image of a position lies in a box; only axes with a side are shifted.
fn brute(place: [f64; 3], ends: &[Option<(f64, f64)>; 3], cell: &Cell, axes: usize) -> bool {
    let counts = |axis: usize| {
        let repeats = axis < axes && cell.lengths()[axis].is_finite() && ends[axis].is_some();
        if repeats { -12..=12 } else { 0..=0 }
    };
    let length = |axis: usize| cell.lengths().get(axis).copied().filter(|l| l.is_finite()).unwrap_or(0.0);
    let within = |axis: usize, value: f64| ends[axis].is_none_or(|(low, high)| low <= value && value < high);
    counts(2).map(f64::from).any(|k| {
        counts(1).map(f64::from).any(|j| {
            counts(0).map(f64::from).any(|i| {
                let z = place[2] - k * length(2);
                let y = place[1] - k * cell.tilt(1, 2) - j * length(1);
                let x = place[0] - k * cell.tilt(0, 2) - j * cell.tilt(0, 1) - i * length(0);
                within(0, x) && within(1, y) && within(2, z)
            })
        })
    })
}

fn some_place(random: &mut Rng, cell: &Cell, low: &[f64]) -> [f64; 3] {
    let parts: Vec<f64> = (0..low.len()).map(|_| random.f64()).collect();
    let mut place = [0.0; 3];
    for axis in 0..low.len() {
        let length = Some(cell.lengths()[axis]).filter(|length| length.is_finite()).unwrap_or(10.0);
        let tilts = (axis + 1..low.len()).map(|of| parts[of] * cell.tilt(axis, of)).sum::<f64>();
        place[axis] = low[axis] + parts[axis] * length + tilts;
    }
    place
}

#[test]
fn boxes_in_random_cells_hold_what_some_image_of_them_holds() {
    let mut inside = 0;
    for_seeds("boxes_in_random_cells_hold", 80, |random| {
        let axes = random.usize(1..4);
        let lengths: Vec<f64> = (0..axes)
            .map(|_| if random.u8(..6) == 0 { f64::INFINITY } else { 3.0 + 6.0 * random.f64() })
            .collect();
        let mut tilts = Vec::new();
        let leans = random.bool();
        for (of, length) in lengths.iter().enumerate().skip(1) {
            let reach = if leans && length.is_finite() { 1.5 } else { 0.0 };
            tilts.extend((0..of).map(|_| (random.f64() * 2.0 - 1.0) * reach));
        }
        let low: Vec<f64> = (0..axes).map(|_| random.f64() * 8.0 - 4.0).collect();
        let boundary = boundary(&lengths, &tilts, &low);
        // In a leaning cell every axis gets a side: an axis without one is not shifted, and a shift along it
        // would move the others.
        let ends: [Option<(f64, f64)>; 3] = std::array::from_fn(|axis| {
            let from = low.get(axis)? + random.f64() * 16.0 - 6.0;
            (leans || random.u8(..4) > 0).then(|| (from, from + random.f64() * 5.0))
        });
        let side =
            |axis: usize, (low, high): (f64, f64)| format!("{}={low:?}:{high:?}", ["x", "y", "z"][axis]);
        let texts: Vec<String> = (0..3).filter_map(|axis| ends[axis].map(|ends| side(axis, ends))).collect();
        if texts.is_empty() {
            return;
        }
        let wrapped = boundary.wrapped(&parse_box(&texts.join(", ")).unwrap()).unwrap().unwrap();
        let places: Vec<[f64; 3]> = (0..200).map(|_| some_place(random, boundary.cell(), &low)).collect();
        let column = |axis: usize| places.iter().map(|place| place[axis]).collect::<Vec<_>>();
        let found = evaluate(&wrapped, &[("x", column(0)), ("y", column(1)), ("z", column(2))]);
        for (place, found) in places.into_iter().zip(found) {
            let expected = brute(place, &ends, boundary.cell(), axes);
            assert_eq!(found, expected, "{place:?} of {wrapped}");
            inside += usize::from(expected);
        }
    });
    assert!(inside > 500, "{inside}");
}

#[test]
fn an_axis_is_a_column_of_whatever_name() {
    let axes = ["x (nm)", "in", "x-1"].map(str::to_owned);
    let boundary = Boundary::new(&axes, &[], Cell::new(&[1.0, 2.0, 3.0], &[]).unwrap()).unwrap();
    let names: Vec<&str> = boundary.axes().iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, axes);
    assert_eq!(Boundary::from_json(&boundary.to_json()).unwrap(), boundary);
    let columns = [("x (nm)", vec![0.9, 0.5]), ("in", vec![0.0, 0.0]), ("x-1", vec![0.0, 0.0])];
    let near = boundary.near(&[0.0, 0.0, 0.0], 0.2).unwrap();
    assert_eq!(evaluate(&near, &columns), [true, false], "{near}");
    let wrapped = boundary.wrapped(&parse_box("\"x (nm)\"=0.8:1.1").unwrap()).unwrap().unwrap();
    assert_eq!(evaluate(&wrapped, &columns), [true, false], "{wrapped}");
    // The quoted form, as the grammar writes it, gives the same column.
    let quoted = Boundary::new(&["\"x (nm)\"".to_owned()], &[], Cell::new(&[1.0], &[]).unwrap()).unwrap();
    assert_eq!(quoted.axes()[0].name, "x (nm)");
    let columns = Schema::new(vec![crate::column("x", arrow_schema::DataType::Float64, false)]);
    assert!(quoted.check(&columns).unwrap_err().to_string().contains("x (nm)"));
}

#[test]
fn a_boundary_comes_back_from_its_attribute_and_what_is_none_is_refused() {
    for boundary in [
        boundary(&[10.0, f64::INFINITY], &[], &[1.0, -2.0]),
        boundary(&[10.0, 9.0, 8.0], &[1.0, 0.0, -2.5], &[]),
    ] {
        assert_eq!(Boundary::from_json(&boundary.to_json()).unwrap(), boundary);
    }
    let vectors = Boundary::new(&["pos".to_owned()], &[], Cell::new(&[1.0, 2.0], &[]).unwrap()).unwrap();
    assert_eq!(vectors.axes()[1].to_string(), "pos[1]");
    assert_eq!(
        vectors.near(&[0.5, 0.5], 0.25).unwrap().to_string(),
        "near((pos[0], pos[1]), (0.5, 0.5), 0.25, cell(1.0, 2.0))"
    );
    for text in [
        r#"{"axes":["x","y","z"],"lengths":[1,2]}"#,
        r#"{"axes":[],"lengths":[1]}"#,
        r#"{"axes":["x", "y"],"lengths":[1]}"#,
        r#"{"lengths":[1]}"#,
    ] {
        assert!(Boundary::from_json(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
    }
    for none in [r#"{"axes":["x"]}"#, "3", r#""cube""#] {
        let told = Boundary::from_json(&serde_json::from_str(none).unwrap()).unwrap_err().to_string();
        assert!(
            told.starts_with("the attribute \"cell\" must be a periodic cell, such as {\"axes\""),
            "{told}"
        );
        assert_eq!(told.matches("{\"axes\"").count(), 1, "{told}");
    }
}
