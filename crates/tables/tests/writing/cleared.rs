//! What appends leave in the store: only objects that a version names, unless the outcome is unknown.

use super::door::{Door, Doorway};
use super::load::objects;
use super::rows::{block, create, open, rows, steps_seen};
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Outcome, Store};
use atoll_tables::{Table, TableError};
use futures::FutureExt;
use futures::future::join;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A table with a run of two ranks, the first of which has written step 1.
async fn table() -> (Arc<Door>, Arc<dyn Store>, Table) {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 2).await.unwrap();
    table.append(block("a", 1, 1, 0), &rows(1, 0, 10)).await.unwrap();
    (door, store, table)
}

#[tokio::test]
async fn appends_that_are_repeated_or_refused_leave_no_objects() {
    let (door, store, table) = table().await;
    let before = objects(&store).await;
    table.append(block("a", 1, 1, 0), &rows(1, 0, 10)).await.unwrap();
    assert_eq!(table.append_new(block("a", 1, 1, 0), None, &rows(1, 0, 10)).await.unwrap(), None);
    assert_eq!(objects(&store).await, before, "what is there already");
    for (attempt, step, rank) in [(1, 0, 0), (2, 1, 0), (1, 2, 2)] {
        table.append(block("a", attempt, step, rank), &rows(step, 0, 10)).await.unwrap_err();
        assert_eq!(objects(&store).await, before, "attempt {attempt}, step {step}, rank {rank}");
    }
    table.append(block("nobody", 1, 1, 0), &rows(1, 0, 10)).await.unwrap_err();
    door.refused_commits.store(1, Ordering::SeqCst);
    let full = table.append(block("a", 1, 2, 0), &rows(2, 0, 10)).await.unwrap_err();
    assert_eq!(full.outcome(), Outcome::Refused, "{full}");
    assert_eq!(objects(&store).await, before);
    table.append(block("a", 1, 1, 1), &rows(1, 100, 10)).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20)]);
    assert_eq!(objects(&store).await, before + 1);
}

#[tokio::test]
async fn what_waited_behind_one_that_failed_leaves_no_object() {
    let (door, store, table) = table().await;
    let before = objects(&store).await;
    // The first object is delayed and then refused.
    door.held.store(1, Ordering::SeqCst);
    door.refused.store(1, Ordering::SeqCst);
    let (second, third) = (rows(2, 0, 10), rows(3, 0, 10));
    let appends = join(table.append(block("a", 1, 2, 0), &second), table.append(block("a", 1, 3, 0), &third));
    let release = async { door.gate.add_permits(1) };
    let ((failed, behind), ()) = join(appends, release).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert!(matches!(behind, Err(TableError::Behind { .. })), "{behind:?}");
    assert_eq!(objects(&store).await, before);
}

#[tokio::test]
async fn an_append_of_several_blocks_one_of_which_cannot_be_written_leaves_no_object() {
    let (door, store, table) = table().await;
    let before = objects(&store).await;
    let blocks: Vec<_> = [(1, 1, 100), (2, 1, 100), (2, 0, 0)]
        .map(|(step, rank, first)| (block("a", 1, step, rank), None, rows(step, first, 10)))
        .to_vec();
    for passing in 0..3 {
        door.passing.store(passing, Ordering::SeqCst);
        door.refused.store(1, Ordering::SeqCst);
        let failed = table.append_all(&blocks).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::OutOfSpace, "{failed}");
        door.passing.store(0, Ordering::SeqCst);
        assert_eq!(door.refused.load(Ordering::SeqCst), 0, "nothing was refused");
        assert_eq!(objects(&store).await, before, "the {passing} before it");
    }
    table.append_all(&blocks).await.unwrap();
    assert_eq!(objects(&store).await, before + 3);
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}

#[tokio::test]
async fn a_block_that_is_there_already_leaves_no_object_beside_others_that_are_new() {
    let (door, store, table) = table().await;
    let before = objects(&store).await;
    // The first commit is delayed, and the others gather meanwhile.
    door.held_commits.store(1, Ordering::SeqCst);
    let (one, again, two) = (rows(1, 100, 10), rows(1, 0, 10), rows(2, 100, 10));
    let appends = async {
        let new = join(table.append(block("a", 1, 1, 1), &one), table.append(block("a", 1, 2, 1), &two));
        join(new, table.append(block("a", 1, 1, 0), &again)).await
    };
    let release = async { door.gate.add_permits(1) };
    let (((one, two), again), ()) = join(appends, release).await;
    assert_eq!((one.is_ok(), two.is_ok(), again.is_ok()), (true, true, true));
    assert_eq!(objects(&store).await, before + 2);
    table.append(block("a", 1, 2, 0), &rows(2, 0, 10)).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}

#[tokio::test]
async fn what_may_be_in_an_edit_that_nobody_heard_of_stays() {
    let (door, store, table) = table().await;
    // The first commit is under way, and two others gather meanwhile.
    door.held_commits.store(1, Ordering::SeqCst);
    let rows = [rows(1, 100, 10), rows(2, 0, 10), rows(2, 100, 10)];
    let append = |step, rank, rows| Box::pin(table.append(block("a", 1, step, rank), rows));
    let (mut first, mut second, mut third) =
        (append(1, 1, &rows[0]), append(2, 0, &rows[1]), append(2, 1, &rows[2]));
    for append in [&mut first, &mut second, &mut third] {
        assert!(append.now_or_never().is_none());
    }
    let reader = open(&store).await;
    door.gate.add_permits(1);
    let before = first.await.unwrap();
    // The append that commits for both is dropped after the commit was carried out, before it could report
    // that.
    door.swallowed.store(1, Ordering::SeqCst);
    while reader.version().await.unwrap() == before {
        assert!((&mut second).now_or_never().is_none());
    }
    drop(second);
    third.await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 20), (2, 20)]);
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 20), (2, 20)]);
}
