//! Entries that contradict what a copy has are not added, and the copy reports why. So does a primary of
//! which a copy claims what it cannot have.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{
    Change, Contradiction, Entry, Epoch, Input, Message, NodeId, Position, Sequence, SlotMessage,
};
use small_ring::{Outcome, Ring, SLOT, three};

const PRIMARY: NodeId = NodeId(1);
const COPY: NodeId = NodeId(3);

/// The primary sends the copy entries at these places, which follow `previous`.
fn send(ring: &mut Ring, previous: Position, places: &[Position]) {
    let entry = |&position: &Position| Entry { position, time_ms: 9, body: [7; 8].into() };
    let entries = places.iter().map(entry).collect();
    say(ring, PRIMARY, COPY, SlotMessage::Append { previous, entries, committed: Sequence(0) });
}

/// A node says something about the log in the current epoch.
fn say(ring: &mut Ring, from: NodeId, to: NodeId, about: SlotMessage) {
    let epoch = ring.group.table().slot(SLOT).epoch;
    let incarnation = ring.nodes[&from].incarnation;
    let message = Message::Slot { slot: SLOT, epoch, about };
    ring.give(to, Input::Message { from, incarnation, message });
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

#[test]
fn a_question_whose_place_contradicts_a_copy_is_not_answered() {
    let mut ring = three();
    ring.write(1, 1);
    ring.write(1, 2);
    ring.settle();
    ring.pass(100);
    let last = ring.nodes[&COPY].applied.last().unwrap().position;
    assert_eq!((ring.applied(3), last.sequence), (vec![1, 2], Sequence(2)));
    let at = |epoch, sequence| Position { epoch: Epoch(epoch), sequence: Sequence(sequence) };
    let asked = |ring: &mut Ring, previous| {
        (ring.not_taken, ring.network) = Default::default();
        send(ring, previous, &[]);
        (ring.not_taken.pop(), ring.network.len())
    };
    // The last place and one before it, of an epoch that came later, and the last one of an earlier epoch.
    for previous in [at(last.epoch.0 + 1, 2), at(last.epoch.0 + 1, 1), at(last.epoch.0 - 1, 2)] {
        let found = Some((COPY, PRIMARY, Contradiction::Applied));
        assert_eq!(asked(&mut ring, previous), (found, 0), "{previous}");
    }
    for previous in [last, at(last.epoch.0, 1), Position::default()] {
        assert_eq!(asked(&mut ring, previous), (None, 1), "{previous}");
    }
}

#[test]
fn a_former_primary_compares_what_it_committed_and_still_has() {
    const NEXT: NodeId = NodeId(2);
    let mut ring = three();
    // Entries are kept for a copy that lacks them.
    ring.fail(3);
    ring.isolate(3);
    ring.write(1, 1);
    ring.write(1, 2);
    ring.pass(100);
    assert_eq!(ring.applied(1), [1, 2]);
    ring.isolate(2);
    let epoch = ring.group.table().slot(SLOT).epoch;
    ring.decide(Change::Lead { slot: SLOT, epoch, node: NEXT });
    ring.settle();
    assert_eq!((ring.primary(), ring.not_taken.len()), (NEXT, 0));
    let previous = Position { epoch: Epoch(epoch.0 + 1), sequence: Sequence(1) };
    let about = SlotMessage::Append { previous, entries: Vec::new(), committed: Sequence(0) };
    say(&mut ring, NEXT, PRIMARY, about);
    assert_eq!(ring.not_taken, [(PRIMARY, NEXT, Contradiction::Committed)]);
    assert!(ring.network.is_empty(), "it does not say that it follows");
}

/// A copy whose folder was put back from another history, for example, may have more than its primary.
#[test]
fn a_copy_that_confirmed_a_place_is_sent_what_follows_whatever_else_it_says() {
    let mut ring = three();
    ring.write(1, 1);
    ring.settle();
    ring.isolate(3);
    ring.write(1, 2);
    ring.write(1, 3);
    ring.settle();
    // Answers to what was sent from other places, such as come while several messages are on their way.
    for hint in [2, 3, 2, 1] {
        ring.network.clear();
        say(&mut ring, COPY, PRIMARY, SlotMessage::Rejected { hint: Sequence(hint) });
        let sent: Vec<_> = ring.network.iter().filter(|(_, _, to, _)| *to == COPY).collect();
        let [(_, _, _, Message::Slot { about: SlotMessage::Append { previous, entries, .. }, .. })] =
            sent[..]
        else {
            panic!("{hint}: {sent:?}");
        };
        assert_eq!((previous.sequence, entries.len()), (Sequence(1), 2), "{hint}");
    }
}

#[test]
fn a_copy_that_claims_more_than_its_primary_has_counts_for_nothing() {
    let mut ring = three();
    ring.write(1, 1);
    ring.settle();
    ring.isolate(3);
    ring.write(1, 2);
    ring.settle();
    let claim = |ring: &mut Ring| {
        say(ring, COPY, PRIMARY, SlotMessage::Appended { matched: Sequence(9) });
        ring.settle();
    };
    claim(&mut ring);
    assert_eq!(ring.not_taken, [(PRIMARY, COPY, Contradiction::Beyond)]);
    assert_eq!(ring.told(2), None, "the copy does not have this write");
    // It owes an answer all the same, and whatever it claims it is not admitted again.
    for _ in 0..200 {
        claim(&mut ring);
        ring.pass(20);
    }
    let in_sync = ring.group.table().slot(SLOT).in_sync;
    assert_eq!((ring.told(2), in_sync.len(), in_sync.contains(COPY)), (Some(Outcome::Written), 2, false));
    // With the right answers of the copy itself it catches up.
    ring.cut.clear();
    ring.pass(2_000);
    assert_eq!((ring.group.table().slot(SLOT).in_sync.len(), ring.applied(3)), (3, vec![1, 2]));
}
