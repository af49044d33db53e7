//! What an operator needs of a store beyond the contract: check, statistics, snapshots, copies, backups.
//!
//! A store that has nothing of the kind gives no handle, and the doors answer `unsupported`.

use atoll_store::StoreFuture;
use std::path::Path;
use std::pin::Pin;

/// The upkeep of one store. Everything here runs while the store serves.
pub trait Maintenance: Send + Sync {
    /// Whether this process has the store itself. Otherwise another one has it, and answers for it as long as
    /// it runs.
    fn is_owner(&self) -> bool;

    /// Waits until this process has the store itself: it takes the place of the one that has it, should that
    /// end before others that want it. For who only reads, for ever.
    fn until_owner(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Reads and verifies every byte that the store refers to. Damage is listed, not an error.
    fn check(&self) -> StoreFuture<'_, CheckReport>;

    /// Figures about the store, in the order in which they are best shown.
    fn stats(&self) -> StoreFuture<'_, Vec<Statistic>>;

    /// The format of the store on disk, which an upgrade would bring to the newest.
    fn format(&self) -> StoreFuture<'_, FormatDescription>;

    /// Keeps the present state under a name; survives restarts.
    ///
    /// # Errors
    /// `conflict` if the name is taken.
    fn create_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, SnapshotDescription>;

    /// The named snapshots, by name.
    fn snapshots(&self) -> StoreFuture<'_, Vec<SnapshotDescription>>;

    /// Gives a snapshot up.
    ///
    /// # Errors
    /// `not-found` if there is none of that name.
    fn delete_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()>;

    /// Writes one consistent state of the store as a new store in `folder`, which must not exist or be
    /// empty: the present one, or that of a named snapshot. A copy that fails leaves no store behind.
    ///
    /// # Errors
    /// `not-found` if there is no snapshot of that name.
    fn copy_to<'a>(
        &'a self,
        folder: &'a Path,
        snapshot: Option<&'a str>,
        progress: CopyProgress,
    ) -> StoreFuture<'a, CopyReport>;

    /// Brings `folder`, a backup of this store, to the present state: what changed since it was last brought
    /// there is copied, and everything where it does not exist, is empty, or with `full`. A backup that ends
    /// before its time leaves a folder that says so, and the next one completes it.
    ///
    /// # Errors
    /// `invalid-input` for a folder that is no backup of this store, or into which somebody else wrote;
    /// `read-only`, since the store keeps each state that a backup holds as a named snapshot.
    fn backup_to<'a>(
        &'a self,
        folder: &'a Path,
        full: bool,
        progress: CopyProgress,
    ) -> StoreFuture<'a, BackupReport>;
}

/// Is told bytes copied and bytes in all, now and then.
pub type CopyProgress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Bytes read and verified.
    pub bytes_checked: u64,
    /// Cells found.
    pub cells: u64,
    /// Everything that does not match, in the order in which it was found.
    pub damage: Vec<Damage>,
    /// The end of the log that was left out when the store was opened: it is torn, and no sync covered it.
    pub left_out: Option<LeftOut>,
}

/// An end of the log that is not part of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Where in the file of the store it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// One place that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File and offset, or key.
    pub place: String,
    /// What does not match.
    pub problem: String,
    /// Between which cells of the store it lies, where that is known.
    pub cells: Option<DamagedCells>,
}

/// Cells of which some cannot be read: partition and sort key of the first and of the last, which are one
/// where it is a value. None is the first or the last of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedCells {
    /// The first.
    pub from: Option<(Vec<u8>, Vec<u8>)>,
    /// The last, or the first behind it.
    pub to: Option<(Vec<u8>, Vec<u8>)>,
}

/// One figure about a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// Stable name in kebab case, such as `log-bytes`.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// What is counted.
    pub unit: StatisticUnit,
}

/// What a figure counts.
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
    /// Names of the features that a release has to know to read it.
    pub features: Vec<String>,
}

/// One named snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDescription {
    /// Its name.
    pub name: String,
    /// The place of its state in the order of commits.
    pub sequence: u64,
}

/// What a copy wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// Bytes written.
    pub bytes: u64,
    /// The place of the copied state in the order of commits.
    pub sequence: u64,
}

/// What a backup copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Cells that the state has.
    pub cells: u64,
    /// Cells that were copied.
    pub cells_written: u64,
    /// Cells that were removed from the backup.
    pub cells_deleted: u64,
    /// Bytes of keys and values that went over.
    pub bytes: u64,
    /// The place of the state in the order of commits.
    pub sequence: u64,
    /// The place of the state that the backup held before; none where everything was copied.
    pub since: Option<u64>,
}
