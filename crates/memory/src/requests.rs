//! The ids of applied requests, as far back as the options say.
//!
//! Invariant: at most `count_max` ids are kept, and none older than `age_max`.

use atoll_store::{RequestId, Timestamp};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// The ids of applied writes, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestMemory {
    known: HashSet<RequestId>,
    by_age: VecDeque<(Timestamp, RequestId)>,
}

impl RequestMemory {
    /// Whether a write with this id was applied.
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.known.contains(&id)
    }

    /// Remembers that a write with this id was applied `now`.
    pub(crate) fn insert(&mut self, id: RequestId, now: Timestamp) {
        if self.known.insert(id) {
            self.by_age.push_back((now, id));
        }
    }

    /// Drops ids that are too old, and the oldest beyond `count_max`.
    pub(crate) fn forget(&mut self, now: Timestamp, age_max: Duration, count_max: usize) {
        while let Some(&(when, id)) = self.by_age.front() {
            if when.after(age_max) >= now && self.by_age.len() <= count_max {
                break;
            }
            self.by_age.pop_front();
            self.known.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> RequestId {
        RequestId { client: 1, sequence }
    }

    #[test]
    fn an_id_is_known_until_it_is_too_old() {
        let mut memory = RequestMemory::default();
        memory.insert(id(1), Timestamp(100));
        memory.forget(Timestamp(150), Duration::from_nanos(50), 10);
        assert!(memory.contains(id(1)));
        memory.forget(Timestamp(151), Duration::from_nanos(50), 10);
        assert!(!memory.contains(id(1)));
    }

    #[test]
    fn the_latest_ids_stay_and_memory_is_bounded() {
        let mut memory = RequestMemory::default();
        for sequence in 0..100 {
            memory.insert(id(sequence), Timestamp(0));
            memory.forget(Timestamp(0), Duration::from_secs(1), 3);
        }
        let known: Vec<_> = (0..100).filter(|&sequence| memory.contains(id(sequence))).collect();
        assert_eq!(known, [97, 98, 99]);
        assert_eq!((memory.known.len(), memory.by_age.len()), (3, 3));
    }
}
