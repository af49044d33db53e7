//! Tests of what every format that is read promises.

mod claims;
mod columns;
mod refused;
mod sizes;
mod texts;

use super::*;
use crate::{Part, PartLimits, writer};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, TimestampSecondType};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
};
use arrow_schema::{Field, TimeUnit};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const PARTS: PartLimits = PartLimits { rows: 7, bytes: 1 << 20 };

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Input {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        Input::File(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let fields =
        fields.iter().map(|(name, data_type, nullable)| Field::new(*name, data_type.clone(), *nullable));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn read(
    input: &Input,
    format: Format,
    wanted: &SchemaRef,
    options: &ReadOptions,
) -> Result<Vec<Part>, RowFileError> {
    let mut reader = open(input, format, wanted, options)?;
    let mut parts = Vec::new();
    while let Some(part) = reader.next(PARTS)? {
        parts.push(part);
    }
    Ok(parts)
}

fn all(parts: &[Part], wanted: &SchemaRef) -> RecordBatch {
    arrow_select::concat::concat_batches(wanted, parts.iter().map(|part| &part.rows)).unwrap()
}

fn plain() -> ReadOptions {
    ReadOptions::default()
}

#[test]
fn a_csv_file_becomes_typed_columns_with_nulls() {
    let place = Place::new();
    let input = place.write("a.csv", "id,x,name,t\n1,0.5,\"a, b\",2026-01-01T00:00:01Z\n2,,,\n");
    let time = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
    let wanted = schema(&[
        ("t", time, true),
        ("id", DataType::Int64, false),
        ("x", DataType::Float32, true),
        ("name", DataType::Utf8, true),
    ]);
    let rows = all(&read(&input, Format::Csv, &wanted, &plain()).unwrap(), &wanted);
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(rows.column(2).as_primitive::<Float32Type>().value(0), 0.5);
    assert_eq!(rows.column(3).as_string::<i32>().value(0), "a, b");
    assert!((0..4).all(|column| column == 1 || rows.column(column).is_null(1)));
    assert_eq!(rows.column(0).as_primitive::<TimestampSecondType>().value(0), 1_767_225_601);
}

#[test]
fn a_bad_record_is_told_with_its_line_whatever_the_line_ends_and_what_was_good_before_it_comes_first() {
    let place = Place::new();
    for end in ["\n", "\r\n"] {
        // A field over two lines, and an empty line: the bad record is in line 6.
        let text = ["id,name", "1,\"two", "lines\"", "2,b", "", "x3,c", "4,d", ""].join(end);
        let input = place.write("a.csv", text);
        let wanted = schema(&[("id", DataType::Int64, false), ("name", DataType::Utf8, true)]);
        let mut reader = open(&input, Format::Csv, &wanted, &plain()).unwrap();
        let good = reader.next(PARTS).unwrap().unwrap();
        assert_eq!((good.rows.num_rows(), good.end), (2, 2), "{end:?}");
        let error = reader.next(PARTS).unwrap_err().to_string();
        assert!(error.ends_with("a.csv, line 6: column \"id\": \"x3\" is not an int64"), "{error}");
        let skipping = ReadOptions { skip_bad: 1, ..plain() };
        let parts = read(&input, Format::Csv, &wanted, &skipping).unwrap();
        assert_eq!(parts[0].bad, [crate::BadRecord { line: 6, problem: parts[0].bad[0].problem.clone() }]);
        assert_eq!(all(&parts, &wanted).column(0).as_primitive::<Int64Type>().values(), &[1, 2, 4]);
        assert_eq!(parts[0].end, 4, "bad records count, so that going on behind them is exact");
    }
}

#[test]
fn a_csv_file_that_ends_within_quotes_is_torn_and_one_without_a_last_line_end_is_whole() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("name", DataType::Utf8, true)]);
    let read_text = |text: &str| read(&place.write("a.csv", text), Format::Csv, &wanted, &plain());
    for torn in ["1,a\n2,\"b", "1,a\n2,\"b\n3,c\n", "1,a\n2,\"b\"\"", "1,a\r\n\r\n2,\"b,\r\n"] {
        let mut reader =
            open(&place.write("a.csv", format!("id,name\n{torn}")), Format::Csv, &wanted, &plain()).unwrap();
        assert_eq!(
            reader.next(PARTS).unwrap().unwrap().rows.num_rows(),
            1,
            "{torn:?}: what lies before is good"
        );
        let error = reader.next(PARTS).unwrap_err();
        let line = if torn.contains("\r") { 4 } else { 3 };
        let told = format!("a.csv ends early: the record that begins on line {line} ends within quotes");
        assert!(error.to_string().ends_with(&told), "{torn:?}: {error}");
        assert_eq!(error.kind(), atoll_errors::ErrorKind::Corrupt);
    }
    for whole in [
        "1,a\n2,b",
        "1,a\n2,\"b\"",
        "1,a\n2,\"b\"\"\"",
        "1,a\n2,5\" pipe",
        "1,a\n2,\"b\n\"\n",
        "1,a\r\n2,\"b\"\r\n",
    ] {
        let rows = all(&read_text(&format!("id,name\n{whole}")).unwrap(), &wanted);
        assert_eq!(rows.num_rows(), 2, "{whole:?}");
    }
}

#[test]
fn a_bad_record_leaves_no_part_of_itself_behind() {
    let place = Place::new();
    let input =
        place.write("a.csv", "a,b,v[0],v[1]\n1,1,1,1\n2,2,2\n3,x,3,3\n4,4,4,y\n5,5,,\n,6,6,6\n7,7,7,7\n");
    let vector = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float64, false)), 2);
    let wanted = schema(&[("a", DataType::Int64, false), ("v", vector, false), ("b", DataType::Int64, true)]);
    let options = ReadOptions { skip_bad: 9, ..plain() };
    let parts = read(&input, Format::Csv, &wanted, &options).unwrap();
    let rows = all(&parts, &wanted);
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 7]);
    assert_eq!(
        rows.column(1).as_fixed_size_list().values().as_primitive::<Float64Type>().values(),
        &[1., 1., 7., 7.]
    );
    let lines: Vec<u64> = parts.iter().flat_map(|part| part.bad.iter().map(|bad| bad.line)).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7]);
    let short = &parts[0].bad[0].problem;
    assert_eq!(short, "3 fields where the header has 4");
}

#[test]
fn going_on_behind_some_records_gives_exactly_the_others_in_every_format() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("x", DataType::Float64, true)]);
    let ids: Vec<i64> = (0..100).collect();
    let xs: Vec<f64> = ids.iter().map(|id| *id as f64 / 8.0).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(Float64Array::from(xs))];
    let rows = RecordBatch::try_new(Arc::clone(&wanted), columns).unwrap();
    for (format, name) in [(Format::Csv, "a.csv"), (Format::Parquet, "a.parquet"), (Format::Arrow, "a.arrow")]
    {
        let path = place.path(name);
        let target = Box::new(std::fs::File::create(&path).unwrap());
        let mut writer = writer(format, &wanted, target, name).unwrap();
        writer.write(&rows.slice(0, 60)).unwrap();
        writer.write(&rows.slice(60, 40)).unwrap();
        writer.finish().unwrap();
        let input = Input::File(path);
        for skipped in [0, 1, 7, 59, 60, 99, 100] {
            let mut reader = open(&input, format, &wanted, &plain()).unwrap();
            assert_eq!(reader.skip(skipped).unwrap(), skipped, "{name}");
            let mut parts = Vec::new();
            while let Some(part) = reader.next(PARTS).unwrap() {
                assert!(part.rows.num_rows() <= PARTS.rows, "{name}");
                parts.push(part);
            }
            assert_eq!(all(&parts, &wanted), rows.slice(skipped as usize, 100 - skipped as usize), "{name}");
            assert_eq!(parts.last().map_or(100, |part| part.end), 100, "{name}");
        }
        let mut reader = open(&input, format, &wanted, &plain()).unwrap();
        assert_eq!(reader.skip(101).unwrap(), 100, "{name}: there are no more");
    }
}

#[test]
fn types_are_guessed_as_narrow_as_all_fields_admit() {
    let place = Place::new();
    let text = "i,u,f,b,d,t,s,n,mixed\n\
                -1,18446744073709551615,1,true,2026-01-01,2026-01-01 12:00:00,x,,1\n\
                2,3,2.5e3,False,2026-12-31,2026-01-01T12:00:00.5Z,2026,,x\n";
    let input = place.write("a.csv", text);
    let options = ReadOptions { types: vec![("i".to_owned(), DataType::Int8)], ..plain() };
    let found = describe(&input, Format::Csv, &options).unwrap();
    let types: Vec<DataType> = found.fields().iter().map(|field| field.data_type().clone()).collect();
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let expected = [
        DataType::Int8,
        DataType::UInt64,
        DataType::Float64,
        DataType::Boolean,
        DataType::Date32,
        time,
        DataType::Utf8,
        DataType::Utf8,
        DataType::Utf8,
    ];
    assert_eq!(types, expected);
    let unknown = ReadOptions { types: vec![("ff".to_owned(), DataType::Int8)], ..plain() };
    let error = describe(&input, Format::Csv, &unknown).unwrap_err();
    assert!(matches!(&error, RowFileError::Missing { column, .. } if column == "ff"), "{error}");
}

#[test]
fn columns_that_do_not_fit_are_named_with_the_nearest() {
    let place = Place::new();
    let input = place.write("a.csv", "idd,x\n1,2\n");
    let wanted = schema(&[("id", DataType::Int64, false), ("x", DataType::Int64, true)]);
    let error = read(&input, Format::Csv, &wanted, &plain()).unwrap_err();
    assert!(
        matches!(&error, RowFileError::Missing { nearest: Some(nearest), .. } if nearest == "idd"),
        "{error}"
    );
    let renamed = ReadOptions { rename: vec![("idd".into(), "id".into())], ..plain() };
    assert_eq!(all(&read(&input, Format::Csv, &wanted, &renamed).unwrap(), &wanted).num_rows(), 1);
    let fewer = schema(&[("id", DataType::Int64, false)]);
    let error = read(&input, Format::Csv, &fewer, &renamed).unwrap_err();
    assert!(matches!(&error, RowFileError::Extra { column, .. } if column == "x"), "{error}");
    let ignoring = ReadOptions { ignore_extra: true, ..renamed };
    assert_eq!(all(&read(&input, Format::Csv, &fewer, &ignoring).unwrap(), &fewer).num_rows(), 1);
    let twice = place.write("b.csv", "id,id\n1,2\n");
    assert!(matches!(read(&twice, Format::Csv, &fewer, &plain()), Err(RowFileError::Twice { .. })));
}

fn parquet(place: &Place, columns: Vec<(&str, ArrayRef)>) -> Input {
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let path = place.path("a.parquet");
    let target = Box::new(std::fs::File::create(&path).unwrap());
    let mut writer = writer(Format::Parquet, &rows.schema(), target, "a").unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    Input::File(path)
}

#[test]
fn parts_of_files_of_batches_are_as_large_as_they_are_asked_for_whatever_their_texts() {
    let place = Place::new();
    let texts: Vec<String> = (0..5000).map(|row| format!("{row:08}").repeat(256)).collect();
    let input = parquet(&place, vec![("text", Arc::new(StringArray::from(texts.clone())))]);
    let wanted = schema(&[("text", DataType::Utf8, false)]);
    let mut reader = open(&input, Format::Parquet, &wanted, &plain()).unwrap();
    let limits = PartLimits { rows: usize::MAX, bytes: 1 << 20 };
    let mut parts = Vec::new();
    while let Some(part) = reader.next(limits).unwrap() {
        parts.push(part);
    }
    // 2 KiB each, so that 511 of them with their offsets make a part.
    assert!(parts.iter().all(|part| crate::bytes_of(&part.rows) <= limits.bytes));
    assert!(parts.len() <= 11, "{} parts", parts.len());
    let rows = all(&parts, &wanted);
    assert!(rows.column(0).as_string::<i32>().iter().map(Option::unwrap).eq(texts.iter()));
}

#[test]
fn a_value_becomes_another_type_only_when_nothing_of_it_is_lost() {
    let place = Place::new();
    let cases: [(ArrayRef, DataType, bool); 10] = [
        (Arc::new(Int32Array::from(vec![1, -2])), DataType::Int64, true),
        (Arc::new(Int64Array::from(vec![1, 200])), DataType::Int8, false),
        (Arc::new(Int64Array::from(vec![1, -1])), DataType::UInt64, false),
        (Arc::new(Float64Array::from(vec![1.0, 2.0])), DataType::Int32, true),
        (Arc::new(Float64Array::from(vec![1.0, 2.5])), DataType::Int32, false),
        (Arc::new(Float64Array::from(vec![f64::NAN])), DataType::Int32, false),
        (Arc::new(Float64Array::from(vec![0.1, f64::NAN])), DataType::Float32, true),
        (Arc::new(Int64Array::from(vec![(1 << 53) + 1])), DataType::Float64, false),
        (Arc::new(LargeStringArray::from(vec!["a"])), DataType::Utf8, true),
        (Arc::new(StringArray::from(vec!["1"])), DataType::Int64, false),
    ];
    for (column, wanted, fits) in cases {
        let shown = format!("{column:?} to {wanted}");
        let input = parquet(&place, vec![("x", column)]);
        let wanted = schema(&[("x", wanted, true)]);
        let result = read(&input, Format::Parquet, &wanted, &plain());
        assert_eq!(result.is_ok(), fits, "{shown}: {:?}", result.err());
    }
}

#[test]
fn no_value_is_no_empty_text_where_there_must_be_one() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("name", DataType::Utf8, false)]);
    let na = ReadOptions { null: Some("NA".to_owned()), ..plain() };
    let refused = [
        ("a.jsonl", "{\"id\": 1, \"name\": \"\"}\n{\"id\": 2, \"name\": null}\n"),
        ("b.jsonl", "{\"id\": 1, \"name\": \"\"}\n{\"id\": 2}\n"),
        ("c.jsonl", "{\"id\": 1, \"name\": \"\"}\n{\"id\": 2, \"name\": \"NA\"}\n"),
    ];
    for (name, text) in refused {
        let input = place.write(name, text);
        let problem = read(&input, Format::JsonLines, &wanted, &na).unwrap_err().to_string();
        assert!(problem.contains("line 2: column \"name\": there is no value"), "{name}: {problem}");
    }
    let input = place.write("a.csv", "id,name\n1,\n2,NA\n");
    let problem = read(&input, Format::Csv, &wanted, &na).unwrap_err().to_string();
    assert!(problem.contains("line 3: column \"name\": there is no value"), "{problem}");
    // Quotes make an empty text; NA is an ordinary text unless the options say otherwise.
    let rows = all(&read(&input, Format::Csv, &wanted, &plain()).unwrap(), &wanted);
    assert!(rows.column(1).as_string::<i32>().iter().eq([Some(""), Some("NA")]));
    let nullable = schema(&[("id", DataType::Int64, false), ("name", DataType::Utf8, true)]);
    let input =
        place.write("d.jsonl", "{\"id\": 1, \"name\": null}\n{\"id\": 2}\n{\"id\": 3, \"name\": \"NA\"}\n");
    assert_eq!(
        all(&read(&input, Format::JsonLines, &nullable, &na).unwrap(), &nullable).column(1).null_count(),
        3
    );
}

#[test]
fn a_null_where_none_may_be_is_an_error() {
    let place = Place::new();
    let input = parquet(&place, vec![("x", Arc::new(Int64Array::from(vec![Some(1), None])))]);
    let wanted = schema(&[("x", DataType::Int64, false)]);
    let error = read(&input, Format::Parquet, &wanted, &plain()).unwrap_err().to_string();
    assert!(error.contains("value 2 of this part must not be null"), "{error}");
}

const DUMP: &str = "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\n\
                    ITEM: ATOMS id type x element \n2 1 0.25 H \n1 1 0.5 O \n\
                    ITEM: TIMESTEP\n100\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\n\
                    ITEM: ATOMS id type x element \n1 1 0.75 O \n";

#[test]
fn a_lammps_dump_becomes_rows_with_their_step() {
    let place = Place::new();
    let input = place.write("a.dump", DUMP);
    let found = Arc::new(describe(&input, Format::LammpsDump, &plain()).unwrap());
    let names: Vec<&str> = found.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["step", "id", "type", "x", "element"]);
    let rows = all(&read(&input, Format::LammpsDump, &found, &plain()).unwrap(), &found);
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[0, 0, 100]);
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[2, 1, 1]);
    assert_eq!(rows.column(4).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["H", "O", "O"]);
}

#[test]
fn a_dump_that_is_cut_anywhere_is_never_a_smaller_dump() {
    let place = Place::new();
    let whole = place.write("whole.dump", DUMP);
    let found = Arc::new(describe(&whole, Format::LammpsDump, &plain()).unwrap());
    // A dump is whole between the end of one snapshot and the beginning of the next.
    let between = DUMP.find("ITEM: TIMESTEP\n100").unwrap();
    for cut in (0..DUMP.len()).filter(|cut| *cut != between) {
        let input = place.write("cut.dump", &DUMP[..cut]);
        assert!(read(&input, Format::LammpsDump, &found, &plain()).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_snapshot_that_is_cut_within_a_dump_takes_no_line_of_the_next_for_an_atom() {
    let place = Place::new();
    // All columns are texts, as which any line with as many words would pass.
    let names = ["step", "id", "type", "x", "element"];
    let fields: Vec<_> = names.iter().map(|name| (*name, DataType::Utf8, false)).collect();
    let wanted = schema(&fields);
    let head = DUMP.find("2 1 0.25 H").unwrap();
    let next = DUMP.find("ITEM: TIMESTEP\n100").unwrap();
    let last_atom = DUMP.find("1 1 0.5 O").unwrap();
    for (cut, line, missing) in [(head, 10, 2), (last_atom, 11, 1)] {
        let input = place.write("a.dump", format!("{}{}", &DUMP[..cut], &DUMP[next..]));
        // However many bad records may be skipped: the next snapshot would lose its head.
        for skip_bad in [0, 100] {
            let options = ReadOptions { skip_bad, ..plain() };
            let mut reader = open(&input, Format::LammpsDump, &wanted, &options).unwrap();
            let mut good = 0;
            let failure = loop {
                match reader.next(PARTS) {
                    Ok(Some(part)) => good += part.rows.num_rows(),
                    Ok(None) => panic!("the dump was taken for a whole one"),
                    Err(error) => break error.to_string(),
                }
            };
            assert_eq!(good, 2 - missing, "what lies before is good");
            let told = format!("ends early: line {line}: {missing} atoms of step 0 are missing before it");
            assert!(failure.ends_with(&told), "{failure}");
            assert_eq!(reader.failed_at(), Some(crate::FailedAt { record: line, snapshot: 1 }));
        }
    }
}

#[test]
fn a_damaged_parquet_or_arrow_file_is_an_error_and_no_panic() {
    let place = Place::new();
    let wanted = schema(&[("x", DataType::Int64, true)]);
    let values: Vec<i64> = (0..1000).collect();
    let rows = RecordBatch::try_new(Arc::clone(&wanted), vec![Arc::new(Int64Array::from(values))]).unwrap();
    for (format, name) in [(Format::Parquet, "a.parquet"), (Format::Arrow, "a.arrow")] {
        let path = place.path(name);
        let mut writer =
            writer(format, &wanted, Box::new(std::fs::File::create(&path).unwrap()), name).unwrap();
        writer.write(&rows).unwrap();
        writer.finish().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by(whole.len() / 40 + 1) {
            let input = place.write(name, &whole[..cut]);
            let result = read(&input, format, &wanted, &plain());
            assert!(result.is_err(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_and_a_pipe_where_none_will_do_say_so() {
    let place = Place::new();
    let wanted = schema(&[("x", DataType::Int64, true)]);
    let missing = Input::File(place.path("missing.parquet"));
    let error = read(&missing, Format::Parquet, &wanted, &plain()).unwrap_err();
    assert_eq!(error.kind(), atoll_errors::ErrorKind::NotFound);
    let error = read(&Input::Standard, Format::Parquet, &wanted, &plain()).unwrap_err();
    assert_eq!(error.kind(), atoll_errors::ErrorKind::Unsupported);
}

/// A structured array as NumPy writes it, with two rows: x f8, n i4 big-endian, name U2, v f4 of 2.
fn structures() -> Vec<u8> {
    let head = "{'descr': [('x', '<f8'), ('n', '>i4'), ('name', '<U2'), ('v', '<f4', (2,))], \
                'fortran_order': False, 'shape': (2,), }";
    let mut bytes = npy_head(head);
    for (x, n, name, v) in [(0.5_f64, 7_i32, "aé", [1.0_f32, 2.0]), (-1.0, -8, "b", [3.0, 4.0])] {
        bytes.extend(x.to_le_bytes());
        bytes.extend(n.to_be_bytes());
        let mut codes: Vec<u32> = name.chars().map(u32::from).collect();
        codes.resize(2, 0);
        codes.iter().for_each(|code| bytes.extend(code.to_le_bytes()));
        v.iter().for_each(|element| bytes.extend(element.to_le_bytes()));
    }
    bytes
}

fn npy_head(head: &str) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes
}

#[test]
fn an_array_of_structures_has_a_column_for_each_field() {
    let place = Place::new();
    let input = place.write("a.npy", structures());
    let found = Arc::new(describe(&input, Format::Npy, &plain()).unwrap());
    let rows = all(&read(&input, Format::Npy, &found, &plain()).unwrap(), &found);
    assert_eq!(rows.column(0).as_primitive::<Float64Type>().values(), &[0.5, -1.0]);
    assert_eq!(rows.column(1).as_primitive::<arrow_array::types::Int32Type>().values(), &[7, -8]);
    assert_eq!(rows.column(2).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["aé", "b"]);
    let vectors = rows.column(3).as_fixed_size_list().values();
    assert_eq!(vectors.as_primitive::<Float32Type>().values(), &[1.0, 2.0, 3.0, 4.0]);
    for cut in 0..structures().len() {
        let input = place.write("cut.npy", &structures()[..cut]);
        assert!(read(&input, Format::Npy, &found, &plain()).is_err(), "cut at {cut}");
    }
}

#[test]
fn an_array_of_two_dimensions_is_a_vector_or_has_the_names_it_is_given() {
    let place = Place::new();
    let mut bytes = npy_head("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}");
    (0..6).for_each(|value| bytes.extend(f64::from(value).to_le_bytes()));
    let input = place.write("pos.npy", bytes);
    let vector = describe(&input, Format::Npy, &plain()).unwrap();
    assert_eq!((vector.field(0).name().as_str(), vector.fields().len()), ("pos", 1));
    let named = ReadOptions { columns: ["x", "y", "z"].map(str::to_owned).to_vec(), ..plain() };
    let found = Arc::new(describe(&input, Format::Npy, &named).unwrap());
    let rows = all(&read(&input, Format::Npy, &found, &named).unwrap(), &found);
    assert_eq!(rows.column(1).as_primitive::<Float64Type>().values(), &[1.0, 4.0]);
    let two = ReadOptions { columns: ["x", "y"].map(str::to_owned).to_vec(), ..plain() };
    assert!(describe(&input, Format::Npy, &two).is_err());
}
