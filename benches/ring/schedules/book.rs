//! The book of written and acknowledged values of all clients together, which judges every read.
//!
//! A key has one writer, which numbers its writes. So a read must find at least what was acknowledged or
//! read by any client before it began, and at most what was begun before it ended: that is exactly what
//! linearizability demands of one key.
//!
//! Invariant: a key whose last write has an unknown outcome is not written again, because such a write may
//! take effect at any time.
//! Invariant: a write that was refused in words that mean "nothing happened" is never found.

use crate::cut::slot_of;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// How many keys share a slot and a batch.
pub const CELLS: usize = 8;
/// How many wrong results are described; all are counted.
const TOLD_MAX: usize = 20;

/// One key.
#[derive(Debug, Default)]
pub struct Cell {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    seen: AtomicU64,
    refused: Mutex<Vec<u64>>,
}

/// Keys of one slot with one writer.
#[derive(Debug)]
pub struct Group {
    name: String,
    /// Their slot.
    pub slot: usize,
    cells: [Cell; CELLS],
}

/// A violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Less than what was acknowledged, after everything had healed.
    Lost,
    /// Less than what was acknowledged or read before the read began.
    Stale,
    /// A value that was never written there, or was refused.
    Foreign,
}

/// Counts of all outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Writes that were refused, so that nothing happened.
    pub refused: u64,
    /// Writes with an unknown outcome.
    pub unknown: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Reads that were not answered.
    pub unread: u64,
    /// Keys whose acknowledged write is missing at the end.
    pub lost: u64,
    /// Reads that found less than they had to.
    pub stale: u64,
    /// Reads that found a value that was never written there, or was refused.
    pub foreign: u64,
    /// Keys that were looked up at the end.
    pub looked_up: u64,
    /// Keys that no node answered for at the end.
    pub unanswered: u64,
}

/// The common knowledge of all clients.
#[derive(Debug)]
pub struct Book {
    /// The groups of each writer, the newest last.
    lanes: Vec<RwLock<Vec<Arc<Group>>>>,
    counts: Mutex<Counts>,
    told: Mutex<Vec<String>>,
}

/// The number that stands for a key that was never written.
const NOTHING: u64 = 0;

impl Group {
    /// The group of this number of a writer.
    pub fn new(lane: usize, number: usize) -> Self {
        let name = format!("l{lane:02}-{number:06}");
        let slot = slot_of(name.as_bytes());
        Self { name, slot, cells: Default::default() }
    }

    /// The name of a key.
    pub fn key(&self, cell: usize) -> String {
        format!("{{{}}}{cell}", self.name)
    }

    /// Begins the next write of a key and returns its number.
    pub fn begin(&self, cell: usize) -> u64 {
        self.cells[cell].begun.fetch_add(1, SeqCst) + 1
    }

    /// The value of a write.
    pub fn value(&self, cell: usize, version: u64) -> String {
        format!("{}:{version}", self.key(cell))
    }

    /// The least version that a read which begins after this may find.
    pub fn least(&self, cell: usize) -> u64 {
        let cell = &self.cells[cell];
        cell.acknowledged.load(SeqCst).max(cell.seen.load(SeqCst))
    }

    fn version(&self, cell: usize, value: Option<&[u8]>) -> Option<u64> {
        let Some(value) = value else { return Some(NOTHING) };
        let behind = value.strip_prefix(self.key(cell).as_bytes())?.strip_prefix(b":")?;
        std::str::from_utf8(behind).ok()?.parse().ok()
    }
}

impl Book {
    /// An empty book for this many writers.
    pub fn new(lanes: usize) -> Self {
        let lanes = (0..lanes).map(|_| RwLock::default()).collect();
        Self { lanes, counts: Mutex::default(), told: Mutex::default() }
    }

    /// Opens a new group of a writer, which is visible to all clients.
    pub fn open(&self, lane: usize) -> Arc<Group> {
        let mut groups = self.lanes[lane].write().unwrap_or_else(PoisonError::into_inner);
        let group = Arc::new(Group::new(lane, groups.len()));
        groups.push(Arc::clone(&group));
        group
    }

    /// A random group: a current one, or an older one.
    pub fn any(&self, random: &mut fastrand::Rng) -> Option<Arc<Group>> {
        let lane = &self.lanes[random.usize(..self.lanes.len())];
        let groups = lane.read().unwrap_or_else(PoisonError::into_inner);
        let newest = groups.last()?;
        Some(Arc::clone(if random.u8(..4) == 0 { random.choice(groups.iter())? } else { newest }))
    }

    /// All groups.
    pub fn all(&self) -> Vec<Arc<Group>> {
        let groups = |lane: &RwLock<Vec<Arc<Group>>>| {
            lane.read().unwrap_or_else(PoisonError::into_inner).iter().map(Arc::clone).collect::<Vec<_>>()
        };
        self.lanes.iter().flat_map(groups).collect()
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Updates the counts.
    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Descriptions of the first wrong results.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a write was acknowledged.
    pub fn acknowledge(&self, group: &Group, cell: usize, version: u64) {
        group.cells[cell].acknowledged.fetch_max(version, SeqCst);
        self.count(|counts| counts.acknowledged += 1);
    }

    /// Records that a write was refused: nothing happened.
    pub fn refuse(&self, group: &Group, cell: usize, version: u64) {
        let one = &group.cells[cell];
        one.refused.lock().unwrap_or_else(PoisonError::into_inner).push(version);
        self.count(|counts| counts.refused += 1);
        // If a read found it before, that is detected here, otherwise in the read: whichever comes second
        // sees the first.
        if one.seen.load(SeqCst) == version {
            self.tell(Wrong::Foreign, || {
                format!("{} was refused and read before", group.value(cell, version))
            });
        }
    }

    /// Judges the value found by a read that began when `least` was the least, and records it.
    pub fn judge(&self, group: &Group, cell: usize, least: u64, value: Option<&[u8]>) -> Result<(), Wrong> {
        self.count(|counts| counts.reads += 1);
        let shown = || value.map_or_else(|| "nothing".to_owned(), |value| value.escape_ascii().to_string());
        let one = &group.cells[cell];
        let version = group.version(cell, value).filter(|version| *version <= one.begun.load(SeqCst));
        let Some(version) = version else {
            self.tell(Wrong::Foreign, || format!("{} is {}", group.key(cell), shown()));
            return Err(Wrong::Foreign);
        };
        one.seen.fetch_max(version, SeqCst);
        if one.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&version) {
            self.tell(Wrong::Foreign, || format!("{} is {}, which was refused", group.key(cell), shown()));
            return Err(Wrong::Foreign);
        }
        if version < least {
            let due = if one.acknowledged.load(SeqCst) >= least { "was acknowledged" } else { "was read" };
            self.tell(Wrong::Stale, || {
                format!("{} is {} after version {least} {due}", group.key(cell), shown())
            });
            return Err(Wrong::Stale);
        }
        Ok(())
    }

    /// Judges the value after everything has healed; `None` means that no node answered.
    pub fn judge_last(&self, group: &Group, cell: usize, found: Option<Option<&[u8]>>) {
        self.count(|counts| counts.looked_up += 1);
        let Some(value) = found else {
            self.count(|counts| counts.unanswered += 1);
            return;
        };
        let one = &group.cells[cell];
        let acknowledged = one.acknowledged.load(SeqCst);
        let is_less = group.version(cell, value).is_none_or(|version| version < acknowledged);
        if is_less {
            self.tell(Wrong::Lost, || {
                let is = value.map_or_else(|| "nothing".to_owned(), |value| value.escape_ascii().to_string());
                let (key, slot) = (group.key(cell), group.slot);
                format!("LOST: version {acknowledged} of {key} was acknowledged and is {is} (slot {slot})")
            });
            return;
        }
        // A value that was read must still be there as well.
        let _ = self.judge(group, cell, group.least(cell), value);
    }

    fn tell(&self, wrong: Wrong, words: impl FnOnce() -> String) {
        self.count(|counts| match wrong {
            Wrong::Lost => counts.lost += 1,
            Wrong::Stale => counts.stale += 1,
            Wrong::Foreign => counts.foreign += 1,
        });
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX {
            told.push(words());
        }
    }
}
