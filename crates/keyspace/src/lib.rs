//! The contents of a slot, and the commands on them.
//!
//! [`Keyspace`] keeps the slots of one event loop of a node in a tree of the engine; [`ModelKeyspace`] keeps
//! them in plain maps. Both run the same evaluator over [`Cells`] and [`Changes`]: a write is evaluated at
//! the time that its log entry gives it, and all cells that it changes are committed together with the
//! position of the entry.
//!
//! Invariant: the effect and the answer of a write follow from the cells, the command and its given time, and
//! from nothing else, so every copy of a slot arrives at the same.
//! Invariant: a command that is refused has changed nothing.

// Stored data and their encoding.
mod cell;
mod cells;
mod head;
mod session;
mod slot;
mod state;

// Commands.
mod answer;
mod error;
mod evaluate;
mod glob;
mod outcome;
mod refusal;

// Where slots are stored.
mod keyspace;
mod model;
mod verify;

pub use atoll_resp::{FieldBatch, FieldCondition, FieldMutation, FieldRange, OwnCommand, Part, RangeRequest};
pub use cell::is_moved;
pub use cells::{CellRef, CellValue, Cells, Changes};
pub use error::KeyspaceError;
pub use glob::matches as glob_matches;
pub use keyspace::{Exporter, Keyspace, Looked, MovedCells, NEAR_AT_ONCE, ScanPage};
pub use model::ModelKeyspace;
pub use outcome::{Overdue, ReadOutcome};
pub use refusal::Refusal;
pub use slot::{SLOTS, SLOTS_WIDE, slot_among, slot_of};
pub use state::Applied;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;

/// Longest field of a hash, in bytes.
pub const FIELD_BYTES_MAX: usize = 16 << 10;

/// Longest value of a field, in bytes; a string shares them with its deadline.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

// A write that every copy has logged must not turn out to be too long for the engine.
const _: () = assert!(
    VALUE_BYTES_MAX as u64 <= atoll_engine::VALUE_MAX
        && 16 + 2 * KEY_BYTES_MAX + FIELD_BYTES_MAX <= atoll_engine::KEY_MAX,
    "the engine takes every cell"
);

/// Longest answer to one command, in bytes.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Longest string at a key, in bytes.
pub const STRING_BYTES_MAX: usize = VALUE_BYTES_MAX - 9;

/// Longest value in a condition, in bytes; also how much is returned of a value that is not as expected.
pub const CONDITION_BYTES_MAX: usize = 1 << 20;

/// Most conditions and mutations of a batch.
pub const BATCH_OPERATIONS_MAX: usize = 1000;

/// Most bytes of keys and values of a batch; the value of a single mutation is not counted.
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// How many writes of a client a slot remembers: those with the highest numbers. So this many may be under
/// way at a time.
pub const REQUESTS_MAX: usize = 64;

/// Most clients whose writes a slot remembers at a time.
pub const SESSIONS_MAX: u64 = 1 << 16;

/// How long a slot remembers a client after its last write, at the least, in milliseconds.
pub const SESSION_MS_MIN: u64 = 600_000;

/// How far apart two nodes may date the same moment, in milliseconds: a ring believes clocks that are up to a
/// minute from the median, on either side of it. A client is remembered longer by this, as one node may date
/// its last write and another one the write that forgets it.
pub const DATES_APART_MS_MAX: u64 = 120_000;

/// How long a client that says when it began is taken for a new one where it is not known, in milliseconds.
/// Half of [`SESSION_MS_MIN`], so that clocks of nodes may differ by the other half.
pub const FRESH_MS_MAX: u64 = SESSION_MS_MIN / 2;

/// Longest answer that a slot remembers, in bytes.
pub const REMEMBERED_BYTES_MAX: usize = 1 << 10;

/// Most bytes of fields and values of a page, unless the first entry alone is longer.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
