//! History: what a vacuum removes of it, and that readers with a claim to it miss nothing.

use super::rows::{block, create, open, rows, steps_seen};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::{MemoryStore, Options};
use atoll_store::clock::ManualClock;
use atoll_store::{PartitionQuery, ScanPage, ScanRequest, SortRange, Store, StoreFuture, Timestamp};
use atoll_tables::protocol::Version;
use atoll_tables::{PackOptions, Query, Table, TableError};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of cells of one kind in the manifest partition of the only table.
async fn cells(store: &Arc<dyn Store>, letter: u8) -> usize {
    let listed = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    let manifest = listed.into_iter().find(|key| key.ends_with(b"/m")).unwrap();
    let mut request = ScanRequest::all(manifest);
    let mut count = 0;
    loop {
        let page = store.scan(request.clone()).await.unwrap();
        count += page.entries.iter().filter(|entry| entry.sort[0] == letter).count();
        request.resume = page.resume;
        if request.resume.is_none() {
            return count;
        }
    }
}

async fn write(table: &Table, steps: std::ops::Range<u64>) {
    for step in steps {
        table.append(block("a", 1, step, 0), &rows(step, 0, 1)).await.unwrap();
    }
}

async fn with_steps(steps: u64) -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    write(&table, 0..steps).await;
    (store, table)
}

#[tokio::test]
async fn edits_that_lead_to_older_versions_alone_go_and_the_table_stays() {
    let (store, table) = with_steps(300).await;
    let kept = table.create_snapshot("early", None).await.unwrap();
    // Numbers would be taken for versions.
    for number in ["3", "2026", "-1"] {
        let refused = table.create_snapshot(number, None).await.unwrap_err();
        assert!(matches!(refused, TableError::Name { .. }), "{refused}");
        let hint = refused.hint().unwrap();
        assert!(hint.contains("v3") && !hint.contains("a letter or more"), "{hint}");
    }
    for name in ["-", "+--", "1.5", "2026-11-28"] {
        assert_eq!(table.create_snapshot(name, None).await.unwrap(), kept);
        table.delete_snapshot(name).await.unwrap();
    }
    write(&table, 300..600).await;
    table.close().await.unwrap();
    let before = (cells(&store, b'e').await, cells(&store, b'f').await);
    // A handle that has not looked for a long time catches up as well.
    let late = open(&store).await;
    write(&table, 600..700).await;
    table.close().await.unwrap();
    let report = open(&store).await.vacuum().await.unwrap();
    assert!(report.history > 300, "{report:?} of {before:?}");
    let after = (cells(&store, b'e').await, cells(&store, b'f').await);
    assert!(after.0 < 300 && after.1 <= 3, "{after:?}");
    assert_eq!(steps_seen(&late).await.len(), 700);
    assert_eq!(steps_seen(&open(&store).await).await.len(), 700);
    let early = late.versioned(kept).await;
    assert_eq!(early, 300, "a snapshot keeps what leads to it");
    let next = kept.next();
    let gone = late.try_versioned(next.0).await.unwrap_err();
    assert!(matches!(gone, TableError::VersionGone { asked, .. } if asked == next), "{gone:?}");
    // Nothing is left to do, so the next vacuum removes nothing.
    assert_eq!(open(&store).await.vacuum().await.unwrap().history, 0);
    // Without its snapshot, the version is removed too.
    late.delete_snapshot("early").await.unwrap();
    assert!(late.vacuum().await.unwrap().history > 0);
    // A whole manifest is due after a quarter as many edits as it has pieces and steps.
    assert!(cells(&store, b'e').await <= 1400 / 4);
    write(&late, 700..710).await;
    assert_eq!(steps_seen(&open(&store).await).await.len(), 710);
}

#[tokio::test]
async fn a_handle_that_wrote_the_whole_manifest_reads_on_when_its_edit_is_gone() {
    let (store, table) = with_steps(0).await;
    let mut steps = 0;
    while cells(&store, b'f').await == 0 {
        write(&table, steps..steps + 1).await;
        steps += 1;
    }
    table.close().await.unwrap();
    let other = open(&store).await;
    write(&other, steps..steps + 1).await;
    other.close().await.unwrap();
    let report = open(&store).await.vacuum().await.unwrap();
    assert!(report.history as u64 > steps, "the edit of the whole manifest is gone: {report:?}");
    assert_eq!(steps_seen(&table).await.len() as u64, steps + 1);
    write(&table, steps + 1..steps + 2).await;
    assert_eq!(steps_seen(&open(&store).await).await.len() as u64, steps + 2);
}

#[tokio::test]
async fn what_a_session_may_look_up_stays_until_it_says_that_it_need_not() {
    let clock = Arc::new(ManualClock::starting_at(Timestamp(1_000_000_000)));
    let memory = MemoryStore::open(Options { clock: clock.clone(), ..Options::default() }).unwrap();
    let store: Arc<dyn Store> = Arc::new(memory);
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    write(&table, 0..300).await;
    let vacuum = open(&store).await;
    assert_eq!(vacuum.vacuum().await.unwrap().history, 0, "the writer's session began before the first edit");
    // The first commit after a third of the session's time records the version from which it now reads.
    clock.advance(Duration::from_secs(21 * 60));
    write(&table, 300..301).await;
    assert!(vacuum.vacuum().await.unwrap().history > 100);
    write(&table, 301..310).await;
    assert_eq!(steps_seen(&open(&store).await).await.len(), 310);
}

/// Counting the rows of older versions.
trait Versioned {
    async fn try_versioned(&self, version: u64) -> Result<usize, TableError>;
    async fn versioned(&self, version: Version) -> usize;
}

impl Versioned for Table {
    async fn try_versioned(&self, version: u64) -> Result<usize, TableError> {
        let query = Query { as_of: Some(Version(version)), ..Query::default() };
        Ok(self.query(&query).await?.rows.num_rows())
    }

    async fn versioned(&self, version: Version) -> usize {
        self.try_versioned(version.0).await.unwrap()
    }
}

/// A store with one entry for each page, which renames a snapshot after the first page of the first listing.
struct Renaming {
    inner: Arc<dyn Store>,
    is_armed: AtomicBool,
}

impl Relay for Renaming {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        let SortRange { from: Bound::Included(first), .. } = &request.range else {
            return self.inner.scan(request);
        };
        if !first.starts_with(b"n") {
            return self.inner.scan(request);
        }
        Box::pin(async move {
            let page = self.inner.scan(ScanRequest { limit: 1, ..request }).await?;
            if self.is_armed.swap(false, Ordering::SeqCst) {
                let other = open(&self.inner).await;
                let version = other.snapshot_version("z").await.unwrap();
                other.create_snapshot("b", Some(version)).await.unwrap();
                other.delete_snapshot("z").await.unwrap();
            }
            Ok(page)
        })
    }
}

#[tokio::test]
async fn a_vacuum_keeps_what_a_snapshot_keeps_that_is_given_another_name_meanwhile() {
    let (inner, table) = with_steps(3).await;
    let kept = table.create_snapshot("z", None).await.unwrap();
    table.pack(&PackOptions::whole()).await.unwrap();
    // It is listed first, and keeps nothing that a vacuum could remove.
    table.create_snapshot("c", None).await.unwrap();
    table.close().await.unwrap();
    let renaming = Relayed(Renaming { inner: Arc::clone(&inner), is_armed: AtomicBool::new(false) });
    let renaming = Arc::new(renaming);
    let store: Arc<dyn Store> = renaming.clone();
    let vacuum = open(&store).await;
    renaming.0.is_armed.store(true, Ordering::SeqCst);
    vacuum.vacuum().await.unwrap();
    assert!(!renaming.0.is_armed.load(Ordering::SeqCst), "nothing was listed");
    let late = open(&inner).await;
    assert_eq!(late.snapshot_version("b").await.unwrap(), kept);
    assert_eq!(late.versioned(kept).await, 3);
}
