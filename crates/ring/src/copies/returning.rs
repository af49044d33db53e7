//! How much a write may return. Its reply exists only once it is applied, and then it has to be kept: so
//! writes that return values are bounded before they are taken.
//!
//! Invariant: what is set aside for a write covers the values that it returns, if this node led the slot when
//! it came. What another primary still accepts before it hands the slot over is not known here.

use super::{Copies, number_of};
use atoll_keyspace::{CONDITION_BYTES_MAX, STRING_BYTES_MAX};
use atoll_replica::Slot;
use atoll_resp::{Command, FieldBatch, FieldCondition, FieldMutation, OwnCommand, SetAnswer};

/// Most conditions of a batch that are looked at. One with more may return as much as any: looking each up
/// would take about as long as the batch itself.
const LOOKED_AT: usize = 16;

/// What a write may take beside its own bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteExtra {
    /// Most bytes of values that it returns.
    pub(crate) returned: usize,
    /// The key whose values it makes longer, by its hash, if it does.
    pub(crate) appends: Option<u64>,
}

impl WriteExtra {
    /// For a command that returns at most this many bytes of values.
    pub(crate) fn of(command: &Command<'_>, returned: usize) -> Self {
        Self { returned, appends: appended_key(command).map(number_of) }
    }
}

/// The key whose values a command makes longer, if it does.
fn appended_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    match command {
        Command::Append { key, .. } => Some(*key),
        Command::Own(OwnCommand::Batch(batch)) => {
            let appends = |mutation: &FieldMutation<'_>| matches!(mutation, FieldMutation::Append(..));
            batch.mutations.iter().any(appends).then_some(batch.key)
        }
        Command::Once(once) => appended_key(&once.command),
        _ => None,
    }
}

impl Copies {
    /// Most bytes of values that a write returns, given what its slot holds and what is on the way there.
    pub(crate) fn returned_by(&self, slot: Slot, command: &Command<'_>) -> usize {
        match command {
            Command::Set(request) if request.answer == SetAnswer::Former => {
                self.string_bytes(slot, request.key)
            }
            Command::GetDelete(key) | Command::GetExpire { key, .. } => self.string_bytes(slot, key),
            Command::Own(OwnCommand::Batch(batch)) => self.returned_of_batch(slot, batch),
            // Other answers have to be remembered, and are short or refused.
            Command::Once(once) => match &*once.command {
                Command::Own(OwnCommand::Batch(batch)) => self.returned_of_batch(slot, batch),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Most bytes of the string at a key, given what its slot holds and what is on the way there.
    fn string_bytes(&self, slot: Slot, key: &[u8]) -> usize {
        let (keyspace, number) = self.keyspaces.of(slot);
        let (put, appended) = self.growth(slot, key);
        let found = usize::try_from(keyspace.string_bytes(number, key)).unwrap_or(usize::MAX);
        found.max(put).saturating_add(appended).min(STRING_BYTES_MAX)
    }

    /// Roughly the bytes of the string at a key, with what is on the way to be appended to it. What is on its
    /// way to other keys of the slot does not count, nor does what an earlier primary took: it may be for any
    /// key.
    pub(crate) fn own_bytes(&self, slot: Slot, key: &[u8]) -> usize {
        let (keyspace, number) = self.keyspaces.of(slot);
        let found = usize::try_from(keyspace.string_bytes(number, key)).unwrap_or(usize::MAX);
        let appended = self.waiting.appended_bytes(slot, number_of(key));
        found.saturating_add(appended).min(STRING_BYTES_MAX)
    }

    /// The value of the first condition that does not hold, or its beginning.
    fn returned_of_batch(&self, slot: Slot, batch: &FieldBatch<'_>) -> usize {
        match batch.conditions.len() {
            0 => return 0,
            1..=LOOKED_AT => {}
            _ => return CONDITION_BYTES_MAX,
        }
        let (keyspace, number) = self.keyspaces.of(slot);
        let (mut longest, appended) = self.growth(slot, batch.key);
        for condition in &batch.conditions {
            if longest.saturating_add(appended) >= CONDITION_BYTES_MAX {
                return CONDITION_BYTES_MAX;
            }
            let (FieldCondition::Absent(field) | FieldCondition::Equals(field, _)) = *condition;
            let found = keyspace.field_bytes(number, batch.key, field);
            longest = longest.max(usize::try_from(found).unwrap_or(usize::MAX));
        }
        longest.saturating_add(appended).min(CONDITION_BYTES_MAX)
    }

    /// The longest value that writes on their way to a slot may put there, and how many bytes they may append
    /// to one of a key.
    fn growth(&self, slot: Slot, key: &[u8]) -> (usize, usize) {
        let under_way = self.replica.under_way(slot);
        // Which of those that an earlier primary took append is not known.
        let appended = self.waiting.appended_bytes(slot, number_of(key));
        (under_way.longest.max(self.early_longest), under_way.inherited.saturating_add(appended))
    }

    /// Most bytes of values that all writes return which wait.
    pub(crate) fn returned_bytes(&self) -> usize {
        self.waiting.returned_bytes()
    }
}
