//! Whether there is room for what clients want to add: in memory, or on the disk of a store.
//!
//! A store takes nothing more while there is still some room left on its disk. So whatever makes room can be
//! written there: deletions, their checkpoint, and what other nodes have to be told.
//!
//! Invariant: a look costs a call of the system, and is taken once in many bytes or a second, never for each
//! write.

use crate::options::Persistence;
use atoll_engine::Engine;
use atoll_keyspace::SESSION_MS_MIN;
use atoll_replica::Moment;

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Memory,
    Disk,
}

impl Lack {
    /// In the words that clients of Redis look for.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Memory => "command not allowed when used memory > 'maxmemory'.",
            Self::Disk => {
                "command not allowed while the disk of this node is full; reads go on, free some space there"
            }
        }
    }
}

/// What is known of the room of one loop.
pub(crate) struct Room {
    engine: Engine,
    is_in_memory: bool,
    memory_bytes_max: u64,
    /// Bytes that this loop was asked to write since it looked.
    unchecked_bytes: u64,
    lack: Option<Lack>,
    /// Bytes of names that were taken since there is too little, and since this moment.
    named_bytes: u64,
    named_since: Moment,
    /// How much memory was used when the first of them was.
    named_from: Option<u64>,
    looked_at: Moment,
    /// How many commits there were when a checkpoint was asked for because there is too little.
    asked_at_commits: u64,
}

/// On a disk so much is kept free, or what the next checkpoint needs if that is more.
pub(crate) const RESERVE_BYTES: u64 = 64 << 20;

/// What is remembered of a client takes about so much.
pub(crate) const NAME_BYTES: usize = 512;

/// After this time names that were taken may be forgotten, and others may come.
const NAMES_LAST_US: u64 = (SESSION_MS_MIN + 120_000) * 1_000;

/// Bytes of writes after which the disk is looked at again.
const LOOK_EACH_BYTES: u64 = RESERVE_BYTES / 8;

/// For how long what was seen counts, whoever writes there beside this node.
const LOOK_EACH_US: u64 = 1_000_000;

/// Whether so many bytes of another node may be written, which are written twice as well: what is kept free
/// stays free of them.
pub(crate) fn has_room_to_copy(engine: &Engine, bytes: u64) -> bool {
    let Some(room) = engine.disk_room() else { return true };
    let kept_bytes = RESERVE_BYTES.saturating_add(room.needed_bytes);
    room.left_bytes >= kept_bytes.saturating_add(2 * bytes)
}

impl Room {
    pub(crate) fn new(engine: &Engine, persistence: Persistence, memory_bytes_max: u64) -> Self {
        let is_in_memory = persistence == Persistence::Off;
        let (unchecked_bytes, lack, named_bytes, looked_at, asked_at_commits) = Default::default();
        let (named_since, named_from) = Default::default();
        Self {
            engine: engine.clone(),
            is_in_memory,
            memory_bytes_max,
            unchecked_bytes,
            lack,
            named_bytes,
            named_since,
            named_from,
            looked_at,
            asked_at_commits,
        }
    }

    /// What there is too little of for so many bytes more, if anything.
    #[inline]
    pub(crate) fn lack_for(&mut self, more: usize) -> Option<Lack> {
        self.unchecked_bytes += more as u64;
        let most = if self.is_in_memory { self.memory_bytes_max / 64 } else { LOOK_EACH_BYTES };
        // Memory is there again as soon as something was deleted, a disk only behind a checkpoint.
        if self.unchecked_bytes > most || self.lack == Some(Lack::Memory) {
            self.look();
        }
        self.lack
    }

    /// The same without anything more.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.lack
    }

    /// Takes the name of one more client whose write only deletes, though there is too little; not if it took
    /// many of them since. Whoever makes room may be new here, and names alone are not to fill what is kept
    /// for that.
    pub(crate) fn takes_name(&mut self) -> bool {
        if self.is_in_memory {
            // What is deleted makes room for more names, so what is there is what counts.
            let used_bytes = self.engine.stats().memory_bytes;
            let began_at = *self.named_from.get_or_insert(used_bytes);
            return used_bytes <= began_at.saturating_add(self.memory_bytes_max / 64);
        }
        self.named_bytes += NAME_BYTES as u64;
        self.named_bytes <= RESERVE_BYTES / 4
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Moment) {
        if !self.is_in_memory && now >= self.looked_at.after(LOOK_EACH_US) {
            self.looked_at = now;
            self.look();
        }
        if now >= self.named_since.after(NAMES_LAST_US) {
            self.named_since = now;
            (self.named_bytes, self.named_from) = (0, None);
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
            tracing::warn!("the disk is nearly full: nothing more is taken until there is room again");
        } else if self.lack == Some(Lack::Disk) && lack.is_none() {
            tracing::info!("the disk has room again");
        }
        self.lack = lack;
        if lack.is_none() {
            (self.named_bytes, self.named_from) = (0, None);
        }
    }

    /// What was just asked for is written twice: to a log and where it stays.
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
