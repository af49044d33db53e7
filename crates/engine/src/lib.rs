//! One machine's persistent ordered map: several named trees in one file, or in memory.
//!
//! [`Engine`] is the store, [`Tree`] one of its maps, [`Snapshot`] a consistent state to read from. A write
//! goes to the log and into the tree in memory; a checkpoint writes the trees and releases the log before it.
//!
//! Invariant: a crash loses no write that was acknowledged at its durability class, and the writes that it
//! does lose are a suffix of the commit order over all trees.
//! Invariant: every byte read back is checked; a mismatch is an error that names file and offset.

// Opening a store, and what is kept about it.
mod check;
mod checkpoint;
mod cleaning;
mod cold;
mod engine;
mod error;
mod fence;
mod format;
mod handover;
mod options;
mod recovery;
mod replayer;
mod revocable_disk;
mod room;
mod run_bytes;
mod sharded_lock;
mod shared;
mod stats;

// The journey of a write.
mod amend;
mod batch;
mod beside;
mod broken;
mod bulk;
mod commit;
mod count;
mod delta;
mod forest;
mod frames;
mod full_disk;
mod gate;
mod heap;
mod in_place;
mod log;
mod log_ahead;
mod ranges;
mod record;
mod sync;
mod tree;
mod value_writer;
mod visit;

// Reads.
mod attempt;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod busy;
mod changes;
mod hot;
mod pins;
mod prefetching;
mod search;
mod snapshot;
mod value;
mod view;

// For fuzzers.
pub mod fuzz;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod forged;

// Nodes in memory, pages on disk, and the space they take.
mod backing;
mod fragmentation;
mod leaf;
mod meter;
mod node;
mod page;
mod page_writer;
mod retired;
mod slot;
mod space;
mod superblock;

// Small parts.
mod checksum;
mod clock;
mod codec;
#[cfg_attr(not(feature = "planted"), allow(dead_code))]
mod planted;
mod threads;

pub use amend::{Amended, Amendment};
pub use attempt::{Attempt, ReadTicket};
pub use batch::WriteBatch;
pub use beside::Beside;
pub use changes::{Change, TreeChanges};
pub use check::{CheckReport, Hurt};
pub use checkpoint::Checkpoint;
pub use clock::Clock;
pub use commit::{Commit, SyncTicket};
pub use engine::{Engine, Tree};
pub use error::{Damage, EngineError};
pub use format::Format;
pub use hot::HotUse;
pub use options::Options;
#[cfg(feature = "planted")]
pub use planted::{Bug, plant};
pub use recovery::{Cut, RecoveryReport};
pub use snapshot::{Reader, Snapshot};
pub use stats::{DiskRoom, Stats};
pub use value::{Front, VALUE_MAX, Value, ValueBytes, ValueRef};
pub use value_writer::ValueWriter;
pub use visit::Direction;

/// Longest key, in bytes.
pub const KEY_MAX: usize = 64 << 10;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing; never torn.
    Buffered,
    /// The end of the process.
    #[default]
    Flushed,
    /// The loss of power.
    Synced,
}
