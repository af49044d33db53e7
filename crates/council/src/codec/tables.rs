//! Encoding of the table: all of it, or what changed since an older one.
//!
//! Each slot says in which table it came to be as it is, so the changes since any older table are known
//! without keeping that one. An update may hold more than the receiver lacks, but never less.
//!
//! Invariant: applying an update yields exactly the table that it was made from.

use super::bytes::{Coded, Damaged, Reader};
use atoll_replica::{
    Configuration, Epoch, KEYSPACES_MAX, KeyspaceRules, Member, NodeId, SLOTS_MAX, Slot, Table, Version,
    Weight, ZoneId, Zones,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A whole table, or the difference that leads from an older one to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The oldest table that this can be applied to; none for a whole table.
    pub(crate) since: Option<Version>,
    /// The version of the resulting table.
    pub(crate) version: Version,
    /// How many slots each keyspace has.
    slots_each: u32,
    /// All keyspaces other than the first.
    keyspaces: Vec<KeyspaceRules>,
    /// The names of zones, if they may have changed.
    zones: Option<Zones>,
    members: Vec<(NodeId, Member)>,
    /// The members that left.
    left: Vec<NodeId>,
    changed: Vec<(Slot, Configuration)>,
}

impl Update {
    /// An update with the whole table.
    #[must_use]
    pub fn whole(table: &Table) -> Self {
        Self { changed: in_use(table).collect(), ..Self::without_slots(table) }
    }

    /// Appends the encoded update with the whole table. Each slot is unpacked only when it is written: all at
    /// once take several times the memory of their encoding.
    pub(crate) fn put_whole(table: &Table, out: &mut Vec<u8>) {
        Self::without_slots(table).put_head(out);
        (in_use(table).count() as u64).put(out);
        put_slots(in_use(table), out);
    }

    /// An update with the whole table but for its slots.
    fn without_slots(table: &Table) -> Self {
        Self {
            since: None,
            version: table.version,
            slots_each: table.slots_each(),
            keyspaces: table.keyspaces.to_vec(),
            zones: Some(table.zones.clone()),
            members: table.members.iter().map(|(node, member)| (*node, member.clone())).collect(),
            left: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// An update with the changes since version `since`. `members_since` has the table in which each present
    /// or former member last changed.
    #[must_use]
    pub fn since(table: &Table, since: Version, members_since: &BTreeMap<NodeId, Version>) -> Self {
        let is_newer = |node: &NodeId| members_since.get(node).is_none_or(|&changed| changed > since);
        let members = table.members.iter().filter(|(node, _)| is_newer(node));
        let is_gone = |node: &NodeId| !table.members.contains_key(node) && is_newer(node);
        Self {
            since: Some(since),
            version: table.version,
            slots_each: table.slots_each(),
            keyspaces: table.keyspaces.to_vec(),
            zones: (table.zones.since > since).then(|| table.zones.clone()),
            members: members.map(|(node, member)| (*node, member.clone())).collect(),
            left: members_since.keys().copied().filter(is_gone).collect(),
            changed: table.slots.newer(since).collect(),
        }
    }

    /// The resulting table; none if the update does not fit the known one.
    #[must_use]
    pub fn apply(self, known: Option<&Arc<Table>>) -> Option<Arc<Table>> {
        let mut table = match (self.since, known) {
            (None, _) => Table::empty(self.slots_each),
            (Some(since), Some(known)) if known.version >= since => Table::clone(known),
            _ => return None,
        };
        let is_older = table.version > self.version || table.keyspaces.len() > self.keyspaces.len();
        if is_older || table.slots_each() != self.slots_each {
            return None;
        }
        table.keyspaces = self.keyspaces.into();
        table.slots.grow(self.slots_each * table.keyspace_count() as u32);
        table.version = self.version;
        if let Some(zones) = self.zones {
            table.zones = zones;
        }
        table.members.extend(self.members);
        self.left.iter().for_each(|node| drop(table.members.remove(node)));
        for (slot, configuration) in self.changed {
            table.slots.set(slot.0 as usize, configuration).then_some(())?;
        }
        table.slots.settle();
        Some(Arc::new(table))
    }

    /// The encoded update, as it is sent.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        self.to_bytes()
    }

    /// Decodes an update; none if it is damaged.
    #[must_use]
    pub fn decoded(bytes: &[u8]) -> Option<Self> {
        Self::of_bytes(bytes).ok()
    }
}

const WHOLE: u8 = 1;
const SINCE: u8 = 2;
/// Added to the form if zones and weights follow the members. Where no node named any, nothing does.
const WITH_ZONES: u8 = 2;

/// The slots that are not as in an empty table.
fn in_use(table: &Table) -> impl Iterator<Item = (Slot, Configuration)> + '_ {
    let slots = (0..).map(Slot).zip(table.slots.iter());
    slots.filter(|(_, configuration)| *configuration != Configuration::default())
}

/// Encodes slots in ascending order, but not how many they are.
fn put_slots(slots: impl Iterator<Item = (Slot, Configuration)>, out: &mut Vec<u8>) {
    let mut next = 0;
    for (slot, configuration) in slots {
        // Slots are sent as their distance from the one before, mostly one byte.
        slot.0.wrapping_sub(next).put(out);
        next = slot.0.wrapping_add(1);
        configuration.put(out);
    }
}

impl Coded for Update {
    fn put(&self, out: &mut Vec<u8>) {
        self.put_head(out);
        (self.changed.len() as u64).put(out);
        put_slots(self.changed.iter().copied(), out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let form = from.byte()?;
        let (since, has_zones) = match form {
            WHOLE => (None, false),
            SINCE => (Some(Version::take(from)?), false),
            _ if form == WHOLE + WITH_ZONES => (None, true),
            _ if form == SINCE + WITH_ZONES => (Some(Version::take(from)?), true),
            _ => return Err(from.damaged("an unknown form of a table")),
        };
        let (version, slots_each): (_, u32) = (Coded::take(from)?, Coded::take(from)?);
        let keyspaces: Vec<KeyspaceRules> = Coded::take(from)?;
        let slots = u64::from(slots_each) * (1 + keyspaces.len() as u64);
        if keyspaces.len() >= KEYSPACES_MAX || slots > u64::from(SLOTS_MAX) {
            return Err(from.damaged("more slots than there can be"));
        }
        let (mut members, left): (Vec<(NodeId, Member)>, _) = (Coded::take(from)?, Coded::take(from)?);
        let zones = match (has_zones, since) {
            (true, _) => take_zones(from, &mut members)?,
            // No node has named a zone.
            (false, None) => Some(Zones::default()),
            (false, Some(_)) => None,
        };
        let count = from.count(Configuration::BYTES_MIN + 1)?;
        let mut changed = Vec::with_capacity(count);
        let mut next = 0_u32;
        for _ in 0..count {
            let slot = next.wrapping_add(u32::take(from)?);
            next = slot.wrapping_add(1);
            changed.push((Slot(slot), Configuration::take(from)?));
        }
        Ok(Self { since, version, slots_each, keyspaces, zones, members, left, changed })
    }
}

impl Update {
    /// Encodes all that comes before the slots.
    fn put_head(&self, out: &mut Vec<u8>) {
        let with_zones = if self.has_zones() { WITH_ZONES } else { 0 };
        match self.since {
            None => {
                out.push(WHOLE + with_zones);
            }
            Some(since) => {
                out.push(SINCE + with_zones);
                since.put(out);
            }
        }
        self.version.put(out);
        self.slots_each.put(out);
        self.keyspaces.put(out);
        self.members.put(out);
        self.left.put(out);
        if self.has_zones() {
            self.put_zones(out);
        }
    }

    /// Whether anything in it is about zones and weights.
    fn has_zones(&self) -> bool {
        let is_named =
            |(_, member): &(NodeId, Member)| member.zone.is_some() || member.weight != Weight::default();
        let names = self.zones.as_ref().is_some_and(|zones| *zones != Zones::default());
        names || self.members.iter().any(is_named)
    }

    fn put_zones(&self, out: &mut Vec<u8>) {
        self.zones.is_some().put(out);
        if let Some(Zones { names, since }) = &self.zones {
            since.put(out);
            names.iter().map(|name| name.to_string()).collect::<Vec<String>>().put(out);
        }
        for (_, member) in &self.members {
            member.zone.map_or(0, ZoneId::get).put(out);
            member.weight.put(out);
        }
    }
}

/// Reads the names of zones, and the zone and the weight of each member.
fn take_zones(from: &mut Reader<'_>, members: &mut [(NodeId, Member)]) -> Result<Option<Zones>, Damaged> {
    let zones = if bool::take(from)? {
        let since = Version::take(from)?;
        let names = Vec::<String>::take(from)?.into_iter().map(Into::into).collect();
        Some(Zones { names, since })
    } else {
        None
    };
    for (_, member) in members {
        member.zone = ZoneId::new(Coded::take(from)?);
        member.weight = Coded::take(from)?;
    }
    Ok(zones)
}

impl Coded for Configuration {
    const BYTES_MIN: usize = 7;

    fn put(&self, out: &mut Vec<u8>) {
        (self.epoch, self.since).put(out);
        self.branch.put(out);
        (self.primary, self.successor).put(out);
        (self.in_sync, self.joining).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (epoch, since) = (Epoch::take(from)?, Version::take(from)?);
        Ok(Self {
            epoch,
            since,
            branch: Coded::take(from)?,
            primary: Coded::take(from)?,
            successor: Coded::take(from)?,
            in_sync: Coded::take(from)?,
            joining: Coded::take(from)?,
        })
    }
}

impl Coded for Member {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.incarnation.put(out);
        self.is_up.put(out);
        self.is_leaving.put(out);
        self.address.to_string().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (incarnation, is_up) = (Coded::take(from)?, Coded::take(from)?);
        let is_leaving = Coded::take(from)?;
        Ok(Self { incarnation, is_up, is_leaving, ..Self::new(String::take(from)?.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{Change, Group, GroupOptions, Persistence, PlacementHints, Proposal, Survived};

    fn register(group: &mut Group, node: u32, nonce: u64) {
        let (node, address) = (NodeId(node), format!("127.0.0.1:{}", 7000 + node));
        group.apply(Change::Register {
            node,
            nonce,
            address,
            hints: PlacementHints::default(),
            survived: Survived::Nothing,
        });
    }

    fn founded(slots: u32) -> Group {
        let mut group = Group::new(GroupOptions { slots, copies: 3 });
        (1..=3).for_each(|node| register(&mut group, node, u64::from(node)));
        group.plan(&[]).into_iter().for_each(|change| {
            group.apply(change);
        });
        group
    }

    fn sent(update: &Update) -> Update {
        Update::of_bytes(&update.to_bytes()).unwrap()
    }

    #[test]
    fn a_whole_table_comes_back_and_is_compact() {
        let table = founded(16_384).table();
        let update = Update::whole(&table);
        assert!(update.to_bytes().len() < 300_000, "{}", update.to_bytes().len());
        assert_eq!(sent(&update).apply(None), Some(Arc::clone(&table)));
        assert_eq!(sent(&update).apply(Some(&table)), Some(table));
        let empty = Table::empty(5);
        assert_eq!(sent(&Update::whole(&empty)).apply(None).as_deref(), Some(&empty));
    }

    #[test]
    fn a_table_that_is_encoded_slot_by_slot_is_the_whole_update() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut group = founded(random.u32(1..300));
            for round in 0..10 {
                change_somehow(&mut group, &mut random, round);
                let (table, mut bytes) = (group.table(), Vec::new());
                Update::put_whole(&table, &mut bytes);
                assert!(bytes == Update::whole(&table).to_bytes(), "seed {seed}, round {round}");
            }
        }
    }

    #[test]
    fn a_table_of_a_million_slots_is_sent_whole_and_a_change_of_it_in_few_bytes() {
        let mut group = founded(SLOTS_MAX);
        let before = group.table();
        let whole = Update::whole(&before).to_bytes();
        assert!(whole.len() < 18 << 20, "{}", whole.len());
        let received = Update::of_bytes(&whole).unwrap().apply(None);
        assert_eq!(received.as_ref(), Some(&before));
        let slot = Slot(SLOTS_MAX - 1);
        let Configuration { epoch, in_sync, .. } = before.slot(slot);
        let node = in_sync.as_slice()[1];
        group.apply(Change::Propose(Proposal::Dismiss { slot, epoch, node }));
        let members_since = (1..=3).map(|node| (NodeId(node), Version(0))).collect();
        let update = Update::since(&group.table(), before.version, &members_since);
        assert!(update.to_bytes().len() <= 64, "{}", update.to_bytes().len());
        assert_eq!(sent(&update).apply(received.as_ref()), Some(group.table()));
    }

    #[test]
    fn what_changed_since_any_older_table_makes_the_newest_of_it() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut group = founded(random.u32(1..300));
            let mut tables = vec![(group.table(), BTreeMap::new())];
            let mut member_since = BTreeMap::new();
            for round in 0..20 {
                change_somehow(&mut group, &mut random, round);
                let (before, now) = (Arc::clone(&tables.last().unwrap().0), group.table());
                for node in before.members.keys().chain(now.members.keys()) {
                    if before.members.get(node) != now.members.get(node) {
                        member_since.insert(*node, now.version);
                    }
                }
                tables.push((now, member_since.clone()));
            }
            let (newest, since) = tables.last().unwrap().clone();
            for (older, _) in &tables {
                let update = sent(&Update::since(&newest, older.version, &since));
                for (known, _) in tables.iter().filter(|(known, _)| known.version >= older.version) {
                    let now = update.clone().apply(Some(known));
                    assert_eq!(now.as_ref(), Some(&newest), "seed {seed}");
                }
            }
            let update = Update::since(&newest, newest.version, &since);
            assert!(update.apply(Some(&tables[0].0)).is_none() || tables[0].0.version == newest.version);
        }
    }

    fn change_somehow(group: &mut Group, random: &mut fastrand::Rng, round: u64) {
        let table = group.table();
        for _ in 0..random.usize(0..5) {
            let slot = Slot(random.u32(..table.slots.len() as u32));
            let node = NodeId(random.u32(1..6));
            let incarnation = table.incarnation(node).unwrap_or_default();
            let epoch = table.slot(slot).epoch;
            match random.u8(..12) {
                0 => register(group, node.0, 100 + round),
                11 => register_in_zone(group, node.0, 100 + round, random),
                1 => drop(group.apply(Change::Fail { node, incarnation })),
                2 => drop(group.apply(Change::Hear { node, incarnation })),
                3 => drop(group.apply(Change::Copy { slot, node })),
                4 => drop(group.apply(Change::Propose(Proposal::Dismiss { slot, epoch, node }))),
                5 => drop(group.apply(Change::HandOver { slot, epoch, node })),
                6 => drop(group.apply(Change::Leave { node })),
                7 => drop(group.apply(Change::Stay { node })),
                8 => drop(group.apply(Change::Remove { node, incarnation })),
                9 => drop(group.apply(Change::Lead { slot, epoch, node })),
                _ => add_keyspace(group, random, round),
            }
        }
    }

    fn register_in_zone(group: &mut Group, node: u32, nonce: u64, random: &mut fastrand::Rng) {
        let zone = random.bool().then(|| format!("zone-{}", random.u8(..4)).into());
        let hints = PlacementHints { zone, weight: Weight::new(random.u16(1..5)).unwrap() };
        let (node, address, survived) = (NodeId(node), "here".to_owned(), Survived::Nothing);
        group.apply(Change::Register { node, nonce, address, hints, survived });
    }

    #[test]
    fn a_ring_without_zones_sends_nothing_about_them() {
        let mut group = founded(16);
        let plain = Update::whole(&group.table()).to_bytes();
        assert_eq!(plain[0], WHOLE);
        let mut random = fastrand::Rng::with_seed(1);
        (0..8).for_each(|nonce| register_in_zone(&mut group, 2, 100 + nonce, &mut random));
        assert!(!group.table().zones.names.is_empty());
        let update = Update::whole(&group.table());
        assert_eq!(update.to_bytes()[0], WHOLE + WITH_ZONES);
        assert_eq!(sent(&update).apply(None), Some(group.table()));
    }

    fn add_keyspace(group: &mut Group, random: &mut fastrand::Rng, round: u64) {
        let (name, copies) = (format!("k{round}").into(), random.u8(1..=3));
        let durability = Persistence::from_code(random.u8(..4));
        let rules = KeyspaceRules { name, copies, in_sync_min: 1, latency_ms: 0, durability };
        group.apply(Change::Keyspace(rules));
        if random.bool() {
            for change in group.plan(&[]) {
                group.apply(change);
            }
        }
    }

    #[test]
    fn one_slot_that_changed_is_sent_in_few_bytes() {
        let mut group = founded(16_384);
        let before = group.table();
        let epoch = before.slot(Slot(9_999)).epoch;
        let node = before.slot(Slot(9_999)).in_sync.as_slice()[1];
        group.apply(Change::Propose(Proposal::Dismiss { slot: Slot(9_999), epoch, node }));
        let update = Update::since(
            &group.table(),
            before.version,
            &(1..=3).map(|node| (NodeId(node), Version(0))).collect(),
        );
        assert!(update.to_bytes().len() <= 64, "{}", update.to_bytes().len());
    }

    #[test]
    fn damaged_updates_never_panic() {
        let bytes = Update::whole(&founded(50).table()).to_bytes();
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut damaged = bytes.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..damaged.len());
                damaged[at] = random.u8(..);
            }
            damaged.truncate(random.usize(..=damaged.len()));
            if let Ok(update) = Update::of_bytes(&damaged) {
                let _ = update.apply(None);
            }
        }
    }
}
