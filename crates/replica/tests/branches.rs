//! Each accepted loss begins another branch of a slot. A node that starts again keeps a copy that is of the
//! current one, in sync or not, and drops any other that is not in sync.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{
    Change, Effect, Group, GroupOptions, Incarnation, Input, Message, Moment, NodeId, Options,
    PlacementHints, Proposal, Replica, Sequence, Slot, Survived, Ticket, Version,
};
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
    ring.decide(Change::Recover { slot: SLOT, seen: ring.group.table().version });
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
    ring.decide(Change::Recover { slot: SLOT, seen: ring.group.table().version });
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

/// A group of two nodes and two slots, and the slot that the second node leads.
fn two_slots() -> (Group, Slot) {
    let mut group = Group::new(GroupOptions { slots: 2, copies: 2 });
    for node in [FIRST, SECOND] {
        let (address, hints) = (String::new(), PlacementHints::default());
        let survived = Survived::Nothing;
        group.apply(Change::Register { node, nonce: u64::from(node.0), address, hints, survived });
    }
    for change in group.plan(&[]) {
        group.apply(change);
    }
    let led = [Slot(0), Slot(1)].into_iter().find(|slot| group.table().slot(*slot).primary == Some(SECOND));
    let (led, incarnation) = (led.unwrap(), Incarnation(1));
    let epoch = group.table().slot(led).epoch;
    group.apply(Change::Propose(Proposal::Dismiss { slot: led, epoch, node: FIRST }));
    assert_eq!(group.table().incarnation(SECOND), Some(incarnation));
    (group, led)
}

/// The first node leads `led` for a while. Then all that it has is given up, and the second leads both slots.
fn give_up_the_first(group: &mut Group, led: Slot) {
    let (epoch, incarnation) = (group.table().slot(led).epoch, Incarnation(1));
    group.apply(Change::Propose(Proposal::Admit { slot: led, epoch, node: FIRST, incarnation }));
    group.apply(Change::Fail { node: SECOND, incarnation });
    assert_eq!(group.table().slot(led).primary, Some(FIRST));
    group.apply(Change::Fail { node: FIRST, incarnation });
    group.apply(Change::Hear { node: SECOND, incarnation });
    for slot in [Slot(0), Slot(1)] {
        group.apply(Change::Recover { slot, seen: group.table().version });
    }
    let table = group.table();
    assert!([Slot(0), Slot(1)].iter().all(|slot| table.slot(*slot).primary == Some(SECOND)));
    assert!(table.slot(led).branch > Version(0));
}

#[test]
fn a_primary_that_leads_again_behind_a_loss_serves_once_it_goes_by_that_table() {
    let (mut group, led) = two_slots();
    let (mut node, mut now) = (Replica::new(SECOND, Options::default()), Moment(1_000_000));
    let reads_at = |node: &mut Replica, now: Moment, ticket| {
        let mut effects = Vec::new();
        node.step(now, Input::GroupHeard { asked_at: now }, &mut effects);
        node.step(now, Input::Read { slot: led, ticket: Ticket(ticket), keys: vec![7] }, &mut effects);
        effects.iter().any(|effect| matches!(effect, Effect::Read { .. }))
    };
    node.begin(now, Incarnation(1), Vec::new());
    node.step(now, Input::Table(group.table()), &mut Vec::new());
    assert!(reads_at(&mut node, now, 1), "it is the only copy in sync");
    // Its promise to the first node, which leads the other slot, delays the table behind the loss.
    let (known, before) = (group.table().version, group.table().version);
    let message = Message::LeaseAsk { asked_in: Incarnation(1), round: 1, asked_at: now, known };
    let asked = Input::Message { from: FIRST, incarnation: Incarnation(1), message };
    node.step(now, asked, &mut Vec::new());
    give_up_the_first(&mut group, led);
    node.step(now, Input::Table(group.table()), &mut Vec::new());
    assert_eq!(node.table().version, before);
    assert!(!reads_at(&mut node, now, 2), "the first node may have written since");
    now = now.after(10 * Options::default().lease_us);
    node.step(now, Input::Tick, &mut Vec::new());
    assert_eq!(node.table().version, group.table().version);
    assert!(reads_at(&mut node, now, 3));
}
