//! The cache of opened parts, so that the next query need not open them again.
//!
//! The content of an object never changes, so an entry is never stale; it can only be evicted.
//!
//! Invariant: the cache takes about [`BYTES_MAX`] bytes at most.

use crate::part::Part;
use crate::planted::{self, Bug};
use crate::protocol::{ObjectId, SessionId};
use atoll_store::Buffer;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Approximate maximum size of the cache, in bytes. It holds the directories of some hundred million rows;
/// queries of small boxes open few of them.
const BYTES_MAX: usize = 512 << 20;

/// How much larger a directory is in memory than in its object.
const TIMES_LARGER: usize = 5;

/// An opened part.
#[derive(Clone, Debug)]
pub(super) struct OpenPart {
    pub(super) part: Arc<Part>,
    /// The bytes that were read to open it.
    pub(super) front: Buffer,
}

/// The parts of all tables of the process, which share one memory limit.
static KEPT: LazyLock<Mutex<PartCache<OpenPart>>> =
    LazyLock::new(|| Mutex::new(PartCache::with_room(BYTES_MAX)));

/// Number of tables opened so far; it distinguishes their parts.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A table, as numbered by this process, and an object.
type Name = (u64, ObjectId);

/// Two generations of entries, those used recently and older ones, each entry with its size in bytes.
struct PartCache<P> {
    young: HashMap<Name, (P, usize)>,
    young_bytes: usize,
    old: HashMap<Name, (P, usize)>,
    bytes_max: usize,
}

/// The opened parts of one table.
pub(super) struct TableParts {
    table: u64,
}

impl Default for TableParts {
    fn default() -> Self {
        Self { table: OPENED.fetch_add(1, Ordering::Relaxed) }
    }
}

impl TableParts {
    pub(super) fn get(&self, object: ObjectId) -> Option<OpenPart> {
        kept().get(self.name_of(object))
    }

    pub(super) fn put(&self, object: ObjectId, part: OpenPart) {
        let filters = part.part.filters_at().map_or(0, |at| at.end - at.start) as usize;
        // The bytes may be a slice of a longer buffer, which would be kept along with them.
        let part = OpenPart { front: part.front.to_owned_alone(), ..part };
        let bytes = part.front.len() * (1 + TIMES_LARGER) + filters;
        kept().keep(self.name_of(object), part, bytes);
    }

    /// Evicts all parts of the table, as happens when others open very many.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        kept().forget(self.table);
    }

    /// The key of a part: its full name, unless a bug is planted.
    fn name_of(&self, object: ObjectId) -> Name {
        let session = if planted::is(Bug::PartsMixedUp) { SessionId(0) } else { object.session };
        (self.table, ObjectId { session, ..object })
    }
}

impl Drop for TableParts {
    fn drop(&mut self) {
        kept().forget(self.table);
    }
}

fn kept() -> MutexGuard<'static, PartCache<OpenPart>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Clone> PartCache<P> {
    fn with_room(bytes_max: usize) -> Self {
        Self { young: HashMap::new(), young_bytes: 0, old: HashMap::new(), bytes_max }
    }

    fn get(&mut self, name: Name) -> Option<P> {
        if let Some((found, _)) = self.young.get(&name) {
            return Some(found.clone());
        }
        let (found, bytes) = self.old.remove(&name)?;
        self.keep(name, found.clone(), bytes);
        Some(found)
    }

    fn keep(&mut self, name: Name, part: P, bytes: usize) {
        // The young generation takes half of the limit. Entries not used while it fills are evicted.
        if self.young_bytes + bytes > self.bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        // Two queries that opened the same part at once may have measured different sizes.
        let before = self.young.insert(name, (part, bytes)).map_or(0, |(_, before)| before);
        self.young_bytes = self.young_bytes - before + bytes;
    }

    /// Evicts the parts of a table.
    fn forget(&mut self, table: u64) {
        self.old.retain(|(of, _), _| *of != table);
        let mut bytes = 0;
        self.young.retain(|(of, _), (_, taken)| {
            bytes += if *of == table { *taken } else { 0 };
            *of != table
        });
        self.young_bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: u64, sequence: u64) -> Name {
        (table, ObjectId { session: SessionId(1), sequence })
    }

    fn bytes(kept: &PartCache<u64>) -> usize {
        kept.young.values().chain(kept.old.values()).map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn the_parts_of_all_tables_together_take_what_they_may() {
        let mut kept = PartCache::with_room(1000);
        for round in 0..100 {
            for table in 0..50 {
                kept.keep(name(table, round), round, 30);
                assert!(bytes(&kept) <= 1000);
                assert_eq!(kept.get(name(table, round)), Some(round));
            }
        }
        assert_eq!(kept.get(name(0, 0)), None, "long forgotten");
    }

    #[test]
    fn a_table_that_goes_leaves_its_room_to_others() {
        let mut kept = PartCache::with_room(1000);
        for table in 0..3 {
            (0..5).for_each(|sequence| kept.keep(name(table, sequence), table, 60));
        }
        // As if another query had opened it at the same time, with a larger size.
        kept.keep(name(1, 4), 1, 90);
        kept.forget(1);
        assert_eq!((kept.get(name(1, 4)), kept.get(name(2, 4))), (None, Some(2)));
        let young: usize = kept.young.values().map(|(_, bytes)| bytes).sum();
        assert_eq!(kept.young_bytes, young);
        kept.forget(0);
        kept.forget(2);
        assert_eq!((bytes(&kept), kept.young_bytes), (0, 0));
    }
}
