//! Tests tables on the model store against plain sorting and filtering of the same rows.

use super::codec::Whole;
use super::*;
use crate::expression::parse_box;
use crate::lattice::{Interval, Region, Scalar};
use crate::protocol::{BlockId, Edit, Scope, StepRange};
use crate::seeds::for_seeds;
use crate::{Cut, Roles, Salt, Window, column, order, weights};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use atoll_errors::ErrorKind;
use atoll_memory::MemoryStore;

pub(super) fn schema() -> TableSchema {
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float64, false),
        column("y", DataType::Float64, true),
        column("vz", DataType::Float64, false),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles {
        id: names(&["pid", "step"]),
        sample_key: Vec::new(),
        index: names(&["x", "y", "step"]),
        salt: 0,
    };
    TableSchema::new(columns, &roles).unwrap()
}

/// Rows of one rank and step: particles that drift to the right.
pub(super) fn rows(random: &mut fastrand::Rng, step: i64, rank: u32, count: usize) -> RecordBatch {
    let base = i64::from(rank) * 1_000_000;
    let pid: Int64Array = (0..count as i64).map(|particle| base + particle).collect::<Vec<_>>().into();
    let steps: Int64Array = vec![step; count].into();
    let x: Float64Array = (0..count).map(|_| random.f64() + step as f64 * 0.1).collect::<Vec<_>>().into();
    let y: Float64Array =
        (0..count).map(|_| (random.u8(..20) > 0).then(|| random.f64())).collect::<Vec<Option<f64>>>().into();
    let vz: Float64Array = (0..count).map(|_| random.f64()).collect::<Vec<_>>().into();
    let columns: Vec<ArrayRef> = vec![Arc::new(pid), Arc::new(steps), Arc::new(x), Arc::new(y), Arc::new(vz)];
    RecordBatch::try_new(Arc::clone(schema().columns()), columns).unwrap()
}

fn block(attempt: u64, step: i64, rank: u32) -> BlockId {
    BlockId { run: "run".into(), attempt, step: step as u64, rank }
}

/// All visible rows as a plain list, which queries are compared with.
#[derive(Default)]
struct Oracle {
    batches: Vec<RecordBatch>,
}

impl Oracle {
    /// The rows that a query must answer, in order.
    fn answer(&self, region: Option<&Region>, window: Window, limit: Option<usize>) -> RecordBatch {
        let all = concat_batches(schema().columns(), &self.batches).unwrap();
        let weights = weights(&all.columns()[..2], Salt(0)).unwrap();
        let index = [2, 3, 1].map(|place| Arc::clone(all.column(place)));
        let inside = region.map(|region| region.matches(&index).unwrap());
        let order = order(&weights, &all.columns()[..2]).unwrap();
        let takes = |row: &u32| {
            let row = *row as usize;
            window.takes(weights[row]) && inside.as_ref().is_none_or(|inside| inside.value(row))
        };
        let kept: Vec<u32> = order.into_iter().filter(takes).take(limit.unwrap_or(usize::MAX)).collect();
        take_record_batch(&all, &UInt32Array::from(kept)).unwrap()
    }
}

async fn written(random: &mut fastrand::Rng, steps: i64, count: usize) -> (Table, Oracle) {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema()).await.unwrap();
    let mut oracle = Oracle::default();
    table.begin("run", 1, 2).await.unwrap();
    for step in 0..steps {
        for rank in 0..2 {
            let of_rank = random.usize(..count);
            let rows = rows(random, step, rank, of_rank);
            table.append(block(1, step, rank), &rows).await.unwrap();
            oracle.batches.push(rows);
        }
    }
    (table, oracle)
}

/// A box, both as a user writes it and as the lattice represents it.
fn some_box(random: &mut fastrand::Rng) -> (String, Region) {
    let low = random.f64() * 3.0;
    let high = low + random.f64();
    let (first, last) = (random.i64(0..12), random.i64(0..12));
    let (first, last) = (first.min(last), first.max(last) + 1);
    let y = random.bool().then(|| random.f64());
    let region = Region::new(vec![
        Interval::from(Scalar::Float(low)..Scalar::Float(high)),
        y.map_or(Interval::default(), |y| Interval::from(..Scalar::Float(y))),
        Interval::from(Scalar::Signed(first)..Scalar::Signed(last)),
    ]);
    let y = y.map(|y| format!(", y=:{y:?}")).unwrap_or_default();
    (format!("x={low:?}:{high:?}, step={first}:{last}{y}"), region.unwrap())
}

#[test]
fn every_query_equals_a_plain_scan_of_the_same_rows() {
    for_seeds("every_query_equals_a_plain_scan", 4, |random| {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let (table, oracle) = written(random, 12, 1500).await;
            for _ in 0..80 {
                let asked = random.bool().then(|| some_box(random));
                let window = match random.u8(..3) {
                    0 => Window::below(Cut::ALL),
                    1 => Window::below(Cut::of_share(random.f64() * random.f64()).unwrap()),
                    _ => Cut::window(0.1, 0.1 + random.f64() * 0.9).unwrap(),
                };
                let limit = random.bool().then(|| random.usize(..3000));
                let mut query = Query { window, limit, ..Query::default() };
                if let Some((text, _)) = &asked {
                    query = query.in_box(&parse_box(text).unwrap());
                }
                let answer = table.query(&query).await.unwrap();
                let region = asked.map(|(_, region)| region);
                let expected = oracle.answer(region.as_ref(), window, limit);
                assert_eq!(answer.rows, expected, "{query:?}");
                let of_rows = weights(&answer.rows.columns()[..2], Salt(0)).unwrap();
                assert_eq!(answer.weights, of_rows);
                assert_eq!(answer.work.rows_returned as usize, expected.num_rows());
                assert!(answer.work.rows_touched >= answer.work.rows_returned);
                let count = table.count(&query).await.unwrap();
                assert_eq!(count.rows as usize, expected.num_rows(), "{query:?}");
                assert!(count.work.bytes <= answer.work.bytes);
            }
        });
    });
}

#[tokio::test]
async fn a_sample_touches_little_more_than_it_returns_while_nothing_was_packed() {
    let mut random = fastrand::Rng::with_seed(9);
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 0..4 {
        table.append(block(1, step, 0), &rows(&mut random, step, 0, 60_000)).await.unwrap();
    }
    for share in [0.02, 0.1, 0.5, 1.0] {
        let query = Query { window: Window::below(Cut::of_share(share).unwrap()), ..Query::default() };
        let work = table.query(&query).await.unwrap().work;
        assert!(work.rows_touched <= 2 * work.rows_returned, "{share}: {work:?}");
    }
    let first = Query { limit: Some(1000), ..Query::default() };
    let work = table.query(&first).await.unwrap().work;
    assert!(work.rows_returned == 1000 && work.rows_touched <= 8 * work.rows_returned, "{work:?}");
    // Ids and index columns are always read; the velocity only if it is requested.
    let one = Query { columns: Some(vec!["pid".to_owned()]), ..Query::default() };
    let all = table.query(&Query::default()).await.unwrap().work;
    let one = table.query(&one).await.unwrap().work;
    assert!(one.bytes * 10 < all.bytes * 9, "{} of {} bytes", one.bytes, all.bytes);
}

#[tokio::test]
async fn a_step_is_seen_whole_or_not_at_all_and_a_block_given_twice_counts_once() {
    let mut random = fastrand::Rng::with_seed(3);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    let reader = Table::open(store, "run").await.unwrap();
    let count = async || reader.query(&Query::default()).await.unwrap().rows.num_rows();
    table.begin("run", 1, 2).await.unwrap();
    let (left, right) = (rows(&mut random, 0, 0, 300), rows(&mut random, 0, 1, 200));
    table.append(block(1, 0, 0), &left).await.unwrap();
    assert_eq!(count().await, 0, "half a step");
    table.append(block(1, 0, 0), &left).await.unwrap();
    table.append(block(1, 0, 1), &right).await.unwrap();
    assert_eq!(count().await, 500);
    table.append(block(1, 0, 1), &right).await.unwrap();
    assert_eq!(count().await, 500, "doubled");
}

#[tokio::test]
async fn a_new_attempt_supersedes_what_the_old_one_wrote_from_its_first_step_on() {
    let mut random = fastrand::Rng::with_seed(4);
    let (table, oracle) = written(&mut random, 6, 400).await;
    table.begin("run", 2, 1).await.unwrap();
    let stale = table.append(block(1, 6, 0), &rows(&mut random, 6, 0, 10)).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Conflict, "{stale}");
    let again = rows(&mut random, 3, 0, 500);
    table.append(block(2, 3, 0), &again).await.unwrap();
    let kept = oracle.batches.into_iter().take(6).chain([again]).collect();
    let expected = Oracle { batches: kept }.answer(None, Window::below(Cut::ALL), None);
    assert_eq!(table.query(&Query::default()).await.unwrap().rows, expected);
}

#[tokio::test]
async fn writers_in_several_handles_lose_and_double_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    let writers = (0..4_u32).map(|rank| {
        let store = Arc::clone(&store);
        async move {
            let table = Table::open(store, "run").await.unwrap();
            table.begin("run", 1, 4).await.unwrap();
            let mut random = fastrand::Rng::with_seed(u64::from(rank));
            for step in 0..40 {
                table.append(block(1, step, rank), &rows(&mut random, step, rank, 20)).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    futures::future::join_all(writers).await;
    let table = Table::open(store, "run").await.unwrap();
    // More edits than fit between two whole manifests.
    assert!(table.version().await.unwrap().0 > 160);
    assert_eq!(table.query(&Query::default()).await.unwrap().rows.num_rows(), 4 * 40 * 20);
}

#[tokio::test]
async fn a_table_is_made_once_and_found_by_name() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let made = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    let again = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    assert_eq!(made.schema(), again.schema());
    let other =
        TableSchema::new(Arc::clone(schema().columns()), &Roles { salt: 1, ..schema().roles() }).unwrap();
    let refused = Table::create(Arc::clone(&store), "run", other).await.unwrap_err();
    assert!(matches!(refused, TableError::Exists { .. }), "{refused}");
    let missing = Table::open(Arc::clone(&store), "runs").await.unwrap_err();
    assert_eq!(missing.to_string(), "there is no table \"runs\"");
    for name in ["", "a\nb", &"x".repeat(256)] {
        let refused = Table::create(Arc::clone(&store), name, schema()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }
    let column = Query { columns: Some(vec!["vx".to_owned()]), ..Query::default() };
    let unknown = made.query(&column).await.unwrap_err().to_string();
    assert_eq!(unknown, "table \"run\" has no column \"vx\"; did you mean \"vz\"?");
    assert_eq!(made.query(&Query::default()).await.unwrap().rows.num_rows(), 0);
}

#[tokio::test]
async fn a_table_has_one_identity_for_all_who_open_it_and_no_other_table_has_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let made = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    let opened = Table::open(Arc::clone(&store), "run").await.unwrap();
    assert_eq!(opened.identity(), made.identity());
    let beside = Table::create(Arc::clone(&store), "other", schema()).await.unwrap();
    let there: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let elsewhere = Table::create(there, "run", schema()).await.unwrap();
    Table::drop_table(&*store, "run").await.unwrap();
    let anew = Table::create(store, "run", schema()).await.unwrap();
    let all = [&made, &beside, &elsewhere, &anew].map(Table::identity);
    assert_eq!(std::collections::BTreeSet::from(all).len(), 4, "{all:?}");
}

#[tokio::test]
async fn what_is_stored_comes_back_as_it_was() {
    let mut random = fastrand::Rng::with_seed(5);
    let (table, _) = written(&mut random, 5, 50).await;
    table.begin("run", 2, 3).await.unwrap();
    table.append(block(2, 2, 1), &rows(&mut random, 2, 1, 5)).await.unwrap();
    let state = table.ledger.current().await.unwrap();
    assert!(!state.manifest.runs.is_empty() && !state.manifest.pieces.is_empty());
    let bytes = codec::whole_to_bytes(&state.manifest);
    let Whole::Manifest(read) = codec::whole_from_bytes("run", &bytes).unwrap() else { panic!("in parts") };
    assert_eq!(read, *state.manifest);
    assert_eq!(codec::head_from_bytes("run", &codec::head_to_bytes(state.head)).unwrap(), state.head);
    for cut in 0..bytes.len() {
        assert!(codec::whole_from_bytes("run", &bytes[..cut]).is_err(), "cut at {cut}");
    }
    let newer = [&[9], &bytes[1..]].concat();
    let refused = codec::whole_from_bytes("run", &newer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NewerFormat);
}

/// Other crates run these futures on their own runtimes.
#[test]
fn what_a_table_does_may_be_done_on_any_thread() {
    fn is_send<T: Send>(_: impl FnOnce(Table) -> T) {}
    is_send(
        |table| async move { table.append(block(1, 1, 0), &rows(&mut fastrand::Rng::new(), 1, 0, 1)).await },
    );
    is_send(|table| async move { table.append_all(&[]).await });
    is_send(|table| async move { table.query(&Query::default()).await });
    is_send(|table| async move { table.count(&Query::default()).await });
    is_send(|table| async move { table.explain(&Query::default()).await });
    is_send(|table| async move { table.batches(&Query::default()).next().await });
    is_send(|table| async move { table.refine(&Query::default()).next().await });
    is_send(|table| async move { table.begin_next("a", 1).await });
    is_send(|table| async move { table.begin_after("a", None, 1).await });
    is_send(|table| async move { table.follow(Version(0), std::time::Duration::ZERO).await });
    is_send(|table| async move { table.delete(None, None, None).await });
    is_send(|table| async move { table.steps(None).await });
    is_send(|table| async move { Table::drop_table(&*table.store, "a").await });
    is_send(|table| async move { Table::create(table.store, "a", schema()).await });
}

/// A list of ids that is within the length limit as typed, and beyond it as displayed.
fn long_list() -> String {
    let list = format!("pid in (0{})", ",1".repeat(400_000));
    assert!(list.len() < crate::expression::LENGTH_MAX);
    list
}

#[tokio::test]
async fn a_delete_whose_condition_is_too_long_once_it_is_stored_is_refused() {
    let (_, table) = run_of(1).await;
    let refused = table.delete(None, None, Some(&long_list())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    assert_eq!(table.query(&Query::default()).await.unwrap().rows.num_rows(), 10);
}

#[tokio::test]
async fn a_table_with_a_delete_of_a_long_condition_stays_readable() {
    let (_, table) = run_of(1).await;
    let shown = crate::expression::Expression::parse(&long_list()).unwrap().to_string();
    assert!(shown.len() > crate::expression::LENGTH_MAX);
    let scope = Scope { run: None, steps: StepRange::ALL, expression: Some(shown.into()) };
    table.ledger.commit(Edit::Delete { scope }).await.unwrap();
    assert_eq!(table.query(&Query::default()).await.unwrap().rows.num_rows(), 8);
    let report = table.pack(&PackOptions::whole()).await.unwrap();
    assert_eq!((report.rows, report.dropped), (8, 2));
}

/// A table with this many steps of ten rows each.
async fn run_of(steps: i64) -> (Arc<MemoryStore>, Table) {
    let store = Arc::new(MemoryStore::new());
    let table = Table::create(store.clone(), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for step in 0..steps {
        table.append(block(1, step, 0), &rows(&mut random, step, 0, 10)).await.unwrap();
    }
    (store, table)
}

#[tokio::test]
async fn a_head_that_claims_more_versions_than_there_can_be_is_damage() {
    for version in [1 << 60, u64::MAX] {
        let (store, table) = run_of(1).await;
        let head =
            crate::protocol::Head { version: Version(version), ..table.ledger.head_now().await.unwrap() };
        let key = crate::protocol::Cell::Head.sort_key();
        let batch = atoll_store::Batch::on(table.names.manifest()).put(key, codec::head_to_bytes(head));
        store.write(batch, atoll_store::WriteOptions::default()).await.unwrap();
        let damaged = Table::open(store, "run").await.err().unwrap();
        assert!(matches!(damaged, TableError::Damaged { .. }), "{damaged}");
    }
}
