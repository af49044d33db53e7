//! Tests of what every format that is written promises.

use super::*;
use arrow_array::{
    ArrayRef, BooleanArray, DurationMillisecondArray, FixedSizeListArray, Float32Array, Float64Array,
    Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};
use std::sync::{Arc, Mutex, PoisonError};

/// A target whose bytes can be inspected afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rows() -> RecordBatch {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let elements: ArrayRef = Arc::new(Float32Array::from(vec![0.1, 2.0, 0.0, 0.0]));
    let vectors =
        FixedSizeListArray::try_new(item, 2, elements, Some(NullBuffer::from(vec![true, false]))).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![1, i64::MAX]))),
        ("x", Arc::new(Float64Array::from(vec![Some(0.1), Some(f64::NAN)]))),
        ("name", Arc::new(StringArray::from(vec![Some("a, \"b\"\n"), Some("")]))),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("t", Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]).with_timezone("UTC"))),
        ("d", Arc::new(DurationMillisecondArray::from(vec![5, -7]))),
        ("v", Arc::new(vectors)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn written(format: Format, rows: &RecordBatch) -> String {
    let target = Shared::default();
    let mut writer = writer(format, &rows.schema(), Box::new(target.clone()), "test").unwrap();
    writer.write(rows).unwrap();
    writer.finish().unwrap();
    String::from_utf8(target.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn csv_quotes_what_needs_it_and_tells_null_from_an_empty_text() {
    let expected = "id,x,name,ok,t,d,v[0],v[1]\n\
                    1,0.1,\"a, \"\"b\"\"\n\",true,1970-01-01T00:00:01.500Z,5,0.1,2.0\n\
                    9223372036854775807,NaN,\"\",,,-7,,\n";
    assert_eq!(written(Format::Csv, &rows()), expected);
}

#[test]
fn an_empty_text_that_csv_would_give_back_as_null_is_refused() {
    let of = |texts: Vec<Option<&str>>, nullable: bool| {
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        RecordBatch::try_from_iter_with_nullable([("s", texts, nullable)]).unwrap()
    };
    let empty = of(vec![Some("a"), None, Some("")], true);
    let mut refusing = writer(Format::Csv, &empty.schema(), Box::new(Shared::default()), "test").unwrap();
    let error = refusing.write(&empty).unwrap_err();
    assert!(matches!(error, RowFileError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("column \"s\" has an empty text"), "{error}");
    // Without one of the two, quotes around nothing mean one thing.
    assert_eq!(written(Format::Csv, &of(vec![Some("a"), None], true)), "s\na\n\"\"\n");
    assert_eq!(written(Format::Csv, &of(vec![Some("a"), Some("")], false)), "s\na\n\"\"\n");
}

#[test]
fn json_lines_are_read_by_any_parser() {
    let text = written(Format::JsonLines, &rows());
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["id"], 1);
    assert_eq!(lines[0]["name"], "a, \"b\"\n");
    assert_eq!(lines[0]["v"], serde_json::json!([0.1, 2.0]));
    assert_eq!(lines[0]["t"], "1970-01-01T00:00:01.500Z");
    assert_eq!(lines[1]["x"], "NaN");
    assert_eq!(lines[1]["v"], serde_json::Value::Null);
    assert_eq!(lines[1]["d"], -7);
}

#[test]
fn a_slice_writes_only_its_own_rows() {
    for format in [Format::Csv, Format::JsonLines] {
        let whole = written(format, &rows());
        let slice = written(format, &rows().slice(1, 1));
        assert_eq!(whole.lines().last(), slice.lines().last(), "{format}");
    }
}

#[test]
fn people_see_numbers_to_the_right_and_texts_to_the_left() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![5, 1000]))),
        ("name", Arc::new(StringArray::from(vec![Some("x"), None]))),
        ("y", Arc::new(Float64Array::from(vec![1.5, -0.25]))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let lines = aligned(&rows, None).unwrap().lines;
    assert_eq!(lines, ["   n  name      y", "   5  x       1.5", "1000  null  -0.25"]);
    let empty = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new("a", DataType::Int8, true)])));
    assert_eq!(aligned(&empty, None).unwrap().lines, ["a"]);
}

#[test]
fn rows_that_are_wider_than_the_screen_lack_columns_in_the_middle_and_say_which() {
    let of = |name: &str| (name.to_owned(), Arc::new(Int64Array::from(vec![5, 1000])) as ArrayRef);
    let rows = RecordBatch::try_from_iter(["a", "b", "c", "d", "e"].map(of)).unwrap();
    let whole = aligned(&rows, None).unwrap();
    assert_eq!(whole.lines[2], "1000  1000  1000  1000  1000");
    assert_eq!(aligned(&rows, Some(28)).unwrap(), whole, "it just fits");
    let fitted = aligned(&rows, Some(27)).unwrap();
    assert_eq!(
        fitted.lines,
        ["   a     b  …     d     e", "   5     5  …     5     5", "1000  1000  …  1000  1000"]
    );
    assert_eq!(fitted.left_out, ["c"]);
    for room in 0..28 {
        let fitted = aligned(&rows, Some(room)).unwrap();
        assert!(fitted.lines.iter().all(|line| line.chars().count() <= room.max(7)), "{room}: {fitted:?}");
        let shown = fitted.lines[0].split_whitespace().filter(|name| *name != "…").count();
        assert!(shown + fitted.left_out.len() == 5 && shown >= 1, "{room}: {fitted:?}");
    }
    let only = rows.project(&[0]).unwrap();
    assert_eq!(aligned(&only, Some(1)).unwrap().lines, ["   a", "   5", "1000"]);
}

#[test]
fn a_row_that_is_wider_than_the_screen_stands_on_its_side_with_all_that_it_has() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![1000]))),
        ("name", Arc::new(StringArray::from(vec![None::<&str>]))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let fitted = aligned(&rows, Some(9)).unwrap();
    assert_eq!(
        (fitted.lines, fitted.left_out),
        (vec!["n     1000".to_owned(), "name  null".to_owned()], vec![])
    );
    assert_eq!(aligned(&rows, Some(10)).unwrap().lines, ["   n  name", "1000  null"]);
}

#[test]
fn columns_that_an_array_or_a_dump_cannot_hold_are_refused_by_name_before_anything_is_written() {
    let refused = |format: Format, columns: &[usize], expected: &str| {
        let schema = Arc::new(rows().schema().project(columns).unwrap());
        let target = Shared::default();
        let error = writer(format, &schema, Box::new(target.clone()), "test").err().unwrap();
        assert!(matches!(error, RowFileError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{format}: {error}");
        assert!(target.0.lock().unwrap().is_empty());
    };
    for format in [Format::Npy, Format::Npz] {
        refused(format, &[0, 2], "column \"name\" is utf8");
        refused(format, &[], "a row of 0 bytes");
    }
    refused(Format::LammpsDump, &[0, 1], "no column \"step\"");
}

#[test]
fn a_row_of_an_archive_that_would_not_be_read_back_is_refused() {
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let schema = |columns: usize| {
        let vector = DataType::FixedSizeList(Arc::clone(&item), 65_536);
        let fields = (0..columns).map(|number| Field::new(format!("v{number}"), vector.clone(), false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    };
    let refused = |columns| writer(Format::Npz, &schema(columns), Box::new(Shared::default()), "test").err();
    assert!(refused(128).is_none());
    assert!(refused(129).unwrap().to_string().contains("a row of 67633152 bytes"));
}

#[test]
fn an_instant_that_no_text_stands_for_is_an_error_and_not_written_as_one() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("t", Arc::new(TimestampMicrosecondArray::from(vec![0, i64::MAX]))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    for format in [Format::Csv, Format::JsonLines] {
        let target = Shared::default();
        let mut writer = writer(format, &rows.schema(), Box::new(target.clone()), "test").unwrap();
        let error = writer.write(&rows).unwrap_err().to_string();
        assert!(error.contains("column \"t\"") && error.contains("9223372036854775807"), "{format}: {error}");
        assert!(!String::from_utf8(target.0.lock().unwrap().clone()).unwrap().contains("ERROR"), "{format}");
    }
}
