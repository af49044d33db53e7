//! Listings of tables, runs and steps, and waiting for more.

use super::door::{Doorway, is_object};
use super::rows::{block, create, open, rows, schema, seen, steps_seen};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Batch, ErrorKind, PartitionQuery, Store, StoreFuture, WriteOptions, Written};
use atoll_tables::protocol::Version;
use atoll_tables::{Attributes, AttributesOf, Query, Table, TableError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[tokio::test]
async fn runs_and_steps_are_told_by_the_manifest_without_a_look_at_any_object() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 2).await.unwrap();
    for step in [10, 20] {
        let time = step as f64 * 0.5;
        table.append_at(block("a", 1, step, 0), Some(time), &rows(step, 0, 30)).await.unwrap();
        table.append_at(block("a", 1, step, 1), Some(time), &rows(step, 100, 12)).await.unwrap();
    }
    table.append_at(block("a", 1, 30, 1), Some(15.0), &rows(30, 100, 5)).await.unwrap();
    table.begin("b", 3, 1).await.unwrap();
    table.append(block("b", 3, 7, 0), &rows(7, 0, 4)).await.unwrap();

    let reader = open(&store).await;
    let runs = reader.runs().await.unwrap();
    let told: Vec<_> = runs
        .iter()
        .map(|run| (run.name.as_str(), run.attempt, run.ranks, run.last_complete, run.steps, run.rows))
        .collect();
    assert_eq!(told, [("a", 1, 2, Some(20), 2, 84), ("b", 3, 1, Some(7), 1, 4)]);
    let steps = reader.steps(Some("a")).await.unwrap();
    let told: Vec<_> = steps.iter().map(|step| (step.step, step.time, step.attempt, step.rows)).collect();
    assert_eq!(told, [(10, Some(5.0), 1, 42), (20, Some(10.0), 1, 42)]);
    assert_eq!(reader.steps(None).await.unwrap().len(), 3);
    assert_eq!(reader.steps(Some("b")).await.unwrap()[0].time, None);
    let info = reader.info().await.unwrap();
    assert_eq!((info.blocks, info.cubes, info.rows, info.runs, info.steps), (5, 0, 88, 2, 3));
    assert!(info.bytes > 88 * 24 && info.version == reader.version().await.unwrap(), "{info:?}");
    assert_eq!(reader.last_complete("a").await.unwrap(), Some(20));
    assert_eq!(reader.last_complete("new").await.unwrap(), None);
    assert_eq!(door.object_reads.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_a_rank_has_to_know_of_its_run_is_told_also_of_one_that_is_listed_no_longer() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    assert_eq!(table.run_state("a", 0).await.unwrap(), None);
    table.begin("a", 3, 2).await.unwrap();
    let told = async |rank| {
        let state = table.run_state("a", rank).await.unwrap().unwrap();
        (state.attempt, state.published, state.last_complete, state.has_rank_given)
    };
    table.append(block("a", 3, 5, 0), &rows(5, 0, 3)).await.unwrap();
    assert_eq!((told(0).await, told(1).await), ((3, None, None, true), (3, None, None, false)));
    table.append(block("a", 3, 5, 1), &rows(5, 3, 3)).await.unwrap();
    assert_eq!(told(1).await, (3, Some(5), Some(5), true));
    table.delete(Some("a"), None, None).await.unwrap();
    assert!(table.runs().await.unwrap().is_empty());
    assert_eq!(told(0).await, (3, Some(5), None, true));
    table.begin("a", 4, 2).await.unwrap();
    assert_eq!(told(0).await, (4, None, None, false));
}

#[tokio::test]
async fn times_come_back_bit_by_bit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    let times = [-0.0, 1e-310, f64::MAX, f64::INFINITY, f64::NAN, 0.1 + 0.2];
    // More steps than between two whole manifests, so that both encodings are read.
    for step in 0..150 {
        let time = times[step as usize % times.len()];
        table.append_at(block("a", 1, step, 0), Some(time), &rows(step, 0, 1)).await.unwrap();
    }
    for summary in open(&store).await.steps(None).await.unwrap() {
        let time = times[summary.step as usize % times.len()];
        assert_eq!(summary.time.map(f64::to_bits), Some(time.to_bits()), "step {}", summary.step);
    }
}

#[tokio::test]
async fn a_run_that_is_mistyped_is_answered_with_the_nearest_name() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("airway", 1, 1).await.unwrap();
    let error = table.steps(Some("airwya")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.hint().unwrap(), "did you mean \"airway\"?");
    let early = table.append(block("airway", 2, 0, 0), &rows(0, 0, 1)).await.unwrap_err();
    assert_eq!(early.hint().unwrap(), "begin attempt 2 of the run first, with its number of ranks");
    assert_eq!(table.begin("", 1, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn no_two_processes_get_the_same_attempt() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    create(&store).await;
    let takers = (0..12).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let table = open(&store).await;
            let mut taken = Vec::new();
            for _ in 0..5 {
                taken.push(table.begin_next("a", 3).await.unwrap());
                tokio::task::yield_now().await;
            }
            taken
        })
    });
    let taken: Vec<u64> =
        futures::future::join_all(takers).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(BTreeSet::from_iter(taken), (1..=60).collect());
    let run = &open(&store).await.runs().await.unwrap()[0];
    assert_eq!((run.attempt, run.published, run.last_complete), (60, None, None));
}

#[tokio::test]
async fn what_an_earlier_attempt_made_visible_is_not_taken_for_the_current_ones() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 1);
    for step in 1..=5 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await.unwrap();
    }
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 2);
    let run = &table.runs().await.unwrap()[0];
    assert_eq!((run.published, run.last_complete, run.steps), (None, Some(5), 5));
    table.append(block("a", 2, 4, 0), &rows(4, 50, 3)).await.unwrap();
    let run = &table.runs().await.unwrap()[0];
    assert_eq!((run.published, run.last_complete, run.steps, run.rows), (Some(4), Some(4), 4, 33));
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 10), (2, 10), (3, 10), (4, 3)]);
    assert!(!seen(&table).await.contains_key(&(4, 0)), "a row of the superseded attempt");
}

#[tokio::test]
async fn steps_that_were_deleted_are_not_the_last_complete_one_and_a_new_attempt_writes_them_again() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    for step in 1..=30 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 2)).await.unwrap();
    }
    table.delete(Some("a"), Some(10..12), None).await.unwrap();
    assert_eq!(table.last_complete("a").await.unwrap(), Some(30), "a hole that was made on purpose");
    table.delete(Some("a"), Some(21..u64::MAX), None).await.unwrap();
    assert_eq!(open(&store).await.last_complete("a").await.unwrap(), Some(20));
    assert_eq!(table.runs().await.unwrap()[0].last_complete, Some(20));
    // For the attempt that wrote them they exist: it continues after them, and retries none.
    let writes = door.writes.load(Ordering::SeqCst);
    let next = table.append_next(("a".into(), 1, 0), 0, None, &rows(31, 0, 2)).await.unwrap();
    assert_eq!((next.0, table.last_complete("a").await.unwrap()), (31, Some(31)));
    assert!(door.writes.load(Ordering::SeqCst) <= writes + 4, "a try for each deleted step");
    table.delete(Some("a"), Some(21..u64::MAX), None).await.unwrap();
    // A new attempt computes them again.
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 2);
    assert_eq!(table.last_complete("a").await.unwrap(), Some(20));
    let next = table.append_next(("a".into(), 2, 0), 0, None, &rows(21, 0, 5)).await.unwrap();
    assert_eq!((next.0, table.last_complete("a").await.unwrap()), (21, Some(21)));
    assert_eq!(steps_seen(&open(&store).await).await.last(), Some(&(21, 5)));
    // If a run has lost everything, a new attempt is listed, since its writer asks how far it came.
    table.delete(Some("a"), None, None).await.unwrap();
    assert_eq!(table.last_complete("a").await.unwrap(), None);
    assert!(table.runs().await.unwrap().is_empty());
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 3);
    let run = &table.runs().await.unwrap()[0];
    assert_eq!((run.attempt, run.published, run.last_complete, run.steps), (3, None, None, 0));
}

#[tokio::test(start_paused = true)]
async fn following_returns_with_the_next_version_and_reads_nothing_while_it_waits() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let writer = create(&store).await;
    let follower = open(&store).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(follower.follow(Version(0), hour).await.unwrap(), Version(0), "nothing came");
    let reads = door.reads.load(Ordering::SeqCst);
    let mut waiting = std::pin::pin!(follower.follow(Version(0), hour));
    for _ in 0..5 {
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert!(door.reads.load(Ordering::SeqCst) <= reads + 2, "it polls");
    writer.begin("a", 1, 1).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Version(1));
    writer.append(block("a", 1, 0, 0), &rows(0, 0, 1)).await.unwrap();
    assert_eq!(follower.follow(Version(0), hour).await.unwrap(), Version(2), "at once");
    let ahead = follower.follow(Version(9), hour).await.unwrap_err();
    assert_eq!(ahead.kind(), ErrorKind::InvalidInput);
    let mut waiting = std::pin::pin!(follower.follow(Version(2), hour));
    assert!(futures::poll!(&mut waiting).is_pending());
    Table::drop_table(&*store, "run").await.unwrap();
    assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn tables_are_listed_and_a_dropped_one_is_gone_for_everybody() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    let other = Table::create(Arc::clone(&store), "other", schema()).await.unwrap();
    let names = async || -> Vec<String> {
        Table::list(&*store).await.unwrap().into_iter().map(|table| table.name).collect()
    };
    assert_eq!(names().await, ["other", "run"]);
    table.begin("a", 1, 1).await.unwrap();
    table.append(block("a", 1, 0, 0), &rows(0, 0, 100)).await.unwrap();
    other.begin("a", 1, 1).await.unwrap();
    other.append(block("a", 1, 0, 0), &rows(0, 0, 7)).await.unwrap();
    let attributes = BTreeMap::from([("deck".to_owned(), "airway.lmp".to_owned())]);
    let deck = [("deck".to_owned(), Some("airway.lmp".into()))].into();
    table.note(AttributesOf::Run("a"), &deck).await.unwrap();
    assert_eq!(open(&store).await.run_attributes("a").await.unwrap(), attributes);
    assert!(table.run_attributes("b").await.unwrap().is_empty());
    let reader = open(&store).await;

    Table::drop_table(&*store, "run").await.unwrap();
    assert_eq!(names().await, ["other"]);
    for outcome in [
        table.append(block("a", 1, 1, 0), &rows(1, 0, 1)).await.map(drop),
        table.begin("b", 1, 1).await.map(drop),
        reader.query(&Query::default()).await.map(drop),
        reader.runs().await.map(drop),
        Table::open(Arc::clone(&store), "run").await.map(drop),
        Table::drop_table(&*store, "run").await,
    ] {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotFound);
    }
    // Only the record that it was dropped remains.
    let left = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    assert_eq!(left.iter().filter(|key| is_object(key)).count(), 1, "the other's");
    assert_eq!(seen(&other).await.len(), 7);
    let again = create(&store).await;
    assert!(seen(&again).await.is_empty() && again.runs().await.unwrap().is_empty());
}

/// A store in which the table is dropped right before attributes are written.
struct Dropping {
    inner: Arc<dyn Store>,
    drops: AtomicBool,
}

impl Relay for Dropping {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let is_attribute = batch.partition.starts_with(b"\0atoll.table/") && batch.partition.ends_with(b"/a");
        let drops = is_attribute && !batch.mutations.is_empty() && self.drops.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            if drops {
                Table::drop_table(&*self.inner, "run").await.unwrap();
            }
            self.inner.write(batch, options).await
        })
    }
}

#[tokio::test]
async fn attributes_of_a_dropped_table_are_not_taken_for_empty_and_none_are_left_behind() {
    for drops_meanwhile in [false, true] {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let dropping =
            Arc::new(Relayed(Dropping { inner: Arc::clone(&inner), drops: AtomicBool::new(false) }));
        let store: Arc<dyn Store> = dropping.clone();
        let table = create(&store).await;
        let deck = Attributes::from([("deck".to_owned(), "airway.lmp".into())]);
        let changes = [("deck".to_owned(), Some("airway.lmp".into()))].into();
        table.note_new(AttributesOf::Step("a", 1), &deck).await.unwrap();
        let places = [AttributesOf::Table, AttributesOf::Run("a"), AttributesOf::Step("a", 1)];
        if drops_meanwhile {
            dropping.drops.store(true, Ordering::SeqCst);
        } else {
            Table::drop_table(&*inner, "run").await.unwrap();
        }
        for of in places {
            for outcome in [
                table.note(of, &changes).await.map(drop),
                table.note_new(of, &deck).await.map(drop),
                table.note_new(of, &Attributes::new()).await.map(drop),
                table.attributes(of).await.map(drop),
                table.boundary(Some("a"), Some(1)).await.map(drop),
            ] {
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotFound, "{of:?}");
            }
        }
        assert!(!dropping.drops.load(Ordering::SeqCst), "nothing was dropped meanwhile");
        let left = inner.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
        assert!(left.iter().all(|key| key.ends_with(b"/m")), "{left:?}");
        // Another table of that name has attributes of its own.
        let again = create(&store).await;
        assert_eq!(again.attributes(AttributesOf::Table).await.unwrap(), Attributes::new());
        assert_eq!(again.note_new(AttributesOf::Table, &deck).await.unwrap(), deck);
    }
}

#[tokio::test]
async fn a_drop_that_was_broken_off_is_finished_by_the_next_one_or_by_whoever_makes_the_table_anew() {
    for finish_by_making in [false, true] {
        let door = Doorway::before(Arc::new(MemoryStore::new()));
        let store: Arc<dyn Store> = door.clone();
        let table = create(&store).await;
        table.begin("a", 1, 1).await.unwrap();
        table.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
        door.refused.store(1, Ordering::SeqCst);
        assert!(Table::drop_table(&*store, "run").await.is_err(), "the store is full");
        assert!(Table::list(&*store).await.unwrap().is_empty());
        assert!(matches!(Table::open(Arc::clone(&store), "run").await, Err(TableError::NotFound { .. })));
        if finish_by_making {
            assert!(seen(&create(&store).await).await.is_empty());
        } else {
            Table::drop_table(&*store, "run").await.unwrap();
        }
        let left = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
        assert!(!left.iter().any(|key| is_object(key)), "objects are left: {left:?}");
    }
}
