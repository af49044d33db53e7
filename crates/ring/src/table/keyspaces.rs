//! What clients are told about keyspaces.

use super::SlotTable;
use atoll_resp::ReplyWriter;

impl SlotTable {
    /// The index of the keyspace with this name.
    pub(crate) fn keyspace_named(&self, name: &str) -> Option<u8> {
        self.table.keyspace_named(name).and_then(|place| u8::try_from(place).ok())
    }

    /// Writes each of these keyspaces as a map. A rule that it leaves to the first keyspace is null.
    pub(crate) fn write_keyspaces(&self, keyspaces: &[u8], writer: &mut ReplyWriter<'_>) {
        writer.array(keyspaces.len());
        for &keyspace in keyspaces {
            let rules =
                usize::from(keyspace).checked_sub(1).and_then(|place| self.table.keyspaces.get(place));
            let (served, copies_in_sync_min) = self.seen_of(keyspace);
            writer.map(8);
            writer.string(b"keyspace");
            writer.integer(keyspace.into());
            writer.string(b"name");
            writer.string(rules.map_or("", |rules| &rules.name).as_bytes());
            let said = |number: fn(&atoll_replica::KeyspaceRules) -> i64| rules.map_or(0, number);
            for (name, number) in [
                ("copies", said(|rules| rules.copies.into())),
                ("in_sync_min", said(|rules| rules.in_sync_min.into())),
                ("latency_ms", said(|rules| rules.latency_ms.into())),
            ] {
                writer.string(name.as_bytes());
                if number == 0 { writer.null() } else { writer.integer(number) }
            }
            for (name, number) in [("served", served), ("copies_in_sync_min", copies_in_sync_min)] {
                writer.string(name.as_bytes());
                writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
            }
            writer.string(b"durability");
            match rules.and_then(|rules| rules.durability) {
                Some(class) => writer.string(class.name().as_bytes()),
                None => writer.null(),
            }
        }
    }

    /// How many slots of a keyspace have a primary that is up, and the fewest in-sync copies that any of them
    /// has.
    pub(super) fn seen_of(&self, keyspace: u8) -> (u64, u64) {
        self.seen.get(usize::from(keyspace)).map_or((0, 0), |seen| *seen.get_or_init(|| self.see(keyspace)))
    }

    fn see(&self, keyspace: u8) -> (u64, u64) {
        let is_up = |node| self.table.members.get(&node).is_some_and(|member| member.is_up);
        let (mut served, mut fewest) = (0, None);
        for slot in self.slots_of(keyspace) {
            served += u64::from(slot.primary.is_some_and(is_up));
            let copies = slot.in_sync.len() as u64;
            fewest = Some(fewest.map_or(copies, |fewest: u64| fewest.min(copies)));
        }
        (served, fewest.unwrap_or(0))
    }
}
