//! Creations that perhaps a minority of replicas has: whoever sees one makes sure that a majority has it
//! before anybody is told.
//!
//! `create` is a plain write, and a read at SERIAL repairs only what consensus wrote: a creation whose client
//! died in the middle would be there for one read and absent for the next. A plain read at a majority, whose
//! read repair is Cassandra's own and blocks, settles it. What this client saw settled once it does not ask
//! for again.
//!
//! Invariant: outside the vow no created cell is told, or judged by, that was not at a majority before.

use crate::cells::Piece;
use crate::codec::{KIND_CELL, PieceHead};
use crate::link::Link;
use atoll_store::StoreError;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use twox_hash::XxHash3_64;

const SHARDS: usize = 16;

/// Creations that are remembered in each shard: 16 bytes each. Of those that are forgotten one more question
/// is asked.
const REMEMBERED: usize = 4096;

/// Cells asked for together.
const TOGETHER_MAX: usize = 256;

/// Creations that are known to be at a majority.
#[derive(Default)]
pub(crate) struct Settled {
    shards: [Mutex<HashSet<u128>>; SHARDS],
}

impl Settled {
    /// Notes that a creation is at a majority.
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

    /// The creation in a cell of which it is not known whether a majority has it.
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

/// What a majority has of creations that were seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settling {
    /// How many had to be asked for.
    pub(crate) asked: usize,
    /// Those that a majority does not have as they were seen: on their way, or changed meanwhile.
    pub(crate) others: HashMap<Vec<u8>, Majority>,
}

impl Settling {
    /// Whether nothing changed, but a majority does not have what some replica has.
    pub(crate) fn is_half_made(&self) -> bool {
        !self.others.is_empty() && self.others.values().all(|other| *other == Majority::Absent)
    }
}

/// What a majority has of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Majority {
    /// Nothing.
    Absent,
    /// Something else.
    Another,
}

impl Link {
    /// Makes sure that a majority has the creations among these cells.
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

/// How what a majority has differs from what was seen; none if it has just that.
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
        // Another cell, and another value of the same one.
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
