//! Opening a folder: its file, the engine on the file, the contract on the engine, shared with other
//! processes.

use crate::attach::{AttachedStore, Snapshots};
use crate::folder::{FolderOptions, OpenStore, open_folder};
use crate::owner::Mode;
use crate::read_only::ReadOnlyStore;
use crate::store::{EmbeddedStore, StoreOptions, refused};
pub use atoll_disk::STORE_FILE;
use atoll_disk::{Disk, FileDisk, RING_FILE, make_folder};
use atoll_engine::{Engine, Options};
use atoll_store::{Store, StoreError, StoreFuture};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of the store's file while a backup is written into it.
pub const UNFINISHED_FILE: &str = "store.atoll.unfinished";

/// The name of the file of a copy until it is complete.
pub const COPY_FILE: &str = "store.atoll.copy";

/// The name of the file of a first backup until it is complete.
pub const PART_FILE: &str = "store.atoll.part";

/// How a folder is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Whether to read and write, or only to read.
    pub mode: Mode,
    /// Whether a folder without a store becomes a new one.
    pub create: bool,
    /// The store and its engine.
    pub store: StoreOptions,
    /// How the folder is shared.
    pub folder: FolderOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let mut store = StoreOptions::default();
        // Readers in other processes may still use pages that the newest state does not refer to.
        store.engine.keep = Duration::from_secs(600);
        Self { mode: Mode::Write, create: true, store, folder: FolderOptions::default() }
    }
}

/// A store in a folder, owned by this process or another.
pub struct FolderStore {
    place: String,
    store: Arc<AttachedStore>,
    opener: Arc<EngineOpener>,
}

impl FolderStore {
    /// Keeps the present state under a name, at the owner. Returns the commit sequence number of that state.
    ///
    /// # Errors
    /// `conflict` if the name is taken, `invalid-input` if it is not a valid name, `read-only`.
    pub async fn create_snapshot(&self, name: &str) -> Result<u64, StoreError> {
        match self.store.create_snapshot(name).await? {
            Some(sequence) => Ok(sequence),
            None => self.own()?.create_snapshot(name).await,
        }
    }

    /// Deletes a snapshot, at the owner.
    ///
    /// # Errors
    /// `not-found` if there is none of that name, `read-only`.
    pub async fn delete_snapshot(&self, name: &str) -> Result<(), StoreError> {
        match self.store.delete_snapshot(name).await? {
            Some(()) => Ok(()),
            None => self.own()?.delete_snapshot(name).await,
        }
    }

    /// The store in this process, which must own the folder by now.
    fn own(&self) -> Result<EmbeddedStore, StoreError> {
        self.owned().ok_or_else(|| StoreError::ReadOnly { place: self.place.clone() })
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    /// Waits until this process owns the folder; a reader waits for ever.
    pub async fn until_owned(&self) {
        self.store.until_local().await;
    }

    /// The store in this process, while this process owns the folder.
    #[must_use]
    pub fn owned(&self) -> Option<EmbeddedStore> {
        if self.store.is_local() { self.opener.owned.lock().clone() } else { None }
    }
}

/// Opens the store in `folder`.
///
/// # Errors
/// `not-found` if there is none and none may be created; [`StoreError::Owned`] if another process owns it and
/// cannot be reached; those of the engine.
pub async fn open(folder: &Path, options: OpenOptions) -> Result<FolderStore, StoreError> {
    let file = folder.join(STORE_FILE);
    let place = folder.display().to_string();
    let is_there = file.try_exists().map_err(|source| StoreError::Failed {
        what: "looking for a store",
        place: place.clone(),
        source: Arc::new(source),
    })?;
    if !is_there {
        check_finished(folder)?;
        check_of_no_ring(folder)?;
        if options.mode == Mode::Read || !options.create {
            return Err(StoreError::NotFound { what: "store", name: place });
        }
        make_folder(folder).map_err(|source| StoreError::Failed {
            what: "making the folder",
            place,
            source: Arc::new(source),
        })?;
    }
    let (mode, sharing) = (options.mode, options.folder.clone());
    let opener = Arc::new(EngineOpener { options: options.store, owned: Mutex::new(None) });
    let hook = Arc::clone(&opener) as Arc<dyn OpenStore>;
    let store = open_folder(folder.to_owned(), mode, sharing, hook).await?;
    Ok(FolderStore { place: folder.display().to_string(), store: Arc::new(store), opener })
}

/// Refuses a folder in which a copy or a backup was begun and not finished: it holds no store, or not yet the
/// whole store again.
fn check_finished(folder: &Path) -> Result<(), StoreError> {
    let is_there = |name: &str| folder.join(name).exists();
    let unfinished = |what| Err(StoreError::Unfinished { what, place: folder.display().to_string() });
    if is_there(STORE_FILE) {
        Ok(())
    } else if is_there(UNFINISHED_FILE) || is_there(PART_FILE) {
        unfinished("backup")
    } else if is_there(COPY_FILE) {
        unfinished("copy")
    } else {
        Ok(())
    }
}

/// Refuses a folder in which a node of a ring keeps its data: no one would use a second store beside it.
fn check_of_no_ring(folder: &Path) -> Result<(), StoreError> {
    if !folder.join(RING_FILE).exists() {
        return Ok(());
    }
    Err(StoreError::InvalidInput {
        what: "store",
        problem: format!("{} is the folder of a node of a ring", folder.display()),
        hint: "name the ring itself, ring://HOST:PORT/, while its nodes are up",
    })
}

/// Opens the last committed state of the store in `folder`, whoever owns it, without writing a byte.
///
/// # Errors
/// `not-found`; those of the engine.
pub async fn open_last_state(folder: &Path, options: StoreOptions) -> Result<EmbeddedStore, StoreError> {
    let read_only = Options { read_only: true, salvage: options.salvage, ..options.engine.clone() };
    open_engine(folder, StoreOptions { engine: read_only, ..options }).await
}

/// Opens engines for [`open_folder`].
struct EngineOpener {
    options: StoreOptions,
    owned: Mutex<Option<EmbeddedStore>>,
}

impl OpenStore for EngineOpener {
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        self.owned.lock().clone().map(|store| Arc::new(store) as Arc<dyn Snapshots>)
    }

    fn open_owned<'a>(&'a self, folder: &'a Path) -> StoreFuture<'a, Arc<dyn Store>> {
        Box::pin(async move {
            let store = open_engine(folder, self.options.clone()).await?;
            *self.owned.lock() = Some(store.clone());
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn abandon(&self) -> BoxFuture<'_, ()> {
        let store = self.owned.lock().take();
        Box::pin(async move {
            if let Some(store) = store {
                store.abandon().await;
            }
        })
    }

    fn until_broken(&self) -> BoxFuture<'static, ()> {
        match &*self.owned.lock() {
            Some(store) => Box::pin(store.until_broken()),
            None => Box::pin(std::future::pending()),
        }
    }

    fn open_read_only<'a>(&'a self, folder: &'a Path) -> StoreFuture<'a, Arc<dyn Store>> {
        Box::pin(async move {
            let store = ReadOnlyStore::open(folder.to_owned(), self.options.clone()).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

async fn open_engine(folder: &Path, options: StoreOptions) -> Result<EmbeddedStore, StoreError> {
    let folder = folder.to_owned();
    let opening = tokio::task::spawn_blocking(move || open_engine_here(&folder, options));
    opening.await.unwrap_or_else(|lost| {
        Err(StoreError::Unknown {
            what: "opening the store",
            reason: "the runtime shut down".into(),
            source: Some(Arc::new(lost)),
        })
    })
}

fn open_engine_here(folder: &Path, options: StoreOptions) -> Result<EmbeddedStore, StoreError> {
    let place = folder.display().to_string();
    let mode = match options.engine.read_only {
        true => atoll_disk::Mode::Read,
        false => atoll_disk::Mode::Create,
    };
    let failed = |error| refused("open", &place, error);
    // Checked again, now that this process owns the folder: a backup may have been cut short while it waited.
    check_finished(folder)?;
    let file: PathBuf = folder.join(STORE_FILE);
    let disk = FileDisk::open(&file, mode).map_err(|error| match error.source.kind() {
        // A reader does not ask to write: it is reading that is not allowed.
        std::io::ErrorKind::PermissionDenied if options.engine.read_only => {
            StoreError::Failed { what: "opening", place: place.clone(), source: Arc::new(error) }
        }
        _ => failed(error.into()),
    })?;
    let engine = Engine::open(Arc::new(disk) as Arc<dyn Disk>, options.engine.clone()).map_err(failed)?;
    let report = engine.recovery();
    if report.leaves_lost > 0 {
        tracing::warn!(store = %place, leaves = report.leaves_lost, "leaves that the log changed cannot be read; only their values below 64 KiB in the log are shown");
    }
    if let Some(cut) = report.cut
        && cut.was_synced
    {
        tracing::warn!(store = %place, offset = cut.offset, bytes = cut.bytes, "the log is damaged there, and later writes are left out");
    } else if let Some(cut) = report.cut {
        tracing::warn!(store = %place, offset = cut.offset, bytes = cut.bytes, "left out a torn end of the log; it was never synced");
    }
    if report.superblock_mended {
        tracing::warn!(store = %place, "one copy of the superblock was damaged or behind; the other was used");
    }
    EmbeddedStore::on_engine(engine, options, &place)
}
