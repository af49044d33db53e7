//! Handing slots over, and nodes that leave, one case each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{
    Change, Decision, Epoch, Group, GroupOptions, Incarnation, Input, KeyspaceRules, NodeId, Options,
    PlacementHints, Proposal, Refusal, Slot, Survived, Version,
};
use small_ring::{Outcome, Ring, SLOT, three};

/// A ring in which node 2 is to succeed node 1.
fn with_successor() -> Ring {
    let mut ring = three();
    ring.write(1, 1);
    ring.pass(300);
    hand_over(&mut ring, 2);
    ring
}

fn hand_over(ring: &mut Ring, node: u32) {
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.decide(Change::HandOver { slot: SLOT, epoch, node: NodeId(node) });
    assert_eq!(ring.group.table().slot(SLOT).successor, Some(NodeId(node)));
}

fn proposed(ring: &Ring, what: fn(&Proposal) -> bool) -> usize {
    ring.proposals
        .iter()
        .filter(|change| matches!(change, Change::Propose(proposal) if what(proposal)))
        .count()
}

/// The group decides on its proposals.
fn decide(ring: &mut Ring) {
    for change in std::mem::take(&mut ring.proposals) {
        ring.decide(change);
    }
    ring.settle();
}

/// Lets time pass while the group decides on none of its proposals.
fn pass_undecided(ring: &mut Ring, milliseconds: u64) {
    for _ in 0..milliseconds / 20 {
        ring.now = ring.now.after(20_000);
        for node in (1..=3).map(NodeId) {
            ring.give(node, Input::GroupHeard { asked_at: ring.now });
            ring.give(node, Input::Tick);
        }
        ring.settle();
    }
}

#[test]
fn a_slot_is_handed_over_without_a_write_whose_outcome_nobody_knows() {
    let mut ring = three();
    ring.pass(300);
    ring.logs_at_once = false;
    ring.write(1, 1);
    hand_over(&mut ring, 2);
    // The successor reports that it knows the table, and the write is on its way to disks.
    ring.settle();
    ring.write(1, 2);
    assert_eq!(
        proposed(&ring, |proposal| matches!(proposal, Proposal::HandOver { .. })),
        0,
        "a write is under way"
    );
    ring.logs_at_once = true;
    ring.settle();
    assert_eq!(ring.told(1), Some(Outcome::Written));
    assert_eq!(ring.told(2), None, "what comes behind is held back");
    ring.read(1, 3);
    assert_eq!(ring.told(3), None, "a read of that key stays behind it");
    decide(&mut ring);
    assert_eq!(ring.primary(), NodeId(2));
    let moved = Some(Outcome::Refused(Refusal::Moved { to: NodeId(2) }));
    assert_eq!((ring.told(2), ring.told(3)), (moved, moved));
    ring.read(2, 4);
    ring.write(2, 5);
    ring.settle();
    assert_eq!(
        (ring.told(4), ring.told(5)),
        (Some(Outcome::Read(1)), Some(Outcome::Written)),
        "without waiting for a tick"
    );
    assert_eq!(ring.applied(2), [1, 5]);
}

#[test]
fn who_is_about_to_lead_holds_requests_back_instead_of_sending_them_around() {
    let mut ring = with_successor();
    let takes: Vec<_> = (1..=3).map(|node| ring.nodes[&NodeId(node)].replica.takes(SLOT)).collect();
    assert_eq!(takes, [true, true, false], "who leads, and who is next");
    ring.write(2, 2);
    assert_eq!(ring.told(2), None);
    ring.settle();
    decide(&mut ring);
    assert_eq!(ring.told(2), Some(Outcome::Written));
    ring.kill(2);
    hand_over(&mut ring, 3);
    ring.write(3, 3);
    ring.pass(300);
    assert_eq!(ring.told(3), Some(Outcome::Refused(Refusal::Moved { to: NodeId(2) })), "it took too long");
}

#[test]
fn a_slot_is_not_handed_over_before_the_next_primary_knows_of_it() {
    let mut ring = three();
    ring.write(1, 1);
    ring.pass(300);
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.group.apply(Change::HandOver { slot: SLOT, epoch, node: NodeId(2) });
    // The successor does not hear the group for a while.
    let table = ring.group.table();
    [1, 3].into_iter().for_each(|node| ring.give(NodeId(node), Input::Table(table.clone())));
    ring.settle();
    let is_hand_over: fn(&Proposal) -> bool = |proposal| matches!(proposal, Proposal::HandOver { .. });
    assert_eq!(proposed(&ring, is_hand_over), 0, "it would send clients back");
    ring.write(1, 2);
    ring.settle();
    assert_eq!(ring.told(2), Some(Outcome::Written), "nothing is held back meanwhile");
    ring.give(NodeId(2), Input::Table(table));
    ring.settle();
    assert_eq!(proposed(&ring, is_hand_over), 1, "without waiting for a tick");
    decide(&mut ring);
    assert_eq!(ring.primary(), NodeId(2));
}

#[test]
fn reads_go_on_until_the_table_is_another_one() {
    let mut ring = with_successor();
    ring.settle();
    ring.read(1, 2);
    assert_eq!(ring.told(2), Some(Outcome::Read(1)));
}

#[test]
fn a_primary_that_hears_no_decision_keeps_the_slot_and_then_takes_what_it_held_back() {
    let mut ring = with_successor();
    ring.settle();
    ring.write(1, 2);
    let late = std::mem::take(&mut ring.proposals);
    assert!(matches!(late[..], [Change::Propose(Proposal::HandOver { .. })]), "{late:?}");
    // The group does not answer for a while; then the primary asks it to leave the slot where it is.
    pass_undecided(&mut ring, 700);
    assert_eq!(ring.told(2), None);
    assert_eq!(proposed(&ring, |proposal| matches!(proposal, Proposal::Keep { .. })), 1);
    let keep = ring.proposals.pop().unwrap();
    ring.proposals.clear();
    ring.decide(keep);
    ring.settle();
    assert_eq!((ring.told(2), ring.primary()), (Some(Outcome::Written), NodeId(1)));
    // A proposal that arrives late finds another table.
    hand_over(&mut ring, 2);
    late.into_iter().for_each(|change| ring.decide(change));
    assert_eq!(ring.primary(), NodeId(1));
}

#[test]
fn a_primary_that_nobody_answers_goes_on_at_last() {
    let mut ring = with_successor();
    ring.settle();
    ring.write(1, 2);
    pass_undecided(&mut ring, 900);
    assert_eq!(ring.told(2), None);
    pass_undecided(&mut ring, 200);
    assert_eq!(ring.told(2), Some(Outcome::Written));
    assert_eq!(ring.primary(), NodeId(1));
}

#[test]
fn a_successor_that_dies_is_forgotten_and_what_was_held_back_is_taken() {
    let mut ring = with_successor();
    ring.settle();
    ring.write(1, 2);
    ring.proposals.clear();
    ring.kill(2);
    ring.fail(2);
    ring.pass(100);
    assert_eq!(ring.group.table().slot(SLOT).successor, None);
    assert_eq!((ring.told(2), ring.primary()), (Some(Outcome::Written), NodeId(1)));
}

#[test]
fn the_group_hands_over_only_to_a_copy_in_sync_that_is_up_and_only_as_the_slot_is() {
    let mut ring = three();
    let lead = |ring: &Ring, since: Version, node: u32| {
        let (slot, epoch, node) = (SLOT, ring.group.table().slot(SLOT).epoch, NodeId(node));
        Change::Propose(Proposal::HandOver { slot, epoch, since, node })
    };
    let since = |ring: &Ring| ring.group.table().slot(SLOT).since;
    let change = lead(&ring, since(&ring), 2);
    assert_eq!(ring.group.apply(change), Decision::Unchanged, "nobody wanted that");
    hand_over(&mut ring, 2);
    let now = since(&ring);
    for change in [lead(&ring, Version(now.0 - 1), 2), lead(&ring, now, 3)] {
        assert_eq!(ring.group.apply(change), Decision::Unchanged);
    }
    let epoch = ring.group.table().slot(SLOT).epoch;
    for (epoch, node) in [(Epoch(epoch.0 + 1), 3), (epoch, 1), (epoch, 4)] {
        let change = Change::HandOver { slot: SLOT, epoch, node: NodeId(node) };
        assert_eq!(ring.group.apply(change), Decision::Unchanged);
    }
    let change = lead(&ring, now, 2);
    assert_eq!(ring.group.apply(change), Decision::Changed);
    assert_eq!((ring.primary(), ring.group.table().slot(SLOT).successor), (NodeId(2), None));
}

fn register(group: &mut Group, node: u32, nonce: u64) -> Incarnation {
    let change = Change::Register {
        node: NodeId(node),
        nonce,
        address: String::new(),
        hints: PlacementHints::default(),
        survived: Survived::Nothing,
    };
    match group.apply(change) {
        Decision::Registered { incarnation } => incarnation,
        other => panic!("{other:?}"),
    }
}

/// A group whose primaries do at once what it asks for.
fn willing(nodes: u32, copies: usize, slots: u32) -> Group {
    let mut group = Group::new(GroupOptions { slots, copies });
    (1..=nodes).for_each(|node| {
        register(&mut group, node, 1);
    });
    obey(&mut group, &[]);
    group
}

/// Lets the group plan until it has nothing more to change; returns the most slots that were handed over at a
/// time.
fn obey(group: &mut Group, gone: &[NodeId]) -> usize {
    let in_sync_min = group.options().copies.min(2);
    rest(group, in_sync_min, gone)
}

/// The same, checking that slots always have at least `in_sync_min` copies in sync.
fn rest(group: &mut Group, in_sync_min: usize, gone: &[NodeId]) -> usize {
    let mut most = 0;
    for _ in 0..10_000 {
        let plan = group.plan(gone);
        if plan.is_empty() {
            return most;
        }
        plan.into_iter().for_each(|change| {
            group.apply(change);
        });
        let table = group.table();
        most = most.max(table.slots.iter().filter(|slot| slot.successor.is_some()).count());
        for (slot, configuration) in (0..).map(Slot).zip(table.slots.iter()) {
            let (epoch, since) = (configuration.epoch, configuration.since);
            if let Some(node) = configuration.successor {
                group.apply(Change::Propose(Proposal::HandOver { slot, epoch, since, node }));
            } else if let Some(node) = configuration.joining.iter().find(|node| table.members[node].is_up) {
                let incarnation = table.incarnation(node).unwrap();
                group.apply(Change::Propose(Proposal::Admit { slot, epoch, node, incarnation }));
            }
        }
        for slot in group.table().slots.iter() {
            assert!(slot.in_sync.len() >= in_sync_min, "{slot:?}");
        }
    }
    panic!("the group never comes to rest");
}

#[test]
fn slots_with_one_copy_are_spread_over_nodes_that_come_and_none_moves_in_vain() {
    let mut group = willing(3, 1, 3_000);
    let before = group.table();
    register(&mut group, 4, 1);
    let most = obey(&mut group, &[]);
    assert!((1..=256).contains(&most), "{most} slots took no writes at once");
    let table = group.table();
    let of = |node| table.slots.iter().filter(|slot| slot.in_sync.contains(NodeId(node))).count();
    assert!((1..=4).all(|node| (740..=760).contains(&of(node))), "{:?}", (1..=4).map(of).collect::<Vec<_>>());
    assert!(table.slots.iter().all(|slot| slot.in_sync.len() == 1 && slot.joining.is_empty()));
    let moved =
        before.slots.iter().zip(table.slots.iter()).filter(|(one, other)| one.in_sync != other.in_sync);
    assert_eq!(moved.count(), of(4), "all that moved went to the one that came");
    // A keyspace of one copy beside one of three.
    let mut group = willing(3, 3, 300);
    let rules =
        KeyspaceRules { name: "scratch".into(), copies: 1, in_sync_min: 0, latency_ms: 0, durability: None };
    group.apply(Change::Keyspace(rules));
    for _ in 0..10 {
        group.plan(&[]).into_iter().for_each(|change| {
            group.apply(change);
        });
    }
    register(&mut group, 4, 1);
    rest(&mut group, 1, &[]);
    let table = group.table();
    let leads = |node| table.slots.iter().filter(|slot| slot.primary == Some(NodeId(node))).count();
    let copies = |node| table.slots.iter().filter(|slot| slot.has(NodeId(node))).count();
    assert!(
        (1..=4).all(|node| (135..=165).contains(&leads(node))),
        "{:?}",
        (1..=4).map(leads).collect::<Vec<_>>()
    );
    assert!(
        (1..=4).all(|node| (285..=315).contains(&copies(node))),
        "{:?}",
        (1..=4).map(copies).collect::<Vec<_>>()
    );
}

#[test]
fn a_node_that_leaves_hands_everything_over_in_steps_and_then_is_gone() {
    let mut group = willing(4, 3, 2_000);
    group.apply(Change::Leave { node: NodeId(2) });
    let most = obey(&mut group, &[]);
    assert!((1..=256).contains(&most), "{most} slots took no writes at once");
    let table = group.table();
    assert!(!table.members.contains_key(&NodeId(2)));
    for slot in table.slots.iter() {
        assert!(!slot.has(NodeId(2)) && slot.in_sync.len() == 3 && slot.primary.is_some(), "{slot:?}");
    }
    assert_eq!(register(&mut group, 2, 2), Incarnation(2), "the next life is another one");
    obey(&mut group, &[]);
    let leads = group.table().slots.iter().filter(|slot| slot.primary == Some(NodeId(2))).count();
    assert!((400..=600).contains(&leads), "{leads}");
}

#[test]
fn a_ring_with_too_few_other_nodes_keeps_the_copies_that_it_can() {
    let mut group = willing(3, 3, 64);
    group.apply(Change::Leave { node: NodeId(1) });
    obey(&mut group, &[]);
    let table = group.table();
    assert_eq!(table.members.len(), 2);
    assert!(table.slots.iter().all(|slot| slot.in_sync.len() == 2 && slot.primary.is_some()));
}

#[test]
fn a_node_that_is_to_leave_and_is_down_is_waited_for_only_where_it_has_the_last_copy() {
    let mut group = willing(4, 3, 64);
    let incarnation = group.table().incarnation(NodeId(3)).unwrap();
    group.apply(Change::Fail { node: NodeId(3), incarnation });
    group.apply(Change::Leave { node: NodeId(3) });
    obey(&mut group, &[]);
    assert!(!group.table().members.contains_key(&NodeId(3)));
    let mut alone = willing(1, 1, 4);
    register(&mut alone, 2, 1);
    let incarnation = alone.table().incarnation(NodeId(1)).unwrap();
    alone.apply(Change::Fail { node: NodeId(1), incarnation });
    alone.apply(Change::Leave { node: NodeId(1) });
    alone.plan(&[NodeId(1)]).into_iter().for_each(|change| {
        alone.apply(change);
    });
    assert!(alone.table().members[&NodeId(1)].is_leaving, "all that there is of its slots is there");
    assert!(alone.table().slots.iter().all(|slot| slot.in_sync.contains(NodeId(1))));
}

#[test]
fn who_was_to_leave_stays_when_that_is_taken_back_or_it_begins_again() {
    let mut group = willing(4, 3, 16);
    group.apply(Change::Leave { node: NodeId(2) });
    assert_eq!(group.apply(Change::Stay { node: NodeId(2) }), Decision::Changed);
    assert!(!group.table().members[&NodeId(2)].is_leaving);
    group.apply(Change::Leave { node: NodeId(2) });
    register(&mut group, 2, 2);
    assert!(!group.table().members[&NodeId(2)].is_leaving);
    let remove = Change::Remove { node: NodeId(2), incarnation: Incarnation(2) };
    assert_eq!(group.apply(remove), Decision::Unchanged, "it does not leave");
}

#[test]
fn a_leaving_node_keeps_its_copy_while_another_one_may_come_back() {
    let mut group = willing(3, 2, 16);
    let options = Options::default();
    assert!(options.validate().is_ok());
    let incarnation = group.table().incarnation(NodeId(3)).unwrap();
    group.apply(Change::Fail { node: NodeId(3), incarnation });
    group.apply(Change::Leave { node: NodeId(2) });
    for _ in 0..20 {
        group.plan(&[]).into_iter().for_each(|change| {
            group.apply(change);
        });
    }
    assert!(group.table().members.contains_key(&NodeId(2)), "node 1 would be the only one with anything");
    for _ in 0..20 {
        let changes: Vec<_> = group.plan(&[NodeId(3)]);
        changes.into_iter().for_each(|change| {
            group.apply(change);
        });
        let table = group.table();
        for (slot, configuration) in (0..).map(Slot).zip(table.slots.iter()) {
            let (epoch, since) = (configuration.epoch, configuration.since);
            if let Some(node) = configuration.successor {
                group.apply(Change::Propose(Proposal::HandOver { slot, epoch, since, node }));
            } else if let Some(node) = configuration.joining.iter().find(|node| node.0 != 3) {
                let incarnation = table.incarnation(node).unwrap();
                group.apply(Change::Propose(Proposal::Admit { slot, epoch, node, incarnation }));
            }
        }
    }
    assert!(!group.table().members.contains_key(&NodeId(2)), "who is gone is not waited for");
}
