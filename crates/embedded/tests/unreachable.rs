//! What becomes of who opens a folder beside an owner that lives and cannot be reached: who only reads sees what the owner
//! goes on to write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_embedded::owner::Mode;
use atoll_embedded::{FolderStore, OpenOptions};
use atoll_store::{Cell, ReadOptions, WriteOptions};
use std::path::Path;
use std::time::Duration;

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"k" };

async fn open(folder: &Path, mode: Mode) -> FolderStore {
    let mut options = OpenOptions { mode, ..OpenOptions::default() };
    options.store.engine.background = false;
    options.folder.last_state_age = Duration::from_millis(5);
    atoll_embedded::open(folder, options).await.unwrap()
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
