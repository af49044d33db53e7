//! A folder that is renamed while a process owns it, and a record whose socket serves another folder: a
//! process that opens a folder gets the store of that folder and no other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_embedded::OpenOptions;
use atoll_embedded::owner::{HostIdentity, Locking, Mode, OwnerRecord};
use atoll_store::{Cell, ErrorKind, ReadOptions, Store, StoreError, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"k" };

/// A temporary place, with a folder for sockets that cannot lie beside their store.
struct Place(tempfile::TempDir);

impl Place {
    fn folder(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn options(&self, mode: Mode) -> OpenOptions {
        let mut options = OpenOptions { mode, ..OpenOptions::default() };
        options.store.engine.background = false;
        options.folder.owner.patience = Duration::from_millis(50);
        options.folder.owner.run_time_folders = vec![self.folder("run")];
        options
    }

    async fn open(&self, folder: &Path) -> Arc<dyn Store> {
        atoll_embedded::open(folder, self.options(Mode::Write)).await.unwrap().store()
    }
}

async fn put(store: &Arc<dyn Store>, value: &[u8]) {
    store.put(CELL, value, WriteOptions::default()).await.unwrap();
}

async fn value(store: &Arc<dyn Store>) -> Vec<u8> {
    store.get(CELL, ReadOptions::default()).await.unwrap().unwrap().to_vec()
}

#[tokio::test]
async fn a_new_store_under_the_name_of_one_that_was_moved_away_takes_nothing_from_it() {
    let place = Place(tempfile::tempdir().unwrap());
    let (folder, moved) = (place.folder("s"), place.folder("s-old"));
    let old = place.open(&folder).await;
    put(&old, b"of the old").await;
    std::fs::rename(&folder, &moved).unwrap();
    let new = place.open(&folder).await;
    put(&new, b"of the new").await;
    let of_old = place.open(&moved).await;
    assert_eq!(value(&of_old).await, b"of the old");
    put(&of_old, b"by who came later").await;
    assert_eq!((value(&old).await, value(&new).await), (b"by who came later".into(), b"of the new".into()));
    // An owner that ends removes its own socket and no other.
    old.close().await.unwrap();
    assert_eq!(value(&place.open(&folder).await).await, b"of the new");
}

#[tokio::test]
async fn an_owner_that_ends_leaves_a_socket_that_took_the_place_of_its_own() {
    let place = Place(tempfile::tempdir().unwrap());
    let (folder, moved) = (place.folder("s"), place.folder("s-old"));
    let old = place.open(&folder).await;
    std::fs::rename(&folder, &moved).unwrap();
    std::fs::remove_file(place.folder("s.socket")).unwrap();
    let new = place.open(&folder).await;
    put(&new, b"of the new").await;
    old.close().await.unwrap();
    assert_eq!(value(&place.open(&folder).await).await, b"of the new");
}

#[tokio::test]
async fn who_was_attached_does_not_go_on_in_another_folder_of_that_name() {
    let place = Place(tempfile::tempdir().unwrap());
    let (folder, moved) = (place.folder("s"), place.folder("s-old"));
    let old = place.open(&folder).await;
    let attached = place.open(&folder).await;
    put(&attached, b"of the old").await;
    std::fs::rename(&folder, &moved).unwrap();
    let new = place.open(&folder).await;
    put(&new, b"of the new").await;
    old.close().await.unwrap();
    let refused = attached.put(CELL, b"lost", WriteOptions::default()).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("another folder"));
    assert_eq!(value(&new).await, b"of the new");
    new.close().await.unwrap();
    std::fs::rename(&folder, place.folder("s-new")).unwrap();
    std::fs::rename(&moved, &folder).unwrap();
    assert_eq!(value(&attached).await, b"of the old");
}

/// Writes a record in a folder that this process owns it and listens at that socket.
fn name_owner(folder: &Path, socket: &Path) {
    let identity = HostIdentity::of_this_process();
    let record = OwnerRecord { identity, socket: Some(socket.to_owned()), nonce: 9 };
    std::fs::write(folder.join("owner"), record.encode()).unwrap();
}

#[tokio::test]
async fn who_listens_for_another_folder_is_not_taken_for_the_owner() {
    let place = Place(tempfile::tempdir().unwrap());
    let (folder, others) = (place.folder("s"), place.folder("others"));
    let mine = place.open(&folder).await;
    put(&mine, b"mine").await;
    mine.close().await.unwrap();
    let other = place.open(&others).await;
    put(&other, b"of others").await;
    // As if the socket's path meant something else here than where the owner runs.
    name_owner(&folder, &place.folder("others.socket"));
    let mut options = place.options(Mode::Write);
    options.folder.owner.locking = Some(Locking::File);
    let opened = atoll_embedded::open(&folder, options.clone()).await.map(|_| ());
    assert!(matches!(opened, Err(StoreError::Owned { .. })), "{opened:?}");
    let reading = OpenOptions { mode: Mode::Read, ..options };
    let reader = atoll_embedded::open(&folder, reading).await.unwrap().store();
    assert_eq!(value(&reader).await, b"mine");
}

#[tokio::test]
async fn an_owner_of_a_release_that_says_hello_otherwise_is_told_at_once() {
    let place = Place(tempfile::tempdir().unwrap());
    let folder = place.folder("s");
    std::fs::create_dir(&folder).unwrap();
    let socket = place.folder("s.socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    name_owner(&folder, &socket);
    let mut options = place.options(Mode::Write);
    options.folder.owner.locking = Some(Locking::File);
    let other_release = async {
        let (stream, _) = listener.accept().await.unwrap();
        let welcome = |_: &[u8]| Err("use the same release".to_owned());
        let accepted = atoll_wire::Connection::accept(stream, atoll_wire::Limits::default(), welcome).await;
        assert!(accepted.is_err());
    };
    let opening = async { tokio::join!(atoll_embedded::open(&folder, options), other_release) };
    let (opened, ()) = tokio::time::timeout(Duration::from_secs(20), opening).await.expect("it asks again");
    let refused = opened.map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}
