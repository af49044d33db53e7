//! Tables with unique ids: within a run no id occurs twice, whatever process writes when, and a refused write
//! leaves nothing.

use super::door::{Door, Doorway, is_object};
use super::rows::{block, open, rows, schema, seen, steps_seen};
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat_batches;
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, PartitionQuery, Store};
use atoll_tables::protocol::{EditError, Repeat, RepeatedAt};
use atoll_tables::{PackOptions, Query, Roles, Table, TableError, TableSchema, WholeStep, column};
use futures::FutureExt;
use futures::future::{join, join_all};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A table with the id (pid, step), and `ranks` ranks in run "a".
async fn table(ranks: u32) -> (Arc<Door>, Arc<dyn Store>, Table) {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = Table::create(Arc::clone(&store), "run", schema().with_unique_ids()).await.unwrap();
    table.begin("a", 1, ranks).await.unwrap();
    (door, store, table)
}

/// A table whose id is the particle alone, so that a particle in two steps is a repetition.
fn events() -> TableSchema {
    let columns =
        Schema::new(vec![column("pid", DataType::Int64, false), column("x", DataType::Float64, false)]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles { id: names(&["pid"]), sample_key: Vec::new(), index: names(&["x"]), salt: 0 };
    TableSchema::new(columns, &roles).unwrap().with_unique_ids()
}

async fn table_of_events() -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", events()).await.unwrap();
    table.begin("a", 1, 1).await.unwrap();
    table
}

fn some_events(pids: std::ops::Range<i64>) -> RecordBatch {
    let x: arrow_array::Float64Array =
        pids.clone().map(|pid| pid as f64 * 0.37 % 1.0).collect::<Vec<_>>().into();
    let pid: Int64Array = pids.collect::<Vec<_>>().into();
    RecordBatch::try_new(Arc::clone(events().columns()), vec![Arc::new(pid), Arc::new(x)]).unwrap()
}

fn repeats(error: TableError) -> Vec<Repeat> {
    match error {
        TableError::Edit(EditError::RepeatedIds { repeats, .. }) => repeats,
        other => panic!("{other} ({other:?})"),
    }
}

fn repeat(id: &str, there: RepeatedAt) -> Repeat {
    Repeat { id: id.to_owned(), there }
}

/// The number of objects in the store.
async fn objects(store: &dyn Store) -> usize {
    let page = store.partition_keys(PartitionQuery::prefix(b"\0atoll.table/".to_vec())).await.unwrap();
    page.partitions.iter().filter(|partition| is_object(partition)).count()
}

#[tokio::test]
async fn an_id_twice_in_one_batch_is_refused_with_its_rows_and_nothing_is_kept() {
    let (_, store, table) = table(1).await;
    let doubled = concat_batches(schema().columns(), &[rows(3, 0, 4), rows(3, 2, 1)]).unwrap();
    let error = table.append(block("a", 1, 3, 0), &doubled).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "step 3 of rank 0 of run \"a\" repeats ids, which must be unique within a run of this table: pid=2, step=3 is in rows 2 and 4"
    );
    assert!(error.hint().unwrap().contains("none of these rows were stored"));
    assert_eq!((seen(&table).await.len(), objects(&*store).await), (0, 0));
    table.append(block("a", 1, 3, 0), &rows(3, 0, 4)).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(3, 4)], "the step is still to be had");
}

#[tokio::test]
async fn an_id_of_another_rank_is_refused_before_and_after_its_step_is_visible() {
    let (_, store, table) = table(3).await;
    table.append(block("a", 1, 3, 0), &rows(3, 0, 100)).await.unwrap();
    let error = table.append(block("a", 1, 3, 1), &rows(3, 99, 100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(repeats(error), [repeat("pid=99, step=3", RepeatedAt::Arriving(3))]);
    table.append(block("a", 1, 3, 1), &rows(3, 100, 100)).await.unwrap();
    table.append(block("a", 1, 3, 2), &rows(3, 200, 100)).await.unwrap();
    // Rows of a later step that claim to be of this one.
    let late = table.append(block("a", 1, 4, 2), &rows(3, 150, 1)).await.unwrap_err();
    assert_eq!(repeats(late), [repeat("pid=150, step=3", RepeatedAt::Step(3))]);
    assert_eq!(steps_seen(&table).await, [(3, 300)]);
    assert_eq!(objects(&*store).await, 3, "what was refused is gone");
}

#[tokio::test]
async fn a_block_that_is_given_again_is_harmless_as_ever() {
    let (_, store, table) = table(2).await;
    for _ in 0..3 {
        table.append(block("a", 1, 3, 0), &rows(3, 0, 100)).await.unwrap();
    }
    table.append(block("a", 1, 3, 1), &rows(3, 100, 100)).await.unwrap();
    table.append(block("a", 1, 3, 0), &rows(3, 0, 100)).await.unwrap();
    table.pack(&PackOptions::whole()).await.unwrap();
    open(&store).await.append(block("a", 1, 3, 0), &rows(3, 0, 100)).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(3, 200)]);
}

#[tokio::test]
async fn other_runs_may_have_the_same_ids_packed_or_not() {
    let (_, _, table) = table(1).await;
    for run in ["b", "c"] {
        table.begin(run, 1, 1).await.unwrap();
    }
    table.append(block("a", 1, 3, 0), &rows(3, 0, 300)).await.unwrap();
    table.append(block("b", 1, 3, 0), &rows(3, 0, 300)).await.unwrap();
    table.pack(&PackOptions::whole()).await.unwrap();
    table.append(block("c", 1, 3, 0), &rows(3, 0, 300)).await.unwrap();
    // A packed row keeps its run.
    let error = table.append(block("b", 1, 4, 0), &rows(3, 299, 1)).await.unwrap_err();
    assert_eq!(repeats(error), [repeat("pid=299, step=3", RepeatedAt::Step(3))]);
    // Blocks of two runs in one commit: the cube of both is compared with each of them.
    let fresh = rows(7, 0, 1);
    let both = [(block("a", 1, 4, 0), None, fresh), (block("b", 1, 4, 0), None, rows(3, 299, 1))];
    let error = table.append_all(&both).await.unwrap_err();
    assert_eq!(repeats(error), [repeat("pid=299, step=3", RepeatedAt::Step(3))]);
}

#[tokio::test]
async fn what_was_deleted_or_superseded_does_not_count() {
    let (_, _, table) = table(1).await;
    for step in 0..4 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 50)).await.unwrap();
    }
    table.pack(&PackOptions::whole()).await.unwrap();
    let again = rows(1, 20, 1);
    assert!(table.append(block("a", 1, 4, 0), &again).await.is_err());
    table.delete(None, None, Some("pid = 20 and step = 1")).await.unwrap();
    table.append(block("a", 1, 4, 0), &again).await.unwrap();
    assert!(table.append(block("a", 1, 5, 0), &again).await.is_err(), "now it is there again");
    // A new attempt rewrites step 2 and all that follows; earlier steps remain.
    table.begin("a", 2, 1).await.unwrap();
    let error = table.append(block("a", 2, 2, 0), &rows(0, 7, 1)).await.unwrap_err();
    assert_eq!(repeats(error), [repeat("pid=7, step=0", RepeatedAt::Step(0))]);
    table.append(block("a", 2, 2, 0), &rows(2, 0, 50)).await.unwrap();
    table.append(block("a", 2, 3, 0), &rows(3, 0, 50)).await.unwrap();
    // Step 4 of the first attempt was superseded with the others, and with it the row that was appended
    // again.
    table.append(block("a", 2, 4, 0), &again).await.unwrap();
    let seen = seen(&table).await;
    assert!(seen.len() == 200 && seen.values().all(|times| *times == 1), "{seen:?}");
}

#[tokio::test]
async fn what_another_process_deleted_meanwhile_does_not_count() {
    let (_, store, table) = table(1).await;
    table.append(block("a", 1, 1, 0), &rows(1, 0, 50)).await.unwrap();
    open(&store).await.delete(None, None, Some("pid = 20")).await.unwrap();
    // The handle does not know of it yet, and writes by what it knows.
    table.append(block("a", 1, 2, 0), &rows(1, 20, 1)).await.unwrap();
    assert_eq!(seen(&table).await.len(), 50);
}

#[tokio::test]
async fn the_ranks_of_a_new_attempt_begin_with_one_step_so_that_it_is_known_what_goes() {
    let (_, _, table) = table(1).await;
    for step in 0..4 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 50)).await.unwrap();
    }
    table.begin("a", 2, 2).await.unwrap();
    table.append(block("a", 2, 1, 0), &rows(1, 0, 25)).await.unwrap();
    table.append(block("a", 2, 2, 0), &rows(2, 0, 25)).await.unwrap();
    let error = table.append(block("a", 2, 2, 1), &rows(1, 40, 1)).await.unwrap_err();
    assert!(matches!(error, TableError::Edit(EditError::Skipped { lost: 1, .. })), "{error}");
    table.append(block("a", 2, 1, 1), &rows(1, 25, 0)).await.unwrap();
    table.append(block("a", 2, 2, 1), &rows(2, 25, 25)).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(0, 50), (1, 25), (2, 50)]);
}

#[tokio::test]
async fn a_load_does_not_pass_a_step_that_is_arriving_since_nobody_could_tell_what_goes() {
    let table = table_of_events().await;
    for step in 3..6 {
        let first = step as i64 * 100;
        table.append(block("a", 1, step, 0), &some_events(first..first + 100)).await.unwrap();
    }
    table.begin("a", 2, 2).await.unwrap();
    table.append(block("a", 2, 3, 0), &some_events(300..350)).await.unwrap();
    // Its rows exist in step 4 of the first attempt, which stays if the second one begins with step 5.
    let whole = WholeStep { step: 5, time: None, rows: some_events(400..500) };
    let refused = table.load("a", 2, &[whole], &PackOptions::default()).await.unwrap_err();
    assert!(matches!(refused, TableError::Edit(EditError::StepArriving { arriving: 3, .. })), "{refused}");
    table.append(block("a", 2, 3, 1), &some_events(350..400)).await.unwrap();
    assert_eq!(table.count(&Query::default()).await.unwrap().rows, 100);
}

#[tokio::test]
async fn of_ids_without_a_step_all_steps_of_the_run_are_looked_at() {
    let table = table_of_events().await;
    for step in 0..20 {
        let first = step as i64 * 500;
        table.append(block("a", 1, step, 0), &some_events(first..first + 500)).await.unwrap();
        if step == 10 {
            table.pack(&PackOptions::whole()).await.unwrap();
        }
    }
    for (pid, step) in [(0, 0), (3333, 6), (9999, 19)] {
        let error = table.append(block("a", 1, 20, 0), &some_events(pid..pid + 1)).await.unwrap_err();
        assert_eq!(repeats(error), [repeat(&format!("pid={pid}"), RepeatedAt::Step(step))]);
    }
    let many = table.append(block("a", 1, 20, 0), &some_events(400..10_400)).await.unwrap_err();
    assert!(many.to_string().ends_with("; and others"), "{many}");
    assert_eq!(repeats(many).len(), 5);
    table.append(block("a", 1, 20, 0), &some_events(10_000..10_400)).await.unwrap();
    assert_eq!(table.count(&Query::default()).await.unwrap().rows, 10_400);
}

#[tokio::test]
async fn two_writers_that_race_for_an_id_do_not_both_get_it() {
    let (door, store, table) = table(2).await;
    let other = open(&store).await;
    for step in 0..5 {
        // The first append has compared its ids, and its commit is under way; then the second one overtakes
        // it.
        door.held_commits.store(1, Ordering::SeqCst);
        let (mine, theirs) = (rows(step, 0, 60), rows(step, 59, 60));
        let mut first = Box::pin(table.append(block("a", 1, step, 0), &mine));
        while door.held_commits.load(Ordering::SeqCst) > 0 {
            assert!((&mut first).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        other.append(block("a", 1, step, 1), &theirs).await.unwrap();
        door.gate.add_permits(1);
        let id = format!("pid=59, step={step}");
        assert_eq!(repeats(first.await.unwrap_err()), [repeat(&id, RepeatedAt::Arriving(step))]);
        table.append(block("a", 1, step, 0), &rows(step, 0, 59)).await.unwrap();
    }
    assert_eq!(steps_seen(&table).await, (0..5).map(|step| (step, 119)).collect::<Vec<_>>());
}

#[tokio::test]
async fn appends_that_share_a_commit_are_compared_with_each_other() {
    let (door, _, table) = table(4).await;
    door.held_commits.store(1, Ordering::SeqCst);
    // Rank 2 repeats an id of rank 1; the others succeed whatever happens to it.
    let firsts = [0, 100, 150, 300];
    let appends = firsts.into_iter().enumerate().map(|(rank, first)| {
        let table = table.clone();
        async move { table.append(block("a", 1, 1, rank as u32), &rows(1, first, 100)).await }
    });
    let release = async { door.gate.add_permits(1) };
    let (done, ()) = join(join_all(appends), release).await;
    let refused: Vec<_> = done.into_iter().filter_map(Result::err).map(repeats).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    table.append(block("a", 1, 1, 2), &rows(1, 200, 100)).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(1, 400)]);
}

#[tokio::test]
async fn blocks_of_one_edit_are_refused_together() {
    let (_, store, table) = table(2).await;
    let blocks: Vec<_> =
        (0..2).map(|rank| (block("a", 1, 5, rank), None, rows(5, i64::from(rank), 2))).collect();
    let error = table.append_all(&blocks).await.unwrap_err();
    assert_eq!(repeats(error), [repeat("pid=1, step=5", RepeatedAt::Step(5))]);
    assert_eq!((steps_seen(&table).await.len(), objects(&*store).await), (0, 0));
}

#[tokio::test]
async fn where_the_step_is_part_of_the_id_and_indexed_nothing_but_the_step_is_read() {
    let (door, _, table) = table(2).await;
    for step in 0..200 {
        if step == 100 {
            table.pack(&PackOptions::whole()).await.unwrap();
        }
        door.object_reads.store(0, Ordering::SeqCst);
        for rank in 0..2 {
            table.append(block("a", 1, step, rank), &rows(step, i64::from(rank) * 500, 500)).await.unwrap();
        }
        let reads = door.object_reads.load(Ordering::SeqCst);
        assert!(reads <= 2, "step {step}: {reads} reads of objects, where one block of the step was there");
    }
}

#[tokio::test]
async fn a_table_without_unique_ids_takes_what_it_is_given() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = super::rows::create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    let doubled = concat_batches(schema().columns(), &[rows(3, 0, 4), rows(3, 2, 1)]).unwrap();
    table.append(block("a", 1, 3, 0), &doubled).await.unwrap();
    assert_eq!(seen(&table).await[&(3, 2)], 2);
    let other = Table::create(store, "run", schema().with_unique_ids()).await;
    assert!(
        matches!(other, Err(TableError::Exists { .. })),
        "ids are unique from the beginning, or not at all"
    );
}

#[tokio::test]
async fn steps_behind_a_refused_one_of_their_rank_do_not_pass_it() {
    let (door, _, table) = table(1).await;
    table.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
    let give = |step, rows: RecordBatch| {
        let table = table.clone();
        async move { table.append(block("a", 1, step, 0), &rows).await }
    };
    door.held.store(1, Ordering::SeqCst);
    let mut both = Box::pin(join_all([give(1, rows(0, 5, 1)), give(2, rows(2, 0, 10))]));
    assert!((&mut both).now_or_never().is_none());
    door.gate.add_permits(1);
    let mut done = both.await.into_iter();
    assert_eq!(repeats(done.next().unwrap().unwrap_err()), [repeat("pid=5, step=0", RepeatedAt::Step(0))]);
    assert!(matches!(done.next().unwrap(), Err(TableError::Behind { .. })));
    give(1, rows(1, 0, 10)).await.unwrap();
    give(2, rows(2, 0, 10)).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(0, 10), (1, 10), (2, 10)]);
}
