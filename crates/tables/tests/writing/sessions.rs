//! Sessions: which processes need one, how they are renewed, and what happens after they end.

use super::door::{Door, Doorway};
use super::rows::{block, create, open, rows, steps_seen};
use atoll_memory::{MemoryStore, Options};
use atoll_store::clock::ManualClock;
use atoll_store::{Cell, PartitionQuery, ScanRequest, Store, Timestamp, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The manifest partition of the only table.
async fn manifest(store: &Arc<dyn Store>) -> Vec<u8> {
    let listed = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    listed.into_iter().find(|key| key.ends_with(b"/m")).unwrap()
}

/// All sessions: their sort keys, and the contents of their cells.
async fn sessions(store: &Arc<dyn Store>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let page = store.scan(ScanRequest::all(manifest(store).await)).await.unwrap();
    let sessions = page.entries.into_iter().filter(|entry| entry.sort.starts_with(b"s"));
    sessions.map(|entry| (entry.sort.clone(), entry.value.to_vec())).collect()
}

/// Ends all sessions, as a vacuum ends expired ones.
pub async fn end_all(store: &Arc<dyn Store>) {
    for (sort, _) in sessions(store).await {
        let partition = manifest(store).await;
        store.delete(Cell::new(&partition, &sort), WriteOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_handle_that_only_reads_writes_nothing() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let writer = create(&store).await;
    writer.begin("a", 1, 1).await.unwrap();
    writer.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
    door.is_read_only.store(true, Ordering::SeqCst);
    let reader = open(&store).await;
    assert_eq!(steps_seen(&reader).await, [(0, 10)]);
    assert_eq!(reader.runs().await.unwrap().len(), 1);
    assert_eq!(reader.session(), None);
    assert!(reader.handle_number() != writer.handle_number());
    end_all_quietly(&door, &store).await;
    assert_eq!(steps_seen(&reader).await, [(0, 10)], "readers are not fenced");
}

async fn end_all_quietly(door: &Door, store: &Arc<dyn Store>) {
    door.is_read_only.store(false, Ordering::SeqCst);
    end_all(store).await;
    door.is_read_only.store(true, Ordering::SeqCst);
}

#[tokio::test]
async fn a_commit_renews_its_session_once_a_third_of_its_time_has_passed() {
    let clock = Arc::new(ManualClock::starting_at(Timestamp(1_000_000_000)));
    let memory = MemoryStore::open(Options { clock: clock.clone(), ..Options::default() }).unwrap();
    let store: Arc<dyn Store> = Arc::new(memory);
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    let first = sessions(&store).await;
    assert_eq!(first.len(), 1);
    clock.advance(Duration::from_secs(19 * 60));
    table.append(block("a", 1, 0, 0), &rows(0, 0, 1)).await.unwrap();
    assert_eq!(sessions(&store).await, first, "too early");
    clock.advance(Duration::from_secs(2 * 60));
    table.append(block("a", 1, 1, 0), &rows(1, 0, 1)).await.unwrap();
    let renewed = sessions(&store).await;
    assert_eq!(renewed.len(), 1);
    assert!(renewed[0].0 == first[0].0 && renewed[0].1 != first[0].1, "{renewed:?}");
    for step in 2..10 {
        clock.advance(Duration::from_secs(30 * 60));
        table.append(block("a", 1, step, 0), &rows(step, 0, 1)).await.unwrap();
        let expires = String::from_utf8(sessions(&store).await[0].1.clone()).unwrap();
        let expires =
            expires.rsplit_once("\"expires\":").unwrap().1.trim_end_matches('}').parse::<u64>().unwrap();
        assert_eq!(Timestamp(expires), store.now().await.unwrap().after(Duration::from_secs(3600)));
    }
    table.close().await.unwrap();
    assert!(sessions(&store).await.is_empty());
    table.append(block("a", 1, 10, 0), &rows(10, 0, 1)).await.unwrap();
    assert_eq!(steps_seen(&table).await.len(), 11);
}

#[tokio::test]
async fn what_was_written_under_a_session_that_ended_is_written_again_under_another() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 2).await.unwrap();
    let old = table.session().unwrap();
    door.held.store(2, Ordering::SeqCst);
    let give = |rank: u32| {
        let table = table.clone();
        async move { table.append(block("a", 1, 0, rank), &rows(0, i64::from(rank) * 100, 10)).await }
    };
    let end = async {
        while door.held.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        end_all(&store).await;
        door.gate.add_permits(2);
    };
    let (left, right, ()) = futures::future::join3(give(0), give(1), end).await;
    assert!(left.is_ok() && right.is_ok(), "{left:?} {right:?}");
    assert_ne!(table.session(), Some(old));
    // A vacuum sweeps what the ended session left.
    let listed = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    let is_old = |key: &&Vec<u8>| key.windows(16).any(|part| part == old.0.to_be_bytes());
    let left: Vec<_> = listed.iter().filter(is_old).collect();
    assert_eq!(left.len(), 2);
    for partition in left {
        store.delete_partition(partition, WriteOptions::default()).await.unwrap();
    }
    assert_eq!(steps_seen(&open(&store).await).await, [(0, 20)]);
}

#[tokio::test]
async fn every_kind_of_edit_goes_on_after_its_session_ended() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..3 {
        end_all(&store).await;
        table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await.unwrap();
    }
    end_all(&store).await;
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 2);
    end_all(&store).await;
    table.begin("a", 3, 1).await.unwrap();
    end_all(&store).await;
    table.delete(None, Some(1..2), None).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, [(0, 10), (2, 10)]);
    assert_eq!(sessions(&store).await.len(), 1);
}
