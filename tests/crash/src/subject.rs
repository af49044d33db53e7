//! What the harness needs of a store. The engine and the toy both implement it.
//!
//! Invariant: an error of a change either says that the change may have happened, or promises that it did
//! not.

use crate::state::{Key, Mutation, Range, RangeMove, Value};
use atoll_disk::Disk;
use atoll_errors::ErrorKind;
use std::sync::Arc;

/// How durable a change must be when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In memory.
    Buffered,
    /// Survives the process.
    Flushed,
    /// Survives power loss.
    Synced,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first key.
    Forward,
    /// From the last key.
    Backward,
}

/// Small limits, so that a short run goes through many transitions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of log after which a checkpoint is due.
    pub checkpoint_bytes: u64,
    /// Length of a log segment.
    pub log_segment_bytes: u64,
    /// Memory budget.
    pub memory_bytes: u64,
    /// The seed of the store's identity.
    pub store_seed: u64,
    /// The number of the opening; if none, the store draws it.
    pub life: Option<u64>,
}

/// What the store reported when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The store was closed cleanly before.
    pub is_clean: bool,
    /// The checkpoint that recovery started from.
    pub checkpoint: u64,
    /// How many log groups were replayed.
    pub groups_replayed: u64,
    /// The report of the cut, if a tail of the log was cut.
    pub cut: Option<String>,
    /// Whether a damaged superblock was repaired from the other one.
    pub is_superblock_mended: bool,
}

/// An error, in the terms of the harness.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// The kind, on which a caller can act.
    pub kind: ErrorKind,
    /// The message, with the whole chain of causes.
    pub message: String,
    /// Whether the change may have happened all the same.
    pub is_unknown: bool,
    /// Whether the store accepts no more changes until it is opened again.
    pub is_final: bool,
}

impl Failure {
    /// Flattens an error and its causes. If it is that of a change, it is taken for a refusal.
    pub fn new(kind: ErrorKind, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            message = format!("{message}: {next}");
            cause = next.source();
        }
        Self { kind, message, is_unknown: false, is_final: false }
    }

    /// Whether the error promises that nothing happened.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !self.is_unknown
    }
}

/// Outcome of a call.
pub type Outcome<T> = Result<T, Failure>;

/// A store under test.
pub trait Subject: Sized {
    /// Bugs that can be planted.
    type Bug: Copy + std::fmt::Debug + Send + Sync;
    /// A consistent state that stays readable while this lives.
    type Snapshot;

    /// Opens the store on the disk, or creates one on an empty disk.
    ///
    /// # Errors
    /// Any.
    fn open(disk: Arc<dyn Disk>, settings: &Settings, bug: Option<Self::Bug>) -> Outcome<(Self, Recovery)>;
    /// Applies a batch; returns its place in the commit order.
    ///
    /// # Errors
    /// Any.
    fn write(&self, batch: &[Mutation], durability: Durability) -> Outcome<u64>;
    /// Moves a range between two trees.
    ///
    /// # Errors
    /// Of kind conflict if the range cannot move; any other.
    fn move_range(&self, range: &RangeMove, durability: Durability) -> Outcome<()>;
    /// Makes all commits so far durable against power loss.
    ///
    /// # Errors
    /// Any.
    fn sync(&self) -> Outcome<()>;
    /// Writes the state out, so that the log before it is not needed any more.
    ///
    /// # Errors
    /// Any.
    fn checkpoint(&self) -> Outcome<()>;
    /// Reads one value.
    ///
    /// # Errors
    /// Any.
    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<Value>>;
    /// Reads several values at once, in the order of `keys`.
    ///
    /// # Errors
    /// Any.
    fn get_many(&self, tree: usize, keys: &[Key]) -> Outcome<Vec<Option<Value>>>;
    /// Reads up to `limit` entries of a range.
    ///
    /// # Errors
    /// Any.
    fn scan(
        &self,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Outcome<Vec<(Key, Value)>>;
    /// Takes a snapshot of the current state.
    fn snapshot(&self) -> Self::Snapshot;
    /// Reads one value in a snapshot.
    ///
    /// # Errors
    /// Any.
    fn snapshot_get(&self, snapshot: &Self::Snapshot, tree: usize, key: &[u8]) -> Outcome<Option<Value>>;
    /// Reads up to `limit` entries of a range in a snapshot.
    ///
    /// # Errors
    /// Any.
    fn snapshot_scan(
        &self,
        snapshot: &Self::Snapshot,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Outcome<Vec<(Key, Value)>>;
    /// Names the current state; the name must be free.
    ///
    /// # Errors
    /// Any.
    fn create_snapshot(&self, name: &str) -> Outcome<()>;
    /// Opens a named snapshot.
    ///
    /// # Errors
    /// Any.
    fn open_snapshot(&self, name: &str) -> Outcome<Self::Snapshot>;
    /// Deletes a named snapshot.
    ///
    /// # Errors
    /// Any.
    fn delete_snapshot(&self, name: &str) -> Outcome<()>;
    /// The names of all named snapshots.
    fn snapshot_names(&self) -> Vec<String>;
    /// Whether the log is long enough that the harness should ask for a checkpoint.
    fn wants_checkpoint(&self) -> bool {
        false
    }
    /// Reads and verifies everything; returns the number of damages found.
    ///
    /// # Errors
    /// Any.
    fn check(&self) -> Outcome<u64>;
    /// How often things that only the store itself sees happened since it was opened, by their names among
    /// the counts.
    fn inside(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Makes everything durable and closes.
    ///
    /// # Errors
    /// Any.
    fn close(self) -> Outcome<()>;
}
