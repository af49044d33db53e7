//! Entries that contradict what a copy has are not added, and the copy reports why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Contradiction, Entry, Epoch, Input, Message, NodeId, Position, Sequence, SlotMessage};
use small_ring::{Outcome, Ring, SLOT, three};

const PRIMARY: NodeId = NodeId(1);
const COPY: NodeId = NodeId(3);

/// The primary sends the copy entries at these places, which follow `previous`.
fn send(ring: &mut Ring, previous: Position, places: &[Position]) {
    let entry = |&position: &Position| Entry { position, time_ms: 9, body: [7; 8].into() };
    let entries = places.iter().map(entry).collect();
    let about = SlotMessage::Append { previous, entries, committed: Sequence(0) };
    let epoch = ring.group.table().slot(SLOT).epoch;
    let (from, incarnation) = (PRIMARY, ring.nodes[&PRIMARY].incarnation);
    let message = Message::Slot { slot: SLOT, epoch, about };
    ring.give(COPY, Input::Message { from, incarnation, message });
}

#[test]
fn entries_that_contradict_a_copy_are_reported_and_change_nothing() {
    let mut ring = three();
    ring.write(1, 1);
    ring.write(1, 2);
    ring.settle();
    // With the next tick the copies learn what is committed.
    ring.pass(100);
    let has = |ring: &Ring| (ring.applied(3), ring.nodes[&COPY].log.len());
    let before = has(&ring);
    assert_eq!((before.clone(), ring.not_taken.len()), ((vec![1, 2], 2), 0));
    let last = ring.nodes[&COPY].applied.last().unwrap().position;
    let at = |epoch, sequence| Position { epoch, sequence: Sequence(sequence) };
    let later = Epoch(last.epoch.0 + 1);
    // Another entry in a place that is applied, one of an epoch that has not begun, and a gap.
    send(&mut ring, Position::default(), &[at(later, 1)]);
    send(&mut ring, last, &[at(later, 3)]);
    send(&mut ring, last, &[at(last.epoch, 3), at(last.epoch, 5)]);
    let of = |contradiction| (COPY, PRIMARY, contradiction);
    let why = [Contradiction::Applied, Contradiction::Disorder, Contradiction::Disorder];
    assert_eq!(ring.not_taken, why.map(of));
    assert_eq!(has(&ring), before);
    // What is right is taken as before.
    ring.write(1, 3);
    ring.settle();
    assert_eq!((ring.told(3), ring.not_taken.len()), (Some(Outcome::Written), 3));
}
