//! What writes touched: the keys, and which of their fields if the command says so.
//!
//! Invariant: whatever a write may have changed is touched.

use super::watch::place_of;
use crate::keyspaces::keyspace_of;
use atoll_keyspace::Keyspace;
use atoll_replica::Slot;
use atoll_resp::{Command, FieldMutation, OwnCommand};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Fields of a key that are told apart; with more of them any may have been written.
const FIELDS_MAX: usize = 4096;

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Whether there are watches.
    pub(crate) is_wanted: bool,
    /// Each key, prefixed with its keyspace.
    pub(super) places: HashMap<Vec<u8>, Fields>,
    /// Slots of which any key may have been written.
    pub(super) slots: HashSet<Slot>,
}

/// Which fields of a key were written.
#[derive(Debug)]
pub(super) enum Fields {
    These(HashSet<Arc<[u8]>>),
    Any,
}

impl Touched {
    /// Records a command that was applied to these keys of a slot.
    pub(crate) fn wrote<'a>(
        &mut self,
        slot: Slot,
        (keyspace, number, time_ms): (&Keyspace, u16, u64),
        command: &Command<'_>,
        keys: impl Iterator<Item = &'a [u8]>,
    ) {
        if !self.is_wanted {
            return;
        }
        match fields_of(command) {
            // An expired key loses all of its fields before these are set.
            Some((key, fields)) if !keyspace.may_be_overdue(number, time_ms) => {
                self.touch_fields(slot, key, &fields);
            }
            _ => self.touch(slot, keys),
        }
    }

    /// Records a write to these keys of a slot.
    pub(crate) fn touch<'a>(&mut self, slot: Slot, keys: impl Iterator<Item = &'a [u8]>) {
        if !self.is_wanted {
            return;
        }
        let mut count = 0;
        let keyspace = keyspace_of(slot);
        let keys = keys.inspect(|_| count += 1);
        self.places.extend(keys.map(|key| (place_of(keyspace, key), Fields::Any)));
        // A command without keys is about all of those of the slot.
        if count == 0 {
            self.slots.insert(slot);
        }
    }

    fn touch_fields(&mut self, slot: Slot, key: &[u8], fields: &[&[u8]]) {
        let place = place_of(keyspace_of(slot), key);
        let of_key = self.places.entry(place).or_insert_with(|| Fields::These(HashSet::new()));
        if let Fields::These(these) = of_key {
            match these.len() + fields.len() > FIELDS_MAX {
                true => *of_key = Fields::Any,
                false => these.extend(fields.iter().map(|&field| Arc::from(field))),
            }
        }
    }
}

/// The key of a write, and the fields that it may change; none if the command does not name them.
fn fields_of<'a>(command: &Command<'a>) -> Option<(&'a [u8], Vec<&'a [u8]>)> {
    Some(match command {
        Command::Once(once) => return fields_of(&once.command),
        Command::HashSet { key, pairs, .. } => (key, pairs.iter().map(|(field, _)| *field).collect()),
        Command::HashSetAbsent { key, field, .. } | Command::HashIncrement { key, field, .. } => {
            (key, vec![*field])
        }
        Command::HashDelete { key, fields } => (key, fields.clone()),
        Command::Own(OwnCommand::Batch(batch)) => {
            let fields = batch.mutations.iter().map(|mutation| match *mutation {
                FieldMutation::Put(field, _)
                | FieldMutation::Append(field, _)
                | FieldMutation::Delete(field) => Some(field),
                FieldMutation::DeleteRange(_) => None,
            });
            (batch.key, fields.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
