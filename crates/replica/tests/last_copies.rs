//! Slots whose copies in sync are down, or hang on one node: nothing of them is given away, and they are
//! served as soon as may be.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use atoll_replica::{
    Change, Configuration, Copies, Group, GroupOptions, NodeId, PlacementHints, Proposal, Slot, Survived,
};

fn register(group: &mut Group, node: u32, nonce: u64, survived: Survived) {
    let (node, address, hints) = (NodeId(node), String::new(), PlacementHints::default());
    group.apply(Change::Register { node, nonce, address, hints, survived });
}

/// A group whose slots are founded on these many nodes.
fn founded(nodes: u32, copies: usize, slots: u32) -> Group {
    let mut group = Group::new(GroupOptions { slots, copies });
    (1..=nodes).for_each(|node| register(&mut group, node, 1, Survived::Nothing));
    for change in group.plan(&[]) {
        group.apply(change);
    }
    group
}

/// A group of four nodes, of which two failed one behind the other.
fn failed_one_by_one() -> Group {
    let mut group = founded(4, 2, 64);
    for node in [2, 4] {
        let incarnation = group.table().incarnation(NodeId(node)).unwrap();
        group.apply(Change::Fail { node: NodeId(node), incarnation });
    }
    group
}

#[test]
fn a_copy_that_failed_before_the_last_one_is_kept_while_nothing_else_is_there() {
    let mut group = failed_one_by_one();
    let lost: Vec<Slot> =
        (0..64).map(Slot).filter(|slot| group.table().slot(*slot).primary == Some(NodeId(4))).collect();
    let waiting: Vec<Slot> =
        lost.into_iter().filter(|slot| group.table().slot(*slot).joining.contains(NodeId(2))).collect();
    assert!(!waiting.is_empty(), "slots of both nodes");
    for _ in 0..20 {
        for change in group.plan(&[NodeId(2), NodeId(4)]) {
            group.apply(change);
        }
    }
    for &slot in &waiting {
        let configuration = group.table().slot(slot);
        assert!(configuration.joining.contains(NodeId(2)), "{slot:?}: {configuration:?}");
        assert!(
            !configuration.has(NodeId(1)) && !configuration.has(NodeId(3)),
            "an empty copy would come first"
        );
    }
    // It comes back with all that it had; the operator gives up node 4.
    register(&mut group, 2, 9, Survived::Everything);
    for slot in waiting {
        group.apply(Change::Recover { slot, seen: group.table().version });
        assert_eq!(group.table().slot(slot).primary, Some(NodeId(2)), "{slot:?}");
    }
}

/// A node fails.
fn fail(group: &mut Group, node: u32) {
    let incarnation = group.table().incarnation(NodeId(node)).unwrap();
    group.apply(Change::Fail { node: NodeId(node), incarnation });
}

/// Plans a few times while these nodes are gone; no copy that is made comes to its end.
fn plan_without(group: &mut Group, gone: &[NodeId]) {
    for _ in 0..20 {
        for change in group.plan(gone) {
            group.apply(change);
        }
    }
}

#[test]
fn a_copy_on_a_node_that_is_gone_is_kept_until_another_one_has_everything() {
    let mut group = founded(3, 2, 16);
    fail(&mut group, 3);
    let of_one: Vec<Slot> = (0..16)
        .map(Slot)
        .filter(|slot| group.table().slot(*slot).in_sync == Copies::of(&[NodeId(1)]))
        .collect();
    assert!(!of_one.is_empty(), "slots of nodes 1 and 3");
    plan_without(&mut group, &[NodeId(3)]);
    let both = Copies::of(&[NodeId(3), NodeId(2)]);
    for &slot in &of_one {
        assert_eq!(group.table().slot(slot).joining, both, "{slot:?}: the new copy is still empty");
    }
    // The disk of node 1 is lost before the new copies are whole, and node 3 returns with all that it had.
    let mut lost = group.clone();
    fail(&mut lost, 1);
    register(&mut lost, 3, 9, Survived::Everything);
    for &slot in &of_one {
        assert!(lost.table().slot(slot).joining.contains(NodeId(3)), "{slot:?} is forgotten there");
        lost.apply(Change::Recover { slot, seen: lost.table().version });
        assert_eq!(lost.table().slot(slot).primary, Some(NodeId(3)), "{slot:?}: and not an empty copy");
    }
    // Otherwise node 3 is replaced where the new copies are whole, and only there.
    let incarnation = group.table().incarnation(NodeId(2)).unwrap();
    let (first, others) = of_one.split_first().unwrap();
    let epoch = group.table().slot(*first).epoch;
    group.apply(Change::Propose(Proposal::Admit { slot: *first, epoch, node: NodeId(2), incarnation }));
    plan_without(&mut group, &[NodeId(3)]);
    assert!(!group.table().slot(*first).has(NodeId(3)), "who never returns is replaced");
    assert!(others.iter().all(|slot| group.table().slot(*slot).joining == both));
}

#[test]
fn of_two_nodes_the_one_that_was_gone_for_long_finds_its_copies_again() {
    let mut group = founded(2, 2, 16);
    fail(&mut group, 2);
    assert_eq!(group.plan(&[NodeId(2)]), [], "there is no other node for them");
    register(&mut group, 2, 9, Survived::Everything);
    let table = group.table();
    assert!(table.slots.iter().all(|slot| slot.joining == Copies::of(&[NodeId(2)])));
}

#[test]
fn slots_are_led_in_turn_though_a_node_is_gone_for_which_there_is_no_other() {
    let mut group = founded(3, 3, 16);
    fail(&mut group, 3);
    for slot in (0..16).map(Slot) {
        let epoch = group.table().slot(slot).epoch;
        group.apply(Change::Lead { slot, epoch, node: NodeId(1) });
    }
    let changes = group.plan(&[NodeId(3)]);
    let is_handed = |change: &Change| matches!(change, Change::HandOver { node: NodeId(2), .. });
    assert!(changes.len() == 8 && changes.iter().all(is_handed), "{changes:?}");
}

#[test]
fn of_copies_that_are_gone_the_one_with_least_makes_room() {
    let mut group = founded(12, 2, 1);
    let slot = Slot(0);
    let in_sync = group.table().slot(slot).in_sync;
    let (first, second) = (in_sync.as_slice()[0], in_sync.as_slice()[1]);
    let others: Vec<NodeId> = (1..=12).map(NodeId).filter(|node| !in_sync.contains(*node)).collect();
    // Copies that never were in sync take all places.
    for &node in &others[..8] {
        group.apply(Change::Copy { slot, node });
    }
    for &node in others[..8].iter().chain([&second]) {
        fail(&mut group, node.0);
    }
    let gone: Vec<NodeId> = others[..8].iter().copied().chain([second]).collect();
    let joining = group.table().slot(slot).joining;
    assert!(!joining.has_room() && group.table().slot(slot).primary == Some(first), "{joining:?}");
    let last = *joining.as_slice().last().unwrap();
    assert_eq!(group.plan(&gone), [Change::Drop { slot, node: last }]);
    plan_without(&mut group, &gone);
    let configuration = group.table().slot(slot);
    assert!(configuration.joining.contains(second), "it has most: {configuration:?}");
    let is_there = |node: NodeId| node != first && !gone.contains(&node) && configuration.has(node);
    assert!(others.iter().any(|node| is_there(*node)), "and another one is being made: {configuration:?}");
}

#[test]
fn a_leaving_copy_that_catches_up_stays_until_others_have_everything() {
    let mut group = founded(3, 2, 16);
    fail(&mut group, 3);
    group.apply(Change::Leave { node: NodeId(3) });
    plan_without(&mut group, &[]);
    let table = group.table();
    let is_of_both = |slot: &Configuration| slot.in_sync.len() == 2;
    let has_it = |slot: &Configuration| slot.joining.contains(NodeId(3));
    assert!(table.slots.iter().all(|slot| is_of_both(&slot) != has_it(&slot)));
    assert!(table.slots.iter().any(|slot| has_it(&slot)) && table.members.contains_key(&NodeId(3)));
}

#[test]
fn whichever_of_those_that_failed_together_comes_back_first_serves() {
    let mut group = founded(4, 2, 64);
    let life = |group: &Group, node| (NodeId(node), group.table().incarnation(NodeId(node)).unwrap());
    let nodes = vec![life(&group, 2), life(&group, 4)];
    group.apply(Change::FailTogether { nodes });
    let of_both: Vec<Slot> = (0..64)
        .map(Slot)
        .filter(|slot| [2, 4].iter().all(|node| group.table().slot(*slot).in_sync.contains(NodeId(*node))))
        .collect();
    assert!(!of_both.is_empty(), "both stay in sync: neither has missed anything");
    register(&mut group, 2, 9, Survived::Everything);
    for slot in of_both {
        assert_eq!(group.table().slot(slot).primary, Some(NodeId(2)), "{slot:?}");
    }
    // Slots with one copy elsewhere go on with that one.
    assert!(group.table().slots.iter().all(|slot| slot.primary.is_some_and(|node| node != NodeId(4))));
}

#[test]
fn a_copy_that_was_admitted_when_the_primary_was_down_leads() {
    let mut group = founded(3, 2, 16);
    let slot = (0..16).map(Slot).find(|slot| group.table().slot(*slot).primary == Some(NodeId(1))).unwrap();
    let other = group.table().slot(slot).in_sync.as_slice()[1];
    let epoch = group.table().slot(slot).epoch;
    group.apply(Change::Propose(Proposal::Dismiss { slot, epoch, node: other }));
    let life = group.table().incarnation(NodeId(1)).unwrap();
    let epoch = group.table().slot(slot).epoch;
    group.apply(Change::Fail { node: NodeId(1), incarnation: life });
    // The proposal was under way when the primary failed.
    let incarnation = group.table().incarnation(other).unwrap();
    group.apply(Change::Propose(Proposal::Admit { slot, epoch, node: other, incarnation }));
    assert_eq!(group.table().slot(slot).primary, Some(NodeId(1)), "which is down");
    for change in group.plan(&[]) {
        group.apply(change);
    }
    assert_eq!(group.table().slot(slot).primary, Some(other));
}

#[test]
fn a_dead_slot_with_one_copy_does_not_keep_others_from_moving() {
    let mut group = founded(2, 1, 64);
    register(&mut group, 3, 1, Survived::Nothing);
    let copy = group.plan(&[]).into_iter().find_map(|change| match change {
        Change::Copy { slot, .. } if group.table().slot(slot).primary == Some(NodeId(1)) => Some(change),
        _ => None,
    });
    group.apply(copy.unwrap());
    let incarnation = group.table().incarnation(NodeId(1)).unwrap();
    group.apply(Change::Fail { node: NodeId(1), incarnation });
    let moves = group.plan(&[]);
    assert!(moves.iter().any(|change| matches!(change, Change::Copy { .. })), "{moves:?}");
}

#[test]
fn dead_slots_that_were_to_be_handed_over_do_not_keep_others_from_it() {
    let mut group = founded(4, 2, 512);
    let led_by = |group: &Group, node| -> Vec<Slot> {
        (0..512).map(Slot).filter(|slot| group.table().slot(*slot).primary == Some(NodeId(node))).collect()
    };
    let life = |group: &Group, node| (NodeId(node), group.table().incarnation(NodeId(node)).unwrap());
    for slot in led_by(&group, 2) {
        let epoch = group.table().slot(slot).epoch;
        group.apply(Change::HandOver { slot, epoch, node: NodeId(4) });
    }
    let nodes = vec![life(&group, 2), life(&group, 4)];
    group.apply(Change::FailTogether { nodes });
    let dead = group.table().slots.iter().filter(|slot| slot.successor == Some(NodeId(4))).count();
    assert!(dead >= 64, "{dead} slots were to be handed over and are down");
    // Node 1 leads everything that is left, and node 3 nothing.
    for slot in led_by(&group, 3) {
        let epoch = group.table().slot(slot).epoch;
        group.apply(Change::Lead { slot, epoch, node: NodeId(1) });
    }
    assert_eq!(led_by(&group, 3), []);
    let handed = group.plan(&[]).into_iter().filter(|change| matches!(change, Change::HandOver { .. }));
    assert_eq!(handed.count(), 64, "as many at a time as if all were there");
}
