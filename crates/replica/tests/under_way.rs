//! What a node says about the writes that are on their way to its cells is what a look at each would find,
//! although it looks at none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Change, Input, NodeId, Ticket, UnderWay};
use small_ring::{Ring, SLOT, three};
use std::sync::Arc;

/// What a look at each entry finds that is not committed on a node.
fn looked_at(ring: &Ring, node: NodeId) -> UnderWay {
    let there = &ring.nodes[&node];
    let (committed, epoch) = (there.replica.committed(SLOT), there.replica.table().slot(SLOT).epoch);
    let mut found = UnderWay::default();
    for entry in there.log.iter().filter(|entry| entry.position.sequence > committed) {
        found.longest = found.longest.max(entry.body.len());
        if entry.position.epoch < epoch {
            found.inherited += entry.body.len();
        }
    }
    found
}

fn under_way(ring: &Ring, node: u32) -> (usize, usize) {
    let UnderWay { longest, inherited } = ring.nodes[&NodeId(node)].replica.under_way(SLOT);
    (longest, inherited)
}

fn write(ring: &mut Ring, node: u32, ticket: u64, bytes: usize) {
    let body: Arc<[u8]> = vec![7; bytes].into();
    let (ticket, keys) = (Ticket(ticket), vec![7]);
    ring.give(NodeId(node), Input::Write { slot: SLOT, ticket, time_ms: 5, body, keys });
}

fn lead(ring: &mut Ring, node: u32) {
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.decide(Change::Lead { slot: SLOT, epoch, node: NodeId(node) });
}

#[test]
fn what_a_primary_took_is_inherited_by_the_next_one_and_over_once_it_is_committed() {
    let mut ring = three();
    ring.logs_at_once = false;
    for (ticket, bytes) in [(1, 100), (2, 300), (3, 200)] {
        write(&mut ring, 1, ticket, bytes);
    }
    ring.settle();
    assert_eq!([1, 2, 3].map(|node| under_way(&ring, node)), [(300, 0); 3]);
    lead(&mut ring, 2);
    ring.settle();
    write(&mut ring, 2, 4, 250);
    ring.settle();
    assert_eq!([1, 2, 3].map(|node| under_way(&ring, node)), [(300, 600); 3]);
    ring.logs_at_once = true;
    ring.settle();
    assert_eq!(under_way(&ring, 2), (0, 0));
}

#[test]
fn what_is_cut_off_from_a_log_is_not_on_its_way_any_more() {
    let mut ring = three();
    ring.logs_at_once = false;
    ring.cut.insert((NodeId(1), NodeId(2)));
    write(&mut ring, 1, 1, 1000);
    ring.settle();
    ring.cut.clear();
    assert_eq!(under_way(&ring, 3), (1000, 0));
    lead(&mut ring, 2);
    ring.settle();
    assert_eq!(under_way(&ring, 3), (1000, 1000));
    ring.cut.insert((NodeId(2), NodeId(1)));
    write(&mut ring, 2, 2, 10);
    ring.settle();
    assert_eq!(under_way(&ring, 3), (10, 0));
}

#[test]
fn whatever_comes_is_cut_off_or_committed_nobody_has_to_look_at_it() {
    let (mut inherited, mut long) = (0, 0);
    for seed in 0..40 {
        let (mut ring, mut random) = (three(), fastrand::Rng::with_seed(seed));
        ring.logs_at_once = false;
        for ticket in 0..300 {
            let node = random.u32(1..=3);
            match random.u8(..10) {
                0..=4 if ring.nodes[&NodeId(node)].replica.leads(SLOT) => {
                    write(&mut ring, node, ticket, random.usize(..1000));
                }
                5 => {
                    let one = ring.nodes.get_mut(&NodeId(node)).unwrap().unlogged.pop_front();
                    if let Some((position, run)) = one {
                        ring.give(NodeId(node), Input::Logged { slot: SLOT, position, run });
                    }
                }
                6 => lead(&mut ring, node),
                7 if random.bool() => drop(ring.cut.insert((NodeId(node), NodeId(random.u32(1..=3))))),
                7 => ring.cut.clear(),
                8 => ring.tick(),
                _ => ring.settle(),
            }
            for node in [1, 2, 3] {
                let (seen, expected) = (under_way(&ring, node), looked_at(&ring, NodeId(node)));
                assert_eq!(
                    seen,
                    (expected.longest, expected.inherited),
                    "seed {seed}, {ticket}: node {node}"
                );
                inherited += usize::from(seen.1 > 0);
                long += usize::from(seen.0 > 0);
            }
        }
    }
    assert!(inherited > 100 && long > 1_000, "{inherited} of {long}");
}
