//! A ring with the widest table, of 2^20 slots: it is founded, a node dies, another joins, one leaves, and
//! slots move where they are wanted, by the same code as with 16,384.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends where something is not as it must be, and measures"
)]

use atoll_replica::{
    Change, Configuration, Decision, Group, GroupOptions, Incarnation, NodeId, PlacementHints, Proposal,
    Slot, Survived,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const SLOTS: u32 = 1 << 20;
const NODES: u32 = 64;

fn founded() -> Group {
    let mut group = Group::new(GroupOptions { slots: SLOTS, copies: 3 });
    (1..=NODES).for_each(|node| register(&mut group, node));
    let changes = group.plan(&[]);
    assert_eq!(changes.len(), SLOTS as usize);
    for change in changes {
        assert_eq!(group.apply(change), Decision::Changed);
    }
    group
}

fn register(group: &mut Group, node: u32) {
    let (node, survived) = (NodeId(node), Survived::Nothing);
    let registered = group.apply(Change::Register {
        node,
        nonce: 1,
        address: String::new(),
        hints: PlacementHints::default(),
        survived,
    });
    assert_eq!(registered, Decision::Registered { incarnation: Incarnation(1) });
}

fn leads(group: &Group) -> BTreeMap<NodeId, u32> {
    let mut leads = BTreeMap::new();
    for primary in group.table().slots.iter().filter_map(|slot| slot.primary) {
        *leads.entry(primary).or_default() += 1;
    }
    leads
}

/// Does what primaries would do: copies that are catching up are admitted, and slots are handed over on
/// request.
fn settle(group: &mut Group, touched: &[Slot]) {
    for &slot in touched {
        let Configuration { epoch, since, successor, joining, .. } = group.table().slot(slot);
        for node in joining.iter() {
            let incarnation = group.table().incarnation(node).unwrap();
            group.apply(Change::Propose(Proposal::Admit { slot, epoch, node, incarnation }));
        }
        if let Some(node) = successor {
            group.apply(Change::Propose(Proposal::HandOver { slot, epoch, since, node }));
        }
    }
}

/// Makes one plan and carries it out; returns how many changes it had.
fn step(group: &mut Group) -> usize {
    let changes = group.plan(&[]);
    let slot_of = |change: &Change| match change {
        Change::Copy { slot, .. } | Change::Drop { slot, .. } | Change::HandOver { slot, .. } => Some(*slot),
        _ => None,
    };
    let touched: Vec<Slot> = changes.iter().filter_map(slot_of).collect();
    let count = changes.len();
    for change in changes {
        group.apply(change);
    }
    settle(group, &touched);
    count
}

#[test]
fn a_ring_of_a_million_slots_is_founded_and_changes() {
    let mut group = founded();
    let share = SLOTS / NODES;
    assert!(leads(&group).values().all(|&leads| leads == share));
    assert!(group.table().slots.iter().all(|slot| slot.in_sync.len() == 3 && slot.epoch.0 == 1));

    // One dies: the others lead its slots, each about as many as it has copies of them.
    group.apply(Change::Fail { node: NodeId(7), incarnation: Incarnation(1) });
    let after = leads(&group);
    assert_eq!(after.get(&NodeId(7)), None);
    assert_eq!(after.values().sum::<u32>(), SLOTS);
    group.apply(Change::Hear { node: NodeId(7), incarnation: Incarnation(1) });

    // One joins and the one with the first slots leaves: slots move from the one and to the other, a few at a
    // time.
    register(&mut group, NODES + 1);
    group.apply(Change::Leave { node: NodeId(1) });
    let before = leads(&group);
    for _ in 0..4 {
        let count = step(&mut group);
        assert!((1..=1024).contains(&count), "{count}");
    }
    let table = group.table();
    assert!(table.slots.iter().any(|slot| slot.in_sync.contains(NodeId(NODES + 1))));
    assert!(leads(&group)[&NodeId(1)] < before[&NodeId(1)]);
    assert!(table.slots.iter().all(|slot| slot.primary.is_some()));
}

#[test]
fn a_change_of_one_slot_of_a_million_is_found_at_once() {
    let mut group = Group::new(GroupOptions { slots: SLOTS, copies: 1 });
    register(&mut group, 1);
    for change in group.plan(&[]) {
        group.apply(change);
    }
    let before = group.table();
    let slot = Slot(SLOTS - 1);
    register(&mut group, 2);
    group.apply(Change::Copy { slot, node: NodeId(2) });
    let after = group.table();
    let changed: Vec<_> = after.slots.changed(&before.slots).map(|(slot, _)| slot).collect();
    assert_eq!(changed, [slot]);
    assert!(before.slots.iter().all(|slot| slot.joining.is_empty()), "the table of before stays");
    assert_eq!(after.slots.get(SLOTS as usize), None);
}

/// How long a plan takes for a ring at rest with this many nodes.
fn plan_at_rest(nodes: u32) -> Duration {
    let mut group = Group::new(GroupOptions { slots: 16_384, copies: 3 });
    (1..=nodes).for_each(|node| register(&mut group, node));
    for change in group.plan(&[]) {
        group.apply(change);
    }
    (0..3)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(group.plan(&[]), [], "{nodes} nodes are at rest");
            began.elapsed()
        })
        .min()
        .unwrap_or_default()
}

#[test]
fn what_a_plan_of_a_ring_at_rest_takes_does_not_go_by_the_number_of_nodes() {
    let (few, many) = (plan_at_rest(8), plan_at_rest(1024));
    assert!(many < few * 10, "{many:?} with 1,024 nodes, {few:?} with 8");
}

/// A ring at rest of one zone with 64 nodes and 100 zones with one each: the first has a copy of each slot,
/// and can have no more.
fn with_a_crowded_zone() -> Group {
    let mut group = Group::new(GroupOptions { slots: 16_384, copies: 3 });
    for node in 1..=164 {
        let zone = (node <= 64).then(|| "crowded".into());
        let hints = PlacementHints { zone, ..PlacementHints::default() };
        let (node, address, survived) = (NodeId(node), format!("n{node}"), Survived::Nothing);
        group.apply(Change::Register { node, nonce: 1, address, hints, survived });
    }
    while step(&mut group) > 0 {}
    group
}

#[test]
fn a_plan_takes_no_longer_where_a_zone_has_all_it_can_or_a_node_has_just_joined() {
    let few = plan_at_rest(8);
    let timed = |group: &Group| {
        let plan = || {
            let began = Instant::now();
            let changes = group.plan(&[]).len();
            (began.elapsed(), changes)
        };
        (0..3).map(|_| plan()).min().unwrap()
    };
    let (took, changes) = timed(&with_a_crowded_zone());
    assert_eq!(changes, 0);
    assert!(took < few * 15, "{took:?} with a crowded zone, {few:?} with 8 nodes");
    let mut group = Group::new(GroupOptions { slots: 16_384, copies: 3 });
    (1..=1_000).for_each(|node| register(&mut group, node));
    for change in group.plan(&[]) {
        group.apply(change);
    }
    register(&mut group, 1_001);
    let (took, changes) = timed(&group);
    assert!(changes > 40, "{changes}");
    assert!(took < few * 30, "{took:?} when one joined 1,000, {few:?} with 8 nodes");
}

#[test]
fn a_ring_with_the_most_copies_takes_one_node_more_and_lets_one_leave() {
    let mut group = Group::new(GroupOptions { slots: 64, copies: 7 });
    (1..=7).for_each(|node| register(&mut group, node));
    for change in group.plan(&[]) {
        group.apply(change);
    }
    let come_to_rest = |group: &mut Group| (0..200).any(|_| step(group) == 0);
    let has = |group: &Group, node| group.table().slots.of_node(NodeId(node)).count();
    register(&mut group, 8);
    assert!(come_to_rest(&mut group), "slots are copied without end");
    assert!(has(&group, 8) >= 50, "{}", has(&group, 8));
    assert!(group.table().slots.iter().all(|slot| slot.in_sync.len() == 7 && slot.joining.is_empty()));
    group.apply(Change::Leave { node: NodeId(1) });
    assert!(come_to_rest(&mut group));
    assert!(group.table().incarnation(NodeId(1)).is_none(), "it left");
    assert!(group.table().slots.iter().all(|slot| slot.in_sync.len() == 7));
}
