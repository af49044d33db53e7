//! The state of a slot: how far its log was applied, and its counters.

use crate::KeyspaceError;
use crate::cell::{HEAD, SESSION};

/// The position of an entry in a slot's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Applied {
    /// The configuration under which it was logged.
    pub epoch: u64,
    /// Its place in the log.
    pub sequence: u64,
}

/// What is known of a slot besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotState {
    pub(crate) applied: Applied,
    /// The time of the last entry.
    pub(crate) time_ms: u64,
    /// The number of keys; for a slot that is arriving in pieces, [`ARRIVING`] plus the number that has
    /// arrived.
    pub(crate) keys: u64,
    /// How many clients the slot remembers writes of.
    pub(crate) sessions: u64,
    /// No key expires before this time; only in memory, where 0 means that it is not known yet.
    pub(crate) soonest_ms: u64,
    /// No client was last in use before this time; only in memory, and 0 as above.
    pub(crate) oldest_use_ms: u64,
}

impl Default for SlotState {
    /// An empty slot.
    fn default() -> Self {
        Self {
            applied: Applied::default(),
            time_ms: 0,
            keys: 0,
            sessions: 0,
            soonest_ms: u64::MAX,
            oldest_use_ms: u64::MAX,
        }
    }
}

/// Marks a slot that is arriving in pieces; no slot has this many keys.
pub(crate) const ARRIVING: u64 = 1 << 63;

/// The length of an encoded state.
pub(crate) const STATE_BYTES: usize = 40;

impl SlotState {
    /// The state of a slot with exactly these moved cells; names are without the slot's number.
    pub(crate) fn of_moved<'a>(
        applied: Applied,
        time_ms: u64,
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let fresh = Self { applied, time_ms, soonest_ms: 0, oldest_use_ms: 0, ..Self::default() };
        names.fold(fresh, |state, name| state.with_moved(name))
    }

    /// The state with one more moved cell.
    pub(crate) fn with_moved(self, name: &[u8]) -> Self {
        let is = |kind: u8| u64::from(name.first() == Some(&kind));
        Self { keys: self.keys + is(HEAD), sessions: self.sessions + is(SESSION), ..self }
    }

    /// Whether the slot is arriving in pieces, and not complete.
    pub(crate) fn is_arriving(&self) -> bool {
        self.keys >= ARRIVING
    }

    pub(crate) fn encode(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        let Self { applied: Applied { epoch, sequence }, time_ms, keys, sessions, .. } = *self;
        let numbers = [epoch, sequence, time_ms, keys, sessions];
        for (room, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            room.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, KeyspaceError> {
        let mut numbers = [0; STATE_BYTES / 8];
        if bytes.len() != STATE_BYTES {
            return Err(KeyspaceError::Corrupt { what: "the state of a slot" });
        }
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        let [epoch, sequence, time_ms, keys, sessions] = numbers;
        let (applied, soonest_ms, oldest_use_ms) = (Applied { epoch, sequence }, 0, 0);
        Ok(Self { applied, time_ms, keys, sessions, soonest_ms, oldest_use_ms })
    }
}
