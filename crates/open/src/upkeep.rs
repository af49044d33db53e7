//! The maintenance of a store in a folder, on its engine.
//!
//! A process that owns the folder, or is the only one to have it open, uses its own engine. Beside a live
//! owner, operations that only read (check, statistics, copy) open the last committed state themselves, and
//! the owner is asked for snapshots.
//!
//! Invariant: beside an owner, damage is reported only if it is in the newest state.
//! Invariant: a failed copy leaves no store file behind.
//! Invariant: a copy can be read by nobody who cannot read the store, not even while it is made.

mod newest;
#[cfg(test)]
mod tests;

use crate::backup::{self, Backup, MARK_TREE};
use crate::carry::Carrier;
use crate::private::{close_to_others, create_private, make_folder_as, permit_as};
use crate::{
    BackupReport, CheckReport, CopyProgress, CopyReport, Damage, DamagedCells, FormatDescription, LeftOut,
    Maintenance, SnapshotDescription, Statistic, StatisticUnit,
};
use atoll_disk::{FileDisk, Mode as DiskMode, sync_folder};
use atoll_embedded::{
    COPY_FILE, EmbeddedStore, FolderStore, STORE_FILE, StoreOptions, UNFINISHED_FILE, hurt_cells,
    open_last_state, refused,
};
use atoll_engine::{Engine, EngineError, Options, Snapshot, Stats};
use atoll_store::{ErrorKind, StoreError, StoreFuture};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

/// The maintenance of the store in one folder.
pub(crate) struct Upkeep {
    folder: PathBuf,
    store: FolderStore,
    options: StoreOptions,
}

impl Upkeep {
    pub(crate) fn new(folder: PathBuf, store: FolderStore, options: StoreOptions) -> Self {
        Self { folder, store, options }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn place(&self) -> String {
        self.folder.display().to_string()
    }

    /// Makes the owner keep the present state under a name; returns the commit sequence of that state.
    pub(crate) async fn create(&self, name: &str) -> Result<u64, StoreError> {
        self.store.create_snapshot(name).await
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete_snapshot(name).await
    }

    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        self.store.store().sync().await
    }

    /// A store to read: our own, or the last committed state beside its owner.
    pub(crate) async fn readable(&self) -> Result<EmbeddedStore, StoreError> {
        match self.store.owned() {
            Some(store) => Ok(store),
            None => self.last_state().await,
        }
    }

    async fn last_state(&self) -> Result<EmbeddedStore, StoreError> {
        open_last_state(&self.folder, self.options.clone()).await
    }

    /// Checks this state of a store that another process owns, or a newer one.
    async fn check_beside_owner(&self, state: EmbeddedStore) -> Result<CheckReport, StoreError> {
        let place = self.place();
        let check = move |engine: &Engine| check(engine, &place);
        let first = |report: &CheckReport| report.damage.first().map(|damage| damage.problem.clone());
        self.on_newest(state, "check", check, first).await
    }

    async fn on<T: Send + 'static>(
        &self,
        store: EmbeddedStore,
        what: &'static str,
        run: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let place = self.place();
        off_thread(what, move || run(store.engine()).map_err(|error| refused(what, &place, error))).await
    }
}

impl Maintenance for Upkeep {
    fn is_owner(&self) -> bool {
        self.store.owned().is_some()
    }

    fn until_owner(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.store.until_owned())
    }

    fn check(&self) -> StoreFuture<'_, CheckReport> {
        Box::pin(async move {
            let place = self.place();
            match self.store.owned() {
                Some(store) => off_thread("check", move || check(store.engine(), &place)).await,
                None => self.check_beside_owner(self.last_state().await?).await,
            }
        })
    }

    fn stats(&self) -> StoreFuture<'_, Vec<Statistic>> {
        Box::pin(async move {
            let stats = self.on(self.readable().await?, "stats", |engine| Ok(engine.stats())).await?;
            Ok(statistics(&stats))
        })
    }

    fn format(&self) -> StoreFuture<'_, FormatDescription> {
        Box::pin(async move {
            let format = self.on(self.readable().await?, "upgrade", |engine| Ok(engine.format())).await?;
            let features = format.features.into_iter().map(str::to_owned).collect();
            Ok(FormatDescription { number: format.number, newest: format.newest, features })
        })
    }

    fn create_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, SnapshotDescription> {
        Box::pin(async move {
            let sequence = self.store.create_snapshot(name).await?;
            Ok(SnapshotDescription { name: name.to_owned(), sequence })
        })
    }

    fn snapshots(&self) -> StoreFuture<'_, Vec<SnapshotDescription>> {
        Box::pin(async move {
            let names =
                self.on(self.readable().await?, "snapshot", |engine| Ok(engine.snapshot_names())).await?;
            let mut snapshots: Vec<_> =
                names.into_iter().map(|(name, sequence)| SnapshotDescription { name, sequence }).collect();
            snapshots.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(snapshots)
        })
    }

    fn delete_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(self.store.delete_snapshot(name))
    }

    fn copy_to<'a>(
        &'a self,
        folder: &'a Path,
        snapshot: Option<&'a str>,
        progress: CopyProgress,
    ) -> StoreFuture<'a, CopyReport> {
        Box::pin(async move {
            let (from, target, name) =
                (self.folder.clone(), folder.to_path_buf(), snapshot.map(str::to_owned));
            let copy = move |engine: &Engine| {
                let named = name.as_ref().map(|name| engine.open_snapshot(name));
                let snapshot = named.unwrap_or_else(|| Ok(engine.snapshot()));
                let place = from.display().to_string();
                let snapshot = snapshot.map_err(|error| refused("copy", &place, error))?;
                copy(engine, &snapshot, &from, &target, &progress)
            };
            match self.store.owned() {
                Some(store) => off_thread("copy", move || copy(store.engine())).await,
                None => self.on_newest(self.last_state().await?, "copy", copy, |_| None).await,
            }
        })
    }

    fn backup_to<'a>(
        &'a self,
        folder: &'a Path,
        full: bool,
        progress: CopyProgress,
    ) -> StoreFuture<'a, BackupReport> {
        Box::pin(async move { Backup::begin(self, folder, progress).await?.run(full).await })
    }
}

/// Writes the last complete state of an unfinished backup as a new store into `target`.
///
/// # Errors
/// [`StoreError::Unfinished`] if there never was a complete state; those of [`Maintenance::copy_to`].
pub async fn copy_last_complete(
    folder: &Path,
    target: &Path,
    progress: CopyProgress,
) -> Result<CopyReport, StoreError> {
    let (folder, target) = (folder.to_owned(), target.to_owned());
    off_thread("copy", move || {
        let (engine, snapshot) = backup::last_complete(&folder)?;
        copy(&engine, &snapshot, &folder, &target, &progress)
    })
    .await
}

fn check(engine: &Engine, place: &str) -> Result<CheckReport, StoreError> {
    let report = engine.check().map_err(|error| refused("check", place, error))?;
    let cut = engine.recovery().cut;
    let cells_of = |place: usize| {
        let found = report.hurt.iter().filter(|hurt| hurt.damage == place).find_map(hurt_cells);
        found.map(|[from, to]| DamagedCells { from, to })
    };
    let damage = report.damage.iter().enumerate().map(|(number, error)| Damage {
        place: place.to_owned(),
        problem: error.to_string(),
        cells: cells_of(number),
    });
    // Salvage reads what precedes the damage, but the damage is there all the same.
    let broken = cut.filter(|cut| cut.was_synced).map(|cut| Damage {
        place: format!("{place} at offset {}", cut.offset),
        problem: atoll_engine::Damage::LogBeforeSyncedEnd.to_string(),
        cells: None,
    });
    Ok(CheckReport {
        bytes_checked: report.bytes,
        cells: report.records,
        damage: damage.chain(broken).collect(),
        left_out: cut
            .filter(|cut| !cut.was_synced)
            .map(|cut| LeftOut { offset: cut.offset, bytes: cut.bytes }),
    })
}

fn statistics(stats: &Stats) -> Vec<Statistic> {
    use StatisticUnit::{Bytes, Count};
    // A tree that was largely written while it did not fit into memory has no count: counting would read all
    // of it.
    let counted = stats.trees.iter().filter_map(|(name, records)| Some((name, (*records)?)));
    let records = counted.map(|(name, records)| (format!("{name}-records"), records, Count));
    let figures = [
        ("commits", stats.commits, Count),
        ("checkpoint", stats.checkpoint, Count),
        ("snapshots", stats.snapshots, Count),
        ("readers", stats.pins, Count),
        ("file-bytes", stats.file_bytes, Bytes),
        ("free-bytes", stats.free_bytes, Bytes),
        ("retired-bytes", stats.retired_bytes, Bytes),
        ("log-segments", stats.log_segments, Count),
        ("log-tail-bytes", stats.log_tail_bytes, Bytes),
        ("log-value-bytes", stats.log_value_bytes, Bytes),
        ("leaf-memory-bytes", stats.leaf_memory_bytes, Bytes),
        ("value-memory-bytes", stats.value_memory_bytes, Bytes),
        ("hot-memory-bytes", stats.hot_memory_bytes, Bytes),
    ];
    let figures = figures.into_iter().map(|(name, value, unit)| (name.to_owned(), value, unit));
    records.chain(figures).map(|(name, value, unit)| Statistic { name, value, unit }).collect()
}

fn copy(
    source: &Engine,
    snapshot: &Snapshot,
    from: &Path,
    folder: &Path,
    progress: &CopyProgress,
) -> Result<CopyReport, StoreError> {
    let (place, target_place) = (from.display().to_string(), folder.display().to_string());
    let file = folder.join(STORE_FILE);
    // The file gets its name when the copy is complete; until then it is not taken for a store.
    let part = folder.join(COPY_FILE);
    let was_there = folder.exists();
    let _held = begin_copy(from, folder, &part, &target_place)?;
    let copied = copy_into(source, snapshot, &part, progress)
        .map_err(|error| refused("copy", at_fault(&error, &place, &target_place), error));
    let name = || -> std::io::Result<()> {
        let originals = [STORE_FILE, UNFINISHED_FILE].map(|name| from.join(name));
        // Without the original, which may have been moved while it is open, the copy stays private.
        if let Some(original) = originals.iter().find_map(|original| original.metadata().ok()) {
            permit_as(&part, &original)?;
        }
        std::fs::rename(&part, &file)?;
        sync_folder(folder)
    };
    let named = copied.and_then(|report| match name() {
        Ok(()) => Ok(report),
        Err(error) => {
            Err(StoreError::Failed { what: "naming the copy", place: target_place, source: Arc::new(error) })
        }
    });
    if named.is_err() {
        // A file that cannot be removed is not taken for a store, and the folder can still be copied to.
        let _ = std::fs::remove_file(&part);
        if !was_there {
            let _ = std::fs::remove_dir(folder);
        }
    }
    named
}

/// Which side of a copy an error is about: running out of space concerns the target only.
pub(crate) fn at_fault<'p>(error: &EngineError, from: &'p str, to: &'p str) -> &'p str {
    if error.kind() == ErrorKind::OutOfSpace { to } else { from }
}

/// Creates the file that a copy is written to, and locks it against other copies. The file of an interrupted
/// copy is truncated.
fn begin_copy(from: &Path, folder: &Path, part: &Path, place: &str) -> Result<File, StoreError> {
    let failed = |error| StoreError::Failed {
        what: "creating the folder of the copy",
        place: place.to_owned(),
        source: Arc::new(error),
    };
    make_folder_as(folder, from).map_err(failed)?;
    check_empty(folder, place)?;
    let file = create_private(part).map_err(failed)?;
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        let reason = "another copy is written into it".to_owned();
        return Err(StoreError::Unavailable { place: place.to_owned(), reason, source: None });
    }
    // Checked again under the lock: another copy may have completed meanwhile and renamed the file.
    if let Err(error) = check_empty(folder, place) {
        // If the file exists it is ours, since a completed copy has another name.
        let _ = std::fs::remove_file(part);
        return Err(error);
    }
    close_to_others(&file).and_then(|()| file.set_len(0)).map_err(failed)?;
    Ok(file)
}

/// Refuses a folder that holds anything but the remains of an interrupted copy.
fn check_empty(folder: &Path, place: &str) -> Result<(), StoreError> {
    let entries = std::fs::read_dir(folder).map_err(|error| StoreError::Failed {
        what: "reading the folder of the copy",
        place: place.to_owned(),
        source: Arc::new(error),
    })?;
    if entries.filter_map(Result::ok).any(|entry| entry.file_name() != COPY_FILE) {
        return Err(StoreError::InvalidInput {
            what: "folder for the copy",
            problem: format!("{place} is not empty"),
            hint: "name a folder that does not exist yet",
        });
    }
    Ok(())
}

fn copy_into(
    source: &Engine,
    snapshot: &Snapshot,
    file: &Path,
    progress: &CopyProgress,
) -> Result<CopyReport, EngineError> {
    let total = source.stats().file_bytes;
    let disk = FileDisk::open(file, DiskMode::Create)?;
    // The copy is not read while it is made, so it needs little memory.
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let target = Engine::open(Arc::new(disk), options)?;
    let mut tell = |bytes: u64| progress(bytes, total.max(bytes));
    // A copy of a backup is an ordinary store, not a backup.
    let tally = Carrier::into(&target, &mut tell).everything(source, snapshot, MARK_TREE)?;
    target.close()?;
    Ok(CopyReport { bytes: tally.bytes, sequence: snapshot.sequence() })
}

/// Runs blocking disk work on a thread where it delays no other task.
pub(crate) async fn off_thread<T: Send + 'static>(
    what: &'static str,
    run: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(run).await.unwrap_or_else(|lost| {
        Err(StoreError::Unknown {
            what,
            reason: "the runtime shut down".to_owned(),
            source: Some(Arc::new(lost)),
        })
    })
}
