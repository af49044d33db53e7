//! What is promised of files of text: records that are not what they should be.

use super::*;

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
        assert!(matches!(error, RowFileError::Torn { .. }), "{name}: {error}");
        assert!(error.to_string().contains(&format!("line {line}")), "{name}: {error}");
        // Once its line has an end, it is a bad record like any other.
        let parts = read(&place.write(name, format!("{text}{end}")), format, &wanted, &skipping).unwrap();
        assert_eq!((parts[0].rows.num_rows(), parts[0].end, parts[0].bad.len()), (1, 2, 1), "{name}");
        assert_eq!(parts[0].bad[0].line, line, "{name}");
    }
}
