//! The durable state of a member, and the facts that change it, with their encoding.
//!
//! Invariant: the state follows from the facts alone, in their order; the whole state written as facts yields
//! the same state again.

use crate::codec::{Coded, Damaged, Reader, RingId};
use crate::types::{EntryOf, LogIdOf, SeatId, VoteOf};
use std::collections::VecDeque;

/// The durable state of a member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DurableState {
    pub(crate) seat: SeatId,
    pub(crate) ring: Option<RingId>,
    pub(crate) vote: Option<VoteOf>,
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
}

impl DurableState {
    pub(crate) fn new(seat: SeatId) -> Self {
        Self { seat, ring: None, vote: None, purged: None, entries: VecDeque::new() }
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
                let gone = self.before(log_id.index.saturating_add(1));
                self.entries.drain(..gone);
                self.purged = self.purged.max(Some(log_id));
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

impl Coded for Fact {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Seat(seat) => put(1, seat, out),
            Self::Ring(ring) => put(2, ring, out),
            Self::Vote(vote) => put(3, vote, out),
            Self::Entry(entry) => put_entry(entry, out),
            Self::Cut(index) => put(5, index, out),
            Self::Purged(log_id) => put(6, log_id, out),
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
            _ => return Err(from.damaged("an unknown fact")),
        })
    }
}

fn put(kind: u8, value: &impl Coded, out: &mut Vec<u8>) {
    out.push(kind);
    value.put(out);
}
