//! The durable state of a member, and the facts that change it, with their encoding.
//!
//! Invariant: the state follows from the facts alone, in their order; the whole state written as facts yields
//! the same state again.
//! Invariant: entries are removed from the front only up to what a snapshot has that was kept before. So
//! after any number of facts, the snapshot and the entries together have everything that was applied.

use crate::codec::{Coded, Damaged, Reader, RingId};
use crate::types::{EntryOf, LogIdOf, SeatId, SnapshotBytes, SnapshotMetaOf, SnapshotOf, VoteOf};
use std::collections::VecDeque;
use std::sync::Arc;

/// Longest snapshot that is kept or received, in bytes. A table of 2^20 slots takes some 20 MB.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 128 << 20;

/// A spare capacity for entries that is left alone, because it will soon be used again.
const SPARE_ENTRIES: usize = 1_024;

/// A snapshot: everything decided up to an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptSnapshot {
    pub(crate) last: LogIdOf,
    pub(crate) meta: SnapshotMetaOf,
    pub(crate) bytes: SnapshotBytes,
}

impl KeptSnapshot {
    /// A snapshot as openraft has it; none if it is a snapshot of nothing.
    pub(crate) fn of(meta: SnapshotMetaOf, bytes: SnapshotBytes) -> Option<Self> {
        Some(Self { last: meta.last_log_id?, meta, bytes })
    }

    /// The same for openraft.
    pub(crate) fn shared(&self) -> SnapshotOf {
        SnapshotOf { meta: self.meta.clone(), snapshot: Box::new(self.bytes.clone()) }
    }
}

/// The durable state of a member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DurableState {
    pub(crate) seat: SeatId,
    pub(crate) ring: Option<RingId>,
    pub(crate) vote: Option<VoteOf>,
    /// The newest snapshot.
    pub(crate) snapshot: Option<KeptSnapshot>,
    pub(crate) purged: Option<LogIdOf>,
    /// Contiguous, starting after `purged`.
    pub(crate) entries: VecDeque<EntryOf>,
}

/// One change of the durable state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fact {
    /// Resets everything to a new seat.
    Seat(SeatId),
    Ring(RingId),
    Vote(VoteOf),
    /// Appends an entry.
    Entry(EntryOf),
    /// Removes the entries from this index on.
    Cut(u64),
    /// Removes the entries up to this one, which a snapshot has.
    Purged(LogIdOf),
    /// Keeps a snapshot, unless there is a newer one.
    Snapshot(KeptSnapshot),
    /// Removes all entries: the log goes on behind this one, which a snapshot has.
    Anew(LogIdOf),
}

impl DurableState {
    pub(crate) fn new(seat: SeatId) -> Self {
        Self { seat, ring: None, vote: None, snapshot: None, purged: None, entries: VecDeque::new() }
    }

    pub(crate) fn last(&self) -> Option<LogIdOf> {
        self.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    /// How many entries come before this index.
    pub(crate) fn before(&self, index: u64) -> usize {
        let first = self.entries.front().map_or(0, |entry| entry.log_id.index);
        let count = usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX);
        count.min(self.entries.len())
    }

    /// Whether the log has this entry, or had it before it was removed.
    pub(crate) fn has(&self, log_id: LogIdOf) -> bool {
        let is_purged = self.purged.is_some_and(|purged| purged.index >= log_id.index);
        let entry = self.entries.get(self.before(log_id.index));
        is_purged || entry.is_some_and(|entry| entry.log_id == log_id)
    }

    /// The index of the first entry that the snapshot does not have.
    pub(crate) fn covered(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.last.index.saturating_add(1))
    }

    /// Whether a snapshot is newer than the one that is kept.
    pub(crate) fn is_news(&self, snapshot: &KeptSnapshot) -> bool {
        snapshot.last.index >= self.covered()
    }

    fn check_covered(&self, log_id: LogIdOf) -> Result<(), &'static str> {
        let is_covered = log_id.index < self.covered();
        if is_covered { Ok(()) } else { Err("entries are removed that no snapshot has") }
    }

    /// Applies a fact; an error says what is wrong with it.
    pub(crate) fn take(&mut self, fact: Fact) -> Result<(), &'static str> {
        match fact {
            Fact::Seat(seat) => *self = Self::new(seat),
            Fact::Ring(ring) => self.ring = Some(ring),
            Fact::Vote(vote) => self.vote = Some(vote),
            Fact::Entry(entry) => {
                let next = self.last().map_or(0, |last| last.index.saturating_add(1));
                if entry.log_id.index != next {
                    return Err("an entry is missing");
                }
                self.entries.push_back(entry);
            }
            Fact::Cut(index) => {
                let left = self.before(index);
                self.entries.truncate(left);
            }
            Fact::Purged(log_id) => {
                self.check_covered(log_id)?;
                let gone = self.before(log_id.index.saturating_add(1));
                self.entries.drain(..gone);
                self.entries.shrink_to(self.entries.len() + SPARE_ENTRIES);
                self.purged = self.purged.max(Some(log_id));
            }
            Fact::Snapshot(snapshot) => {
                if self.is_news(&snapshot) {
                    self.snapshot = Some(snapshot);
                }
            }
            Fact::Anew(log_id) => {
                self.check_covered(log_id)?;
                self.entries = VecDeque::new();
                self.purged = Some(log_id);
            }
        }
        Ok(())
    }

    /// The whole state, as the facts of a new file.
    pub(crate) fn facts(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Fact::Seat(self.seat).put(&mut out);
        self.ring.into_iter().for_each(|ring| Fact::Ring(ring).put(&mut out));
        self.vote.into_iter().for_each(|vote| Fact::Vote(vote).put(&mut out));
        // Before what was removed: a reader accepts no gap that no snapshot has.
        self.snapshot.iter().for_each(|snapshot| put_snapshot(snapshot, &mut out));
        self.purged.into_iter().for_each(|purged| Fact::Purged(purged).put(&mut out));
        self.entries.iter().for_each(|entry| put_entry(entry, &mut out));
        out
    }
}

/// Encodes an entry as a fact.
pub(crate) fn put_entry(entry: &EntryOf, out: &mut Vec<u8>) {
    out.push(4);
    entry.put(out);
}

/// Encodes a snapshot as a fact.
fn put_snapshot(snapshot: &KeptSnapshot, out: &mut Vec<u8>) {
    out.push(7);
    snapshot.meta.put(out);
    (snapshot.bytes.0.len() as u64).put(out);
    out.extend_from_slice(&snapshot.bytes.0);
}

fn take_snapshot(from: &mut Reader<'_>) -> Result<KeptSnapshot, Damaged> {
    let meta = Coded::take(from)?;
    let count = from.count(1)?;
    if count > SNAPSHOT_BYTES_MAX {
        return Err(from.damaged("a snapshot that is too long"));
    }
    let bytes = SnapshotBytes(Arc::new(from.take(count)?.to_vec()));
    KeptSnapshot::of(meta, bytes).ok_or_else(|| from.damaged("a snapshot of nothing"))
}

impl Coded for Fact {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Seat(seat) => put(1, seat, out),
            Self::Ring(ring) => put(2, ring, out),
            Self::Vote(vote) => put(3, vote, out),
            Self::Entry(entry) => put_entry(entry, out),
            Self::Cut(index) => put(5, index, out),
            Self::Purged(log_id) => put(6, log_id, out),
            Self::Snapshot(snapshot) => put_snapshot(snapshot, out),
            Self::Anew(log_id) => put(8, log_id, out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.byte()? {
            1 => Self::Seat(Coded::take(from)?),
            2 => Self::Ring(Coded::take(from)?),
            3 => Self::Vote(Coded::take(from)?),
            4 => Self::Entry(Coded::take(from)?),
            5 => Self::Cut(Coded::take(from)?),
            6 => Self::Purged(Coded::take(from)?),
            7 => Self::Snapshot(take_snapshot(from)?),
            8 => Self::Anew(Coded::take(from)?),
            _ => return Err(from.damaged("an unknown fact")),
        })
    }
}

fn put(kind: u8, value: &impl Coded, out: &mut Vec<u8>) {
    out.push(kind);
    value.put(out);
}
