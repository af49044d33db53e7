//! Tests of compressed Arrow files: a damaged length of a buffer is an error.

use super::*;
use arrow_array::DictionaryArray;
use arrow_array::types::Int32Type;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

fn compressed(rows: &RecordBatch, compression: CompressionType, is_stream: bool) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(Some(compression)).unwrap();
    let mut bytes = Vec::new();
    if is_stream {
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &rows.schema(), options).unwrap();
        (0..3).for_each(|_| writer.write(rows).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &rows.schema(), options).unwrap();
        (0..3).for_each(|_| writer.write(rows).unwrap());
        writer.finish().unwrap();
    }
    bytes
}

fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    (0..bytes.len() - wanted.len()).filter(|place| bytes[*place..].starts_with(wanted)).collect()
}

#[test]
fn a_length_before_a_buffer_that_was_damaged_is_an_error_and_ends_no_process() {
    let place = Place::new();
    let wanted = schema(&[("x", DataType::Int64, true)]);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));
    let rows = RecordBatch::try_new(Arc::clone(&wanted), vec![values]).unwrap();
    for (compression, is_stream) in [
        (CompressionType::LZ4_FRAME, false),
        (CompressionType::LZ4_FRAME, true),
        (CompressionType::ZSTD, false),
        (CompressionType::ZSTD, true),
    ] {
        let whole = compressed(&rows, compression, is_stream);
        let lengths = places(&whole, &8000_i64.to_le_bytes());
        assert_eq!(lengths.len(), 3, "{compression:?}, stream: {is_stream}");
        for at in lengths {
            // With the header of the frame after it, which may hold the length of the content, and without.
            for (byte, is_headless) in (3..8).flat_map(|byte| [(byte, false), (byte, true)]) {
                let mut damaged = whole.clone();
                damaged[at + byte] ^= 0x40;
                if is_headless {
                    damaged[at + 8..at + 12].fill(0);
                }
                let told = read(&place.write("a.arrow", damaged), Format::Arrow, &wanted, &plain());
                let kind = told.unwrap_err().kind();
                assert_eq!(kind, atoll_errors::ErrorKind::Corrupt, "{compression:?}, {is_stream}, {byte}");
            }
        }
    }
}

#[test]
fn the_lengths_of_dictionaries_are_looked_at_too() {
    let place = Place::new();
    let values = (0..200).map(|row| format!("{:0200}", row % 20));
    let values: DictionaryArray<Int32Type> = values.collect::<Vec<_>>().iter().map(String::as_str).collect();
    let rows = RecordBatch::try_from_iter([("name", Arc::new(values) as ArrayRef)]).unwrap();
    let wanted = schema(&[("name", DataType::Utf8, true)]);
    for is_stream in [false, true] {
        let whole = compressed(&rows, CompressionType::LZ4_FRAME, is_stream);
        let sound = read(&place.write("a.arrow", &whole), Format::Arrow, &wanted, &plain()).unwrap();
        assert_eq!(all(&sound, &wanted).num_rows(), 600);
        // The same number is also the end of the offsets.
        let damaged = places(&whole, &4000_i64.to_le_bytes()).into_iter().map(|at| {
            let mut damaged = whole.clone();
            damaged[at + 5] ^= 0x40;
            read(&place.write("a.arrow", damaged), Format::Arrow, &wanted, &plain())
        });
        let told: Vec<String> = damaged.filter_map(|read| Some(read.err()?.to_string())).collect();
        assert!(told.iter().any(|told| told.contains("bytes of LZ4")), "stream: {is_stream}: {told:?}");
    }
}

#[test]
fn what_lz4_makes_as_small_as_it_can_is_read() {
    let place = Place::new();
    let wanted = schema(&[("x", DataType::Int64, true)]);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![0; 1 << 20]));
    let rows = RecordBatch::try_new(Arc::clone(&wanted), vec![values]).unwrap();
    for is_stream in [false, true] {
        let whole = compressed(&rows, CompressionType::LZ4_FRAME, is_stream);
        assert!(whole.len() < 3 * (8 << 20) / 200, "{} bytes", whole.len());
        let input = place.write("a.arrow", whole);
        let mut reader = open(&input, Format::Arrow, &wanted, &plain()).unwrap();
        let (mut count, limits) = (0, PartLimits { rows: 1 << 20, bytes: 64 << 20 });
        while let Some(part) = reader.next(limits).unwrap() {
            count += part.rows.num_rows();
        }
        assert_eq!(count, 3 << 20);
    }
}
