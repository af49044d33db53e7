//! Opening a folder beside an owner that lives and cannot be reached: a reader sees what the owner goes on to
//! write, and a writer waits only for an owner that ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_embedded::attach::{ServeOptions, Server, serve};
use atoll_embedded::owner::{Mode, OwnerOptions, Ownership, Settled, settle};
use atoll_embedded::{FolderStore, OpenOptions, STORE_FILE};
use atoll_memory::MemoryStore;
use atoll_store::{Cell, ErrorKind, Expectation, ReadOptions, Store, StoreError, Waited, WriteOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"k" };

fn options(mode: Mode) -> OpenOptions {
    let mut options = OpenOptions { mode, ..OpenOptions::default() };
    options.store.engine.background = false;
    options.folder.last_state_age = Duration::from_millis(5);
    options.folder.owner.patience = Duration::from_millis(50);
    options
}

async fn open(folder: &Path, mode: Mode) -> FolderStore {
    atoll_embedded::open(folder, options(mode)).await.unwrap()
}

#[tokio::test]
async fn who_only_reads_sees_what_an_owner_it_cannot_reach_goes_on_to_write() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let owner = open(&folder, Mode::Write).await.store();
    std::fs::remove_file(place.path().join("store.socket")).unwrap();
    owner.append(CELL, b"x", WriteOptions::default()).await.unwrap();
    let reader = open(&folder, Mode::Read).await.store();
    let follows = async {
        for written in 2..12 {
            owner.append(CELL, b"x", WriteOptions::default()).await.unwrap();
            let seen = async || {
                let value = reader.get(CELL, ReadOptions::default()).await.unwrap();
                value.map_or(0, |value| value.len())
            };
            while seen().await < written {}
        }
    };
    tokio::time::timeout(Duration::from_secs(20), follows).await.expect("the reader stands still");
}

/// Becomes the owner of the folder without opening its store; the tests choose what this owner serves.
async fn lone_owner(folder: &Path) -> Ownership {
    std::fs::create_dir_all(folder).unwrap();
    match settle(folder, Mode::Write, &OwnerOptions::default()).await.unwrap() {
        Settled::Owner(owner) => owner,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_an_owner_that_hears_nobody_counts_as_one_that_ends() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let owner = lone_owner(&folder).await;
    // Its socket cannot be reached from here, even if the owner listens.
    let circle = place.path().join("circle");
    std::os::unix::fs::symlink(owner.socket(), &circle).unwrap();
    std::fs::rename(&circle, owner.socket()).unwrap();
    let opening = atoll_embedded::open(&folder, options(Mode::Write));
    let opened = tokio::time::timeout(Duration::from_secs(20), opening).await.expect("it waits for an end");
    assert!(matches!(opened, Err(StoreError::Owned { .. })), "{:?}", opened.map(|_| ()));
}

#[tokio::test]
async fn a_reader_that_closes_waits_for_no_owner_to_begin() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let mut owner = lone_owner(&folder).await;
    let listener = owner.take_listener().unwrap();
    // A client of this one waits for a hello, as at an owner that is opening its store.
    let _silent = listener.try_clone().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::open(Default::default()).unwrap());
    let listener = tokio::net::UnixListener::from_std(listener).unwrap();
    let server = serve(listener, store, ServeOptions::default(), &Handle::current());
    std::fs::write(folder.join(STORE_FILE), "").unwrap();
    let reader = open(&folder, Mode::Read).await.store();
    server.stop().await;
    let closing = async {
        // First there is a search, then no call needs it.
        let get = reader.get(CELL, ReadOptions::default());
        tokio::join!(get, reader.close())
    };
    let (_, closed) = tokio::time::timeout(Duration::from_secs(20), closing).await.expect("it waits");
    closed.unwrap();
}

#[tokio::test]
async fn an_owner_whose_lock_file_was_removed_is_the_only_one_still() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let owner = open(&folder, Mode::Write).await.store();
    owner.put(CELL, b"v1", WriteOptions::default()).await.unwrap();
    std::fs::remove_file(folder.join("lock")).unwrap();
    let refused = atoll_embedded::open(&folder, options(Mode::Write)).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("the file `lock` in it was removed"), "{refused}");
    assert!(!folder.join("lock").exists(), "a lock that guards nothing");
    owner.put(CELL, b"v2", WriteOptions::default()).await.unwrap();
    owner.close().await.unwrap();
    let next = open(&folder, Mode::Write).await.store();
    assert_eq!(next.get(CELL, ReadOptions::default()).await.unwrap().unwrap().to_vec(), b"v2");
}

/// Another process, which lives until it is killed.
struct Other(std::process::Child);

impl Other {
    fn start() -> Self {
        Self(std::process::Command::new("sleep").arg("3600").spawn().unwrap())
    }

    /// Writes a record in its name, as if it were this owner, and this process one that it forked, with the
    /// lock and the sockets that it had.
    fn sign(&self, folder: &Path, owner: &Ownership) {
        let mut record = owner.record().clone();
        record.identity.pid = self.0.id();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        record.identity.started = fields.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
        let lock = std::fs::OpenOptions::new().write(true).truncate(true).open(folder.join("lock"));
        lock.unwrap().write_all(record.encode().as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn who_comes_after_an_owner_that_was_killed_and_left_a_child_is_told_so() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let (owner, mut other) = (lone_owner(&folder).await, Other::start());
    other.sign(&folder, &owner);
    other.kill();
    let opening = atoll_embedded::open(&folder, options(Mode::Write));
    let opened = tokio::time::timeout(Duration::from_secs(20), opening).await.expect("it waits for a hello");
    let refused = opened.map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let process = format!("process {}", other.0.id());
    assert!(refused.to_string().contains(&process) && refused.to_string().contains("forked"), "{refused}");
    drop(owner);
    open(&folder, Mode::Write).await;
}

#[tokio::test]
async fn who_is_attached_to_an_owner_that_was_killed_and_left_a_child_waits_no_longer() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let (mut owner, mut other) = (lone_owner(&folder).await, Other::start());
    other.sign(&folder, &owner);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::open(Default::default()).unwrap());
    let listener = tokio::net::UnixListener::from_std(owner.take_listener().unwrap()).unwrap();
    let _server = serve(listener, store, ServeOptions::default(), &Handle::current());
    let attached = open(&folder, Mode::Write).await.store();
    attached.put(CELL, b"v", WriteOptions::default()).await.unwrap();
    let waiting = attached.wait(CELL, Expectation::Equals(None), Duration::from_secs(3600));
    let killing = async { other.kill() };
    let both = async { tokio::join!(waiting, killing) };
    let (waited, ()) = tokio::time::timeout(Duration::from_secs(20), both).await.expect("it waits for ever");
    assert!(waited.unwrap_err().to_string().contains("forked"));
}

/// A folder whose store has a value of [`CELL`] on disk, and an owner by its lock in the name of another
/// process.
async fn owned_by_other(folder: &Path, other: &Other, value: &[u8]) -> Ownership {
    let store = open(folder, Mode::Write).await.store();
    store.put(CELL, value, WriteOptions::default()).await.unwrap();
    store.close().await.unwrap();
    let owner = lone_owner(folder).await;
    other.sign(folder, &owner);
    owner
}

fn serve_memory(owner: &mut Ownership) -> (Arc<dyn Store>, Server) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::open(Default::default()).unwrap());
    let listener = tokio::net::UnixListener::from_std(owner.take_listener().unwrap()).unwrap();
    (Arc::clone(&store), serve(listener, store, ServeOptions::default(), &Handle::current()))
}

#[tokio::test]
async fn who_reads_beside_an_owner_is_given_the_last_state_when_that_one_is_suspended() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let other = Other::start();
    let mut owner = owned_by_other(&folder, &other, b"on disk").await;
    let _served = serve_memory(&mut owner);
    let reader = open(&folder, Mode::Read).await.store();
    // The owner does not answer this one any more.
    let waiting = reader.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600));
    let both = async { tokio::join!(waiting, async { other.signal(Signal::STOP) }) };
    let (waited, ()) = tokio::time::timeout(Duration::from_secs(20), both).await.expect("it waits for ever");
    assert_eq!(waited.unwrap(), Waited::Met(Some(b"on disk"[..].into())));
}

#[tokio::test]
async fn who_reads_beside_an_owner_that_was_suspended_sees_soon_what_it_goes_on_to_write() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let other = Other::start();
    let mut owner = owned_by_other(&folder, &other, b"on disk").await;
    other.signal(Signal::STOP);
    let reader = open(&folder, Mode::Read).await.store();
    let get = async || reader.get(CELL, ReadOptions::default()).await.unwrap().unwrap().to_vec();
    assert_eq!(get().await, b"on disk");
    other.signal(Signal::CONT);
    let (store, _server) = serve_memory(&mut owner);
    store.put(CELL, b"written", WriteOptions::default()).await.unwrap();
    let follows = async { while get().await != b"written" {} };
    tokio::time::timeout(Duration::from_secs(10), follows).await.expect("the reader stands still");
}

#[tokio::test]
async fn an_owner_whose_lock_file_was_emptied_is_the_only_one_still() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let owner = open(&folder, Mode::Write).await.store();
    std::fs::File::create(folder.join("lock")).unwrap();
    let refused = atoll_embedded::open(&folder, options(Mode::Write)).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let told = refused.to_string();
    assert!(told.contains("the file `lock` in it does not say which one; end that process"), "{told}");
    owner.put(CELL, b"v", WriteOptions::default()).await.unwrap();
}
