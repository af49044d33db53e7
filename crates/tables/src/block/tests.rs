//! Blocks against plain sorting and filtering of the same rows.

use super::*;
use crate::lattice::{Interval, Region, Scalar};
use crate::seeds::for_seeds;
use crate::weight::{Cut, Window, order, weights};
use crate::{Roles, Salt, TableSchema, Weight, column};
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int32Array,
    Int64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt8Array, UInt32Array,
};
use arrow_schema::{Field, Schema, TimeUnit};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use std::sync::Arc;

fn schema() -> TableSchema {
    let element = Arc::new(Field::new("item", DataType::Float32, true));
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float64, true),
        column("time", DataType::Timestamp(TimeUnit::Nanosecond, None), true),
        column("kind", DataType::UInt8, false),
        column("name", DataType::Utf8, true),
        column("raw", DataType::Binary, false),
        column("alive", DataType::Boolean, true),
        column("day", DataType::Date32, false),
        column("pos", DataType::FixedSizeList(element, 3), true),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles {
        id: names(&["pid", "step"]),
        sample_key: names(&["pid"]),
        index: names(&["x", "time", "kind"]),
        salt: 5,
    };
    TableSchema::new(columns, &roles).unwrap()
}

/// Rows of all types, with nulls, NaN and infinities, several for each entity, and in no order.
fn rows(random: &mut fastrand::Rng, count: usize) -> RecordBatch {
    let entities = (count as i64 / 7).max(1);
    let mut ids: Vec<i64> = (0..count as i64).collect();
    random.shuffle(&mut ids);
    let pid: Int64Array = ids.iter().map(|id| id % entities).collect::<Vec<_>>().into();
    let step: Int64Array = ids.iter().map(|id| id / entities).collect::<Vec<_>>().into();
    let mut maybe = |share: u8| random.u8(..100) >= share;
    let present: Vec<bool> = (0..count).map(|_| maybe(5)).collect();
    let x: Float64Array = present
        .iter()
        .map(|&is_there| {
            is_there.then(|| match random.u8(..50) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                _ => random.f64() * 100.0 - 50.0,
            })
        })
        .collect();
    let time: TimestampNanosecondArray =
        present.iter().map(|&is_there| is_there.then(|| random.i64(..1_000_000_000))).collect();
    let kind: UInt8Array = (0..count).map(|_| random.u8(..4)).collect::<Vec<_>>().into();
    let text = |random: &mut fastrand::Rng| "é".repeat(random.usize(..9));
    let name: StringArray = present.iter().map(|&is_there| is_there.then(|| text(random))).collect();
    let raw: BinaryArray = (0..count).map(|_| Some(vec![random.u8(..); random.usize(..12)])).collect();
    let alive: BooleanArray = present.iter().map(|&is_there| is_there.then(|| random.bool())).collect();
    let day: Date32Array = (0..count).map(|_| random.i32(..)).collect::<Vec<_>>().into();
    let mut pos = FixedSizeListBuilder::new(Float32Builder::new(), 3);
    for &is_there in &present {
        for _ in 0..3 {
            pos.values().append_option((random.u8(..10) > 0).then(|| random.f32()));
        }
        pos.append(is_there);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(pid),
        Arc::new(step),
        Arc::new(x),
        Arc::new(time),
        Arc::new(kind),
        Arc::new(name),
        Arc::new(raw),
        Arc::new(alive),
        Arc::new(day),
        Arc::new(pos.finish()),
    ];
    RecordBatch::try_new(Arc::clone(schema().columns()), columns).unwrap()
}

/// The rows ordered by (weight, id), and their weights: what a block must hold.
fn expected(rows: &RecordBatch) -> (RecordBatch, Vec<Weight>) {
    let weights = weights(&[Arc::clone(rows.column(0))], Salt(5)).unwrap();
    let order = order(&weights, &rows.columns()[..2]).unwrap();
    let sorted = order.iter().map(|&row| weights[row as usize]).collect();
    (take_record_batch(rows, &UInt32Array::from(order)).unwrap(), sorted)
}

fn open(bytes: &[u8]) -> Result<BlockReader, BlockError> {
    open_of(&schema(), bytes)
}

fn open_of(schema: &TableSchema, bytes: &[u8]) -> Result<BlockReader, BlockError> {
    let front = usize::try_from(BlockReader::front_bytes(bytes)?).unwrap();
    let front = bytes.get(..front).ok_or_else(|| damaged("cut off"))?;
    BlockReader::open(Arc::new(schema.clone()), front)
}

/// Reads what is wanted as a table does: directory, bands, slices. Also returns how many rows were decoded.
fn read(
    bytes: &[u8],
    wanted: &Wanted<'_>,
    region: &Region,
) -> Result<(RecordBatch, Vec<Weight>, usize), BlockError> {
    read_of(&schema(), bytes, wanted, region)
}

fn read_of(
    schema: &TableSchema,
    bytes: &[u8],
    wanted: &Wanted<'_>,
    region: &Region,
) -> Result<(RecordBatch, Vec<Weight>, usize), BlockError> {
    let reader = open_of(schema, bytes)?;
    let (mut batches, mut weights, mut decoded) = (Vec::new(), Vec::new(), 0);
    for band in reader.bands(wanted.window, |extents| !region.prunes(extents)) {
        let slices: Vec<&[u8]> = reader
            .slices(band, wanted.columns)
            .iter()
            .map(|slice| {
                let end = (slice.offset + slice.bytes) as usize;
                bytes.get(slice.offset as usize..end).ok_or_else(|| damaged("cut off"))
            })
            .collect::<Result<_, _>>()?;
        let (rows, of_rows) = reader.rows(band, wanted, &slices)?;
        decoded += reader.directory().bands[band].rows as usize;
        batches.push(rows);
        weights.extend(of_rows);
    }
    let fields: Vec<_> =
        wanted.columns.iter().map(|&place| Arc::clone(&schema.columns().fields()[place])).collect();
    Ok((concat_batches(&Arc::new(Schema::new(fields)), &batches)?, weights, decoded))
}

const ALL_COLUMNS: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

const EVERYTHING: Wanted<'static> =
    Wanted { window: Window::below(Cut::ALL), columns: &ALL_COLUMNS, rows: None };

#[test]
fn a_block_gives_back_every_row_in_the_order_of_its_weight() {
    for_seeds("a_block_gives_back_every_row_in_the_order_of_its_weight", 6, |random| {
        for count in [0, 1, 255, 256, 257, 513, random.usize(600..5000)] {
            let rows = rows(random, count);
            let bytes = encode_block(&schema(), &rows).unwrap();
            let region = Region::everything(3);
            let (found, weights, _) = read(&bytes, &EVERYTHING, &region).unwrap();
            let (sorted, expected_weights) = expected(&rows);
            assert_eq!(found, sorted, "{count} rows");
            assert_eq!(weights, expected_weights);
            let again = encode_sorted(&schema(), &sorted, &expected_weights).unwrap();
            assert_eq!(again, bytes, "a block depends on its rows alone, not on the order they came in");
        }
    });
}

/// The columns of [`rows`] that are numbers without nulls, which roles need no others than.
fn numbers() -> TableSchema {
    let fields = ["pid", "step", "kind", "day"].map(|name| {
        let whole = schema();
        column(name, whole.columns().field_with_name(name).unwrap().data_type().clone(), false)
    });
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles { id: names(&["pid", "step"]), index: names(&["kind"]), ..Roles::default() };
    TableSchema::new(Schema::new(fields.to_vec()), &roles).unwrap()
}

#[test]
fn what_a_block_takes_is_known_before_its_rows_are_in_order() {
    for_seeds("what_a_block_takes_is_known_before_its_rows_are_in_order", 6, |random| {
        for count in [0, 1, 255, 256, 257, 513, random.usize(600..20_000)] {
            let all = rows(random, count + 10);
            // Also of rows that are a part of others, whose memory has more.
            for rows in [all.clone(), all.slice(7, count)] {
                let bytes = encode_block(&schema(), &rows).unwrap().len() as u64;
                let most = block_bytes_at_most(&schema(), &rows);
                let (bands, columns) = (band_rows(rows.num_rows()).count() as u64, 10);
                // Nulls that a band happens not to have, and texts that need less padding.
                let slack = bands * columns * 80 + rows.num_rows() as u64;
                assert!((bytes..=bytes + slack).contains(&most), "{count} rows: {bytes}, at most {most}");
            }
            let plain = all.project(&[0, 1, 4, 8]).unwrap();
            let plain =
                RecordBatch::try_new(Arc::clone(numbers().columns()), plain.columns().to_vec()).unwrap();
            let bytes = encode_block(&numbers(), &plain).unwrap().len() as u64;
            assert_eq!(block_bytes_at_most(&numbers(), &plain), bytes, "{count} rows of numbers");
        }
    });
}

#[test]
fn a_row_takes_its_numbers_and_its_longest_texts() {
    let schema = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("name", DataType::Utf8, true),
        column(
            "pos",
            DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 3),
            true,
        ),
    ]);
    let mut pos = FixedSizeListBuilder::new(Float32Builder::new(), 3);
    for _ in 0..3 {
        pos.values().append_slice(&[0.0; 3]);
        pos.append(true);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(StringArray::from(vec![Some("x".repeat(500)), None, Some("y".repeat(90))])),
        Arc::new(pos.finish()),
    ];
    let rows = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    assert_eq!(row_bytes_at_most(&rows), 8 + 500 + 12 + 3 * 4);
    assert_eq!(row_bytes_at_most(&rows.slice(1, 2)), 8 + 90 + 12 + 3 * 4);
}

#[test]
fn a_sample_is_what_filtering_by_weight_gives_and_touches_at_most_twice_its_rows() {
    for_seeds("a_sample_is_what_filtering_by_weight_gives_and_touches_at_most_twice_its_rows", 6, |random| {
        let rows = rows(random, 4000);
        let bytes = encode_block(&schema(), &rows).unwrap();
        let (sorted, weights) = expected(&rows);
        let region = Region::everything(3);
        for _ in 0..40 {
            let (from, to) = (random.f64() * random.f64(), random.f64());
            let window = if random.bool() || from > to {
                Window::below(Cut::of_share(to * random.f64()).unwrap())
            } else {
                Cut::window(from, to).unwrap()
            };
            let wanted = Wanted { window, columns: &[5, 0], rows: None };
            let (found, found_weights, decoded) = read(&bytes, &wanted, &region).unwrap();
            let kept: Vec<u32> = (0..4000).filter(|&row| window.takes(weights[row as usize])).collect();
            let kept = UInt32Array::from(kept);
            assert_eq!(found, take_record_batch(&sorted.project(&[5, 0]).unwrap(), &kept).unwrap());
            assert_eq!(found_weights.len(), kept.len());
            if window.after() == Cut::NOTHING {
                assert!(decoded <= (2 * kept.len()).max(BAND_ROWS_FIRST), "{decoded} for {}", kept.len());
            }
        }
    });
}

#[test]
fn bands_outside_a_region_are_left_out_and_no_row_inside_it_is_lost() {
    for_seeds("bands_outside_a_region_are_left_out_and_no_row_inside_it_is_lost", 6, |random| {
        // The steps of one entity are far apart in time, so that bands differ.
        let rows = rows(random, 3000);
        let bytes = encode_block(&schema(), &rows).unwrap();
        let (sorted, _) = expected(&rows);
        let mut pruned = 0;
        for _ in 0..60 {
            let low = random.f64() * 120.0 - 60.0;
            let kind = random.u64(..6);
            let region = Region::new(vec![
                Interval {
                    low: Some(Scalar::Float(low)),
                    high: Some(Scalar::Float(low + random.f64() * 10.0)),
                },
                Interval { low: None, high: None },
                Interval { low: Some(Scalar::Unsigned(kind)), high: Some(Scalar::Unsigned(kind + 1)) },
            ])
            .unwrap();
            let (found, ..) = read(&bytes, &EVERYTHING, &region).unwrap();
            let inside = |rows: &RecordBatch| -> Vec<(i64, i64)> {
                let columns = [2, 3, 4].map(|place| Arc::clone(rows.column(place)));
                let matches = region.matches(&columns).unwrap();
                let id = |place: usize, row: usize| {
                    rows.column(place).as_any().downcast_ref::<Int64Array>().unwrap().value(row)
                };
                (0..rows.num_rows())
                    .filter(|&row| matches.value(row))
                    .map(|row| (id(0, row), id(1, row)))
                    .collect()
            };
            assert_eq!(inside(&found), inside(&sorted));
            pruned += usize::from(found.num_rows() < sorted.num_rows());
        }
        assert!(pruned > 5, "only {pruned} of 60 regions left a band out");
    });
}

#[test]
fn no_flipped_bit_is_ever_read_as_rows() {
    for_seeds("no_flipped_bit_is_ever_read_as_rows", 6, |random| {
        let rows = rows(random, 300);
        let bytes = encode_block(&schema(), &rows).unwrap();
        let region = Region::everything(3);
        let whole = read(&bytes, &EVERYTHING, &region).unwrap();
        let mut found = 0;
        for _ in 0..3000 {
            let mut flipped = bytes.clone();
            let place = random.usize(..flipped.len());
            flipped[place] ^= 1 << random.u8(..8);
            match read(&flipped, &EVERYTHING, &region) {
                // Only the padding between slices may change unnoticed.
                Ok(read) => assert_eq!((read.0, read.1), (whole.0.clone(), whole.1.clone()), "byte {place}"),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt), "byte {place}: {error}");
                    found += 1;
                }
            }
        }
        assert!(found > 2000, "only {found} of 3000 flips found");
    });
}

#[test]
fn no_bytes_make_a_reader_panic_even_where_checksums_are_right() {
    for_seeds("no_bytes_make_a_reader_panic_even_where_checksums_are_right", 6, |random| {
        for _ in 0..4000 {
            let data_type = schema().columns().field(random.usize(..10)).data_type().clone();
            let rows = random.usize(..40);
            let column = rows_of_type(random, &data_type, rows);
            let mut bytes = Vec::new();
            slice::encode(&column, &mut bytes).unwrap();
            for _ in 0..random.usize(..4) {
                let place = random.usize(..bytes.len());
                bytes[place] = [0, 1, 0x7f, 0x80, 0xff][random.usize(..5)];
            }
            bytes.truncate(random.usize(..=bytes.len()));
            // An array that is accepted must pass a full validation.
            if let Ok(array) = slice::decode(&data_type, random.usize(..50), &bytes) {
                array.to_data().validate_full().unwrap();
            }
        }
    });
}

fn rows_of_type(random: &mut fastrand::Rng, data_type: &DataType, count: usize) -> ArrayRef {
    let rows = rows(random, count);
    let place = rows.schema().fields().iter().position(|field| field.data_type() == data_type).unwrap();
    Arc::clone(rows.column(place))
}

#[test]
fn rows_that_do_not_fit_the_table_are_refused_by_name() {
    let mut random = fastrand::Rng::with_seed(1);
    let rows = rows(&mut random, 10);
    let refused = |rows: &RecordBatch| encode_block(&schema(), rows).unwrap_err();
    let fewer = rows.project(&[0, 1, 2]).unwrap();
    assert!(refused(&fewer).to_string().contains("3 instead of 10"));
    let mut order = ALL_COLUMNS;
    order.swap(2, 3);
    let swapped = refused(&rows.project(&order).unwrap());
    assert!(swapped.to_string().contains("column 2 is \"time\""), "{swapped}");
    let mut columns = rows.columns().to_vec();
    columns[4] = Arc::new(UInt8Array::from((0..10).map(|row| (row != 3).then_some(1)).collect::<Vec<_>>()));
    let fields: Vec<Field> =
        rows.schema().fields().iter().map(|field| (**field).clone().with_nullable(true)).collect();
    let with_null = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let refused = refused(&with_null).to_string();
    assert_eq!(refused, "column \"kind\" must not be null, but row 3 is");
}

#[test]
fn a_block_of_another_schema_or_a_newer_release_says_so() {
    let mut random = fastrand::Rng::with_seed(2);
    let bytes = encode_block(&schema(), &rows(&mut random, 10)).unwrap();
    let roles = Roles { salt: 6, ..schema().roles() };
    let other = TableSchema::new(Arc::clone(schema().columns()), &roles).unwrap();
    assert!(matches!(BlockReader::open(Arc::new(other), &bytes), Err(BlockError::OtherSchema)));
    let mut newer = bytes;
    set_format(&mut newer, 4);
    assert!(matches!(BlockReader::front_bytes(&newer), Err(BlockError::NewerFormat { found: 4, .. })));
}

#[test]
fn a_number_that_all_rows_have_is_written_once_a_band() {
    let mut random = fastrand::Rng::with_seed(3);
    let rows = rows(&mut random, 3000);
    let with_steps = |steps: Int64Array| {
        let mut columns = rows.columns().to_vec();
        columns[1] = Arc::new(steps);
        RecordBatch::try_new(rows.schema(), columns).unwrap()
    };
    let alike = with_steps(Int64Array::from(vec![-7; 3000]));
    let but_one =
        with_steps((0..3000).map(|row| if row == 2999 { 1 } else { -7 }).collect::<Vec<i64>>().into());
    let bytes = encode_block(&schema(), &alike).unwrap();
    let slices = |bytes: &[u8]| -> Vec<u64> {
        open(bytes).unwrap().directory().bands.iter().map(|band| band.slices[1].bytes).collect()
    };
    assert_eq!(slices(&bytes), [24; 5]);
    assert!(slices(&encode_block(&schema(), &but_one).unwrap())[4] > 7000);
    for rows in [alike, but_one] {
        let bytes = encode_block(&schema(), &rows).unwrap();
        let (found, ..) = read(&bytes, &EVERYTHING, &Region::everything(3)).unwrap();
        assert_eq!(found, expected(&rows).0);
    }
}

#[test]
fn each_band_is_as_long_as_all_before_it() {
    let bands = |rows| band_rows(rows).collect::<Vec<_>>();
    assert!(bands(0).is_empty());
    assert_eq!(bands(256), [256]);
    assert_eq!(bands(257), [256, 1]);
    assert_eq!(bands(3000), [256, 256, 512, 1024, 952]);
}

/// The rows of `format-2.bin`: 300 of one step, each a particle.
fn kept_rows() -> (TableSchema, RecordBatch) {
    let columns = Schema::new(vec![
        column("pid", DataType::Int32, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float32, false),
        column("name", DataType::Utf8, true),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles =
        Roles { id: names(&["pid", "step"]), sample_key: names(&["pid"]), index: names(&["x"]), salt: 9 };
    let pid = Int32Array::from_iter_values(0..300);
    let step = Int64Array::from_iter_values([80; 300]);
    let x = Float32Array::from_iter_values((0..300).map(|row| row as f32 / 8.0));
    let name: StringArray = (0..300).map(|row| (row % 3 > 0).then(|| "x".repeat(row % 4))).collect();
    let schema = TableSchema::new(columns, &roles).unwrap();
    let columns: Vec<ArrayRef> = vec![Arc::new(pid), Arc::new(step), Arc::new(x), Arc::new(name)];
    let rows = RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap();
    (schema, rows)
}

/// Rewrites the head so that it names another format.
fn set_format(block: &mut [u8], format: u8) {
    block[8] = format;
    let sum = checksum(&block[..HEAD_BYTES - 8]);
    block[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn blocks_of_an_earlier_release_are_read() {
    let (schema, rows) = kept_rows();
    let kept = include_bytes!("kept/format-2.bin").to_vec();
    let mut older = kept.clone();
    set_format(&mut older, 1);
    let now = encode_block(&schema, &rows).unwrap();
    let every = Wanted { columns: &[0, 1, 2, 3], ..EVERYTHING };
    let everywhere = Region::everything(1);
    let (expected, weights, _) = read_of(&schema, &now, &every, &everywhere).unwrap();
    for bytes in [&kept, &older] {
        let found = read_of(&schema, bytes, &every, &everywhere).unwrap();
        assert_eq!(found, (expected.clone(), weights.clone(), 300));
    }
    // A sample that does not ask for its key.
    let some = Wanted { window: Window::below(Cut::of_share(0.3).unwrap()), columns: &[2], rows: None };
    let (expected, weights, _) = read_of(&schema, &now, &some, &everywhere).unwrap();
    assert!((60..120).contains(&expected.num_rows()) && expected.num_columns() == 1);
    let (found, found_weights, _) = read_of(&schema, &kept, &some, &everywhere).unwrap();
    assert_eq!((found, found_weights), (expected, weights));
    assert!(now.len() + 300 * size_of::<Weight>() <= kept.len(), "weights are not written any more");
}

#[test]
fn a_band_of_ids_that_are_all_the_same_has_no_more_rows_than_its_bytes_tell() {
    let (schema, rows) = kept_rows();
    let mut columns = rows.columns().to_vec();
    columns[0] = Arc::new(Int32Array::from_value(7, 300));
    let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
    let bytes = encode_block(&schema, &rows).unwrap();
    let every = Wanted { columns: &[0, 1, 2, 3], ..EVERYTHING };
    let (found, ..) = read_of(&schema, &bytes, &every, &Region::everything(1)).unwrap();
    assert_eq!((found.num_rows(), found.column(0)), (300, rows.column(0)));
    let reader = open_of(&schema, &bytes).unwrap();
    let bands = &reader.directory().bands;
    assert!(bands.iter().all(|band| band.slices[0].bytes >= 4 * u64::from(band.rows)), "one id shows them");
    assert!(bands.iter().all(|band| band.slices[1].bytes == 24), "the other is written once");
}

#[test]
fn a_band_that_says_more_rows_than_its_ids_have_is_refused() {
    const DIRECTORY: usize = HEAD_BYTES + 16;
    let (schema, rows) = kept_rows();
    let honest = encode_block(&schema, &rows.slice(0, 200)).unwrap();
    let front = BlockReader::front_bytes(&honest).unwrap() as usize;
    // All checksums are right, as in a block made to exhaust a reader's memory.
    let saying = |count: u32| {
        let mut bytes = honest.clone();
        bytes[16..24].copy_from_slice(&u64::from(count).to_le_bytes());
        bytes[DIRECTORY..DIRECTORY + 4].copy_from_slice(&count.to_le_bytes());
        let sum = checksum(&bytes[HEAD_BYTES..front]);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        set_format(&mut bytes, 3);
        open_of(&schema, &bytes).map(|reader| reader.directory().rows)
    };
    assert_eq!(saying(200).unwrap(), 200);
    let refused = saying(u32::MAX).unwrap_err();
    assert!(refused.to_string().contains("fewer ids than rows"), "{refused}");
}
