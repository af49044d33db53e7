//! The logs of a node's slots, in a tree of the engine: entries that are logged and not applied yet.
//!
//! The engine orders its commits across all trees, and a crash loses only a suffix of that order. So an entry
//! may be deleted as soon as it is applied: whatever survives holds either the entry or its effect.
//! Truncation is the opposite case: entries of another primary must be deleted first, or a crash could leave
//! them behind cells that do not follow from them.
//!
//! The entries of one round of the loop are written together, because a commit of the engine costs as much as
//! several entries.
//!
//! Invariant: no entry is reported as logged before [`SlotLog::write`].
//! Invariant: nothing is applied to the cells of a slot before entries that were cut from its log are
//! deleted, which [`SlotLog::write_truncation`] ensures.
//! Invariant: within a slot, entries follow the last one applied to the cells without gaps.

use crate::peer::codec::{Reader, put};
use atoll_engine::{Direction, Durability, Engine, EngineError, Tree, WriteBatch};
use atoll_errors::ErrorKind;
use atoll_keyspace::{Applied, SLOTS};
use atoll_replica::{Entry, Epoch, Found, Position, Sequence, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use thiserror::Error;

/// The logs of all slots of a node.
pub(crate) struct SlotLog {
    engine: Engine,
    tree: Tree,
    /// Operations of the next commit, in order, and roughly their bytes.
    batch: WriteBatch,
    batch_bytes: usize,
    /// Slots of which the batch deletes entries that were not applied.
    cut: BTreeSet<Slot>,
    /// For each slot the first sequence that may still be in the tree, and the last one that is.
    ranges: BTreeMap<Slot, LoggedRange>,
}

#[derive(Clone, Copy, Debug)]
struct LoggedRange {
    first: Sequence,
    last: Sequence,
}

/// The log cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An entry is malformed or does not follow the one before.
    #[error("the log of slot {slot} is damaged: {problem}")]
    Damaged {
        /// The slot.
        slot: u32,
        /// What is wrong.
        problem: &'static str,
    },
}

impl LogError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine(error) => error.kind(),
            Self::Damaged { .. } => ErrorKind::Corrupt,
        }
    }
}

/// Applied entries of a slot that may stay in the tree until they are deleted together.
const TRIM_ENTRIES: u64 = 64;

/// Most bytes of entries that wait to be written together.
const BATCH_BYTES_MAX: usize = 1 << 20;

impl SlotLog {
    /// Opens the logs in the tree with this name, or makes the tree.
    pub(crate) fn open(engine: &Engine, name: &str) -> Result<Self, LogError> {
        let tree = engine.tree(name)?;
        Ok(Self {
            engine: engine.clone(),
            tree,
            batch: WriteBatch::new(),
            batch_bytes: 0,
            cut: BTreeSet::new(),
            ranges: BTreeMap::new(),
        })
    }

    /// Reads the logged entries behind those applied, for every slot that has either.
    pub(crate) fn found(
        &mut self,
        applied: impl Iterator<Item = (Slot, Applied, u64)>,
    ) -> Result<Vec<Found>, LogError> {
        self.write()?;
        let mut found: BTreeMap<Slot, Found> = applied
            .map(|(slot, applied, base_time_ms)| {
                (slot, Found { slot, base: position_of(applied), base_time_ms, entries: Vec::new() })
            })
            .collect();
        let (mut wrong, mut last) = (None, BTreeMap::new());
        self.tree.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, |name, value| {
            let read = value.bytes().map_err(LogError::from).and_then(|bytes| read_entry(name, &bytes));
            let added = read.and_then(|(slot, entry)| {
                last.insert(slot, entry.position.sequence);
                add(&mut found, slot, entry)
            });
            match added {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    wrong = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        // Includes applied entries that were still to be deleted: they are deleted with the next ones.
        let kept = last.into_iter().map(|(slot, last)| (slot, LoggedRange { first: Sequence(1), last }));
        self.ranges.extend(kept);
        Ok(found.into_values().collect())
    }

    /// Appends entries after a position, in place of what followed it, with the next [write](Self::write).
    pub(crate) fn append(&mut self, slot: Slot, after: Position, entries: &[Entry]) {
        let first = after.sequence.next();
        let kept = self.ranges.entry(slot).or_insert(LoggedRange { first, last: after.sequence });
        if kept.last > after.sequence {
            let (from, to) = (name(slot, first), name(slot, kept.last));
            self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
            self.cut.insert(slot);
        }
        kept.last = entries.last().map_or(after.sequence, |entry| entry.position.sequence);
        kept.first = kept.first.min(first);
        let mut value = Vec::new();
        for entry in entries {
            value.clear();
            put(entry.position.epoch.0, &mut value);
            put(entry.time_ms, &mut value);
            value.extend_from_slice(&entry.body);
            self.batch.put(&self.tree, &name(slot, entry.position.sequence), &value);
            self.batch_bytes += value.len();
        }
    }

    /// Whether the batch is so large that it is to be written before more is added.
    pub(crate) fn is_long(&self) -> bool {
        self.batch_bytes > BATCH_BYTES_MAX
    }

    /// Writes the batch, which then survives the end of the process. On an error nothing happened, and the
    /// write may be tried again.
    pub(crate) fn write(&mut self) -> Result<(), LogError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.engine.write(&self.batch, Durability::Flushed)?;
        match self.batch_bytes > BATCH_BYTES_MAX {
            true => self.batch = WriteBatch::new(),
            false => self.batch.clear(),
        }
        self.batch_bytes = 0;
        self.cut.clear();
        Ok(())
    }

    /// Must be called before an entry is applied: writes the batch if it deletes entries of this slot that
    /// were superseded. Usually it does not, and the entries of a round are written together.
    pub(crate) fn write_truncation(&mut self, slot: Slot) -> Result<(), LogError> {
        if self.cut.contains(&slot) { self.write() } else { Ok(()) }
    }

    /// Deletes applied entries, several at a time, with the next [write](Self::write). An entry that
    /// reappears after a crash is known to be applied.
    pub(crate) fn applied(&mut self, slot: Slot, through: Sequence) {
        let Some(kept) = self.ranges.get_mut(&slot) else { return };
        if through.0 < kept.first.0 + TRIM_ENTRIES && through < kept.last {
            return;
        }
        let (from, to) = (name(slot, kept.first), name(slot, through));
        kept.first = through.next();
        if kept.last <= through {
            self.ranges.remove(&slot);
        }
        self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
    }

    /// Deletes all entries of some slots with the next [write](Self::write): cells that replace a slot's own
    /// must not meet its entries.
    pub(crate) fn forget(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.ranges.remove(&slot);
            self.cut.insert(slot);
            let (from, to) = (name(slot, Sequence(0)), name(slot, Sequence(u64::MAX)));
            self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
        }
    }
}

/// Entries up to the last applied one were still to be deleted; those after it must follow each other.
fn add(found: &mut BTreeMap<Slot, Found>, slot: Slot, entry: Entry) -> Result<(), LogError> {
    let fresh = || Found { slot, base: Position::default(), base_time_ms: 0, entries: Vec::new() };
    let found = found.entry(slot).or_insert_with(fresh);
    let last = found.entries.last().map_or(found.base, |last| last.position);
    if entry.position.sequence <= found.base.sequence {
        return Ok(());
    }
    if entry.position.sequence != last.sequence.next() || entry.position.epoch < last.epoch {
        return Err(LogError::Damaged { slot: slot.0, problem: "an entry does not follow the one before" });
    }
    found.entries.push(entry);
    Ok(())
}

pub(crate) fn position_of(applied: Applied) -> Position {
    Position { epoch: Epoch(applied.epoch), sequence: Sequence(applied.sequence) }
}

/// The names of all entries of a keyspace are from the first of these on, and before the second.
pub(crate) fn names_of(keyspace: usize) -> ([u8; 4], [u8; 4]) {
    let first = |keyspace: usize| (keyspace as u32 * u32::from(SLOTS)).to_be_bytes();
    (first(keyspace), first(keyspace + 1))
}

fn name(slot: Slot, sequence: Sequence) -> [u8; 12] {
    let mut name = [0; 12];
    name[..4].copy_from_slice(&slot.0.to_be_bytes());
    name[4..].copy_from_slice(&sequence.0.to_be_bytes());
    name
}

fn read_entry(name: &[u8], value: &[u8]) -> Result<(Slot, Entry), LogError> {
    let (slot, sequence) = name.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let slot = u32::from_be_bytes(*slot);
    let damaged = |problem| LogError::Damaged { slot, problem };
    let sequence = sequence.first_chunk::<8>().ok_or(damaged("the name of an entry is too short"))?;
    let mut reader = Reader::of(value);
    let mut number = || reader.number().map_err(|_| damaged("an entry is too short"));
    let (epoch, time_ms) = (Epoch(number()?), number()?);
    let position = Position { epoch, sequence: Sequence(u64::from_be_bytes(*sequence)) };
    Ok((Slot(slot), Entry { position, time_ms, body: Arc::from(value.get(16..).unwrap_or_default()) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;

    fn position(epoch: u64, sequence: u64) -> Position {
        Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    fn entries(epoch: u64, sequences: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
        let entry = |sequence| Entry { position: position(epoch, sequence), time_ms: 5, body: [1, 2].into() };
        sequences.map(entry).collect()
    }

    fn open(engine: &Engine, applied: u64) -> (SlotLog, Vec<Found>) {
        let mut log = SlotLog::open(engine, "log").unwrap();
        let applied = (Slot(3), Applied { epoch: 1, sequence: applied }, 4);
        let found = log.found([applied].into_iter()).unwrap();
        (log, found)
    }

    #[test]
    fn what_was_logged_and_not_applied_is_found_again() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let (mut log, found) = open(&engine, 0);
        assert!(found[0].entries.is_empty());
        log.append(Slot(3), position(0, 0), &entries(1, 1..=3));
        assert!(open(&engine, 2).1[0].entries.is_empty(), "nothing is written before that is asked for");
        log.append(Slot(3), position(1, 3), &entries(1, 4..=5));
        log.write().unwrap();
        assert_eq!(open(&engine, 2).1[0].entries, entries(1, 3..=5));
        log.append(Slot(3), position(1, 3), &entries(2, 4..=4));
        log.write().unwrap();
        let expected = [entries(1, 1..=3), entries(2, 4..=4)].concat();
        assert_eq!(open(&engine, 0).1[0].entries, expected, "what another primary has not is gone");
    }

    #[test]
    fn what_is_applied_goes_and_nothing_else_does() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let (mut log, _) = open(&engine, 0);
        log.append(Slot(3), position(0, 0), &entries(1, 1..=100));
        log.append(Slot(4), position(0, 0), &entries(1, 1..=1));
        log.applied(Slot(3), Sequence(80));
        log.write().unwrap();
        let count = |engine: &Engine| engine.tree("log").unwrap().len().unwrap();
        assert_eq!(count(&engine), 21);
        assert_eq!(open(&engine, 80).1[0].entries, entries(1, 81..=100));
        log.append(Slot(4), position(1, 1), &entries(1, 2..=2));
        log.applied(Slot(3), Sequence(100));
        log.forget(&[Slot(4)]);
        log.write().unwrap();
        assert_eq!(count(&engine), 0, "what was on its way is forgotten with the rest");
    }

    #[test]
    fn what_was_on_its_way_out_when_a_node_ended_goes_with_what_is_applied_next() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let (mut log, _) = open(&engine, 0);
        log.append(Slot(3), position(0, 0), &entries(1, 1..=3));
        log.write().unwrap();
        let (mut log, found) = open(&engine, 3);
        assert!(found[0].entries.is_empty());
        log.append(Slot(3), position(1, 3), &entries(1, 4..=4));
        log.applied(Slot(3), Sequence(4));
        log.write().unwrap();
        assert_eq!(engine.tree("log").unwrap().len().unwrap(), 0);
    }

    #[test]
    fn a_gap_is_damage() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let (mut log, _) = open(&engine, 0);
        log.append(Slot(3), position(1, 1), &entries(1, 2..=3));
        log.write().unwrap();
        let mut log = SlotLog::open(&engine, "log").unwrap();
        assert!(matches!(log.found(std::iter::empty()), Err(LogError::Damaged { slot: 3, .. })));
    }
}
