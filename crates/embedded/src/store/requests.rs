//! Request ids of applied writes, stored beside the cells in the same commit as the write that they name.
//!
//! Invariant: an id is in the tree exactly if its write is in the cells, and was applied less than
//! `request_memory` ago or is among the latest `request_memory_count`. Ids in damaged leaves, or between two
//! of them, stay past both limits.

use atoll_disk::Operation;
use atoll_engine::{Direction, EngineError, Tree, WriteBatch};
use atoll_store::{RequestId, Timestamp};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

/// How many old ids one write may delete.
const CLEARED_AT_ONCE: usize = 4;

/// The ids that a write deletes, oldest first.
pub(crate) type Cleared = Vec<(Timestamp, RequestId)>;

/// The ids, oldest first, and the tree that holds them.
pub(crate) struct Requests {
    tree: Tree,
    by_age: Mutex<VecDeque<(Timestamp, RequestId)>>,
    memory_ns: u64,
    count_max: usize,
    /// How often all ids were searched.
    #[cfg(test)]
    pub(super) searches: std::sync::atomic::AtomicUsize,
}

impl Requests {
    /// Reads the ids in the tree. A damaged part cannot be read: a write that looks up an id there gets an
    /// error. Otherwise the damage only keeps ids from being deleted, and is no reason to refuse the whole
    /// store.
    pub(crate) fn load(tree: Tree, memory_ns: u64, count_max: usize) -> Result<Self, EngineError> {
        let mut by_age = Vec::new();
        if let Err(error) = read_ids(&tree, Direction::Forward, &mut by_age) {
            if !is_damage(&error) {
                return Err(error);
            }
            tracing::warn!(%error, "some request ids cannot be read, and are not deleted");
            // From the other end up to the damage; ids between two damaged places are left out.
            match read_ids(&tree, Direction::Backward, &mut by_age) {
                Err(error) if !is_damage(&error) => return Err(error),
                // At the next damage, or at the end, all ids that can be reached are read.
                _ => {}
            }
        }
        by_age.sort();
        by_age.dedup();
        Ok(Self {
            tree,
            by_age: Mutex::new(by_age.into()),
            memory_ns,
            count_max,
            #[cfg(test)]
            searches: Default::default(),
        })
    }

    /// Whether the write of this id was applied. Called under the writer lock.
    pub(crate) fn is_known(&self, id: RequestId) -> Result<bool, EngineError> {
        self.tree.get_with(&encode_id(id), |value| value.is_some())
    }

    /// Whether the write of this id took effect here, or may have. Needs no disk, but may search all ids.
    pub(crate) fn has(&self, id: RequestId) -> bool {
        #[cfg(test)]
        self.searches.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.by_age.lock().iter().rev().any(|(_, other)| *other == id)
    }

    /// Adds the id to the batch that applies its write, and deletes a few old ids, which it returns. Called
    /// under the writer lock, so that no two writes delete the same ids.
    pub(crate) fn remember(&self, id: RequestId, now: Timestamp, batch: &mut WriteBatch) -> Cleared {
        batch.put(&self.tree, &encode_id(id), &now.0.to_le_bytes());
        let mut by_age = self.by_age.lock();
        let too_many = (by_age.len() + 1).saturating_sub(self.count_max);
        let is_old = |when: &Timestamp| when.0.saturating_add(self.memory_ns) < now.0;
        let clears = by_age
            .iter()
            .enumerate()
            .take_while(|(place, (when, _))| *place < too_many || is_old(when))
            .take(CLEARED_AT_ONCE)
            .count();
        let cleared: Cleared = by_age.drain(..clears).collect();
        for (_, old) in &cleared {
            batch.delete(&self.tree, &encode_id(*old));
        }
        by_age.push_back((now, id));
        cleared
    }

    /// Undoes [`Requests::remember`] after its batch was refused.
    pub(crate) fn forget(&self, id: RequestId, cleared: Cleared) {
        let mut by_age = self.by_age.lock();
        if let Some(place) = by_age.iter().rposition(|(_, other)| *other == id) {
            by_age.remove(place);
        }
        for old in cleared.into_iter().rev() {
            by_age.push_front(old);
        }
    }
}

/// Reads ids in this order, up to the first that cannot be read.
fn read_ids(
    tree: &Tree,
    direction: Direction,
    by_age: &mut Vec<(Timestamp, RequestId)>,
) -> Result<(), EngineError> {
    tree.scan((Bound::Unbounded, Bound::Unbounded), direction, |key, value| {
        if let (Some(id), Ok(bytes)) = (decode_id(key), value.bytes())
            && let Some(when) = bytes.first_chunk::<8>()
        {
            by_age.push((Timestamp(u64::from_le_bytes(*when)), id));
        }
        ControlFlow::Continue(())
    })
    .map(|_| ())
}

/// Whether the error is a failed read or corrupt data.
pub(super) fn is_damage(error: &EngineError) -> bool {
    match error {
        EngineError::Corrupt { .. } => true,
        EngineError::Disk(error) => error.operation == Operation::Read,
        _ => false,
    }
}

fn encode_id(id: RequestId) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&id.client.to_be_bytes());
    key[16..].copy_from_slice(&id.sequence.to_be_bytes());
    key
}

fn decode_id(key: &[u8]) -> Option<RequestId> {
    let key: &[u8; 24] = key.try_into().ok()?;
    let (client, sequence) = (key.first_chunk::<16>()?, key.last_chunk::<8>()?);
    Some(RequestId { client: u128::from_be_bytes(*client), sequence: u64::from_be_bytes(*sequence) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_disk::{Disk, MemoryDisk};
    use atoll_engine::{Durability, Engine, Options};
    use std::sync::Arc;

    fn id(sequence: u64) -> RequestId {
        RequestId { client: 7, sequence }
    }

    #[test]
    fn writes_between_each_other_and_refused_ones_leave_exactly_the_ids_that_count() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let tree = engine.tree("requests").unwrap();
        let requests = Requests::load(tree.clone(), u64::MAX, 3).unwrap();
        let mut written = 0;
        let mut write = |sequence: u64| {
            let mut batch = WriteBatch::new();
            let cleared = requests.remember(id(sequence), Timestamp(sequence), &mut batch);
            written += 1;
            (batch, cleared)
        };
        for pair in 0..20u64 {
            // Both are decided before either is noted, as writers on two threads do.
            let (one, _) = write(pair * 3);
            let (two, _) = write(pair * 3 + 1);
            engine.write(&one, Durability::Buffered).unwrap();
            engine.write(&two, Durability::Buffered).unwrap();
            let (_refused, cleared) = write(pair * 3 + 2);
            requests.forget(id(pair * 3 + 2), cleared);
        }
        assert_eq!(tree.len().unwrap(), 3);
        for sequence in [55, 57, 58] {
            assert!(requests.is_known(id(sequence)).unwrap(), "{sequence}");
        }
        assert_eq!(written, 60);
    }

    #[test]
    fn ids_that_cannot_be_read_keep_no_other_from_being_known() {
        let (count, sick) = (5000u64, 2500);
        let when = |sequence| Timestamp(0x1122_3344_5566_0000 + sequence);
        let disk = Arc::new(MemoryDisk::new());
        let options = || Options { background: false, log_windows: false, ..Options::default() };
        let opened = || Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
        let load = |engine: &Engine| Requests::load(engine.tree("requests").unwrap(), u64::MAX, 10_000);
        let engine = opened();
        let requests = load(&engine).unwrap();
        for sequence in 0..count {
            let mut batch = WriteBatch::new();
            requests.remember(id(sequence), when(sequence), &mut batch);
            engine.write(&batch, Durability::Buffered).unwrap();
        }
        engine.close().unwrap();
        let mut bytes = vec![0; disk.len().unwrap() as usize];
        disk.read_at(0, &mut bytes).unwrap();
        let needle = when(sick).0.to_le_bytes();
        let places = (0..bytes.len() - 8).filter(|&at| bytes[at..].starts_with(&needle));
        places.for_each(|at| disk.write_at(at as u64, &[1]).unwrap());
        let engine = opened();
        let requests = load(&engine).unwrap();
        let known = |sequence| requests.is_known(id(sequence));
        assert!(matches!(known(sick), Err(EngineError::Corrupt { .. })), "{:?}", known(sick));
        assert!(known(0).unwrap() && known(count - 1).unwrap() && !known(count).unwrap());
        let by_age = requests.by_age.lock();
        assert!((count as usize - 1000..count as usize).contains(&by_age.len()), "{}", by_age.len());
        assert!(by_age.iter().zip(by_age.iter().skip(1)).all(|(one, next)| one < next), "each once");
    }
}
