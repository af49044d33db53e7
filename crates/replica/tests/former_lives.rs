//! Tables from before a life of a node, which a member of the group that lags may still send: they take
//! nothing from it.

#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_replica::{
    Change, Decision, Effect, Entry, Epoch, Found, Group, GroupOptions, Incarnation, Input, Moment, NodeId,
    Options, PlacementHints, Position, Proposal, Replica, Sequence, Slot, Survived, Table, Version,
};
use std::sync::Arc;

const SLOT: Slot = Slot(0);
const NOW: Moment = Moment(1);

fn register(group: &mut Group, node: NodeId, nonce: u64) -> Incarnation {
    let (address, hints, survived) = (String::new(), PlacementHints::default(), Survived::Everything);
    match group.apply(Change::Register { node, nonce, address, hints, survived }) {
        Decision::Registered { incarnation } => incarnation,
        other => panic!("{other:?}"),
    }
}

/// Moves the slot, with all that it holds.
fn hand(group: &mut Group, from: NodeId, to: NodeId) {
    group.apply(Change::Copy { slot: SLOT, node: to });
    let incarnation = group.table().incarnation(to).unwrap();
    let epoch = group.table().slot(SLOT).epoch;
    group.apply(Change::Propose(Proposal::Admit { slot: SLOT, epoch, node: to, incarnation }));
    let epoch = group.table().slot(SLOT).epoch;
    group.apply(Change::Lead { slot: SLOT, epoch, node: to });
    group.apply(Change::Drop { slot: SLOT, node: from });
    let is = group.table().slot(SLOT);
    assert_eq!((is.primary, is.in_sync.as_slice(), is.has(from)), (Some(to), &[to][..], false));
}

/// A group that moved its slot to a node, which then began its second life with everything; a table from
/// before the move; and the other node.
fn moved() -> (Group, Arc<Table>, [NodeId; 2]) {
    let mut group = Group::new(GroupOptions { slots: 1, copies: 1 });
    for node in [1, 2] {
        register(&mut group, NodeId(node), 1);
    }
    for change in group.plan(&[]) {
        group.apply(change);
    }
    let former = group.table();
    let other = former.slot(SLOT).primary.unwrap();
    let me = NodeId(3 - other.0);
    hand(&mut group, other, me);
    assert_eq!(register(&mut group, me, 2), Incarnation(2));
    (group, former, [me, other])
}

/// A node that begins with an entry of the slot, and where its log ends.
fn begun(me: NodeId, life: Incarnation) -> (Replica, Position) {
    let position = Position { epoch: Epoch(1), sequence: Sequence(1) };
    let entries = vec![Entry { position, time_ms: 5, body: [7; 8].into() }];
    let branch = Version::default();
    let found = Found { slot: SLOT, base: Position::default(), base_time_ms: 0, branch, entries };
    let mut replica = Replica::new(me, Options::default());
    replica.begin(NOW, life, vec![found]);
    (replica, position)
}

fn forgets(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Forget { .. }))
}

#[test]
fn a_node_keeps_the_copies_that_a_table_from_before_its_life_does_not_know_of() {
    let (mut group, former, [me, other]) = moved();
    let ((mut replica, last), mut effects) = (begun(me, Incarnation(2)), Vec::new());
    // Until promises of its former life are over it accepts no table; then it would be this one.
    replica.step(NOW, Input::Table(former), &mut effects);
    let later = NOW.after(10 * Options::default().lease_us);
    replica.step(later, Input::Tick, &mut effects);
    assert!(!forgets(&effects), "{effects:?}");
    assert_eq!((replica.table().version, replica.last(SLOT)), (Version(0), last));
    replica.step(later, Input::Table(group.table()), &mut effects);
    assert!(!forgets(&effects), "{effects:?}");
    assert!(replica.table().version == group.table().version && replica.last(SLOT) >= last);
    // What the group decides in this life counts.
    hand(&mut group, me, other);
    replica.step(later, Input::Table(group.table()), &mut effects);
    assert!(forgets(&effects) && replica.last(SLOT) == Position::default());
    // So does that it has left.
    group.apply(Change::Leave { node: me });
    group.apply(Change::Remove { node: me, incarnation: Incarnation(2) });
    assert_eq!(group.table().incarnation(me), None);
    replica.step(later, Input::Table(group.table()), &mut effects);
    assert_eq!(replica.table().version, group.table().version);
}

#[test]
fn a_node_learns_that_a_later_life_began_though_no_table_named_its_own() {
    let (mut group, former, [me, _]) = moved();
    let ((mut replica, _), mut effects) = (begun(me, Incarnation(2)), Vec::new());
    replica.step(NOW, Input::Table(former), &mut effects);
    assert!(!replica.is_superseded());
    assert_eq!(register(&mut group, me, 3), Incarnation(3));
    replica.step(NOW, Input::Table(group.table()), &mut effects);
    assert!(replica.is_superseded());
}
