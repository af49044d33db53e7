//! Prefetches parts of a leaf before they are needed.

use super::{CHAIN_FLAG, HEAD_LINES, Leaf, RECORD_HEADER, SUFFIX_MASK, head_of, heads_below};
use crate::value::Chain;
use atoll_buffer::{Buffer, prefetch};

/// How many chains ahead a leaf that is dropped prefetches the pieces of its values, and the counters of the
/// owners of their bytes.
const ENDING_AHEAD: [usize; 2] = [26, 18];

/// How many buffers without further owners wait until the memory that their end touches was fetched.
const PARTING: usize = 6;

impl Leaf {
    /// Prefetches what a put of `key` will touch: its record, or the place where it will be written, or
    /// everything if the leaf must be rebuilt. Returns the slot that the put would use at present.
    pub(crate) fn prefetch_for_put(&self, key: &[u8]) -> Option<usize> {
        let head = head_of(key.get(self.prefix_len as usize..)?);
        let slot = heads_below(self.heads(), head);
        if self.heads().get(slot) == Some(&head) {
            self.prefetch_record(slot);
        } else if self.is_about_full() {
            self.prefetch_all();
        } else {
            self.prefetch_heap_end();
        }
        Some(slot)
    }

    fn is_about_full(&self) -> bool {
        let used = self.prefix_at() + self.prefix_len as usize;
        let average = (self.bytes().len() - self.heap_start as usize) / self.len().max(1);
        self.count == self.capacity || (self.heap_start as usize) < used + average
    }

    /// Drops all values that lie elsewhere. The owners of each are counted where it lies; without
    /// prefetching, each drop would wait for memory.
    pub(super) fn let_go_of_chains(&mut self) {
        if self.chains.is_empty() {
            return;
        }
        let mut chains = std::mem::take(&mut self.chains);
        let ahead = |chains: &[Option<Chain>], at: usize, ask: fn(&Chain)| {
            chains.get(at).and_then(Option::as_ref).map(ask);
        };
        (0..ENDING_AHEAD[0]).for_each(|at| ahead(&chains, at, Chain::prefetch));
        (0..ENDING_AHEAD[1]).for_each(|at| ahead(&chains, at, Chain::prefetch_owners));
        let mut parting: [Buffer; PARTING] = Default::default();
        for at in 0..chains.len() {
            ahead(&chains, at + ENDING_AHEAD[0], Chain::prefetch);
            ahead(&chains, at + ENDING_AHEAD[1], Chain::prefetch_owners);
            ahead(&chains, at + PARTING, Chain::prefetch_end);
            let bytes = chains[at].take().and_then(Chain::into_bytes).unwrap_or_default();
            bytes.end_touches().into_iter().for_each(|address| prefetch(address, 1));
            parting[at % PARTING] = bytes;
        }
    }

    /// Approximate slot of `key`, without reading a record.
    pub(crate) fn guess(&self, key: &[u8]) -> usize {
        let suffix = key.get(self.prefix_len as usize..).unwrap_or_default();
        heads_below(self.heads(), head_of(suffix))
    }

    /// Prefetches all records.
    pub(crate) fn prefetch_all(&self) {
        prefetch(&raw const self.owners, HEAD_LINES);
        let bytes = self.bytes();
        let tail = bytes.len().min(6400);
        prefetch(bytes[bytes.len() - tail..].as_ptr(), tail / 64);
    }

    /// Prefetches the place where the next record will be written.
    pub(crate) fn prefetch_heap_end(&self) {
        let at = (self.heap_start as usize).saturating_sub(128);
        prefetch(self.bytes()[at..].as_ptr(), 3);
    }

    /// Prefetches the record of a slot.
    #[inline]
    pub(crate) fn prefetch_record(&self, slot: usize) {
        prefetch(self.bytes()[self.offset(slot)..].as_ptr(), 3);
    }

    /// Whether a record may lead to a value outside of the leaf.
    #[inline]
    pub(crate) fn has_chains(&self) -> bool {
        !self.chains.is_empty()
    }

    /// Prefetches the chain of a record's value, once the record has been fetched.
    #[inline]
    pub(crate) fn prefetch_chain(&self, slot: usize) {
        if let Some(chain) = self.chain_place(slot) {
            prefetch(&raw const *chain, 1);
        }
    }

    /// Whether the value of a record lies outside of the leaf.
    #[inline]
    pub(crate) fn leads_out(&self, slot: usize) -> bool {
        self.header(slot).1 & CHAIN_FLAG != 0
    }

    /// Prefetches the first piece of a value, once its chain has been fetched.
    #[inline]
    pub(crate) fn prefetch_piece(&self, slot: usize) {
        if let Some(Some(chain)) = self.chain_place(slot) {
            chain.prefetch();
        }
    }

    /// Prefetches the bytes of a value, once its first piece has been fetched.
    #[inline]
    pub(crate) fn prefetch_bytes(&self, slot: usize) {
        if let Some(Some(chain)) = self.chain_place(slot) {
            chain.prefetch_bytes();
        }
    }

    /// Prefetches both ends of a value, once its last piece has been fetched: readers begin at one end, and
    /// appends continue at the other.
    #[inline]
    pub(crate) fn prefetch_ends(&self, slot: usize) {
        if let Some(Some(chain)) = self.chain_place(slot) {
            chain.prefetch_ends();
        }
    }

    fn chain_place(&self, slot: usize) -> Option<&Option<Chain>> {
        let (at, header) = self.header(slot);
        let start = at + RECORD_HEADER + (header & SUFFIX_MASK) as usize;
        if header & CHAIN_FLAG == 0 { None } else { self.chains.get(self.chain_index(start)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::Backing;
    use crate::checksum::key_hash;
    use crate::frames::Purpose;
    use crate::leaf::Record;
    use crate::meter::Kind;
    use crate::search::PathHint;
    use crate::tree::HashedKey;
    use crate::value::{Piece, Stored};
    use std::sync::Arc;

    #[test]
    fn a_leaf_that_ends_lets_go_of_all_its_values_and_of_nothing_else() {
        let backing = Arc::new(Backing::new(None, 1, 1 << 20));
        let bytes = |number: usize| Buffer::copy_from(&vec![number as u8; 300 + number]);
        let waiting: Vec<Piece> = (0..99).map(|number| Piece::waiting(bytes(number), 1, &backing)).collect();
        assert!(backing.meter().bytes_of(Kind::Waiting) > 99 * 300);
        // Of every three, one belongs to the leaf alone, one has another owner too, and one is the first of
        // two pieces.
        let chain = |(number, piece): (usize, &Piece)| match number % 3 {
            2 => Chain::from_pieces(vec![piece.clone(), Piece::on_disk(8192, 300, 1, 1)]),
            _ => Chain::from_pieces(vec![piece.clone()]),
        };
        let chains: Vec<Chain> = waiting.iter().enumerate().map(chain).collect();
        let keys: Vec<String> = (0..99).map(|number| format!("key{number:03}")).collect();
        let records: Vec<Record<'_>> = keys
            .iter()
            .zip(&chains)
            .map(|(key, chain)| Record {
                key: [key.as_bytes(), &[]],
                fingerprint: key_hash(key.as_bytes()),
                value: Stored::Chain(chain),
            })
            .collect();
        let leaf = Leaf::build(b"key", 1, &records, 0, Purpose::Writing);
        drop(records);
        drop(chains);
        let kept: Vec<Piece> = waiting.iter().skip(1).step_by(3).cloned().collect();
        drop(waiting);
        drop(leaf);
        assert!(
            kept.iter()
                .enumerate()
                .all(|(at, piece)| piece.owners() == 1 && piece.len() == 301 + 3 * at as u32)
        );
        for (at, piece) in kept.iter().enumerate() {
            assert!(piece.resident_bytes().is_some_and(|found| *found == *bytes(1 + 3 * at)));
        }
        drop(kept);
        assert_eq!(backing.meter().bytes_of(Kind::Waiting), 0);
    }

    #[test]
    fn whatever_slot_is_guessed_the_right_one_is_found() {
        // Some share a head, which is the first four bytes behind the prefix.
        let keys = ["user1", "user15", "user1500", "user15001", "user15002", "user2", "user3333", "user9"];
        let record = |key: &&'static str| Record {
            key: [key.as_bytes(), &[]],
            fingerprint: key_hash(key.as_bytes()),
            value: Stored::Inline(b"value"),
        };
        let records: Vec<Record<'_>> = keys.iter().map(record).collect();
        let leaf = Leaf::build(b"user", 1, &records, 0, Purpose::Writing);
        for key in keys.into_iter().chain(["user", "user0", "user150010", "user15003", "user4", "userz"]) {
            let expected = keys.binary_search(&key);
            for guess in (0..12).chain([u16::MAX]) {
                let hashed = HashedKey { way: PathHint::to_slot(guess), ..HashedKey::new(key.as_bytes()) };
                assert_eq!(leaf.locate(&hashed), expected, "{key}, guessed {guess}");
            }
            let told = leaf.prefetch_for_put(key.as_bytes()).unwrap_or(usize::MAX);
            assert!(told <= expected.unwrap_or_else(|slot| slot), "{key}: a slot behind it cannot be right");
        }
    }
}
