//! Whether there is room for what clients want to add: in memory, or on the disk of a store.
//!
//! A store refuses additions while some room is still left on its disk. So whatever frees room can still be
//! written: deletions, their checkpoint, and what other nodes have to be told.
//!
//! Invariant: measuring costs a system call, and is done once in many bytes or once a second, never for each
//! write.

use atoll_engine::Engine;
use atoll_keyspace::{DATES_APART_MS_MAX, SESSION_MS_MIN};
use atoll_replica::Moment;

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Memory,
    Disk,
}

impl Lack {
    /// The error text that clients of Redis look for.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Memory => "command not allowed when used memory > 'maxmemory'.",
            Self::Disk => {
                "command not allowed while the disk of this node is full; reads go on, free some space there"
            }
        }
    }
}

/// What one loop knows about the room that is left.
pub(crate) struct Room {
    engine: Engine,
    is_in_memory: bool,
    memory_bytes_max: u64,
    /// Bytes that this loop was asked to write since the last measurement.
    unchecked_bytes: u64,
    lack: Option<Lack>,
    /// Bytes of client names accepted while there was too little room, and since when they are counted.
    named_bytes: u64,
    named_since: Moment,
    /// Memory in use when the first of them was accepted.
    named_from: Option<u64>,
    rewritten: Rewritten,
    looked_at: Moment,
    /// The number of commits when a checkpoint was last requested for lack of room.
    asked_at_commits: u64,
}

/// Bytes kept free on a disk, or what the next checkpoint needs if that is more.
pub(crate) const RESERVE_BYTES: u64 = 64 << 20;

/// Roughly the bytes that a remembered client takes.
pub(crate) const NAME_BYTES: usize = 512;

/// After this time the accepted names may have been forgotten, and others may come.
const NAMES_LAST_US: u64 = (SESSION_MS_MIN + DATES_APART_MS_MAX + 120_000) * 1_000;

/// Bytes of writes after which the disk is measured again.
const LOOK_EACH_BYTES: u64 = RESERVE_BYTES / 8;

/// How long a measurement counts, since others may write to the same disk.
const LOOK_EACH_US: u64 = 1_000_000;

/// Whether `bytes` of another node may be written. They are written twice, and must leave free what is kept
/// free.
pub(crate) fn has_room_to_copy(engine: &Engine, bytes: u64) -> bool {
    let Some(room) = engine.disk_room() else { return true };
    let kept_bytes = RESERVE_BYTES.saturating_add(room.needed_bytes);
    room.left_bytes >= kept_bytes.saturating_add(2 * bytes)
}

/// Bytes of strings that were written again while a disk was full.
#[derive(Debug, Default)]
struct Rewritten(u64);

impl Rewritten {
    /// Counts a string, unless that would be more than the part that may be used up of what is kept free.
    fn takes(&mut self, bytes: usize) -> bool {
        let with_it = self.0.saturating_add(bytes as u64);
        let is_taken = with_it <= RESERVE_BYTES / 4;
        if is_taken {
            self.0 = with_it;
        }
        is_taken
    }
}

impl Room {
    /// What counts is where the slots are: in a folder even those fill the disk that outlive nothing.
    pub(crate) fn new(engine: &Engine, keeps: bool, memory_bytes_max: u64) -> Self {
        Self {
            engine: engine.clone(),
            is_in_memory: !keeps,
            memory_bytes_max,
            unchecked_bytes: 0,
            lack: None,
            named_bytes: 0,
            named_since: Moment::default(),
            named_from: None,
            rewritten: Rewritten::default(),
            looked_at: Moment::default(),
            asked_at_commits: 0,
        }
    }

    /// What there is too little of for `more` bytes, if anything.
    #[inline]
    pub(crate) fn lack_for(&mut self, more: usize) -> Option<Lack> {
        self.unchecked_bytes += more as u64;
        let most = if self.is_in_memory { self.memory_bytes_max / 64 } else { LOOK_EACH_BYTES };
        // Deletions free memory at once, but a disk only after a checkpoint.
        if self.unchecked_bytes > most || self.lack == Some(Lack::Memory) {
            self.look();
        }
        self.lack
    }

    /// What there was too little of at the last measurement.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.lack
    }

    /// Accepts the name of one more client whose write only deletes, though there is too little room; refuses
    /// after many of them. A client that frees room may be new here, but names alone must not fill what is
    /// kept free for it.
    pub(crate) fn takes_name(&mut self) -> bool {
        if self.is_in_memory {
            // Deletions make room for more names, so the memory in use is what counts.
            let used_bytes = self.engine.stats().memory_bytes;
            let began_at = *self.named_from.get_or_insert(used_bytes);
            return used_bytes <= began_at.saturating_add(self.memory_bytes_max / 64);
        }
        self.named_bytes += NAME_BYTES as u64;
        self.named_bytes <= RESERVE_BYTES / 4
    }

    /// Accepts a short string that is only written again, though the disk is full; refuses after many.
    pub(crate) fn takes_rewrite(&mut self, bytes: usize) -> bool {
        self.rewritten.takes(bytes)
    }

    /// Begins to count strings anew that are written again: no disk is full.
    pub(crate) fn forget_rewritten(&mut self) {
        self.rewritten = Rewritten::default();
    }

    /// Measures again if it is time.
    pub(crate) fn tick(&mut self, now: Moment) {
        if !self.is_in_memory && now >= self.looked_at.after(LOOK_EACH_US) {
            self.looked_at = now;
            self.look();
        }
        if now >= self.named_since.after(NAMES_LAST_US) {
            self.named_since = now;
            (self.named_bytes, self.named_from) = (0, None);
            self.forget_rewritten();
        }
    }

    fn look(&mut self) {
        let unchecked_bytes = std::mem::take(&mut self.unchecked_bytes);
        let is_out_of_memory = || self.engine.stats().memory_bytes > self.memory_bytes_max;
        let lack = match self.is_in_memory {
            true => is_out_of_memory().then_some(Lack::Memory),
            false => self.is_out_of_space(unchecked_bytes).then_some(Lack::Disk),
        };
        if lack == Some(Lack::Disk) && self.lack.is_none() {
            tracing::warn!("the disk is nearly full: no more writes are accepted until there is room again");
        } else if self.lack == Some(Lack::Disk) && lack.is_none() {
            tracing::info!("the disk has room again");
        }
        self.lack = lack;
        if lack.is_none() {
            (self.named_bytes, self.named_from) = (0, None);
        }
    }

    /// What was just asked for is written twice: to a log and to its final place.
    fn is_out_of_space(&mut self, unchecked_bytes: u64) -> bool {
        let Some(room) = self.engine.disk_room() else { return false };
        let reserve_bytes = RESERVE_BYTES.max(room.needed_bytes);
        let is_out = room.left_bytes < reserve_bytes.saturating_add(2 * unchecked_bytes);
        if is_out && room.commits != self.asked_at_commits {
            self.asked_at_commits = room.commits;
            self.engine.ask_for_checkpoint();
        }
        is_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_strings_that_are_written_again_use_up_a_part_of_what_is_kept_free_and_no_more() {
        const BYTES: usize = 60_000;
        let mut rewritten = Rewritten::default();
        let taken = (0..100_000).take_while(|_| rewritten.takes(BYTES)).count();
        assert_eq!(taken as u64, RESERVE_BYTES / 4 / BYTES as u64);
        // What is refused takes nothing, so a shorter one may still fit.
        assert!(rewritten.takes(1) && !rewritten.takes(BYTES));
    }
}
