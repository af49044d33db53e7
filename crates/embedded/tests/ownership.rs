//! The roles of processes that open a folder: one owner, the others attached, and a clear error where neither
//! is possible. The stores are in memory, since the subject of the tests is how they are reached.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use atoll_embedded::attach::AttachedStore;
use atoll_embedded::owner::{Locking, Mode, OwnerOptions, OwnerRecord, Settled, settle};
use atoll_embedded::{FolderOptions, OpenOptions, OpenStore, STORE_FILE, open_folder};
use atoll_memory::MemoryStore;
use atoll_store::{
    Cell, ErrorKind, Expectation, ReadOptions, Store, StoreError, StoreFuture, Waited, WriteOptions,
};
use futures::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

#[derive(Default)]
struct Memory {
    owned: AtomicUsize,
    read: AtomicUsize,
}

impl OpenStore for Memory {
    fn open_owned<'a>(&'a self, _: &'a Path) -> StoreFuture<'a, Arc<dyn Store>> {
        self.owned.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Arc::new(MemoryStore::open(Default::default()).unwrap()) as Arc<dyn Store>) })
    }

    fn abandon(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn until_broken(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn open_read_only<'a>(&'a self, _: &'a Path) -> StoreFuture<'a, Arc<dyn Store>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Arc::new(MemoryStore::open(Default::default()).unwrap()) as Arc<dyn Store>) })
    }
}

struct Place {
    _outer: tempfile::TempDir,
    folder: PathBuf,
    opener: Arc<Memory>,
    locking: Option<Locking>,
    /// How long to wait for an owner that cannot be reached.
    patience: Duration,
}

const BOTH: [Option<Locking>; 2] = [None, Some(Locking::File)];

impl Place {
    fn new(locking: Option<Locking>) -> Self {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("store");
        std::fs::create_dir(&folder).unwrap();
        Self { _outer: outer, folder, opener: Arc::default(), locking, patience: Duration::from_millis(50) }
    }

    fn owner_options(&self) -> OwnerOptions {
        let (patience, locking) = (self.patience, self.locking);
        let mut options = OwnerOptions { patience, locking, ..OwnerOptions::default() };
        options.identity.machine = "ours".into();
        options
    }

    async fn open(&self, mode: Mode) -> Result<AttachedStore, StoreError> {
        let options = FolderOptions {
            owner: self.owner_options(),
            last_state_age: Duration::from_millis(5),
            ..FolderOptions::default()
        };
        let opener = Arc::clone(&self.opener) as Arc<dyn OpenStore>;
        open_folder(self.folder.clone(), mode, options, opener).await
    }

    fn lock_file(&self) -> PathBuf {
        self.folder.join(if self.locking.is_some() { "owner" } else { "lock" })
    }

    /// Leaves the record of another process behind.
    fn left_by(&self, change: impl FnOnce(&mut OwnerRecord)) {
        let identity = self.owner_options().identity;
        let mut record = OwnerRecord { identity, socket: Some(self.folder.join("no socket")), nonce: 9 };
        change(&mut record);
        std::fs::write(self.lock_file(), record.encode()).unwrap();
    }

    /// Names, lengths and times of all files.
    fn files(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let list = |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = list(&self.folder)
            .chain(list(self.folder.parent().unwrap()))
            .map(|path| {
                let metadata = std::fs::metadata(&path).unwrap();
                (path, metadata.len(), metadata.modified().unwrap())
            })
            .collect();
        files.sort();
        files
    }
}

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"k" };

async fn value(store: &AttachedStore) -> Option<Vec<u8>> {
    store.get(CELL, ReadOptions::default()).await.unwrap().map(|value| value.to_vec())
}

#[tokio::test]
async fn the_first_owns_and_the_second_sees_what_it_wrote() {
    for locking in BOTH {
        let place = Place::new(locking);
        let (first, second) =
            (place.open(Mode::Write).await.unwrap(), place.open(Mode::Write).await.unwrap());
        assert!(first.is_local() && !second.is_local());
        first.put(CELL, b"of the first", WriteOptions::default()).await.unwrap();
        assert_eq!(value(&second).await.as_deref(), Some(&b"of the first"[..]));
        second.put(CELL, b"of the second", WriteOptions::default()).await.unwrap();
        assert_eq!(value(&first).await.as_deref(), Some(&b"of the second"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_open_at_once_one_owns() {
    for locking in BOTH {
        // On a busy machine the owner may take long to write its record.
        let place = Place { patience: Duration::from_secs(20), ..Place::new(locking) };
        let opened = futures::future::join_all((0..20).map(|_| place.open(Mode::Write))).await;
        let owners = opened.iter().filter(|store| store.as_ref().unwrap().is_local()).count();
        assert_eq!((owners, place.opener.owned.load(Ordering::Relaxed)), (1, 1));
    }
}

#[tokio::test]
async fn when_the_owner_closes_an_attached_one_takes_its_place() {
    for locking in BOTH {
        let place = Place::new(locking);
        let (first, second) =
            (place.open(Mode::Write).await.unwrap(), place.open(Mode::Write).await.unwrap());
        first.close().await.unwrap();
        assert_eq!(value(&second).await, None);
        assert!(second.is_local());
        assert_eq!(first.get(CELL, ReadOptions::default()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn an_owner_that_takes_long_to_end_is_waited_for() {
    for locking in BOTH {
        let place = Place::new(locking);
        let options = place.owner_options();
        let Settled::Owner(mut owner) = settle(&place.folder, Mode::Write, &options).await.unwrap() else {
            panic!()
        };
        // The owner has stopped listening, like one that writes its last checkpoint.
        drop(owner.take_listener());
        let opening = place.open(Mode::Write);
        tokio::pin!(opening);
        let early = tokio::time::timeout(options.patience * 4, &mut opening).await;
        assert!(early.is_err(), "{:?}", early.map(|opened| opened.map(|_| ())));
        drop(owner);
        assert!(opening.await.unwrap().is_local());
    }
}

#[tokio::test]
async fn an_owner_ends_though_somebody_who_connected_says_nothing() {
    let place = Place::new(None);
    let owner = place.open(Mode::Write).await.unwrap();
    let path = PathBuf::from(format!("{}.socket", place.folder.display()));
    let _silent = tokio::net::UnixStream::connect(path).await.unwrap();
    // This one is accepted before the one that comes after it.
    let attached = place.open(Mode::Write).await.unwrap();
    assert_eq!(value(&attached).await, None);
    let closing = tokio::time::timeout(Duration::from_secs(3), owner.close()).await;
    closing.expect("it waits for a hello").unwrap();
}

#[tokio::test]
async fn who_only_reads_follows_the_next_owner_though_there_was_none_for_a_while() {
    for locking in BOTH {
        let place = Place::new(locking);
        let first = place.open(Mode::Write).await.unwrap();
        let reader = place.open(Mode::Read).await.unwrap();
        first.close().await.unwrap();
        assert_eq!(value(&reader).await, None);
        assert!(reader.is_local(), "nobody owns it");
        let follows = async {
            let waiting = reader.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600));
            let writing = async {
                let second = place.open(Mode::Write).await.unwrap();
                second.put(CELL, b"v2", WriteOptions::default()).await.unwrap();
                second
            };
            let (waited, _second) = tokio::join!(waiting, writing);
            assert_eq!(waited.unwrap(), Waited::Met(Some(b"v2"[..].into())));
            assert_eq!(value(&reader).await.as_deref(), Some(&b"v2"[..]));
        };
        tokio::time::timeout(Duration::from_secs(20), follows).await.expect("the reader stands still");
        assert!(!reader.is_local());
    }
}

#[tokio::test]
async fn a_closed_store_leaves_no_name_and_no_socket_behind() {
    for locking in BOTH {
        let place = Place::new(locking);
        let store = place.open(Mode::Write).await.unwrap();
        assert_ne!(std::fs::read(place.lock_file()).unwrap(), b"");
        store.close().await.unwrap();
        assert!(std::fs::read(place.lock_file()).unwrap_or_default().trim_ascii().is_empty());
        assert_eq!(std::fs::read_dir(place.folder.parent().unwrap()).unwrap().count(), 1, "a socket is left");
    }
}

#[tokio::test]
async fn a_store_that_is_dropped_lets_the_folder_go() {
    for locking in BOTH {
        let place = Place::new(locking);
        drop(place.open(Mode::Write).await.unwrap());
        let next = place.open(Mode::Write).await.unwrap();
        // It may have met the first owner on its way out; it becomes the owner with its first call.
        next.put(CELL, b"v", WriteOptions::default()).await.ok();
        value(&next).await;
        assert!(next.is_local());
    }
}

#[tokio::test]
async fn the_lock_of_another_host_is_refused_by_name_and_left_alone() {
    let place = Place::new(Some(Locking::File));
    place.left_by(|record| {
        record.identity.host = "far-away".into();
        record.identity.boot = "another".into();
        record.identity.pid = 4711;
    });
    let before = std::fs::read(place.lock_file()).unwrap();
    let old = SystemTime::now() - Duration::from_secs(1_000_000);
    std::fs::File::open(place.lock_file()).unwrap().set_modified(old).unwrap();
    match place.open(Mode::Write).await {
        Err(StoreError::Owned { host, pid, .. }) => assert_eq!((host.as_str(), pid), ("far-away", 4711)),
        other => panic!("{:?}", other.map(|_| "opened")),
    }
    assert_eq!(std::fs::read(place.lock_file()).unwrap(), before);
    // Processes with one kind of lock respect the other kind.
    let local = Place {
        locking: Some(Locking::Kernel),
        opener: Arc::default(),
        folder: place.folder.clone(),
        ..Place::new(None)
    };
    assert!(matches!(local.open(Mode::Write).await, Err(StoreError::Owned { pid: 4711, .. })));
}

#[tokio::test]
async fn a_dead_owner_of_this_host_is_followed_at_once() {
    for locking in BOTH {
        let place = Place::new(locking);
        place.left_by(|record| record.identity.started += 1);
        assert!(place.open(Mode::Write).await.unwrap().is_local());
    }
}

#[tokio::test]
async fn after_a_restart_of_the_host_a_lock_file_is_taken_over_once_its_heartbeat_is_old() {
    let place = Place::new(Some(Locking::File));
    place.left_by(|record| record.identity.boot = "the one before".into());
    assert!(matches!(place.open(Mode::Write).await, Err(StoreError::Owned { .. })));
    let old = SystemTime::now() - Duration::from_secs(60);
    std::fs::File::open(place.lock_file()).unwrap().set_modified(old).unwrap();
    assert!(place.open(Mode::Write).await.unwrap().is_local());
}

#[tokio::test]
async fn a_lock_file_of_who_knows_which_machine_of_this_name_is_left_alone_however_old() {
    let place = Place::new(Some(Locking::File));
    place.left_by(|record| {
        record.identity.boot = "another".into();
        record.identity.machine = String::new();
    });
    let before = std::fs::read(place.lock_file()).unwrap();
    let old = SystemTime::now() - Duration::from_secs(1_000_000);
    std::fs::File::open(place.lock_file()).unwrap().set_modified(old).unwrap();
    let refused = place.open(Mode::Write).await.map(|_| "opened").unwrap_err();
    let host = place.owner_options().identity.host;
    assert!(matches!(&refused, StoreError::Owned { host: named, .. } if *named == host), "{refused:?}");
    assert!(refused.hint().is_some_and(|hint| hint.contains("remove the file `owner`")));
    assert_eq!(std::fs::read(place.lock_file()).unwrap(), before);
}

#[tokio::test]
async fn an_owner_on_another_host_of_the_same_name_is_heeded_whatever_lock_is_ours() {
    for machine in ["", "another", "ours"] {
        let mut place = Place::new(Some(Locking::File));
        place.left_by(|record| {
            record.identity.boot = "another".into();
            record.identity.machine = machine.into();
        });
        let lock = place.lock_file();
        place.locking = Some(Locking::Kernel);
        assert!(matches!(place.open(Mode::Write).await, Err(StoreError::Owned { .. })), "{machine:?}");
        let old = SystemTime::now() - Duration::from_secs(60);
        std::fs::File::open(lock).unwrap().set_modified(old).unwrap();
        assert_eq!(place.open(Mode::Write).await.is_ok(), machine == "ours", "{machine:?}");
    }
}

#[tokio::test]
async fn to_read_attaches_to_a_live_owner_and_writes_nothing_otherwise() {
    for locking in BOTH {
        let place = Place::new(locking);
        place.left_by(|record| record.identity.started += 1);
        let before = place.files();
        let reader = place.open(Mode::Read).await.unwrap();
        assert!(reader.is_local());
        assert_eq!(place.files(), before);
        let owner = place.open(Mode::Write).await.unwrap();
        owner.put(CELL, b"v", WriteOptions::default()).await.unwrap();
        let before = place.files();
        let reader = place.open(Mode::Read).await.unwrap();
        assert_eq!(value(&reader).await.as_deref(), Some(&b"v"[..]));
        assert!(!reader.is_local());
        let refused = reader.put(CELL, b"w", WriteOptions::default()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly);
        reader.close().await.unwrap();
        assert_eq!(place.files(), before);
    }
}

#[tokio::test]
async fn beside_an_owner_of_another_host_a_reader_opens_what_is_there() {
    let place = Place::new(Some(Locking::File));
    place.left_by(|record| {
        record.identity.host = "far-away".into();
        record.identity.boot = "another".into();
    });
    assert!(place.open(Mode::Read).await.unwrap().is_local());
    assert_eq!(place.opener.read.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_owner_whose_lock_file_is_taken_away_learns_of_it() {
    let place = Place::new(Some(Locking::File));
    let options = OwnerOptions { heartbeat_every: Duration::from_millis(5), ..place.owner_options() };
    let Settled::Owner(owner) = settle(&place.folder, Mode::Write, &options).await.unwrap() else { panic!() };
    std::fs::remove_file(place.lock_file()).unwrap();
    owner.lost().wait_for(|is_lost| *is_lost).await.unwrap();
}

#[tokio::test]
async fn an_owner_that_cannot_touch_its_lock_file_gives_up_before_others_take_it_for_dead() {
    let place = Place::new(Some(Locking::File));
    let heartbeat_every = Duration::from_millis(5);
    let heartbeat_limit = Duration::from_millis(60);
    let options = OwnerOptions { heartbeat_every, heartbeat_limit, ..place.owner_options() };
    let Settled::Owner(owner) = settle(&place.folder, Mode::Write, &options).await.unwrap() else { panic!() };
    // A link to itself, which cannot be opened, takes its place, and at no moment is there nothing.
    let circle = place.folder.join("circle");
    std::os::unix::fs::symlink(place.lock_file(), &circle).unwrap();
    std::fs::rename(&circle, place.lock_file()).unwrap();
    let mut lost = owner.lost();
    let is_lost = tokio::time::timeout(Duration::from_secs(10), lost.wait_for(|is_lost| *is_lost)).await;
    is_lost.expect("it goes on for ever").unwrap();
}

#[tokio::test]
async fn an_owner_that_lost_its_folder_writes_not_a_byte_more() {
    let place = Place::new(Some(Locking::File));
    let mut options = OpenOptions::default();
    options.store.engine.background = false;
    options.folder.owner =
        OwnerOptions { heartbeat_every: Duration::from_millis(5), ..place.owner_options() };
    let opened = atoll_embedded::open(&place.folder, options).await.unwrap();
    let store = opened.store();
    store.put(CELL, b"v", WriteOptions::default()).await.unwrap();
    let file = || std::fs::read(place.folder.join(STORE_FILE)).unwrap();
    let before = file();
    std::fs::remove_file(place.lock_file()).unwrap();
    while store.get(CELL, ReadOptions::default()).await.is_ok() {}
    store.close().await.unwrap();
    assert!(file() == before, "the next owner may have written here");
}

#[tokio::test]
async fn a_client_of_another_version_is_refused_in_words() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let place = Place::new(None);
    let _owner = place.open(Mode::Write).await.unwrap();
    let path = PathBuf::from(format!("{}.socket", place.folder.display()));
    let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
    let hello = atoll_wire::Hello { lowest: 90, highest: 91, ..atoll_wire::Hello::offer(Vec::new()) };
    stream.write_all(&hello.encode()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let reason = atoll_wire::Hello::decode(&answer).unwrap().unwrap().greeting;
    assert!(String::from_utf8(reason).unwrap().contains("versions 90 to 91"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_becomes_the_owner_while_it_is_closed_lets_the_folder_go() {
    for _ in 0..30 {
        let place = Place::new(None);
        let (first, second) =
            (place.open(Mode::Write).await.unwrap(), place.open(Mode::Write).await.unwrap());
        first.close().await.unwrap();
        let (_, closed) = tokio::join!(second.get(CELL, ReadOptions::default()), second.close());
        closed.unwrap();
        assert!(std::fs::read(place.lock_file()).unwrap().trim_ascii().is_empty());
    }
}

#[tokio::test]
async fn who_is_attached_and_asks_nothing_takes_over_all_the_same() {
    for locking in BOTH {
        let place = Place::new(locking);
        let owner = place.open(Mode::Write).await.unwrap();
        let idle = place.open(Mode::Write).await.unwrap();
        assert!(!idle.is_local());
        owner.close().await.unwrap();
        let owned = tokio::time::timeout(Duration::from_secs(20), idle.until_local()).await;
        assert!(owned.is_ok(), "nobody took over: {locking:?}");
        assert!(idle.is_local());
        idle.close().await.unwrap();
    }
}
