//! The disk of a node: what is written, what is synced, and what is left of it when the node dies.
//!
//! Everything for all slots goes to one file, in order, as records; slots are what the records up to a place
//! make of them. Entries go there together, behind all else that came of the same input: what of them is
//! committed already is applied before.
//!
//! Invariant: what is left is the synced records and some beginning of those behind them, the last of which
//! may be torn.

use crate::cells::State;
use crate::queue::Cells;
use atoll_replica::{Entry, Found, LogRun, Position, Sequence, Slot};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is written.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// Entries behind a place; what was there is gone.
    Log { slot: Slot, after: Position, entries: Vec<Entry>, run: LogRun },
    /// The cells as they are behind an entry.
    Checkpoint(Box<Cells>),
    /// Cells that came from elsewhere, in place of everything.
    Installed(Box<Cells>, LogRun),
    /// Everything of the slot is gone: cells come from elsewhere one after the other.
    Emptied(Slot),
    /// Some of those cells.
    Part(Box<Cells>),
    /// The log up to a place is not needed any more.
    Trimmed { slot: Slot, through: Sequence },
    /// Everything of the slot is gone.
    Forgotten(Slot),
}

/// What the records make of a slot.
#[derive(Clone, Debug, Default)]
struct Stored {
    /// Whether cells are on their way, so that those that are there count for nothing.
    is_arriving: bool,
    base: Position,
    time_ms: u64,
    state: State,
    log: Vec<Entry>,
}

/// A disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// What the records before `first` make.
    slots: BTreeMap<Slot, Stored>,
    records: VecDeque<Record>,
    first: u64,
    /// Entries that become records together, and the slots out of which they take others.
    together: Vec<Record>,
    cut: BTreeSet<Slot>,
    /// How many records, ever, are written.
    pub(crate) written: u64,
    /// How many are synced.
    pub(crate) synced: u64,
    /// Whether records are on their way.
    pub(crate) is_busy: bool,
    /// Until when it does not answer.
    pub(crate) stalls_until: u64,
}

impl Disk {
    /// How many records there are, ever.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// The same once those are there that become records together.
    pub(crate) fn coming(&self) -> u64 {
        self.last() + self.together.len() as u64
    }

    pub(crate) fn append(&mut self, record: Record) {
        self.settle();
        self.records.push_back(record);
    }

    /// Entries behind a place, and whether there are others to be taken out for them.
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

    /// Whether entries are to be taken out of a slot, and still are there.
    pub(crate) fn is_cut(&self, slot: Slot) -> bool {
        self.cut.contains(&slot)
    }

    /// The cells as they are behind what was applied, whatever of the log is still to become records.
    pub(crate) fn write_cells(&mut self, cells: Cells) {
        self.records.push_back(Record::Checkpoint(Box::new(cells)));
    }

    /// Nothing more comes of this input.
    pub(crate) fn settle(&mut self) {
        self.records.extend(self.together.drain(..));
        self.cut.clear();
    }

    /// The last entry of each slot in records `from` to `through`, also that of cells: that is what is logged
    /// with them.
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

    /// Records are synced up to there.
    pub(crate) fn sync(&mut self, through: u64) {
        self.synced = self.synced.max(through);
        self.written = self.written.max(through);
        self.fold(self.synced);
    }

    /// The entry up to which the synced cells of a slot are, if they have not become those of another copy
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
                self.slots.insert(slot, Stored { base, time_ms, state, ..Stored::default() });
            }
            Record::Emptied(slot) => {
                self.slots.insert(slot, Stored { is_arriving: true, ..Stored::default() });
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
        }
    }

    /// The process dies: what was written stays, and perhaps some of what was on its way. Whether anything
    /// went.
    pub(crate) fn die(&mut self, random: &mut Rng) -> bool {
        self.lose(self.written, random)
    }

    /// The power goes: what was synced stays, and perhaps some of the rest. Whether anything went.
    pub(crate) fn lose_power(&mut self, random: &mut Rng) -> bool {
        self.lose(self.synced, random)
    }

    fn lose(&mut self, kept: u64, random: &mut Rng) -> bool {
        let last = self.last();
        // Often all or nothing of what may go: that is where most can go wrong.
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

    /// Nothing is left.
    pub(crate) fn lose_everything(&mut self) {
        let last = self.last();
        *self = Self { first: last, written: last, synced: last, ..Self::default() };
    }

    /// Cells that did not all come go when a node starts, unless somebody `believes` in them.
    pub(crate) fn remove_unfinished(&mut self, believes: bool) {
        self.slots.retain(|_, stored| believes || !stored.is_arriving);
        self.slots.values_mut().for_each(|stored| stored.is_arriving = false);
    }

    /// What is there when a node starts: the cells, and the log of each slot behind them.
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
            Ok((cells, Found { slot, base: stored.base, base_time_ms: stored.time_ms, entries }))
        });
        found.collect()
    }
}
