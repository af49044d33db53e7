//! Backups: a folder that holds one state of a store, and takes over the changes when it is backed up again.
//!
//! The store keeps the state that the backup holds as a named snapshot, so the changes since are found at a
//! cost proportional to them. While they are written, the backup's file has a name that is not taken for a
//! store; it is renamed back once it is complete ([decision 0022](../../../docs/decisions/0022-backups.md)).
//!
//! Invariant: a file called `store.atoll` holds one complete state of the source.
//! Invariant: the source keeps the state that a backup holds, and the one being written into it, until the
//! backup holds a later one.

mod folder;
mod mark;
mod refusal;
#[cfg(test)]
mod tests;

use crate::carry::{CELLS_TREE, Carrier, Tally};
use crate::upkeep::{Upkeep, at_fault, off_thread};
use crate::{BackupReport, CopyProgress};
use atoll_embedded::{EmbeddedStore, refused};
use atoll_engine::{Engine, Snapshot};
use atoll_store::StoreError;
use folder::{BackupFolder, FolderContent};
pub(crate) use mark::MARK_TREE;
use mark::{Destination, Mark, State, prefix_of};
use refusal::BackupRefusal;
use std::path::Path;
use std::sync::Arc;

/// One backup of one store into one folder.
pub(crate) struct Backup<'s> {
    source: &'s Upkeep,
    place: Arc<BackupFolder>,
    progress: Arc<CopyProgress>,
    tally: Tally,
}

impl<'s> Backup<'s> {
    pub(crate) async fn begin(
        source: &'s Upkeep,
        folder: &Path,
        progress: CopyProgress,
    ) -> Result<Self, StoreError> {
        if let (Ok(a), Ok(b)) = (folder.canonicalize(), source.folder().canonicalize())
            && a == b
        {
            return Err(BackupRefusal::Itself.at(&folder.display().to_string()));
        }
        let place = Arc::new(BackupFolder::take(folder, source.folder()).await?);
        Ok(Self { source, place, progress: Arc::new(progress), tally: Tally::default() })
    }

    pub(crate) async fn run(mut self, full: bool) -> Result<BackupReport, StoreError> {
        self.clear_part().await?;
        match self.place.content()? {
            FolderContent::Store | FolderContent::Unfinished if !full => self.what_changed().await,
            found => self.everything(found).await,
        }
    }

    /// Copies a complete state, in place of what the folder holds.
    async fn everything(&mut self, found: FolderContent) -> Result<BackupReport, StoreError> {
        let former = self.replaced_backup(found).await?;
        let place = Arc::clone(&self.place);
        place.create_part()?;
        let target = Destination::open(&place.part(), &place.name())?.holding(Arc::clone(&place));
        if let Some(former) = former {
            target.set_former(former)?;
        }
        let state = State { number: 1, sequence: 0 };
        let name = target.name_of(&state);
        let sequence = self.create_snapshot(&name).await?;
        let state = State { sequence, ..state };
        let copied = self.copy(&target, &state).await;
        // If the part file is gone, the new file has replaced the former one and holds the state.
        if copied.is_err() && place.part().exists() {
            drop(target);
            // The store should not keep a state that no backup has. If deleting it fails, the part file tells
            // the next attempt.
            if self.source.delete(&name).await.is_ok() {
                let _ = place.forget(&place.part());
            }
        }
        let report = copied?;
        if let Some(former) = former {
            self.give_up(former).await?;
        }
        Ok(report)
    }

    /// Deletes all snapshots that the source keeps for the backup of this identity, which another one
    /// replaced.
    async fn give_up(&self, backup: u64) -> Result<(), StoreError> {
        let names = names_of(&self.source.readable().await?);
        self.delete_snapshots(names, &prefix_of(backup), "").await
    }

    /// Removes the part file of an earlier full copy, after deleting what the source keeps for it.
    async fn clear_part(&self) -> Result<(), StoreError> {
        let part = self.place.part();
        if !part.exists() {
            return Ok(());
        }
        // A part file that cannot be read is from an attempt that ended before the source kept anything for
        // it.
        if let Ok(target) = Destination::open_to_read(&part, &self.place.name()) {
            let names = names_of(&self.source.readable().await?);
            self.delete_snapshots(names, &target.prefix(), "").await?;
        }
        self.place.forget(&part)
    }

    /// The identity of the backup to replace, if there is one; nothing but a backup is replaced. Deletes what
    /// the source keeps for the backup before that one.
    async fn replaced_backup(&self, found: FolderContent) -> Result<Option<u64>, StoreError> {
        let file = match found {
            FolderContent::Nothing => return Ok(None),
            FolderContent::Store => self.place.file(),
            FolderContent::Unfinished => self.place.unfinished(),
        };
        let target = Destination::open_to_read(&file, &self.place.name())?;
        target.mark()?;
        if let Some(before) = target.former()? {
            self.give_up(before).await?;
        }
        Ok(Some(target.engine.id()))
    }

    async fn copy(&mut self, target: &Destination, state: &State) -> Result<BackupReport, StoreError> {
        let source = self.source.readable().await?;
        let snapshot = self.source_snapshot(&source, target, state)?;
        let (target, state, place) = (target.clone(), state.clone(), Arc::clone(&self.place));
        let (progress, from) = (Arc::clone(&self.progress), self.source.place());
        let folder = self.source.folder().to_owned();
        off_thread("backup", move || {
            let engine = source.engine();
            let total = engine.stats().file_bytes;
            let mut tell = |bytes: u64| progress(bytes, total.max(bytes));
            let carried = Carrier::into(&target.engine, &mut tell).everything(engine, &snapshot, MARK_TREE);
            let tally =
                carried.map_err(|error| refused("backup", at_fault(&error, &from, &target.place), error))?;
            target.complete(engine.id(), &state)?;
            target.contract_result(target.engine.close_shared())?;
            let cells = cells_of(engine, &snapshot).map_err(|error| refused("backup", &from, error))?;
            place.replace(&folder)?;
            Ok(report_of(tally, cells, &state, None))
        })
        .await
    }

    /// Copies the changes, after completing what an earlier attempt began.
    async fn what_changed(&mut self) -> Result<BackupReport, StoreError> {
        let place = Arc::clone(&self.place);
        let is_unfinished = place.content()? == FolderContent::Unfinished;
        let file = if is_unfinished { place.unfinished() } else { place.file() };
        let (name, held) = (place.name(), Arc::clone(&place));
        let (target, mut mark) = off_thread("backup", move || {
            if is_unfinished {
                held.go_on()?;
            }
            let target = Destination::open(&file, &name)?.holding(held);
            let mark = target.mark()?;
            Ok((target, mark))
        })
        .await?;
        let source = self.source.readable().await?;
        let names = names_of(&source);
        if mark.source != source.engine().id() {
            return Err(BackupRefusal::OtherStore.at(&target.place));
        }
        if let Some(former) = target.former()? {
            self.give_up(former).await?;
            target.forget_former()?;
        }
        self.source_snapshot(&source, &target, &mark.state)?;
        if is_unfinished {
            if let Some(next) = mark.next.clone() {
                mark = self.carry(source, &target, &mark, &next).await?;
            }
            place.end()?;
        } else {
            let (target, mark) = (target.clone(), mark.clone());
            off_thread("backup", move || target.check_untouched(&mark)).await?;
        }
        self.delete_snapshots(names, &target.prefix(), &target.name_of(&mark.state)).await?;
        self.next_state(&target, mark).await
    }

    async fn next_state(&mut self, target: &Destination, mark: Mark) -> Result<BackupReport, StoreError> {
        let number = mark.state.number + 1;
        let name = target.name_of(&State { number, sequence: 0 });
        let next = State { number, sequence: self.create_snapshot(&name).await? };
        let source = self.source.readable().await?;
        let snapshot = self.source_snapshot(&source, target, &next)?;
        let cells = cells_of(source.engine(), &snapshot);
        let cells = cells.map_err(|error| refused("backup", &self.source.place(), error))?;
        let names = names_of(&source);
        target.begin(&mark, &next)?;
        self.place.begin()?;
        self.carry(source, target, &mark, &next).await?;
        target.contract_result(target.engine.close_shared())?;
        self.place.end()?;
        self.delete_snapshots(names, &target.prefix(), &name).await?;
        Ok(report_of(self.tally, cells, &next, Some(mark.state.sequence)))
    }

    /// Applies the changes between the state of the mark and `next`.
    async fn carry(
        &mut self,
        source: EmbeddedStore,
        target: &Destination,
        mark: &Mark,
        next: &State,
    ) -> Result<Mark, StoreError> {
        let older = self.source_snapshot(&source, target, &mark.state)?;
        let newer = self.source_snapshot(&source, target, next)?;
        let (target, next, identity) = (target.clone(), next.clone(), mark.source);
        let (progress, from, before) = (Arc::clone(&self.progress), self.source.place(), self.tally.bytes);
        let (tally, mark) = off_thread("backup", move || {
            // The amount of changes is known only at the end.
            let mut tell = |bytes: u64| progress(before + bytes, before + bytes);
            let carried = Carrier::into(&target.engine, &mut tell).changes(&newer, &older, MARK_TREE);
            let tally =
                carried.map_err(|error| refused("backup", at_fault(&error, &from, &target.place), error))?;
            Ok((tally, target.complete(identity, &next)?))
        })
        .await?;
        self.tally.bytes += tally.bytes;
        self.tally.cells_written += tally.cells_written;
        self.tally.cells_deleted += tally.cells_deleted;
        Ok(mark)
    }

    /// The snapshot of the source that keeps a state for the backup.
    fn source_snapshot(
        &self,
        source: &EmbeddedStore,
        target: &Destination,
        state: &State,
    ) -> Result<Snapshot, StoreError> {
        let name = target.name_of(state);
        match source.engine().open_snapshot(&name) {
            Ok(snapshot) if snapshot.sequence() == state.sequence => Ok(snapshot),
            _ => {
                let sequence = state.sequence;
                Err(BackupRefusal::StateUnknown { name, sequence }.at(&target.place))
            }
        }
    }

    /// Makes the source keep its present state durably under a name; returns the commit sequence of that
    /// state.
    async fn create_snapshot(&self, name: &str) -> Result<u64, StoreError> {
        let sequence = self.source.create(name).await?;
        self.source.sync().await?;
        Ok(sequence)
    }

    /// Makes the source delete its snapshots with this prefix, except the one called `but`.
    async fn delete_snapshots(&self, names: Vec<String>, prefix: &str, but: &str) -> Result<(), StoreError> {
        for name in names.iter().filter(|name| name.starts_with(prefix) && *name != but) {
            self.source.delete(name).await?;
        }
        Ok(())
    }
}

fn names_of(source: &EmbeddedStore) -> Vec<String> {
    source.engine().snapshot_names().into_iter().map(|(name, _)| name).collect()
}

fn cells_of(source: &Engine, state: &Snapshot) -> Result<u64, atoll_engine::EngineError> {
    state.len(&source.tree(CELLS_TREE)?)
}

fn report_of(tally: Tally, cells: u64, state: &State, since: Option<u64>) -> BackupReport {
    let Tally { bytes, cells_written, cells_deleted } = tally;
    BackupReport { cells, cells_written, cells_deleted, bytes, sequence: state.sequence, since }
}

/// The last complete state of an unfinished backup, and the engine to read it from.
pub(crate) fn last_complete(folder: &Path) -> Result<(Engine, Snapshot), StoreError> {
    let place = folder.display().to_string();
    let file = folder.join(atoll_embedded::UNFINISHED_FILE);
    if !file.exists() {
        return Err(StoreError::Unfinished { what: "backup", place });
    }
    let target = Destination::open_to_read(&file, &place)?;
    let mark = target.mark()?;
    let snapshot = target.contract_result(target.engine.open_snapshot(&target.name_of(&mark.state)))?;
    Ok((target.engine, snapshot))
}
