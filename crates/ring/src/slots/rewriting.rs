//! Commands that write a string again only to give it another lifetime: the lifetime lies in one cell with
//! the string, so that takes as much as setting it.
//!
//! Invariant: what is kept free on a disk for deletions is not used up by strings that are written again, be
//! they long or many.

use super::{Home, Slots};
use crate::clock::Now;
use crate::room::Lack;
use atoll_replica::Slot;
use atoll_resp::{Command, Deadline, SetLifetime};

/// Shorter strings get another lifetime also while the disk is full, up to a number of bytes: that is how
/// some clients make room.
const REFUSED_BYTES_MIN: usize = 64 << 10;

impl Slots {
    /// What there is too little of for a command that gives a string another lifetime. Memory is not: the
    /// string takes no more of it than before.
    pub(crate) fn lack_for_lifetime(&mut self, slot: Slot, command: &Command<'_>, now: Now) -> Option<Lack> {
        let bytes = changed_key(command, now.date_ms).map_or(0, |key| self.string_bytes(slot, key));
        if bytes == 0 {
            return None;
        }
        // Short ones count as well, so that the disk is measured when there are many.
        let lack = self.lack_for(Some(bytes));
        let is_refused = bytes >= REFUSED_BYTES_MIN;
        lack.filter(|lack| *lack == Lack::Disk && (is_refused || !self.room.takes_rewrite(bytes)))
    }

    /// Roughly the bytes of the string at a key.
    fn string_bytes(&self, slot: Slot, key: &[u8]) -> usize {
        match &self.home {
            Home::Alone(keyspaces) => {
                let (keyspace, number) = keyspaces.of(slot);
                usize::try_from(keyspace.string_bytes(number, key)).unwrap_or(usize::MAX)
            }
            Home::Replicated(replicated) => replicated.copies.own_bytes(slot, key),
        }
    }
}

/// The key whose lifetime a command sets or removes. A deadline that has passed only deletes.
fn changed_key<'a>(command: &Command<'a>, now_ms: u64) -> Option<&'a [u8]> {
    let has_passed = |deadline: &Deadline| match *deadline {
        Deadline::After(milliseconds) => milliseconds <= 0,
        Deadline::At(date) => u64::try_from(date).unwrap_or(0) <= now_ms,
    };
    match command {
        Command::Once(once) => changed_key(&once.command, now_ms),
        Command::Persist(key) | Command::GetExpire { key, lifetime: SetLifetime::Forever } => Some(*key),
        Command::Expire { key, deadline, .. }
        | Command::GetExpire { key, lifetime: SetLifetime::Until(deadline) } => {
            (!has_passed(deadline)).then_some(*key)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_resp::{Limits, RequestParser, write_request};

    /// The key whose lifetime a request changes a second after 1970.
    fn changed(words: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        write_request(&mut bytes, &words.split(' ').collect::<Vec<_>>());
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(&bytes).unwrap().unwrap();
        changed_key(&Command::of(&request).unwrap(), 1_000).map(<[u8]>::to_vec)
    }

    #[test]
    fn what_changes_a_lifetime_is_told_from_what_deletes_or_reads() {
        for words in [
            "expire k 1",
            "pexpireat k 1001",
            "expire k 1 nx",
            "persist k",
            "getex k ex 1",
            "getex k persist",
            "at.id a 1 1 expire k 1",
        ] {
            assert_eq!(changed(words).as_deref(), Some(&b"k"[..]), "{words}");
        }
        for words in
            ["expire k 0", "pexpire k -5", "expireat k 1", "at.id a 1 1 expireat k 1", "getex k", "del k"]
        {
            assert_eq!(changed(words), None, "{words}");
        }
    }
}
