//! Backups that end between two of their steps: each such folder is recognised for what it is, and the next
//! backup completes it.

use super::mark::{Destination, Mark, State};
use crate::maintenance::BackupReport;
use crate::{CopyProgress, Mode, OpenOptions, Opened, copy_last_complete, open_with_maintenance};
use atoll_embedded::owner::{Mode as OwnerMode, OwnerError, OwnerOptions, settle};
use atoll_embedded::{PART_FILE, STORE_FILE, UNFINISHED_FILE};
use atoll_engine::{Direction, Durability, Engine};
use atoll_store::{Cell, StoreError, WriteOptions};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store and a backup of it that holds one state.
struct Pair {
    folder: TempDir,
    store: Opened,
}

impl Pair {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = open(&folder.path().join("data"), Mode::Write).await.unwrap();
        let pair = Self { folder, store };
        pair.put("a", "first").await;
        pair.put("b", "first").await;
        pair.backup(false).await.unwrap();
        pair
    }

    async fn put(&self, sort: &str, value: &str) {
        let cell = Cell::new(b"p", sort.as_bytes());
        self.store.store.put(cell, value.as_bytes(), WriteOptions::default()).await.unwrap();
    }

    async fn backup(&self, full: bool) -> Result<BackupReport, StoreError> {
        let maintenance = self.store.maintenance.clone().unwrap();
        maintenance.backup_to(&self.folder.path().join("safe"), full, Box::new(|_, _| ())).await
    }

    fn safe(&self, file: &str) -> PathBuf {
        self.folder.path().join("safe").join(file)
    }

    /// The backup as its next step would open it, and its mark.
    fn held(&self, file: &str) -> (Destination, Mark) {
        let held = Destination::open(&self.safe(file), "safe").unwrap();
        let mark = held.mark().unwrap();
        (held, mark)
    }

    /// Makes the store keep its present state as the next one of the backup.
    async fn keep_next(&self, held: &Destination, mark: &Mark) -> State {
        let next = State { number: mark.state.number + 1, sequence: 0 };
        let kept = self.store.maintenance.clone().unwrap().create_snapshot(&held.name_of(&next)).await;
        State { sequence: kept.unwrap().sequence, ..next }
    }

    async fn is_refused(&self) -> bool {
        let folder = self.folder.path().join("safe");
        let mut refusals = 0;
        for mode in [Mode::Read, Mode::Write] {
            match open(&folder, mode).await {
                Ok(opened) => opened.store.close().await.unwrap(),
                Err(error) => {
                    assert!(matches!(error, StoreError::Unfinished { .. }), "{error}");
                    refusals += 1;
                }
            }
        }
        refusals == 2
    }

    /// Checks that the next backup completes the folder, and that the store keeps one state for it.
    async fn check_healed(&self) {
        self.put("c", "later").await;
        self.backup(false).await.unwrap();
        let source = Destination::open_to_read(&self.folder.path().join("data").join(STORE_FILE), "data");
        assert_eq!(cells(&self.held(STORE_FILE).0.engine), cells(&source.unwrap().engine));
        let kept = self.store.maintenance.clone().unwrap().snapshots().await.unwrap();
        assert_eq!(kept.len(), 1, "{kept:?}");
        for file in [UNFINISHED_FILE, PART_FILE] {
            assert!(!self.safe(file).exists(), "{file} is left");
        }
    }
}

async fn open(folder: &Path, mode: Mode) -> Result<Opened, StoreError> {
    let options = OpenOptions { mode, memory_bytes: 16 << 20, ..OpenOptions::default() };
    open_with_maintenance(folder.to_str().unwrap(), &options).await
}

fn cells(engine: &Engine) -> Content {
    let mut cells = Content::new();
    let keep = |key: &[u8], value: atoll_engine::ValueRef<'_>| {
        cells.insert(key.to_vec(), value.bytes().unwrap().to_vec());
        ControlFlow::Continue(())
    };
    let all = (Bound::Unbounded, Bound::Unbounded);
    engine.tree("cells").unwrap().scan(all, Direction::Forward, keep).unwrap();
    cells
}

#[tokio::test]
async fn a_backup_of_a_private_store_is_private_and_one_that_is_replaced_keeps_its_permissions() {
    let pair = Pair::new().await;
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let (data, safe) = (pair.folder.path().join("data"), pair.folder.path().join("private"));
    set(&data, 0o700);
    set(&data.join(STORE_FILE), 0o600);
    let maintenance = pair.store.maintenance.clone().unwrap();
    let part = safe.join(PART_FILE);
    let seen = Arc::new(AtomicU32::new(0));
    let looked = Arc::clone(&seen);
    let look = move |_, _| {
        looked.fetch_or(part.metadata().map_or(0, |part| part.mode() & 0o777), Ordering::Relaxed);
    };
    maintenance.backup_to(&safe, false, Box::new(look)).await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed) & 0o077, 0, "while it was made");
    let file = safe.join(STORE_FILE);
    assert_eq!((mode(&safe), mode(&file)), (0o700, 0o600));
    set(&file, 0o640);
    for full in [false, true] {
        pair.put("a", &format!("full: {full}")).await;
        maintenance.backup_to(&safe, full, Box::new(|_, _| ())).await.unwrap();
        assert_eq!(mode(&file), 0o640, "full: {full}");
    }
}

#[tokio::test]
async fn one_that_ended_before_the_file_was_renamed_goes_on_from_the_state_it_holds() {
    let pair = Pair::new().await;
    pair.put("a", "second").await;
    let (held, mark) = pair.held(STORE_FILE);
    let next = pair.keep_next(&held, &mark).await;
    held.begin(&mark, &next).unwrap();
    drop(held);
    assert!(!pair.is_refused().await, "it is the state before, whole");
    pair.check_healed().await;
}

#[tokio::test]
async fn one_that_ended_among_the_changes_is_completed_before_it_goes_on() {
    let pair = Pair::new().await;
    pair.put("a", "second").await;
    pair.put("b", "second").await;
    let (held, mark) = pair.held(STORE_FILE);
    let next = pair.keep_next(&held, &mark).await;
    held.begin(&mark, &next).unwrap();
    std::fs::rename(pair.safe(STORE_FILE), pair.safe(UNFINISHED_FILE)).unwrap();
    // Half of the changes, and then the cell gets its earlier value again: only the state in between tells
    // that it changed.
    let tree = held.engine.tree("cells").unwrap();
    let changed = cells(&held.engine).into_keys().next().unwrap();
    tree.put(&changed, b"second", Durability::Synced).unwrap();
    drop(held);
    pair.put("a", "first").await;
    assert!(pair.is_refused().await);
    let copy = pair.folder.path().join("copy");
    copy_last_complete(&pair.folder.path().join("safe"), &copy, Box::new(|_, _| ())).await.unwrap();
    let copied = Destination::open_to_read(&copy.join(STORE_FILE), "copy").unwrap();
    assert!(cells(&copied.engine).values().all(|value| value == b"first"), "the last complete state");
    assert!(copied.mark().is_err(), "a copy of a backup is no backup");
    pair.check_healed().await;
}

#[tokio::test]
async fn a_backup_that_ended_after_its_last_change_is_completed_however_far_its_end_came() {
    for is_marked in [false, true] {
        let pair = Pair::new().await;
        pair.put("a", "second").await;
        let (held, mark) = pair.held(STORE_FILE);
        let next = pair.keep_next(&held, &mark).await;
        held.begin(&mark, &next).unwrap();
        std::fs::rename(pair.safe(STORE_FILE), pair.safe(UNFINISHED_FILE)).unwrap();
        let changed = cells(&held.engine).into_keys().next().unwrap();
        held.engine.tree("cells").unwrap().put(&changed, b"second", Durability::Synced).unwrap();
        held.engine.create_snapshot(&held.name_of(&next)).unwrap();
        if is_marked {
            held.set_mark(&Mark { source: mark.source, state: next, next: None }).unwrap();
        }
        drop(held);
        assert!(pair.is_refused().await);
        pair.check_healed().await;
    }
}

#[tokio::test]
async fn the_next_backup_removes_what_interrupted_full_copies_left() {
    let pair = Pair::new().await;
    // One attempt that ended before its file was complete, and one whose file replaced an unfinished one.
    let part = Destination::open(&pair.safe(PART_FILE), "safe").unwrap();
    let state = State { number: 1, sequence: 0 };
    pair.store.maintenance.clone().unwrap().create_snapshot(&part.name_of(&state)).await.unwrap();
    drop(part);
    std::fs::copy(pair.safe(STORE_FILE), pair.safe(UNFINISHED_FILE)).unwrap();
    assert!(!pair.is_refused().await);
    pair.check_healed().await;
    std::fs::write(pair.safe(PART_FILE), "torn").unwrap();
    pair.backup(true).await.unwrap();
    pair.check_healed().await;
}

#[tokio::test]
async fn one_that_ended_just_after_it_replaced_another_is_the_backup_and_nothing_is_kept_for_the_other() {
    for is_full in [false, true] {
        let pair = Pair::new().await;
        // What cannot be removed ends it there.
        std::fs::create_dir(pair.safe(UNFINISHED_FILE)).unwrap();
        pair.backup(true).await.unwrap_err();
        std::fs::remove_dir(pair.safe(UNFINISHED_FILE)).unwrap();
        assert_eq!(pair.backup(is_full).await.unwrap().since.is_none(), is_full);
        pair.check_healed().await;
    }
}

#[tokio::test]
async fn one_whose_states_the_store_no_longer_keeps_is_refused_until_it_is_made_anew() {
    let pair = Pair::new().await;
    pair.put("a", "second").await;
    let (held, mark) = pair.held(STORE_FILE);
    let next = pair.keep_next(&held, &mark).await;
    held.begin(&mark, &next).unwrap();
    std::fs::rename(pair.safe(STORE_FILE), pair.safe(UNFINISHED_FILE)).unwrap();
    let name = held.name_of(&next);
    drop(held);
    pair.store.maintenance.clone().unwrap().delete_snapshot(&name).await.unwrap();
    let refused = pair.backup(false).await.unwrap_err();
    assert!(refused.to_string().contains("does not know the state"), "{refused}");
    assert!(pair.is_refused().await, "nothing was changed");
    assert_eq!(pair.backup(true).await.unwrap().since, None);
    assert!(!pair.safe(UNFINISHED_FILE).exists(), "the new file took its place");
    pair.check_healed().await;
}

#[tokio::test]
async fn one_that_is_given_up_keeps_its_folder_for_as_long_as_it_writes() {
    let pair = Pair::new().await;
    pair.put("a", "second").await;
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let waits = std::sync::Mutex::new(waits);
    let stand_still: CopyProgress = Box::new(move |_, _| {
        let _ = tell.send(());
        let _ = waits.lock().unwrap().recv();
    });
    let (maintenance, safe) = (pair.store.maintenance.clone().unwrap(), pair.folder.path().join("safe"));
    let mut given_up = maintenance.backup_to(&safe, false, stand_still);
    tokio::select! {
        ended = &mut given_up => panic!("{ended:?}"),
        _ = told.recv() => {}
    }
    drop(given_up);
    let at_once = OwnerOptions { patience: std::time::Duration::ZERO, ..OwnerOptions::default() };
    let second = settle(&safe, OwnerMode::Write, &at_once).await;
    assert!(matches!(second, Err(OwnerError::Owned { .. })), "two would write: {second:?}");
    drop(go_on);
    pair.check_healed().await;
}
