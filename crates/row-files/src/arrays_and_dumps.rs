//! NumPy arrays and LAMMPS dumps are read back as the rows that were written, or refused as a whole.

#![allow(clippy::unwrap_used)]

use crate::{
    AxisBounds, Format, Input, PartLimits, ReadOptions, RowFileError, SnapshotBox, SnapshotBoxes,
    WriteOptions, open, writer,
};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, DurationMillisecondArray, FixedSizeListArray, Float32Array,
    Float64Array, Int8Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt16Array, UInt64Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use std::sync::Arc;
use tempfile::TempDir;

fn batch(columns: Vec<(&str, ArrayRef, bool)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn vectors(values: ArrayRef, len: i32, valid: Option<Vec<bool>>) -> ArrayRef {
    let item = Arc::new(Field::new("item", values.data_type().clone(), false));
    Arc::new(FixedSizeListArray::try_new(item, len, values, valid.map(NullBuffer::from)).unwrap())
}

/// Rows of every type that an array holds.
fn numbers(rows: usize) -> RecordBatch {
    let count = rows as i64;
    let doubles = (0..count).map(|row| match row % 4 {
        0 => f64::NEG_INFINITY,
        1 => -0.0,
        _ => row as f64 / 7.0,
    });
    let floats: Vec<f32> = (0..3 * count).map(|value| value as f32 / 8.0).collect();
    let rows_of = |shown: fn(i64) -> i64| (0..count).map(move |row| (row % 5 > 0).then_some(shown(row)));
    batch(vec![
        ("step", Arc::new(Int64Array::from_iter_values((0..count).map(|row| row % 3 - 1))), false),
        ("pid", Arc::new(UInt64Array::from_iter_values((0..count).map(|row| u64::MAX - row as u64))), false),
        ("it's", Arc::new(UInt16Array::from_iter_values((0..count).map(|row| row as u16))), true),
        ("i", Arc::new(Int8Array::from_iter_values((0..count).map(|row| row as i8))), false),
        ("x", Arc::new(Float64Array::from_iter_values(doubles)), false),
        ("pos", vectors(Arc::new(Float32Array::from(floats)), 3, None), false),
        ("ok", Arc::new((0..count).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>()), false),
        (
            "day",
            Arc::new(Date32Array::from_iter(rows_of(|row| row).map(|day| day.map(|day| day as i32)))),
            true,
        ),
        ("t", Arc::new(TimestampMicrosecondArray::from_iter(rows_of(|row| -row)).with_timezone("UTC")), true),
        ("n", Arc::new(TimestampNanosecondArray::from_iter(rows_of(|row| row << 40))), true),
        ("d", Arc::new(DurationMillisecondArray::from_iter(rows_of(|row| row * 1000))), true),
    ])
}

/// Writes rows in pieces.
fn write(
    rows: &RecordBatch,
    format: Format,
    pieces: usize,
    boxes: SnapshotBoxes,
) -> Result<(TempDir, std::path::PathBuf), RowFileError> {
    let place = TempDir::new().unwrap();
    let path = place.path().join("file");
    let target = Box::new(std::fs::File::create(&path).unwrap());
    let options = WriteOptions { scratch: place.path().to_owned(), boxes, ..WriteOptions::from("file") };
    let mut writer = writer(format, &rows.schema(), target, options)?;
    for from in (0..rows.num_rows()).step_by(pieces) {
        writer.write(&rows.slice(from, pieces.min(rows.num_rows() - from)))?;
    }
    writer.finish()?;
    let left: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"], "a temporary file is left");
    Ok((place, path))
}

fn read(path: &std::path::Path, format: Format, rows: &RecordBatch) -> RecordBatch {
    let input = Input::File(path.to_owned());
    let mut reader = open(&input, format, &rows.schema(), &ReadOptions::default()).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = reader.next(PartLimits { rows: 100_000, bytes: 1 << 24 }).unwrap() {
        parts.push(part.rows);
    }
    arrow_select::concat::concat_batches(&rows.schema(), &parts).unwrap()
}

#[test]
fn arrays_of_all_types_come_back_whatever_the_pieces_and_the_chunks() {
    // A chunk holds 14,563 of these rows: there is none, a part of one, or two and a part of the next.
    for (count, pieces) in [(0, 1), (1, 1), (10, 3), (40_000, 999), (40_000, 40_000)] {
        let rows = numbers(count);
        for format in [Format::Npy, Format::Npz] {
            let (_place, path) = write(&rows, format, pieces, SnapshotBoxes::default()).unwrap();
            assert_eq!(read(&path, format, &rows), rows, "{format} of {count} rows by {pieces}");
        }
    }
}

#[test]
fn a_chunk_that_is_exactly_full_is_neither_lost_nor_doubled() {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3 << 17));
    let rows = batch(vec![("a", column, false)]);
    for format in [Format::Npy, Format::Npz] {
        let (_place, path) = write(&rows, format, 1 << 17, SnapshotBoxes::default()).unwrap();
        assert_eq!(read(&path, format, &rows), rows, "{format}");
    }
}

#[test]
fn a_slice_of_vectors_writes_only_its_own() {
    let rows = numbers(100);
    let slice = rows.slice(37, 20);
    for format in [Format::Npy, Format::Npz] {
        let (_place, path) = write(&slice, format, 7, SnapshotBoxes::default()).unwrap();
        assert_eq!(read(&path, format, &rows), slice, "{format}");
    }
}

#[test]
fn a_value_that_an_array_cannot_hold_is_an_error_with_its_column_and_row() {
    let columns: [(&str, ArrayRef); 4] = [
        ("column \"a\" has no value in row 3", Arc::new(Int64Array::from(vec![Some(1), Some(2), None]))),
        ("column \"a\" has no value in row 2", Arc::new(BooleanArray::from(vec![Some(true), None, None]))),
        (
            "column \"a\" has no value in row 2",
            vectors(Arc::new(Float64Array::from(vec![1.0; 6])), 2, Some(vec![true, false, true])),
        ),
        (
            "column \"a\" has a time in row 3",
            Arc::new(TimestampNanosecondArray::from(vec![Some(1), None, Some(i64::MIN)])),
        ),
    ];
    for (expected, column) in columns {
        let rows = batch(vec![("a", column, true)]);
        for format in [Format::Npy, Format::Npz] {
            let error = write(&rows, format, 1, SnapshotBoxes::default()).unwrap_err().to_string();
            assert!(error.contains(expected), "{format}: {error}");
        }
    }
}

#[test]
fn an_archive_has_no_file_outside_of_its_folder_and_none_that_two_columns_share() {
    let named = |names: &[&'static str]| {
        let column = || -> ArrayRef { Arc::new(Int64Array::from(vec![1, 2])) };
        batch(names.iter().map(|name| (*name, column(), false)).collect())
    };
    for (names, expected) in [
        (&["/etc/x"][..], "leads out"),
        (&["a", "../x"], "leads out"),
        (&["a/../../x"], "leads out"),
        (&["\\x"], "leads out"),
        (&["x.npy", "x"], "is the file of another column"),
    ] {
        let error = write(&named(names), Format::Npz, 1, SnapshotBoxes::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{names:?}: {error}");
    }
    for names in [&["..x", "a/b", "x.npy"][..], &["x.npy", "y"]] {
        let rows = named(names);
        let (_place, path) = write(&rows, Format::Npz, 1, SnapshotBoxes::default()).unwrap();
        assert_eq!(read(&path, Format::Npz, &rows), rows, "{names:?}");
    }
    // An array of structures has no files.
    assert!(write(&named(&["/x"]), Format::Npy, 1, SnapshotBoxes::default()).is_ok());
}

/// Rows of a simulation, in an order unrelated to their steps.
fn atoms(count: usize) -> RecordBatch {
    let random = &mut fastrand::Rng::with_seed(3);
    let steps: Vec<i64> = (0..count).map(|_| random.i64(0..7) * 100).collect();
    let times: Vec<f64> = steps.iter().map(|step| *step as f64 / 300.0).collect();
    let x: Vec<f64> = (0..count).map(|_| random.f64() * 1e3 - 500.0).collect();
    let v: Vec<f32> = (0..2 * count).map(|_| random.f32()).collect();
    batch(vec![
        ("id", Arc::new(UInt64Array::from_iter_values(0..count as u64)), false),
        ("step", Arc::new(Int64Array::from(steps)), false),
        ("x", Arc::new(Float64Array::from(x)), false),
        ("time", Arc::new(Float64Array::from(times)), false),
        (
            "element",
            Arc::new(StringArray::from_iter_values((0..count).map(|row| ["H", "O"][row % 2]))),
            false,
        ),
        ("v", vectors(Arc::new(Float32Array::from(v)), 2, None), false),
        ("inside", Arc::new((0..count).map(|row| Some(row % 5 > 0)).collect::<BooleanArray>()), false),
    ])
}

/// The rows by step, as a dump has them.
fn by_step(rows: &RecordBatch) -> RecordBatch {
    let steps = rows.column(1).as_primitive::<Int64Type>();
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.sort_by_key(|row| steps.value(*row as usize));
    arrow_select::take::take_record_batch(rows, &arrow_array::UInt32Array::from(order)).unwrap()
}

fn along_x() -> SnapshotBoxes {
    SnapshotBoxes { axes: vec!["x".to_owned()], ..SnapshotBoxes::default() }
}

#[test]
fn a_dump_has_the_same_rows_by_step_with_their_times_and_words() {
    for (count, pieces) in [(0, 1), (1, 1), (5000, 999), (5000, 5000)] {
        let rows = atoms(count);
        let (_place, path) = write(&rows, Format::LammpsDump, pieces, along_x()).unwrap();
        assert_eq!(read(&path, Format::LammpsDump, &rows), by_step(&rows), "{count} rows by {pieces}");
    }
}

#[test]
fn a_snapshot_says_how_many_atoms_it_has_and_how_far_they_reach() {
    let rows = batch(vec![
        ("x", Arc::new(Float64Array::from(vec![2.0, -1.0, f64::NAN, 0.5])), false),
        ("step", Arc::new(Int64Array::from(vec![10, 5, 10, 10])), false),
    ]);
    let own = SnapshotBox { axes: [AxisBounds::Periodic(0.0, 4.0); 3], tilts: [0.0; 3] };
    let boxes = SnapshotBoxes { of_steps: [(5, own)].into(), ..along_x() };
    let (_place, path) = write(&rows, Format::LammpsDump, 1, boxes).unwrap();
    let expected = "ITEM: TIMESTEP\n5\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp pp\n0.0 4.0\n0.0 4.0\n0.0 4.0\n\
                    ITEM: ATOMS x\n-1.0\n\
                    ITEM: TIMESTEP\n10\nITEM: NUMBER OF ATOMS\n3\nITEM: BOX BOUNDS ss pp pp\n0.5 2.0\n-0.5 0.5\n-0.5 0.5\n\
                    ITEM: ATOMS x\n2.0\nNaN\n0.5\n";
    assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
}

#[test]
fn what_a_dump_cannot_hold_is_an_error_and_never_another_value() {
    let steps = || -> ArrayRef { Arc::new(Int64Array::from(vec![1, 1])) };
    let odd: [(&str, ArrayRef, &str); 8] = [
        (
            "a",
            Arc::new(Int64Array::from(vec![Some(1), None])),
            "column \"a\" has no value in a row of step 1",
        ),
        ("a", Arc::new(StringArray::from(vec!["ok", "two words"])), "\"two words\" in step 1"),
        ("a", Arc::new(StringArray::from(vec!["ok", ""])), "\"\" in step 1"),
        ("a b", Arc::new(Int64Array::from(vec![1, 2])), "the name of column \"a b\" has blanks"),
        ("a", Arc::new(TimestampNanosecondArray::from(vec![1, 2])), "holds numbers and words"),
        ("time", Arc::new(Float64Array::from(vec![0.5, 0.25])), "two times, 0.5 and 0.25"),
        ("time", Arc::new(Float64Array::from(vec![Some(0.5), None])), "column \"time\" has no value"),
        (
            "a",
            vectors(Arc::new(Float64Array::from(vec![1.0; 4])), 2, Some(vec![true, false])),
            "column \"a[0]\" has no value",
        ),
    ];
    for (name, column, expected) in odd {
        let rows = batch(vec![("step", steps(), true), (name, column, true)]);
        let error = write(&rows, Format::LammpsDump, 1, SnapshotBoxes::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let pair = vectors(Arc::new(Float64Array::from(vec![1.0; 4])), 2, None);
    let alike = batch(vec![("step", steps(), false), ("pos", pair, false), ("pos[1]", steps(), false)]);
    let error = write(&alike, Format::LammpsDump, 1, SnapshotBoxes::default()).unwrap_err().to_string();
    assert!(error.contains("two columns would be called \"pos[1]\""), "{error}");
    let lost = batch(vec![("step", steps(), false)]);
    let error = write(&lost, Format::LammpsDump, 1, along_x()).unwrap_err().to_string();
    assert!(error.contains("\"x\" is not among the columns"), "{error}");
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    assert!(
        write(&batch(vec![("step", floats, false)]), Format::LammpsDump, 1, SnapshotBoxes::default())
            .is_err()
    );
}

#[test]
fn times_that_are_no_doubles_are_columns_of_the_atoms() {
    let rows = batch(vec![
        ("step", Arc::new(Int64Array::from(vec![1, 1])), false),
        ("time", Arc::new(Int64Array::from(vec![3, 4])), false),
    ]);
    let (_place, path) = write(&rows, Format::LammpsDump, 1, SnapshotBoxes::default()).unwrap();
    assert_eq!(read(&path, Format::LammpsDump, &rows), rows);
    assert_eq!(rows.schema().field(1).data_type(), &DataType::Int64);
}
