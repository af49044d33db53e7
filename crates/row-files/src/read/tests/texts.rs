//! Tests of text files with bad records.

use super::*;
use arrow_array::types::Int32Type;

#[test]
fn a_bad_record_that_has_no_end_may_still_be_written_and_is_never_passed_over() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("x", DataType::Float64, true)]);
    let skipping = ReadOptions { skip_bad: 9, ..plain() };
    let cases = [
        (Format::JsonLines, "a.jsonl", "{\"id\":1,\"x\":2}\n{\"id\":2,\"x\":0.", "\n", 2),
        (Format::Csv, "a.csv", "id,x\n1,2\n3", "\n", 3),
        (Format::Csv, "b.csv", "id,x\r\n1,2\r\n3", "\r\n", 3),
        (Format::Csv, "c.csv", "id,x\n1,2\n3,0.5x", "\r", 3),
    ];
    for (format, name, text, end, line) in cases {
        let mut reader = open(&place.write(name, text), format, &wanted, &skipping).unwrap();
        let good = reader.next(PARTS).unwrap().unwrap();
        assert_eq!((good.rows.num_rows(), good.end, good.bad.len()), (1, 1, 0), "{name}");
        let error = reader.next(PARTS).unwrap_err();
        assert!(matches!(error, RowFileError::Record { number, .. } if number == line), "{name}: {error}");
        assert!(error.to_string().contains("has no end"), "{name}: {error}");
        // Once its line has an end, it is a bad record like any other.
        let parts = read(&place.write(name, format!("{text}{end}")), format, &wanted, &skipping).unwrap();
        assert_eq!((parts[0].rows.num_rows(), parts[0].end, parts[0].bad.len()), (1, 2, 1), "{name}");
        assert_eq!(parts[0].bad[0].line, line, "{name}");
    }
}

#[test]
fn bad_records_are_told_some_at_a_time_however_many_follow_each_other() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("x", DataType::Float64, true)]);
    let input = place.write("a.csv", format!("id,x\n{}7,0.5\n", "1,2,3\n".repeat(1000)));
    let parts = read(&input, Format::Csv, &wanted, &ReadOptions { skip_bad: 5000, ..plain() }).unwrap();
    assert!(parts.iter().all(|part| part.bad.len() <= PARTS.rows), "{}", parts[0].bad.len());
    assert_eq!(parts.iter().map(|part| part.bad.len()).sum::<usize>(), 1000);
    assert!(parts.iter().flat_map(|part| &part.bad).map(|bad| bad.line).eq(2..1002));
    assert_eq!((all(&parts, &wanted).num_rows(), parts.last().unwrap().end), (1, 1001));
}

fn vector(item_nullable: bool) -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float64, item_nullable)), 2)
}

#[test]
fn a_list_of_another_length_than_the_vector_is_a_bad_record() {
    let place = Place::new();
    for (nullable, ignore_extra) in [(false, false), (true, false), (false, true), (true, true)] {
        let wanted = schema(&[("id", DataType::Int64, false), ("v", vector(nullable), nullable)]);
        let options = ReadOptions { skip_bad: 9, ignore_extra, ..plain() };
        let bad = ["[1]", "[]", "[1,2,3]"].map(|list| format!("{{\"id\":2,\"v\":{list}}}\n"));
        let good = "{\"id\":1,\"v\":[1,2]}\n";
        for text in [bad.concat() + good, good.repeat(1200) + &bad.concat()] {
            let input = place.write("a.jsonl", &text);
            let parts = read(&input, Format::JsonLines, &wanted, &options).unwrap();
            let problems: Vec<_> = parts.iter().flat_map(|part| &part.bad).collect();
            assert_eq!(problems.len(), 3, "{nullable} {ignore_extra}: {problems:?}");
            assert!(problems[0].problem.contains("\"v\" is a list of 1, but a vector of 2"), "{problems:?}");
            assert!(
                all(&parts, &wanted).column(0).as_primitive::<Int64Type>().iter().all(|id| id == Some(1))
            );
        }
    }
}

#[test]
fn a_vector_that_is_missing_where_one_must_be_is_a_bad_record_even_if_its_elements_may_be() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("v", vector(true), false)]);
    let input = place.write("a.jsonl", "{\"id\":1,\"v\":[1,null]}\n{\"id\":2}\n{\"id\":3,\"v\":null}\n");
    let options = ReadOptions { skip_bad: 9, ..plain() };
    let parts = read(&input, Format::JsonLines, &wanted, &options).unwrap();
    assert_eq!(parts[0].bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(parts[0].rows.num_rows(), 1);
}

#[test]
fn a_vector_of_another_length_is_refused_whatever_may_be_passed_over() {
    let place = Place::new();
    let options = ReadOptions { ignore_extra: true, ..plain() };
    let wanted = schema(&[("id", DataType::Int64, false), ("v", vector(false), true)]);
    for text in ["id,v[0],v[1],v[2]\n1,2,3,4\n", "id,v[0]\n1,2\n"] {
        let input = place.write("a.csv", text);
        let error = read(&input, Format::Csv, &wanted, &options).unwrap_err();
        assert!(matches!(&error, RowFileError::Type { column, .. } if column == "v"), "{error}");
    }
    let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let input = parquet(&place, ["id", "v[0]", "v[1]", "v[2]"].map(|name| (name, column())).to_vec());
    let error = read(&input, Format::Parquet, &wanted, &options).unwrap_err();
    assert!(error.to_string().contains("a vector of 3 elements"), "{error}");
}

#[test]
fn a_wanted_member_that_comes_late_is_not_passed_over() {
    let place = Place::new();
    let options = ReadOptions { ignore_extra: true, ..plain() };
    let wanted =
        schema(&[("id", DataType::Int64, false), ("x", DataType::Int64, true), ("v", vector(false), true)]);
    let first = "{\"id\":1}\n".repeat(1000);
    let lates = [("\"x\":5", true), ("\"v\":[1,2]", true), ("\"x\":null", false), ("\"y\":5", false)];
    for (late, is_wanted) in lates {
        let input = place.write("a.jsonl", format!("{first}{{\"id\":2,{late}}}\n"));
        let result = read(&input, Format::JsonLines, &wanted, &options);
        assert_eq!(result.is_err(), is_wanted, "{late}");
    }
}

#[test]
fn a_vector_is_called_otherwise_with_all_its_elements() {
    let place = Place::new();
    let options = ReadOptions { rename: vec![("pos".to_owned(), "v".to_owned())], ..plain() };
    let wanted = schema(&[("id", DataType::Int64, false), ("v", vector(false), false)]);
    let late = "{\"id\":1,\"pos\":null}\n".repeat(1000) + "{\"id\":1,\"pos\":[2,3]}\n";
    let nullable = schema(&[("id", DataType::Int64, false), ("v", vector(false), true)]);
    let cases = [
        (Format::Csv, "a.csv", "id,pos[0],pos[1]\n1,2,3\n", &wanted),
        (Format::JsonLines, "a.jsonl", "{\"id\":1,\"pos\":[2,3]}\n", &wanted),
        (Format::JsonLines, "b.jsonl", &late, &nullable),
    ];
    for (format, name, text, wanted) in cases {
        let input = place.write(name, text);
        let rows = all(&read(&input, format, wanted, &options).unwrap(), wanted);
        let last = rows.column(1).as_fixed_size_list().value(rows.num_rows() - 1);
        assert_eq!(last.as_primitive::<Float64Type>().values(), &[2.0, 3.0], "{name}");
    }
}

#[test]
fn what_is_no_number_in_full_is_guessed_to_be_a_text() {
    let place = Place::new();
    let of = |format: Format, name: &str, text: &str| {
        let found = describe(&place.write(name, text), format, &plain()).unwrap();
        found.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    let (int, uint, float, text) = (DataType::Int64, DataType::UInt64, DataType::Float64, DataType::Utf8);
    let columns = [
        (["007", "7"], &text),
        (["-07", "7"], &text),
        (["0", "-0"], &int),
        (["+5", "10"], &int),
        (["0.5", "00.5"], &float),
        (["12345678901234567890", "1"], &uint),
        (["123456789012345678901", "1"], &text),
        (["-1", "9223372036854775808"], &float),
        (["-1", "9223372036854775809"], &text),
        (["1e300", "-1"], &float),
        (["3.0", "4.0"], &float),
        (["3", "4.0"], &float),
        (["3e2", "4"], &float),
        (["9007199254740993", "0.5"], &text),
    ];
    for (cells, expected) in columns {
        let csv = format!("a,b\n{},x\n{},x\n", cells[0], cells[1]);
        assert_eq!(&of(Format::Csv, "a.csv", &csv)[0], expected, "{cells:?}");
    }
    let json = "{\"id\":\"7\",\"x\":\"NaN\",\"n\":7,\"d\":\"2026-01-01\",\"b\":\"true\"}\n\
                {\"id\":\"8\",\"x\":1.5,\"n\":8,\"d\":\"2026-01-02\",\"b\":\"false\"}\n";
    let found = of(Format::JsonLines, "a.jsonl", json);
    assert_eq!(found, [text.clone(), float, int, DataType::Date32, text.clone()]);
    let long = "{\"id\":123456789012345678901}\n{\"id\":1}\n";
    assert_eq!(of(Format::JsonLines, "long.jsonl", long), [text]);
}

#[test]
fn a_number_of_json_is_kept_as_it_stands_where_a_text_is_wanted() {
    let place = Place::new();
    let input = place.write("a.jsonl", "{\"id\": 123456789012345678901}\n{\"id\":1.10}\n{\"id\" : 2e3 }\n");
    let wanted = schema(&[("id", DataType::Utf8, false)]);
    let rows = all(&read(&input, Format::JsonLines, &wanted, &plain()).unwrap(), &wanted);
    let texts: Vec<_> = rows.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(texts, ["123456789012345678901", "1.10", "2e3"]);
}

#[test]
fn a_whole_number_that_is_written_as_a_float_is_taken_and_any_other_one_is_a_bad_record() {
    let place = Place::new();
    let pair = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, false)), 2);
    let wanted = schema(&[("id", DataType::Int64, false), ("v", pair, false)]);
    let options = ReadOptions { skip_bad: 9, ..plain() };
    let dump = "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n3\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\n\
                ITEM: ATOMS id v[0] v[1]\n3.0 1 2\n3.5 1 2\n3e2 1.0 -2.0\n";
    let cases = [
        (Format::Csv, "a.csv", "id,v[0],v[1]\n3.0,1,2\n3.5,1,2\n3e2,1.0,-2.0\n", 3),
        (
            Format::JsonLines,
            "a.jsonl",
            "{\"id\":3.0,\"v\":[1,2]}\n{\"id\":3.5,\"v\":[1,2]}\n{\"id\":3e2,\"v\":[1.0,-2.0]}\n",
            2,
        ),
        (Format::LammpsDump, "a.dump", dump, 11),
    ];
    for (format, name, text, line) in cases {
        let options = ReadOptions { ignore_extra: format == Format::LammpsDump, ..options.clone() };
        let parts = read(&place.write(name, text), format, &wanted, &options).unwrap();
        let bad: Vec<_> = parts.iter().flat_map(|part| &part.bad).collect();
        assert!(matches!(bad[..], [bad] if bad.line == line), "{name}: {bad:?}");
        assert!(bad[0].problem.contains("column \"id\": \"3.5\" is not an int64"), "{name}: {bad:?}");
        let rows = all(&parts, &wanted);
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[3, 300], "{name}");
        let elements = rows.column(1).as_fixed_size_list().values();
        assert_eq!(elements.as_primitive::<Int32Type>().values(), &[1, 2, 1, -2], "{name}");
    }
}

#[test]
fn a_member_that_is_there_twice_is_a_bad_record() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("x", DataType::Int64, true)]);
    let options = ReadOptions { skip_bad: 9, ..plain() };
    let text = "{\"id\":1,\"x\":1}\n{\"id\":2,\"x\":1,\"x\":2}\n{\"id\":3,\"x\":4}\n[1]\n{\"id\":5} {}\n";
    let parts = read(&place.write("a.jsonl", text), Format::JsonLines, &wanted, &options).unwrap();
    assert_eq!(parts[0].bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 4, 5]);
    assert!(parts[0].bad[0].problem.contains("\"x\" is there twice"), "{:?}", parts[0].bad);
    assert_eq!(all(&parts, &wanted).column(0).as_primitive::<Int64Type>().values(), &[1, 3]);
}

#[test]
fn a_column_that_is_renamed_and_not_there_is_told_in_every_format() {
    let place = Place::new();
    let wanted = schema(&[("id", DataType::Int64, false), ("x", DataType::Int64, true)]);
    let rename = vec![("y".to_owned(), "x".to_owned())];
    let options = ReadOptions { rename, ignore_extra: true, ..plain() };
    let ids = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let inputs = [
        (Format::Csv, place.write("a.csv", "id,z\n1,2\n")),
        (Format::JsonLines, place.write("a.jsonl", "{\"id\":1,\"z\":2}\n")),
        (Format::Parquet, parquet(&place, vec![("id", ids()), ("z", ids())])),
    ];
    for (format, input) in inputs {
        let error = read(&input, format, &wanted, &options).unwrap_err().to_string();
        assert!(error.contains("no column \"y\""), "{format}: {error}");
        assert!(describe(&input, format, &options).is_err(), "{format}");
    }
}

#[test]
fn a_dump_that_is_being_written_has_the_columns_of_what_is_there() {
    let place = Place::new();
    let whole = describe(&place.write("whole.dump", DUMP), Format::LammpsDump, &plain()).unwrap();
    let first_atom = DUMP.find("2 1 0.25 H \n").unwrap() + "2 1 0.25 H \n".len();
    for cut in first_atom..DUMP.len() {
        let input = place.write("cut.dump", &DUMP[..cut]);
        assert_eq!(describe(&input, Format::LammpsDump, &plain()).unwrap(), whole, "cut at {cut}");
    }
    assert!(
        describe(&place.write("cut.dump", &DUMP[..first_atom - 1]), Format::LammpsDump, &plain()).is_err()
    );
}

#[test]
fn a_quote_that_is_never_closed_tells_no_columns() {
    let place = Place::new();
    let text = format!("id,x\n1,2\n2,\"3\n{}", "4,five\n".repeat(20));
    let error = describe(&place.write("a.csv", text), Format::Csv, &plain()).unwrap_err();
    assert!(error.to_string().contains("begins on line 3 ends within quotes"), "{error}");
}

#[test]
fn records_of_too_few_or_too_many_fields_decide_no_type() {
    let place = Place::new();
    let types = |name: &str, format: Format, text: &str| {
        let found = describe(&place.write(name, text), format, &plain()).unwrap();
        found.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    let csv = "id,x,name\n1,0.5,a\nlost,b\n2,1.5,c,d\nx,y,z,z\n3,2.5,e\n";
    assert_eq!(types("a.csv", Format::Csv, csv), [DataType::Int64, DataType::Float64, DataType::Utf8]);
    let dump = DUMP.replace("1 1 0.5 O \n", "O 1 0.5 \n");
    let whole = types("whole.dump", Format::LammpsDump, DUMP);
    assert_eq!(types("short.dump", Format::LammpsDump, &dump), whole);
    // A record of the right length decides, whatever it is.
    let csv = "id,x\n1,0.5\nlost,b\n";
    assert_eq!(types("b.csv", Format::Csv, csv), [DataType::Utf8, DataType::Utf8]);
}
