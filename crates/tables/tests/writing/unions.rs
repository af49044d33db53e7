//! Several tables as one: a handle of them that knows less than others do.

use super::rows::{block, rows, schema};
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Store};
use atoll_tables::{Table, Union};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// Two tables of one step each.
async fn two() -> Vec<Table> {
    let mut tables = Vec::new();
    for name in ["one", "two"] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let table = Table::create(store, name, schema()).await.unwrap();
        table.begin("a", 1, 1).await.unwrap();
        table.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
        tables.push(table);
    }
    tables
}

#[tokio::test(start_paused = true)]
async fn a_union_that_has_not_seen_the_current_version_waits_for_the_next_one_all_the_same() {
    let tables = two().await;
    let now = Union::new(tables.clone()).unwrap().version().await.unwrap();
    let hour = Duration::from_secs(3600);
    let follow = |since| {
        let union = Union::new(tables.clone()).unwrap();
        async move { union.follow(since, hour).await }
    };
    assert_eq!(follow(now).await.unwrap(), now, "nothing came");
    let mut waiting = std::pin::pin!(follow(now));
    assert!(waiting.as_mut().now_or_never().is_none(), "it did not wait");
    tables[1].append(block("a", 1, 1, 0), &rows(1, 0, 10)).await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!(next.0, now.0 + 1);
    assert_eq!(follow(now).await.unwrap(), next, "at once");
    let ahead = follow(atoll_tables::protocol::Version(next.0 + 1)).await.unwrap_err();
    let of_table = tables[0].follow(next, hour).await.unwrap_err();
    assert_eq!(
        (ahead.kind(), of_table.kind()),
        (ErrorKind::InvalidInput, ErrorKind::InvalidInput),
        "{ahead}"
    );
}
