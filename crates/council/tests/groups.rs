//! Groups of nodes that agree on a table, over sockets of this machine.
#![allow(clippy::unwrap_used)]

mod support;

use atoll_replica::{Change, Decision, Epoch, NodeId, Proposal, Slot};
use support::{group, is_founded};

#[test]
fn three_nodes_found_a_table_and_each_of_them_is_heard() {
    let (nodes, _) = group(3, 16_384, None);
    for node in &nodes {
        node.until_table("all slots have copies", |table| is_founded(table, 3));
        node.until("it is heard", |told| told.heard.len() >= 3 && told.incarnation.is_some());
    }
    let tables: Vec<_> = nodes.iter().map(|node| node.table()).collect();
    assert_eq!(tables[0].slots, tables[1].slots);
    let leads = |node| tables[0].slots.iter().filter(|slot| slot.primary == Some(NodeId(node))).count();
    assert!((1..=3).all(|node| leads(node) > 5_000), "{} {} {}", leads(1), leads(2), leads(3));
}

#[test]
fn a_group_whose_leader_dies_goes_on_and_gives_that_node_up() {
    let (mut nodes, _) = group(3, 64, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    for _ in 0..1 {
        let mut dead = nodes.remove(0);
        dead.kill();
        for node in &nodes {
            node.until_table("the others lead all slots", |table| is_founded_without(table, NodeId(1)));
        }
    }
}

fn is_founded_without(table: &atoll_replica::Table, dead: NodeId) -> bool {
    !table.members[&dead].is_up
        && table.slots.iter().all(|slot| slot.primary.is_some() && !slot.in_sync.contains(dead))
}

#[test]
fn proposals_of_an_epoch_that_is_over_change_nothing_and_others_do() {
    let (nodes, _) = group(3, 4, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let (slot, table) = (Slot(2), nodes[0].table());
    let configuration = table.slot(slot);
    let other = configuration.in_sync.iter().find(|node| Some(*node) != configuration.primary).unwrap();
    let old = Epoch(configuration.epoch.0 - 1);
    let council = nodes[0].council();
    assert_eq!(council.change(Change::Lead { slot, epoch: old, node: other }).unwrap(), Decision::Unchanged);
    council.propose(Proposal::Dismiss { slot, epoch: old, node: other });
    let lead = Change::Lead { slot, epoch: configuration.epoch, node: other };
    assert_eq!(council.change(lead).unwrap(), Decision::Changed);
    for node in &nodes {
        node.until_table("another leads", |table| table.slot(slot).primary == Some(other));
        assert_eq!(node.table().slot(slot).in_sync.len(), 3, "an old proposal was taken");
    }
    assert!(
        council.change(Change::Fail { node: other, incarnation: atoll_replica::Incarnation(1) }).is_err()
    );
}
