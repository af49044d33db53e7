//! Concurrent appends: what shares a commit, which order holds, and what fails with what.

use super::door::{Door, Doorway};
use super::rows::{block, create, open, rows, seen, steps_seen};
use super::sessions::end_all;
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, Cell, ErrorKind, Expectation, Outcome, ReadOptions, Store, StoreFuture, Waited,
    WriteOptions, Written,
};
use atoll_tables::protocol::{EditError, Version};
use atoll_tables::{Table, TableError};
use futures::FutureExt;
use futures::future::{join, join_all};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

async fn table() -> (Arc<Door>, Arc<dyn Store>, Table) {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 2).await.unwrap();
    (door, store, table)
}

#[tokio::test]
async fn appends_that_wait_together_share_a_commit() {
    let (door, store, table) = table().await;
    let before = door.manifest_bytes.lock().unwrap().len();
    // The first commit is delayed, as by a real store; all others gather meanwhile.
    door.held_commits.store(1, Ordering::SeqCst);
    let appends = (0..100_u64).flat_map(|step| (0..2).map(move |rank| (step, rank)));
    let appends = appends.map(|(step, rank)| {
        let table = table.clone();
        async move { table.append(block("a", 1, step, rank), &rows(step, i64::from(rank) * 100, 10)).await }
    });
    let release = async { door.gate.add_permits(1) };
    let (done, ()) = join(join_all(appends), release).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let commits = door.manifest_bytes.lock().unwrap().len() - before;
    assert_eq!(commits, 2, "of 200 appends");
    assert_eq!(steps_seen(&open(&store).await).await, (0..100).map(|step| (step, 20)).collect::<Vec<_>>());
}

#[tokio::test]
async fn all_who_wait_together_hear_at_once_that_the_store_is_gone() {
    let (door, store, table) = table().await;
    // The first commit is under way, and the others gather meanwhile.
    door.held_commits.store(1, Ordering::SeqCst);
    let append = |step| {
        let table = table.clone();
        async move { table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await }
    };
    let mut first = Box::pin(append(0));
    assert!((&mut first).now_or_never().is_none());
    let others = (1..50).map(append).map(Box::pin);
    door.is_gone.store(true, Ordering::SeqCst);
    let before = door.manifest_bytes.lock().unwrap().len();
    let release = async { door.gate.add_permits(1) };
    let ((first, others), ()) = join(join(first, join_all(others)), release).await;
    assert!(first.is_ok(), "{first:?}");
    for told in others {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let tries = door.manifest_bytes.lock().unwrap().len() - before;
    assert!(tries <= 2, "{tries} tries for 49 appends");
    door.is_gone.store(false, Ordering::SeqCst);
    assert!(join_all((1..50).map(append)).await.iter().all(Result::is_ok));
    table.append(block("a", 1, 0, 1), &rows(0, 100, 10)).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(0, 20)]);
}

#[tokio::test]
async fn several_blocks_given_at_once_are_seen_together_or_not_at_all() {
    let (_, store, table) = table().await;
    let reader = open(&store).await;
    let blocks: Vec<_> =
        (0..2).map(|rank| (block("a", 1, 5, rank), Some(0.5), rows(5, rank.into(), 1))).collect();
    let version = table.append_all(&blocks).await.unwrap();
    assert_eq!(reader.version().await.unwrap(), version);
    assert_eq!(steps_seen(&reader).await, [(5, 2)]);
    assert_eq!(table.append_all(&blocks).await.unwrap(), version, "again");
    let wrong = [(block("a", 1, 6, 0), None, rows(6, 0, 1)), (block("a", 1, 6, 2), None, rows(6, 2, 1))];
    assert_eq!(table.append_all(&wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    table.append(block("a", 1, 6, 1), &rows(6, 1, 1)).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(5, 2)], "rank 0 of step 6 was given with a rank that is not");
    assert_eq!(table.append_all(&[]).await.unwrap(), table.version().await.unwrap());
}

#[tokio::test]
async fn whoever_asks_is_told_that_a_block_was_there_already_also_beside_others_that_are_new() {
    let (door, store, table) = table().await;
    let given = rows(1, 0, 10);
    let made = table.append_new(block("a", 1, 1, 0), None, &given).await.unwrap();
    assert_eq!(made, Some(table.version().await.unwrap()));
    assert_eq!(table.append_new(block("a", 1, 1, 0), None, &given).await.unwrap(), None, "again");
    // The first commit is delayed, and the others gather meanwhile.
    door.held_commits.store(1, Ordering::SeqCst);
    let (second, other, third) = (rows(1, 100, 10), rows(1, 500, 3), rows(2, 100, 10));
    let appends = async {
        let new = join(table.append(block("a", 1, 1, 1), &second), table.append(block("a", 1, 2, 1), &third));
        join(new, table.append_new(block("a", 1, 1, 0), None, &other)).await
    };
    let release = async { door.gate.add_permits(1) };
    let (((second, third), told), ()) = join(appends, release).await;
    assert_eq!((second.is_ok(), third.is_ok(), told.unwrap()), (true, true, None));
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20)], "nothing of the other rows was kept");
}

#[tokio::test]
async fn two_handles_that_append_as_one_rank_get_a_step_each_and_lose_no_rows() {
    let (_, store, table) = table().await;
    let other = open(&store).await;
    let writer = |rank| ("a".into(), 1, rank);
    // Neither rank knows what the other appends, and nothing is complete without the other.
    for number in 0..3 {
        let (mine, theirs) = (rows(2 * number, 0, 10), rows(2 * number + 1, 0, 10));
        let mine = table.append_next(writer(0), 0, None, &mine).await.unwrap();
        let theirs = other.append_next(writer(0), number, None, &theirs).await.unwrap();
        assert_eq!((mine.0, theirs.0), (2 * number, 2 * number + 1));
    }
    for step in 0..6 {
        assert_eq!(table.append_next(writer(1), step, None, &rows(step, 500, 1)).await.unwrap().0, step);
    }
    assert_eq!(steps_seen(&table).await, (0..6).map(|step| (step, 11)).collect::<Vec<_>>());
    let last = table.append_next(writer(0), u64::MAX, None, &rows(1, 0, 1)).await.unwrap();
    assert_eq!(last.0, u64::MAX);
    let none_left = table.append_next(writer(0), 0, None, &rows(1, 0, 1)).await.unwrap_err();
    assert!(matches!(none_left, TableError::Edit(EditError::StepOrder { .. })), "{none_left}");
}

#[tokio::test]
async fn the_steps_of_a_rank_become_true_in_order_however_long_their_objects_take() {
    let (door, store, table) = table().await;
    door.held.store(1, Ordering::SeqCst);
    let (one, two) = (rows(1, 0, 10), rows(2, 0, 10));
    let mut first = Box::pin(table.append(block("a", 1, 1, 0), &one));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(table.append(block("a", 1, 2, 0), &two));
    assert!((&mut second).now_or_never().is_none(), "step 2 passed step 1");
    // The other rank need not wait.
    table.append(block("a", 1, 1, 1), &rows(1, 100, 10)).await.unwrap();
    table.append(block("a", 1, 2, 1), &rows(2, 100, 10)).await.unwrap();
    assert!(seen(&open(&store).await).await.is_empty());
    door.gate.add_permits(1);
    let (first, second) = join(first, second).await;
    assert_eq!((first.is_ok(), second.is_ok()), (true, true));
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}

#[tokio::test]
async fn an_append_behind_one_that_failed_fails_too_and_both_can_be_given_again() {
    let (door, store, table) = table().await;
    door.held.store(1, Ordering::SeqCst);
    door.refused.store(1, Ordering::SeqCst);
    let give = |step| {
        let table = table.clone();
        async move { table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await }
    };
    let mut all = Box::pin(join_all((1..4).map(give)));
    assert!((&mut all).now_or_never().is_none());
    door.gate.add_permits(1);
    let errors: Vec<TableError> = all.await.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors[0].kind(), ErrorKind::OutOfSpace);
    for error in &errors[1..] {
        assert!(matches!(error, TableError::Behind { .. }), "{error}");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Conflict, Outcome::Refused));
    }
    for step in 1..4 {
        give(step).await.unwrap();
        table.append(block("a", 1, step, 1), &rows(step, 100, 1)).await.unwrap();
    }
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 11), (2, 11), (3, 11)]);
}

async fn give(table: Table, step: u64, rank: u32) -> Result<Version, TableError> {
    table.append(block("a", 1, step, rank), &rows(step, i64::from(rank) * 100, 10)).await
}

type Given = Pin<Box<dyn Future<Output = Result<Version, TableError>>>>;

/// Two appends: one that also committed for the other, whose commit was carried out but never answered, and
/// that other one. They are for steps 1 and 2; the other rank's rows of step 1 are there.
async fn committed_for_another(door: &Door, table: &Table) -> (Given, Given) {
    let give = |step, rank| -> Given { Box::pin(give(table.clone(), step, rank)) };
    // While the first commit is delayed, two more get ready.
    door.held_commits.store(1, Ordering::SeqCst);
    let mut first = give(1, 0);
    assert!((&mut first).now_or_never().is_none());
    let (mut leader, mut other) = (give(1, 1), give(2, 0));
    assert!((&mut leader).now_or_never().is_none() && (&mut other).now_or_never().is_none());
    door.swallowed.store(1, Ordering::SeqCst);
    door.gate.add_permits(1);
    first.await.unwrap();
    assert!((&mut leader).now_or_never().is_none());
    assert_eq!(door.swallowed.load(Ordering::SeqCst), 0);
    (leader, other)
}

#[tokio::test]
async fn whoever_is_dropped_while_it_commits_for_others_leaves_nobody_waiting() {
    let (door, store, table) = table().await;
    let (leader, mut other) = committed_for_another(&door, &table).await;
    assert!((&mut other).now_or_never().is_none());
    drop(leader);
    other.await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20)]);
    give(table.clone(), 1, 1).await.unwrap();
    give(table.clone(), 2, 1).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}

#[tokio::test]
async fn rows_that_another_call_brought_in_before_it_was_dropped_are_not_given_the_next_step_too() {
    brought_in_by_another(false).await;
    brought_in_by_another(true).await;
}

#[tokio::test]
async fn an_append_that_another_call_left_in_doubt_is_not_told_that_nothing_was_written() {
    left_in_doubt(false).await;
    left_in_doubt(true).await;
}

async fn left_in_doubt(session_ends: bool) {
    let (door, store, table) = table().await;
    let (leader, other) = committed_for_another(&door, &table).await;
    // By now the commit of both has been carried out; nothing is written from here on.
    if session_ends {
        end_all(&store).await;
        door.refused.store(usize::MAX, Ordering::SeqCst);
    } else {
        door.is_gone.store(true, Ordering::SeqCst);
    }
    drop(leader);
    let told = other.await.unwrap_err();
    assert_eq!(told.outcome(), Outcome::Unknown, "{told}");
}

/// If the session ends before the other call is dropped, all objects are written anew.
async fn brought_in_by_another(session_ends: bool) {
    let (door, store, table) = table().await;
    table.begin("b", 1, 1).await.unwrap();
    let give = |rank| {
        let table = table.clone();
        async move { table.append(block("a", 1, 1, rank), &rows(1, i64::from(rank) * 100, 10)).await }
    };
    // Its object is delayed, so that another append is the first to wait for its turn after a commit.
    door.held.store(1, Ordering::SeqCst);
    let next = table.clone();
    let mut next =
        Box::pin(async move { next.append_next(("b".into(), 1, 0), 0, None, &rows(0, 0, 10)).await });
    assert!((&mut next).now_or_never().is_none());
    door.held_commits.store(1, Ordering::SeqCst);
    let (mut first, mut leader) = (Box::pin(give(0)), Box::pin(give(1)));
    assert!((&mut first).now_or_never().is_none() && (&mut leader).now_or_never().is_none());
    door.gate.add_permits(1);
    assert!((&mut next).now_or_never().is_none());
    // The next commit is carried out, but its answer never comes.
    door.swallowed.store(1, Ordering::SeqCst);
    door.gate.add_permits(1);
    first.await.unwrap();
    assert!((&mut leader).now_or_never().is_none());
    assert_eq!(door.swallowed.load(Ordering::SeqCst), 0);
    if session_ends {
        end_all(&store).await;
    }
    drop(leader);
    let (step, _) = next.await.unwrap();
    let steps = open(&store).await.steps(Some("b")).await.unwrap();
    assert_eq!((step, steps.iter().map(|step| (step.step, step.rows)).collect()), (0, vec![(0, 10)]));
}

#[tokio::test]
async fn one_append_that_cannot_become_true_does_not_keep_others_back() {
    let (door, store, table) = table().await;
    let give = |attempt, step, rank| {
        let table = table.clone();
        let rows = rows(step, i64::from(rank) * 100, 10);
        async move { table.append(block("a", attempt, step, rank), &rows).await }
    };
    // While the first commit is delayed, the other three get ready and are committed together.
    door.held_commits.store(1, Ordering::SeqCst);
    let appends = [give(1, 1, 0), give(1, 1, 1), give(2, 1, 0), give(1, 2, 0)];
    let release = async { door.gate.add_permits(1) };
    let (done, ()) = join(join_all(appends), release).await;
    assert!([0, 1, 3].iter().all(|place| done[*place].is_ok()), "{done:?}");
    assert_eq!(done[2].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
    give(1, 2, 1).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}

#[tokio::test]
async fn what_a_store_refuses_of_a_shared_commit_is_told_to_those_alone_whose_blocks_it_refuses() {
    let (door, store, table) = table().await;
    let give = |step, rank| {
        let table = table.clone();
        async move { table.append(block("a", 1, step, rank), &rows(step, i64::from(rank) * 100, 10)).await }
    };
    // While the first commit is delayed, the other three gather; the store refuses them together, but not one
    // by one.
    door.held_commits.store(1, Ordering::SeqCst);
    door.refused_commits.store(1, Ordering::SeqCst);
    let appends = join_all([give(1, 0), give(1, 1), give(2, 0), give(2, 1)]);
    let (done, ()) = join(appends, async { door.gate.add_permits(1) }).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_eq!(door.refused_commits.load(Ordering::SeqCst), 0);
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}

/// A store in which other calls interleave.
struct Busy {
    inner: MemoryStore,
    writes: AtomicUsize,
}

impl Relay for Busy {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.inner.get(cell, options).await
        })
    }

    fn wait<'a>(&'a self, _: Cell<'a>, _: Expectation, _: Duration) -> StoreFuture<'a, Waited> {
        panic!("who rests asks nobody: nodes may be away, or want to agree on what there is")
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.writes.fetch_add(usize::from(batch.partition.ends_with(b"/m")), Ordering::SeqCst);
            self.inner.write(batch, options).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn ranks_that_end_a_step_at_the_same_moment_do_not_try_as_often_as_they_are_many() {
    const RANKS: u32 = 64;
    let busy = Arc::new(Relayed(Busy { inner: MemoryStore::new(), writes: AtomicUsize::new(0) }));
    let store: Arc<dyn Store> = busy.clone();
    create(&store).await.begin("a", 1, RANKS).await.unwrap();
    // Each is a process of its own.
    let mut tables = Vec::new();
    for rank in 0..RANKS {
        let table = open(&store).await;
        table.append(block("a", 1, 0, rank), &rows(0, i64::from(rank) * 10, 10)).await.unwrap();
        tables.push(table);
    }
    let before = busy.writes.load(Ordering::SeqCst);
    let appends = (0..).zip(&tables).map(|(rank, table)| async move {
        table.append(block("a", 1, 1, rank), &rows(1, i64::from(rank) * 10, 10)).await.unwrap();
    });
    join_all(appends).await;
    let tries = busy.writes.load(Ordering::SeqCst) - before;
    assert!(tries < 64 * 8, "{tries} tries of 64 ranks");
    assert_eq!(steps_seen(&open(&store).await).await, [(0, 640), (1, 640)]);
}
