//! Moving a whole slot: its cells are sent as of one moment, and replace what the receiver had.
//!
//! Invariant: installed cells appear all at once, together with the position of the last entry that they
//! include, or not at all.

use super::Keyspace;
use crate::cell::CellName;
use crate::state::SlotState;
use crate::{Applied, KeyspaceError};
use atoll_engine::{Direction, Durability, Snapshot, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};

/// The cells of a slot as of one moment.
pub struct Exporter {
    snapshot: Snapshot,
    tree: Tree,
    slot: u16,
    /// The name of the next cell, without the slot's number.
    next: Option<Vec<u8>>,
}

/// Names, without the slot's number, and values.
pub type MovedCells = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes of the slot's number at the front of names.
const SLOT_BYTES: usize = 2;

impl Exporter {
    /// Returns cells of about `bytes` bytes, at least one, and whether they are the last. After the last ones
    /// it returns none.
    ///
    /// # Errors
    /// [`KeyspaceError`] if the tree cannot be read.
    pub fn next(&mut self, bytes: usize) -> Result<(MovedCells, bool), KeyspaceError> {
        let Some(from) = self.next.take() else { return Ok((Vec::new(), true)) };
        let (start, end) = ([&self.slot.to_be_bytes(), &from[..]].concat(), end_of(self.slot));
        let (mut cells, mut taken, mut failed) = (Vec::new(), 0, None);
        let range = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        let stopped = self.snapshot.scan(&self.tree, range, Direction::Forward, |name, value| {
            if taken >= bytes {
                return ControlFlow::Break(());
            }
            match value.bytes() {
                Ok(value) => {
                    let name = name.get(SLOT_BYTES..).unwrap_or_default().to_vec();
                    taken += name.len() + value.len();
                    cells.push((name, value.to_vec()));
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        self.next = stopped.map(|name| name.get(SLOT_BYTES..).unwrap_or_default().to_vec());
        Ok((cells, self.next.is_none()))
    }
}

fn end_of(slot: u16) -> Vec<u8> {
    // No slot has the highest number: names that begin with it are those of states.
    slot.saturating_add(1).to_be_bytes().to_vec()
}

impl Keyspace {
    /// The cells of a slot as they are now, whatever is written later.
    #[must_use]
    pub fn exporter(&self, slot: u16) -> Exporter {
        Exporter { snapshot: self.engine.snapshot(), tree: self.tree.clone(), slot, next: Some(Vec::new()) }
    }

    /// Replaces the contents of a slot, all at once, by cells that include everything up to this entry, at
    /// this time. From then on they survive the end of the process, if the engine is not in memory.
    ///
    /// # Errors
    /// [`KeyspaceError`]; nothing was changed unless [`KeyspaceError::is_unknown`].
    pub fn install(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        cells: &MovedCells,
    ) -> Result<(), KeyspaceError> {
        self.state(slot)?;
        let state = SlotState::of_moved(applied, time_ms, cells.iter().map(|(name, _)| &name[..]));
        let mut batch = WriteBatch::new();
        self.replace(slot, &state, cells, &mut batch);
        self.engine.write(&batch, Durability::Flushed)?;
        self.set_state(slot, state);
        Ok(())
    }

    /// Empties slots, all at once. From then on they are empty also after the end of the process, if the
    /// engine is not in memory: whoever says that it has nothing must not have its former cells again.
    ///
    /// # Errors
    /// [`KeyspaceError`]; nothing was changed unless [`KeyspaceError::is_unknown`].
    pub fn clear(&mut self, slots: impl Iterator<Item = u16> + Clone) -> Result<(), KeyspaceError> {
        let (mut batch, empty) =
            (WriteBatch::new(), || SlotState::of_moved(Applied::default(), 0, [].into_iter()));
        for slot in slots.clone() {
            self.state(slot)?;
            self.replace(slot, &empty(), &Vec::new(), &mut batch);
        }
        self.engine.write(&batch, Durability::Flushed)?;
        slots.for_each(|slot| self.set_state(slot, empty()));
        Ok(())
    }

    fn replace(&self, slot: u16, state: &SlotState, cells: &MovedCells, batch: &mut WriteBatch) {
        let (start, end) = (slot.to_be_bytes(), end_of(slot));
        batch.delete_range(&self.tree, (Bound::Included(&start[..]), Bound::Excluded(&end[..])));
        for (name, value) in cells {
            batch.put(&self.tree, &[&start[..], &name[..]].concat(), value);
        }
        if self.keeps_states {
            batch.put(&self.tree, &CellName::state(slot), &state.encode());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::{Engine, Options};
    use atoll_resp::{Command, Limits, Protocol, RequestParser, write_request};

    fn keyspace() -> Keyspace {
        Keyspace::open(&Engine::in_memory(Options::default()).unwrap(), "slots").unwrap()
    }

    fn run(keyspace: &mut Keyspace, slot: u16, arguments: &[&str]) -> String {
        let mut bytes = Vec::new();
        write_request(&mut bytes, arguments);
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(&bytes).unwrap().unwrap();
        let command = Command::of(&request).unwrap();
        let (mut reply, last) = (Vec::new(), keyspace.applied(slot).sequence);
        let applied = Applied { epoch: 1, sequence: last + 1 };
        keyspace.apply(slot, applied, 7, &command, Protocol::Resp2, &mut reply).unwrap();
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn a_slot_is_the_same_where_it_was_moved_to_and_nothing_of_before_is_left() {
        let (mut from, mut to) = (keyspace(), keyspace());
        for number in 0..100 {
            run(&mut from, 5, &["set", &format!("k{number}"), "v"]);
        }
        run(&mut from, 5, &["hset", "h", "a", "1", "b", "2"]);
        run(&mut from, 6, &["set", "other", "v"]);
        run(&mut to, 5, &["set", "old", "v"]);
        let mut exporter = from.exporter(5);
        run(&mut from, 5, &["set", "later", "v"]);
        let (mut cells, mut pieces) = (Vec::new(), 0);
        loop {
            let (some, is_last) = exporter.next(100).unwrap();
            cells.extend(some);
            pieces += 1;
            if is_last {
                break;
            }
        }
        assert!(pieces > 5, "in pieces: {pieces}");
        to.install(5, Applied { epoch: 3, sequence: 101 }, 7, &cells).unwrap();
        assert_eq!((to.keys_in(5), to.applied(5).sequence, to.keys_in(6)), (101, 101, 0));
        assert_eq!(run(&mut to, 5, &["get", "k42"]), "$1\r\nv\r\n");
        assert_eq!(run(&mut to, 5, &["hget", "h", "b"]), "$1\r\n2\r\n");
        assert_eq!(run(&mut to, 5, &["exists", "old", "later", "other"]), ":0\r\n");
        to.clear([5, 8].into_iter()).unwrap();
        assert_eq!((to.keys_in(5), run(&mut to, 5, &["exists", "k42"])), (0, ":0\r\n".to_owned()));
    }
}
