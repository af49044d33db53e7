//! The folder of a backup: its owner, and the name of its file.
//!
//! The name of the file tells whether its content is complete: `store.atoll` is; a file being updated is
//! called `store.atoll.unfinished`, one that was never complete `store.atoll.part`. Only the first is taken
//! for a store.
//!
//! Invariant: a backup can be read by nobody who cannot read the store, or the backup that it replaces, not
//! even while it is made.
//! Invariant: a file is renamed to a name that promises more only after what it promises is on disk.

use super::BackupRefusal;
use crate::private::{create_private, make_folder_as, permit_as};
use atoll_disk::sync_folder;
use atoll_embedded::owner::{Mode, OwnerOptions, Ownership, Settled, settle};
use atoll_embedded::{PART_FILE, STORE_FILE, UNFINISHED_FILE};
use atoll_store::StoreError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of a backup, which no other process can open for writing meanwhile.
pub(crate) struct BackupFolder {
    folder: PathBuf,
    _ownership: Ownership,
}

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderContent {
    Nothing,
    Store,
    /// A backup into which a later state was being written.
    Unfinished,
}

impl BackupFolder {
    /// Takes ownership of the folder, creating it if it is missing; `source` is the folder of the store.
    pub(crate) async fn take(folder: &Path, source: &Path) -> Result<Self, StoreError> {
        let failed = failed("creating the folder of the backup", folder);
        make_folder_as(folder, source).map_err(failed)?;
        match settle(folder, Mode::Write, &OwnerOptions::default()).await? {
            Settled::Owner(mut ownership) => {
                // There is no store to attach to, so other processes are turned away at once.
                drop(ownership.take_listener());
                Ok(Self { folder: folder.to_owned(), _ownership: ownership })
            }
            Settled::Attached(_, owner) => {
                let (host, pid) = (owner.identity.host, owner.identity.pid);
                Err(BackupRefusal::InUse { host, pid }.at(&folder.display().to_string()))
            }
            Settled::ReadOnly => Err(StoreError::ReadOnly { place: folder.display().to_string() }),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.folder.display().to_string()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join(STORE_FILE)
    }

    pub(crate) fn unfinished(&self) -> PathBuf {
        self.folder.join(UNFINISHED_FILE)
    }

    pub(crate) fn part(&self) -> PathBuf {
        self.folder.join(PART_FILE)
    }

    /// What the folder holds; refuses a folder that holds anything but a store.
    pub(crate) fn content(&self) -> Result<FolderContent, StoreError> {
        if self.file().exists() {
            return Ok(FolderContent::Store);
        }
        if self.unfinished().exists() {
            return Ok(FolderContent::Unfinished);
        }
        let read = failed("reading the folder of the backup", &self.folder);
        let known = ["lock", "owner"];
        let mut entries = std::fs::read_dir(&self.folder).map_err(read)?.filter_map(Result::ok);
        if entries.any(|entry| !known.iter().any(|name| entry.file_name() == *name)) {
            return Err(BackupRefusal::OtherFiles.at(&self.name()));
        }
        Ok(FolderContent::Nothing)
    }

    /// Renames the file before it is updated: it does not hold a complete state from here on.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        self.rename(&self.file(), &self.unfinished())
    }

    /// Makes the name of an unfinished file durable before more is written to it: whoever renamed it may not
    /// have come that far, and a loss of power would make a store of it.
    pub(crate) fn go_on(&self) -> Result<(), StoreError> {
        sync_folder(&self.folder).map_err(failed("syncing the folder of the backup", &self.folder))
    }

    /// Renames the updated file once it is complete again.
    pub(crate) fn end(&self) -> Result<(), StoreError> {
        self.rename(&self.unfinished(), &self.file())
    }

    /// Creates the new file, whose name survives a loss of power: it tells what the source keeps for it.
    pub(crate) fn create_part(&self) -> Result<(), StoreError> {
        let created = create_private(&self.part()).and_then(|file| file.sync_all());
        let created = created.and_then(|()| sync_folder(&self.folder));
        created.map_err(failed("creating the file of the backup in", &self.folder))
    }

    /// Renames the new file once it is complete, in place of the previous one, and with the permissions of
    /// that one; without one, with those of the store in the folder `source`.
    pub(crate) fn replace(&self, source: &Path) -> Result<(), StoreError> {
        let originals = [self.file(), self.unfinished(), source.join(STORE_FILE)];
        if let Some(original) = originals.iter().find_map(|original| original.metadata().ok()) {
            let permitted = permit_as(&self.part(), &original);
            permitted.map_err(failed("setting the permissions of the backup in", &self.folder))?;
        }
        self.rename(&self.part(), &self.file())?;
        self.forget(&self.unfinished())
    }

    /// Removes a file that is not a store.
    pub(crate) fn forget(&self, file: &Path) -> Result<(), StoreError> {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed("removing what an earlier backup left in", &self.folder)(error))
            }
            _ => Ok(()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let renamed = std::fs::rename(from, to).and_then(|()| sync_folder(&self.folder));
        renamed.map_err(failed("renaming the file of the backup in", &self.folder))
    }
}

fn failed(what: &'static str, folder: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let place = folder.display().to_string();
    move |error| StoreError::Failed { what, place, source: Arc::new(error) }
}
