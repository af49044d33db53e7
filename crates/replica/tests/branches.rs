//! Each accepted loss begins another branch of a slot. A node that starts again keeps a copy that is of the
//! current one, in sync or not, and drops any other that is not in sync.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Change, Incarnation, NodeId, Options, Sequence, Survived, Version};
use small_ring::{Outcome, Ring, SLOT, three};

const FIRST: NodeId = NodeId(1);
const SECOND: NodeId = NodeId(2);

/// A ring in which the loss of the third copy, the last one in sync, was accepted. The first node was chosen,
/// and the second one has everything again.
fn behind_a_loss() -> Ring {
    let mut ring = three();
    ring.write(1, 1);
    ring.pass(100);
    ring.fail(2);
    ring.fail(1);
    ring.kill(3);
    ring.fail(3);
    for node in [FIRST, SECOND] {
        ring.decide(Change::Hear { node, incarnation: Incarnation(1) });
    }
    ring.decide(Change::Recover { slot: SLOT });
    ring.pass(3_000);
    ring.write(1, 2);
    ring.pass(100);
    assert_eq!((ring.primary(), ring.told(2)), (FIRST, Some(Outcome::Written)));
    assert_eq!([1, 2].map(|node| ring.applied(node)), [[1, 2], [1, 2]]);
    ring
}

/// The second node is down for a while, and comes back with everything that it had and with this record,
/// where it reaches nobody. Returns up to where it has the slot.
fn comes_back(ring: &mut Ring, branch: Option<Version>) -> Sequence {
    ring.kill(2);
    ring.fail(2);
    ring.isolate(2);
    if let Some(branch) = branch {
        ring.nodes.get_mut(&SECOND).unwrap().branch = branch;
    }
    ring.start(SECOND, &Options::default(), Survived::Everything);
    ring.pass(3_000);
    let there = &ring.nodes[&SECOND].replica;
    assert_eq!(there.table().version, ring.group.table().version, "it follows the newest table");
    assert!(there.table().slot(SLOT).joining.contains(SECOND));
    there.last(SLOT).sequence
}

#[test]
fn the_branch_is_recorded_by_who_was_chosen_and_by_who_began_anew() {
    let ring = behind_a_loss();
    let branch = ring.group.table().slot(SLOT).branch;
    assert!(branch > Version(0));
    assert_eq!([FIRST, SECOND].map(|node| ring.nodes[&node].branch), [branch, branch]);
}

#[test]
fn a_copy_that_was_only_down_is_kept_and_the_slot_goes_on_with_it_where_the_others_are_lost() {
    let mut ring = behind_a_loss();
    assert_eq!(comes_back(&mut ring, None), Sequence(2));
    ring.kill(1);
    ring.fail(1);
    ring.decide(Change::Recover { slot: SLOT });
    assert_eq!(ring.primary(), SECOND);
    ring.pass(3_000);
    ring.read(2, 3);
    ring.pass(100);
    assert_eq!(ring.told(3), Some(Outcome::Read(2)));
}

#[test]
fn a_copy_of_an_earlier_branch_or_without_a_record_is_dropped() {
    let mut ring = behind_a_loss();
    let branch = ring.group.table().slot(SLOT).branch;
    assert_eq!(comes_back(&mut ring, Some(Version(branch.0 - 1))), Sequence(0));
    assert_eq!(ring.nodes[&SECOND].branch, branch, "and begins in this one");
    let mut ring = behind_a_loss();
    assert_eq!(comes_back(&mut ring, Some(Version(0))), Sequence(0));
}
