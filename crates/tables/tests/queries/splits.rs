//! Splits: together they equal the query; each row is in one split, each split on one host, with about equal
//! bytes.

use crate::particles::{batch, schema, some};
use crate::run;
use crate::seeds::for_seeds;
use crate::world::World;
use arrow_array::{Int64Array, RecordBatch};
use atoll_conformance::{Relay, Relayed};
use atoll_errors::ErrorKind;
use atoll_memory::MemoryStore;
use atoll_store::{Place, Store, StoreFuture};
use atoll_tables::cube::Shape;
use atoll_tables::protocol::{BlockId, Version};
use atoll_tables::{OfObjects, PackOptions, Query, QuerySplit, Readable, Table, Union};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A store whose partitions lie on three machines: this one and two others.
struct Spread(MemoryStore);

fn place_of(partition: &[u8]) -> Place {
    let sum = partition.iter().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    match sum / 8 % 3 {
        0 => Place::Here,
        other => Place::Host(format!("host {other}")),
    }
}

impl Relay for Spread {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        Box::pin(async move { Ok(place_of(partition)) })
    }
}

pub fn spread() -> Arc<dyn Store> {
    Arc::new(Relayed(Spread(MemoryStore::new())))
}

/// A shape with many small objects of few rows.
fn small() -> Shape {
    Shape { cube_rows: 200, leaf_rows: 400, layer_rows: 100, band_rows: 50, object_bytes: 8 << 10 }
}

/// A table of 24 steps in small objects.
async fn many_objects(store: Arc<dyn Store>) -> Table {
    let schema = schema(false, 0);
    let table = Table::create(store, "run", schema.clone()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..24_i64 {
        let rows = some(&mut random, &schema, step, step * 500..(step + 1) * 500);
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &batch(&schema, &rows)).await.unwrap();
        if step == 19 {
            let shape = small();
            table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap();
        }
    }
    table
}

/// The step and the id of each row, in order.
fn rows(batches: &[RecordBatch]) -> Vec<(i64, i64)> {
    let column = |batch: &RecordBatch, name| {
        let column = batch.column_by_name(name).unwrap().as_any().downcast_ref::<Int64Array>();
        column.unwrap().values().to_vec()
    };
    let each = |batch| column(batch, "step").into_iter().zip(column(batch, "pid"));
    let mut rows: Vec<(i64, i64)> = batches.iter().flat_map(each).collect();
    rows.sort_unstable();
    rows
}

async fn rows_of(table: &Readable, query: &Query) -> Vec<(i64, i64)> {
    rows(&[table.query(query).await.unwrap().rows])
}

async fn rows_of_all(table: &Readable, splits: &[QuerySplit]) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for split in splits {
        let rows = rows_of(table, &split.query).await;
        assert_eq!(table.count(&split.query).await.unwrap().rows, rows.len() as u64);
        found.extend(rows);
    }
    found.sort_unstable();
    found
}

/// Splits as another process receives them.
fn sent(mut splits: Vec<QuerySplit>) -> Vec<QuerySplit> {
    for split in &mut splits {
        let bytes = split.query.objects.as_ref().unwrap().to_bytes();
        split.query.objects = Some(OfObjects::from_bytes(&bytes).unwrap());
    }
    splits
}

fn only(text: &str) -> Query {
    Query::default().filter(text.parse().unwrap())
}

#[test]
fn splits_are_the_query_each_row_once() {
    run(async {
        for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, spread()] {
            let table = many_objects(store).await;
            table.delete(None, Some(3..5), Some("kind = 1")).await.unwrap();
            let table = Readable::One(table);
            let queries = [
                Query::default(),
                only("x < 0.25"),
                only("step = 23"),
                only("x > 100"),
                Query::default().sample(0.1).unwrap(),
                only("kind = 1").window(0.3, 0.7).unwrap(),
            ];
            for query in queries {
                let expected = rows_of(&table, &query).await;
                for readers in [1, 3, 8, 1000] {
                    let splits = table.splits(&query, readers).await.unwrap();
                    assert!(!splits.is_empty());
                    assert_eq!(
                        rows_of_all(&table, &splits).await,
                        expected,
                        "{readers} readers of {query:?}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_split_is_of_the_version_in_which_it_was_given_out() {
    run(async {
        let table = many_objects(spread()).await;
        let asked = Readable::One(table.clone());
        let expected = rows_of(&asked, &Query::default()).await;
        let splits = table.splits(&Query::default(), 5).await.unwrap();
        let rows = some(&mut fastrand::Rng::with_seed(1), &table.schema(), 24, 90_000..90_100);
        let id = BlockId { run: "run".into(), attempt: 1, step: 24, rank: 0 };
        table.append(id, &batch(&table.schema(), &rows)).await.unwrap();
        table.pack(&PackOptions::whole()).await.unwrap();
        assert_eq!(rows_of_all(&asked, &splits).await, expected);
        // A split can be divided further, and sent as bytes.
        let mut parts = Vec::new();
        for split in &splits {
            parts.extend(table.splits(&split.query, 3).await.unwrap());
        }
        assert!(parts.len() > splits.len());
        assert_eq!(rows_of_all(&asked, &sent(parts)).await, expected);
    });
}

#[test]
fn each_split_lies_on_one_host_and_all_are_of_about_equal_bytes() {
    run(async {
        let here = many_objects(Arc::new(MemoryStore::new())).await;
        for readers in [1, 4, 7] {
            let splits = here.splits(&Query::default(), readers).await.unwrap();
            assert!(splits.len() == readers && splits.iter().all(|split| split.place == Place::Here));
            let bytes: Vec<u64> = splits.iter().map(|split| split.bytes).collect();
            assert!(bytes.iter().max() < bytes.iter().min().map(|least| least * 3 / 2).as_ref(), "{bytes:?}");
            let rows: u64 = splits.iter().map(|split| split.rows).sum();
            assert_eq!(rows, 12_000);
        }
        let all = here.splits(&Query::default(), 4).await.unwrap();
        let some = here.splits(&Query::default().sample(0.25).unwrap(), 4).await.unwrap();
        let bytes = |splits: &[QuerySplit]| splits.iter().map(|split| split.bytes).sum::<u64>() as f64;
        assert!((0.2..0.3).contains(&(bytes(&some) / bytes(&all))), "a quarter of the units");

        let spread = many_objects(spread()).await;
        for readers in [1, 6, 30] {
            let splits = spread.splits(&Query::default(), readers).await.unwrap();
            let mut hosts = BTreeMap::<String, usize>::new();
            splits.iter().for_each(|split| *hosts.entry(format!("{:?}", split.place)).or_default() += 1);
            assert!(hosts.len() == 3 && splits.len() == readers.max(3), "{readers}: {hosts:?}");
        }
    });
}

#[test]
fn what_cannot_be_divided_and_what_is_no_split_is_said() {
    run(async {
        let (table, other) = (many_objects(spread()).await, many_objects(spread()).await);
        for (query, readers) in
            [(Query::default().first(5), 2), (Query::default().limit(5), 2), (Query::default(), 0)]
        {
            let error = table.splits(&query, readers).await.unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.hint().is_some(), "{error}");
        }
        let split = table.splits(&Query::default(), 2).await.unwrap().remove(0);
        let error = other.query(&Query { as_of: None, ..split.query.clone() }).await.unwrap_err();
        assert_eq!(error.to_string(), "this is not a split of a query of this table and version");
        assert!(OfObjects::from_bytes(b"garbage").is_err());
    });
}

#[test]
fn splits_of_random_queries_of_random_tables_are_their_answers() {
    for_seeds("splits_of_random_queries", 10, |random| {
        run(async {
            let table = Table::create(spread(), "run", crate::particles::any_schema(random)).await.unwrap();
            let mut world = World::new(table, random.i64(10..1200));
            for _ in 0..8 {
                world.act(random).await;
                if random.u8(..3) == 0 {
                    world.pack(random).await;
                }
                let asked = crate::random::any(random, &world);
                let columns = ["step", "pid"].map(str::to_owned).to_vec();
                let query = Query { columns: Some(columns), units: None, limit: None, ..asked.query };
                let table = Readable::One(world.table.clone());
                let splits = table.splits(&query, random.usize(1..9)).await.unwrap();
                let expected = rows_of(&table, &query).await;
                assert_eq!(rows_of_all(&table, &splits).await, expected, "{query:?}");
            }
        });
    });
}

/// Several tables of one schema, each with its own history.
async fn worlds(random: &mut fastrand::Rng) -> Vec<World> {
    let (schema, rows) = (crate::particles::any_schema(random), random.i64(10..600));
    let mut worlds = Vec::new();
    for _ in 0..random.usize(1..4) {
        worlds.push(World::new(Table::create(spread(), "run", schema.clone()).await.unwrap(), rows));
    }
    worlds
}

#[test]
fn splits_of_several_tables_are_together_what_these_have_as_one_whoever_asks() {
    for_seeds("splits_of_several_tables", 10, |random| {
        run(async {
            let mut worlds = worlds(random).await;
            let tables: Vec<Table> = worlds.iter().map(|world| world.table.clone()).collect();
            let as_one = || Readable::Many(Union::new(tables.clone()).unwrap());
            let union = as_one();
            for _ in 0..8 {
                for world in &mut worlds {
                    world.act(random).await;
                    if random.u8(..3) == 0 {
                        world.pack(random).await;
                    }
                }
                let asked = crate::random::any(random, &worlds[0]);
                let columns = ["step", "pid"].map(str::to_owned).to_vec();
                let query =
                    Query { columns: Some(columns), units: None, limit: None, as_of: None, ..asked.query };
                let expected = rows_of(&union, &query).await;
                let splits = sent(union.splits(&query, random.usize(1..9)).await.unwrap());
                for world in &mut worlds {
                    world.act(random).await;
                }
                assert_eq!(rows_of_all(&as_one(), &splits).await, expected, "{query:?}");
                // Each split can be divided further by its recipient.
                let mut parts = Vec::new();
                for split in &splits {
                    parts.extend(as_one().splits(&split.query, 3).await.unwrap());
                }
                assert_eq!(rows_of_all(&union, &sent(parts)).await, expected, "{query:?}");
            }
        });
    });
}

#[test]
fn splits_of_several_tables_lie_on_one_host_each_and_are_of_about_equal_bytes() {
    run(async {
        let tables = vec![many_objects(spread()).await, many_objects(spread()).await];
        let union = Union::new(tables.clone()).unwrap();
        let all = union.splits(&Query::default(), 6).await.unwrap();
        assert_eq!(all.len(), 6);
        let bytes = |splits: &[QuerySplit]| splits.iter().map(|split| split.bytes).sum::<u64>();
        let mut of_tables = 0;
        for table in &tables {
            of_tables += bytes(&table.splits(&Query::default(), 6).await.unwrap());
        }
        assert_eq!(bytes(&all), of_tables);
        let most = all.iter().map(|split| split.bytes).max().unwrap();
        assert!(most < bytes(&all) / 3, "{all:?}");

        let split = &all[0].query;
        let no_split = "this is not a split of a query of this table and version";
        for other in [Query { as_of: None, ..split.clone() }, split.clone().as_of(Version(3))] {
            assert_eq!(union.count(&other).await.unwrap_err().to_string(), no_split);
        }
        assert_eq!(
            tables[0].count(&Query { as_of: None, ..split.clone() }).await.unwrap_err().to_string(),
            no_split
        );
        let more = Union::new([tables.clone(), tables.clone()].concat()).unwrap();
        assert_eq!(more.query(split).await.unwrap_err().to_string(), no_split);
        let of_one = tables[0].splits(&Query::default(), 2).await.unwrap().remove(0);
        assert_eq!(union.query(&of_one.query).await.unwrap_err().to_string(), no_split);
        assert_eq!(
            union.splits(&Query::default().first(5), 2).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}
