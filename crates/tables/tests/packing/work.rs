//! The work that queries of a packed table take, counted: noise does not affect the counts, and a change that
//! costs more fails here.

use crate::bounds::{
    FIRST, LARGE, ROW_BYTES, ROWS_A_REQUEST, SMALL, TENTH, TOLERANCE_DECODED, TOLERANCE_GIVEN, check,
};
use crate::counted::{Counted, Counts};
use crate::run;
use crate::tube::{Tube, schema};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::estimate::{EstimateRequest, Subject, Tolerance};
use atoll_tables::expression::{Column, parse_box};
use atoll_tables::{PackOptions, Query, Table, Work};
use fastrand::Rng;
use std::ops::Range;
use std::sync::Arc;

const PARTICLES: usize = 6000;
const FRAMES: i32 = 50;

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

    /// Sixty boxes with so many rows; each side is about this share of the tube.
    async fn boxes(&self, rows: Range<u64>, share: f64) -> Vec<Query> {
        let mut random = Rng::with_seed(11);
        let mut boxes = Vec::new();
        for _ in 0..4000 {
            let share = share * (0.3 + random.f64() * 1.4);
            let query = self.some_box(&mut random, share);
            if boxes.len() == 60 {
                break;
            }
            if rows.contains(&self.table.count(&query).await.unwrap().rows) {
                boxes.push(query);
            }
        }
        assert!(boxes.len() >= 20, "{} boxes", boxes.len());
        boxes
    }

    /// The work of each of these queries.
    async fn took_all(&self, queries: &[Query], ask: impl Fn(Query) -> Query) -> Vec<Work> {
        let mut works = Vec::new();
        for query in queries {
            works.push(self.took(&ask(query.clone())).await);
        }
        works
    }
}

fn touched(work: &Work) -> f64 {
    work.rows_touched as f64 / work.rows_returned.max(1) as f64
}

fn bytes(work: &Work) -> f64 {
    work.bytes as f64 / (work.rows_returned.max(1) as f64 * ROW_BYTES)
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
            assert!(
                work.requests as f64 <= 40.0 + work.rows_returned as f64 / ROWS_A_REQUEST,
                "{share}: {work:?}"
            );
        }
    });
}

#[test]
fn a_box_its_sample_and_its_first_rows_cost_no_more_than_they_may() {
    run(async {
        let packed = Packed::new().await;
        let large = packed.boxes(20_000..200_000, 0.6).await;
        LARGE.check(&packed.took_all(&large, |query| query).await);
        TENTH.check(&packed.took_all(&large, |query| query.sample(0.1).unwrap()).await);
        FIRST.check(&packed.took_all(&large, |query| query.limit(1000)).await);
        let small = packed.boxes(500..2000, 0.15).await;
        SMALL.check(&packed.took_all(&small, |query| query).await);
    });
}

#[test]
fn a_tolerance_is_given_and_decodes_few_rows_beyond_those_planned() {
    run(async {
        let packed = Packed::new().await;
        let part = 0.05;
        let mean = EstimateRequest::new(Subject::Mean(Column::named("vz")));
        let request = mean.within(Tolerance::OfDeviation(part), None);
        let (mut given, mut decoded) = (Vec::new(), Vec::new());
        for query in packed.boxes(20_000..200_000, 0.6).await.iter().take(30) {
            let rows = packed.table.count(query).await.unwrap().rows as f64;
            let found = packed.table.estimate(query, &request).await.unwrap();
            // The rows that a 95 % interval of this width needs, drawn without replacement.
            let endless = (1.96 / part).powi(2);
            let planned = endless / (1.0 + endless / rows);
            given.push(found.rows_read as f64 / planned);
            decoded.push(found.work.rows_touched as f64 / planned);
        }
        check("tolerance: rows given for a unit planned", given, TOLERANCE_GIVEN);
        check("tolerance: rows decoded for a unit planned", decoded, TOLERANCE_DECODED);
    });
}

#[test]
fn an_end_of_a_box_takes_only_bands_across_that_face_of_it() {
    run(async {
        let packed = Packed::new().await;
        let (mut ends, mut counts) = (0, 0);
        for query in packed.boxes(20_000..200_000, 0.6).await.iter().take(30) {
            let count = packed.table.count(query).await.unwrap().work.rows_touched;
            for column in ["x", "y", "z", "step"] {
                let column = Column::named(column);
                let least = packed.table.minimum(query, &column).await.unwrap().work.rows_touched;
                let greatest = packed.table.maximum(query, &column).await.unwrap().work.rows_touched;
                assert!(least.max(greatest) <= count, "{column}: {least} and {greatest} of {count}");
                ends += least + greatest;
                counts += 2 * count;
            }
        }
        eprintln!("{:.3} rows decoded for one that a count decodes", ends as f64 / counts as f64);
        assert!(2 * ends <= counts, "{ends} of {counts}");
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
