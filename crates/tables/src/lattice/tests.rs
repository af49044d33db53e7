//! Tests of what the lattice promises, on random values of every type.

use super::*;
use crate::seeds::for_seeds;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Float16Array, Int8Array, PrimitiveArray, StringArray};
use arrow_schema::TimeUnit;
use fastrand::Rng;
use std::sync::Arc;

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
const TYPES: [DataType; 6] =
    [DataType::Int32, DataType::Int64, DataType::UInt64, DataType::Float32, DataType::Float64, TIMESTAMP];

/// A column of these values, which must be of the type's own kind.
fn column(data_type: &DataType, values: &[Option<Scalar>]) -> ArrayRef {
    let signed = |value: Scalar| if let Scalar::Signed(value) = value { value } else { panic!("{value}") };
    let unsigned =
        |value: Scalar| if let Scalar::Unsigned(value) = value { value } else { panic!("{value}") };
    let float = |value: Scalar| if let Scalar::Float(value) = value { value } else { panic!("{value}") };
    let values = values.iter().copied();
    match data_type {
        DataType::Int32 => {
            let narrow = |value| signed(value) as i32;
            Arc::new(values.map(|value| value.map(narrow)).collect::<PrimitiveArray<Int32Type>>())
        }
        DataType::Int64 => {
            Arc::new(values.map(|value| value.map(signed)).collect::<PrimitiveArray<Int64Type>>())
        }
        DataType::UInt64 => {
            Arc::new(values.map(|value| value.map(unsigned)).collect::<PrimitiveArray<UInt64Type>>())
        }
        DataType::Float32 => {
            let narrow = |value| float(value) as f32;
            Arc::new(values.map(|value| value.map(narrow)).collect::<PrimitiveArray<Float32Type>>())
        }
        DataType::Float64 => {
            Arc::new(values.map(|value| value.map(float)).collect::<PrimitiveArray<Float64Type>>())
        }
        _ => Arc::new(
            values.map(|value| value.map(signed)).collect::<PrimitiveArray<TimestampNanosecondType>>(),
        ),
    }
}

/// A finite value of this type: often an extreme, small, or next to another value.
fn finite(data_type: &DataType, random: &mut Rng) -> Scalar {
    let special = random.u8(..8);
    match data_type {
        DataType::Int32 if special == 0 => {
            Scalar::Signed(random.choice([i32::MIN, i32::MAX, 0]).unwrap_or(0).into())
        }
        DataType::Int32 if special < 4 => Scalar::Signed(random.i64(-20..20)),
        DataType::Int32 => Scalar::Signed(random.i32(..).into()),
        DataType::UInt64 if special == 0 => {
            Scalar::Unsigned(random.choice([0, u64::MAX, 1 << 63]).unwrap_or(0))
        }
        DataType::UInt64 if special < 4 => Scalar::Unsigned(random.u64(..40)),
        DataType::UInt64 => Scalar::Unsigned(random.u64(..)),
        DataType::Float32 => Scalar::Float(float32(special, random).into()),
        DataType::Float64 => Scalar::Float(float64(special, random)),
        _ if special == 0 => Scalar::Signed(random.choice([i64::MIN, i64::MAX, 0]).unwrap_or(0)),
        // Neighbours that `f64` cannot distinguish.
        _ if special == 1 => Scalar::Signed((1 << 53) + random.i64(-3..3)),
        _ if special < 4 => Scalar::Signed(random.i64(-20..20)),
        _ => Scalar::Signed(random.i64(..)),
    }
}

fn float32(special: u8, random: &mut Rng) -> f32 {
    match special {
        0 => random.choice([f32::MIN, f32::MAX, 0.0, -0.0, f32::MIN_POSITIVE]).unwrap_or(0.0),
        1 => f32::from_bits(random.u32(..1 << 23)) * random.choice([1.0, -1.0]).unwrap_or(1.0),
        2..5 => random.f32().mul_add(4.0, -2.0),
        5 => random.i8(-20..20).into(),
        _ => Some(f32::from_bits(random.u32(..))).filter(|value| value.is_finite()).unwrap_or(1.0),
    }
}

fn float64(special: u8, random: &mut Rng) -> f64 {
    match special {
        0 => random.choice([f64::MIN, f64::MAX, 0.0, -0.0, f64::MIN_POSITIVE, -5e-324]).unwrap_or(0.0),
        1 => f64::from_bits(random.u64(..1 << 52)) * random.choice([1.0, -1.0]).unwrap_or(1.0),
        2..5 => random.f64().mul_add(4.0, -2.0),
        5 => random.i8(-20..20).into(),
        _ => Some(f64::from_bits(random.u64(..))).filter(|value| value.is_finite()).unwrap_or(1.0),
    }
}

/// Any value of this type, null and NaN included.
fn any(data_type: &DataType, random: &mut Rng) -> Option<Scalar> {
    let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
    match random.u8(..16) {
        0 => None,
        1 if is_float => Some(Scalar::Float(f64::NAN)),
        2 if is_float => {
            Some(Scalar::Float(random.choice([f64::INFINITY, f64::NEG_INFINITY]).unwrap_or(0.0)))
        }
        _ => Some(finite(data_type, random)),
    }
}

fn any_axis(data_type: &DataType, random: &mut Rng) -> Axis {
    let values: Vec<_> = (0..random.usize(..4)).map(|_| Some(finite(data_type, random))).collect();
    Axis::new(data_type, &Extent::of(&column(data_type, &values)).unwrap()).unwrap()
}

/// A bound of any kind, often exactly a value of the column.
fn any_bound(data_type: &DataType, values: &[Option<Scalar>], random: &mut Rng) -> Option<Scalar> {
    match random.u8(..8) {
        0..2 => None,
        2 => Some(finite(&TYPES[random.usize(..TYPES.len())], random)),
        3 => Some(Scalar::Float(random.choice([f64::INFINITY, f64::NEG_INFINITY, 0.5]).unwrap_or(0.5))),
        4 => Some(finite(data_type, random)),
        _ => random.choice(values).copied().flatten().filter(|value| !value.is_nan()),
    }
}

fn any_interval(data_type: &DataType, values: &[Option<Scalar>], random: &mut Rng) -> Interval<Scalar> {
    let (low, high) = (any_bound(data_type, values, random), any_bound(data_type, values, random));
    match (low, high) {
        (Some(low), Some(high)) if low > high => Interval { low: Some(high), high: Some(low) },
        (low, high) => Interval { low, high },
    }
}

#[test]
fn coordinates_rise_with_the_values() {
    for_seeds("coordinates_rise_with_the_values", 400, |random| {
        for data_type in &TYPES {
            let axis = any_axis(data_type, random);
            let mut values: Vec<Scalar> = (0..200).map(|_| finite(data_type, random)).collect();
            values.sort_by(|left, right| left.partial_cmp(right).unwrap());
            let placed =
                axis.coordinates(&column(data_type, &values.iter().copied().map(Some).collect::<Vec<_>>()));
            let placed = placed.unwrap();
            assert!(placed.missing().is_empty());
            for (row, pair) in values.windows(2).enumerate() {
                assert!(placed.at(row) <= placed.at(row + 1), "{axis:?}: {pair:?}");
                assert_eq!(placed.at(row), axis.coordinate(pair[0]), "{axis:?}: {}", pair[0]);
            }
        }
    });
}

#[test]
fn coordinates_rise_across_kinds() {
    for_seeds("coordinates_rise_across_kinds", 2_000, |random| {
        let data_type = &TYPES[random.usize(..TYPES.len())];
        let axis = any_axis(data_type, random);
        let (one, other) = (finite(&DataType::Int64, random), finite(&DataType::Float64, random));
        let (low, high) = if one <= other { (one, other) } else { (other, one) };
        assert!(axis.coordinate(low) <= axis.coordinate(high), "{axis:?}: {low} {high}");
    });
}

#[test]
fn neighbouring_integers_have_neighbouring_cells() {
    for data_type in [DataType::Int64, TIMESTAMP] {
        let axis = Axis::new(&data_type, &Extent::default()).unwrap();
        for value in [i64::MIN, -1, 0, 1 << 53, 1_699_920_000_123_456_789, i64::MAX - 1] {
            let at = |value| axis.coordinate(Scalar::Signed(value)).unwrap().0;
            assert_eq!(at(value + 1), at(value) + 1, "{value}");
        }
        assert_eq!(axis.coordinate(Scalar::Signed(i64::MIN)), Some(Coordinate(0)));
        assert_eq!(axis.coordinate(Scalar::Signed(i64::MAX)), Some(Coordinate(u64::MAX)));
    }
    let axis = Axis::new(&DataType::UInt64, &Extent::default()).unwrap();
    assert_eq!(axis.coordinate(Scalar::Unsigned(u64::MAX)), Some(Coordinate(u64::MAX)));
    assert_eq!(axis.coordinate(Scalar::Unsigned(0)), Some(Coordinate(0)));
}

#[test]
fn halves_of_a_root_are_halves_of_its_values() {
    let between = |least, greatest| Extent::new(Some((Scalar::Float(least), Scalar::Float(greatest))), false);
    for (low, high) in [
        (0.0, 1.0),
        (-1.0, 1.0),
        (-3.0, 5.0),
        (1e9, 1e9 + 8.0),
        (0.0, f64::from_bits(1 << 14)),
        (-2f64.powi(1022), 0.0),
    ] {
        let extent = between(low, f64::next_down(high));
        let axis = Axis::new(&DataType::Float64, &extent).unwrap();
        let root = axis.root(&extent);
        let middle = axis.coordinate(Scalar::Float(low / 2.0 + high / 2.0)).unwrap();
        assert_eq!(root.half(Side::High).unwrap().low(), middle.0.into(), "{low} {high}");
        assert!(!root.holds(axis.coordinate(Scalar::Float(high)).unwrap()), "{low} {high}");
    }
}

#[test]
fn the_first_root_of_floats_can_be_halved_and_doubled_often() {
    for_seeds("the_first_root_of_floats_can_be_halved_and_doubled_often", 500, |random| {
        let low = random.f64() - 0.5;
        let length = (random.f64() + 1.0) * 2f64.powi(random.i32(-12..300));
        let extent = Extent::new(Some((Scalar::Float(low), Scalar::Float(low + length))), false);
        let axis = Axis::new(&DataType::Float64, &extent).unwrap();
        let bits = axis.root(&extent).bits();
        assert!((31..=34).contains(&bits), "{bits} for {low} and {length}");
        // Up to eleven doublings beyond the greatest value, nothing is clamped.
        let far = low.abs().max((low + length).abs()) * 1000.0;
        let at = |value| axis.coordinate(Scalar::Float(value)).unwrap();
        assert!(at(far / 2.0) < at(far) && at(-far) < at(-far / 2.0), "{low} and {length}");
    });
}

#[test]
fn growing_a_root_keeps_every_cube_that_there_was() {
    for_seeds("growing_a_root_keeps_every_cube_that_there_was", 300, |random| {
        let data_type = &TYPES[random.usize(..TYPES.len())];
        let values: Vec<_> = (0..20).map(|_| Some(finite(data_type, random))).collect();
        let first = column(data_type, &values[..random.usize(1..4)]);
        let extent = Extent::of(&first).unwrap();
        let axis = Axis::new(data_type, &extent).unwrap();
        let mut root = axis.root(&extent);
        let mut held = axis.coordinates(&first).unwrap().with_gaps().to_vec();
        for coordinate in axis.coordinates(&column(data_type, &values)).unwrap().with_gaps() {
            let before: Vec<_> = held.iter().map(|held| path(root, *held)).collect();
            let (side, times) = root.doublings_to_hold(*coordinate);
            (0..times).for_each(|_| root = root.doubled(side).unwrap());
            for (held, before) in held.iter().zip(before) {
                let after = path(root, *held);
                assert_eq!(after[usize::from(times)..], before, "{held:?} below {root:?}");
            }
            held.push(*coordinate);
        }
    });
}

/// The spans from the root down to the cell of a coordinate.
fn path(root: Span, coordinate: Coordinate) -> Vec<Span> {
    assert!(root.holds(coordinate), "{coordinate:?} is not in {root:?}");
    let below = |span: &Span| span.half(span.side_of(coordinate)?);
    std::iter::successors(Some(root), below).collect()
}

#[test]
fn a_region_never_prunes_a_box_that_holds_a_row_of_it() {
    let (mut pruned, mut covered) = (0, 0);
    for_seeds("a_region_never_prunes_a_box_that_holds_a_row_of_it", 3_000, |random| {
        let types: Vec<_> =
            (0..random.usize(1..4)).map(|_| TYPES[random.usize(..TYPES.len())].clone()).collect();
        let rows = random.usize(..6);
        let values: Vec<Vec<_>> =
            types.iter().map(|of| (0..rows).map(|_| any(of, random)).collect()).collect();
        let intervals =
            types.iter().zip(&values).map(|(of, values)| any_interval(of, values, random)).collect();
        let region = Region::new(intervals).unwrap();
        let columns: Vec<_> = types.iter().zip(&values).map(|(of, values)| column(of, values)).collect();
        let extents: Vec<_> = columns.iter().map(|column| Extent::of(column).unwrap()).collect();
        let matches = region.matches(&columns).unwrap();
        for row in 0..rows {
            let is_inside = |(interval, values): (&Interval<Scalar>, &Vec<Option<Scalar>>)| {
                interval.is_open() || values[row].is_some_and(|value| interval.contains(&value))
            };
            let expected = region.intervals().iter().zip(&values).all(is_inside);
            assert_eq!(matches.value(row), expected, "row {row} of {values:?} in {region:?}");
        }
        assert!(!region.prunes(&extents) || !matches.has_true(), "{region:?} prunes {values:?}");
        assert!(!region.covers(&extents) || !matches.has_false(), "{region:?} covers {values:?}");
        pruned += usize::from(region.prunes(&extents));
        covered += usize::from(region.covers(&extents) && rows > 0);
    });
    let is_one_seed = pruned + covered < 2;
    assert!(is_one_seed || (pruned > 300 && covered > 100), "pruned {pruned}, covered {covered}");
}

#[test]
fn rows_of_a_region_lie_within_its_reach() {
    for_seeds("rows_of_a_region_lie_within_its_reach", 3_000, |random| {
        let data_type = &TYPES[random.usize(..TYPES.len())];
        let values: Vec<_> = (0..6).map(|_| any(data_type, random)).collect();
        let axis = any_axis(data_type, random);
        let interval = any_interval(data_type, &values, random);
        let reach = axis.reach(&interval);
        let placed = axis.coordinates(&column(data_type, &values)).unwrap();
        for (row, value) in values.iter().enumerate() {
            let (Some(value), Some(coordinate)) = (value, placed.at(row)) else { continue };
            if !interval.contains(value) {
                continue;
            }
            assert!(reach.contains(&coordinate), "{axis:?}: {value} in {interval:?}");
            let root = Span::around(coordinate, Coordinate(random.u64(coordinate.0..)));
            assert!(path(root, coordinate).iter().all(|span| span.meets(&reach)), "{value} in {interval:?}");
        }
    });
}

#[test]
fn the_reach_of_an_interval_ends_before_its_upper_bound() {
    let axis = Axis::new(&DataType::Int64, &Extent::default()).unwrap();
    let at = |axis: &Axis, value| axis.coordinate(value).unwrap();
    let one_step = axis.reach(&(Scalar::Signed(5)..Scalar::Signed(6)).into());
    assert_eq!(one_step, at(&axis, Scalar::Signed(5))..=at(&axis, Scalar::Signed(5)));
    let axis = Axis::with_cells(&DataType::Float64, -3).unwrap();
    let reach = axis.reach(&(Scalar::Float(0.0)..Scalar::Float(0.5)).into());
    assert_eq!(reach, at(&axis, Scalar::Float(0.0))..=at(&axis, Scalar::Float(0.49)));
    let reach = axis.reach(&(Scalar::Float(0.0)..Scalar::Float(0.51)).into());
    assert_eq!(*reach.end(), at(&axis, Scalar::Float(0.5)));
    assert!(axis.reach(&(Scalar::Signed(7)..Scalar::Signed(7)).into()).is_empty());
}

#[test]
fn rows_without_a_coordinate_are_named_with_the_reason() {
    let values =
        [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2.0].map(|value| Some(Scalar::Float(value)));
    let mut values = values.to_vec();
    values.push(None);
    for data_type in [DataType::Float64, DataType::Float32] {
        let axis = Axis::new(&data_type, &Extent::default()).unwrap();
        let placed = axis.coordinates(&column(&data_type, &values)).unwrap();
        let expected =
            [(1, Missing::NotANumber), (2, Missing::Infinite), (3, Missing::Infinite), (5, Missing::Null)];
        assert_eq!(placed.missing(), expected);
        assert_eq!(placed.at(1), None);
        assert!(placed.at(0) < placed.at(4));
        assert_eq!((placed.rows(), placed.at(6)), (6, None));
    }
    let integers = column(&DataType::Int64, &[Some(Scalar::Signed(7)), None]);
    let axis = Axis::new(&DataType::Int64, &Extent::default()).unwrap();
    assert_eq!(axis.coordinates(&integers).unwrap().missing(), [(1, Missing::Null)]);
}

#[test]
fn a_slice_of_a_column_is_placed_like_the_column() {
    for_seeds("a_slice_of_a_column_is_placed_like_the_column", 100, |random| {
        for data_type in &TYPES {
            let values: Vec<_> = (0..40).map(|_| any(data_type, random)).collect();
            let axis = any_axis(data_type, random);
            let (offset, rows) = (random.usize(..20), random.usize(..20));
            let sliced = axis.coordinates(&column(data_type, &values).slice(offset, rows)).unwrap();
            let direct = axis.coordinates(&column(data_type, &values[offset..offset + rows])).unwrap();
            let all = |placed: &Coordinates| (0..rows).map(|row| placed.at(row)).collect::<Vec<_>>();
            assert_eq!((all(&sliced), sliced.missing()), (all(&direct), direct.missing()));
        }
    });
}

#[test]
fn narrow_columns_are_placed_by_their_values() {
    let bytes: ArrayRef = Arc::new(Int8Array::from(vec![-128, 127]));
    let axis = Axis::new(bytes.data_type(), &Extent::default()).unwrap();
    assert_eq!(axis.coordinates(&bytes).unwrap().at(0), axis.coordinate(Scalar::Signed(-128)));
    assert_eq!(axis.coordinates(&bytes).unwrap().at(1), axis.coordinate(Scalar::Signed(127)));
    let halves: ArrayRef = Arc::new(Float16Array::from_iter_values([0.5, -2.0].map(half)));
    let axis = Axis::new(halves.data_type(), &Extent::of(&halves).unwrap()).unwrap();
    assert_eq!(axis.coordinates(&halves).unwrap().at(0), axis.coordinate(Scalar::Float(0.5)));
    assert_eq!(axis.coordinates(&halves).unwrap().at(1), axis.coordinate(Scalar::Float(-2.0)));
}

/// A half-precision float, whose type has no name here.
fn half<T: From<u8> + std::ops::Neg<Output = T> + std::ops::Div<Output = T>>(value: f32) -> T {
    let numerator = T::from((value.abs() * 2.0) as u8);
    let magnitude = numerator / T::from(2);
    if value < 0.0 { -magnitude } else { magnitude }
}

#[test]
fn intervals_are_half_open_and_compare_exactly() {
    let integers = column(&DataType::Int64, &[1, 7, 8].map(|value| Some(Scalar::Signed(value))));
    let matches = |interval: Interval<Scalar>, column: &ArrayRef| {
        let found = Region::new(vec![interval]).unwrap().matches(&[Arc::clone(column)]).unwrap();
        found.set_indices().collect::<Vec<_>>()
    };
    assert_eq!(matches((Scalar::Signed(1)..Scalar::Signed(8)).into(), &integers), [0, 1]);
    assert_eq!(matches((Scalar::Float(0.5)..Scalar::Float(7.5)).into(), &integers), [0, 1]);
    assert_eq!(matches((Scalar::Signed(7)..).into(), &integers), [1, 2]);
    assert_eq!(matches((..Scalar::Signed(7)).into(), &integers), [0]);
    assert_eq!(matches((Scalar::Signed(7)..Scalar::Signed(7)).into(), &integers), [0; 0]);
    let past = (1_i64 << 53) + 1;
    let floats =
        column(&DataType::Float64, &[past - 1, past + 1].map(|value| Some(Scalar::Float(value as f64))));
    assert_eq!(matches((Scalar::Signed(past)..).into(), &floats), [1]);
    assert_eq!(matches((..Scalar::Signed(past)).into(), &floats), [0]);
    let nanoseconds =
        column(&DataType::Int64, &[past - 1, past, past + 1].map(|value| Some(Scalar::Signed(value))));
    assert_eq!(matches((Scalar::Signed(past)..Scalar::Signed(past + 1)).into(), &nanoseconds), [1]);
}

#[test]
fn an_open_interval_asks_for_nothing_and_any_other_for_a_number() {
    let floats = [f64::NAN, f64::INFINITY, 1.0].map(|value| Some(Scalar::Float(value)));
    let column = column(&DataType::Float64, &[&floats[..], &[None]].concat());
    let extent = Extent::of(&column).unwrap();
    let everything = Region::everything(1);
    assert_eq!(everything.matches(&[Arc::clone(&column)]).unwrap().count_set_bits(), 4);
    assert!(everything.covers(&[extent]) && !everything.prunes(&[extent]));
    let positive = Region::new(vec![(Scalar::Signed(0)..).into()]).unwrap();
    assert_eq!(positive.matches(&[column]).unwrap().set_indices().collect::<Vec<_>>(), [1, 2]);
    assert!(!positive.covers(&[extent]) && !positive.prunes(&[extent]));
    let incomparable = Extent::new(None, true);
    assert!(positive.prunes(&[incomparable]) && !positive.covers(&[incomparable]));
}

#[test]
fn boxes_beside_a_region_are_pruned_and_boxes_inside_are_covered() {
    let extent =
        |least, greatest| [Extent::new(Some((Scalar::Signed(least), Scalar::Signed(greatest))), false)];
    let region = Region::new(vec![(Scalar::Signed(10)..Scalar::Signed(20)).into()]).unwrap();
    assert!(region.prunes(&extent(5, 9)) && region.prunes(&extent(20, 30)));
    assert!(!region.prunes(&extent(5, 10)) && !region.prunes(&extent(19, 30)));
    assert!(region.covers(&extent(10, 19)));
    assert!(!region.covers(&extent(9, 19)) && !region.covers(&extent(10, 20)));
    let nothing = Region::new(vec![(Scalar::Signed(15)..Scalar::Signed(15)).into()]).unwrap();
    assert!(nothing.prunes(&extent(10, 20)));
    assert!(!region.prunes(&[]) && !region.covers(&[]), "nothing is known of the column");
}

/// Extents of columns are computed from scalars, one at a time; those of bytes must be equal.
#[test]
fn the_extent_of_bytes_is_that_of_the_column_they_are_of() {
    let narrow: [ArrayRef; 4] = [
        Arc::new(Int8Array::from(vec![3, -128, 127, 0])),
        Arc::new(arrow_array::UInt16Array::from(vec![u16::MAX, 1, 40_000])),
        Arc::new(arrow_array::Float32Array::from(vec![f32::NAN; 3])),
        Arc::new(arrow_array::Float32Array::from(vec![f32::INFINITY, f32::INFINITY])),
    ];
    for_seeds("the_extent_of_bytes_is_that_of_the_column_they_are_of", 200, |random| {
        for data_type in &TYPES {
            let count = random.usize(1..40);
            let values: Vec<_> =
                std::iter::repeat_with(|| any(data_type, random)).flatten().take(count).map(Some).collect();
            assert_same_extent(&column(data_type, &values));
        }
    });
    narrow.iter().for_each(assert_same_extent);
    // A half-precision float must be widened first.
    assert_eq!(Extent::of_bytes(&DataType::Float16, &[0, 0]), None);
}

#[track_caller]
fn assert_same_extent(column: &ArrayRef) {
    let parts = column.to_data();
    let bytes = parts.buffers()[0].as_slice();
    assert_eq!(Extent::of_bytes(column.data_type(), bytes), Some(Extent::of(column).unwrap()), "{column:?}");
}

#[test]
fn joined_extents_are_the_extent_of_all_rows() {
    for_seeds("joined_extents_are_the_extent_of_all_rows", 300, |random| {
        for data_type in &TYPES {
            let values: Vec<_> = (0..random.usize(..8)).map(|_| any(data_type, random)).collect();
            let (left, right) = values.split_at(random.usize(..=values.len()));
            let extent = |values: &[_]| Extent::of(&column(data_type, values)).unwrap();
            assert_eq!(extent(left).joined(&extent(right)), extent(&values), "{left:?} {right:?}");
        }
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let number = column(&DataType::Int64, &[Some(Scalar::Signed(1))]);
    let two = column(&DataType::Int64, &[None, None]);
    let axis = Axis::new(&DataType::Int64, &Extent::default()).unwrap();
    assert!(matches!(Axis::new(&DataType::Utf8, &Extent::default()), Err(LatticeError::NotIndexable { .. })));
    assert!(matches!(Extent::of(&text), Err(LatticeError::NotIndexable { .. })));
    assert!(matches!(axis.coordinates(&text), Err(LatticeError::OtherType { .. })));
    let infinite = Extent::new(Some((Scalar::Float(0.0), Scalar::Float(f64::INFINITY))), false);
    assert!(matches!(Axis::new(&DataType::Float64, &infinite), Err(LatticeError::Unbounded { .. })));
    let region = Region::new(vec![(Scalar::Signed(0)..).into(); 2]).unwrap();
    assert!(matches!(
        region.matches(std::slice::from_ref(&number)),
        Err(LatticeError::Columns { intervals: 2, columns: 1 })
    ));
    assert!(matches!(
        region.matches(&[number, two]),
        Err(LatticeError::Rows { column: 1, rows: 2, expected: 1 })
    ));
    let inside_out = Region::new(vec![Interval::default(), (Scalar::Signed(2)..Scalar::Float(1.5)).into()]);
    assert!(matches!(inside_out, Err(LatticeError::InsideOut { column: 1, .. })));
    let nan = Region::new(vec![(Scalar::Float(f64::NAN)..).into()]);
    assert!(matches!(nan, Err(LatticeError::BoundNotANumber { column: 0 })));
}
