//! Tests of the sizes in which Parquet files are decoded: what a dictionary makes small counts as what it is.

use super::*;
use crate::read::parquet_file;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

const BYTES_MAX: usize = 256 << 10;

/// A file of a running number and these texts, whose metadata has the sizes of the texts or not.
fn file_of(place: &Place, texts: &[&str], is_told: bool) -> Input {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let rows = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let statistics = if is_told { EnabledStatistics::Chunk } else { EnabledStatistics::None };
    let properties = WriterProperties::builder().set_statistics_enabled(statistics).build();
    let path = place.path("a.parquet");
    let target = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(target, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    Input::File(path)
}

/// The rows and the bytes of each batch, whose running numbers follow each other.
fn decoded(input: &Input, bytes_max: usize) -> Vec<(usize, usize)> {
    let mut batches = parquet_file::open(input, |_| true).unwrap().batches;
    let (mut sizes, mut next) = (Vec::new(), 0);
    while let Some(batch) = batches.next(bytes_max).unwrap() {
        let ids = batch.column(0).as_primitive::<Int64Type>().values();
        assert!(ids.iter().copied().eq(next..next + ids.len() as i64), "from row {next} on");
        next += ids.len() as i64;
        sizes.push((batch.num_rows(), crate::bytes_of(&batch)));
    }
    sizes
}

#[test]
fn texts_that_a_dictionary_makes_small_are_decoded_in_batches_of_what_they_take() {
    let place = Place::new();
    let long = "x".repeat(20_000);
    let texts = vec![long.as_str(); 1000];
    for is_told in [true, false] {
        let input = file_of(&place, &texts, is_told);
        assert!(input.bytes().unwrap() < 100_000, "the text is in the file once");
        let sizes = decoded(&input, BYTES_MAX);
        assert_eq!(sizes.iter().map(|(rows, _)| rows).sum::<usize>(), 1000);
        // Without the sizes, the first rows are a probe.
        let is_first_bounded = if is_told { sizes[0].1 <= BYTES_MAX } else { sizes[0].0 <= 64 };
        assert!(is_first_bounded, "{:?}", sizes[0]);
        let widest = sizes[1..].iter().map(|(_, bytes)| *bytes).max();
        assert!(widest.is_some_and(|bytes| bytes <= BYTES_MAX), "{widest:?}, told: {is_told}");
        // As many rows as fit, and not one by one.
        assert!(sizes.len() < 100, "{} batches, told: {is_told}", sizes.len());
    }
}

#[test]
fn long_texts_at_the_beginning_do_not_slow_down_the_rest_and_later_ones_are_noticed() {
    let place = Place::new();
    let long = "x".repeat(20_000);
    let mut texts = vec![long.as_str(); 64];
    texts.resize(4000, "y");
    let sizes = decoded(&file_of(&place, &texts, false), BYTES_MAX);
    assert_eq!(sizes.iter().map(|(rows, _)| rows).sum::<usize>(), 4000);
    assert!(sizes.len() <= 64 + 6, "{} batches", sizes.len());
    let mut texts = vec!["y"; 64];
    texts.resize(128, &long);
    texts.resize(8192, "y");
    texts.resize(9192, &long);
    let sizes = decoded(&file_of(&place, &texts, false), BYTES_MAX);
    assert_eq!(sizes.iter().map(|(rows, _)| rows).sum::<usize>(), 9192);
    let last = sizes.last().map(|(_, bytes)| *bytes);
    assert!(last.is_some_and(|bytes| bytes <= BYTES_MAX), "{last:?}");
}

#[test]
fn numbers_that_repeat_count_with_their_width() {
    let place = Place::new();
    let sevens: ArrayRef = Arc::new(Int64Array::from(vec![7; 20_000]));
    let input = parquet(&place, vec![("x", sevens)]);
    let mut batches = parquet_file::open(&input, |_| true).unwrap().batches;
    let mut rows = 0;
    while let Some(batch) = batches.next(16 << 10).unwrap() {
        // With some room for a bitmap of what is there.
        assert!(crate::bytes_of(&batch) <= 20 << 10, "{} rows", batch.num_rows());
        rows += batch.num_rows();
    }
    assert_eq!(rows, 20_000);
}
