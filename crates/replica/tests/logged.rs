//! A copy reports entries only once the very write that put them into its log has completed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Change, Incarnation, Input, LogRun, NodeId, Options, Position, Sequence};
use small_ring::{Ring, SLOT, three};

/// The log of a node completes a write.
fn end(ring: &mut Ring, node: u32, (position, run): (Position, LogRun)) {
    ring.give(NodeId(node), Input::Logged { slot: SLOT, position, run });
}

/// Completes all writes of a node that are still under way.
fn end_all(ring: &mut Ring, node: u32) {
    while let Some(ended) = ring.nodes.get_mut(&NodeId(node)).unwrap().unlogged.pop_front() {
        end(ring, node, ended);
    }
    ring.settle();
}

fn committed(ring: &Ring, node: u32) -> Sequence {
    ring.nodes[&NodeId(node)].replica.committed(SLOT)
}

fn lead(ring: &mut Ring, node: u32) {
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.decide(Change::Lead { slot: SLOT, epoch, node: NodeId(node) });
    ring.settle();
}

/// A ring in which the third node logs an entry of the first one, and then another in its place from the
/// second, which leads after it. Returns the first of these writes, which was not reported yet.
fn overwritten() -> (Ring, (Position, LogRun)) {
    let mut ring = three();
    ring.logs_at_once = false;
    ring.cut.insert((NodeId(1), NodeId(2)));
    ring.write(1, 1);
    ring.settle();
    ring.cut.clear();
    let first = ring.nodes.get_mut(&NodeId(3)).unwrap().unlogged.pop_front().unwrap();
    lead(&mut ring, 2);
    ring.cut.insert((NodeId(2), NodeId(1)));
    ring.write(2, 2);
    ring.settle();
    ring.cut.clear();
    assert_eq!(ring.nodes[&NodeId(3)].unlogged.len(), 1, "it took the place of the first one");
    (ring, first)
}

#[test]
fn an_entry_that_is_written_once_more_is_not_logged_by_the_end_of_its_first_write() {
    let (mut ring, first) = overwritten();
    lead(&mut ring, 1);
    end_all(&mut ring, 1);
    end_all(&mut ring, 2);
    assert_eq!(ring.nodes[&NodeId(3)].unlogged.back().map(|(position, _)| *position), Some(first.0));
    end(&mut ring, 3, first);
    ring.settle();
    assert_eq!(committed(&ring, 1), Sequence(0), "of the write that counts nobody knows");
    end_all(&mut ring, 3);
    assert_eq!(committed(&ring, 1), Sequence(1));
}

#[test]
fn the_end_of_a_write_to_a_copy_that_is_gone_is_none_of_the_one_that_came_since() {
    let mut ring = three();
    ring.logs_at_once = false;
    ring.write(1, 1);
    ring.settle();
    let third = NodeId(3);
    let first = ring.nodes.get_mut(&third).unwrap().unlogged.pop_front().unwrap();
    ring.fail(3);
    ring.decide(Change::Drop { slot: SLOT, node: third });
    ring.settle();
    assert!(!ring.group.table().slot(SLOT).has(third));
    let epoch_before = first.0.epoch;
    ring.decide(Change::Hear { node: third, incarnation: Incarnation(1) });
    ring.decide(Change::Copy { slot: SLOT, node: third });
    (0..20).for_each(|_| ring.tick());
    let again = ring.nodes[&third].unlogged.back().copied().unwrap();
    assert_eq!(
        (again.0.epoch, again.0.sequence),
        (epoch_before, first.0.sequence),
        "the same entry comes again"
    );
    assert_ne!(again.1, first.1);
}

#[test]
fn a_copy_whose_entries_were_cut_off_does_not_have_those_in_their_place_before_they_are_logged() {
    let (mut ring, first) = overwritten();
    // The third node had logged the entry that was cut off.
    let third = NodeId(3);
    let mut other = three();
    other.logs_at_once = false;
    other.cut.insert((NodeId(1), NodeId(2)));
    other.write(1, 1);
    other.settle();
    end_all(&mut other, 3);
    other.cut.clear();
    lead(&mut other, 2);
    other.write(2, 2);
    other.settle();
    end_all(&mut other, 1);
    end_all(&mut other, 2);
    assert_eq!((committed(&other, 2), other.nodes[&third].unlogged.len()), (Sequence(0), 1));
    end_all(&mut other, 3);
    assert_eq!(committed(&other, 2), Sequence(1));
    // The same where the first write completes late.
    end(&mut ring, 3, first);
    ring.settle();
    (0..20).for_each(|_| ring.tick());
    end_all(&mut ring, 1);
    end_all(&mut ring, 2);
    assert_eq!(committed(&ring, 2), Sequence(0));
    end_all(&mut ring, 3);
    assert_eq!(committed(&ring, 2), Sequence(1));
}

#[test]
fn cells_in_place_of_a_longer_log_are_not_there_before_they_are_as_durable_as_entries() {
    let options = Options { kept_entries: 1, ..Options::default() };
    let mut ring = Ring::of(3, 3, &options);
    ring.pass(100);
    assert_eq!(ring.primary(), NodeId(1));
    ring.isolate(1);
    (1..=10).for_each(|ticket| ring.write(1, ticket));
    ring.fail(1);
    ring.pass(1_200);
    let leader = ring.primary();
    (11..=15).for_each(|ticket| ring.write(leader.0, ticket));
    ring.pass(100);
    assert_eq!(ring.applied(leader.0), (11..=15).collect::<Vec<_>>());
    ring.cut.clear();
    ring.decide(Change::Hear { node: NodeId(1), incarnation: Incarnation(1) });
    while ring.transfers.is_empty() {
        ring.tick();
    }
    assert_eq!(ring.nodes[&NodeId(1)].log.len(), 10, "what nobody else has is logged here");
    ring.logs_at_once = false;
    ring.transfer(leader, NodeId(1));
    (0..40).for_each(|_| ring.tick());
    assert_eq!((ring.applied(1).len(), &ring.proposals[..]), (5, &[][..]), "the cells may be lost");
    end_all(&mut ring, 1);
    (0..20).for_each(|_| ring.tick());
    assert!(!ring.proposals.is_empty());
}
