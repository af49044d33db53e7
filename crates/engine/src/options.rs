//! Options of an engine, chosen when it is opened.

use crate::{Clock, EngineError};
use std::time::Duration;

/// Options of an engine. The defaults suit nearly every store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Memory budget for nodes, values and what waits for a checkpoint, in bytes. Where a background thread
    /// makes checkpoints, writers wait rather than exceed it. Default 1 GiB.
    pub memory_bytes: u64,
    /// The part of that memory that holds copies of small, frequently read records, in bytes; 0 keeps no
    /// copies. None, the default, takes one part in 32, and 256 MiB at most.
    pub hot_bytes: Option<u64>,
    /// Length of the log at which a checkpoint is due, in bytes. Default 1 GiB; it bounds recovery. Values of
    /// 64 KiB and more, which the log only names, count a quarter of their length.
    pub checkpoint_bytes: u64,
    /// Length of one log segment, in bytes, up to 512 MiB; segments are shorter where memory is small.
    /// Default 8 MiB.
    pub log_segment_bytes: u64,
    /// Whether small commits are copied into mapped pages of the file, where the system allows that, instead
    /// of being written by one call each. A disk that then fails in a way that cannot be checked beforehand
    /// ends the process. Default yes.
    pub log_windows: bool,
    /// Whether small puts go beside leaves that are not in memory even where there is room to read those
    /// leaves. This suits a program that writes to a store and does not read it; the number of records in its
    /// trees then has to be counted. Default no.
    pub blind_puts: bool,
    /// Whether a background thread makes checkpoints. A simulator makes them itself. Default yes.
    pub background: bool,
    /// Whether nothing is ever written. Default no.
    pub read_only: bool,
    /// Whether a log that is damaged before its synced end is read up to the damage instead of being refused;
    /// commits behind the damage are left out. A leaf that cannot be read, and that the log changes in a way
    /// that depends on its contents, is then given up as well, except for the values below 64 KiB that the
    /// log holds for it. Only for a store that is opened for reading. Default no.
    pub salvage: bool,
    /// How long space that nothing refers to is kept for readers in other processes. Default: not at all.
    pub keep: Duration,
    /// The clock that says when space was kept long enough. Default: the machine's monotonic clock.
    pub clock: Clock,
    /// Identity of a new store. None, the default, draws one at random.
    pub store_id: Option<u64>,
    /// Number of this opening. No other opening of the same store may have the same number, not even one
    /// whose writes were lost. None, the default, draws one at random; a simulator counts, so that a run
    /// repeats byte for byte.
    pub life: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            hot_bytes: None,
            checkpoint_bytes: 1 << 30,
            log_segment_bytes: 8 << 20,
            log_windows: true,
            blind_puts: false,
            background: true,
            read_only: false,
            salvage: false,
            keep: Duration::ZERO,
            clock: Clock::default(),
            store_id: None,
            life: None,
        }
    }
}

/// A log segment takes at most this share of the memory, because cleaning reads a segment whole.
const SEGMENT_SHARE: u64 = 16;

/// Segments are not made shorter than this for want of memory.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// No segment is longer, unless it holds a single group that is.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 512 << 20;

impl Options {
    /// Length of a new log segment, in bytes.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let most = (self.memory_bytes / SEGMENT_SHARE / 4096 * 4096).max(SEGMENT_BYTES_MIN);
        self.log_segment_bytes.min(most)
    }

    /// Checks that the options make sense together.
    ///
    /// # Errors
    /// [`EngineError::Option`], naming the option.
    pub fn validate(&self) -> Result<(), EngineError> {
        let wrong = |option, problem| Err(EngineError::Option { option, problem });
        let is_allowed = (16 << 10..=SEGMENT_BYTES_MAX).contains(&self.log_segment_bytes);
        if !is_allowed || !self.log_segment_bytes.is_multiple_of(4096) {
            return wrong("log_segment_bytes", "16 KiB to 512 MiB, a multiple of 4 KiB");
        }
        if self.salvage && !self.read_only {
            return wrong("salvage", "only for a store that is opened for reading");
        }
        if self.checkpoint_bytes < 4096 {
            return wrong("checkpoint_bytes", "at least 4 KiB");
        }
        Ok(())
    }
}
