//! The disk of a node: what is written, what is synced, and what remains when the node dies.
//!
//! Everything for all slots goes to one file as a sequence of records; the state of a slot is what the
//! records up to a place make of it. The entries of one input become records together, after everything
//! else that came of the same input: those of them that are committed already are applied before.
//!
//! Invariant: what remains is the synced records and some prefix of those after them, the last of which may
//! be torn.

use crate::cells::State;
use crate::queue::Cells;
use atoll_replica::{Entry, Found, LogRun, Position, Sequence, Slot, Version};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A record on the disk.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// Entries after a place; whatever was there is gone.
    Log { slot: Slot, after: Position, entries: Vec<Entry>, run: LogRun },
    /// The cells as of an entry.
    Checkpoint(Box<Cells>),
    /// Cells from another node, which replace everything.
    Installed(Box<Cells>, LogRun),
    /// Everything of the slot is gone: cells from another node arrive one after the other.
    Emptied(Slot),
    /// Some of those cells.
    Part(Box<Cells>),
    /// The log up to a place is not needed any more.
    Trimmed { slot: Slot, through: Sequence },
    /// Everything of the slot is gone.
    Forgotten(Slot),
    /// What is there of the slot, and comes, is of this branch.
    Branch(Slot, Version),
}

/// The state of a slot after some records.
#[derive(Clone, Debug, Default)]
struct StoredSlot {
    /// Whether cells are still arriving, so that those already there do not count.
    is_arriving: bool,
    base: Position,
    time_ms: u64,
    state: State,
    log: Vec<Entry>,
}

/// The simulated disk of one node.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// The state after the records before `first`.
    slots: BTreeMap<Slot, StoredSlot>,
    branches: BTreeMap<Slot, Version>,
    records: VecDeque<Record>,
    first: u64,
    /// Entries that will become records together, and the slots in whose logs they replace others.
    together: Vec<Record>,
    cut: BTreeSet<Slot>,
    /// How many records have ever been written.
    pub(crate) written: u64,
    /// How many records have ever been synced.
    pub(crate) synced: u64,
    /// Up to where records were written, and synced, at once when a slot was forgotten.
    forgotten_written: u64,
    forgotten_synced: u64,
    /// Whether records are on their way.
    pub(crate) is_busy: bool,
    /// The time until which the disk does not answer.
    pub(crate) stalls_until: u64,
}

impl Disk {
    /// How many records there have ever been.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// The same, including the entries that will become records together.
    pub(crate) fn coming(&self) -> u64 {
        self.last() + self.together.len() as u64
    }

    pub(crate) fn append(&mut self, record: Record) {
        self.settle();
        self.records.push_back(record);
    }

    /// A node writes at once that it forgets a slot, and syncs it if the slot is relied on after a loss of
    /// power: what it says later must not be about data that are there again.
    pub(crate) fn forget(&mut self, slot: Slot, is_relied_on: bool) {
        self.append(Record::Forgotten(slot));
        self.forgotten_written = self.last();
        if is_relied_on {
            self.forgotten_synced = self.last();
        }
    }

    /// Records the branch of a slot, together with the entries that come of the same input: behind what was
    /// forgotten before it, and nobody waits for it.
    pub(crate) fn note_branch(&mut self, slot: Slot, branch: Version) {
        self.together.push(Record::Branch(slot, branch));
    }

    /// Adds entries after a place; `is_cut` says whether they replace others.
    pub(crate) fn log(
        &mut self,
        slot: Slot,
        (after, entries): (Position, Vec<Entry>),
        run: LogRun,
        is_cut: bool,
    ) {
        self.together.push(Record::Log { slot, after, entries, run });
        if is_cut {
            self.cut.insert(slot);
        }
    }

    /// Whether entries of a slot will be removed but are still there.
    pub(crate) fn is_cut(&self, slot: Slot) -> bool {
        self.cut.contains(&slot)
    }

    /// Writes the cells as of the last applied entry, before the entries that still have to become records.
    pub(crate) fn write_cells(&mut self, cells: Cells) {
        self.records.push_back(Record::Checkpoint(Box::new(cells)));
    }

    /// An input is complete: its entries become records.
    pub(crate) fn settle(&mut self) {
        self.records.extend(self.together.drain(..));
        self.cut.clear();
    }

    /// The last entry of each slot in records `from` to `through`, cells included: up to there the slot is
    /// logged.
    pub(crate) fn logged(&self, from: u64, through: u64) -> BTreeMap<Slot, (Position, LogRun)> {
        let skipped = from.saturating_sub(self.first) as usize;
        let count = through.saturating_sub(from.max(self.first)) as usize;
        let mut logged = BTreeMap::new();
        for record in self.records.iter().skip(skipped).take(count) {
            match record {
                Record::Log { slot, entries, run, .. } => {
                    logged.extend(entries.last().map(|last| (*slot, (last.position, *run))));
                }
                Record::Installed(cells, run) => drop(logged.insert(cells.slot, (cells.position, *run))),
                _ => {}
            }
        }
        logged
    }

    /// Records up to `through` are synced.
    pub(crate) fn sync(&mut self, through: u64) {
        self.synced = self.synced.max(through);
        self.written = self.written.max(through);
        self.fold(self.synced);
    }

    /// The entry that the synced cells of a slot reach, unless they have been replaced by another copy's
    /// since.
    pub(crate) fn synced_base(&self, slot: Slot) -> Sequence {
        let is_forgotten = |record: &Record| match record {
            Record::Forgotten(other) | Record::Emptied(other) => *other == slot,
            _ => false,
        };
        if self.records.iter().any(is_forgotten) {
            return Sequence(0);
        }
        let whole = self.slots.get(&slot).filter(|stored| !stored.is_arriving);
        whole.map(|stored| stored.base.sequence).unwrap_or_default()
    }

    fn fold(&mut self, through: u64) {
        while self.first < through {
            let Some(record) = self.records.pop_front() else { break };
            self.first += 1;
            self.take_in(record);
        }
    }

    fn take_in(&mut self, record: Record) {
        match record {
            Record::Log { slot, after, entries, .. } => {
                let stored = self.slots.entry(slot).or_default();
                stored.log.retain(|entry| entry.position.sequence <= after.sequence);
                stored.log.extend(entries);
            }
            Record::Checkpoint(cells) => {
                let stored = self.slots.entry(cells.slot).or_default();
                (stored.base, stored.time_ms, stored.state) = (cells.position, cells.time_ms, cells.state);
            }
            Record::Installed(cells, _) => {
                let Cells { slot, position: base, time_ms, state } = *cells;
                self.slots.insert(slot, StoredSlot { base, time_ms, state, ..StoredSlot::default() });
            }
            Record::Emptied(slot) => {
                self.slots.insert(slot, StoredSlot { is_arriving: true, ..StoredSlot::default() });
            }
            Record::Part(cells) => {
                let stored = self.slots.entry(cells.slot).or_default();
                (stored.base, stored.time_ms, stored.state) = (cells.position, cells.time_ms, cells.state);
            }
            Record::Trimmed { slot, through } => {
                if let Some(stored) = self.slots.get_mut(&slot) {
                    stored.log.retain(|entry| entry.position.sequence > through);
                }
            }
            Record::Forgotten(slot) => drop(self.slots.remove(&slot)),
            Record::Branch(slot, branch) => {
                self.branches.insert(slot, branch);
            }
        }
    }

    /// The process dies: what was written stays, and perhaps some of what was on its way. Returns whether
    /// anything was lost.
    pub(crate) fn die(&mut self, random: &mut Rng) -> bool {
        self.lose(self.written.max(self.forgotten_written), random)
    }

    /// The power fails: what was synced stays, and perhaps some of the rest. Returns whether anything was
    /// lost.
    pub(crate) fn lose_power(&mut self, random: &mut Rng) -> bool {
        self.lose(self.synced.max(self.forgotten_synced), random)
    }

    fn lose(&mut self, kept: u64, random: &mut Rng) -> bool {
        let last = self.last();
        // Often all or none of the unsynced records: that is where most can go wrong.
        let kept = match random.u8(..4) {
            0 => last,
            1 | 2 => kept,
            _ => random.u64(kept.min(last)..=last),
        };
        self.fold(kept);
        if let Some(Record::Log { slot, after, mut entries, run }) = self.records.pop_front() {
            entries.truncate(random.usize(..=entries.len()).saturating_sub(1));
            // A torn record counts up to its last whole entry.
            if !entries.is_empty() {
                self.take_in(Record::Log { slot, after, entries, run });
            }
        }
        self.first = last;
        self.records.clear();
        self.together.clear();
        self.cut.clear();
        (self.written, self.synced, self.is_busy, self.stalls_until) = (last, last, false, 0);
        kept < last
    }

    /// Loses some slots, of which nothing outlives the process that just ended.
    pub(crate) fn lose_slots(&mut self, is_lost: impl Fn(Slot) -> bool) {
        debug_assert!(self.records.is_empty(), "the process has ended");
        self.slots.retain(|&slot, _| !is_lost(slot));
        self.branches.retain(|&slot, _| !is_lost(slot));
    }

    /// Loses everything.
    pub(crate) fn lose_everything(&mut self) {
        let last = self.last();
        *self = Self { first: last, written: last, synced: last, ..Self::default() };
    }

    /// Removes incompletely arrived cells when a node starts, unless a planted bug `believes` in them.
    pub(crate) fn remove_unfinished(&mut self, believes: bool) {
        self.slots.retain(|_, stored| believes || !stored.is_arriving);
        self.slots.values_mut().for_each(|stored| stored.is_arriving = false);
    }

    /// What a node finds when it starts: the cells, and the log of each slot after them.
    pub(crate) fn found(&self) -> Result<Vec<(Cells, Found)>, String> {
        let found = self.slots.iter().map(|(&slot, stored)| {
            let behind = stored.log.iter().filter(|entry| entry.position.sequence > stored.base.sequence);
            let entries: Vec<_> = behind.cloned().collect();
            let mut last = stored.base;
            let follows = |entry: &Entry| {
                let before = std::mem::replace(&mut last, entry.position);
                last.sequence == before.sequence.next() && last.epoch >= before.epoch
            };
            if !entries.iter().all(follows) {
                return Err(format!("slot {}: the log does not follow the cells at {}", slot.0, stored.base));
            }
            let cells =
                Cells { slot, position: stored.base, time_ms: stored.time_ms, state: stored.state.clone() };
            let branch = self.branches.get(&slot).copied().unwrap_or_default();
            Ok((cells, Found { slot, base: stored.base, base_time_ms: stored.time_ms, branch, entries }))
        });
        found.collect()
    }
}
