//! Values written as text are read back unchanged.

#![allow(clippy::unwrap_used)]

use crate::{Format, Input, PartLimits, ReadOptions, describe, open, writer};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Date32Array, FixedSizeListArray, Float32Array, Float64Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;
use tempfile::TempDir;

const TEXTS: [(Format, &str); 2] = [(Format::Csv, "a.csv"), (Format::JsonLines, "a.jsonl")];

fn rows(columns: Vec<(&str, ArrayRef, bool)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// The rows, after being written to a file and read back.
fn there_and_back(rows: &RecordBatch, format: Format, name: &str) -> RecordBatch {
    let place = TempDir::new().unwrap();
    let path = place.path().join(name);
    let target = Box::new(std::fs::File::create(&path).unwrap());
    let mut writer = writer(format, &rows.schema(), target, name).unwrap();
    writer.write(rows).unwrap();
    writer.finish().unwrap();
    read(&std::fs::read_to_string(&path).unwrap(), format, name, &rows.schema())
}

fn read(text: &str, format: Format, name: &str, wanted: &SchemaRef) -> RecordBatch {
    let place = TempDir::new().unwrap();
    let path = place.path().join(name);
    std::fs::write(&path, text).unwrap();
    let mut reader = open(&Input::File(path), format, wanted, &ReadOptions::default()).unwrap();
    let limits = PartLimits { rows: 3, bytes: 1 << 20 };
    let mut parts = Vec::new();
    while let Some(part) = reader.next(limits).unwrap() {
        parts.push(part.rows);
    }
    arrow_select::concat::concat_batches(wanted, &parts).unwrap()
}

#[test]
fn an_empty_text_is_one_and_no_value_is_none() {
    let texts = vec![Some(""), None, Some("\""), Some("a\n\"\""), Some(""), None, Some("x")];
    let bytes: Vec<Option<&[u8]>> =
        vec![Some(b""), None, Some(b"a"), Some(b""), None, Some(b"\0"), Some(b"")];
    let whole: Vec<&[u8]> = bytes.iter().map(|bytes| bytes.unwrap_or_default()).collect();
    let rows = rows(vec![
        ("s", Arc::new(StringArray::from(texts)), true),
        ("id", Arc::new(Int64Array::from_iter_values(0..7)), false),
        ("b", Arc::new(BinaryArray::from(bytes)), true),
        ("whole", Arc::new(BinaryArray::from(whole)), false),
        ("filled", Arc::new(StringArray::from(vec!["", "a", "", "", "b", "", ""])), false),
        (
            "last",
            Arc::new(StringArray::from(vec![None, Some(""), None, Some(""), None, None, Some("")])),
            true,
        ),
    ]);
    for (format, name) in TEXTS {
        assert_eq!(there_and_back(&rows, format, name), rows, "{name}");
    }
}

#[test]
fn only_quotes_make_a_field_of_nothing_an_empty_text() {
    let fields =
        [("id", DataType::Int64, false), ("s", DataType::Utf8, true), ("x", DataType::Float64, true)];
    let fields = fields.map(|(name, data_type, nullable)| Field::new(name, data_type, nullable));
    let wanted = Arc::new(Schema::new(fields.to_vec()));
    for (end, last) in [("\n", "\n"), ("\r\n", "\r\n"), ("\r", "\r"), ("\n", ""), ("\r\n", "")] {
        let lines =
            ["id,s,x", "1,\"\",\"\"", "2,,1", "", "3,\"\",", "\"4\",,\"5\"", "5,a\"\",", "6,\"\",\"\""];
        let rows = read(&(lines.join(end) + last), Format::Csv, "a.csv", &wanted);
        let texts: Vec<Option<&str>> = rows.column(1).as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some(""), None, Some(""), None, Some("a\"\""), Some("")], "{end:?} {last:?}");
        assert_eq!(rows.column(2).null_count(), 4, "{end:?} {last:?}: nothing is no number");
    }
    let json = "{\"id\":1,\"s\":\"\",\"x\":\"\"}\n{\"id\":2,\"s\":null}\n{\"id\":3}\n";
    let rows = read(json, Format::JsonLines, "a.jsonl", &wanted);
    assert!(rows.column(1).as_string::<i32>().iter().eq([Some(""), None, None]));
    assert_eq!(rows.column(2).null_count(), 3);
}

fn vectors(item: DataType, values: ArrayRef, valid: Vec<bool>) -> ArrayRef {
    let item = Arc::new(Field::new("item", item, false));
    Arc::new(FixedSizeListArray::try_new(item, 2, values, Some(NullBuffer::from(valid))).unwrap())
}

#[test]
fn what_is_not_finite_is_no_null() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    let narrow = odd.map(|number| number as f32);
    let rows = rows(vec![
        ("x", Arc::new(Float64Array::from(odd.to_vec())), false),
        (
            "y",
            Arc::new(Float32Array::from(vec![Some(narrow[1]), None, Some(narrow[0]), Some(narrow[2])])),
            true,
        ),
        (
            "v",
            vectors(DataType::Float64, Arc::new(Float64Array::from([odd, odd].concat())), vec![true; 4]),
            false,
        ),
    ]);
    for (format, name) in TEXTS {
        let back = there_and_back(&rows, format, name);
        // NaN does not equal NaN.
        assert_eq!(format!("{back:?}"), format!("{rows:?}"), "{name}");
    }
    let text = format!("{:?}", there_and_back(&rows, Format::JsonLines, "a.jsonl"));
    assert!(text.contains("NaN") && text.contains("-inf"), "{text}");
}

#[test]
fn a_vector_may_be_null_wherever_it_stands() {
    let v = || Arc::new(Float64Array::from(vec![0.0, 0.0, 1.0, 2.0, 0.0, 0.0]));
    let ids = || Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    for valid in [vec![false, true, false], vec![true; 3], vec![false; 3]] {
        let rows =
            rows(vec![("v", vectors(DataType::Float64, v(), valid.clone()), true), ("id", ids(), false)]);
        for (format, name) in TEXTS {
            assert_eq!(there_and_back(&rows, format, name), rows, "{name}: {valid:?}");
        }
    }
}

#[test]
fn a_vector_of_nulls_is_one_wherever_that_can_be_told() {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let values = || -> ArrayRef {
        Arc::new(Float64Array::from(vec![None, None, Some(1.0), None, None, None, Some(2.0), Some(3.0)]))
    };
    let of = |valid: Option<Vec<bool>>| -> ArrayRef {
        let valid = valid.map(NullBuffer::from);
        Arc::new(FixedSizeListArray::try_new(Arc::clone(&item), 2, values(), valid).unwrap())
    };
    let ids = || Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef;
    let filled = rows(vec![("v", of(None), false), ("id", ids(), false)]);
    for (format, name) in TEXTS {
        assert_eq!(there_and_back(&filled, format, name), filled, "{name}");
    }
    for valid in [vec![true; 4], vec![true, true, false, true]] {
        let nullable = rows(vec![("v", of(Some(valid)), true), ("id", ids(), false)]);
        assert_eq!(there_and_back(&nullable, Format::JsonLines, "a.jsonl"), nullable);
    }
}

#[test]
fn a_vector_that_is_null_in_all_the_first_records_has_the_length_that_is_wanted() {
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let wanted = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::FixedSizeList(item, 2), true),
    ]));
    let text = "{\"id\":1,\"v\":null}\n".repeat(1500) + "{\"v\":[1,2],\"id\":2}\n{\"id\":3,\"v\":null}\n";
    let rows = read(&text, Format::JsonLines, "a.jsonl", &wanted);
    assert_eq!((rows.num_rows(), rows.column(1).null_count()), (1502, 1501));
    assert_eq!(
        rows.column(1).as_fixed_size_list().value(1500).as_primitive::<Float64Type>().values(),
        &[1.0, 2.0]
    );
}

#[test]
fn null_in_the_place_of_a_vector_is_no_column_of_its_own() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("a.jsonl");
    std::fs::write(&path, "{\"v\":null,\"s\":null}\n{\"v\":[1,2]}\n{\"v\":null}\n").unwrap();
    let found = describe(&Input::File(path), Format::JsonLines, &ReadOptions::default()).unwrap();
    let names: Vec<&str> = found.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["s", "v[0]", "v[1]"]);
}

#[test]
fn instants_of_all_years_come_back_in_every_unit_that_holds_them() {
    // The first day of the years -4000, -1, 1, 1500, 1970, 3000, 9999, 10000 and 200000.
    let days = [-2_180_498, -719_894, -719_162, -171_664, 0, 376_200, 2_932_532, 2_932_897, 72_328_972];
    let seconds = days.map(|day| i64::from(day) * 86_400);
    let of = |factor: i64, rest: i64| seconds.map(|second| second * factor + rest).to_vec();
    let columns = vec![
        ("s", Arc::new(TimestampSecondArray::from(of(1, 59))) as ArrayRef, false),
        ("ms", Arc::new(TimestampMillisecondArray::from(of(1000, 1))) as ArrayRef, false),
        ("us", Arc::new(TimestampMicrosecondArray::from(of(1_000_000, 999_999))) as ArrayRef, false),
        (
            "ns",
            Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, -1, 0, 1, 2, 3, 4, 5, i64::MAX]))
                as ArrayRef,
            false,
        ),
        ("day", Arc::new(Date32Array::from(days.to_vec())) as ArrayRef, false),
    ];
    let rows = rows(columns);
    for (format, name) in TEXTS {
        assert_eq!(there_and_back(&rows, format, name), rows, "{name}");
    }
}

#[test]
fn a_day_of_a_year_with_a_sign_is_told_as_a_day() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("a.csv");
    std::fs::write(&path, "d,t\n2026-01-02,2026-01-02T10:00:00Z\n+10000-01-01,+10000-01-01T00:00:00Z\n")
        .unwrap();
    let found = describe(&Input::File(path), Format::Csv, &ReadOptions::default()).unwrap();
    assert_eq!(found.field(0).data_type(), &DataType::Date32);
    assert!(matches!(found.field(1).data_type(), DataType::Timestamp(TimeUnit::Microsecond, _)));
}

#[test]
fn an_instant_that_its_unit_does_not_hold_is_refused_and_no_other_one() {
    let wanted =
        Arc::new(Schema::new(vec![Field::new("t", DataType::Timestamp(TimeUnit::Nanosecond, None), true)]));
    let place = TempDir::new().unwrap();
    let path = place.path().join("a.csv");
    std::fs::write(&path, "t\n3000-01-01T00:00:00\n").unwrap();
    let mut reader = open(&Input::File(path), Format::Csv, &wanted, &ReadOptions::default()).unwrap();
    let error = reader.next(PartLimits { rows: 3, bytes: 1 << 20 }).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}
