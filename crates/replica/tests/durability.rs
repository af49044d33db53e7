//! Each keyspace has a durability of its own: an entry counts as logged by the rule of its slot, and a node
//! that comes back counts only for the keyspaces of which it still has everything.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use atoll_replica::{
    Change, Decision, Effect, Group, GroupOptions, Incarnation, Input, KeyspaceRules, KeyspaceSet, Moment,
    NodeId, Options, Persistence, PlacementHints, Replica, Slot, Survived, Ticket,
};

const NOW: Moment = Moment(1);

/// How many slots each keyspace has.
const EACH: u32 = 8;

fn register(group: &mut Group, node: u32, nonce: u64, survived: Survived) {
    let (node, address, hints) = (NodeId(node), String::new(), PlacementHints::default());
    group.apply(Change::Register { node, nonce, address, hints, survived });
}

/// A group of these many nodes, with a keyspace for each class behind the first one, weakest first.
fn founded(nodes: u32, copies: usize) -> Group {
    let mut group = Group::new(GroupOptions { slots: EACH, copies });
    (1..=nodes).for_each(|node| register(&mut group, node, 1, Survived::Nothing));
    for class in Persistence::ALL {
        let (name, durability) = (class.name().into(), Some(class));
        let rules = KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability };
        assert_eq!(group.apply(Change::Keyspace(rules)), Decision::Changed);
    }
    for _ in 0..100 {
        for change in group.plan(&[]) {
            group.apply(change);
        }
    }
    group
}

/// The only node of a ring, which leads everything.
fn leading(group: &Group, logs: bool) -> Replica {
    let options = Options { in_sync_min: 1, logs, ..Options::default() };
    let mut replica = Replica::new(NodeId(1), options);
    replica.begin(NOW, Incarnation(1), Vec::new());
    replica.step(NOW, Input::Table(group.table()), &mut Vec::new());
    replica.step(NOW, Input::GroupHeard { asked_at: NOW }, &mut Vec::new());
    replica
}

/// Writes to the first slot of a keyspace. Returns whether the entry was given to the log, and whether it was
/// applied at once.
fn write(replica: &mut Replica, keyspace: u32) -> (bool, bool) {
    let mut effects = Vec::new();
    let slot = Slot(keyspace * EACH);
    let (ticket, body, keys) = (Ticket(1), [7_u8].as_slice().into(), vec![1]);
    replica.step(NOW, Input::Write { slot, ticket, time_ms: 1, body, keys }, &mut effects);
    let logged = effects.iter().any(|effect| matches!(effect, Effect::Log { .. }));
    (logged, effects.iter().any(|effect| matches!(effect, Effect::Apply { .. })))
}

#[test]
fn entries_are_logged_where_their_own_keyspace_asks_for_it() {
    let group = founded(1, 1);
    // What the node does for the first keyspace decides about that one alone.
    for logs in [false, true] {
        let mut replica = leading(&group, logs);
        let seen: Vec<_> = (0..4).map(|keyspace| write(&mut replica, keyspace)).collect();
        assert_eq!(seen, [(logs, !logs), (false, true), (true, false), (true, false)], "{logs}");
    }
}

#[test]
fn an_entry_of_a_kept_keyspace_waits_for_its_own_log_beside_one_that_waits_for_none() {
    let mut replica = leading(&founded(1, 1), false);
    let synced = Slot(3 * EACH);
    assert_eq!(write(&mut replica, 3), (true, false));
    let (position, run) = (replica.last(synced), replica.log_run(synced));
    assert_eq!(write(&mut replica, 1), (false, true));
    let mut effects = Vec::new();
    replica.step(NOW, Input::Logged { slot: Slot(EACH), position, run }, &mut effects);
    let applies = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Apply { .. }));
    assert!(!applies(&effects), "that is the log of another slot");
    replica.step(NOW, Input::Logged { slot: synced, position, run }, &mut effects);
    assert!(applies(&effects));
}

/// All nodes lose power together. Each comes back with what was synced, and with nothing else.
#[test]
fn a_total_loss_of_power_costs_what_was_not_synced_and_nothing_that_was() {
    let mut group = founded(3, 3);
    let nodes = (1..=3).map(|node| (NodeId(node), group.table().incarnation(NodeId(node)).unwrap()));
    let nodes: Vec<_> = nodes.collect();
    group.apply(Change::FailTogether { nodes });
    let synced: KeyspaceSet = [3].into_iter().collect();
    (1..=3).for_each(|node| register(&mut group, node, 2, Survived::of(synced)));
    let table = group.table();
    for slot in (0..4 * EACH).map(Slot) {
        let (keyspace, now) = (table.keyspace_of(slot), table.slot(slot));
        assert_eq!(now.primary.is_some(), keyspace == 3, "keyspace {keyspace}: {now:?}");
        assert_eq!(now.in_sync.is_empty(), keyspace != 3, "keyspace {keyspace}: {now:?}");
    }
    // Only where nobody has everything can a loss be accepted.
    let seen = table.version;
    assert_eq!(group.apply(Change::Recover { slot: Slot(3 * EACH), seen }), Decision::Unchanged);
    assert_eq!(group.apply(Change::Recover { slot: Slot(0), seen }), Decision::Changed);
}

#[test]
fn one_that_comes_back_catches_up_where_it_lost_something_and_goes_on_elsewhere() {
    let mut group = founded(3, 3);
    let kept: KeyspaceSet = [0, 2, 3].into_iter().collect();
    register(&mut group, 2, 2, Survived::of(kept));
    let table = group.table();
    for slot in (0..4 * EACH).map(Slot) {
        let (keyspace, now) = (table.keyspace_of(slot), table.slot(slot));
        assert_eq!(now.in_sync.contains(NodeId(2)), keyspace != 1, "keyspace {keyspace}: {now:?}");
        assert_eq!(now.joining.contains(NodeId(2)), keyspace == 1, "keyspace {keyspace}: {now:?}");
        assert!(now.primary.is_some());
    }
}
