//! The keyspaces of a node, each with what it holds in a tree of its own.
//!
//! A slot has one number in its ring and another one in its keyspace, which is the one that clients know.
//!
//! Invariant: there is one for each keyspace of the newest table that the loop has taken over.

use crate::NodeError;
use crate::options::Persistence;
use atoll_engine::Engine;
use atoll_keyspace::{Keyspace, SLOTS};
use atoll_replica::{KEYSPACES_MAX, Slot};

/// The keyspaces of a node.
pub(crate) struct Keyspaces {
    engine: Engine,
    persistence: Persistence,
    first: Keyspace,
    others: Vec<Keyspace>,
}

/// Stands for a slot that no keyspace has.
const NO_SLOT: u16 = u16::MAX;

impl Keyspaces {
    /// Opens the keyspaces that this engine holds. The first one always exists.
    pub(crate) fn open(engine: &Engine, persistence: Persistence) -> Result<Self, NodeError> {
        let (first, engine) = (open(engine, persistence, 0)?, engine.clone());
        let names = engine.tree_names();
        let is_kept = |place: &usize| names.contains(&tree_of(*place));
        let last = (1..KEYSPACES_MAX).rev().find(is_kept).unwrap_or(0);
        let mut keyspaces = Self { engine, persistence, first, others: Vec::new() };
        keyspaces.grow(1 + last)?;
        Ok(keyspaces)
    }

    /// Adds keyspaces until there are `count`.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), NodeError> {
        while self.count() < count {
            let next = open(&self.engine, self.persistence, self.count())?;
            self.others.push(next);
        }
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The keyspace with this index, if it exists.
    pub(crate) fn get(&self, keyspace: u8) -> Option<&Keyspace> {
        match usize::from(keyspace).checked_sub(1) {
            None => Some(&self.first),
            Some(place) => self.others.get(place),
        }
    }

    /// The same, mutably.
    pub(crate) fn get_mut(&mut self, keyspace: u8) -> Option<&mut Keyspace> {
        match usize::from(keyspace).checked_sub(1) {
            None => Some(&mut self.first),
            Some(place) => self.others.get_mut(place),
        }
    }

    /// The keyspace of a slot, and the slot's number in it. A slot of no known keyspace maps to a number that
    /// the first keyspace does not have, and so refuses.
    #[inline]
    pub(crate) fn of(&self, slot: Slot) -> (&Keyspace, u16) {
        match self.get(keyspace_of(slot)) {
            Some(keyspace) => (keyspace, number_of_slot(slot)),
            None => (&self.first, NO_SLOT),
        }
    }

    /// The same, mutably.
    #[inline]
    pub(crate) fn of_mut(&mut self, slot: Slot) -> (&mut Keyspace, u16) {
        let place = usize::from(keyspace_of(slot));
        let number = number_of_slot(slot);
        match place.checked_sub(1) {
            None => (&mut self.first, number),
            Some(place) => match self.others.get_mut(place) {
                Some(keyspace) => (keyspace, number),
                None => (&mut self.first, NO_SLOT),
            },
        }
    }

    /// All slots of all keyspaces.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.count() as u32 * u32::from(SLOTS)).map(Slot)
    }
}

/// The slot of the ring with this number in a keyspace.
#[inline]
pub(crate) fn slot_at(keyspace: u8, number: u16) -> Slot {
    Slot(u32::from(keyspace) * u32::from(SLOTS) + u32::from(number))
}

/// The number of a slot in its keyspace.
#[inline]
pub(crate) fn number_of_slot(slot: Slot) -> u16 {
    (slot.0 % u32::from(SLOTS)) as u16
}

/// The index of the keyspace that a slot belongs to.
#[inline]
pub(crate) fn keyspace_of(slot: Slot) -> u8 {
    u8::try_from(slot.0 / u32::from(SLOTS)).unwrap_or(u8::MAX)
}

/// The name of the tree of a keyspace, by its index.
fn tree_of(place: usize) -> String {
    if place == 0 { "slots".to_owned() } else { format!("slots-{place}") }
}

/// Whether a tree is that of a keyspace.
pub(crate) fn is_tree(name: &str) -> bool {
    (0..KEYSPACES_MAX).any(|place| tree_of(place) == name)
}

/// In memory the applied position of a slot is not written as a cell.
fn open(engine: &Engine, persistence: Persistence, place: usize) -> Result<Keyspace, NodeError> {
    let name = tree_of(place);
    Ok(match persistence {
        Persistence::Off => Keyspace::open_in_memory(engine, &name)?,
        _ => Keyspace::open(engine, &name)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;
    use atoll_keyspace::Applied;
    use atoll_resp::{Command, Limits, Protocol, RequestParser};

    fn set(keyspaces: &mut Keyspaces, slot: Slot) {
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n";
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(bytes).unwrap().unwrap();
        let command = Command::of(&request).unwrap();
        let (keyspace, number) = keyspaces.of_mut(slot);
        let applied = Applied { epoch: 1, sequence: 1 };
        keyspace.apply(number, applied, 5, &command, Protocol::Resp2, &mut Vec::new()).unwrap();
    }

    #[test]
    fn a_key_of_one_keyspace_is_in_no_other_and_is_found_when_opened_again() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let mut keyspaces = Keyspaces::open(&engine, Persistence::Always).unwrap();
        assert_eq!(keyspaces.count(), 1);
        keyspaces.grow(3).unwrap();
        keyspaces.grow(2).unwrap();
        let slot = slot_at(2, 77);
        assert_eq!((keyspace_of(slot), number_of_slot(slot)), (2, 77));
        set(&mut keyspaces, slot);
        drop(keyspaces);
        let keyspaces = Keyspaces::open(&engine, Persistence::Always).unwrap();
        assert_eq!(keyspaces.count(), 3);
        let held = keyspaces.slots().filter(|&slot| {
            let (keyspace, number) = keyspaces.of(slot);
            keyspace.keys_in(number) > 0
        });
        assert_eq!(held.collect::<Vec<_>>(), [slot]);
    }

    #[test]
    fn a_slot_of_no_keyspace_is_no_slot_of_another_one() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let mut keyspaces = Keyspaces::open(&engine, Persistence::Off).unwrap();
        for slot in [slot_at(1, 0), slot_at(15, 3), Slot(u32::MAX)] {
            let (keyspace, number) = keyspaces.of_mut(slot);
            assert!(keyspace.keys_of_slot(number, 1).is_ok_and(|keys| keys.is_empty()));
            assert!(keyspace.verify(number).is_err(), "{slot:?}");
        }
    }
}
