//! Random queries of random tables, on two stores.

use crate::conditions::Condition;
use crate::particles::{Particle, batch, schema};
use crate::run;
use crate::seeds::for_seeds;
use crate::world::World;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::{Cut, Query, Table, Weight, Window};
use fastrand::Rng;
use std::sync::Arc;

/// A query, and the rows of its range by brute force, in their order.
struct Asked {
    query: Query,
    range: Vec<Particle>,
}

impl Asked {
    fn any(random: &mut Rng, world: &World) -> Self {
        let with_arriving = random.u8(..8) == 0;
        let past = random.choice(&world.past).filter(|_| random.u8(..8) == 0 && !with_arriving);
        let rows = past.map_or_else(|| world.rows(with_arriving), |(_, rows)| rows.clone());
        let depth = random.usize(..4);
        let condition = match random.u8(..8) {
            0 | 1 => None,
            2 | 3 => Some(Condition::of_entities(random)),
            _ => Some(Condition::any(random, depth)),
        };
        let query = Query {
            filter: condition.as_ref().map(Condition::expression),
            window: some_window(random),
            units: (random.u8(..4) == 0).then(|| some_count(random)),
            limit: (random.u8(..4) == 0).then(|| some_count(random)),
            columns: (random.bool()).then(|| some_columns(random, world)),
            as_of: past.map(|(version, _)| *version),
            with_arriving,
        };
        let takes = |row: &Particle| condition.as_ref().is_none_or(|condition| condition.takes(row));
        let mut range: Vec<Particle> =
            rows.into_iter().filter(|row| query.window.takes(row.weight) && takes(row)).collect();
        range.sort_by_key(|row| (row.weight, row.pid, row.step));
        Self { query, range }
    }

    /// How many rows of the range are to be answered.
    fn count(&self) -> usize {
        let weights: Vec<Weight> = self.range.iter().map(|row| row.weight).collect();
        let units = weights.chunk_by(PartialEq::eq).take(self.query.units.unwrap_or(usize::MAX));
        let rows = units.map(<[Weight]>::len).sum::<usize>();
        rows.min(self.query.limit.unwrap_or(usize::MAX))
    }

    /// These rows of the range, with the columns that are asked for.
    fn batch(&self, world: &World, rows: std::ops::Range<usize>) -> RecordBatch {
        let batch = batch(&world.schema, &self.range[rows]);
        let Some(columns) = &self.query.columns else { return batch };
        let places: Vec<usize> = columns.iter().map(|name| batch.schema().index_of(name).unwrap()).collect();
        batch.project(&places).unwrap()
    }

    /// How many rows of the range lie below a cut.
    fn below(&self, cut: Cut) -> usize {
        self.range.iter().filter(|row| cut.takes(row.weight)).count()
    }
}

fn some_window(random: &mut Rng) -> Window {
    match random.u8(..5) {
        0 | 1 => Window::below(Cut::ALL),
        2 => Window::below(Cut::of_share(random.f64() * random.f64()).unwrap()),
        3 => Window::below(Cut::of_share(random.f64().powi(8)).unwrap()),
        _ => {
            let from = random.f64();
            Cut::window(from, from + (1.0 - from) * random.f64()).unwrap()
        }
    }
}

fn some_count(random: &mut Rng) -> usize {
    let most = 4usize.pow(random.u32(..7));
    random.usize(..=most)
}

fn some_columns(random: &mut Rng, world: &World) -> Vec<String> {
    let fields = world.schema.columns().fields();
    let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    let count = random.usize(..names.len());
    random.choose_multiple(names, count)
}

async fn check_query(world: &World, asked: &Asked) {
    let answer = world.table.query(&asked.query).await.unwrap();
    let count = asked.count();
    assert_eq!(answer.rows, asked.batch(world, 0..count));
    assert!(answer.weights.iter().eq(asked.range[..count].iter().map(|row| &row.weight)));
    assert!(asked.below(answer.cut) <= count, "rows below the cut are missing");
    if count > 0 {
        assert!(answer.cut >= Cut::below(asked.range[count - 1].weight), "the cut is too low");
    }
    if asked.query.units.is_none() && asked.query.limit.is_none() {
        assert_eq!(answer.cut, asked.query.window.until());
    }
    let work = answer.work;
    assert!(work.rows_returned == count as u64 && work.rows_touched >= work.rows_returned);
    let counted = world.table.count(&asked.query).await.unwrap();
    assert_eq!(counted.rows, count as u64);
    assert!(counted.work.rows_touched <= work.rows_touched);
    if let Some(version) = asked.query.as_of {
        assert_eq!((answer.version, counted.version), (version, version));
    }
}

async fn check_refinement(random: &mut Rng, world: &World, asked: &Asked) {
    let mut refinement = world.table.refine(&asked.query);
    let (mut batches, mut done, mut cut) = (Vec::new(), 0, Cut::NOTHING);
    let mut is_last = false;
    loop {
        if random.bool() {
            refinement.want(random.usize(..300));
        }
        let Some(refined) = refinement.next().await.unwrap() else { break };
        assert!(!is_last, "a batch after the last");
        let rows = done..done + refined.rows.num_rows();
        assert!(refined.weights.iter().eq(asked.range[rows.clone()].iter().map(|row| &row.weight)));
        assert!(rows.is_empty() || cut < refined.cut, "the cut stood still");
        (done, cut, is_last) = (rows.end, refined.cut, refined.is_last);
        assert!(asked.below(cut) <= done, "rows below the cut are missing");
        assert_eq!(refined.work.rows_returned as usize, done);
        assert_eq!(Some(refined.version), refinement.version());
        batches.push(refined.rows);
    }
    assert!(is_last && done == asked.count());
    let all = concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!(all, asked.batch(world, 0..done));
}

async fn check_batches(world: &World, asked: &Asked) {
    let query = Query { columns: Some(vec!["step".to_owned(), "pid".to_owned()]), ..asked.query.clone() };
    let mut batches = world.table.batches(&query);
    let mut found: Vec<(i64, i64)> = Vec::new();
    while let Some(batch) = batches.next().await.unwrap() {
        let numbers = |place: usize| -> Vec<i64> {
            let column: &arrow_array::Int64Array = batch.column(place).as_any().downcast_ref().unwrap();
            column.values().to_vec()
        };
        assert!(batch.num_rows() > 0);
        found.extend(numbers(1).into_iter().zip(numbers(0)));
    }
    assert_eq!(batches.work().rows_returned as usize, found.len());
    let mut expected: Vec<(i64, i64)> =
        asked.range[..asked.count()].iter().map(|row| (row.pid, row.step)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
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

async fn ask(random: &mut Rng, world: &World, queries: usize) {
    for _ in 0..queries {
        let asked = Asked::any(random, world);
        let failing = Tell(&asked.query);
        match random.u8(..8) {
            0 | 1 => check_refinement(random, world, &asked).await,
            2 => check_batches(world, &asked).await,
            3 => check_explanation(world, &asked).await,
            _ => check_query(world, &asked).await,
        }
        drop(failing);
    }
}

/// Tells the query that fails.
struct Tell<'q>(&'q Query);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let filter = self.0.filter.as_ref().map(ToString::to_string);
            eprintln!("the query was {:?} with the filter {filter:?}", self.0);
        }
    }
}

#[test]
fn random_queries_equal_brute_force_while_runs_write_and_start_again() {
    for_seeds("random_queries_equal_brute_force", 40, |random| {
        run(async {
            let schema = schema(random.bool(), random.u64(..3));
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
            let schema = schema(random.bool(), 0);
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
