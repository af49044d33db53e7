//! How long the replies will be of reads that wait. They are evaluated only when they are answered, and see
//! writes that came later, so this is an estimate: a connection refuses what became too long for it.

use super::Copies;
use atoll_keyspace::{ANSWER_BYTES_MAX, FIELD_BYTES_MAX, PAGE_BYTES_MAX, VALUE_BYTES_MAX};
use atoll_replica::{Slot, Ticket};
use atoll_resp::{Command, OwnCommand};

/// Most keys or fields of a read that are looked at. The reply to one with more may be as long as any.
const LOOKED_AT: usize = 256;

/// Longest page, whose first entry is included whatever its size.
const LONGEST_PAGE: u64 = (PAGE_BYTES_MAX + VALUE_BYTES_MAX) as u64;

impl Copies {
    /// Roughly the bytes of values that a read will answer, given what its slot holds and what is on the way
    /// there; none if it was answered at once.
    pub(crate) fn expected_of(&self, slot: Slot, ticket: Ticket, command: &Command<'_>) -> usize {
        // The last answer is that of the request which was executed last.
        if self.answers.last().is_some_and(|(last, _)| *last == ticket) {
            return 0;
        }
        let (keyspace, number) = self.keyspaces.of(slot);
        let found = match command {
            Command::Get(key) | Command::GetRange { key, .. } | Command::GetExpire { key, .. } => {
                keyspace.string_bytes(number, key)
            }
            Command::GetMany(keys) => sum(keys, |key| keyspace.string_bytes(number, key)),
            Command::HashGet { key, field } | Command::Own(OwnCommand::Get { key, field, .. }) => {
                keyspace.field_bytes(number, key, field)
            }
            Command::HashGetMany { key, fields } => {
                sum(fields, |field| keyspace.field_bytes(number, key, field))
            }
            Command::HashAll { key, .. } => keyspace.hash_bytes(number, key),
            Command::Own(OwnCommand::Range(range)) => {
                keyspace.hash_bytes(number, range.key).min(LONGEST_PAGE)
            }
            // The others answer numbers and words.
            _ => return 0,
        };
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        let present = found.saturating_add(self.replica.under_way_bytes(slot));
        present.min(asked_at_most(command)).min(ANSWER_BYTES_MAX)
    }
}

/// How many bytes a read answers at most, however long what it reads is.
fn asked_at_most(command: &Command<'_>) -> usize {
    let most = match command {
        Command::GetRange { start, end, .. } if *start >= 0 && *end >= 0 => {
            end.abs_diff(*start).saturating_add(1)
        }
        Command::Own(OwnCommand::Get { part, .. }) => part.len,
        Command::Own(OwnCommand::Range(range)) => {
            let each = (FIELD_BYTES_MAX as u64).saturating_add(range.part.map_or(0, |part| part.len));
            range.limit.saturating_mul(each)
        }
        _ => u64::MAX,
    };
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// The sum of what `bytes` says of each name.
fn sum(names: &[&[u8]], bytes: impl Fn(&[u8]) -> u64) -> u64 {
    match names.len() > LOOKED_AT {
        true => u64::MAX,
        false => names.iter().map(|name| bytes(name)).sum(),
    }
}
