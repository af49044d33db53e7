//! How long values are, for callers that have to make room for an answer before the command is evaluated.

use super::Keyspace;
use super::cells::TreeCells;
use crate::cell::CellName;
use crate::cells::Cells;
use crate::{ANSWER_BYTES_MAX, FIELD_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use atoll_engine::Direction;
use std::ops::{Bound, ControlFlow};

/// Most fields of a key that are looked at to tell how long all of them are.
const FIELDS_LOOKED_AT: usize = 256;

impl Keyspace {
    /// Roughly the length of the string at a key, expired or not, and never less than that. It is 0 if there
    /// is nothing at the key, and that of the longest string if it cannot be read.
    #[must_use]
    pub fn string_bytes(&self, slot: u16, key: &[u8]) -> u64 {
        if key.len() > KEY_BYTES_MAX {
            return 0;
        }
        self.cell_bytes(&CellName::head(slot, key))
    }

    /// The length of the value of a field, likewise.
    #[must_use]
    pub fn field_bytes(&self, slot: u16, key: &[u8], field: &[u8]) -> u64 {
        if key.len() > KEY_BYTES_MAX || field.len() > FIELD_BYTES_MAX {
            return 0;
        }
        self.cell_bytes(&CellName::field(slot, key, field))
    }

    /// The length of all fields of a key and of their values, likewise. It is that of the longest answer if
    /// there are so many fields that looking at each takes long.
    #[must_use]
    pub fn hash_bytes(&self, slot: u16, key: &[u8]) -> u64 {
        if key.len() > KEY_BYTES_MAX {
            return 0;
        }
        let (from, to) = (CellName::fields(slot, key), CellName::fields_end(slot, key));
        let (mut fields, mut bytes) = (0, 0);
        let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let visited = TreeCells { tree: &self.tree }.visit(range, Direction::Forward, |name, value| {
            fields += 1;
            bytes += name.len().saturating_sub(from.len()) as u64 + value.len();
            if fields > FIELDS_LOOKED_AT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match visited {
            Ok(()) if fields <= FIELDS_LOOKED_AT => bytes,
            Ok(()) | Err(_) => ANSWER_BYTES_MAX as u64,
        }
    }

    /// The length of a cell, whose value is not read from the disk for that.
    fn cell_bytes(&self, name: &[u8]) -> u64 {
        let found = TreeCells { tree: &self.tree }.value(name);
        found.map_or(VALUE_BYTES_MAX as u64, |value| value.map_or(0, |value| value.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Applied;
    use atoll_engine::{Engine, Options};
    use atoll_resp::{Command, Limits, Protocol, RequestParser, write_request};

    /// Makes these writes in slot 3.
    fn written(keyspace: &mut Keyspace, writes: &[Vec<&str>]) {
        for (sequence, words) in (1..).zip(writes) {
            let mut bytes = Vec::new();
            write_request(&mut bytes, words);
            let mut parser = RequestParser::new(Limits::default());
            let request = parser.parse(&bytes).unwrap().unwrap();
            let command = Command::of(&request).unwrap();
            let applied = Applied { epoch: 1, sequence };
            keyspace.apply(3, applied, 1, &command, Protocol::Resp2, &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn values_are_as_long_as_they_are_said_to_be() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let mut keyspace = Keyspace::open(&engine, "slots").unwrap();
        let long = "v".repeat(100_000);
        let writes = [vec!["set", "key", &long], vec!["hset", "hash", "f", &long], vec!["set", "one", "1"]];
        written(&mut keyspace, &writes);
        assert!((100_000..100_010).contains(&keyspace.string_bytes(3, b"key")));
        assert!((1..10).contains(&keyspace.string_bytes(3, b"one")));
        assert_eq!(keyspace.field_bytes(3, b"hash", b"f"), 100_000);
        assert_eq!((keyspace.string_bytes(3, b"no"), keyspace.field_bytes(3, b"hash", b"no")), (0, 0));
        assert_eq!(keyspace.string_bytes(4, b"key"), 0, "that is another slot");
        let key = vec![b'k'; KEY_BYTES_MAX + 1];
        assert_eq!((keyspace.string_bytes(3, &key), keyspace.field_bytes(3, b"hash", &key)), (0, 0));
    }

    #[test]
    fn a_hash_is_as_long_as_its_fields_and_a_wide_one_as_long_as_an_answer_can_be() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let mut keyspace = Keyspace::open(&engine, "slots").unwrap();
        let (long, key) = ("v".repeat(100_000), "k".repeat(KEY_BYTES_MAX + 1));
        let names: Vec<_> = (0..=FIELDS_LOOKED_AT).map(|number| format!("{number:04}")).collect();
        let pairs = |count: usize| names[..count].iter().flat_map(|name| [name.as_str(), "1"]);
        let writes: [Vec<&str>; 3] = [
            vec!["hset", "hash", "one", &long, "other", "1"],
            ["hset", "neighbour"].into_iter().chain(pairs(FIELDS_LOOKED_AT)).collect(),
            ["hset", "wide"].into_iter().chain(pairs(FIELDS_LOOKED_AT + 1)).collect(),
        ];
        written(&mut keyspace, &writes);
        assert_eq!(keyspace.hash_bytes(3, b"hash"), 3 + 100_000 + 5 + 1);
        assert_eq!(keyspace.hash_bytes(3, b"neighbour"), 5 * FIELDS_LOOKED_AT as u64);
        assert_eq!(keyspace.hash_bytes(3, b"wide"), ANSWER_BYTES_MAX as u64);
        assert_eq!((keyspace.hash_bytes(3, b"no"), keyspace.hash_bytes(4, b"hash")), (0, 0));
        assert_eq!(keyspace.hash_bytes(3, key.as_bytes()), 0);
    }
}
