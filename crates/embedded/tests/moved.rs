//! A folder that is renamed while a process owns it: whoever opens it under any of its names has its store and no other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_embedded::OpenOptions;
use atoll_embedded::owner::Mode;
use atoll_store::{Cell, ReadOptions, Store, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"k" };

/// A place with a folder for the sockets that cannot lie beside their store.
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
    // The owner that ends takes its own socket along and no other.
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
