//! What can be chosen when an engine is opened.

use crate::{Clock, EngineError};
use std::time::Duration;

/// Options of an engine. The defaults are meant to be right for nearly everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Memory for nodes, values and what waits for a checkpoint, in bytes. Writers wait rather than exceed
    /// it, where a thread makes checkpoints. Default 1 GiB.
    pub memory_bytes: u64,
    /// Memory among that for copies of small records that are looked up often, in bytes; 0 for no copies.
    /// None, as is the default, for one part of 32, and 256 MiB at most.
    pub hot_bytes: Option<u64>,
    /// Length of the log that makes a checkpoint worth while, in bytes. Default 1 GiB; it bounds recovery.
    pub checkpoint_bytes: u64,
    /// Length of one log segment, in bytes; with little memory they are shorter. Default 8 MiB.
    pub log_segment_bytes: u64,
    /// Whether small commits are copied into mapped pages of the file, where its system allows that, rather
    /// than written by a call each. A disk that fails in a way that cannot be asked for before ends the
    /// process then. Default yes.
    pub log_windows: bool,
    /// Whether small puts go beside leaves that are not in memory also where there is room to read these.
    /// That suits who writes to a store that nobody reads; how many records its trees have has to be counted
    /// then. Default no.
    pub blind_puts: bool,
    /// Whether a thread of its own makes checkpoints. A simulator calls them itself. Default yes.
    pub background: bool,
    /// Whether nothing is ever written. Default no.
    pub read_only: bool,
    /// Whether a log that is damaged before its synced end is read up to the damage, in place of being
    /// refused: what was committed behind it is left out. And whether leaves that cannot be read are done
    /// without which the log changes in a way that has to know what they have, but for values below 64 KiB
    /// that the log has. Only where nothing is written. Default no.
    pub salvage: bool,
    /// For how long space that nothing refers to is kept for readers of other processes. Default none.
    pub keep: Duration,
    /// Tells when space was kept long enough. Default: the machine's monotonic clock.
    pub clock: Clock,
    /// Identity of a new store; drawn at random for none, which is the default.
    pub store_id: Option<u64>,
    /// Number of this opening; no other opening of the same store may have it, not even one whose writes were
    /// lost. Drawn at random for none, which is the default; a simulator counts, so that a run repeats byte
    /// for byte.
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

/// Of the memory, a log segment has at most this share, for one is read whole when it is cleaned.
const SEGMENT_SHARE: u64 = 16;

/// Segments are no shorter than this for want of memory.
const SEGMENT_LEAST: u64 = 64 << 10;

impl Options {
    /// Length of a segment that the log begins.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let most = (self.memory_bytes / SEGMENT_SHARE / 4096 * 4096).max(SEGMENT_LEAST);
        self.log_segment_bytes.min(most)
    }

    /// Checks that the options make sense together.
    ///
    /// # Errors
    /// [`EngineError::Option`], naming the option.
    pub fn validate(&self) -> Result<(), EngineError> {
        let wrong = |option, problem| Err(EngineError::Option { option, problem });
        if self.log_segment_bytes < 16 << 10 || !self.log_segment_bytes.is_multiple_of(4096) {
            return wrong("log_segment_bytes", "at least 16 KiB, a multiple of 4 KiB");
        }
        if self.salvage && !self.read_only {
            return wrong("salvage", "only of a store that is opened for reading alone");
        }
        if self.checkpoint_bytes < 4096 {
            return wrong("checkpoint_bytes", "at least 4 KiB");
        }
        Ok(())
    }
}
