//! The book: every entry that was ever applied, per slot. Whatever a node applies at a place must be the
//! entry that the book has there.

use crate::cells::State;
use crate::operation::{Operation, OperationEnd, operation_of};
use atoll_replica::{Entry, Sequence};

/// The book of one slot.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: Vec<Entry>,
    /// The digest of the cells after each entry.
    digests: Vec<u64>,
    state: State,
}

impl Book {
    /// The last place in the book.
    pub(crate) fn last(&self) -> Sequence {
        Sequence(self.entries.len() as u64)
    }

    /// Records that a node applies an entry; the first node to do so defines it. Returns the digest of the
    /// cells after it.
    pub(crate) fn apply(
        &mut self,
        entry: &Entry,
        operations: &mut [Operation],
        moment: impl FnOnce() -> u64,
    ) -> Result<u64, String> {
        let place = entry.position.sequence.0;
        let at = place.checked_sub(1).ok_or("an entry without a place")? as usize;
        if let Some(known) = self.entries.get(at) {
            if known != entry {
                return Err(format!("{} is applied where {} was", entry.position, known.position));
            }
            return Ok(self.digests[at]);
        }
        if at != self.entries.len() {
            return Err(format!(
                "{} is applied, but the last one ever was {}",
                entry.position,
                self.entries.len()
            ));
        }
        if let Some(last) = self.entries.last()
            && (entry.position.epoch < last.position.epoch || entry.time_ms < last.time_ms)
        {
            return Err(format!("{} is older than the entry before it", entry.position));
        }
        self.write_down(entry, operations, moment)
    }

    fn write_down(
        &mut self,
        entry: &Entry,
        operations: &mut [Operation],
        moment: impl FnOnce() -> u64,
    ) -> Result<u64, String> {
        let number = operation_of(&entry.body).ok_or("an entry that nobody wrote")?;
        let operation = operations.get_mut(number).ok_or("an entry that nobody wrote")?;
        if let Some(place) = operation.place {
            return Err(format!("operation {number} is at {} and at {}", place.0, entry.position));
        }
        if matches!(operation.ended, Some((_, OperationEnd::Refused))) {
            return Err(format!("operation {number} was refused, and is applied at {}", entry.position));
        }
        operation.place = Some(entry.position.sequence);
        let answer = self.state.apply(number, &operation.work);
        operation.applied = Some((moment(), answer));
        self.entries.push(entry.clone());
        self.digests.push(self.state.digest());
        Ok(self.state.digest())
    }

    /// Accepts the loss of everything after a place: entries there no longer count, and the same writes may
    /// even be applied again.
    pub(crate) fn accept_loss(
        &mut self,
        kept: Sequence,
        state: &State,
        operations: &mut [Operation],
    ) -> bool {
        for entry in self.entries.iter().skip(kept.0 as usize) {
            let operation = operation_of(&entry.body).and_then(|number| operations.get_mut(number));
            if let Some(operation) = operation {
                operation.place = None;
            }
        }
        let is_known = self.digest(kept) == Some(state.digest());
        self.entries.truncate(kept.0 as usize);
        self.digests.truncate(kept.0 as usize);
        self.state = state.clone();
        is_known
    }

    /// The digest of the cells after a place.
    pub(crate) fn digest(&self, place: Sequence) -> Option<u64> {
        match place.0.checked_sub(1) {
            None => Some(State::default().digest()),
            Some(at) => self.digests.get(at as usize).copied(),
        }
    }
}
