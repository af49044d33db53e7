//! A primary that hears the group but not its copies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Change, NodeId, Refusal};
use small_ring::{Outcome, Ring, SLOT, three};

fn cut(ring: &mut Ring, node: u32) {
    ring.cut.extend([(NodeId(1), NodeId(node)), (NodeId(node), NodeId(1))]);
}

/// The first node leads alone: the third fell behind first, then the second.
fn alone() -> Ring {
    let mut ring = three();
    cut(&mut ring, 3);
    ring.write(1, 1);
    ring.pass(1_500);
    assert_eq!(ring.told(1), Some(Outcome::Written), "with the second one");
    cut(&mut ring, 2);
    ring.write(1, 2);
    ring.pass(1_500);
    assert_eq!(ring.told(2), Some(Outcome::Unknown), "two had to be in sync");
    ring
}

#[test]
fn it_takes_no_writes_and_nobody_takes_over() {
    let mut ring = alone();
    ring.write(1, 3);
    ring.read(1, 4);
    ring.pass(10_000);
    assert_eq!(ring.told(3), Some(Outcome::Refused(Refusal::TooFewCopies { have: 1, need: 2 })));
    assert!(matches!(ring.told(4), Some(Outcome::Read(_))));
    assert_eq!(ring.primary(), NodeId(1));
    ring.cut.clear();
    ring.pass(3_000);
    ring.write(1, 5);
    ring.pass(100);
    assert_eq!(ring.told(5), Some(Outcome::Written));
}

#[test]
fn what_was_acknowledged_is_there_once_it_was_stopped_and_its_slots_recovered() {
    let mut ring = alone();
    ring.kill(1);
    ring.fail(1);
    ring.decide(Change::Recover { slot: SLOT, seen: ring.group.table().version });
    assert_eq!(ring.primary(), NodeId(2), "the one that fell behind last");
    ring.pass(3_000);
    ring.write(2, 3);
    ring.pass(100);
    assert_eq!(ring.told(3), Some(Outcome::Written));
    let applied = ring.applied(2);
    assert!(applied.contains(&1) && applied.ends_with(&[3]), "{applied:?}");
}
