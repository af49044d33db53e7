//! What an acknowledged write survives: what the node keeps that acknowledged it. Nodes may have been started
//! with different classes, and may be started again with another one, so a node is asked on each connection
//! before the first write on it: a connection does not outlast the run of its node.
//!
//! Invariant: no write claims more than the node said that acknowledged it, and a write that has to survive
//! more is not sent to it.

use crate::connection::NoAnswer;
use crate::nodes::Address;
use atoll_resp::Value;
use atoll_store::{Durability, StoreError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// What a node is asked for.
pub(crate) const QUESTION: [&[u8]; 3] = [b"CONFIG", b"GET", b"append*"];

/// What each node said last, for whoever asks what to expect. No write relies on it.
#[derive(Default)]
pub(crate) struct Told {
    by_node: Mutex<BTreeMap<Address, Durability>>,
}

impl Told {
    /// Takes what a node said. If that is new, what others said is forgotten that lead no slots any more.
    pub(crate) fn note(&self, leaders: &Mutex<BTreeSet<Address>>, node: &Address, class: Durability) {
        let mut by_node = self.by_node.lock();
        if by_node.get(node) != Some(&class) {
            let leaders = leaders.lock();
            by_node.retain(|known, _| leaders.contains(known));
            by_node.insert(Address::clone(node), class);
        }
    }

    /// The weakest class of leaders. As long as none was asked, that of any node.
    pub(crate) fn weakest(&self, leaders: &Mutex<BTreeSet<Address>>) -> Durability {
        let (by_node, leaders) = (self.by_node.lock(), leaders.lock());
        let leading = by_node.iter().filter(|(node, _)| leaders.contains(*node));
        let weakest = leading.map(|(_, class)| *class).min();
        weakest.or_else(|| by_node.values().copied().min()).unwrap_or(Durability::Buffered)
    }
}

/// Why a write that has to survive `least` is not sent to a node that keeps less.
pub(crate) fn too_weak(keeps: Durability, least: Durability) -> NoAnswer {
    let what = format!("durability class {} at a node that keeps {}", least.name(), keeps.name());
    let hint = "ask for a class that each node of the ring keeps, or start its nodes with this one";
    NoAnswer::TooWeak(keeps, StoreError::Unsupported { what, hint })
}

/// What an acknowledged write survives, by what a node reports about its log.
pub(crate) fn class_of(answer: &Value) -> Option<Durability> {
    let mut values = match answer {
        Value::Array(values) => values
            .chunks(2)
            .filter_map(|pair| pair.split_first_chunk())
            .map(|([name, value], _)| (name, value))
            .collect::<Vec<_>>(),
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        _ => return None,
    };
    values.retain(|(name, _)| name.bytes().is_some());
    let find = |wanted: &[u8]| values.iter().find(|(name, _)| name.bytes() == Some(wanted))?.1.bytes();
    Some(match (find(b"appendonly")?, find(b"appendfsync")?) {
        (b"yes", b"always") => Durability::Synced,
        (b"yes", _) => Durability::Flushed,
        _ => Durability::Buffered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Durability::{Buffered, Flushed, Synced};

    #[test]
    fn the_weakest_leader_counts_by_what_it_said_last() {
        let [one, other, gone]: [Address; 3] = ["one", "other", "gone"].map(Address::from);
        let leaders = Mutex::new(BTreeSet::new());
        let told = Told::default();
        assert_eq!(told.weakest(&leaders), Buffered, "nobody said more");
        told.note(&leaders, &gone, Synced);
        assert_eq!(told.weakest(&leaders), Synced);
        *leaders.lock() = [Address::clone(&one), Address::clone(&other)].into();
        for (node, class, weakest) in [
            (&one, Flushed, Flushed),
            (&other, Synced, Flushed),
            (&one, Buffered, Buffered),
            (&one, Synced, Synced),
            (&other, Flushed, Flushed),
        ] {
            told.note(&leaders, node, class);
            assert_eq!(told.weakest(&leaders), weakest, "{node} {class:?}");
        }
        // It leads no more.
        *leaders.lock() = [Address::clone(&one)].into();
        assert_eq!(told.weakest(&leaders), Synced);
    }
}
