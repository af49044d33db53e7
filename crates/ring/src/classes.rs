//! The durability of each keyspace of a node, and the record of it in the node's store.
//!
//! A node judges what it still has before anybody tells it the table, so it has to know by itself what it
//! promised for which keyspace.
//!
//! Invariant: the record is synced before anything of a keyspace is acknowledged at a durability of its own.
//! Invariant: what is recorded of a keyspace stays until a table says otherwise of that keyspace. The first
//! table of a node may be older than its record, and name fewer.

use crate::NodeError;
use crate::options::Persistence;
use crate::reliance::NODE;
use atoll_engine::{Durability, Engine, WriteBatch};
use atoll_replica::{KEYSPACES_MAX, KeyspaceRules, KeyspaceSet};

/// What acknowledged writes survive, by the index of their keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    /// In the first keyspace, and in those without a durability of their own.
    first: Persistence,
    /// In the others, where they have one.
    own: [Option<Persistence>; KEYSPACES_MAX],
}

/// Key of the record in the tree about the node itself: a byte for each keyspace behind the first one, 0
/// where it has no durability of its own.
const CLASSES: &[u8] = b"classes";

impl Classes {
    /// The classes that this store was last used with, if the first keyspace now has the class `first`.
    pub(crate) fn recorded(engine: &Engine, first: Persistence) -> Result<Self, NodeError> {
        let mut classes = Self { first, own: [None; KEYSPACES_MAX] };
        let Some(kept) = engine.tree(NODE)?.get(CLASSES)? else { return Ok(classes) };
        let kept = kept.to_buffer()?;
        let corrupt = || NodeError::Corrupt { what: "the durability of the keyspaces" };
        if kept.len() >= KEYSPACES_MAX {
            return Err(corrupt());
        }
        for (own, &code) in classes.own.iter_mut().skip(1).zip(kept.iter()) {
            *own = match code {
                0 => None,
                code => Some(Persistence::from_code(code).ok_or_else(corrupt)?),
            };
        }
        Ok(classes)
    }

    /// The classes that these keyspaces ask for, which are all that a table names but the first one. Those
    /// that it does not name keep theirs.
    pub(crate) fn of_rules(self, rules: &[KeyspaceRules]) -> Self {
        let mut own = self.own;
        for (own, rules) in own.iter_mut().skip(1).zip(rules) {
            *own = rules.durability;
        }
        Self { own, ..self }
    }

    /// Records the classes.
    pub(crate) fn record(&self, engine: &Engine) -> Result<(), NodeError> {
        let codes: Vec<u8> = self.own.iter().skip(1).map(|own| own.map_or(0, Persistence::code)).collect();
        let mut batch = WriteBatch::new();
        batch.put(&engine.tree(NODE)?, CLASSES, &codes);
        engine.write(&batch, Durability::Synced)?;
        Ok(())
    }

    /// The class of a keyspace. One that is not known has that of the first one.
    #[inline]
    pub(crate) fn of(&self, keyspace: u8) -> Persistence {
        self.own.get(usize::from(keyspace)).copied().flatten().unwrap_or(self.first)
    }

    /// The keyspaces of a class, also among those that are not there yet.
    pub(crate) fn all_of(&self, class: Persistence) -> KeyspaceSet {
        let classes = self.own.iter().map(|own| own.unwrap_or(self.first));
        classes.enumerate().filter(|(_, one)| *one == class).map(|(keyspace, _)| keyspace).collect()
    }

    /// The keyspaces without a durability of their own, also among those that are not there yet.
    pub(crate) fn of_first(&self) -> KeyspaceSet {
        self.own.iter().enumerate().filter(|(_, own)| own.is_none()).map(|(keyspace, _)| keyspace).collect()
    }
}

/// A class in the words of Redis.
pub(crate) fn redis_name(class: Persistence) -> &'static str {
    match class {
        Persistence::Off => "no",
        Persistence::EverySecond => "everysec",
        Persistence::Always => "always",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;

    fn rules(name: &str, durability: Option<Persistence>) -> KeyspaceRules {
        KeyspaceRules { name: name.into(), copies: 0, in_sync_min: 0, latency_ms: 0, durability }
    }

    #[test]
    fn what_was_recorded_is_what_is_read_and_damage_is_told() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let first = Classes::recorded(&engine, Persistence::EverySecond).unwrap();
        assert_eq!(first.all_of(Persistence::EverySecond), KeyspaceSet::ALL);
        let all =
            [rules("a", Some(Persistence::Always)), rules("b", None), rules("c", Some(Persistence::Off))];
        let classes = first.of_rules(&all);
        classes.record(&engine).unwrap();
        assert_eq!(Classes::recorded(&engine, Persistence::EverySecond).unwrap(), classes);
        assert_eq!(classes.of_rules(&all[..1]), classes, "a table of before the others were made");
        let other = Classes::recorded(&engine, Persistence::Off).unwrap();
        let seen: Vec<_> = (0..5).map(|keyspace| other.of(keyspace)).collect();
        let (off, always) = (Persistence::Off, Persistence::Always);
        assert_eq!(seen, [off, always, off, off, off]);
        assert_eq!(other.of_first().iter().take(3).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(other.all_of(always).iter().collect::<Vec<_>>(), [1]);
        for damaged in [&[4][..], &[0; 16], &[1, 0xff]] {
            engine.tree(NODE).unwrap().put(CLASSES, damaged, Durability::Buffered).unwrap();
            assert!(Classes::recorded(&engine, off).is_err(), "{damaged:?}");
        }
    }
}
