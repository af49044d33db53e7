//! Keyspaces: ranges of slots of equal size, each with copies and rules of its own.
//!
//! The first keyspace has no name and follows the options of the ring. The slots of the others come after it,
//! in the order in which they were created. So each slot of a ring has one number, and code that works on
//! slots knows nothing of keyspaces.
//!
//! Invariant: a keyspace keeps its place, and with it the numbers of its slots, for as long as the ring
//! exists.

use crate::{COPIES_MAX, Persistence, Slot, Table};

/// Most keyspaces of a ring, including the first one.
pub const KEYSPACES_MAX: usize = 16;

/// Most slots of a ring, over all keyspaces.
pub const SLOTS_MAX: u32 = 1 << 20;

/// Longest name of a keyspace, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A keyspace other than the first: its name, and the rules for its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceRules {
    /// The name: letters, digits, `-`, `_` and `.`, not beginning with a dot.
    pub name: Box<str>,
    /// How many copies each of its slots is to have; 0 for as many as in the first keyspace.
    pub copies: u8,
    /// How many of them must be in sync for a write to be accepted; 0 for as many as in the first keyspace,
    /// but no more than there are copies.
    pub in_sync_min: u8,
    /// How long its requests may take, in milliseconds, unless a client says otherwise; 0 for no such rule.
    pub latency_ms: u16,
    /// What an acknowledged write survives; none for what the node that has the copy keeps of the first
    /// keyspace.
    pub durability: Option<Persistence>,
}

/// What is wrong with a name of a keyspace, if anything.
#[must_use]
pub fn problem_of_name(name: &str) -> Option<&'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
        return Some("the name of a keyspace is 1 to 64 letters, digits, '-', '_' and '.'");
    }
    if name.starts_with('.') || name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some("the name of a keyspace must not begin with '.' or be a number");
    }
    None
}

impl KeyspaceRules {
    /// What is wrong with the rules, if anything.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        if let Some(problem) = problem_of_name(&self.name) {
            return Some(problem);
        }
        if usize::from(self.copies) > COPIES_MAX {
            return Some("a slot has 1 to 7 copies");
        }
        if self.in_sync_min > 0 && self.copies == 0 {
            return Some("in_sync_min needs copies to be given");
        }
        if self.in_sync_min > self.copies {
            return Some("in_sync_min cannot exceed copies");
        }
        None
    }
}

impl Table {
    /// The number of keyspaces; the first one always exists.
    #[must_use]
    pub fn keyspace_count(&self) -> usize {
        1 + self.keyspaces.len()
    }

    /// How many slots each keyspace has.
    #[must_use]
    pub fn slots_each(&self) -> u32 {
        (self.slots.len() / self.keyspace_count()) as u32
    }

    /// The index of the keyspace that a slot belongs to.
    #[must_use]
    #[inline]
    pub fn keyspace_of(&self, slot: Slot) -> usize {
        if self.keyspaces.is_empty() { 0 } else { (slot.0 / self.slots_each().max(1)) as usize }
    }

    /// The rules for a slot; none where the options of the ring apply.
    #[must_use]
    #[inline]
    pub fn rules_of(&self, slot: Slot) -> Option<&KeyspaceRules> {
        self.keyspaces.get(self.keyspace_of(slot).checked_sub(1)?)
    }

    /// The index of the keyspace with this name.
    #[must_use]
    pub fn keyspace_named(&self, name: &str) -> Option<usize> {
        self.keyspaces.iter().position(|rules| &*rules.name == name).map(|place| place + 1)
    }

    /// How many copies a slot is to have, and how many of them must be in sync for a write to be accepted.
    /// The arguments are these numbers for the first keyspace.
    #[must_use]
    #[inline]
    pub fn copies_of(&self, slot: Slot, (copies, in_sync_min): (usize, usize)) -> (usize, usize) {
        let Some(rules) = self.rules_of(slot) else { return (copies, in_sync_min) };
        let or = |number: u8, otherwise| if number == 0 { otherwise } else { usize::from(number) };
        let copies = or(rules.copies, copies);
        (copies, or(rules.in_sync_min, in_sync_min.min(copies)))
    }

    /// Whether there is room for another keyspace.
    #[must_use]
    pub fn has_room_for_keyspace(&self) -> bool {
        let slots = self.slots.len() as u32 + self.slots_each();
        self.keyspace_count() < KEYSPACES_MAX && slots <= SLOTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Decision, Epoch, Group, GroupOptions, NodeId, PlacementHints, Survived};

    fn rules(name: &str, copies: u8, in_sync_min: u8) -> KeyspaceRules {
        KeyspaceRules { name: name.into(), copies, in_sync_min, latency_ms: 0, durability: None }
    }

    fn group(slots: u32) -> Group {
        let mut group = Group::new(GroupOptions { slots, copies: 3 });
        for node in 1..=4 {
            let (node, address, survived) = (NodeId(node), String::new(), Survived::Nothing);
            group.apply(Change::Register {
                node,
                nonce: 1,
                address,
                hints: PlacementHints::default(),
                survived,
            });
        }
        group
    }

    fn place(group: &mut Group) {
        for _ in 0..100 {
            let changes = group.plan(&[]);
            if changes.is_empty() {
                return;
            }
            for change in changes {
                group.apply(change);
            }
        }
    }

    #[test]
    fn each_keyspace_has_its_own_slots_and_as_many_copies_as_were_asked_for() {
        let mut group = group(300);
        place(&mut group);
        let first = group.table();
        assert_eq!(group.apply(Change::Keyspace(rules("fast", 1, 1))), Decision::Changed);
        assert_eq!(group.apply(Change::Keyspace(rules("fast", 2, 1))), Decision::Unchanged, "it is there");
        assert_eq!(group.apply(Change::Keyspace(rules("safe", 4, 3))), Decision::Changed);
        place(&mut group);
        let table = group.table();
        assert_eq!((table.slots.len(), table.keyspace_count(), table.slots_each()), (900, 3, 300));
        for (slot, now) in (0..).map(Slot).zip(table.slots.iter()) {
            let keyspace = (slot.0 / 300) as usize;
            assert_eq!(table.keyspace_of(slot), keyspace);
            assert_eq!(now.in_sync.len(), [3, 1, 4][keyspace], "{slot:?}");
        }
        assert!(
            (0..300).all(|slot| table.slot(Slot(slot)) == first.slot(Slot(slot))),
            "the first one is as it was"
        );
        assert_eq!(table.rules_of(Slot(899)).map(|rules| rules.in_sync_min), Some(3));
        assert_eq!((table.rules_of(Slot(299)), table.rules_of(Slot(900))), (None, None));
        assert_eq!((table.keyspace_named("safe"), table.keyspace_named("none")), (Some(2), None));
        let leads = |node| table.slots.iter().filter(|slot| slot.primary == Some(NodeId(node))).count();
        assert!(
            (1..=4).all(|node| (200..=250).contains(&leads(node))),
            "{:?}",
            (1..=4).map(leads).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_ring_has_sixteen_keyspaces_and_no_more_slots_than_there_may_be() {
        let mut small = group(8);
        let made =
            |group: &mut Group, at: usize| group.apply(Change::Keyspace(rules(&format!("k{at}"), 1, 1)));
        assert!((1..KEYSPACES_MAX).all(|at| made(&mut small, at) == Decision::Changed));
        assert_eq!(made(&mut small, 99), Decision::Unchanged);
        let mut wide = group(SLOTS_MAX / 2);
        assert_eq!(made(&mut wide, 1), Decision::Changed);
        assert_eq!(made(&mut wide, 2), Decision::Unchanged);
    }

    #[test]
    fn a_keyspace_that_needs_more_nodes_waits_for_them_and_no_other_does() {
        let mut group = group(8);
        group.apply(Change::Keyspace(rules("wide", 5, 1)));
        place(&mut group);
        let founded = |group: &Group| group.table().slots.iter().filter(|slot| slot.epoch > Epoch(0)).count();
        assert_eq!(founded(&group), 8);
        let (address, survived) = (String::new(), Survived::Nothing);
        group.apply(Change::Register {
            node: NodeId(5),
            nonce: 1,
            address,
            hints: PlacementHints::default(),
            survived,
        });
        place(&mut group);
        assert_eq!(founded(&group), 16);
    }

    #[test]
    fn what_a_keyspace_says_nothing_about_is_as_in_the_first_one() {
        let mut group = group(8);
        for (name, copies, in_sync_min) in [("as-first", 0, 0), ("one", 1, 0), ("four", 4, 0), ("all", 4, 4)]
        {
            group.apply(Change::Keyspace(rules(name, copies, in_sync_min)));
        }
        let table = group.table();
        let copies = |keyspace: u32| table.copies_of(Slot(keyspace * 8), (3, 2));
        assert_eq!((0..5).map(copies).collect::<Vec<_>>(), [(3, 2), (3, 2), (1, 1), (4, 2), (4, 4)]);
        place(&mut group);
        assert_eq!(group.table().slot(Slot(8)).in_sync.len(), 3);
    }

    #[test]
    fn rules_that_make_no_sense_are_told_and_change_nothing() {
        let mut group = group(8);
        for wrong in [
            rules("", 1, 1),
            rules(&"x".repeat(65), 1, 1),
            rules("a b", 1, 1),
            rules(".hidden", 1, 1),
            rules("12", 1, 1),
            rules("a", 0, 1),
            rules("a", 8, 1),
            rules("a", 2, 3),
        ] {
            assert!(wrong.problem().is_some(), "{wrong:?}");
            assert_eq!(group.apply(Change::Keyspace(wrong)), Decision::Unchanged);
        }
        assert_eq!(rules("run-1.a_B", 7, 7).problem(), None);
        assert_eq!(rules("x", 0, 0).problem(), None);
    }
}
