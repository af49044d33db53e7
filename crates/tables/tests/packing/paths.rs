//! What the path of a particle costs in a packed table that samples by particle, and what damaged filters do.

use crate::bounds::{FAR_PATH, PATH};
use crate::counted::{Counted, Counts};
use crate::run;
use crate::tube::{Tube, schema};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::{Batch, Cell, PartitionQuery, ReadOptions, Store, WriteOptions};
use atoll_tables::cube::Shape;
use atoll_tables::expression::Expression;
use atoll_tables::{PackOptions, Query, Table, TableError, Work};
use std::sync::Arc;

const PARTICLES: usize = 4000;
const FRAMES: i32 = 50;

async fn packed(samples_entities: bool) -> (Arc<dyn Store>, Arc<Counts>) {
    // Cubes and objects as small, relative to this table, as the defaults are to one fifty times as large.
    packed_as(samples_entities, Shape { object_bytes: 1 << 18, ..Shape::default() }).await
}

async fn packed_as(samples_entities: bool, shape: Shape) -> (Arc<dyn Store>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let store = Relayed(Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) });
    let store: Arc<dyn Store> = Arc::new(store);
    let table = Table::create(Arc::clone(&store), "run", schema(samples_entities)).await.unwrap();
    Tube::new(3, PARTICLES, FRAMES).write(&table).await;
    table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap();
    (store, counts)
}

fn path(pid: i32) -> Query {
    Query::default().filter(Expression::parse(&format!("pid = {pid}")).unwrap())
}

/// The work of fifty paths, the first of which also reads directories and filters, compared with the store's
/// own count.
async fn works(table: &Table, counts: &Counts) -> Vec<Work> {
    let mut works = Vec::new();
    for pid in (0..PARTICLES as i32).step_by(80) {
        let cold = counts.take();
        let work = table.query(&path(pid)).await.unwrap().work;
        let (asked, bytes, _) = counts.take();
        assert!((work.requests, work.bytes) == (asked, bytes), "{work:?} after {cold:?}");
        assert_eq!(work.rows_returned, FRAMES as u64, "pid {pid}");
        assert_eq!(table.count(&path(pid)).await.unwrap().rows, FRAMES as u64);
        works.push(work);
    }
    works
}

#[test]
fn the_path_of_a_particle_touches_few_rows_of_others() {
    run(async {
        let (store, counts) = packed(true).await;
        let table = Table::open(Arc::clone(&store), "run").await.unwrap();
        let works = works(&table, &counts).await;
        PATH.check(&works[1..]);
        let most = works.iter().map(|work| work.rows_touched as f64 / work.rows_returned as f64);
        let most = most.fold(0.0, f64::max);
        let first = works[0].requests;
        eprintln!("touched at most {most:.2}; requests: {first} with directories and filters");
        assert!(most <= 2.5, "{works:?}");
        let objects = objects(&store).await.len() as u64;
        assert!(first <= objects + 40, "{first}: the front of each of {objects} objects is one request");
        let two =
            Query::default().filter(Expression::parse("pid in (7, 11) and step between 3 and 9").unwrap());
        let work = table.query(&two).await.unwrap().work;
        assert!(work.rows_returned == 14 && work.rows_touched <= 100, "{work:?}");
        let stranger = table.query(&path(PARTICLES as i32 + 5)).await.unwrap().work;
        assert!(stranger.rows_returned == 0 && stranger.rows_touched <= 20, "{stranger:?}");
    });
}

#[test]
fn a_path_reads_no_long_gaps_to_save_requests() {
    run(async {
        let shape =
            Shape { cube_rows: 256, leaf_rows: 1024, layer_rows: 128, band_rows: 8, ..Shape::default() };
        let (store, counts) = packed_as(true, shape).await;
        assert!(objects(&store).await.len() <= 2, "the bands of a path lie far apart in few objects");
        let table = Table::open(Arc::clone(&store), "run").await.unwrap();
        FAR_PATH.check(&works(&table, &counts).await[1..]);
    });
}

#[test]
fn filters_are_not_read_by_whoever_asks_for_no_particle() {
    run(async {
        let (store, counts) = packed(true).await;
        let table = Table::open(Arc::clone(&store), "run").await.unwrap();
        // Opens every object.
        table.query(&Query::default()).await.unwrap();
        counts.take();
        table.query(&path(17)).await.unwrap();
        let (_, first, _) = counts.take();
        table.query(&path(17)).await.unwrap();
        let (_, second, _) = counts.take();
        let rows = PARTICLES as u64 * FRAMES as u64;
        let filters = first - second;
        eprintln!("{:.2} bytes a row are filters", filters as f64 / rows as f64);
        assert!(filters > rows / 2 && filters < rows * 13 / 8, "{filters} bytes of filters");
    });
}

/// All objects of cubes.
async fn objects(store: &Arc<dyn Store>) -> Vec<Vec<u8>> {
    let page = store.partition_keys(PartitionQuery::prefix(Vec::new())).await.unwrap();
    let mut objects = Vec::new();
    for key in page.partitions {
        let value = store.get(Cell::new(&key, b""), ReadOptions::default()).await.unwrap();
        objects.extend(value.is_some_and(|value| value.starts_with(b"ATOLLCUB")).then_some(key.to_vec()));
    }
    objects
}

#[test]
fn damage_to_filters_is_told_by_those_who_read_them_and_by_nobody_else() {
    run(async {
        let (store, _) = packed(true).await;
        let before = Table::open(Arc::clone(&store), "run").await.unwrap();
        let before = before.query(&Query::default()).await.unwrap().rows;
        let objects = objects(&store).await;
        assert!(objects.len() >= 4);
        for key in &objects {
            let cell = Cell::new(key, b"");
            let mut bytes = store.get(cell, ReadOptions::default()).await.unwrap().unwrap().to_vec();
            let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
            // After the directory and the statistics.
            let at = 64 + word(12) + word(48);
            assert!(word(52) > 0, "there are no filters");
            bytes[at + 3] ^= 1;
            store
                .write(Batch::on(key.clone()).put(b"".to_vec(), bytes), WriteOptions::default())
                .await
                .unwrap();
        }
        let table = Table::open(Arc::clone(&store), "run").await.unwrap();
        let error = table.query(&path(17)).await.unwrap_err();
        assert!(matches!(error, TableError::Block { .. }), "{error:?}");
        assert_eq!(error.kind(), atoll_errors::ErrorKind::Corrupt);
        assert_eq!(table.query(&Query::default()).await.unwrap().rows, before);
    });
}
