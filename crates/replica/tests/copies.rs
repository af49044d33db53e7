//! What copies of a slot guarantee, one case each, on a network that delivers in order unless told otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{
    Change, Incarnation, Input, Message, NodeId, Options, Position, Proposal, Reads, Refusal, Sequence,
    SlotMessage, Survived, Ticket,
};
use small_ring::{Outcome, Ring, SLOT, three};

#[test]
fn a_write_is_acknowledged_when_every_copy_has_logged_it_and_not_before() {
    let mut ring = three();
    ring.logs_at_once = false;
    ring.write(1, 1);
    ring.settle();
    assert_eq!(ring.told(1), None, "nobody has logged it");
    ring.log_all();
    assert_eq!(ring.told(1), None, "the others did not say so yet");
    ring.settle();
    assert_eq!(ring.told(1), Some(Outcome::Written));
    ring.pass(100);
    assert_eq!((ring.applied(2), ring.applied(3)), (vec![1], vec![1]), "the others apply it as well");
}

#[test]
fn a_read_behind_a_write_of_its_key_waits_for_the_commit() {
    let mut ring = three();
    ring.cut.insert((NodeId(1), NodeId(2)));
    ring.write(1, 1);
    ring.read(1, 2);
    ring.settle();
    assert_eq!((ring.told(1), ring.told(2)), (None, None));
    ring.cut.clear();
    ring.pass(400);
    assert_eq!((ring.told(1), ring.told(2)), (Some(Outcome::Written), Some(Outcome::Read(1))));
}

#[test]
fn a_read_stays_behind_a_write_that_may_change_any_key() {
    let mut ring = three();
    ring.logs_at_once = false;
    ring.write(1, 1);
    assert!(ring.nodes[&NodeId(1)].replica.is_under_way(SLOT));
    let (body, time_ms) = (2_u64.to_be_bytes().into(), 5);
    ring.give(NodeId(1), Input::Write { slot: SLOT, ticket: Ticket(2), time_ms, body, keys: Vec::new() });
    ring.read(1, 3);
    ring.logs_at_once = true;
    ring.pass(100);
    assert_eq!((ring.told(2), ring.told(3)), (Some(Outcome::Written), Some(Outcome::Read(2))));
    assert!(!ring.nodes[&NodeId(1)].replica.is_under_way(SLOT));
}

#[test]
fn a_primary_that_hears_nobody_reads_nothing_once_its_promises_ran_out() {
    let mut ring = three();
    ring.read(1, 1);
    assert_eq!(ring.told(1), Some(Outcome::Read(0)), "while it has promises it needs nobody");
    ring.isolate(1);
    ring.hears_group = false;
    ring.pass(1_100);
    ring.read(1, 2);
    ring.pass(3_200);
    assert_eq!(ring.told(2), Some(Outcome::Refused(Refusal::NoLease)));
}

/// A ring of two nodes with one copy of everything, and the node that has it.
fn alone() -> (Ring, u32) {
    let mut ring = Ring::of(2, 1, &Options { in_sync_min: 1, ..Options::default() });
    ring.pass(100);
    let alone = ring.primary().0;
    (ring, alone)
}

#[test]
fn a_primary_without_other_copies_takes_no_write_once_the_group_hears_it_no_more() {
    let (mut ring, alone) = alone();
    ring.write(alone, 1);
    ring.settle();
    assert_eq!(ring.told(1), Some(Outcome::Written), "while the group hears it, it needs nobody");
    ring.hears_group = false;
    ring.pass(1_100);
    ring.write(alone, 2);
    ring.pass(100);
    assert_eq!(ring.told(2), None, "it may be heard again soon");
    ring.hears_group = true;
    ring.pass(100);
    assert_eq!(ring.told(2), Some(Outcome::Written));
    ring.hears_group = false;
    ring.pass(1_100);
    ring.write(alone, 3);
    ring.pass(3_200);
    assert_eq!(ring.told(3), Some(Outcome::Refused(Refusal::NoLease)));
    assert_eq!(ring.applied(alone), [1, 2]);
}

#[test]
fn a_write_under_way_is_not_acknowledged_once_the_group_hears_its_only_copy_no_more() {
    let (mut ring, alone) = alone();
    ring.logs_at_once = false;
    ring.write(alone, 1);
    ring.hears_group = false;
    ring.pass(1_100);
    ring.log_all();
    ring.pass(100);
    assert_eq!((ring.told(1), ring.applied(alone)), (None, Vec::new()));
    ring.pass(3_200);
    assert_eq!(ring.told(1), Some(Outcome::Unknown), "nobody waits for ever");
    ring.hears_group = true;
    ring.pass(100);
    assert_eq!((ring.told(1), ring.applied(alone)), (Some(Outcome::Unknown), vec![1]));
}

#[test]
fn writes_that_waited_for_the_group_stay_in_their_order() {
    let (mut ring, alone) = alone();
    ring.hears_group = false;
    ring.pass(1_100);
    ring.write(alone, 1);
    let asked_at = ring.now;
    ring.give(NodeId(alone), Input::GroupHeard { asked_at });
    ring.write(alone, 2);
    ring.pass(100);
    assert_eq!(ring.applied(alone), [1, 2]);
}

#[test]
fn a_primary_without_other_copies_acknowledges_nothing_once_a_loss_was_accepted() {
    let mut ring = Ring::of(2, 1, &Options { in_sync_min: 1, ..Options::default() });
    ring.pass(100);
    let (former, table) = (ring.primary(), ring.group.table());
    ring.fail(former.0);
    ring.hears_group = false;
    ring.group.apply(Change::Recover { slot: SLOT, seen: ring.group.table().version });
    assert_ne!(ring.primary(), former);
    assert_eq!(ring.nodes[&former].replica.table().slot(SLOT).primary, table.slot(SLOT).primary);
    ring.pass(1_100);
    ring.write(former.0, 1);
    ring.pass(100);
    assert_eq!((ring.told(1), ring.applied(former.0)), (None, Vec::new()));
    ring.hears_group = true;
    ring.publish();
    assert!(matches!(ring.told(1), Some(Outcome::Refused(Refusal::Moved { .. }))), "{:?}", ring.told(1));
}

#[test]
fn who_promised_takes_no_other_primary_until_the_promise_ran_out() {
    let mut ring = three();
    ring.pass(300);
    ring.isolate(1);
    ring.fail(1);
    let table = |ring: &Ring, node: u32| ring.nodes[&NodeId(node)].replica.table().slot(SLOT).primary;
    ring.pass(600);
    let leader = ring.primary().0;
    assert_ne!(leader, 1);
    assert_eq!(table(&ring, leader), Some(NodeId(1)), "the promise stands");
    ring.pass(600);
    assert_eq!(table(&ring, leader), Some(NodeId(leader)));
}

#[test]
fn the_next_primary_has_what_was_acknowledged_and_the_former_one_tells_that_it_does_not_know() {
    let mut ring = three();
    ring.write(1, 1);
    ring.settle();
    assert_eq!(ring.told(1), Some(Outcome::Written));
    ring.isolate(1);
    ring.write(1, 2);
    ring.fail(1);
    assert_eq!(ring.told(2), Some(Outcome::Unknown), "it heard the new table");
    ring.pass(1_200);
    let leader = ring.primary().0;
    ring.write(leader, 3);
    ring.pass(100);
    assert_eq!(ring.told(3), Some(Outcome::Written));
    assert_eq!(ring.applied(leader), [1, 3]);
    ring.cut.clear();
    ring.decide(Change::Hear { node: NodeId(1), incarnation: Incarnation(1) });
    ring.pass(1_000);
    assert_eq!(ring.applied(1), [1, 3], "what only it had was cut off");
    assert_eq!(ring.group.table().slot(SLOT).in_sync.len(), 3, "and it counts again");
}

#[test]
fn with_too_few_copies_nothing_is_written_but_reads_go_on() {
    let mut ring = three();
    ring.write(1, 1);
    ring.settle();
    for node in [2, 3] {
        ring.kill(node);
        ring.fail(node);
    }
    ring.pass(100);
    ring.write(1, 2);
    ring.read(1, 3);
    ring.pass(100);
    assert_eq!(ring.told(2), Some(Outcome::Refused(Refusal::TooFewCopies { have: 1, need: 2 })));
    assert_eq!(ring.told(3), Some(Outcome::Read(1)));
}

#[test]
fn a_write_that_is_committed_with_too_few_copies_is_not_acknowledged() {
    let mut ring = three();
    [2, 3].into_iter().for_each(|node| ring.kill(node));
    ring.write(1, 1);
    ring.settle();
    assert_eq!(ring.told(1), None);
    [2, 3].into_iter().for_each(|node| ring.fail(node));
    ring.pass(100);
    assert_eq!(
        (ring.told(1), ring.applied(1)),
        (Some(Outcome::Unknown), vec![1]),
        "the one copy may be lost"
    );
}

#[test]
fn a_copy_that_does_not_answer_is_reported_and_gone_on_without() {
    let mut ring = three();
    ring.kill(3);
    ring.write(1, 1);
    ring.pass(900);
    assert_eq!(ring.told(1), None);
    ring.pass(400);
    assert_eq!(ring.told(1), Some(Outcome::Written));
    assert!(!ring.group.table().slot(SLOT).in_sync.contains(NodeId(3)));
}

#[test]
fn a_node_that_lost_everything_gets_the_cells_and_then_counts_again() {
    let options = Options { kept_entries: 2, ..Options::default() };
    let mut ring = Ring::of(3, 3, &options);
    ring.pass(100);
    (1..=10).for_each(|ticket| ring.write(1, ticket));
    ring.pass(100);
    ring.kill(3);
    ring.fail(3);
    ring.pass(100);
    (11..=20).for_each(|ticket| ring.write(1, ticket));
    ring.pass(100);
    ring.start(NodeId(3), &options, Survived::Nothing);
    ring.pass(2_000);
    assert_eq!(ring.applied(3), (1..=20).collect::<Vec<_>>());
    assert_eq!(ring.group.table().slot(SLOT).in_sync.len(), 3);
}

#[test]
fn a_copy_catches_up_with_a_slot_in_which_much_is_written_while_its_cells_are_on_their_way() {
    let options = Options { kept_entries: 2, nearly_caught_up: 1, ..Options::default() };
    let mut ring = Ring::of(3, 3, &options);
    ring.pass(100);
    ring.write(1, 1);
    ring.pass(100);
    ring.kill(3);
    ring.fail(3);
    (2..=10).for_each(|ticket| ring.write(1, ticket));
    ring.pass(100);
    ring.start(NodeId(3), &options, Survived::Nothing);
    ring.settle();
    while ring.transfers.is_empty() {
        ring.tick();
    }
    assert_eq!(std::mem::take(&mut ring.transfers), [(NodeId(1), NodeId(3))]);
    let cells = ring.nodes[&NodeId(1)].applied.clone();
    let (position, time_ms) = (cells[9].position, cells[9].time_ms);
    ring.give(NodeId(1), Input::TransferBegan { slot: SLOT, to: NodeId(3), position });
    for ticket in 11..=60 {
        ring.write(1, ticket);
        ring.tick();
    }
    assert_eq!(ring.told(60), Some(Outcome::Written));
    let there = ring.nodes.get_mut(&NodeId(3)).unwrap();
    (there.log, there.applied) = (cells.clone(), cells);
    let run = there.replica.log_run(SLOT);
    there.unlogged.push_back((position, run));
    ring.give(NodeId(3), Input::Installed { slot: SLOT, position, time_ms });
    (0..20).for_each(|_| ring.tick());
    assert_eq!(ring.transfers, [], "what came meanwhile was kept for it");
    assert_eq!(ring.applied(3), (1..=60).collect::<Vec<_>>());
}

#[test]
fn a_copy_says_that_cells_are_here_once_they_are_as_durable_as_entries() {
    let options = Options { kept_entries: 2, ..Options::default() };
    let mut ring = Ring::of(3, 3, &options);
    ring.pass(100);
    ring.kill(3);
    ring.fail(3);
    ring.pass(100);
    (1..=10).for_each(|ticket| ring.write(1, ticket));
    ring.pass(100);
    ring.start(NodeId(3), &options, Survived::Nothing);
    ring.logs_at_once = false;
    let is_there = |ring: &Ring| ring.group.table().slot(SLOT).in_sync.contains(NodeId(3));
    ring.pass(3_000);
    assert_eq!(ring.applied(3), (1..=10).collect::<Vec<_>>(), "the cells are in place");
    assert!(!is_there(&ring), "nobody counts on them before they are");
    ring.logs_at_once = true;
    ring.pass(2_000);
    assert!(is_there(&ring));
}

#[test]
fn after_a_total_outage_everything_acknowledged_is_there() {
    let mut ring = three();
    (1..=5).for_each(|ticket| ring.write(1, ticket));
    ring.pass(100);
    let options = Options::default();
    for node in 1..=3 {
        ring.kill(node);
    }
    for node in 1..=3 {
        ring.start(NodeId(node), &options, Survived::Everything);
    }
    ring.pass(2_000);
    ring.read(ring.primary().0, 9);
    ring.pass(100);
    assert_eq!(ring.told(9), Some(Outcome::Read(5)));
    for node in 1..=3 {
        assert_eq!(ring.applied(node), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_slot_whose_last_copy_lost_everything_is_down_until_somebody_accepts_that() {
    let mut ring = Ring::of(1, 1, &Options { in_sync_min: 1, ..Options::default() });
    ring.pass(100);
    ring.write(1, 1);
    ring.settle();
    ring.kill(1);
    ring.start(NodeId(1), &Options { in_sync_min: 1, ..Options::default() }, Survived::Nothing);
    ring.pass(1_500);
    ring.read(1, 2);
    assert_eq!(ring.told(2), Some(Outcome::Refused(Refusal::NoPrimary)));
    ring.decide(Change::Recover { slot: SLOT, seen: ring.group.table().version });
    ring.pass(100);
    ring.read(1, 3);
    assert_eq!(ring.told(3), Some(Outcome::Read(0)));
}

#[test]
fn a_planned_change_of_the_primary_takes_no_lease_time() {
    let mut ring = three();
    ring.write(1, 1);
    ring.pass(300);
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.decide(Change::Lead { slot: SLOT, epoch, node: NodeId(2) });
    ring.settle();
    ring.read(2, 2);
    ring.settle();
    assert_eq!(ring.told(2), Some(Outcome::Read(1)), "the former primary gave up its promises at once");
    ring.write(1, 3);
    assert_eq!(ring.told(3), Some(Outcome::Refused(Refusal::Moved { to: NodeId(2) })));
}

#[test]
fn messages_of_a_former_life_or_a_former_epoch_count_for_nothing() {
    let mut ring = three();
    ring.logs_at_once = false;
    ring.write(1, 1);
    let epoch = ring.group.table().slot(SLOT).epoch;
    let appended = |matched| Message::Slot { slot: SLOT, epoch, about: SlotMessage::Appended { matched } };
    for node in [2, 3] {
        let message = appended(Sequence(1));
        ring.give(NodeId(1), Input::Message { from: NodeId(node), incarnation: Incarnation(0), message });
    }
    let run = ring.nodes[&NodeId(1)].replica.log_run(SLOT);
    let position = Position { epoch, sequence: Sequence(1) };
    ring.give(NodeId(1), Input::Logged { slot: SLOT, position, run });
    assert_eq!(ring.told(1), None);
    for node in [2, 3] {
        let message = appended(Sequence(1));
        ring.give(NodeId(1), Input::Message { from: NodeId(node), incarnation: Incarnation(1), message });
    }
    assert_eq!(ring.told(1), Some(Outcome::Written), "and in this life they do");
}

#[test]
fn a_copy_counts_only_once_it_has_what_was_acknowledged_in_epochs_before() {
    let options = Options::default();
    let mut ring = Ring::of(3, 2, &options);
    ring.pass(100);
    let leader = ring.primary().0;
    ring.write(leader, 1);
    ring.pass(100);
    assert_eq!(ring.told(1), Some(Outcome::Written));
    // The primary restarts, with its log and without cells; the other copy is not heard, and a third one
    // joins.
    let in_sync = ring.group.table().slot(SLOT).in_sync;
    let other = in_sync.iter().find(|node| node.0 != leader).unwrap();
    let third = (1..=3).map(NodeId).find(|node| !in_sync.contains(*node)).unwrap();
    ring.kill(other.0);
    ring.start(NodeId(leader), &options, Survived::Everything);
    ring.logs_at_once = false;
    ring.decide(Change::Copy { slot: SLOT, node: third });
    ring.pass(2_000);
    assert!(!ring.group.table().slot(SLOT).in_sync.contains(third), "it has logged nothing");
    ring.log_all();
    ring.pass(500);
    assert!(ring.group.table().slot(SLOT).in_sync.contains(third));
}

#[test]
fn keys_may_be_listed_exactly_where_a_read_is_answered() {
    let mut ring = three();
    let may = |ring: &Ring, node: u32| ring.nodes[&NodeId(node)].replica.may_read(SLOT, ring.now);
    assert!(may(&ring, 1) && !may(&ring, 2), "only the primary is asked");
    // The others have logged it, and their answers do not reach the primary.
    ring.cut.extend([(NodeId(2), NodeId(1)), (NodeId(3), NodeId(1))]);
    ring.write(1, 1);
    ring.settle();
    ring.hears_group = false;
    ring.pass(1_100);
    assert!(!may(&ring, 1), "nobody promises it anything");
    ring.hears_group = true;
    ring.kill(1);
    ring.fail(1);
    let leader = ring.primary().0;
    for ticket in 10..110 {
        ring.read(leader, ticket);
        let is_read = matches!(ring.told(ticket), Some(Outcome::Read(_)));
        assert_eq!(is_read, may(&ring, leader), "{:?}", ring.told(ticket));
        assert!(!may(&ring, leader) || ring.applied(leader) == [1], "the end of its log is not applied yet");
        ring.pass(20);
    }
    assert!(may(&ring, leader));
}

#[test]
fn a_copy_that_was_about_to_count_and_is_none_any_more_is_not_waited_for_when_it_is_one_again() {
    let mut ring = Ring::of(3, 2, &Options::default());
    ring.pass(100);
    let (leader, in_sync) = (ring.primary(), ring.group.table().slot(SLOT).in_sync);
    let third = (1..=3).map(NodeId).find(|node| !in_sync.contains(*node)).unwrap();
    ring.decide(Change::Copy { slot: SLOT, node: third });
    (0..20).for_each(|_| ring.tick());
    let is_admit = |change: &Change| matches!(change, Change::Propose(Proposal::Admit { .. }));
    assert!(ring.proposals.iter().any(is_admit), "it is about to count");
    ring.kill(third.0);
    for is_copy in [false, true] {
        let mut table = atoll_replica::Table::clone(ring.nodes[&leader].replica.table());
        let mut configuration = table.slot(SLOT);
        table.version = table.version.next();
        configuration.since = table.version;
        match is_copy {
            true => configuration.joining.insert(third),
            false => configuration.joining.remove(third),
        };
        table.slots.set(0, configuration);
        let table = std::sync::Arc::new(table);
        in_sync.iter().for_each(|node| ring.give(node, Input::Table(table.clone())));
        ring.settle();
    }
    ring.write(leader.0, 1);
    ring.tick();
    assert_eq!(ring.told(1), Some(Outcome::Written));
}

#[test]
fn a_listing_that_trusts_no_clock_may_read_what_the_others_confirmed_since_it_came() {
    let mut ring = Ring::of(3, 3, &Options { reads: Reads::Confirmed, ..Options::default() });
    ring.pass(100);
    let (leader, now) = (ring.primary(), ring.now);
    let round = ring.nodes[&leader].replica.coming_round();
    let may = |ring: &Ring| {
        let replica = &ring.nodes[&leader].replica;
        (replica.may_read_since(SLOT, round, now), replica.may_read(SLOT, now))
    };
    assert_eq!(may(&ring), (false, false), "whatever they answered before");
    ring.give(leader, Input::Read { slot: SLOT, ticket: Ticket(1), keys: Vec::new() });
    assert_eq!((ring.told(1), may(&ring)), (None, (false, false)));
    ring.settle();
    assert_eq!((ring.told(1), may(&ring)), (Some(Outcome::Read(0)), (true, false)));
}
