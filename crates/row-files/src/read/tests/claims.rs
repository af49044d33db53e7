//! Tests of the places, the lengths and the end of Arrow files: a damaged one is an error.

use super::*;
use arrow_array::DictionaryArray;
use arrow_array::types::Int32Type;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, Footer, root_as_footer, root_as_message};

fn compressed(rows: &RecordBatch, compression: CompressionType, is_stream: bool) -> Vec<u8> {
    written(rows, Some(compression), is_stream)
}

fn written(rows: &RecordBatch, compression: Option<CompressionType>, is_stream: bool) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
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

fn footer_of(whole: &[u8]) -> Footer<'_> {
    let end = whole.len() - 10;
    let length = i32::from_le_bytes(whole[end..end + 4].try_into().unwrap());
    root_as_footer(&whole[end - usize::try_from(length).unwrap()..end]).unwrap()
}

/// A column of texts that are a dictionary: the file has blocks of both kinds.
fn texts_of_a_dictionary() -> (RecordBatch, SchemaRef) {
    let values: DictionaryArray<Int32Type> = ["one", "two", "one", "three"].into_iter().collect();
    let rows = RecordBatch::try_from_iter([("name", Arc::new(values) as ArrayRef)]).unwrap();
    (rows, schema(&[("name", DataType::Utf8, true)]))
}

#[test]
fn a_block_that_does_not_lie_in_the_file_is_an_error_and_no_panic() {
    let place = Place::new();
    let (rows, wanted) = texts_of_a_dictionary();
    let whole = written(&rows, None, false);
    let footer = footer_of(&whole);
    let blocks = footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().unwrap());
    let blocks: Vec<usize> = blocks.flat_map(|block| places(&whole, &block.0)).collect();
    assert!(blocks.len() >= 4, "{blocks:?}");
    let is_refused = |at: usize, bit: u8| {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << bit;
        let told = read(&place.write("a.arrow", &damaged), Format::Arrow, &wanted, &plain());
        let described = describe(&place.write("b.arrow", damaged), Format::Arrow, &plain());
        let kinds = [told.err(), described.err()].map(|error| error.map(|error| error.kind()));
        assert!(kinds.iter().flatten().all(|kind| *kind == atoll_errors::ErrorKind::Corrupt), "{kinds:?}");
        kinds[0].is_some()
    };
    for block in blocks {
        // A small change may lead to other bytes of the file, which are read or refused.
        for at in (block..block + 12).chain(block + 16..block + 24) {
            for bit in 0..8 {
                is_refused(at, bit);
            }
        }
        // The highest bytes of the offset, of the length of the message, and of that of the body.
        for at in [block + 7, block + 11, block + 23] {
            assert!((5..8).all(|bit| is_refused(at, bit)), "byte {} of a block", at - block);
        }
    }
}

#[test]
fn a_buffer_that_does_not_lie_in_its_block_is_an_error_and_no_panic() {
    let place = Place::new();
    let wanted = schema(&[("x", DataType::Int64, true)]);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));
    let rows = RecordBatch::try_new(Arc::clone(&wanted), vec![values]).unwrap();
    let whole = written(&rows, None, false);
    let block = *footer_of(&whole).recordBatches().unwrap().get(0);
    let at = usize::try_from(block.offset()).unwrap();
    // Behind a marker and its length.
    let message = root_as_message(&whole[at + 8..at + usize::try_from(block.metaDataLength()).unwrap()]);
    let batch = message.unwrap().header_as_record_batch().unwrap();
    let values = batch.buffers().unwrap().iter().next_back().unwrap();
    assert_eq!(values.length(), 8000);
    for is_stream in [false, true] {
        let whole = written(&rows, None, is_stream);
        let buffers = places(&whole, &values.0);
        assert_eq!(buffers.len(), 3, "stream: {is_stream}");
        // The offset of a buffer, and then its length: too large, far too large, and negative.
        let fields = buffers.into_iter().flat_map(|at| [at, at + 8]);
        for (at, bit) in fields.flat_map(|at| [(at + 2, 1), (at + 6, 5), (at + 7, 7)]) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let told = read(&place.write("a.arrow", damaged), Format::Arrow, &wanted, &plain());
            let kind = told.err().map(|error| error.kind());
            assert_eq!(kind, Some(atoll_errors::ErrorKind::Corrupt), "stream: {is_stream}, byte {at}");
        }
    }
}

/// A stream of this many batches of three rows, without the end mark of eight bytes.
fn unended(batches: usize) -> Vec<u8> {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let rows = RecordBatch::try_from_iter([("x", ids)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema()).unwrap();
    (0..batches).for_each(|_| writer.write(&rows).unwrap());
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(bytes.split_off(bytes.len() - END.len()), END);
    bytes
}

const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The rows that are read of a stream before it ends or fails, and how it fails.
fn rows_and_failure(bytes: &[u8]) -> (usize, Option<RowFileError>) {
    let place = Place::new();
    let input = place.write("a.arrows", bytes);
    let wanted = schema(&[("x", DataType::Int64, true)]);
    let mut reader = open(&input, Format::Arrow, &wanted, &plain()).unwrap();
    let mut rows = 0;
    loop {
        match reader.next(PARTS) {
            Ok(Some(part)) => rows += part.rows.num_rows(),
            Ok(None) => return (rows, None),
            Err(error) => return (rows, Some(error)),
        }
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_is_never_a_smaller_stream() {
    for batches in 0..3 {
        let (rows, failure) = rows_and_failure(&unended(batches));
        let failure = failure.unwrap();
        assert_eq!(rows, 3 * batches, "what lies before is good");
        assert!(matches!(failure, RowFileError::Torn { .. }), "{failure}");
        assert!(failure.to_string().contains("no end mark"), "{failure}");
    }
    let (schema_only, whole) = (unended(0).len(), [unended(3), END.to_vec()].concat());
    assert!(matches!(rows_and_failure(&whole), (9, None)));
    for cut in schema_only..whole.len() {
        let kind = rows_and_failure(&whole[..cut]).1.map(|failure| failure.kind());
        assert_eq!(kind, Some(atoll_errors::ErrorKind::Corrupt), "cut at {cut} of {}", whole.len());
    }
}

#[test]
fn a_stream_that_something_follows_is_an_error_and_an_old_end_mark_is_one() {
    let [one, two] = [unended(1), unended(2)].map(|stream| [stream, END.to_vec()].concat());
    for follows in [&two[..], &END[..], b"\n"] {
        let (rows, failure) = rows_and_failure(&[&one[..], follows].concat());
        let failure = failure.unwrap();
        assert_eq!(rows, 3);
        assert!(matches!(failure, RowFileError::Malformed { .. }), "{failure}");
        assert!(failure.to_string().contains("something follows the end of its stream"), "{failure}");
    }
    let old = [unended(1), vec![0; 4]].concat();
    assert!(matches!(rows_and_failure(&old), (3, None)));
    let failure = rows_and_failure(&[&old[..], &two[..]].concat()).1;
    assert!(matches!(failure, Some(RowFileError::Malformed { .. })), "{failure:?}");
}
