//! Deletes and supersedes, against a plain list of what ought to be there.

use super::rows::{block, create, open, rows, steps_seen};
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Store};
use atoll_tables::Table;
use std::sync::Arc;

/// Two runs of three steps of 20 rows.
async fn two_runs() -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    for (run, first) in [("a", 0), ("b", 1000)] {
        table.begin(run, 1, 1).await.unwrap();
        for step in 1..4 {
            table.append(block(run, 1, step, 0), &rows(step, first, 20)).await.unwrap();
        }
    }
    (store, table)
}

#[tokio::test]
async fn whole_steps_and_runs_go_as_such_and_are_listed_no_longer() {
    let (store, table) = two_runs().await;
    table.delete(Some("a"), Some(2..3), None).await.unwrap();
    let reader = open(&store).await;
    assert_eq!(steps_seen(&reader).await, [(1, 40), (2, 20), (3, 40)]);
    let steps = reader.steps(Some("a")).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), [1, 3]);
    table.delete(None, Some(3..u64::MAX), None).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 40), (2, 20)]);
    table.delete(Some("a"), None, None).await.unwrap();
    let runs = reader.runs().await.unwrap();
    assert_eq!(runs.iter().map(|run| (run.name.as_str(), run.rows)).collect::<Vec<_>>(), [("b", 40)]);
    assert_eq!((reader.info().await.unwrap().runs, reader.info().await.unwrap().rows), (1, 40));
    // What was deleted does not come back by a block that is given again.
    table.append(block("a", 1, 3, 0), &rows(3, 0, 20)).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 20), (2, 20)]);
    // The run goes on, and is listed again with what comes.
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 2);
    table.append(block("a", 2, 1, 0), &rows(1, 500, 5)).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 25), (2, 20)]);
    assert_eq!(reader.runs().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_delete_is_kept_over_whole_manifests_and_says_what_is_wrong_with_it() {
    let (store, table) = two_runs().await;
    table.delete(Some("b"), Some(1..3), None).await.unwrap();
    for attempt in 2..80 {
        table.begin("c", attempt, 1).await.unwrap();
    }
    let reader = open(&store).await;
    assert_eq!(steps_seen(&reader).await, [(1, 20), (2, 20), (3, 40)]);
    assert_eq!(reader.steps(Some("b")).await.unwrap().len(), 1);
    let kind = |outcome: Result<_, atoll_tables::TableError>| outcome.unwrap_err().kind();
    assert_eq!(kind(table.delete(Some("z"), None, None).await), ErrorKind::NotFound);
    assert_eq!(kind(table.delete(None, Some(3..3), None).await), ErrorKind::InvalidInput);
    assert_eq!(kind(table.delete(None, None, Some("x <")).await), ErrorKind::InvalidInput);
    assert!(table.delete(None, None, Some("velocity > 1")).await.is_err());
}
