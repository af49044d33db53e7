//! A store that answers no more calls, because an operation on it ended half-way: waiters get an error, and
//! if several processes share its folder, another one takes it over.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, FaultPlan, SimDisk};
use atoll_embedded::attach::AttachedStore;
use atoll_embedded::owner::{Mode, OwnerOptions};
use atoll_embedded::{EmbeddedStore, FolderOptions, OpenStore, StoreOptions, open_folder};
use atoll_engine::{Engine, Options};
use atoll_store::{
    Batch, Cell, ErrorKind, Expectation, Outcome, ReadOptions, SortRange, Store, StoreError, StoreFuture,
    WriteOptions,
};
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Cells of some 120 bytes: three times the memory.
const CELLS: u32 = 20_000;
const PARTITION: &[u8] = b"p";
/// A cell of another partition.
const OTHER: Cell<'_> = Cell { partition: b"other", sort: b"k" };

fn store_on(disk: &SimDisk, memory_bytes: u64) -> EmbeddedStore {
    let engine = Options {
        memory_bytes,
        background: false,
        log_segment_bytes: 64 << 10,
        store_id: Some(7),
        ..Options::default()
    };
    let opened = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, engine.clone()).unwrap();
    EmbeddedStore::on_engine(opened, StoreOptions { engine, ..StoreOptions::default() }, "test").unwrap()
}

/// A store with little memory, which already holds what a wait reads.
async fn opened(disk: &SimDisk) -> EmbeddedStore {
    let store = store_on(disk, 1 << 20);
    assert!(store.get(OTHER, ReadOptions::default()).await.unwrap().is_none());
    store
}

async fn filled() -> SimDisk {
    let disk = SimDisk::seeded(1);
    let store = store_on(&disk, 1 << 30);
    for first in (0..CELLS).step_by(500) {
        let put = |batch: Batch, number: u32| batch.put(number.to_be_bytes(), vec![number as u8; 120]);
        let batch = (first..first + 500).fold(Batch::on(PARTITION), put);
        store.write(batch, WriteOptions::default()).await.unwrap();
    }
    store.close().await.unwrap();
    disk
}

async fn delete_all(store: &dyn Store) -> Result<(), StoreError> {
    let batch = Batch::on(PARTITION).delete_range(SortRange::all());
    store.write(batch, WriteOptions::default()).await.map(drop)
}

fn fail_read(read: u64) -> FaultPlan {
    FaultPlan { fail_read: Some(read), ..FaultPlan::default() }
}

/// The number of the read at which such a delete fails after it was logged.
async fn read_behind_the_log(disk: &SimDisk) -> u64 {
    let copy = disk.fork();
    let store = opened(&copy).await;
    let before = copy.counters().reads;
    delete_all(&store).await.unwrap();
    for read in (0..copy.counters().reads - before).rev() {
        let copy = disk.fork();
        let store = opened(&copy).await;
        copy.set_plan(fail_read(read));
        if delete_all(&store).await.is_err_and(|error| error.outcome() == Outcome::Unknown) {
            return read;
        }
    }
    panic!("no read fails behind the log")
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("it takes for ever")
}

async fn wait_for_an_hour(store: &dyn Store) -> Result<(), StoreError> {
    let hour = Duration::from_secs(3600);
    store.wait(OTHER, Expectation::Differs(None), hour).await.map(drop)
}

#[tokio::test]
async fn who_waits_is_told_when_the_store_breaks() {
    let disk = filled().await;
    let read = read_behind_the_log(&disk).await;
    let store = opened(&disk).await;
    let mut waiting = std::pin::pin!(wait_for_an_hour(&store));
    let mut until_broken = std::pin::pin!(store.until_broken());
    assert!(futures::poll!(&mut waiting).is_pending() && futures::poll!(&mut until_broken).is_pending());
    disk.set_plan(fail_read(read));
    assert_eq!(delete_all(&store).await.unwrap_err().outcome(), Outcome::Unknown);
    let told = in_time(waiting).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unavailable, "{told}");
    in_time(until_broken).await;
    assert_eq!(store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Opens the store on a disk, as often as asked.
struct Opener {
    disk: SimDisk,
    owned: Mutex<Option<EmbeddedStore>>,
}

impl Opener {
    fn owned(&self) -> Option<EmbeddedStore> {
        self.owned.lock().unwrap().clone()
    }
}

impl OpenStore for Opener {
    fn open_owned<'a>(&'a self, _: &'a Path) -> StoreFuture<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = store_on(&self.disk, 1 << 20);
            // The same read as by the stores that break below; the next one finds the cell written.
            drop(store.get(OTHER, ReadOptions::default()).await.unwrap());
            *self.owned.lock().unwrap() = Some(store.clone());
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn open_read_only<'a>(&'a self, _: &'a Path) -> StoreFuture<'a, Arc<dyn Store>> {
        unreachable!("nobody only reads here")
    }

    fn abandon(&self) -> BoxFuture<'_, ()> {
        let store = self.owned();
        Box::pin(async move { store.expect("it was opened").abandon().await })
    }

    fn until_broken(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.owned().expect("it was opened").until_broken())
    }
}

async fn open(folder: &Path, disk: &SimDisk) -> AttachedStore {
    let owner = OwnerOptions { patience: Duration::from_secs(20), ..OwnerOptions::default() };
    let options = FolderOptions { owner, ..FolderOptions::default() };
    let opener = Arc::new(Opener { disk: disk.clone(), owned: Mutex::new(None) });
    open_folder(folder.to_owned(), Mode::Write, options, opener).await.unwrap()
}

#[tokio::test]
async fn an_owner_whose_store_breaks_gives_the_folder_to_who_is_attached() {
    let disk = filled().await;
    let read = read_behind_the_log(&disk).await;
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("store");
    std::fs::create_dir(&folder).unwrap();
    let owner = open(&folder, &disk).await;
    let attached = open(&folder, &disk).await;
    assert!(owner.is_local() && !attached.is_local());
    let mut waiting = std::pin::pin!(wait_for_an_hour(&owner));
    assert!(futures::poll!(&mut waiting).is_pending());
    disk.set_plan(fail_read(read));
    let unknown = delete_all(&attached).await.unwrap_err();
    disk.set_plan(FaultPlan::default());
    assert_eq!(unknown.outcome(), Outcome::Unknown, "{unknown}");
    assert_eq!(in_time(waiting).await.unwrap_err().kind(), ErrorKind::Unavailable);
    in_time(async {
        while let Err(error) = attached.put(OTHER, b"v", WriteOptions::default()).await {
            // While the owner is on its way out.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(attached.is_local(), "it took the owner's place");
    let first = Cell::new(PARTITION, &[0_u8; 4]);
    assert!(attached.get(first, ReadOptions::default()).await.unwrap().is_none(), "the range is gone");
    // The former owner gets the error until it closes its store.
    for error in [
        owner.get(OTHER, ReadOptions::default()).await.map(drop).unwrap_err(),
        owner.put(OTHER, b"w", WriteOptions::default()).await.map(drop).unwrap_err(),
        owner.close().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("open it again"), "{error}");
    }
    let again = open(&folder, &disk).await;
    assert!(!again.is_local());
    assert_eq!(again.get(OTHER, ReadOptions::default()).await.unwrap().unwrap(), b"v"[..]);
}
