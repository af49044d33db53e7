//! What an operator needs of a store beyond the contract: check, statistics, snapshots, copies, backups.
//!
//! A store without any of this returns no handle, and the doors answer `unsupported`.

use atoll_store::StoreFuture;
use std::path::Path;
use std::pin::Pin;

/// The maintenance of one store. Everything here runs while the store serves.
pub trait Maintenance: Send + Sync {
    /// Whether this process owns the store. Otherwise another process owns it, and answers for it as long as
    /// it runs.
    fn is_owner(&self) -> bool;

    /// Waits until this process owns the store: it takes over when the present owner ends, unless another
    /// waiting process is first. For a process that only reads, this never returns.
    fn until_owner(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Reads and verifies every byte that the store refers to. Damage is listed, not an error.
    fn check(&self) -> StoreFuture<'_, CheckReport>;

    /// Statistics of the store, in the order in which they are best shown.
    fn stats(&self) -> StoreFuture<'_, Vec<Statistic>>;

    /// The format of the store on disk, and the newest one, which an upgrade would bring it to.
    fn format(&self) -> StoreFuture<'_, FormatDescription>;

    /// Keeps the present state under a name, across restarts.
    ///
    /// # Errors
    /// `conflict` if the name is taken.
    fn create_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, SnapshotDescription>;

    /// The named snapshots, sorted by name.
    fn snapshots(&self) -> StoreFuture<'_, Vec<SnapshotDescription>>;

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// `not-found` if there is none of that name.
    fn delete_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()>;

    /// Writes one consistent state of the store as a new store into `folder`, which must be missing or empty:
    /// the present state, or that of a named snapshot. A copy that fails leaves no store behind.
    ///
    /// # Errors
    /// `not-found` if there is no snapshot of that name.
    fn copy_to<'a>(
        &'a self,
        folder: &'a Path,
        snapshot: Option<&'a str>,
        progress: CopyProgress,
    ) -> StoreFuture<'a, CopyReport>;

    /// Brings `folder`, a backup of this store, to the present state: copies what changed since the last
    /// backup, or everything if the folder is missing or empty, or with `full`. A backup that is interrupted
    /// leaves a folder that is recognised as unfinished, and the next one completes it.
    ///
    /// # Errors
    /// `invalid-input` for a folder that is not a backup of this store, or that another program wrote into;
    /// `read-only`, since the store keeps each state that a backup holds as a named snapshot.
    fn backup_to<'a>(
        &'a self,
        folder: &'a Path,
        full: bool,
        progress: CopyProgress,
    ) -> StoreFuture<'a, BackupReport>;
}

/// Called now and then with the bytes copied and the bytes in total.
pub type CopyProgress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Bytes read and verified.
    pub bytes_checked: u64,
    /// Cells found.
    pub cells: u64,
    /// Everything that does not match, in the order in which it was found.
    pub damage: Vec<Damage>,
    /// The end of the log that was left out when the store was opened: it was torn, and no sync covered it.
    pub left_out: Option<LeftOut>,
}

/// A torn end of the log, which is not part of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Where it begins in the file of the store.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// One mismatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File and offset, or key.
    pub place: String,
    /// What does not match.
    pub problem: String,
    /// The cells between which it lies, if that is known.
    pub cells: Option<DamagedCells>,
}

/// A range with unreadable cells: partition and sort key of the first and of the last cell. They are the same
/// if it is a value that is damaged. None stands for the first or the last cell of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedCells {
    /// The first.
    pub from: Option<(Vec<u8>, Vec<u8>)>,
    /// The last, or the first after it.
    pub to: Option<(Vec<u8>, Vec<u8>)>,
}

/// One figure of the statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// Stable name in kebab case, such as `log-bytes`.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// What is counted.
    pub unit: StatisticUnit,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatisticUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
}

/// The format of a store on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatDescription {
    /// Its number.
    pub number: u32,
    /// The newest one that this release writes.
    pub newest: u32,
    /// Names of the features that a release must support to read it.
    pub features: Vec<String>,
}

/// One named snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDescription {
    /// Its name.
    pub name: String,
    /// The commit sequence of its state.
    pub sequence: u64,
}

/// The result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// Bytes written.
    pub bytes: u64,
    /// The commit sequence of the copied state.
    pub sequence: u64,
}

/// The result of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Cells in the state.
    pub cells: u64,
    /// Cells that were copied.
    pub cells_written: u64,
    /// Cells that were removed from the backup.
    pub cells_deleted: u64,
    /// Bytes of keys and values that were copied.
    pub bytes: u64,
    /// The commit sequence of the state.
    pub sequence: u64,
    /// The commit sequence of the state that the backup held before; none if everything was copied.
    pub since: Option<u64>,
}
