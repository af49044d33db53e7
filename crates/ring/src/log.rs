//! The logs of a node's slots, in a tree of the engine: what is logged and not applied yet.
//!
//! The engine keeps the order of all its commits over all trees, and what a crash takes is an end of that
//! order. So an entry may be deleted as soon as it is applied: whatever survives holds either the entry or
//! what it did. It is the other way round where entries of another primary were cut off: they have to be gone
//! first, or would be found behind cells that do not follow from them.
//!
//! What comes in one round of the loop is written together: a commit of the engine costs as much as several
//! entries.
//!
//! Invariant: nothing is said to be logged before [`SlotLog::write`].
//! Invariant: nothing is applied to the cells of a slot before what was taken out of its log is gone, which
//! [`SlotLog::write_what_is_gone`] sees to.
//! Invariant: within a slot, entries follow each other without gaps behind the last one applied to the cells.

use crate::peer::codec::{Reader, put};
use atoll_engine::{Direction, Durability, Engine, EngineError, Tree, WriteBatch};
use atoll_errors::ErrorKind;
use atoll_keyspace::Applied;
use atoll_replica::{Entry, Epoch, Found, Position, Sequence, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use thiserror::Error;

/// The logs of all slots of a node.
pub(crate) struct SlotLog {
    engine: Engine,
    tree: Tree,
    /// What is to be written with the next commit, in its order, and about how many bytes that are.
    batch: WriteBatch,
    batch_bytes: usize,
    /// Slots of which it takes entries out that were not applied.
    cut: BTreeSet<Slot>,
    /// For each slot the first place that may still be in the tree, and the last that is.
    kept: BTreeMap<Slot, Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    first: Sequence,
    last: Sequence,
}

/// A log that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An entry is none.
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

/// Applied entries of a slot that may wait in the tree to be deleted together.
const TRIM_TOGETHER: u64 = 64;

/// Bytes of entries that wait to be written together.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

impl SlotLog {
    /// The logs in the tree of this name, which is made if there is none.
    pub(crate) fn open(engine: &Engine, name: &str) -> Result<Self, LogError> {
        let tree = engine.tree(name)?;
        let (batch, batch_bytes, cut, kept) = Default::default();
        Ok(Self { engine: engine.clone(), tree, batch, batch_bytes, cut, kept })
    }

    /// What is logged behind what was applied, for every slot that has either.
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
        // Also those that are applied and were on their way out: they go with the next ones.
        let kept = last.into_iter().map(|(slot, last)| (slot, Kept { first: Sequence(1), last }));
        self.kept.extend(kept);
        Ok(found.into_values().collect())
    }

    /// Adds entries behind a place, in place of what was there, with the next [write](Self::write).
    pub(crate) fn append(&mut self, slot: Slot, after: Position, entries: &[Entry]) {
        let first = after.sequence.next();
        let kept = self.kept.entry(slot).or_insert(Kept { first, last: after.sequence });
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

    /// Whether so much came that it is to be written before more does.
    pub(crate) fn is_long(&self) -> bool {
        self.batch_bytes > TOGETHER_BYTES_MAX
    }

    /// Writes what came since the last time: it survives the end of the process from then on. If that fails
    /// nothing happened, and it may be tried again.
    pub(crate) fn write(&mut self) -> Result<(), LogError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.engine.write(&self.batch, Durability::Flushed)?;
        match self.batch_bytes > TOGETHER_BYTES_MAX {
            true => self.batch = WriteBatch::new(),
            false => self.batch.clear(),
        }
        self.batch_bytes = 0;
        self.cut.clear();
        Ok(())
    }

    /// To be called before an entry is applied: writes what came, if that takes entries out of this slot
    /// which others took the place of. Mostly it does not, and the entries of a round are written together.
    pub(crate) fn write_what_is_gone(&mut self, slot: Slot) -> Result<(), LogError> {
        if self.cut.contains(&slot) { self.write() } else { Ok(()) }
    }

    /// Lets go of what is applied, some at a time, with the next [write](Self::write): whatever is there once
    /// more after a crash is known to be applied.
    pub(crate) fn applied(&mut self, slot: Slot, through: Sequence) {
        let Some(kept) = self.kept.get_mut(&slot) else { return };
        if through.0 < kept.first.0 + TRIM_TOGETHER && through < kept.last {
            return;
        }
        let (from, to) = (name(slot, kept.first), name(slot, through));
        kept.first = through.next();
        if kept.last <= through {
            self.kept.remove(&slot);
        }
        self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
    }

    /// Lets go of everything of some slots, with the next [write](Self::write): cells that take the place of
    /// their own must not meet their entries.
    pub(crate) fn forget(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.kept.remove(&slot);
            self.cut.insert(slot);
            let (from, to) = (name(slot, Sequence(0)), name(slot, Sequence(u64::MAX)));
            self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
        }
    }
}

/// Entries at or below what is applied were on their way out; those behind it follow each other.
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
