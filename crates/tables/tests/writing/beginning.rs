//! Beginning an attempt of a run after looking at it: one of several begins, and takes away nothing that came
//! since.

use super::door::Doorway;
use super::rows::{block, create, open, rows};
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::{RunSummary, Table};
use futures::future::join;
use std::sync::Arc;
use std::sync::atomic::Ordering;

async fn summary(table: &Table) -> Option<RunSummary> {
    table.runs().await.unwrap().into_iter().find(|run| run.name == "a")
}

#[tokio::test]
async fn of_many_that_saw_a_run_the_same_one_begins() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    for round in 1..=3 {
        let seen = summary(&table).await;
        let takers = (0..8).map(|_| {
            let (store, seen) = (Arc::clone(&store), seen.clone());
            tokio::spawn(async move { open(&store).await.begin_after("a", seen.as_ref(), 1).await.unwrap() })
        });
        let begun = futures::future::join_all(takers).await.into_iter().filter_map(Result::unwrap);
        assert_eq!(begun.collect::<Vec<_>>(), [round]);
        table.append(block("a", round, round, 0), &rows(round, 0, 1)).await.unwrap();
    }
    assert_eq!(summary(&table).await.unwrap().last_complete, Some(3));
}

#[tokio::test]
async fn what_comes_while_the_attempt_begins_is_not_taken_away() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let door = Doorway::before(Arc::clone(&inner));
    let store: Arc<dyn Store> = door.clone();
    let other = create(&inner).await;
    other.begin("a", 1, 1).await.unwrap();
    other.append(block("a", 1, 1, 0), &rows(1, 0, 1)).await.unwrap();
    let late = open(&store).await;
    // It opens its session too, so that its next write is the beginning of the attempt.
    late.begin("b", 1, 1).await.unwrap();
    let seen = summary(&late).await;
    door.held_commits.store(1, Ordering::SeqCst);
    let meanwhile = async {
        other.append(block("a", 1, 2, 0), &rows(2, 0, 1)).await.unwrap();
        door.gate.add_permits(1);
    };
    let (begun, ()) = join(late.begin_after("a", seen.as_ref(), 1), meanwhile).await;
    assert_eq!(begun.unwrap(), None);
    // The attempt that writes can continue.
    other.append(block("a", 1, 3, 0), &rows(3, 0, 1)).await.unwrap();
    assert_eq!(late.begin_after("a", seen.as_ref(), 1).await.unwrap(), None);
    let seen = summary(&late).await;
    assert_eq!(late.begin_after("a", seen.as_ref(), 1).await.unwrap(), Some(2));
}

#[tokio::test]
async fn a_run_of_which_nothing_is_left_begins_like_one_that_never_was() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    assert_eq!(table.begin_after("a", None, 1).await.unwrap(), Some(1));
    assert_eq!(table.begin_after("a", None, 1).await.unwrap(), None, "it is there, without a step");
    table.append(block("a", 1, 5, 0), &rows(5, 0, 1)).await.unwrap();
    let seen = summary(&table).await.unwrap();
    table.delete(Some("a"), None, None).await.unwrap();
    assert_eq!(table.begin_after("a", Some(&seen), 1).await.unwrap(), None);
    assert_eq!(summary(&table).await, None);
    assert_eq!(table.begin_after("a", None, 2).await.unwrap(), Some(2));
    assert!(table.begin_after("c", None, 0).await.is_err(), "of no ranks");
}
