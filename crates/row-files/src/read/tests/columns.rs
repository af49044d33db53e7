//! Tests of typed files: nothing of a value is lost.

use super::*;
use arrow_array::types::Date32Type;
use arrow_array::{Date32Array, Date64Array, TimestampMillisecondArray};
use parquet::arrow::ArrowWriter;
use std::collections::HashMap;

const DAY_MS: i64 = 86_400_000;

#[test]
fn a_day_with_a_time_of_day_is_no_day() {
    let place = Place::new();
    let wanted = schema(&[("d", DataType::Date32, false)]);
    let read_days = |days: Vec<i64>| {
        let rows =
            RecordBatch::try_from_iter([("d", Arc::new(Date64Array::from(days)) as ArrayRef)]).unwrap();
        let path = place.path("a.arrow");
        let target = Box::new(std::fs::File::create(&path).unwrap());
        let mut writer = writer(Format::Arrow, &rows.schema(), target, "a").unwrap();
        writer.write(&rows).unwrap();
        writer.finish().unwrap();
        read(&Input::File(path), Format::Arrow, &wanted, &plain())
    };
    let rows = all(&read_days(vec![DAY_MS, -DAY_MS, 0]).unwrap(), &wanted);
    assert_eq!(rows.column(0).as_primitive::<Date32Type>().values(), &[1, -1, 0]);
    for odd in [-1, 1, DAY_MS + 1, -DAY_MS - 1] {
        let error = read_days(vec![0, odd]).unwrap_err().to_string();
        assert!(error.contains("column \"d\""), "{odd}: {error}");
    }
}

/// A file of one column, read as a table wants it.
fn as_wanted(column: ArrayRef, wanted: &DataType) -> Result<ArrayRef, RowFileError> {
    let place = Place::new();
    let wanted = schema(&[("d", wanted.clone(), true)]);
    let input = parquet(&place, vec![("d", column)]);
    let parts = read(&input, Format::Parquet, &wanted, &plain())?;
    Ok(Arc::clone(all(&parts, &wanted).column(0)))
}

#[test]
fn days_are_the_instants_at_which_they_begin_and_these_are_days() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(1), None, Some(-1), Some(0)]));
    let units = [
        (TimeUnit::Second, 1),
        (TimeUnit::Millisecond, 1_000),
        (TimeUnit::Microsecond, 1_000_000),
        (TimeUnit::Nanosecond, 1_000_000_000),
    ];
    for (unit, per_second) in units {
        for zone in [None, Some("Europe/Berlin".into())] {
            let wanted = DataType::Timestamp(unit, zone.clone());
            let instants = as_wanted(Arc::clone(&days), &wanted).unwrap();
            assert_eq!(instants.data_type(), &wanted);
            let ticks = arrow_cast::cast(&instants, &DataType::Int64).unwrap();
            let day = 86_400 * per_second;
            assert_eq!(
                ticks.as_primitive::<Int64Type>(),
                &Int64Array::from(vec![Some(day), None, Some(-day), Some(0)])
            );
            assert_eq!(&as_wanted(instants, &DataType::Date32).unwrap(), &days, "{wanted}");
        }
    }
}

#[test]
fn a_day_that_a_unit_does_not_hold_is_no_instant_and_a_time_of_day_no_day() {
    let ns = DataType::Timestamp(TimeUnit::Nanosecond, None);
    for beyond in [106_752, -106_752, i32::MAX] {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![0, beyond]));
        let error = as_wanted(Arc::clone(&days), &ns).unwrap_err().to_string();
        assert!(error.contains("column \"d\"") && error.contains("is not exactly timestamp(ns)"), "{error}");
        assert!(as_wanted(days, &DataType::Timestamp(TimeUnit::Millisecond, None)).is_ok(), "{beyond}");
    }
    for odd in [1, -1, DAY_MS + 1, -DAY_MS - 1, i64::MAX, i64::MIN, DAY_MS * (i64::from(i32::MAX) + 1)] {
        let instants: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, odd]));
        let error = as_wanted(instants, &DataType::Date32).unwrap_err().to_string();
        assert!(error.contains("column \"d\"") && error.contains("is not exactly date32"), "{odd}: {error}");
    }
}

#[test]
fn rows_that_are_wide_are_read_as_many_at_a_time_as_a_part_may_hold() {
    let place = Place::new();
    // 100,000 rows of half a MiB each, of which four exist.
    let mut bytes = npy_head("{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 65536)}");
    bytes.resize(bytes.len() + 4 * 8 * 65_536, 0);
    let input = place.write("v.npy", bytes);
    let wanted = Arc::new(describe(&input, Format::Npy, &plain()).unwrap());
    let mut reader = open(&input, Format::Npy, &wanted, &plain()).unwrap();
    let limits = PartLimits { rows: usize::MAX, bytes: 1 << 20 };
    let mut rows = 0;
    let error = loop {
        match reader.next(limits) {
            Ok(part) => rows += part.unwrap().rows.num_rows(),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("99996 rows of 100000 are missing"), "{error}");
    assert_eq!(rows, 4);
}

/// A Parquet file with one column of instants as Spark and Impala write them: a Julian day, and nanoseconds
/// of the day.
fn int96(place: &Place, instants: &[(u32, u64)]) -> Input {
    use parquet::data_type::{Int96, Int96Type};
    use parquet::file::writer::SerializedFileWriter;
    let schema = parquet::schema::parser::parse_message_type("message m { required int96 t; }").unwrap();
    let path = place.path("a.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let values: Vec<Int96> = instants
        .iter()
        .map(|&(day, nanoseconds)| {
            let mut value = Int96::new();
            value.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, day);
            value
        })
        .collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    Input::File(path)
}

#[test]
fn an_instant_that_nanoseconds_do_not_hold_is_refused_and_becomes_no_other_one() {
    const EPOCH: u32 = 2_440_588;
    let place = Place::new();
    let noon = 12 * 3_600 * 1_000_000_000;
    for unit in [TimeUnit::Nanosecond, TimeUnit::Second] {
        let wanted = schema(&[("t", DataType::Timestamp(unit, None), true)]);
        let input = int96(&place, &[(EPOCH, noon), (EPOCH + 20_000, 0), (EPOCH - 20_000, noon)]);
        let rows = all(&read(&input, Format::Parquet, &wanted, &plain()).unwrap(), &wanted);
        assert_eq!(rows.num_rows(), 3);
        if unit == TimeUnit::Nanosecond {
            // Before 1970, Arrow counts backwards from the following day.
            let half_before = int96(&place, &[(EPOCH, (-500_000_000_i64) as u64)]);
            assert!(read(&half_before, Format::Parquet, &wanted, &plain()).is_ok());
        }
        // The last day of the year 9999, and the first of the year 1.
        for day in [EPOCH + 2_932_896, EPOCH - 719_162] {
            let input = int96(&place, &[(EPOCH, 0), (day, noon)]);
            let error = read(&input, Format::Parquet, &wanted, &plain()).unwrap_err().to_string();
            assert!(error.contains("column \"t\"") && error.contains("1677"), "{error}");
            // A caller that does not want the column is not bothered by it.
            let other = schema(&[("u", DataType::Int64, true)]);
            let passing = ReadOptions { ignore_extra: true, ..plain() };
            assert!(read(&input, Format::Parquet, &other, &passing).is_ok());
        }
    }
}

#[test]
fn names_for_arrays_that_have_their_own_are_refused() {
    let place = Place::new();
    let options = ReadOptions { columns: ["a", "b", "c", "d"].map(str::to_owned).to_vec(), ..plain() };
    let input = place.write("a.npy", structures());
    let error = describe(&input, Format::Npy, &options).unwrap_err().to_string();
    assert!(error.contains("names of their own"), "{error}");
    let input = place.write("a.npz", archive(&["x", "y"]));
    assert_eq!(describe(&input, Format::Npz, &plain()).unwrap().fields().len(), 2);
    let error = describe(&input, Format::Npz, &options).unwrap_err().to_string();
    assert!(error.contains("names of their own"), "{error}");
}

/// An archive of arrays of one number each.
fn archive(names: &[&str]) -> Vec<u8> {
    let mut array = npy_head("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}");
    array.extend(0.5_f64.to_le_bytes());
    archive_of(names, &array)
}

/// An archive with the same array under each name, stored uncompressed, as NumPy writes it.
fn archive_of(names: &[&str], array: &[u8]) -> Vec<u8> {
    let mut checksum = flate2::Crc::new();
    checksum.update(array);
    let length = (array.len() as u32).to_le_bytes();
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for name in names {
        let name = format!("{name}.npy");
        let offset = (bytes.len() as u32).to_le_bytes();
        // Version, flags, method, time, date; then checksum, lengths, and the lengths of the name and of the
        // extra field.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        common.extend(checksum.sum().to_le_bytes());
        common.extend([length, length].concat());
        common.extend([name.len() as u8, 0, 0, 0]);
        bytes.extend([b"PK\x03\x04".as_slice(), &common, name.as_bytes(), array].concat());
        directory
            .extend([b"PK\x01\x02\x14\x00".as_slice(), &common, &[0; 10], &offset, name.as_bytes()].concat());
    }
    let place = (bytes.len() as u32).to_le_bytes();
    let count = (names.len() as u16).to_le_bytes();
    let end =
        [&[0; 4], &count[..], &count, &(directory.len() as u32).to_le_bytes(), &place, &[0; 2]].concat();
    [bytes.as_slice(), &directory, b"PK\x05\x06", &end].concat()
}

#[test]
fn an_archive_of_many_arrays_is_read_through_one_file() {
    let place = Place::new();
    let names: Vec<String> = (0..1000).map(|number| format!("x{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let input = place.write("many.npz", archive(&names));
    let wanted = Arc::new(describe(&input, Format::Npz, &plain()).unwrap());
    let mut reader = open(&input, Format::Npz, &wanted, &plain()).unwrap();
    let path = std::fs::canonicalize(place.path("many.npz")).unwrap();
    // Where the system shows which files a process has open.
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        let opened = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        assert_eq!(opened.filter(|opened| *opened == path).count(), 1);
    }
    let part = reader.next(PARTS).unwrap().unwrap();
    assert_eq!((part.rows.num_rows(), part.rows.num_columns()), (1, 1000));
    assert!((0..1000).all(|place| part.rows.column(place).as_primitive::<Float64Type>().value(0) == 0.5));
    assert!(reader.next(PARTS).unwrap().is_none());
    let many: Vec<String> = (0..5000).map(|number| format!("x{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = describe(&place.write("more.npz", archive(&many)), Format::Npz, &plain()).unwrap_err();
    assert!(error.to_string().contains("more than 4096 arrays"), "{error}");
}

#[test]
fn a_row_of_all_arrays_of_an_archive_is_bounded_before_any_of_it_is_read() {
    let place = Place::new();
    let names: Vec<String> = (0..129).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Half a MiB for a row of each array, of which none exists.
    let array = npy_head("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 65536)}");
    let input = place.write("v.npz", archive_of(&names, &array));
    let error = describe(&input, Format::Npz, &plain()).unwrap_err();
    assert!(error.to_string().contains("a row of all its arrays has 67633152 bytes"), "{error}");
    let input = place.write("v.npz", archive_of(&names[..128], &array));
    assert_eq!(describe(&input, Format::Npz, &plain()).unwrap().fields().len(), 128);
}

#[test]
fn an_archive_whose_directory_is_damaged_anywhere_never_has_fewer_columns() {
    let place = Place::new();
    let whole = archive(&["x", "y", "z"]);
    let start = whole.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    for at in start..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        if let Ok(found) = describe(&place.write("a.npz", damaged), Format::Npz, &plain()) {
            // A name may have another letter, and some bytes are ignored.
            assert_eq!(found.fields().len(), 3, "byte {at}: {found:?}");
        }
    }
}

#[test]
fn rows_of_a_parquet_file_are_decoded_as_many_at_a_time_as_a_part_may_hold() {
    let place = Place::new();
    let texts: Vec<String> = (0..2000).map(|row| format!("{row:08}").repeat(1 << 10)).collect();
    let input = parquet(&place, vec![("text", Arc::new(StringArray::from(texts)))]);
    let mut source = parquet_file::open(&input, |_| true).unwrap();
    let mut rows = 0;
    while let Some(batch) = source.batches.next(1 << 20).unwrap() {
        // 8 KiB each.
        rows += batch.num_rows();
        let expected = if rows < 2000 { 100..=128 } else { 1..=128 };
        assert!(expected.contains(&batch.num_rows()), "{} rows", batch.num_rows());
    }
    assert_eq!(rows, 2000);
}

#[test]
fn one_wide_row_of_a_parquet_file_does_not_make_all_others_slow() {
    let place = Place::new();
    let rows = |texts: Vec<String>| {
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        RecordBatch::try_from_iter([("text", texts)]).unwrap()
    };
    let path = place.path("wide.parquet");
    let narrow = rows((0..20_000).map(|row| row.to_string()).collect());
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), narrow.schema(), None).unwrap();
    writer.write(&narrow).unwrap();
    writer.flush().unwrap();
    writer.write(&rows(vec!["wide".repeat(1 << 19)])).unwrap();
    writer.close().unwrap();
    // The wide row has 2 MiB, so the second limit is smaller than this row alone.
    for bytes_max in [8 << 20, 1 << 20] {
        let mut source = parquet_file::open(&Input::File(path.clone()), |_| true).unwrap();
        let first = source.batches.next(bytes_max).unwrap().unwrap();
        assert_eq!(first.num_rows(), 8192, "of {bytes_max} bytes");
    }
}

#[test]
fn a_table_does_not_note_the_extension_type_that_a_file_has() {
    let place = Place::new();
    let own = ("unit".to_owned(), "month".to_owned());
    let notes = [("ARROW:extension:name", "pandas.period"), ("ARROW:extension:metadata", "{}")];
    let notes = notes.map(|(key, text)| (key.to_owned(), text.to_owned())).into_iter().chain([own.clone()]);
    let notes: HashMap<String, String> = notes.collect();
    let field = Field::new("when", DataType::Int64, true).with_metadata(notes);
    let months: ArrayRef = Arc::new(Int64Array::from(vec![672, 673]));
    let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![months]).unwrap();
    let mut arrow = Vec::new();
    {
        let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut arrow, &rows.schema()).unwrap();
        writer.write(&rows).unwrap();
        writer.finish().unwrap();
    }
    let mut parquet = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut parquet, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    for (bytes, format) in [(arrow, Format::Arrow), (parquet, Format::Parquet)] {
        let described = describe(&place.write("a.file", bytes), format, &plain()).unwrap();
        let kept: Vec<_> = described.field(0).metadata().iter().collect();
        assert_eq!(kept, [(&own.0, &own.1)], "{format:?}");
    }
}
