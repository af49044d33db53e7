//! Random nonsense in the name of any node of the ring: a node never panics, and never takes back what it
//! applied.
//!
//! Nodes of the ring are trusted: what a liar among them makes a copy commit stays there. The promise is that
//! it spreads no further.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{
    Entry, Epoch, Incarnation, Input, Message, Moment, NodeId, Position, Sequence, Slot, SlotMessage, Version,
};
use fastrand::Rng;
use small_ring::{Ring, SLOT, three};

const SEEDS: u64 = 10_000;

/// A number near those that mean something, or near the end of the range.
fn number(random: &mut Rng) -> u64 {
    match random.u8(..8) {
        0 => u64::MAX - random.u64(..3),
        1 => 1 << random.u32(..64),
        _ => random.u64(..12),
    }
}

fn position(random: &mut Rng) -> Position {
    Position { epoch: Epoch(random.u64(..4)), sequence: Sequence(number(random)) }
}

fn entries(random: &mut Rng) -> Vec<Entry> {
    let mut at = position(random);
    (0..random.usize(..4))
        .map(|_| {
            at.sequence = Sequence(at.sequence.0.wrapping_add(u64::from(random.u8(..9) > 0)));
            at.epoch = if random.u8(..4) == 0 { position(random).epoch } else { at.epoch };
            Entry { position: at, time_ms: number(random), body: [7; 8].into() }
        })
        .collect()
}

fn nonsense(random: &mut Rng) -> Message {
    let about = match random.u8(..6) {
        0..=2 => {
            let entries = entries(random);
            let before = entries.first().map(|first| first.position.sequence.before());
            let mut previous = position(random);
            previous.sequence = before.filter(|_| random.u8(..4) > 0).unwrap_or(previous.sequence);
            SlotMessage::Append { previous, entries, committed: Sequence(number(random)) }
        }
        3 => SlotMessage::Appended { matched: Sequence(number(random)) },
        4 => SlotMessage::Rejected { hint: Sequence(number(random)) },
        _ => return of_leases(random),
    };
    let slot = if random.u8(..20) == 0 { Slot(random.u32(..)) } else { SLOT };
    Message::Slot { slot, epoch: Epoch(if random.u8(..8) == 0 { number(random) } else { 1 }), about }
}

fn of_leases(random: &mut Rng) -> Message {
    let (asked_in, round) = (Incarnation(number(random)), number(random));
    let (asked_at, version) = (Moment(number(random)), Version(number(random)));
    match random.u8(..3) {
        0 => Message::LeaseAsk { asked_in, round, asked_at, known: version },
        1 => Message::LeaseGrant { asked_in, round, asked_at, version },
        _ => Message::TableIs { version },
    }
}

/// What each node applied is contiguous, and begins with what it had applied before.
fn judge(ring: &Ring, before: &mut [Vec<Position>; 3], seed: u64) {
    for (node, before) in (1..).zip(before) {
        let applied = &ring.nodes[&NodeId(node)].applied;
        let now: Vec<_> = applied.iter().map(|entry| entry.position).collect();
        let is_in_order = now.iter().zip(1..).all(|(position, at)| position.sequence.0 == at);
        let replay = "cargo test -p atoll-replica --test nonsense";
        assert!(now.starts_with(before) && is_in_order, "seed {seed}, {replay}: {before:?} then {now:?}");
        *before = now;
    }
}

#[test]
fn nonsense_in_the_name_of_any_node_harms_no_node() {
    for seed in 0..SEEDS {
        let mut random = Rng::with_seed(seed);
        let (mut ring, mut applied) = (three(), Default::default());
        ring.logs_at_once = random.bool();
        for at in 0..40 {
            let (from, to) = (NodeId(random.u32(0..5)), NodeId(random.u32(1..4)));
            let incarnation = Incarnation(if random.u8(..8) == 0 { number(&mut random) } else { 1 });
            match random.u8(..6) {
                0 => ring.write(1, 100 + at),
                1 => ring.read(random.u32(1..4), 200 + at),
                2 => ring.pass(random.u64(1..400)),
                3 => ring.settle(),
                _ => {
                    let message = nonsense(&mut random);
                    ring.give(to, Input::Message { from, incarnation, message });
                }
            }
            judge(&ring, &mut applied, seed);
        }
    }
}
