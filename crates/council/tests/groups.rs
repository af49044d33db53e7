//! Groups of nodes that agree on a table, over sockets of this machine.
#![allow(clippy::unwrap_used)]

mod support;

use atoll_council::{CouncilError, CouncilOptions, Listen, Secret};
use atoll_replica::{Change, Decision, Epoch, NodeId, Proposal, Slot};
use std::collections::BTreeSet;
use std::time::Duration;
use support::proxy::Proxy;
use support::{Node, Proxied, group, is_founded, options, sockets};

#[test]
fn three_nodes_found_a_table_and_each_of_them_is_heard() {
    let (nodes, _) = group(3, 16_384, None);
    for node in &nodes {
        node.until_table("all slots have copies", |table| is_founded(table, 3));
        node.until("it is heard", |told| told.heard.len() >= 3 && told.incarnation.is_some());
    }
    let rings: Vec<_> = nodes.iter().map(|node| node.told(|told| told.ring.unwrap())).collect();
    assert_eq!([rings[1], rings[2]], [rings[0]; 2], "all are told which ring it is");
    let tables: Vec<_> = nodes.iter().map(|node| node.table()).collect();
    assert_eq!(tables[0].slots, tables[1].slots);
    let leads = |node| tables[0].slots.iter().filter(|slot| slot.primary == Some(NodeId(node))).count();
    assert!((1..=3).all(|node| leads(node) > 5_000), "{} {} {}", leads(1), leads(2), leads(3));
}

#[test]
fn a_group_whose_leader_dies_goes_on_and_gives_that_node_up() {
    let (mut nodes, _) = group(3, 64, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let mut dead = nodes.remove(0);
    dead.kill();
    for node in &nodes {
        node.until_table("the others lead all slots", |table| is_founded_without(table, NodeId(1)));
    }
}

#[test]
fn a_node_that_hangs_is_given_up_though_its_thread_of_the_group_goes_on_and_is_back_when_it_works_again() {
    let (nodes, _) = group(3, 64, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    // It was last seen at work some seconds ago.
    let start = support::now();
    nodes[2].until("some time has passed", |_| support::now() > start.after(3_500_000));
    nodes[2].council().at_work(start);
    nodes[0].until_table("the others lead all slots", |table| is_founded_without(table, NodeId(3)));
    // For as long as this test may take.
    nodes[2].council().at_work(support::now().after(60_000_000));
    nodes[0].until_table("it is up again", |table| table.members[&NodeId(3)].is_up);
}

fn is_founded_without(table: &atoll_replica::Table, dead: NodeId) -> bool {
    !table.members[&dead].is_up
        && table
            .slots
            .iter()
            .all(|slot| slot.primary.is_some() && !slot.in_sync.contains(dead) && slot.in_sync.len() == 2)
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
    council.propose(vec![Proposal::Dismiss { slot, epoch: old, node: other }]);
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

#[test]
fn a_leader_that_is_cut_off_answers_nobody_and_comes_back() {
    let group = Proxied::start(3, 64);
    let nodes = &group.nodes;
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    nodes[0].until("it is heard", |told| !told.heard.is_empty());
    group.cut(0);
    // They may have answered the questions that were asked before the cut.
    let cut_at = support::now();
    for node in &nodes[1..] {
        node.until_table("the others lead all slots", |table| is_founded_without(table, NodeId(1)));
    }
    // It asks itself, the leader, which no other member confirms. Only questions from before the cut were
    // answered.
    let asked_later = |told: &support::Told| told.heard.iter().any(|asked_at| *asked_at > cut_at);
    assert!(!nodes[0].within(Duration::from_secs(1), asked_later), "a leader without others answered");
    let heard = nodes[1].told(|told| told.heard.len());
    nodes[1].until("the others are heard", |told| told.heard.len() > heard);
    group.heal(0);
    nodes[0].until("it is heard again", asked_later);
    nodes[0].until_table("it is up again", |table| table.members[&NodeId(1)].is_up);
}

#[test]
fn a_leader_that_reached_nobody_gives_up_nobody_whom_it_reaches_again() {
    let group = Proxied::start(3, 64);
    let nodes = &group.nodes;
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    nodes.iter().for_each(|node| node.until("it is heard", |told| !told.heard.is_empty()));
    nodes[0].until_table("all are up", |table| table.members.values().all(|member| member.is_up));
    (0..3).for_each(|node| group.cut(node));
    // Nodes that a busy machine gave up before that do not matter.
    nodes[0].forget_who_was_down();
    // Twice as long as it takes to give a node up.
    let is_any_down = |told: &support::Told| !told.was_down.is_empty();
    assert!(!nodes[0].within(Duration::from_secs(3), is_any_down), "there is nobody who agrees");
    let healed_at = support::now();
    // Only the former leader has all entries that were proposed meanwhile, so it leads these two again.
    [(0, 1), (1, 0)].iter().for_each(|&(from, to)| group.ways[from][to].iter().for_each(Proxy::heal));
    nodes[1].until("it is heard again", |told| told.heard.iter().any(|asked_at| *asked_at > healed_at));
    nodes[0].until_table("who is still cut off is given up", |table| !table.members[&NodeId(3)].is_up);
    assert_eq!(nodes[0].told(|told| told.was_down.clone()), BTreeSet::from([NodeId(3)]));
}

#[test]
fn a_node_is_heard_only_behind_the_table_that_has_it_up() {
    let group = Proxied::start(3, 8);
    let nodes = &group.nodes;
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    for _ in 0..2 {
        group.cut(2);
        nodes[0].until_table("it is down", |table| !table.members[&NodeId(3)].is_up);
        let cut_at = support::now();
        group.heal(2);
        nodes[2].until("it is heard again", |told| told.heard.iter().any(|asked_at| *asked_at > cut_at));
        let table = nodes[2].table();
        assert!(table.members[&NodeId(3)].is_up, "it was heard, and its table has it down");
    }
}

#[test]
fn a_node_that_is_no_member_registers_and_gets_copies() {
    let (nodes, members) = group(3, 64, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let fourth = Node::start(options(4, &members, 64, None, None));
    fourth.until("it is heard", |told| !told.heard.is_empty() && told.table.is_some());
    assert_eq!(fourth.told(|told| told.ring), nodes[0].told(|told| told.ring), "it is the same ring");
    fourth.until_table("it gets copies", |table| {
        table.slots.iter().any(|slot| slot.joining.contains(NodeId(4)))
    });
}

#[test]
fn who_shows_another_secret_is_refused_and_told_so() {
    let (listeners, members) = sockets(1);
    let secret = |bytes: &[u8]| Secret::new(bytes);
    let mut listeners = listeners.into_iter();
    let listen = listeners.next().map(Listen::Bound);
    let one =
        Node::start(CouncilOptions { token: secret(b"right"), ..options(1, &members, 8, listen, None) });
    one.until("it is heard", |told| !told.heard.is_empty());
    for wrong in [None, secret(b"wrong"), secret(b"righ"), secret(b"right!")] {
        let other = Node::start(CouncilOptions { token: wrong, ..options(2, &members, 8, None, None) });
        other.until("it is told", |told| matches!(told.troubles[..], [CouncilError::Refused { .. }]));
        assert!(other.told(|told| told.incarnation.is_none() && told.table.is_none()));
    }
    let other =
        Node::start(CouncilOptions { token: secret(b"right"), ..options(2, &members, 8, None, None) });
    other.until("it is let in", |told| !told.heard.is_empty());
}

#[test]
fn a_second_life_of_a_node_ends_the_first() {
    let (nodes, members) = group(1, 8, None);
    nodes[0].until("it is heard", |told| !told.heard.is_empty());
    let first = Node::start(options(7, &members, 8, None, None));
    first.until("it is heard", |told| !told.heard.is_empty());
    let second = Node::start(options(7, &members, 8, None, None));
    second.until("it is heard", |told| !told.heard.is_empty());
    first.until("it is told", |told| {
        matches!(told.troubles[..], [CouncilError::Replaced { node: NodeId(7) }])
    });
    assert!(second.told(|told| told.incarnation) > first.told(|told| told.incarnation));
}

#[test]
fn a_node_that_leaves_is_told_so_and_is_none_of_the_ring_any_more() {
    let (nodes, members) = group(3, 4, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let fourth = Node::start(options(4, &members, 4, None, None));
    fourth.until("it is heard", |told| !told.heard.is_empty());
    let leave = Change::Leave { node: NodeId(4) };
    assert_eq!(nodes[0].council().change(leave).unwrap(), Decision::Changed);
    fourth.until("it is told", |told| told.has_left);
    nodes[0].until_table("it is gone", |table| !table.members.contains_key(&NodeId(4)));
    assert!(fourth.told(|told| told.troubles.is_empty()), "that is no trouble");
}

#[test]
fn a_slot_whose_copies_are_all_lost_goes_on_elsewhere_when_an_operator_says_so() {
    let (nodes, members) = group(3, 4, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let mut fourth = Node::start(options(4, &members, 4, None, None));
    let slot = Slot(1);
    fourth.until_table("it catches up", |table| table.members.contains_key(&NodeId(4)));
    let council = nodes[0].council();
    council.change(Change::Copy { slot, node: NodeId(4) }).unwrap();
    nodes[0].until_table("it joins", |table| table.slot(slot).has(NodeId(4)));
    again_until(
        &nodes[0],
        "it is counted in",
        |table| table.slot(slot).in_sync.contains(NodeId(4)),
        |table| {
            let (epoch, node) = (table.slot(slot).epoch, NodeId(4));
            let incarnation = table.members[&node].incarnation;
            council.propose(vec![Proposal::Admit { slot, epoch, node, incarnation }]);
        },
    );
    again_until(
        &nodes[0],
        "it leads alone",
        |table| table.slot(slot).in_sync.as_slice() == [NodeId(4)],
        |table| {
            let epoch = table.slot(slot).epoch;
            council.change(Change::Lead { slot, epoch, node: NodeId(4) }).unwrap();
            for node in (1..=3).map(NodeId) {
                council.change(Change::Drop { slot, node }).unwrap();
            }
        },
    );
    fourth.kill();
    nodes[0].until_table("it is down", |table| !table.members[&NodeId(4)].is_up);
    let seen = nodes[0].table().version;
    assert_eq!(council.change(Change::Recover { slot, seen }).unwrap(), Decision::Changed);
    nodes[0]
        .until_table("another one leads", |table| table.slot(slot).primary.is_some_and(|node| node.0 < 4));
}

/// Acts on the newest table again and again, until it is as it should be.
fn again_until(
    node: &Node,
    what: &str,
    holds: impl Fn(&atoll_replica::Table) -> bool,
    does: impl Fn(&atoll_replica::Table),
) {
    let is_so = |told: &support::Told| told.table.as_ref().is_some_and(|table| holds(table));
    for _ in 0..100 {
        does(&node.table());
        if node.within(Duration::from_millis(300), is_so) {
            return;
        }
    }
    node.until(what, is_so);
}
