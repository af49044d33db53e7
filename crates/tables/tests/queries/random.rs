//! Random queries of random tables, on two stores.

use crate::asked::{Asked, PrintOnFailure, Wish};
use crate::particles::{Particle, any_schema};
use crate::run;
use crate::seeds::for_seeds;
use crate::world::World;
use arrow_array::Array;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::expression::Column;
use atoll_tables::lattice::Scalar;
use atoll_tables::{OfRuns, Query, Table};
use fastrand::Rng;
use std::sync::Arc;

/// A query of the current state of the world, or of a past one.
pub fn any(random: &mut Rng, world: &World) -> Asked {
    let with_arriving = random.u8(..8) == 0;
    let past = random.choice(&world.past).filter(|_| random.u8(..8) == 0 && !with_arriving);
    let runs = random.choice(world.runs()).filter(|_| random.u8(..6) == 0 && past.is_none());
    let now = || runs.map_or_else(|| world.runs(), |run| vec![run]);
    let rows = past.map_or_else(|| world.rows_of(now(), with_arriving), |(_, rows)| rows.clone());
    let mut wish = Wish::any(random, &world.schema, &rows);
    wish.query.as_of = past.map(|(version, _)| *version);
    wish.query.with_arriving = with_arriving;
    wish.query.runs = runs.map(|run| OfRuns::new([run]));
    wish.of(rows)
}

async fn check_query(world: &World, asked: &Asked) {
    let answer = world.table.query(&asked.query).await.unwrap();
    asked.judge(&world.schema, &answer);
    let counted = world.table.count(&asked.query).await.unwrap();
    assert_eq!(counted.rows, asked.count() as u64);
    assert!(counted.work.rows_touched <= answer.work.rows_touched);
    if let Some(version) = asked.query.as_of {
        assert_eq!((answer.version, counted.version), (version, version));
    }
}

async fn check_refinement(random: &mut Rng, world: &World, asked: &Asked) {
    let mut refinement = world.table.refine(&asked.query);
    let mut batches = Vec::new();
    loop {
        if random.bool() {
            refinement.want(random.usize(..300));
        }
        let Some(refined) = refinement.next().await.unwrap() else { break };
        assert_eq!(Some(refined.version), refinement.version());
        batches.push(refined);
    }
    asked.judge_refinement(&world.schema, &batches);
}

async fn check_batches(world: &World, asked: &Asked) {
    let query = Query { columns: Some(vec!["step".to_owned(), "pid".to_owned()]), ..asked.query.clone() };
    let mut reading = world.table.batches(&query);
    let mut batches = Vec::new();
    while let Some(batch) = reading.next().await.unwrap() {
        batches.push(batch);
    }
    assert_eq!(reading.work().rows_returned as usize, asked.count());
    asked.judge_batches(&batches);
}

async fn check_explanation(world: &World, asked: &Asked) {
    let explained = world.table.explain(&asked.query).await.unwrap();
    let work = world.table.query(&asked.query).await.unwrap().work;
    assert_eq!(work.blocks, explained.blocks);
    assert!(explained.bands <= work.bands && (explained.may_go_on || explained.bands == work.bands));
    assert!(explained.may_go_on || explained.rows == work.rows_touched);
    assert!(explained.rows_expected <= explained.rows);
    assert!(!explained.to_string().is_empty() && serde_json::to_string(&explained).is_ok());
}

/// The number of index columns.
const INDEX_COLUMNS: usize = 4;

/// A column, and its value in a row.
type ColumnOf = (Column, fn(&Particle) -> Option<Scalar>);

async fn check_extremes(world: &World, asked: &Asked) {
    let (x, y) = match world.schema.columns().column_with_name("pos") {
        Some(_) => (Column::element("pos", 0), Column::element("pos", 1)),
        None => (Column::named("x"), Column::named("y")),
    };
    let index: [ColumnOf; INDEX_COLUMNS] = [
        (x, |row| Some(Scalar::Float(row.x))),
        (y, |row| row.y.filter(|y| !y.is_nan()).map(Scalar::Float)),
        (Column::named("step"), |row| Some(Scalar::Signed(row.step))),
        (Column::named("time"), |row| Some(Scalar::Signed(row.time_ms))),
    ];
    let others: [ColumnOf; 2] = [
        (Column::named("kind"), |row| Some(Scalar::Unsigned(row.kind.into()))),
        (Column::named("vz"), |row| Some(Scalar::Float(row.vz.into()))),
    ];
    let query = &asked.query;
    let is_cut_short = query.units.is_some() || query.limit.is_some();
    let counted = world.table.count(query).await.unwrap().work.rows_touched;
    for (place, (column, value)) in index.into_iter().chain(others).enumerate() {
        let least = world.table.minimum(query, &column).await.unwrap();
        let greatest = world.table.maximum(query, &column).await.unwrap();
        assert_eq!((least.value, greatest.value), asked.ends(value), "{column}");
        assert_eq!(
            (least.array().len(), least.array().null_count()),
            (1, usize::from(least.value.is_none()))
        );
        // What matches as a whole is counted, and told apart, without reading it.
        let touched = least.work.rows_touched.max(greatest.work.rows_touched);
        assert!(place >= INDEX_COLUMNS || is_cut_short || touched <= counted, "{touched} of {counted}");
    }
}

async fn ask(random: &mut Rng, world: &World, queries: usize) {
    for _ in 0..queries {
        let asked = any(random, world);
        let failing = PrintOnFailure::of(&asked.query);
        match random.u8(..8) {
            0 | 1 => check_refinement(random, world, &asked).await,
            2 => check_batches(world, &asked).await,
            3 => check_explanation(world, &asked).await,
            4 => check_extremes(world, &asked).await,
            _ => check_query(world, &asked).await,
        }
        drop(failing);
    }
}

#[test]
fn random_queries_equal_brute_force_while_runs_write_and_start_again() {
    for_seeds("random_queries_equal_brute_force", 40, |random| {
        run(async {
            let schema = any_schema(random);
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let table = Table::create(store, "run", schema).await.unwrap();
            let mut world = World::new(table, random.i64(10..1200));
            for _ in 0..12 {
                world.act(random).await;
                if random.u8(..3) == 0 {
                    world.pack(random).await;
                }
                ask(random, &world, 8).await;
            }
        });
    });
}

#[test]
fn random_queries_equal_brute_force_on_a_folder_that_is_closed_and_opened_again() {
    for_seeds("random_queries_equal_brute_force_on_a_folder", 4, |random| {
        run(async {
            let schema = any_schema(random);
            let folder = tempfile::tempdir().unwrap();
            let open = async || {
                atoll_embedded::open(folder.path(), atoll_embedded::OpenOptions::default())
                    .await
                    .unwrap()
                    .store()
            };
            let mut store = open().await;
            let table = Table::create(Arc::clone(&store), "run", schema).await.unwrap();
            let mut world = World::new(table, 2000);
            for _ in 0..4 {
                for _ in 0..3 {
                    world.act(random).await;
                    if random.bool() {
                        world.pack(random).await;
                    }
                    ask(random, &world, 8).await;
                }
                store.close().await.unwrap();
                store = open().await;
                world.table = Table::open(Arc::clone(&store), "run").await.unwrap();
                ask(random, &world, 10).await;
            }
        });
    });
}
