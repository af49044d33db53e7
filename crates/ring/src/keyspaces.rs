//! The keyspaces of a node, each with what it holds in a tree of its own.
//!
//! A slot has one number in its ring and another one in its keyspace, which is the one that clients know.
//!
//! Invariant: there is one for each keyspace of the newest table that the loop has taken over.
//! Invariant: the durability of keyspaces is recorded once all of them are open for it, so a table that is
//! refused leaves the record as it was.

use crate::NodeError;
use crate::classes::Classes;
use crate::options::Persistence;
use atoll_engine::Engine;
use atoll_keyspace::{Keyspace, SLOTS};
use atoll_replica::{KEYSPACES_MAX, KeyspaceRules, Slot};

/// The keyspaces of a node.
pub(crate) struct Keyspaces {
    engine: Engine,
    classes: Classes,
    first: Keyspace,
    others: Vec<Keyspace>,
}

/// Stands for a slot that no keyspace has.
const NO_SLOT: u16 = u16::MAX;

impl Keyspaces {
    /// Opens the keyspaces that this engine holds. The first one always exists, and has this class.
    pub(crate) fn open(engine: &Engine, persistence: Persistence) -> Result<Self, NodeError> {
        let classes = Classes::recorded(engine, persistence)?;
        let (first, engine) = (open(engine, classes, 0)?, engine.clone());
        let names = engine.tree_names();
        let is_kept = |place: &usize| names.contains(&tree_of(*place));
        let last = (1..KEYSPACES_MAX).rev().find(is_kept).unwrap_or(0);
        let mut keyspaces = Self { engine, classes, first, others: Vec::new() };
        keyspaces.grow(1 + last)?;
        Ok(keyspaces)
    }

    /// Adds keyspaces until there are `count`.
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), NodeError> {
        while self.count() < count {
            let next = open(&self.engine, self.classes, self.count())?;
            self.others.push(next);
        }
        Ok(())
    }

    /// Opens the keyspaces with these rules, which are all but the first one, and records the durability of
    /// each. What is open already stays so.
    pub(crate) fn follow(&mut self, rules: &[KeyspaceRules]) -> Result<(), NodeError> {
        let classes = self.classes.of_rules(rules);
        let count = self.count();
        let mut opened = Vec::new();
        for place in 1..count.max(1 + rules.len()) {
            let number = place as u8;
            // A folder without contents may have been in another ring before.
            let is_other = is_kept(classes.of(number)) != is_kept(self.classes.of(number));
            if place >= count || is_other {
                opened.push((place, open(&self.engine, classes, place)?));
            }
        }
        if classes != self.classes {
            classes.record(&self.engine)?;
            self.classes = classes;
        }
        for (place, keyspace) in opened {
            match self.others.get_mut(place - 1) {
                Some(before) => *before = keyspace,
                None => self.others.push(keyspace),
            }
        }
        Ok(())
    }

    /// What acknowledged writes to a slot survive.
    #[inline]
    pub(crate) fn class_of(&self, slot: Slot) -> Persistence {
        self.classes.of(keyspace_of(slot))
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
pub(crate) fn tree_of(place: usize) -> String {
    if place == 0 { "slots".to_owned() } else { format!("slots-{place}") }
}

/// Whether a tree is that of a keyspace.
pub(crate) fn is_tree(name: &str) -> bool {
    (0..KEYSPACES_MAX).any(|place| tree_of(place) == name)
}

/// Where nothing is kept the applied position of a slot is not written as a cell.
fn open(engine: &Engine, classes: Classes, place: usize) -> Result<Keyspace, NodeError> {
    let name = tree_of(place);
    Ok(match is_kept(classes.of(place as u8)) {
        false => Keyspace::open_in_memory(engine, &name)?,
        true => Keyspace::open(engine, &name)?,
    })
}

fn is_kept(class: Persistence) -> bool {
    class != Persistence::Off
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{folder, reliance};
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
    fn each_keyspace_is_opened_for_what_its_own_writes_survive() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let rules = |classes: [Option<Persistence>; 2]| {
            classes.map(|durability| {
                let name = "k".into();
                KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability }
            })
        };
        let first = rules([Some(Persistence::Off), Some(Persistence::Always)]);
        let mut keyspaces = Keyspaces::open(&engine, Persistence::EverySecond).unwrap();
        keyspaces.follow(&first).unwrap();
        let classes = |keyspaces: &Keyspaces| [0, 1, 2].map(|place| keyspaces.class_of(slot_at(place, 3)));
        let expected = [Persistence::EverySecond, Persistence::Off, Persistence::Always];
        assert_eq!(classes(&keyspaces), expected);
        (0..3).for_each(|place| set(&mut keyspaces, slot_at(place, 77)));
        drop(keyspaces);
        // What outlives nothing has no positions, so that it cannot be opened again before it is emptied.
        assert!(Keyspaces::open(&engine, Persistence::EverySecond).is_err());
        let tree = engine.tree("slots-1").unwrap();
        let mut batch = atoll_engine::WriteBatch::new();
        batch.delete_range(&tree, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded));
        engine.write(&batch, atoll_engine::Durability::Buffered).unwrap();
        let mut keyspaces = Keyspaces::open(&engine, Persistence::EverySecond).unwrap();
        assert_eq!(classes(&keyspaces), expected, "before any table is known");
        keyspaces.follow(&first).unwrap();
        let position = |keyspaces: &Keyspaces, place| {
            let (keyspace, number) = keyspaces.of(slot_at(place, 77));
            keyspace.applied(number).sequence
        };
        assert_eq!([0, 1, 2].map(|place| position(&keyspaces, place)), [1, 0, 1]);
        // A folder without contents comes to another ring, in which the same number is of another class.
        keyspaces.follow(&rules([Some(Persistence::Always), Some(Persistence::Always)])).unwrap();
        set(&mut keyspaces, slot_at(1, 77));
        drop(keyspaces);
        let keyspaces = Keyspaces::open(&engine, Persistence::EverySecond).unwrap();
        assert_eq!([0, 1, 2].map(|place| position(&keyspaces, place)), [1, 1, 1]);
    }

    #[test]
    fn a_table_older_than_the_record_or_one_that_is_refused_takes_no_durability_from_a_keyspace() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let (off, slot) = (Persistence::Off, slot_at(1, 77));
        let rules = |class| {
            let (name, durability) = ("k".into(), Some(class));
            [KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability }]
        };
        folder::take(&engine, off, None).unwrap();
        reliance::judge(&engine, off).unwrap();
        let mut keyspaces = Keyspaces::open(&engine, off).unwrap();
        keyspaces.follow(&rules(Persistence::Always)).unwrap();
        set(&mut keyspaces, slot);
        drop(keyspaces);
        // The node begins again, and is told first of a table of before the keyspace was made.
        let mut keyspaces = Keyspaces::open(&engine, off).unwrap();
        keyspaces.follow(&[]).unwrap();
        assert_eq!(keyspaces.class_of(slot), Persistence::Always);
        assert!(keyspaces.follow(&rules(off)).is_err(), "it has what was kept");
        assert_eq!(keyspaces.class_of(slot), Persistence::Always);
        drop(keyspaces);
        // What is recorded is what the next start deletes by.
        assert_eq!(Classes::recorded(&engine, off).unwrap().of(1), Persistence::Always);
        folder::take(&engine, off, None).unwrap();
        let keyspaces = Keyspaces::open(&engine, off).unwrap();
        let (keyspace, number) = keyspaces.of(slot);
        assert_eq!((keyspace.keys_in(number), keyspace.applied(number).sequence), (1, 1));
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
