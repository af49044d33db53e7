//! The table of a node that is the whole ring, and the list of keyspaces, which is all that it keeps of it.

use crate::NodeError;
use crate::address::{HostPort, NodeAddress, NodeName};
use crate::reliance::NODE;
use crate::table::SlotTable;
use atoll_engine::{Durability, Engine, WriteBatch};
use atoll_keyspace::SLOTS;
use atoll_replica::{
    Configuration, Copies, Epoch, KeyspaceRules, Member, NodeId, Persistence, Table, Version,
};
use std::sync::Arc;

/// The number of the only node.
const ME: NodeId = NodeId(1);

/// Key of the list of keyspaces in the tree about the node itself.
const KEYSPACES: &[u8] = b"keyspaces";

/// Makes a table in which one node has all slots.
pub(crate) fn table(name: NodeName, clients: HostPort, engine: &Engine) -> Result<Table, NodeError> {
    let mut table = Table::empty(SLOTS.into());
    let address = NodeAddress { name, peers: clients.clone(), clients }.to_string().into();
    table.members.insert(ME, Member::new(address));
    let kept = engine.tree(NODE)?.get(KEYSPACES)?.map(|value| value.to_buffer()).transpose()?;
    let corrupt = NodeError::Corrupt { what: "the list of keyspaces" };
    table.keyspaces = kept.map_or(Some(Vec::new()), |kept| read(&kept)).ok_or(corrupt)?.into();
    lead_all(&mut table);
    Ok(table)
}

/// Adds a keyspace to a table. The keyspace is durable when this returns.
pub(crate) fn with_keyspace(
    table: &Table,
    rules: KeyspaceRules,
    engine: &Engine,
) -> Result<Table, NodeError> {
    let mut table = Table { version: Version(table.version.0 + 1), ..table.clone() };
    table.keyspaces = table.keyspaces.iter().cloned().chain([rules]).collect();
    lead_all(&mut table);
    let mut batch = WriteBatch::new();
    batch.put(&engine.tree(NODE)?, KEYSPACES, write(&table.keyspaces).as_bytes());
    engine.write(&batch, Durability::Synced)?;
    Ok(table)
}

/// The table as clients see it.
pub(crate) fn seen(table: Table) -> SlotTable {
    SlotTable::of(Arc::new(table), ME)
}

fn lead_all(table: &mut Table) {
    table.slots.grow(u32::from(SLOTS) * table.keyspace_count() as u32);
    let in_sync = Copies::of(&[ME]);
    let all = Configuration { epoch: Epoch(1), primary: Some(ME), in_sync, ..Configuration::default() };
    table.slots.change_each(|_, slot| *slot = all);
}

/// Writes one line for each keyspace. Names contain no spaces. A durability of its own stands at the end.
fn write(keyspaces: &[KeyspaceRules]) -> String {
    let line = |rules: &KeyspaceRules| {
        let KeyspaceRules { name, copies, in_sync_min, latency_ms, durability } = rules;
        let durability = durability.map(|class| format!(" {}", class.name())).unwrap_or_default();
        format!("{name} {copies} {in_sync_min} {latency_ms}{durability}\n")
    };
    keyspaces.iter().map(line).collect()
}

fn read(kept: &[u8]) -> Option<Vec<KeyspaceRules>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let rules = KeyspaceRules {
            name: words.next()?.into(),
            copies: words.next()?.parse().ok()?,
            in_sync_min: words.next()?.parse().ok()?,
            latency_ms: words.next()?.parse().ok()?,
            durability: match words.next() {
                None => None,
                Some(class) => Some(Persistence::from_name(class)?),
            },
        };
        (words.next().is_none() && rules.problem().is_none()).then_some(rules)
    };
    std::str::from_utf8(kept).ok()?.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;
    use atoll_replica::Slot;

    #[test]
    fn keyspaces_are_there_when_the_node_begins_again() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let name = NodeName::random().unwrap();
        let clients = HostPort { host: "127.0.0.1".to_owned(), port: 7379 };
        let first = table(name, clients.clone(), &engine).unwrap();
        assert_eq!((first.keyspace_count(), first.slots.len()), (1, usize::from(SLOTS)));
        let rules = |name: &str, durability| KeyspaceRules {
            name: name.into(),
            copies: 1,
            in_sync_min: 0,
            latency_ms: 500,
            durability,
        };
        let scratch = rules("scratch", None);
        let second = with_keyspace(&first, scratch.clone(), &engine).unwrap();
        let kept = engine.tree(NODE).unwrap().get(KEYSPACES).unwrap().unwrap().to_buffer().unwrap();
        assert_eq!(&kept[..], b"scratch 1 0 500\n", "as earlier builds wrote it");
        let second = with_keyspace(&second, rules("safe", Some(Persistence::Always)), &engine).unwrap();
        assert!(second.version > first.version);
        let again = table(name, clients.clone(), &engine).unwrap();
        assert_eq!((&again.keyspaces, &again.slots), (&second.keyspaces, &second.slots));
        assert_eq!(again.rules_of(Slot(16_384)), Some(&scratch));
        let tree = engine.tree(NODE).unwrap();
        for damaged in
            [&b"\xff"[..], b"a 1", b"a 1 1 x\n", b"a 9 1 0\n", b"a 1 1 0 0\n", b"a 1 1 0 synced x\n"]
        {
            tree.put(KEYSPACES, damaged, Durability::Buffered).unwrap();
            assert!(table(name, clients.clone(), &engine).is_err(), "{}", damaged.escape_ascii());
        }
    }
}
