//! The work that queries of a packed table take, counted: noise does not affect the counts, and a change that
//! costs more fails here.

use crate::counted::{Counted, Counts};
use crate::run;
use crate::tube::{Tube, schema};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::expression::parse_box;
use atoll_tables::{PackOptions, Query, Table, Work};
use fastrand::Rng;
use std::sync::Arc;

const PARTICLES: usize = 6000;
const FRAMES: i32 = 50;

/// Bytes of a row of the tube in memory.
const ROW_BYTES: f64 = 32.0;

/// A packed tube, its rows, and a counter of what is read from it.
struct Packed {
    store: Arc<dyn Store>,
    table: Table,
    counts: Arc<Counts>,
    frames: Vec<RecordBatch>,
}

impl Packed {
    async fn new() -> Self {
        let counts = Arc::new(Counts::default());
        let store = Relayed(Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) });
        let store: Arc<dyn Store> = Arc::new(store);
        let table = Table::create(Arc::clone(&store), "run", schema(false)).await.unwrap();
        let frames = Tube::new(3, PARTICLES, FRAMES).write(&table).await;
        let report = table.pack(&PackOptions::whole()).await.unwrap();
        assert_eq!(report.rows, (PARTICLES * FRAMES as usize) as u64);
        assert_eq!(report.trees, 1);
        let again = table.pack(&PackOptions::whole()).await.unwrap();
        assert_eq!((again.version, again.bytes_written), (None, 0), "there was nothing left to do");
        Self { store, table, counts, frames }
    }

    /// The work of a query once the directories are known, compared with the store's own count.
    async fn took(&self, query: &Query) -> Work {
        self.table.query(query).await.unwrap();
        self.counts.take();
        let work = self.table.query(query).await.unwrap().work;
        let (requests, bytes, _) = self.counts.take();
        assert_eq!((work.requests, work.bytes), (requests, bytes), "what was counted is not what was said");
        work
    }

    /// A box around a random row: over all time, ten steps, or one; each side is a share of the tube.
    fn some_box(&self, random: &mut Rng, share: f64) -> Query {
        let frame = &self.frames[random.usize(..self.frames.len())];
        let row = random.usize(..frame.num_rows());
        let lengths = [8.0, 4.0, 7.0];
        let mut sides: Vec<String> = ["x", "y", "z"]
            .iter()
            .zip(lengths)
            .enumerate()
            .map(|(axis, (name, length))| {
                let at = f64::from(frame.column(axis + 2).as_primitive::<Float32Type>().value(row));
                let half = share * length / 2.0;
                format!("{name}={}:{}", at - half, at + half)
            })
            .collect();
        let step = frame.column(1).as_primitive::<Int32Type>().value(row);
        match random.u8(..3) {
            0 => {}
            1 => sides.push(format!("step={step}:{}", step + 10)),
            _ => sides.push(format!("step={step}:{}", step + 1)),
        }
        let sides: Vec<_> = sides.iter().flat_map(|side| parse_box(side).unwrap()).collect();
        Query::default().in_box(&sides)
    }
}

fn touched(work: &Work) -> f64 {
    work.rows_touched as f64 / work.rows_returned.max(1) as f64
}

fn bytes(work: &Work) -> f64 {
    work.bytes as f64 / (work.rows_returned.max(1) as f64 * ROW_BYTES)
}

/// The median, and the value that one in twenty exceeds.
fn quantiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() * 19 / 20])
}

#[test]
fn a_sample_of_everything_touches_little_more_than_it_returns() {
    run(async {
        let packed = Packed::new().await;
        for share in [0.001, 0.01, 0.015, 0.1, 0.5, 1.0] {
            let work = packed.took(&Query::default().sample(share).unwrap()).await;
            let requests = work.requests;
            eprintln!("{share}: {:.3} rows, {:.2} bytes, {requests} requests", touched(&work), bytes(&work));
            // A few thousand rows are about one band of each cube below the root.
            let is_small = work.rows_returned < 10_000;
            assert!(touched(&work) <= if is_small { 1.25 } else { 1.1 }, "{share}: {work:?}");
            assert!(bytes(&work) <= if is_small { 2.6 } else { 2.0 }, "{share}: {work:?}");
            assert!(work.requests as f64 <= 40.0 + work.rows_returned as f64 / 25_000.0, "{share}: {work:?}");
        }
    });
}

/// The median and the 95th percentile of rows touched per row returned, of bytes, and of requests.
async fn of_boxes(
    packed: &Packed,
    rows: std::ops::Range<u64>,
    share: f64,
    ask: impl Fn(Query) -> Query,
) -> [(f64, f64); 3] {
    let mut random = Rng::with_seed(11);
    let (mut rows_by, mut bytes_by, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..4000 {
        let share = share * (0.3 + random.f64() * 1.4);
        let query = packed.some_box(&mut random, share);
        if rows_by.len() == 60 {
            break;
        }
        if !rows.contains(&packed.table.count(&query).await.unwrap().rows) {
            continue;
        }
        let work = packed.took(&ask(query)).await;
        rows_by.push(touched(&work));
        bytes_by.push(bytes(&work));
        requests.push(work.requests as f64 - work.rows_returned as f64 / 25_000.0);
    }
    assert!(rows_by.len() >= 20, "{} boxes", rows_by.len());
    [quantiles(rows_by), quantiles(bytes_by), quantiles(requests)]
}

#[test]
fn a_box_its_sample_and_its_first_rows_touch_no_more_than_they_may() {
    run(async {
        let packed = Packed::new().await;
        let say = |what: &str, [rows, bytes, requests]: [(f64, f64); 3]| {
            eprintln!("{what}: rows {rows:.2?}, bytes {bytes:.2?}, requests {requests:.0?}");
            (rows, requests)
        };
        let large = 20_000..200_000;
        let (rows, requests) = say("large boxes", of_boxes(&packed, large.clone(), 0.6, |query| query).await);
        assert!(rows.0 <= 1.5 && rows.1 <= 2.1 && requests.1 <= 40.0);
        let sample = |query: Query| query.sample(0.1).unwrap();
        let (rows, requests) = say("10 % of them", of_boxes(&packed, large.clone(), 0.6, sample).await);
        assert!(rows.0 <= 2.0 && rows.1 <= 3.0 && requests.1 <= 40.0);
        let first = |query: Query| query.limit(1000);
        let (rows, requests) = say("their first 1000", of_boxes(&packed, large, 0.6, first).await);
        assert!(rows.0 <= 5.0 && rows.1 <= 10.0 && requests.1 <= 40.0);
        let (rows, requests) = say("small boxes", of_boxes(&packed, 500..2000, 0.15, |query| query).await);
        assert!(rows.0 <= 11.0 && rows.1 <= 20.0 && requests.1 <= 40.0);
    });
}

#[test]
fn a_packed_table_takes_fewer_bytes_than_its_rows() {
    run(async {
        let packed = Packed::new().await;
        let table = Table::open(Arc::clone(&packed.store), "run").await.unwrap();
        packed.counts.take();
        let work = table.query(&Query::default()).await.unwrap().work;
        let (_, bytes, _) = packed.counts.take();
        assert_eq!(work.rows_touched, work.rows_returned);
        let of_row = bytes as f64 / work.rows_returned as f64;
        eprintln!("{of_row:.2} bytes a row, directories included");
        assert!(of_row <= 0.95 * ROW_BYTES, "{of_row}");
    });
}
