//! A copy that is being made delays no write: it is waited for only once it lacks little, and the log alone
//! can bring that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Change, Incarnation, Input, Message, NodeId, Options, Survived};
use small_ring::{Outcome, Ring, SLOT, three};

/// A ring of which two nodes have a copy with a few entries, and a third is to get one but receives none of
/// the cells that it lacks.
fn without_cells(nodes: u32) -> (Ring, NodeId, Vec<NodeId>) {
    let mut ring = Ring::of(nodes, 2, &Options::default());
    ring.pass(100);
    let (leader, in_sync) = (ring.primary(), ring.group.table().slot(SLOT).in_sync);
    (1..=10).for_each(|ticket| ring.write(leader.0, ticket));
    ring.pass(100);
    assert_eq!(ring.told(10), Some(Outcome::Written));
    let others: Vec<_> = (1..=nodes).map(NodeId).filter(|node| !in_sync.contains(*node)).collect();
    ring.decide(Change::Copy { slot: SLOT, node: others[0] });
    (0..10).for_each(|_| ring.tick());
    assert_eq!(ring.transfers, [(leader, others[0])]);
    (ring, leader, others)
}

#[test]
fn a_copy_that_needs_cells_is_not_waited_for_however_few_entries_it_lacks() {
    let (mut ring, leader, _) = without_cells(3);
    ring.write(leader.0, 11);
    ring.tick();
    assert_eq!(ring.told(11), Some(Outcome::Written));
    for ticket in 12..112 {
        ring.write(leader.0, ticket);
        ring.tick();
        assert_eq!(ring.told(ticket), Some(Outcome::Written));
    }
}

#[test]
fn a_copy_that_never_gets_its_cells_keeps_no_other_one_from_counting() {
    let (mut ring, leader, others) = without_cells(4);
    ring.decide(Change::Copy { slot: SLOT, node: others[1] });
    for _ in 0..200 {
        ring.tick();
        for (from, to) in std::mem::take(&mut ring.transfers) {
            if to == others[1] {
                ring.transfer(from, to);
            }
        }
        for change in std::mem::take(&mut ring.proposals) {
            ring.decide(change);
        }
    }
    let is_there = others.iter().map(|node| ring.group.table().slot(SLOT).in_sync.contains(*node));
    assert_eq!((is_there.collect::<Vec<_>>(), ring.primary()), (vec![false, true], leader));
}

#[test]
fn a_copy_that_lacks_many_entries_is_not_waited_for() {
    let options = Options { nearly_caught_up: 4, ..Options::default() };
    let mut ring = Ring::of(3, 3, &options);
    ring.pass(100);
    assert_eq!(ring.primary(), NodeId(1));
    ring.fail(3);
    ring.write(1, 1);
    ring.pass(400);
    assert_eq!(ring.applied(3), [1], "it follows");
    ring.isolate(3);
    (2..=10).for_each(|ticket| ring.write(1, ticket));
    ring.decide(Change::Hear { node: NodeId(3), incarnation: Incarnation(1) });
    for ticket in 11..=20 {
        ring.write(1, ticket);
        ring.tick();
        assert_eq!(ring.told(ticket), Some(Outcome::Written));
    }
    assert_eq!((ring.applied(3), ring.proposals.len()), (vec![1], 0));
    ring.cut.clear();
    ring.pass(400);
    assert_eq!(ring.group.table().slot(SLOT).in_sync.len(), 3, "it counts once it has them");
}

#[test]
fn a_copy_whose_node_is_down_for_long_is_left_alone_and_counts_soon_after_it_is_back() {
    let mut ring = three();
    ring.isolate(3);
    ring.fail(3);
    (1..=9).for_each(|ticket| ring.write(1, ticket));
    let asked = |ring: &mut Ring| {
        ring.now = ring.now.after(400_000);
        ring.give(NodeId(1), Input::GroupHeard { asked_at: ring.now });
        ring.give(NodeId(1), Input::Tick);
        let asks = |(_, _, to, message): &&(NodeId, Incarnation, NodeId, Message)| {
            *to == NodeId(3) && matches!(message, Message::Slot { .. })
        };
        ring.network.iter().filter(asks).count()
    };
    ring.pass(2_000);
    assert_eq!(ring.told(9), Some(Outcome::Written));
    assert_eq!(asked(&mut ring), 1, "the group may be the only one that does not hear it");
    ring.pass(10_000);
    assert_eq!(asked(&mut ring), 0, "it may be down for days, and it has many slots");
    ring.cut.clear();
    ring.decide(Change::Hear { node: NodeId(3), incarnation: Incarnation(1) });
    ring.pass(1_000);
    assert_eq!((ring.applied(3).len(), ring.group.table().slot(SLOT).in_sync.len()), (9, 3));
}

#[test]
fn what_a_copy_had_before_its_node_began_again_does_not_count_though_the_epoch_is_the_same() {
    let mut ring = three();
    ring.fail(3);
    (1..=9).for_each(|ticket| ring.write(1, ticket));
    ring.pass(400);
    assert_eq!(ring.applied(3).len(), 9, "it follows, and nobody counts it in while it is down");
    let epoch = ring.group.table().slot(SLOT).epoch;
    // The end of its log is lost.
    let third = ring.nodes.get_mut(&NodeId(3)).unwrap();
    third.log.truncate(4);
    ring.start(NodeId(3), &Options::default(), Survived::Everything);
    ring.settle();
    assert_eq!(ring.group.table().slot(SLOT).epoch, epoch);
    ring.pass(3_000);
    assert_eq!(ring.nodes[&NodeId(3)].replica.last(SLOT).sequence.0, 9);
    assert_eq!(ring.group.table().slot(SLOT).in_sync.len(), 3);
}

#[test]
fn a_long_tail_that_differs_is_stepped_back_through_without_entries() {
    let mut ring = three();
    ring.isolate(1);
    (1..=200).for_each(|ticket| ring.write(1, ticket));
    ring.fail(1);
    ring.pass(1_200);
    let leader = ring.primary().0;
    (201..=400).for_each(|ticket| ring.write(leader, ticket));
    ring.pass(200);
    ring.cut.clear();
    ring.entries_sent = 0;
    ring.decide(Change::Hear { node: NodeId(1), incarnation: Incarnation(1) });
    ring.pass(400);
    assert_eq!(ring.applied(1), (201..=400).collect::<Vec<_>>());
    assert!(ring.entries_sent <= 600, "{}", ring.entries_sent);
    assert_eq!(ring.group.table().slot(SLOT).in_sync.len(), 3);
}
