//! Copies over zones and by weights: what plans lead to, for rings that are founded, grow, shrink and change.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test ends where something is not as it must be, and takes its seed from the environment"
)]

use atoll_replica::{
    Change, Configuration, Group, GroupOptions, Incarnation, NodeId, PlacementHints, Proposal, Slot,
    Survived, Weight,
};
use std::collections::{BTreeMap, BTreeSet};

const SLOTS: u32 = 512;

struct Ring {
    group: Group,
    copies: usize,
    nonces: u64,
}

impl Ring {
    fn new(copies: usize) -> Self {
        Self { group: Group::new(GroupOptions { slots: SLOTS, copies }), copies, nonces: 0 }
    }

    fn register(&mut self, node: u32, zone: &str, weight: u16, survived: Survived) {
        self.nonces += 1;
        let zone = Some(zone).filter(|zone| !zone.is_empty()).map(Into::into);
        let hints = PlacementHints { zone, weight: Weight::new(weight).unwrap() };
        let (node, nonce, address) = (NodeId(node), self.nonces, format!("address-{node}"));
        self.group.apply(Change::Register { node, nonce, address, hints, survived });
    }

    /// Plans and does what primaries would do, until nothing is left to do. Returns how many copies were
    /// made.
    fn come_to_rest(&mut self, seen: &str) -> usize {
        let mut copied = 0;
        for _ in 0..2_000 {
            let changes = self.group.plan(&[]);
            if changes.is_empty() {
                return copied;
            }
            copied += changes.iter().filter(|change| matches!(change, Change::Copy { .. })).count();
            let zones_before: Vec<_> = (0..SLOTS).map(|slot| self.zones_of(Slot(slot)).len()).collect();
            for change in changes {
                let is_drop = matches!(change, Change::Drop { .. });
                let slot = match &change {
                    Change::Copy { slot, .. } | Change::Drop { slot, .. } | Change::HandOver { slot, .. } => {
                        Some(*slot)
                    }
                    _ => None,
                };
                self.group.apply(change);
                let Some(slot) = slot else { continue };
                let is_leaving = self.group.table().members.values().any(|member| member.is_leaving);
                if is_drop && !is_leaving {
                    let zones = self.zones_of(slot).len();
                    assert!(
                        zones >= zones_before[slot.0 as usize].min(self.copies),
                        "{seen}: {slot:?} lost a zone"
                    );
                }
                self.settle(slot);
            }
        }
        panic!("{seen}: changes without end");
    }

    /// Copies that catch up are admitted, and slots are handed over when that is asked for.
    fn settle(&mut self, slot: Slot) {
        let Configuration { epoch, joining, .. } = self.group.table().slot(slot);
        for node in joining.iter() {
            let incarnation = self.group.table().incarnation(node).unwrap();
            self.group.apply(Change::Propose(Proposal::Admit { slot, epoch, node, incarnation }));
        }
        let Configuration { epoch, since, successor, .. } = self.group.table().slot(slot);
        if let Some(node) = successor {
            self.group.apply(Change::Propose(Proposal::HandOver { slot, epoch, since, node }));
        }
    }

    /// The zone of a node: its name, or the node itself.
    fn zone_of(&self, node: NodeId) -> String {
        let table = self.group.table();
        let zone = table.members.get(&node).and_then(|member| member.zone);
        zone.and_then(|zone| table.zones.name(zone)).map_or_else(|| node.to_string(), str::to_owned)
    }

    fn zones_of(&self, slot: Slot) -> BTreeSet<String> {
        self.group.table().slot(slot).in_sync.iter().map(|node| self.zone_of(node)).collect()
    }

    /// Each slot has its copies, in as many zones as can be.
    fn assert_spread(&self, seen: &str) {
        let table = self.group.table();
        let up = table.members.iter().filter(|(_, member)| member.is_up && !member.is_leaving);
        let zones: BTreeSet<String> = up.clone().map(|(node, _)| self.zone_of(*node)).collect();
        for slot in (0..SLOTS).map(Slot) {
            let configuration = table.slot(slot);
            assert_eq!(configuration.in_sync.len(), self.copies.min(up.clone().count()), "{seen}: {slot:?}");
            assert!(configuration.joining.is_empty(), "{seen}: {slot:?}");
            let wanted = self.copies.min(zones.len());
            assert_eq!(self.zones_of(slot).len(), wanted, "{seen}: {slot:?} {:?}", configuration.in_sync);
        }
    }

    /// How many copies each node has, and how many slots it leads.
    fn loads(&self) -> BTreeMap<u32, (u32, u32)> {
        let table = self.group.table();
        let mut loads: BTreeMap<u32, (u32, u32)> =
            table.members.keys().map(|node| (node.0, (0, 0))).collect();
        for slot in table.slots.iter() {
            for node in slot.in_sync.iter() {
                let load = loads.entry(node.0).or_default();
                load.0 += 1;
                load.1 += u32::from(slot.primary == Some(node));
            }
        }
        loads
    }
}

#[test]
fn no_two_copies_of_a_slot_are_in_one_rack() {
    let mut ring = Ring::new(3);
    for node in 0..12 {
        ring.register(node, ["red", "green", "blue", "white"][node as usize % 4], 1, Survived::Nothing);
    }
    assert_eq!(ring.come_to_rest("founded"), 0, "what is founded need not move");
    ring.assert_spread("founded");
    assert!(
        ring.loads().values().all(|&(copies, leads)| copies.abs_diff(128) <= 3 && leads.abs_diff(43) <= 2)
    );
}

#[test]
fn a_zone_that_joins_gets_a_copy_of_everything_that_lacks_one() {
    let mut ring = Ring::new(2);
    (1..=3).for_each(|node| ring.register(node, "old", 1, Survived::Nothing));
    ring.come_to_rest("one zone");
    ring.register(4, "new", 1, Survived::Nothing);
    ring.come_to_rest("two zones");
    ring.assert_spread("two zones");
    assert_eq!(ring.loads()[&4].0, SLOTS, "the only node of its zone has all slots");
    // The zone dies: its copies are made where there are nodes, and go back.
    let incarnation = ring.group.table().incarnation(NodeId(4)).unwrap();
    ring.group.apply(Change::Fail { node: NodeId(4), incarnation });
    let gone = [NodeId(4)];
    for _ in 0..200 {
        for change in ring.group.plan(&gone) {
            let slot = match &change {
                Change::Copy { slot, .. } | Change::Drop { slot, .. } | Change::HandOver { slot, .. } => {
                    *slot
                }
                _ => continue,
            };
            ring.group.apply(change);
            ring.settle(slot);
        }
    }
    assert_eq!(ring.group.plan(&gone), []);
    assert!(ring.group.table().slots.iter().all(|slot| slot.in_sync.len() == 2));
    ring.register(4, "new", 1, Survived::Nothing);
    ring.come_to_rest("two zones again");
    ring.assert_spread("two zones again");
}

#[test]
fn a_node_of_weight_three_has_and_leads_three_times_as_much() {
    let mut ring = Ring::new(2);
    (1..=5).for_each(|node| ring.register(node, "", 1, Survived::Nothing));
    ring.register(6, "", 3, Survived::Nothing);
    ring.come_to_rest("founded");
    let fair = |ring: &Ring, weights: u32, weight: u32, node: u32| {
        let (copies, leads) = ring.loads()[&node];
        let (all, led) = (2 * SLOTS * weight / weights, SLOTS * weight / weights);
        assert!(copies.abs_diff(all) <= 4 && leads.abs_diff(led) <= 4, "node {node}: {:?}", ring.loads());
    };
    fair(&ring, 8, 3, 6);
    (1..=5).for_each(|node| fair(&ring, 8, 1, node));
    // It is made smaller, and another one larger.
    ring.register(6, "", 1, Survived::Everything);
    ring.register(1, "", 2, Survived::Everything);
    ring.come_to_rest("weights changed");
    fair(&ring, 7, 2, 1);
    (2..=6).for_each(|node| fair(&ring, 7, 1, node));
}

#[test]
fn nodes_of_one_host_are_one_zone_unless_they_say_otherwise() {
    let mut ring = Ring::new(2);
    for node in 1..=6_u32 {
        let host = format!("10.0.0.{}", node.div_ceil(2));
        let address = format!("{node:040x} {host}:{} {host}:{}", 7_000 + node, 17_000 + node);
        let (hints, survived) = (PlacementHints::default(), Survived::Nothing);
        let nonce = u64::from(node);
        ring.group.apply(Change::Register { node: NodeId(node), nonce, address, hints, survived });
    }
    ring.come_to_rest("founded");
    for slot in ring.group.table().slots.iter() {
        let hosts: BTreeSet<u32> = slot.in_sync.iter().map(|node| node.0.div_ceil(2)).collect();
        assert_eq!(hosts.len(), 2, "{:?}", slot.in_sync);
    }
}

#[test]
fn rings_of_any_zones_and_weights_come_to_rest_with_their_copies_spread() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..60 {
        let seen = format!("SEED={seed} round {round}");
        let mut ring = Ring::new(random.usize(1..=4));
        let zones = random.u32(1..7);
        let zone = |random: &mut fastrand::Rng| match random.u32(..=zones) {
            0 => String::new(),
            zone => format!("zone-{zone}"),
        };
        let nodes = ring.copies as u32 + random.u32(0..8);
        for node in 1..=nodes {
            let zone = zone(&mut random);
            ring.register(node, &zone, random.u16(1..5), Survived::Nothing);
        }
        ring.come_to_rest(&seen);
        ring.assert_spread(&seen);
        for step in 0..6 {
            let seen = format!("{seen}, step {step}");
            let node = random.u32(1..=nodes + 3);
            let zone = zone(&mut random);
            let stays = ring.group.table().members.values().filter(|member| !member.is_leaving).count();
            if random.bool() || stays <= ring.copies {
                let is_there = ring.group.table().incarnation(NodeId(node)).is_some();
                let survived = if is_there { Survived::Everything } else { Survived::Nothing };
                ring.register(node, &zone, random.u16(1..5), survived);
            } else if ring.group.table().incarnation(NodeId(node)) != Some(Incarnation(0)) {
                ring.group.apply(Change::Leave { node: NodeId(node) });
            }
            ring.come_to_rest(&seen);
            ring.assert_spread(&seen);
            assert!(ring.group.table().members.values().all(|member| !member.is_leaving), "{seen}: it left");
        }
    }
}
