//! Evaluation of commands: it reads cells, answers, and records which cells change.
//!
//! [`Reading`] is a command that looks at the cells of a slot at some time; [`Writing`] is one that may also
//! change them.

mod contract;
mod expiry;
mod hashes;
mod keys;
mod once;
mod overlay;
mod reading;
pub(crate) mod run;
mod strings;
mod writing;

pub(crate) use contract::{read_own, write_own};
pub(crate) use keys::kind_name;
pub(crate) use once::is_old;
pub(crate) use reading::Reading;
pub(crate) use writing::Writing;

use crate::cells::{Cells, Changes};
use crate::{KeyspaceError, Refusal};
use atoll_resp::{Command, SetLifetime};

/// Why the evaluation of a command ended early.
pub(crate) enum Stop {
    /// The command is refused, and the client learns why.
    Refused(Refusal),
    /// The store failed, or the caller made a mistake.
    Failed(KeyspaceError),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<KeyspaceError> for Stop {
    fn from(error: KeyspaceError) -> Self {
        Self::Failed(error)
    }
}

/// The result of a step of an evaluation.
pub(crate) type Done<T = ()> = Result<T, Stop>;

/// Evaluates a command that only reads.
pub(crate) fn read<C: Cells>(reading: &mut Reading<'_, C>, command: &Command<'_>) -> Done {
    match command {
        Command::Get(key) | Command::GetExpire { key, lifetime: SetLifetime::Kept } => reading.get(key),
        Command::GetMany(keys) => reading.get_many(keys),
        Command::Length(key) => reading.length(key),
        Command::GetRange { key, start, end } => reading.get_range(key, *start, *end),
        Command::Exists(keys) => reading.exists(keys),
        Command::Lifetime { key, unit, is_absolute } => reading.lifetime(key, *unit, *is_absolute),
        Command::Type(key) => reading.kind(key),
        Command::HashGet { key, field } => reading.hash_get(key, field),
        Command::HashGetMany { key, fields } => reading.hash_get_many(key, fields),
        Command::HashExists { key, field } => reading.hash_exists(key, field),
        Command::HashCount(key) => reading.hash_count(key),
        Command::HashLength { key, field } => reading.hash_length(key, field),
        Command::HashAll { key, fields, values } => reading.hash_all(key, *fields, *values),
        Command::Own(own) => read_own(reading, own),
        command if is_write(command) => Err(KeyspaceError::Write.into()),
        _ => Err(KeyspaceError::NotAboutKeys.into()),
    }
}

/// Evaluates a command that may change cells.
pub(crate) fn write<C: Cells, W: Changes>(
    writing: &mut Writing<'_, '_, C, W>,
    command: &Command<'_>,
) -> Done {
    match command {
        Command::Set(request) => writing.set(request),
        Command::GetDelete(key) => writing.get_delete(key),
        Command::GetExpire { key, lifetime } => writing.get_expire(key, *lifetime),
        Command::Append { key, value } => writing.append(key, value),
        Command::Increment { key, by } => writing.increment(key, *by),
        Command::SetMany(pairs) => writing.set_many(pairs),
        Command::Delete(keys) => writing.delete(keys),
        Command::DeleteIfEqual { key, value } => writing.delete_if_equal(key, value),
        Command::Expire { key, deadline, rule } => writing.expire(key, *deadline, *rule),
        Command::Persist(key) => writing.persist(key),
        Command::FlushAll => writing.flush(),
        Command::HashSet { key, pairs, says_ok } => writing.hash_set(key, pairs, *says_ok),
        Command::HashSetAbsent { key, field, value } => writing.hash_set_absent(key, field, value),
        Command::HashDelete { key, fields } => writing.hash_delete(key, fields),
        Command::HashIncrement { key, field, by } => writing.hash_increment(key, field, *by),
        Command::Own(own) => write_own(writing, own),
        Command::Once(once) => writing.once(once),
        command => read(&mut writing.reading, command),
    }
}

fn is_write(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Set(_)
            | Command::GetDelete(_)
            | Command::GetExpire { .. }
            | Command::Append { .. }
            | Command::Increment { .. }
            | Command::SetMany(_)
            | Command::Delete(_)
            | Command::DeleteIfEqual { .. }
            | Command::Expire { .. }
            | Command::Persist(_)
            | Command::FlushAll
            | Command::HashSet { .. }
            | Command::HashSetAbsent { .. }
            | Command::HashDelete { .. }
            | Command::HashIncrement { .. }
            | Command::Once(_)
    )
}

/// Each name once, in order, with the last value given for it.
fn last_of_each<'a>(pairs: &[(&'a [u8], &'a [u8])]) -> Vec<(&'a [u8], &'a [u8])> {
    let mut distinct: Vec<_> = pairs.iter().rev().copied().collect();
    distinct.sort_by_key(|&(name, _)| name);
    distinct.dedup_by_key(|&mut (name, _)| name);
    distinct
}

/// Each name once, in order.
fn distinct<'a>(names: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut distinct = names.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}
