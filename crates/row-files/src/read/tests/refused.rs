//! Tests of intact files that are not supported: they are not reported as damaged.

use super::*;
use atoll_errors::ErrorKind;

/// The error of opening a file.
fn refusal(input: &Input, format: Format, options: &ReadOptions) -> (ErrorKind, String) {
    let error = describe(input, format, options).unwrap_err();
    (error.kind(), format!("{error} / {error:?}"))
}

fn npy(head: &str) -> Vec<u8> {
    let mut bytes = npy_head(head);
    bytes.resize(bytes.len() + 96, 0);
    bytes
}

#[test]
fn arrays_that_are_sound_and_are_no_columns_are_unsupported_and_say_how_to_save_them() {
    let place = Place::new();
    let cases = [
        ("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3)}", "ascontiguousarray"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "objects"),
        ("{'descr': '<c16', 'fortran_order': False, 'shape': (2,)}", "array.real"),
        ("{'descr': '<f2', 'fortran_order': False, 'shape': (2,)}", "astype"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 2)}", "reshape"),
    ];
    for (head, hint) in cases {
        let (kind, text) = refusal(&place.write("a.npy", npy(head)), Format::Npy, &plain());
        assert_eq!(kind, ErrorKind::Unsupported, "{head}: {text}");
        assert!(text.contains(hint), "{head}: {text}");
    }
    // A scalar has no length, and is not a column.
    let one = "{'descr': '<f8', 'fortran_order': False, 'shape': ()}";
    let (kind, text) = refusal(&place.write("a.npy", npy(one)), Format::Npy, &plain());
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    assert!(text.contains("a single value") && text.contains("numpy.full"), "{text}");
    assert!(!text.contains("len(array)"), "{text}");
    let (kind, _) = refusal(&place.write("a.npy", "\u{93}NUMPY"), Format::Npy, &plain());
    assert_eq!(kind, ErrorKind::Corrupt);
}

#[test]
fn names_that_do_not_fit_an_array_are_the_fault_of_who_gave_them() {
    let place = Place::new();
    let options = ReadOptions { columns: vec!["x".into(), "y".into(), "z".into()], ..plain() };
    let head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}";
    let (kind, text) = refusal(&place.write("a.npy", npy(head)), Format::Npy, &options);
    assert_eq!(kind, ErrorKind::InvalidInput, "{text}");
    assert!(text.contains("3 names for 1 column") && text.contains("--names"), "{text}");
    let (kind, text) = refusal(&place.write("b.npy", structures()), Format::Npy, &options);
    assert_eq!(kind, ErrorKind::InvalidInput, "{text}");
    assert!(text.contains("--rename"), "{text}");
}

#[test]
fn a_record_with_objects_within_is_unsupported() {
    let place = Place::new();
    let input = place.write("a.jsonl", "{\"pid\": 1, \"pos\": {\"x\": 1}}\n");
    let (kind, text) = refusal(&input, Format::JsonLines, &plain());
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    assert!(text.contains("\"pos\"") && text.contains("line 1"), "{text}");
    let (kind, _) = refusal(&place.write("b.jsonl", "nonsense\n"), Format::JsonLines, &plain());
    assert_eq!(kind, ErrorKind::Corrupt);
}

#[test]
fn a_parquet_file_with_a_compression_that_is_not_read_is_unsupported_from_the_start() {
    let place = Place::new();
    let input = parquet(&place, vec![("x", Arc::new(Int64Array::from(vec![1, 2])))]);
    let Input::File(path) = &input else { panic!() };
    let mut bytes = std::fs::read(path).unwrap();
    // In the footer, the name of a column directly precedes its compression; 4 is brotli.
    let codec = b"\x19\x18\x01x\x15";
    let at = bytes.windows(codec.len()).position(|window| window == codec).unwrap() + codec.len();
    bytes[at] = 4 << 1;
    std::fs::write(path, bytes).unwrap();
    let (kind, text) = refusal(&input, Format::Parquet, &plain());
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    assert!(text.contains("brotli") && text.contains("zstd"), "{text}");
}

#[test]
fn a_file_that_is_compressed_as_a_whole_is_known_by_how_it_begins() {
    let place = Place::new();
    let starts: [(&[u8], &str); 4] = [
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
        (b"\x28\xb5\x2f\xfd\0\0\0", "zstd"),
        (b"BZh91AY&SY", "bzip2"),
        (b"\xfd7zXZ\0\0", "xz"),
    ];
    for (start, name) in starts {
        for (option, format) in Format::ALL {
            let (kind, text) = refusal(&place.write("a", start), format, &plain());
            assert_eq!(kind, ErrorKind::Unsupported, "{name} as {option}: {text}");
            assert!(text.contains(name), "{name} as {option}: {text}");
        }
    }
    // Short files, and files that only resemble compressed ones.
    for text in ["a\n1\n", "BZh\n1\n", "\n"] {
        let found = describe(&place.write("a.csv", text), Format::Csv, &plain());
        assert!(!matches!(found, Err(RowFileError::Compressed { .. })), "{text:?}");
    }
}

#[test]
fn a_snapshot_that_a_restart_wrote_again_is_an_error_and_what_lies_before_it_is_good() {
    let place = Place::new();
    let again = DUMP.find("ITEM: TIMESTEP\n100").unwrap();
    let input =
        place.write("a.dump", format!("{DUMP}{}{}", &DUMP[again..], DUMP[again..].replace("100", "200")));
    let found = Arc::new(describe(&input, Format::LammpsDump, &plain()).unwrap());
    let mut reader = open(&input, Format::LammpsDump, &found, &plain()).unwrap();
    assert_eq!(reader.next(PARTS).unwrap().unwrap().rows.num_rows(), 3);
    let error = reader.next(PARTS).unwrap_err();
    assert!(error.to_string().contains("line 23: a second snapshot of step 100"), "{error}");
    // Either of the two may be cut out.
    assert_eq!(reader.failed_at(), Some(crate::FailedAt { record: 23, snapshot: 12 }));
    let both = ReadOptions { may_repeat_steps: true, ..plain() };
    let rows = all(&read(&input, Format::LammpsDump, &found, &both).unwrap(), &found);
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[0, 0, 100, 100, 200]);
}

#[test]
fn a_file_of_far_more_columns_than_a_table_has_is_unsupported() {
    let place = Place::new();
    let header = |columns: usize| {
        let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
        format!("{}\n{}\n", names.join(","), vec!["1"; columns].join(","))
    };
    let wide = describe(&place.write("a.csv", header(20_000)), Format::Csv, &plain()).unwrap();
    assert_eq!(wide.fields().len(), 20_000);
    assert!(wide.fields().iter().all(|field| field.data_type() == &DataType::Int64));
    let (kind, text) = refusal(&place.write("b.csv", header(40_000)), Format::Csv, &plain());
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    assert!(text.contains("40000 columns"), "{text}");
}
