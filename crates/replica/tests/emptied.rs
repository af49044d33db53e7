//! A copy whose cells arrive in pieces has nothing meanwhile: it counts for nothing, and if the rest never
//! arrives it is sent others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{
    Change, Entry, Epoch, Incarnation, Input, Message, NodeId, Options, Position, Sequence, SlotMessage,
    Survived,
};
use small_ring::{Outcome, Ring, SLOT};

const THIRD: NodeId = NodeId(3);

/// A ring in which the third copy followed its primary in this epoch without being in sync, and lacks entries
/// that the log has dropped.
fn lagging() -> Ring {
    let mut ring = Ring::of(3, 3, &Options { kept_entries: 1, ..Options::default() });
    ring.pass(100);
    assert_eq!(ring.primary(), NodeId(1));
    ring.fail(3);
    (1..=3).for_each(|ticket| ring.write(1, ticket));
    ring.pass(400);
    assert_eq!(ring.applied(3), [1, 2, 3], "it follows");
    ring.isolate(3);
    (4..=9).for_each(|ticket| ring.write(1, ticket));
    ring.pass(400);
    ring.cut.clear();
    while ring.transfers.is_empty() {
        ring.tick();
    }
    assert_eq!((ring.transfers.as_slice(), ring.applied(3)), (&[(NodeId(1), THIRD)][..], vec![1, 2, 3]));
    ring
}

fn position(ring: &Ring, node: u32) -> Position {
    ring.nodes[&NodeId(node)].applied.last().unwrap().position
}

/// The first of many cells arrived.
fn empty(ring: &mut Ring) {
    let (at, third) = (position(ring, 1), ring.nodes.get_mut(&THIRD).unwrap());
    assert!(third.replica.would_import(SLOT, at));
    (third.log, third.applied) = Default::default();
    ring.give(THIRD, Input::Emptied { slot: SLOT });
    ring.settle();
}

#[test]
fn a_copy_that_was_emptied_has_nothing_and_is_sent_cells_again_in_the_same_epoch() {
    let mut ring = lagging();
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.transfers.clear();
    empty(&mut ring);
    let third = &ring.nodes[&THIRD].replica;
    assert_eq!((third.last(SLOT), third.committed(SLOT)), (Position::default(), Sequence(0)));
    // The rest never arrives.
    ring.give(NodeId(1), Input::TransferEnded { slot: SLOT, to: THIRD });
    for _ in 0..100 {
        ring.tick();
    }
    assert_eq!(ring.transfers, [(NodeId(1), THIRD)]);
    ring.pass(400);
    assert_eq!((ring.applied(3), ring.group.table().slot(SLOT).epoch), ((1..=9).collect::<Vec<_>>(), epoch));
    ring.decide(Change::Hear { node: THIRD, incarnation: Incarnation(1) });
    ring.pass(400);
    assert_eq!(ring.group.table().slot(SLOT).in_sync.len(), 3, "and it counts again");
}

#[test]
fn a_copy_that_was_emptied_is_not_counted_in_by_what_it_said_before() {
    let mut ring = lagging();
    empty(&mut ring);
    ring.transfers.clear();
    ring.decide(Change::Hear { node: THIRD, incarnation: Incarnation(1) });
    for _ in 0..100 {
        ring.tick();
    }
    assert_eq!((&ring.proposals[..], ring.group.table().slot(SLOT).in_sync.len()), (&[][..], 2));
}

#[test]
fn a_copy_that_counts_is_not_emptied_by_any_table_that_it_knows() {
    let mut ring = lagging();
    let newer = Position { epoch: Epoch(9), sequence: Sequence(99) };
    let would = |ring: &Ring, node: u32| {
        let replica = &ring.nodes[&NodeId(node)].replica;
        (replica.would_install(SLOT, newer), replica.would_import(SLOT, newer))
    };
    assert_eq!([1, 2, 3].map(|node| would(&ring, node)), [(true, false), (true, false), (true, true)]);
    // It gave a promise to the first node, and so does not yet accept the table in which that node is left
    // with the slot.
    ring.pass(400);
    ring.isolate(1);
    ring.isolate(2);
    ring.hears_group = false;
    for node in [1, 2] {
        ring.fail(node);
    }
    ring.decide(Change::Hear { node: THIRD, incarnation: Incarnation(1) });
    ring.decide(Change::Recover { slot: SLOT, seen: ring.group.table().version });
    let known = ring.nodes[&THIRD].replica.table().slot(SLOT).primary;
    assert_eq!((ring.primary(), known), (THIRD, Some(NodeId(1))), "it waits for the promise to run out");
    assert_eq!(would(&ring, 3), (true, false));
}

/// All cells have arrived.
fn fill(ring: &mut Ring, cells: &[Entry]) {
    let third = ring.nodes.get_mut(&THIRD).unwrap();
    (third.log, third.applied) = (cells.to_vec(), cells.to_vec());
    let Entry { position, time_ms, .. } = *cells.last().unwrap();
    let run = third.replica.log_run(SLOT);
    third.unlogged.push_back((position, run));
    ring.give(THIRD, Input::Installed { slot: SLOT, position, time_ms });
    ring.settle();
}

/// A ring in which cells were sent, and the copy dropped its own for them; and those cells.
fn sent() -> (Ring, Vec<Entry>) {
    let mut ring = lagging();
    let (cells, at) = (ring.nodes[&NodeId(1)].applied.clone(), position(&ring, 1));
    ring.give(NodeId(1), Input::TransferBegan { slot: SLOT, to: THIRD, position: at });
    empty(&mut ring);
    ring.transfers.clear();
    (ring, cells)
}

#[test]
fn what_a_copy_said_before_the_last_cells_came_begins_no_other_transfer() {
    let (mut ring, cells) = sent();
    // The last pieces are on their way, and questions asked meanwhile are answered as before.
    ring.give(NodeId(1), Input::TransferEnded { slot: SLOT, to: THIRD });
    ring.write(1, 10);
    (0..40).for_each(|_| ring.tick());
    assert_eq!((ring.transfers.as_slice(), ring.applied(3)), (&[][..], vec![]));
    fill(&mut ring, &cells);
    (0..40).for_each(|_| ring.tick());
    assert_eq!((ring.transfers.as_slice(), ring.applied(3)), (&[][..], (1..=10).collect::<Vec<_>>()));
}

#[test]
fn cells_are_needed_until_the_copy_takes_entries_and_of_whoever_leads() {
    let (mut ring, cells) = sent();
    let needs = |ring: &Ring, node: u32| ring.nodes[&NodeId(node)].replica.needs_cells(SLOT, THIRD);
    assert_eq!([1, 2].map(|node| needs(&ring, node)), [true, false]);
    ring.give(NodeId(1), Input::TransferEnded { slot: SLOT, to: THIRD });
    ring.pass(400);
    assert!(needs(&ring, 1), "it said nothing new");
    fill(&mut ring, &cells);
    assert!(!needs(&ring, 1));
    // It loses what it had: until it accepts entries again, its needs are unknown.
    ring.start(THIRD, &Options::default(), Survived::Nothing);
    assert!(needs(&ring, 1));
    ring.pass(2_000);
    assert!(!needs(&ring, 1));
    ring.fail(1);
    assert!(!needs(&ring, 1));
}

#[test]
fn a_write_that_waits_for_a_copy_alone_waits_no_more_as_soon_as_that_one_has_nothing() {
    let mut ring = Ring::of(3, 3, &Options { kept_entries: 1, ..Options::default() });
    ring.pass(100);
    ring.fail(3);
    (1..=3).for_each(|ticket| ring.write(1, ticket));
    ring.pass(400);
    ring.isolate(3);
    (4..=9).for_each(|ticket| ring.write(1, ticket));
    ring.pass(400);
    ring.decide(Change::Hear { node: THIRD, incarnation: Incarnation(1) });
    ring.tick();
    ring.write(1, 10);
    ring.settle();
    assert_eq!(ring.told(10), None, "it followed, and so it is waited for");
    ring.cut.clear();
    while ring.transfers.is_empty() {
        ring.tick();
    }
    assert_eq!(ring.told(10), None);
    empty(&mut ring);
    assert_eq!(ring.told(10), Some(Outcome::Written));
}

/// As a copy does whose disk is too full to forget what it had: it takes nothing.
#[test]
fn a_copy_that_only_says_that_it_has_nothing_is_not_counted_in_even_where_there_is_nothing() {
    let mut ring = Ring::of(3, 3, &Options::default());
    ring.pass(100);
    ring.fail(3);
    ring.isolate(3);
    ring.decide(Change::Hear { node: THIRD, incarnation: Incarnation(1) });
    let in_sync = |ring: &Ring| ring.group.table().slot(SLOT).in_sync.len();
    assert_eq!((ring.primary(), in_sync(&ring)), (NodeId(1), 2));
    for _ in 0..100 {
        let (epoch, about) =
            (ring.group.table().slot(SLOT).epoch, SlotMessage::Rejected { hint: Sequence(0) });
        let message = Message::Slot { slot: SLOT, epoch, about };
        ring.give(NodeId(1), Input::Message { from: THIRD, incarnation: Incarnation(1), message });
        ring.pass(20);
    }
    assert_eq!(in_sync(&ring), 2);
    ring.cut.clear();
    ring.pass(1_000);
    assert_eq!(in_sync(&ring), 3, "it answers for itself");
}
