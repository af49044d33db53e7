//! Trees of cubes compared with plain filtering of the same rows.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-tables cube`.
#![allow(clippy::disallowed_methods, reason = "the environment may name the seed")]

use super::*;
use crate::block::{BlockError, HEAD_BYTES, Wanted};
use crate::lattice::{Extent, Interval, Region, Scalar};
use crate::part::Part;
use crate::protocol::RunId;
use crate::{Cut, Roles, Salt, TableSchema, Weight, Window, column, order, weights};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Float64Array, Int16Array, Int64Array,
    RecordBatch, StringArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use std::sync::Arc;

fn schema(has_step: bool) -> Arc<TableSchema> {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("frame", DataType::Int64, !has_step),
        column("x", DataType::Float32, true),
        column("y", DataType::Float64, true),
        column("kind", DataType::Int16, true),
        column("pos", DataType::FixedSizeList(item, 3), false),
        column("name", DataType::Utf8, true),
        column("inside", DataType::Boolean, true),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles =
        Roles { id: names(&["pid"]), sample_key: Vec::new(), index: names(&["x", "y", "frame"]), salt: 3 };
    Arc::new(TableSchema::new(columns, &roles).unwrap())
}

/// Rows with their weights and origins, ordered by (weight, id).
struct Grown {
    schema: Arc<TableSchema>,
    rows: RecordBatch,
    weights: Vec<Weight>,
    origins: Origins,
}

fn odd_float(random: &mut fastrand::Rng, clear: f64) -> Option<f64> {
    match random.u8(..40) {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(f64::INFINITY),
        3 => Some(-0.0),
        _ => Some(clear),
    }
}

fn rows(random: &mut fastrand::Rng, schema: &TableSchema, count: usize, has_step: bool) -> Vec<ArrayRef> {
    let is_odd = random.bool();
    let float = |random: &mut fastrand::Rng| {
        let clear = random.f64() * random.f64() * 8.0 - 1.0;
        if is_odd { odd_float(random, clear) } else { Some(clear) }
    };
    let pid: Int64Array = (0..count as i64).collect::<Vec<_>>().into();
    let frame: Int64Array = (0..count)
        .map(|_| (has_step || random.u8(..9) > 0).then(|| random.i64(0..12) * 80))
        .collect::<Vec<_>>()
        .into();
    let x: Float32Array = (0..count).map(|_| float(random).map(|x| x as f32)).collect::<Vec<_>>().into();
    let y: Float64Array = (0..count).map(|_| float(random)).collect::<Vec<_>>().into();
    let kind: Int16Array =
        (0..count).map(|_| (random.u8(..9) > 0).then(|| random.i16(..))).collect::<Vec<_>>().into();
    let elements: Float32Array = (0..3 * count).map(|_| random.f32()).collect::<Vec<_>>().into();
    let DataType::FixedSizeList(item, len) = schema.columns().field(5).data_type().clone() else { panic!() };
    let pos = FixedSizeListArray::new(item, len, Arc::new(elements), None);
    let name: StringArray = (0..count)
        .map(|row| (random.u8(..9) > 0).then(|| "n".repeat(row % 5)))
        .collect::<Vec<Option<String>>>()
        .into();
    let inside: BooleanArray =
        (0..count).map(|_| (random.u8(..9) > 0).then(|| random.bool())).collect::<Vec<_>>().into();
    vec![
        Arc::new(pid),
        Arc::new(frame),
        Arc::new(x),
        Arc::new(y),
        Arc::new(kind),
        Arc::new(pos),
        Arc::new(name),
        Arc::new(inside),
    ]
}

impl Grown {
    fn new(random: &mut fastrand::Rng, count: usize, has_step: bool, runs: u32) -> Self {
        let schema = schema(has_step);
        let columns = rows(random, &schema, count, has_step);
        let rows = RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap();
        let key = [Arc::clone(rows.column(0))];
        let weights = weights(&key, Salt(schema.salt())).unwrap();
        let order = order(&weights, &key).unwrap();
        let steps = match rows.column(1).as_any().downcast_ref::<Int64Array>() {
            Some(frames) if has_step => frames.values().iter().map(|&frame| frame as u64).collect(),
            _ => (0..count).map(|_| random.u64(..7)).collect(),
        };
        let names: Arc<[RunId]> = (0..runs).map(|run| RunId::from(format!("run {run}").as_str())).collect();
        let origins = Origins::new(names, (0..count).map(|_| random.u32(..runs)).collect(), steps).unwrap();
        Self {
            rows: take_record_batch(&rows, &UInt32Array::from(order.clone())).unwrap(),
            weights: order.iter().map(|&row| weights[row as usize]).collect(),
            origins: origins.taken(&order),
            schema,
        }
    }

    fn encode(&self, shape: &Shape) -> Vec<CubeObject> {
        self.encode_by(shape, 1)
    }

    /// Encodes on the given number of threads.
    fn encode_by(&self, shape: &Shape, threads: usize) -> Vec<CubeObject> {
        let (rows, weights, origins) = (self.rows.clone(), self.weights.clone(), self.origins.clone());
        let tree = Tree::grow(&self.schema, rows, weights, origins, shape, threads).unwrap();
        tree.objects().collect::<Result<_, _>>().unwrap()
    }

    /// The rows that a query must find, with their weights and origins.
    fn expected(&self, region: &Region, window: Window) -> (RecordBatch, Vec<Weight>, Origins) {
        let index = self.schema.index_values(self.rows.columns()).unwrap();
        let inside = region.matches(&index).unwrap();
        let takes = |row: &u32| inside.value(*row as usize) && window.takes(self.weights[*row as usize]);
        let kept: Vec<u32> = (0..self.rows.num_rows() as u32).filter(takes).collect();
        let weights = kept.iter().map(|&row| self.weights[row as usize]).collect();
        let origins = self.origins.taken(&kept);
        (take_record_batch(&self.rows, &UInt32Array::from(kept)).unwrap(), weights, origins)
    }
}

fn open(schema: &Arc<TableSchema>, bytes: &[u8]) -> Result<Part, BlockError> {
    let needed = Part::front_bytes(bytes.get(..HEAD_BYTES).unwrap_or_default())? as usize;
    Part::open(Arc::clone(schema), bytes.get(..needed).unwrap_or_default())
}

/// All columns that a part returns, put together as a query would, and the number of rows decoded for them.
fn answer(
    schema: &Arc<TableSchema>,
    objects: &[Vec<u8>],
    region: &Region,
    window: Window,
) -> Result<(RecordBatch, Vec<Weight>, Origins, usize), BlockError> {
    let columns: Vec<usize> = (0..schema.columns().fields().len()).collect();
    let wanted = Wanted { window, columns: &columns, rows: None };
    let (mut batches, mut all, mut origins, mut decoded) =
        (Vec::new(), Vec::new(), GrowingOrigins::default(), 0);
    for bytes in objects {
        let part = open(schema, bytes)?;
        for place in part.bands(window, |extents| !region.prunes(extents)) {
            let facts = part.facts(place, window);
            let slice =
                |&(at, len): &(u64, u64)| bytes.get(at as usize..(at + len) as usize).unwrap_or_default();
            let slices = part.slices(place, &columns, true);
            let slices: Vec<&[u8]> = slices.iter().map(slice).collect();
            let found = part.rows(place, wanted, true, &slices)?;
            let is_within = |weight: &Weight| (facts.least..=facts.greatest).contains(weight);
            assert!(found.weights.is_sorted() && found.weights.iter().all(is_within));
            decoded += facts.decoded as usize;
            let index = schema.index_values(found.rows.columns())?;
            let inside = region.matches(&index)?;
            let kept: Vec<u32> = inside.set_indices().map(|row| row as u32).collect();
            all.extend(kept.iter().map(|&row| found.weights[row as usize]));
            origins.append(&found.origins.unwrap().taken(&kept));
            batches.push(filter_record_batch(&found.rows, &BooleanArray::new(inside, None)).unwrap());
        }
    }
    let rows = concat_batches(schema.columns(), &batches).unwrap();
    let order = order(&all, &[Arc::clone(rows.column(0))]).unwrap();
    let weights = order.iter().map(|&row| all[row as usize]).collect();
    let origins = origins.finish().taken(&order);
    Ok((take_record_batch(&rows, &UInt32Array::from(order)).unwrap(), weights, origins, decoded))
}

fn some_region(random: &mut fastrand::Rng) -> Region {
    let float = |random: &mut fastrand::Rng| {
        let low = random.f64() * 6.0 - 1.0;
        if random.bool() {
            Interval::default()
        } else {
            (Scalar::Float(low)..Scalar::Float(low + random.f64() * 2.0)).into()
        }
    };
    let (first, last) = (random.i64(0..960), random.i64(0..960));
    let frames = Interval::from(Scalar::Signed(first.min(last))..Scalar::Signed(first.max(last) + 1));
    let frames = if random.bool() { frames } else { Interval::default() };
    Region::new(vec![float(random), float(random), frames]).unwrap()
}

fn some_window(random: &mut fastrand::Rng) -> Window {
    let from = random.f64() * random.f64();
    match random.u8(..3) {
        0 => Window::below(Cut::ALL),
        1 => Window::below(Cut::of_share(from).unwrap()),
        _ => Cut::window(from, from + random.f64() * (1.0 - from)).unwrap(),
    }
}

fn some_shape(random: &mut fastrand::Rng) -> Shape {
    let cube_rows = random.usize(1..600);
    Shape {
        cube_rows,
        leaf_rows: random.usize(1..900),
        layer_rows: random.usize(1..300),
        band_rows: random.usize(1..200),
        object_bytes: 1 << random.usize(10..18),
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=24).collect(),
    }
}

#[test]
fn every_query_of_a_tree_equals_plain_filtering_of_its_rows() {
    for seed in seeds() {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-tables cube");
        let mut random = fastrand::Rng::with_seed(seed);
        let (count, runs) = (random.usize(..4000), random.u32(1..4));
        let grown = Grown::new(&mut random, count, seed % 2 == 0, runs);
        let shape = some_shape(&mut random);
        let objects: Vec<Vec<u8>> =
            grown.encode(&shape).into_iter().map(|object| object.bytes.to_vec()).collect();
        for _ in 0..20 {
            let (region, window) = (some_region(&mut random), some_window(&mut random));
            let (rows, weights, origins, _) = answer(&grown.schema, &objects, &region, window).unwrap();
            let expected = grown.expected(&region, window);
            // Compared as text, since NaN does not equal itself.
            assert_eq!(format!("{rows:?}"), format!("{:?}", expected.0), "{region:?} {window:?} {shape:?}");
            assert_eq!(weights, expected.1);
            let runs = |origins: &Origins| {
                (0..origins.rows()).map(|row| origins.run(row).cloned()).collect::<Vec<_>>()
            };
            assert_eq!((origins.steps(), runs(&origins)), (expected.2.steps(), runs(&expected.2)));
        }
    }
}

#[test]
fn neither_the_order_in_which_rows_come_nor_the_threads_change_a_byte_of_their_objects() {
    for seed in seeds() {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-tables cube");
        let mut random = fastrand::Rng::with_seed(seed);
        let (count, runs) = (random.usize(..3000), random.u32(1..4));
        let grown = Grown::new(&mut random, count, seed % 2 == 0, runs);
        let shape = some_shape(&mut random);
        let mut turned: Vec<u32> = (0..count as u32).collect();
        random.shuffle(&mut turned);
        let other = Grown {
            rows: take_record_batch(&grown.rows, &UInt32Array::from(turned.clone())).unwrap(),
            weights: turned.iter().map(|&row| grown.weights[row as usize]).collect(),
            origins: grown.origins.taken(&turned),
            schema: Arc::clone(&grown.schema),
        };
        let bytes = |grown: &Grown, threads| -> Vec<Vec<u8>> {
            grown.encode_by(&shape, threads).iter().map(|object| object.bytes.to_vec()).collect()
        };
        assert!(bytes(&grown, 1) == bytes(&other, random.usize(2..5)), "{shape:?}");
    }
}

/// The cubes of a tree over rows ordered by (weight, id), and the rows of each.
fn cubes<const AXES: usize>(
    root: &Root,
    schema: &TableSchema,
    rows: &RecordBatch,
    shape: &Shape,
) -> Vec<(CubeId, Vec<u32>)> {
    let order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    let divided = root.places::<AXES>(schema, rows).unwrap().divided(&order, shape);
    let rows_of = |spots: &[tree::Spot<AXES>]| spots.iter().map(|spot| spot.row).collect();
    divided.cubes().into_iter().map(|(id, spots)| (id, rows_of(spots))).collect()
}

#[test]
fn a_row_lives_in_the_shallowest_cube_of_its_path_with_room() {
    let mut random = fastrand::Rng::with_seed(8);
    let grown = Grown::new(&mut random, 20_000, true, 1);
    let shape = Shape { cube_rows: 300, leaf_rows: 300, ..Shape::default() };
    let root = Root::around(&grown.schema, &grown.rows).unwrap();
    let cubes = cubes::<4>(&root, &grown.schema, &grown.rows, &shape);
    let mut seen: Vec<u32> = cubes.iter().flat_map(|cube| cube.1.iter().copied()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..20_000).collect::<Vec<_>>());
    let holds = |father: &CubeId, child: &CubeId| {
        let shift = 64 - u32::from(father.level) * 3;
        let same_path = shift == 64 || father.code >> shift == child.code >> shift;
        !father.is_side && !child.is_side && father.level < child.level && same_path
    };
    let mut fathers = 0;
    for father in &cubes {
        for child in cubes.iter().filter(|child| holds(&father.0, &child.0)) {
            fathers += 1;
            assert_eq!(father.1.len(), 300, "{father:?} has room and a child");
            assert!(father.1.last() < child.1.first(), "{child:?} holds a lighter row than {father:?}");
        }
    }
    assert!(fathers > 50 && cubes.iter().any(|cube| cube.0.level > 2));
    // Unused axes change nothing.
    assert_eq!(cubes, self::cubes::<8>(&root, &grown.schema, &grown.rows, &shape));
}

#[test]
fn many_rows_in_one_place_end_in_one_cube() {
    let schema = schema(true);
    let mut random = fastrand::Rng::with_seed(9);
    let mut columns = rows(&mut random, &schema, 3000, true);
    columns[2] = Arc::new(Float32Array::from(vec![1.5; 3000]));
    columns[3] = Arc::new(Float64Array::from(vec![-2.5; 3000]));
    columns[1] = Arc::new(Int64Array::from(vec![7; 3000]));
    let rows = RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap();
    let root = Root::around(&schema, &rows).unwrap();
    let shape = Shape { cube_rows: 10, leaf_rows: 10, ..Shape::default() };
    let cubes = cubes::<4>(&root, &schema, &rows, &shape);
    assert_eq!(cubes.iter().map(|cube| cube.1.len()).sum::<usize>(), 3000);
    assert!(cubes.len() <= 22, "{} cubes", cubes.len());
}

#[test]
fn no_damage_goes_unnoticed_and_none_stops_the_reader() {
    let mut random = fastrand::Rng::with_seed(5);
    for has_step in [true, false] {
        let grown = Grown::new(&mut random, 700, has_step, 2);
        let objects: Vec<Vec<u8>> =
            grown.encode(&Shape::default()).into_iter().map(|object| object.bytes.to_vec()).collect();
        assert_eq!(objects.len(), 1);
        let everything = Region::everything(3);
        let read = |bytes: Vec<u8>| answer(&grown.schema, &[bytes], &everything, Window::below(Cut::ALL));
        assert_eq!(read(objects[0].clone()).unwrap().0.num_rows(), 700);
        for _ in 0..2000 {
            let mut bytes = objects[0].clone();
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
            assert!(read(bytes).is_err(), "a flip at {at} went unnoticed");
        }
        for _ in 0..200 {
            let cut = random.usize(..objects[0].len());
            assert!(read(objects[0][..cut].to_vec()).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn a_directory_with_any_content_is_refused_or_read_and_never_stops_the_reader() {
    let mut random = fastrand::Rng::with_seed(6);
    let grown = Grown::new(&mut random, 300, true, 2);
    let object = grown.encode(&Shape::default()).remove(0).bytes.to_vec();
    let needed = Part::front_bytes(&object[..HEAD_BYTES]).unwrap() as usize;
    for _ in 0..20_000 {
        let mut front = object[..needed].to_vec();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(HEAD_BYTES..needed);
            front[at] = if random.bool() { random.u8(..) } else { front[at] ^ (1 << random.u8(..8)) };
        }
        // Deliberate damage comes with correct checksums.
        let sum = crate::block::checksum(&front[HEAD_BYTES..]);
        front[40..48].copy_from_slice(&0_u64.to_le_bytes());
        front[48..56].copy_from_slice(&0_u64.to_le_bytes());
        front[40..48].copy_from_slice(&sum.to_le_bytes());
        mend_head(&mut front);
        if let Ok(part) = open(&grown.schema, &front) {
            let columns: Vec<usize> = (0..8).collect();
            for place in part.bands(Window::below(Cut::ALL), |_: &[Extent]| true) {
                let _ = (part.facts(place, Window::below(Cut::ALL)).rows, part.slices(place, &columns, true));
            }
        }
    }
}

#[test]
fn a_block_is_a_part_like_any_other() {
    let mut random = fastrand::Rng::with_seed(7);
    let grown = Grown::new(&mut random, 900, true, 1);
    let bytes = crate::block::encode_block(&grown.schema, &grown.rows).unwrap();
    let part = open(&grown.schema, &bytes).unwrap();
    assert!(matches!(part, Part::Block(_)) && part.row_count() == 900);
    let wanted = Wanted { window: Window::below(Cut::of_share(0.2).unwrap()), columns: &[0], rows: None };
    let rows = part.bands(wanted.window, |_| true).into_iter().map(|place| {
        let slice = |(at, len): (u64, u64)| &bytes[at as usize..(at + len) as usize];
        let slices: Vec<&[u8]> = part.slices(place, wanted.columns, false).into_iter().map(slice).collect();
        part.rows(place, wanted, false, &slices).unwrap().rows.num_rows()
    });
    let expected = grown.weights.iter().filter(|weight| wanted.window.takes(**weight)).count();
    assert_eq!(rows.sum::<usize>(), expected);
}

/// The object with its filters removed.
fn without_filters(object: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(*object[at..].first_chunk().unwrap()) as usize;
    let end = HEAD_BYTES + word(12);
    let mut bytes = object[..end].to_vec();
    bytes.extend_from_slice(&object[end + word(48) + word(52)..]);
    bytes[48..56].fill(0);
    mend_head(&mut bytes);
    bytes
}

fn mend_head(object: &mut [u8]) {
    let sum = crate::block::checksum(&object[..56]);
    object[56..64].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_format_that_is_not_known_is_said_to_be_so() {
    let grown = Grown::new(&mut fastrand::Rng::with_seed(3), 100, true, 1);
    let mut object = grown.encode(&Shape::default()).remove(0).bytes.to_vec();
    for (format, is_newer) in [(2_u32, false), (4, true)] {
        object[8..12].copy_from_slice(&format.to_le_bytes());
        mend_head(&mut object);
        let error = open(&grown.schema, &object).unwrap_err();
        assert_eq!(matches!(error, BlockError::NewerFormat { found: 4, .. }), is_newer, "{error}");
        assert!(error.to_string().contains(&format!("format {format}")), "{error}");
    }
}

/// A table of twelve frames of some particles, sampled by particle.
fn particles(random: &mut fastrand::Rng, count: i64) -> Grown {
    let schema = Arc::new(
        TableSchema::new(
            Schema::new(vec![
                column("pid", DataType::Int64, false),
                column("frame", DataType::Int64, false),
                column("x", DataType::Float64, false),
            ]),
            &Roles {
                id: vec!["pid".to_owned(), "frame".to_owned()],
                sample_key: vec!["pid".to_owned()],
                index: vec!["x".to_owned(), "frame".to_owned()],
                salt: 5,
            },
        )
        .unwrap(),
    );
    let frames = 12 * count;
    let pid: Int64Array = (0..frames).map(|row| row % count).collect::<Vec<_>>().into();
    let frame: Int64Array = (0..frames).map(|row| row / count).collect::<Vec<_>>().into();
    let x: Float64Array = (0..frames).map(|_| random.f64()).collect::<Vec<_>>().into();
    let columns: Vec<ArrayRef> = vec![Arc::new(pid), Arc::new(frame), Arc::new(x)];
    let rows = RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap();
    let weights = weights(&rows.columns()[..1], Salt(5)).unwrap();
    let order = order(&weights, &rows.columns()[..2]).unwrap();
    let origins = Origins::of_block("run".into(), 0, order.len());
    let sorted = order.iter().map(|&row| weights[row as usize]).collect();
    Grown {
        rows: take_record_batch(&rows, &UInt32Array::from(order)).unwrap(),
        weights: sorted,
        origins,
        schema,
    }
}

/// How many rows the filters of the objects name for a weight, and how many rows have it.
fn of_weight(schema: &Arc<TableSchema>, objects: &[Vec<u8>], weight: Weight) -> (usize, usize) {
    let window = Window::between(weight, weight);
    let (mut found, mut decoded) = (0, 0);
    for bytes in objects {
        let part = open(schema, bytes).unwrap();
        if let Some(at) = part.filters_at() {
            part.keep_filters(&bytes[at.start as usize..at.end as usize]).unwrap();
        }
        for place in part.bands(window, |_| true) {
            let Some(rows) = part.rows_of(place, &[weight]) else { continue };
            decoded += rows.len();
            let wanted = Wanted { window, columns: &[0], rows: Some((rows.start as u32, rows.end as u32)) };
            let slices = part.slices(place, &[0], false).into_iter();
            let slices: Vec<&[u8]> = slices.map(|(at, len)| &bytes[at as usize..][..len as usize]).collect();
            found += part.rows(place, wanted, false, &slices).unwrap().rows.num_rows();
        }
    }
    (found, decoded)
}

#[test]
fn filters_lead_to_every_row_of_a_particle_and_objects_without_them_are_read_too() {
    for seed in seeds() {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-tables cube");
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.i64(1..400);
        let grown = particles(&mut random, count);
        let shape = some_shape(&mut random);
        let objects: Vec<Vec<u8>> =
            grown.encode(&shape).into_iter().map(|object| object.bytes.to_vec()).collect();
        let unfiltered: Vec<Vec<u8>> = objects.iter().map(|object| without_filters(object)).collect();
        let (mut decoded, mut decoded_without) = (0, 0);
        for _ in 0..20 {
            let weight = grown.weights[random.usize(..grown.weights.len())];
            let (found, of_filters) = of_weight(&grown.schema, &objects, weight);
            assert_eq!(found, 12, "{shape:?}");
            let (found, of_bands) = of_weight(&grown.schema, &unfiltered, weight);
            assert_eq!(found, 12, "{shape:?}");
            decoded += of_filters;
            decoded_without += of_bands;
        }
        assert!(
            decoded >= 240 && decoded <= decoded_without && decoded < 400,
            "{decoded} rows, {decoded_without}"
        );
    }
}

#[test]
fn what_lies_between_the_directory_and_the_filters_is_passed_over() {
    let grown = particles(&mut fastrand::Rng::with_seed(9), 100);
    let objects: Vec<Vec<u8>> =
        grown.encode(&Shape::default()).into_iter().map(|object| object.bytes.to_vec()).collect();
    let with_more = |object: &Vec<u8>| {
        let end = HEAD_BYTES + u32::from_le_bytes(*object[12..].first_chunk().unwrap()) as usize;
        let mut bytes = [&object[..end], &[0xA5; 77], &object[end..]].concat();
        bytes[48..52].copy_from_slice(&77_u32.to_le_bytes());
        mend_head(&mut bytes);
        bytes
    };
    let more: Vec<Vec<u8>> = objects.iter().map(with_more).collect();
    for weight in grown.weights.iter().step_by(50) {
        assert_eq!(of_weight(&grown.schema, &more, *weight), of_weight(&grown.schema, &objects, *weight));
    }
}

#[test]
fn a_cube_that_is_larger_than_an_object_becomes_several_whatever_its_rows_are() {
    let mut random = fastrand::Rng::with_seed(11);
    let shape = Shape { object_bytes: 32 << 10, ..Shape::default() };
    for is_side in [false, true] {
        let mut grown = Grown::new(&mut random, 6000, true, 1);
        if is_side {
            let mut columns = grown.rows.columns().to_vec();
            columns[3] = Arc::new(Float64Array::from(vec![f64::NAN; 6000]));
            grown.rows = RecordBatch::try_new(Arc::clone(grown.schema.columns()), columns).unwrap();
        }
        let objects = grown.encode(&shape);
        let most = objects.iter().map(|object| object.bytes.len()).max().unwrap();
        // Checksums and the directory come on top, and some rows take more than the mean.
        assert!(most <= 2 * shape.object_bytes, "{most} bytes in one of {} objects", objects.len());
        assert_eq!(objects.iter().map(|object| object.rows).sum::<u64>(), 6000);
        assert!(objects.iter().map(|object| object.cubes).sum::<usize>() <= 2);
        let objects: Vec<Vec<u8>> = objects.iter().map(|object| object.bytes.to_vec()).collect();
        for _ in 0..10 {
            let (region, window) = (some_region(&mut random), some_window(&mut random));
            let (rows, weights, _, _) = answer(&grown.schema, &objects, &region, window).unwrap();
            let expected = grown.expected(&region, window);
            assert_eq!((format!("{rows:?}"), weights), (format!("{:?}", expected.0), expected.1));
        }
    }
}

#[test]
fn no_object_gets_more_bands_than_its_directory_may_have() {
    let grown = particles(&mut fastrand::Rng::with_seed(13), 21_846);
    let objects = grown.encode_by(&Shape { band_rows: 1, ..Shape::default() }, 2);
    let objects: Vec<Vec<u8>> = objects.into_iter().map(|object| object.bytes.to_vec()).collect();
    assert_eq!(objects.len(), 2, "their bytes are few enough for one");
    assert_eq!(of_weight(&grown.schema, &objects, grown.weights[0]).0, 12);
}

#[test]
fn rows_that_are_wider_than_an_object_lie_in_bands_of_few() {
    let grown = Grown::new(&mut fastrand::Rng::with_seed(12), 200, true, 1);
    let shape = Shape { object_bytes: 256, ..Shape::default() };
    let objects = grown.encode(&shape);
    assert!(objects.iter().all(|object| object.rows <= 8), "{} objects", objects.len());
}
