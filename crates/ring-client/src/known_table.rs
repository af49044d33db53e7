//! The table of slots as a client knows it, and the question whether there is a newer one.
//!
//! A client names the version that it knows, and a node that has no newer one answers in a few bytes: when a
//! node is lost, all clients ask at once, again and again until another one leads its slots.
//!
//! Invariant: a table gives way only to a later one, or to that of another ring or keyspace, whose versions
//! do not compare. A node that is behind, or cut off from the others, changes nothing.

use crate::answer::find;
use crate::connection::written;
use crate::nodes::Address;
use crate::owners::Owners;
use atoll_keyspace::SLOTS;
use atoll_resp::{TableVersion, Value};
use std::collections::BTreeSet;

/// The command that asks for the table.
pub(crate) const QUESTION: &str = "AT.TABLE";

/// The table, and its version.
pub(crate) struct KnownTable {
    pub(crate) owners: Owners,
    /// The text of the version; none if no node has named one.
    version: Option<Vec<u8>>,
}

/// What an answer changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The table is another one; these nodes lead slots.
    New(BTreeSet<Address>),
    /// The table stays as it is.
    Same,
    /// It is an answer that no node gives.
    Odd,
}

impl KnownTable {
    /// A table of no nodes.
    pub(crate) fn unknown() -> Self {
        Self { owners: Owners::nobodys(SLOTS.into()), version: None }
    }

    /// The encoded question for a newer table.
    pub(crate) fn question(&self) -> Vec<u8> {
        match &self.version {
            None => written(&[QUESTION]),
            Some(version) => written(&[QUESTION.as_bytes(), version.as_slice()]),
        }
    }

    /// Takes a node's answer. Whatever is wrong with an odd one, a whole table may set it right: the next
    /// question is for that.
    pub(crate) fn hear(&mut self, answer: &Value) -> Heard {
        self.take(answer).unwrap_or_else(|| {
            self.version = None;
            Heard::Odd
        })
    }

    fn take(&mut self, answer: &Value) -> Option<Heard> {
        let told = match find(answer, "version")? {
            Value::String(text) => Some(TableVersion::read(text)?),
            Value::Null => None,
            _ => return None,
        };
        let known = self.version.as_deref().and_then(TableVersion::read);
        let is_known = told.zip(known).is_some_and(|(told, known)| known.is_at_least(&told));
        let is_older = is_known && told != known;
        match (find(answer, "nodes")?, find(answer, "slots")?) {
            (Value::Null, Value::Null) if is_known => Some(self.keep()),
            (Value::Array(_), Value::Array(_)) if is_older => Some(self.keep()),
            (Value::Array(nodes), Value::Array(ranges)) => {
                let owners = Owners::read(nodes, ranges, SLOTS.into())?;
                let named = owners.addresses().map(Address::from).collect();
                (self.version, self.owners) = (told.map(|told| told.text()), owners);
                Some(Heard::New(named))
            }
            _ => None,
        }
    }

    /// What was learned since the table came stays: of a slot that moved, `MOVED` may have told before the
    /// table of this node does. Whether it was right is found out at the node that it named. But a node that
    /// once did not answer leads what it did before, because no later table takes it away.
    fn keep(&mut self) -> Heard {
        self.owners.trust_all();
        Heard::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    /// An answer of a node whose table has this version, with these values for `nodes` and `slots`.
    fn answer(version: Value, nodes: Value, slots: Value) -> Value {
        Value::Array(vec![text("version"), version, text("nodes"), nodes, text("slots"), slots])
    }

    /// The answer that a node with this port leads all slots.
    fn whole(version: &str, port: i64) -> Value {
        let node = Value::Array(vec![text("10.0.0.1"), Value::Integer(port)]);
        let slots = [0, 16_383, 0].map(Value::Integer).to_vec();
        answer(text(version), Value::Array(vec![node]), Value::Array(slots))
    }

    fn nothing(version: &str) -> Value {
        answer(text(version), Value::Null, Value::Null)
    }

    fn new(port: u16) -> Heard {
        Heard::New([Address::from(format!("10.0.0.1:{port}"))].into())
    }

    #[test]
    fn a_table_gives_way_to_a_later_one_and_to_that_of_another_ring_or_keyspace() {
        let mut table = KnownTable::unknown();
        assert_eq!(table.question(), written(&["AT.TABLE"]));
        let owner = |table: &KnownTable| table.owners.get(7).map(str::to_owned);
        for (version, port, heard, leads) in [
            ("ring.0.7", 1, new(1), 1),
            ("ring.0.6", 2, Heard::Same, 1),
            ("ring.0.10", 3, new(3), 3),
            ("ring.0.9", 4, Heard::Same, 3),
            ("ring.1.2", 5, new(5), 5),
            ("other.1.1", 6, new(6), 6),
            // Whoever asks without a version gets the same one whole.
            ("other.1.1", 7, new(7), 7),
        ] {
            assert_eq!(table.hear(&whole(version, port)), heard, "{version}");
            assert_eq!(owner(&table), Some(format!("10.0.0.1:{leads}")), "{version}");
        }
        assert_eq!(table.question(), written(&["AT.TABLE", "other.1.1"]));
    }

    #[test]
    fn a_table_that_has_not_changed_is_as_it_was_and_what_was_learned_since_stays() {
        let mut table = KnownTable::unknown();
        table.hear(&whole("ring.0.7", 1));
        table.owners.set(3, "10.0.0.1:9");
        table.owners.forget("10.0.0.1:1");
        assert_eq!((table.owners.get(3), table.owners.get(7)), (Some("10.0.0.1:9"), None));
        for told in ["ring.0.7", "ring.0.6"] {
            assert_eq!(table.hear(&nothing(told)), Heard::Same);
            assert_eq!((table.owners.get(3), table.owners.get(7)), (Some("10.0.0.1:9"), Some("10.0.0.1:1")));
            assert_eq!(table.question(), written(&["AT.TABLE", "ring.0.7"]));
        }
        assert_eq!(table.hear(&whole("ring.0.8", 2)), new(2));
        assert_eq!((table.owners.get(3), table.owners.get(7)), (Some("10.0.0.1:2"), Some("10.0.0.1:2")));
    }

    #[test]
    fn a_node_that_names_no_version_is_asked_for_everything_again() {
        let mut table = KnownTable::unknown();
        table.hear(&whole("ring.0.7", 1));
        let Value::Array(mut pairs) = whole("ring.0.7", 2) else { unreachable!() };
        pairs[1] = Value::Null;
        assert_eq!(table.hear(&Value::Array(pairs)), new(2));
        assert_eq!(table.question(), written(&["AT.TABLE"]));
    }

    #[test]
    fn an_answer_that_no_node_gives_changes_no_owner_and_ends_in_a_question_for_everything() {
        let node = || Value::Array(vec![text("10.0.0.1"), Value::Integer(1)]);
        let numbers = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Integer).collect());
        let with_slots = |slots| answer(text("ring.0.8"), Value::Array(vec![node()]), slots);
        for odd in [
            // There is nothing that these could be the same as.
            nothing("ring.0.8"),
            nothing("other.0.7"),
            with_slots(Value::Null),
            with_slots(numbers(&[0, 9])),
            with_slots(numbers(&[0, 9, 1])),
            with_slots(numbers(&[0, 9, -1])),
            with_slots(numbers(&[-1, 9, 0])),
            with_slots(Value::Array(vec![text("0"), text("9"), text("0")])),
            answer(text("ring.0.8"), Value::Array(vec![text("10.0.0.1")]), numbers(&[])),
            answer(text("8"), Value::Array(vec![node()]), numbers(&[0, 9, 0])),
            answer(Value::Integer(8), Value::Array(vec![node()]), numbers(&[0, 9, 0])),
            Value::Array(Vec::new()),
            text("hi"),
        ] {
            let mut table = KnownTable::unknown();
            table.hear(&whole("ring.0.7", 5));
            assert_eq!(table.hear(&odd), Heard::Odd, "{odd:?}");
            assert_eq!(table.owners.get(7), Some("10.0.0.1:5"), "{odd:?}");
            assert_eq!(table.question(), written(&["AT.TABLE"]), "{odd:?}");
        }
        assert_eq!(KnownTable::unknown().hear(&nothing("ring.0.7")), Heard::Odd);
    }
}
