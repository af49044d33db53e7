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
//! ```text
//! slot sequence                  epoch time body         an entry
//! slot sequence number count     epoch time part         the first part of a longer one, with number 0
//! slot sequence number count     part                    each further part
//! ```
//! In names numbers are big-endian, so that records lie in the order of the log. Beside them a tree of its
//! own has the branch of each copy (`log/branches.rs`).
//!
//! Invariant: no entry is reported as logged before [`SlotLog::write`].
//! Invariant: nothing is applied to the cells of a slot before entries that were cut from its log are
//! deleted, which [`SlotLog::write_truncation`] ensures.
//! Invariant: within a slot, entries follow the last one applied to the cells without gaps.
//! Invariant: an entry may be of any length: what a client may send never is too long to be logged, because
//! the node would end, and every node that leads the slot after it.

mod branches;

use crate::peer::codec::{Reader, put};
use atoll_engine::{Direction, Durability, Engine, EngineError, KEY_MAX, Tree, VALUE_MAX, WriteBatch};
use atoll_errors::ErrorKind;
use atoll_keyspace::{Applied, SLOTS};
use atoll_replica::{Entry, Epoch, Found, Position, Sequence, Slot, Version};
use branches::Branches;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
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
    branches: Branches,
    /// A body that is longer is stored in several parts.
    part_bytes: usize,
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

/// Bytes of an entry before its body: the epoch and the date.
const HEAD_BYTES: usize = 16;

/// Longest body, or part of one, that is stored as one value. Earlier builds stored every entry as one value,
/// so they can read each one that they could have written.
const PART_BYTES: usize = (64 << 20) - HEAD_BYTES;

/// Bytes of the name of an entry, and of the name of a part of one.
const NAME_BYTES: usize = 12;
const PART_NAME_BYTES: usize = NAME_BYTES + 8;

const _: () = assert!(
    (HEAD_BYTES + PART_BYTES) as u64 <= VALUE_MAX && PART_NAME_BYTES <= KEY_MAX,
    "every record of the log is one that the engine takes"
);

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
            branches: Branches::open(engine, name)?,
            part_bytes: PART_BYTES,
        })
    }

    /// Reads the logged entries behind those applied, for every slot that has either.
    pub(crate) fn found(
        &mut self,
        applied: impl Iterator<Item = (Slot, Applied, u64)>,
    ) -> Result<Vec<Found>, LogError> {
        self.write()?;
        let mut found: BTreeMap<Slot, Found> = applied
            .map(|(slot, applied, base_time_ms)| (slot, found_at(slot, position_of(applied), base_time_ms)))
            .collect();
        let (mut records, mut wrong, mut last) = (Records::default(), None, BTreeMap::new());
        self.tree.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, |name, value| {
            let read = value.bytes().map_err(LogError::from).and_then(|bytes| records.take(name, &bytes));
            let added = read.and_then(|complete| {
                let Some((slot, entry)) = complete else { return Ok(()) };
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
        records.end()?;
        // Includes applied entries that were still to be deleted: they are deleted with the next ones.
        let kept = last.into_iter().map(|(slot, last)| (slot, LoggedRange { first: Sequence(1), last }));
        self.ranges.extend(kept);
        self.branches.read()?;
        self.branches.keep(|slot| found.contains_key(&slot), &mut self.batch);
        found.values_mut().for_each(|found| found.branch = self.branches.of(found.slot));
        Ok(found.into_values().collect())
    }

    /// Appends entries after a position, in place of what followed it, with the next [write](Self::write).
    pub(crate) fn append(&mut self, slot: Slot, after: Position, entries: &[Entry]) {
        let first = after.sequence.next();
        let kept = self.ranges.entry(slot).or_insert(LoggedRange { first, last: after.sequence });
        if kept.last > after.sequence {
            let (from, to) = (name(slot, first), last_name(slot, kept.last));
            self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
            self.cut.insert(slot);
        }
        kept.last = entries.last().map_or(after.sequence, |entry| entry.position.sequence);
        kept.first = kept.first.min(first);
        let mut value = Vec::new();
        entries.iter().for_each(|entry| self.add_to_batch(slot, entry, &mut value));
    }

    /// Adds an entry to the batch: as one record, or as several if it is too long for one. `value` is a
    /// buffer.
    fn add_to_batch(&mut self, slot: Slot, entry: &Entry, value: &mut Vec<u8>) {
        let (front, rest) = entry.body.split_at(entry.body.len().min(self.part_bytes));
        value.clear();
        put(entry.position.epoch.0, value);
        put(entry.time_ms, value);
        value.extend_from_slice(front);
        self.batch_bytes += value.len() + rest.len();
        let sequence = entry.position.sequence;
        if rest.is_empty() {
            return self.batch.put(&self.tree, &name(slot, sequence), value);
        }
        let count = 1 + rest.len().div_ceil(self.part_bytes) as u32;
        self.batch.put(&self.tree, &part_name(slot, sequence, 0, count), value);
        for (number, part) in (1..).zip(rest.chunks(self.part_bytes)) {
            self.batch.put(&self.tree, &part_name(slot, sequence, number, count), part);
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

    /// Syncs everything that was written to the store.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        Ok(self.engine.sync()?)
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
        let (from, to) = (name(slot, kept.first), last_name(slot, through));
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
            let (from, to) = (name(slot, Sequence(0)), last_name(slot, Sequence(u64::MAX)));
            self.batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Included(&to)));
        }
    }

    /// Records with the next [write](Self::write) of which branch the copy of a slot is. Cells of a former
    /// branch must be gone, by a commit of their own.
    pub(crate) fn record_branch(&mut self, slot: Slot, branch: Version) {
        self.branches.record(slot, branch, &mut self.batch);
    }
}

/// Entries up to the last applied one were still to be deleted; those after it must follow each other.
fn add(found: &mut BTreeMap<Slot, Found>, slot: Slot, entry: Entry) -> Result<(), LogError> {
    let found = found.entry(slot).or_insert_with(|| found_at(slot, Position::default(), 0));
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

/// A slot whose cells include everything up to this entry.
fn found_at(slot: Slot, base: Position, base_time_ms: u64) -> Found {
    Found { slot, base, base_time_ms, branch: Version::default(), entries: Vec::new() }
}

pub(crate) fn position_of(applied: Applied) -> Position {
    Position { epoch: Epoch(applied.epoch), sequence: Sequence(applied.sequence) }
}

/// The names of all entries of a keyspace are from the first of these on, and before the second.
pub(crate) fn names_of(keyspace: usize) -> ([u8; 4], [u8; 4]) {
    let first = |keyspace: usize| (keyspace as u32 * u32::from(SLOTS)).to_be_bytes();
    (first(keyspace), first(keyspace + 1))
}

fn name(slot: Slot, sequence: Sequence) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name[..4].copy_from_slice(&slot.0.to_be_bytes());
    name[4..].copy_from_slice(&sequence.0.to_be_bytes());
    name
}

/// The name of a part of an entry; there are `count` parts, from 0 on.
fn part_name(slot: Slot, sequence: Sequence, number: u32, count: u32) -> [u8; PART_NAME_BYTES] {
    let mut part = [0; PART_NAME_BYTES];
    part[..NAME_BYTES].copy_from_slice(&name(slot, sequence));
    part[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&number.to_be_bytes());
    part[NAME_BYTES + 4..].copy_from_slice(&count.to_be_bytes());
    part
}

/// No record of this entry, or of one before it, has a later name, and all of later entries do.
fn last_name(slot: Slot, sequence: Sequence) -> [u8; PART_NAME_BYTES] {
    part_name(slot, sequence, u32::MAX, u32::MAX)
}

/// The number of a part, and how many there are.
type PartOf = (u32, u32);

fn read_name(name: &[u8]) -> Result<(Slot, Sequence, Option<PartOf>), LogError> {
    let (slot, rest) = name.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let slot = Slot(u32::from_be_bytes(*slot));
    let damaged = || LogError::Damaged { slot: slot.0, problem: "the name of an entry has a wrong length" };
    let (sequence, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    let sequence = Sequence(u64::from_be_bytes(*sequence));
    if rest.is_empty() {
        return Ok((slot, sequence, None));
    }
    let (number, count) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
    let count: [u8; 4] = count.try_into().map_err(|_| damaged())?;
    Ok((slot, sequence, Some((u32::from_be_bytes(*number), u32::from_be_bytes(count)))))
}

/// Puts records together to entries, in the order of their names.
#[derive(Default)]
struct Records {
    begun: Option<BegunEntry>,
}

/// An entry of which some parts were read.
struct BegunEntry {
    slot: Slot,
    position: Position,
    time_ms: u64,
    body: Vec<u8>,
    /// The next part, and how many there are.
    next: PartOf,
}

/// Why parts do not make an entry.
const LACKS_PART: &str = "a part of an entry is missing";

impl Records {
    /// Takes a record. Returns the entry that is complete with it, if one is.
    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<Option<(Slot, Entry)>, LogError> {
        let (slot, sequence, part) = read_name(name)?;
        let mut begun = match (self.begun.take(), part) {
            (None, None | Some((0, _))) => {
                let damaged = |_| LogError::Damaged { slot: slot.0, problem: "an entry is too short" };
                let mut reader = Reader::of(value);
                let epoch = Epoch(reader.number().map_err(damaged)?);
                let (position, time_ms) = (Position { epoch, sequence }, reader.number().map_err(damaged)?);
                let body = value.get(HEAD_BYTES..).unwrap_or_default();
                let Some(part) = part else {
                    return Ok(Some((slot, Entry { position, time_ms, body: body.into() })));
                };
                BegunEntry { slot, position, time_ms, body: body.to_vec(), next: part }
            }
            (Some(mut begun), Some(part))
                if (begun.slot, begun.position.sequence, begun.next) == (slot, sequence, part) =>
            {
                begun.body.extend_from_slice(value);
                begun
            }
            _ => return Err(LogError::Damaged { slot: slot.0, problem: LACKS_PART }),
        };
        begun.next.0 += 1;
        if begun.next.0 < begun.next.1 {
            self.begun = Some(begun);
            return Ok(None);
        }
        let BegunEntry { slot, position, time_ms, body, .. } = begun;
        Ok(Some((slot, Entry { position, time_ms, body: body.into() })))
    }

    /// Must be called behind the last record.
    fn end(self) -> Result<(), LogError> {
        match self.begun {
            Some(BegunEntry { slot, .. }) => Err(LogError::Damaged { slot: slot.0, problem: LACKS_PART }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
