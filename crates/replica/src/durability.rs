//! What an acknowledged write survives, chosen for each keyspace; and of which keyspaces a node that starts
//! still has everything.
//!
//! Invariant: a copy vouches for a slot only as far as the durability of the slot's keyspace goes.

use crate::{KEYSPACES_MAX, Slot, Table};

/// What an acknowledged write survives, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persistence {
    /// Not even the end of the process.
    Off,
    /// The end of the process; a power failure, except for the last second.
    #[default]
    EverySecond,
    /// A power failure.
    Always,
}

impl Persistence {
    /// All classes, weakest first.
    pub const ALL: [Self; 3] = [Self::Off, Self::EverySecond, Self::Always];

    /// The name of the durability class, the same as in the contract of stores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "buffered",
            Self::EverySecond => "flushed",
            Self::Always => "synced",
        }
    }

    /// The class of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The number that stands for the class in encodings. It is never 0, which stands for no rule.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Off => 1,
            Self::EverySecond => 2,
            Self::Always => 3,
        }
    }

    /// The class of this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}

/// Some of the keyspaces that a ring may have, by their indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceSet(u16);

const _: () = assert!(KEYSPACES_MAX == u16::BITS as usize);

impl KeyspaceSet {
    /// All keyspaces, also those that are still to come.
    pub const ALL: Self = Self(u16::MAX);

    /// The set with these bits: bit k is for keyspace k.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits of the set.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether no keyspace is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a keyspace is in the set.
    #[must_use]
    pub fn contains(self, keyspace: usize) -> bool {
        keyspace < KEYSPACES_MAX && self.0 & (1 << keyspace) != 0
    }

    /// The keyspaces of this set that are not in the other one.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The indexes of the keyspaces in the set, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..KEYSPACES_MAX).filter(move |&keyspace| self.contains(keyspace))
    }
}

impl FromIterator<usize> for KeyspaceSet {
    fn from_iter<T: IntoIterator<Item = usize>>(keyspaces: T) -> Self {
        let known = keyspaces.into_iter().filter(|&keyspace| keyspace < KEYSPACES_MAX);
        Self(known.fold(0, |bits, keyspace| bits | 1 << keyspace))
    }
}

/// What a starting node still has of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survived {
    /// Everything that it ever reported to have.
    Everything,
    /// Nothing that can be relied on.
    Nothing,
    /// Everything that it ever reported to have of these keyspaces, which are some and not all; of the others
    /// nothing that can be relied on.
    Of(KeyspaceSet),
}

impl Survived {
    /// That everything survived of these keyspaces.
    #[must_use]
    pub fn of(keyspaces: KeyspaceSet) -> Self {
        match keyspaces {
            KeyspaceSet::ALL => Self::Everything,
            none if none.is_empty() => Self::Nothing,
            some => Self::Of(some),
        }
    }

    /// Whether the node still has everything of a keyspace.
    #[must_use]
    pub fn has(&self, keyspace: usize) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::Of(keyspaces) => keyspaces.contains(keyspace),
        }
    }
}

impl Table {
    /// What an acknowledged write to a slot survives; `first` is what it survives in the first keyspace.
    #[must_use]
    #[inline]
    pub fn persistence_of(&self, slot: Slot, first: Persistence) -> Persistence {
        self.rules_of(slot).and_then(|rules| rules.durability).unwrap_or(first)
    }

    /// Whether entries of a slot are logged before they count as logged; `first` is whether those of the
    /// first keyspace are.
    #[must_use]
    #[inline]
    pub(crate) fn logs(&self, slot: Slot, first: bool) -> bool {
        let durability = self.rules_of(slot).and_then(|rules| rules.durability);
        durability.map_or(first, |class| class != Persistence::Off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_and_numbers_of_their_own() {
        for class in Persistence::ALL {
            assert_eq!(Persistence::from_name(class.name()), Some(class));
            assert_eq!(Persistence::from_code(class.code()), Some(class));
        }
        assert_eq!((Persistence::from_name("everysec"), Persistence::from_code(0)), (None, None));
        assert!(
            Persistence::Off < Persistence::EverySecond && Persistence::EverySecond < Persistence::Always
        );
    }

    #[test]
    fn what_survived_of_all_or_of_no_keyspaces_is_said_in_one_way() {
        assert_eq!(Survived::of(KeyspaceSet::ALL), Survived::Everything);
        assert_eq!(Survived::of(KeyspaceSet::default()), Survived::Nothing);
        let some: KeyspaceSet = [0, 15, 16, 99].into_iter().collect();
        assert_eq!((some.bits(), some.iter().collect::<Vec<_>>()), (0x8001, vec![0, 15]));
        let survived = Survived::of(some);
        let has = |keyspace| survived.has(keyspace);
        assert_eq!([0, 1, 15, 16].map(has), [true, false, true, false]);
        assert_eq!(KeyspaceSet::ALL.without(some).bits(), 0x7ffe);
    }
}
