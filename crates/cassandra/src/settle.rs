//! Creations that only a minority of replicas may have: before a client returns one that it read, it makes
//! sure that a majority has it.
//!
//! `create` is a plain write, and a read at SERIAL repairs only what consensus wrote: a creation whose client
//! died halfway would be present for one read and absent for the next. A plain read at a majority settles it,
//! because Cassandra's own read repair blocks. A client does not check again what it has seen settled.
//!
//! Invariant: outside the vow, a created cell is returned, or used to judge a condition, only after it was at
//! a majority.

use crate::cells::Piece;
use crate::codec::{KIND_CELL, PieceHead};
use crate::link::Link;
use atoll_store::StoreError;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use twox_hash::XxHash3_64;

const SHARDS: usize = 16;

/// Creations remembered in each shard, at 16 bytes each. A forgotten one costs one more read.
const REMEMBERED: usize = 4096;

/// The most cells read with one request.
const TOGETHER_MAX: usize = 256;

/// Creations that are known to be at a majority.
#[derive(Default)]
pub(crate) struct Settled {
    shards: [Mutex<HashSet<u128>>; SHARDS],
}

impl Settled {
    /// Records that a creation is at a majority.
    pub(crate) fn note(&self, partition: &[u8], sort: &[u8], head: &PieceHead) {
        let name = name(partition, sort, head);
        let mut shard = self.shards[name as usize % SHARDS].lock();
        if shard.len() >= REMEMBERED {
            shard.clear();
        }
        shard.insert(name);
    }

    fn knows(&self, partition: &[u8], sort: &[u8], head: &PieceHead) -> bool {
        let name = name(partition, sort, head);
        self.shards[name as usize % SHARDS].lock().contains(&name)
    }

    /// The creation in a cell, if it is not known to be at a majority.
    fn open<'p>(&self, partition: &[u8], sort: &[u8], pieces: &'p [Piece]) -> Option<&'p PieceHead> {
        let created = pieces.iter().map(|piece| &piece.head).find(|head| head.is_created)?;
        (!self.knows(partition, sort, created)).then_some(created)
    }
}

fn name(partition: &[u8], sort: &[u8], head: &PieceHead) -> u128 {
    let lengths = [partition.len() as u64, sort.len() as u64].map(u64::to_be_bytes).concat();
    let named = [&lengths[..], partition, sort, &head.encode()].concat();
    u128::from(XxHash3_64::oneshot_with_seed(1, &named)) << 64 | u128::from(XxHash3_64::oneshot(&named))
}

/// What a majority has of the creations that were seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settling {
    /// How many had to be checked.
    pub(crate) asked: usize,
    /// Those that a majority does not have as they were seen: still on their way, or changed meanwhile.
    pub(crate) others: HashMap<Vec<u8>, Majority>,
}

impl Settling {
    /// Whether nothing changed, and a majority merely lacks what some replica has.
    pub(crate) fn is_half_made(&self) -> bool {
        !self.others.is_empty() && self.others.values().all(|other| *other == Majority::Absent)
    }
}

/// What a majority has instead of the creation that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Majority {
    /// No cell.
    Absent,
    /// Another value.
    Another,
}

impl Link {
    /// Ensures that a majority has the creations among these cells.
    pub(crate) async fn settle<'c>(
        &self,
        partition: &[u8],
        cells: impl Iterator<Item = (&'c [u8], &'c [Piece])>,
    ) -> Result<Settling, StoreError> {
        let open: Vec<(&[u8], &PieceHead)> = cells
            .filter_map(|(sort, pieces)| Some((sort, self.settled.open(partition, sort, pieces)?)))
            .collect();
        let mut settling = Settling { asked: open.len(), others: HashMap::new() };
        for open in open.chunks(TOGETHER_MAX) {
            let names: Vec<(i8, &[u8])> = open.iter().map(|(sort, _)| (KIND_CELL, *sort)).collect();
            let statement = &self.statements.reads.settle;
            let answer = self.rows("reading", statement, &(partition, names)).await?;
            type Row = (i8, bytes::Bytes, i32, Option<bytes::Bytes>, Option<i64>);
            let mut there: HashMap<Vec<u8>, Vec<bytes::Bytes>> = HashMap::new();
            for row in answer.rows::<Row>().map_err(|error| self.not_understood(&error))? {
                let (_, sort, _, head, _) = row.map_err(|error| self.not_understood(&error))?;
                there.entry(sort.to_vec()).or_default().extend(head);
            }
            for (sort, head) in open {
                let heads = there.get(*sort).map_or(&[][..], Vec::as_slice);
                match compare(head, heads) {
                    None => self.settled.note(partition, sort, head),
                    Some(other) => drop(settling.others.insert(sort.to_vec(), other)),
                }
            }
        }
        Ok(settling)
    }
}

/// How the heads at a majority differ from the one that was seen; none if that one is among them.
fn compare(seen: &PieceHead, heads: &[bytes::Bytes]) -> Option<Majority> {
    match heads {
        [] => Some(Majority::Absent),
        heads if heads.iter().any(|head| **head == seen.encode()) => None,
        _ => Some(Majority::Another),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Body;

    fn head(checksum: u64, is_created: bool) -> PieceHead {
        PieceHead { checksum, bytes: 5, body: Body::Inline, is_created }
    }

    fn piece(number: i32, head: PieceHead) -> Piece {
        Piece { number, head, sealed: None }
    }

    #[test]
    fn creations_are_asked_for_until_they_were_seen_at_a_majority_and_nothing_else_is() {
        let settled = Settled::default();
        let (created, put) = (head(1, true), head(2, false));
        assert_eq!(settled.open(b"p", b"s", &[piece(0, put)]), None);
        let appended = [piece(0, created), piece(1, put)];
        assert_eq!(settled.open(b"p", b"s", &appended), Some(&created));
        settled.note(b"p", b"s", &created);
        assert_eq!(settled.open(b"p", b"s", &appended), None);
        // Another cell, and another value of the same cell.
        assert_eq!(settled.open(b"ps", b"", &appended), Some(&created));
        let other = head(3, true);
        assert_eq!(settled.open(b"p", b"s", &[piece(0, other)]), Some(&other));
    }

    #[test]
    fn only_what_was_seen_itself_settles_it() {
        let encoded = |head: PieceHead| bytes::Bytes::from(head.encode());
        let seen = head(1, true);
        assert_eq!(compare(&seen, &[]), Some(Majority::Absent));
        assert_eq!(compare(&seen, &[encoded(head(1, false))]), Some(Majority::Another));
        assert_eq!(compare(&seen, &[encoded(seen), encoded(head(2, false))]), None);
    }

    #[test]
    fn what_is_remembered_stays_small() {
        let settled = Settled::default();
        for number in 0..200_000_u64 {
            settled.note(b"p", &number.to_be_bytes(), &head(number, true));
        }
        assert!(settled.shards.iter().all(|shard| shard.lock().len() <= REMEMBERED));
    }
}
