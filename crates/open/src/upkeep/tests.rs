//! Maintenance beside an owner that reuses the space of what is being read.

use super::Upkeep;
use crate::{CopyReport, Maintenance};
use atoll_embedded::{COPY_FILE, EmbeddedStore, FolderStore, Mode, OpenOptions, STORE_FILE};
use atoll_store::{Cell, ErrorKind, Store, StoreError, WriteOptions};
use std::fs::{File, OpenOptions as FileOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tempfile::TempDir;

const CELLS: usize = 6000;

/// A store, its owner, and a reader beside it.
struct Beside {
    folder: TempDir,
    owner: FolderStore,
    reader: Upkeep,
}

impl Beside {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let mut options = OpenOptions::default();
        // No space is kept for readers, as in a large store with a high write rate.
        options.store.engine.keep = std::time::Duration::ZERO;
        let owner = atoll_embedded::open(&data, options.clone()).await.unwrap();
        options.mode = Mode::Read;
        let attached = atoll_embedded::open(&data, options.clone()).await.unwrap();
        let reader = Upkeep::new(data, attached, options.store);
        let beside = Self { folder, owner, reader };
        beside.write_all(0).await;
        beside
    }

    fn owned(&self) -> EmbeddedStore {
        self.owner.owned().unwrap()
    }

    async fn write_all(&self, round: u8) {
        write_all(&self.owned(), round).await;
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("data").join(STORE_FILE)
    }
}

/// Rewrites all cells, and makes that a state of its own.
async fn write_all(store: &EmbeddedStore, round: u8) {
    for at in 0..CELLS {
        let cell = (at.to_be_bytes(), vec![round; 1000 + usize::from(round)]);
        let options = WriteOptions::default();
        store.put(Cell::new(b"p", &cell.0), &cell.1, options).await.unwrap();
    }
    store.engine().checkpoint().unwrap();
}

#[tokio::test]
async fn a_check_that_the_owner_overtakes_tells_of_no_damage() {
    let beside = Beside::new().await;
    let stale = beside.reader.last_state().await.unwrap();
    for round in 1..6 {
        beside.write_all(round).await;
    }
    let damage = stale.engine().check().unwrap().damage;
    assert!(!damage.is_empty(), "nothing of the state was written over");
    let report = beside.reader.check_beside_owner(stale).await.unwrap();
    assert_eq!(report.damage, []);
    assert_eq!(report.cells, CELLS as u64);
}

#[tokio::test]
async fn damage_in_the_newest_state_is_reported() {
    let beside = Beside::new().await;
    let stale = beside.reader.last_state().await.unwrap();
    for round in 1..6 {
        beside.write_all(round).await;
    }
    let file: File = FileOptions::new().read(true).write(true).open(beside.file()).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut block = vec![0; 4096];
    for at in (1 << 16..bytes - 4096).step_by(4096) {
        file.read_exact_at(&mut block, at).unwrap();
        // Written by the last round.
        if block.iter().filter(|&&byte| byte == 5).count() > 2000 {
            block.reverse();
            file.write_all_at(&block, at).unwrap();
        }
    }
    let report = beside.reader.check_beside_owner(stale).await.unwrap();
    assert!(!report.damage.is_empty());
}

#[tokio::test]
async fn a_copy_of_a_private_store_is_private_all_the_time() {
    let beside = Beside::new().await;
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set(beside.file().parent().unwrap(), 0o700);
    for wanted in [0o600, 0o640] {
        set(&beside.file(), wanted);
        let there = beside.folder.path().join(format!("there-{wanted:o}"));
        let (part, seen) = (there.join(COPY_FILE), Arc::new(AtomicU32::new(0)));
        if wanted == 0o640 {
            // As an earlier checkout left it.
            std::fs::create_dir(&there).unwrap();
            std::fs::write(&part, "cut").unwrap();
            set(&part, 0o644);
            set(&there, 0o700);
        }
        let looked = Arc::clone(&seen);
        let look = move |_, _| {
            looked.fetch_or(part.metadata().map_or(0, |part| part.mode() & 0o777), Ordering::Relaxed);
        };
        beside.reader.copy_to(&there, None, Box::new(look)).await.unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 0o600, "while it was made");
        assert_eq!((mode(&there), mode(&there.join(STORE_FILE))), (0o700, wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_the_owner_overtakes_is_begun_anew() {
    let beside = Beside::new().await;
    let (owned, is_overtaken) = (beside.owned(), AtomicBool::new(false));
    let runtime = tokio::runtime::Handle::current();
    let overtake = move |_, _| {
        if !is_overtaken.swap(true, Ordering::Relaxed) {
            runtime.block_on(async {
                for round in 1..6 {
                    write_all(&owned, round).await;
                }
            });
        }
    };
    let there = beside.folder.path().join("there");
    let copied: Result<CopyReport, StoreError> =
        beside.reader.copy_to(&there, None, Box::new(overtake)).await;
    assert_ne!(copied.as_ref().err().map(StoreError::kind), Some(ErrorKind::Corrupt), "{copied:?}");
    assert!(copied.unwrap().bytes > 1000 * CELLS as u64);
    let copy = atoll_embedded::open(&there, OpenOptions::default()).await.unwrap();
    assert_eq!(copy.owned().unwrap().engine().check().unwrap().records, CELLS as u64);
}
