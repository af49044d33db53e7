//! What the harness needs of a store; the engine and the toy each give it.
//!
//! Invariant: an error of a change that does not say that it may have happened says that nothing did.

use crate::state::{Key, Mutation, Range, RangeMove, Value};
use atoll_disk::Disk;
use atoll_errors::ErrorKind;
use std::sync::Arc;

/// How well a change is to be kept when the call returns.
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

/// Small limits, so that a short run passes through many transitions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Log bytes that cause a checkpoint.
    pub checkpoint_bytes: u64,
    /// Length of a log segment.
    pub log_segment_bytes: u64,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Identity of the store.
    pub store_seed: u64,
    /// Number of the opening; drawn by the store for none.
    pub life: Option<u64>,
}

/// What opening a store reported.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The store was closed cleanly before.
    pub is_clean: bool,
    /// Number of the checkpoint that recovery started from.
    pub checkpoint: u64,
    /// Log groups applied again.
    pub groups_replayed: u64,
    /// A tail of the log was cut, and this is the report of it.
    pub cut: Option<String>,
    /// One of the superblocks was damaged and was repaired from the other.
    pub is_superblock_mended: bool,
}

/// An error, as the harness looks at it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// What a caller can act on.
    pub kind: ErrorKind,
    /// The whole chain of causes.
    pub message: String,
    /// The change may have happened all the same.
    pub is_unknown: bool,
    /// The store takes no change more until it is opened again.
    pub is_final: bool,
}

impl Failure {
    /// Flattens an error and its causes; a refusal, if it is that of a change.
    pub fn new(kind: ErrorKind, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            message = format!("{message}: {next}");
            cause = next.source();
        }
        Self { kind, message, is_unknown: false, is_final: false }
    }

    /// Whether it promises that nothing happened.
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
    /// One consistent state, kept while it lives.
    type Snapshot;

    /// Opens what the disk holds, or makes a new store on an empty one.
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
    /// Of kind conflict where it cannot move; any.
    fn move_range(&self, range: &RangeMove, durability: Durability) -> Outcome<()>;
    /// Makes all commits so far survive power loss.
    ///
    /// # Errors
    /// Any.
    fn sync(&self) -> Outcome<()>;
    /// Writes the state out, so that the log before it is no longer needed.
    ///
    /// # Errors
    /// Any.
    fn checkpoint(&self) -> Outcome<()>;
    /// One value.
    ///
    /// # Errors
    /// Any.
    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<Value>>;
    /// Several values at once, in the order of `keys`.
    ///
    /// # Errors
    /// Any.
    fn get_many(&self, tree: usize, keys: &[Key]) -> Outcome<Vec<Option<Value>>>;
    /// Up to `limit` entries of a range.
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
    /// The state now.
    fn snapshot(&self) -> Self::Snapshot;
    /// One value in a snapshot.
    ///
    /// # Errors
    /// Any.
    fn snapshot_get(&self, snapshot: &Self::Snapshot, tree: usize, key: &[u8]) -> Outcome<Option<Value>>;
    /// Up to `limit` entries of a range in a snapshot.
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
    /// Names the state now; the name must be free.
    ///
    /// # Errors
    /// Any.
    fn create_snapshot(&self, name: &str) -> Outcome<()>;
    /// A named state.
    ///
    /// # Errors
    /// Any.
    fn open_snapshot(&self, name: &str) -> Outcome<Self::Snapshot>;
    /// Forgets a named state.
    ///
    /// # Errors
    /// Any.
    fn delete_snapshot(&self, name: &str) -> Outcome<()>;
    /// All names.
    fn snapshot_names(&self) -> Vec<String>;
    /// Whether the log is so long that the harness should ask for a checkpoint.
    fn wants_checkpoint(&self) -> bool {
        false
    }
    /// Reads and verifies everything; the number of damages found.
    ///
    /// # Errors
    /// Any.
    fn check(&self) -> Outcome<u64>;
    /// Checkpoints that the store made without being asked.
    fn checkpoints(&self) -> u64 {
        0
    }
    /// Values that cleaning moved since the store was opened.
    fn values_moved(&self) -> u64 {
        0
    }
    /// Log segments that were cleaned since the store was opened.
    fn cleanings(&self) -> u64 {
        0
    }
    /// Makes everything durable and closes.
    ///
    /// # Errors
    /// Any.
    fn close(self) -> Outcome<()>;
}
