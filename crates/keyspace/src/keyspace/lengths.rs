//! How long values are, for callers that have to make room for an answer before the command is evaluated.

use super::Keyspace;
use super::cells::TreeCells;
use crate::cell::CellName;
use crate::cells::Cells;
use crate::{FIELD_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

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

    #[test]
    fn values_are_as_long_as_they_are_said_to_be() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let mut keyspace = Keyspace::open(&engine, "slots").unwrap();
        let long = "v".repeat(100_000);
        let writes = [vec!["set", "key", &long], vec!["hset", "hash", "f", &long], vec!["set", "one", "1"]];
        for (sequence, words) in (1..).zip(writes) {
            let mut bytes = Vec::new();
            write_request(&mut bytes, &words);
            let mut parser = RequestParser::new(Limits::default());
            let request = parser.parse(&bytes).unwrap().unwrap();
            let command = Command::of(&request).unwrap();
            let applied = Applied { epoch: 1, sequence };
            keyspace.apply(3, applied, 1, &command, Protocol::Resp2, &mut Vec::new()).unwrap();
        }
        assert!((100_000..100_010).contains(&keyspace.string_bytes(3, b"key")));
        assert!((1..10).contains(&keyspace.string_bytes(3, b"one")));
        assert_eq!(keyspace.field_bytes(3, b"hash", b"f"), 100_000);
        assert_eq!((keyspace.string_bytes(3, b"no"), keyspace.field_bytes(3, b"hash", b"no")), (0, 0));
        assert_eq!(keyspace.string_bytes(4, b"key"), 0, "that is another slot");
        let key = vec![b'k'; KEY_BYTES_MAX + 1];
        assert_eq!((keyspace.string_bytes(3, &key), keyspace.field_bytes(3, b"hash", &key)), (0, 0));
    }
}
