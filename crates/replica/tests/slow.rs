//! A copy whose syncs take longer than the others are willing to wait.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod small_ring;

use atoll_replica::{Change, Incarnation, Input, NodeId, Options, Proposal, Survived};
use small_ring::{Outcome, Ring, SLOT, three};

const SLOW: NodeId = NodeId(3);

/// How many steps of 20 ms a sync of the slow copy takes.
const SYNC_STEPS: u64 = 75;

/// Completes writes to the logs: those of the others at once, those of the slow copy every `SYNC_STEPS`
/// steps.
fn end_logs(ring: &mut Ring, step: u64) {
    for node in ring.nodes.keys().copied().collect::<Vec<_>>() {
        if node == SLOW && !step.is_multiple_of(SYNC_STEPS) {
            continue;
        }
        while let Some((position, run)) = ring.nodes.get_mut(&node).unwrap().unlogged.pop_front() {
            ring.give(node, Input::Logged { slot: SLOT, position, run });
        }
    }
    ring.settle();
}

/// Writes once each 20 ms; returns how often the in-sync copies changed, and how long each write took in
/// milliseconds.
fn writes(ring: &mut Ring, seconds: u64) -> (usize, Vec<u64>) {
    ring.logs_at_once = false;
    let (mut changes, mut waits) = (0, Vec::new());
    let (mut begun, mut acknowledged) = (0, 0);
    for step in 1..=seconds * 50 {
        ring.write(1, 1_000 + step);
        begun += 1;
        for _ in 0..3 {
            end_logs(ring, step);
        }
        ring.tick();
        for change in std::mem::take(&mut ring.proposals) {
            let counts = matches!(change, Change::Propose(Proposal::Admit { .. } | Proposal::Dismiss { .. }));
            let before = ring.group.table().version;
            ring.decide(change);
            changes += usize::from(counts && ring.group.table().version > before);
        }
        ring.settle();
        while acknowledged < begun && ring.told(1_001 + acknowledged) == Some(Outcome::Written) {
            waits.push((begun - acknowledged - 1) * 20);
            acknowledged += 1;
        }
    }
    (changes, waits)
}

#[test]
fn a_copy_that_is_always_too_slow_is_soon_left_alone() {
    let mut ring = three();
    let (changes, waits) = writes(&mut ring, 60);
    assert!(changes <= 12, "{changes} changes in a minute");
    let late = waits.iter().skip(waits.len() / 2).filter(|wait| **wait > 100).count();
    assert!(
        late <= 100,
        "{late} of the later writes waited: it counted for two seconds in half a minute at most"
    );
    let (changes, _) = writes(&mut ring, 600);
    assert!((1..=10).contains(&changes), "{changes} changes in ten minutes: it is tried again, seldom");
}

#[test]
fn a_copy_that_is_fast_again_counts_again_and_its_past_is_forgiven() {
    let mut ring = three();
    writes(&mut ring, 20);
    ring.logs_at_once = true;
    ring.pass(60_000);
    assert!(ring.group.table().slot(SLOT).in_sync.contains(SLOW));
    ring.pass(300_000);
    // A single network failure long after: the copy is back as soon as it is heard.
    ring.isolate(SLOW.0);
    ring.write(1, 1);
    ring.pass(1_500);
    assert!(!ring.group.table().slot(SLOT).in_sync.contains(SLOW));
    ring.cut.clear();
    ring.pass(1_000);
    assert!(ring.group.table().slot(SLOT).in_sync.contains(SLOW));
}

#[test]
fn where_copies_lack_a_slow_one_does_not_rest() {
    let mut ring = three();
    writes(&mut ring, 60);
    assert!(!ring.group.table().slot(SLOT).in_sync.contains(SLOW));
    ring.logs_at_once = true;
    ring.isolate(2);
    ring.write(1, 1);
    ring.pass(2_500);
    let in_sync = ring.group.table().slot(SLOT).in_sync;
    assert!(in_sync.contains(SLOW) && !in_sync.contains(NodeId(2)), "{in_sync:?}");
    ring.write(1, 2);
    ring.pass(100);
    assert_eq!(ring.told(2), Some(Outcome::Written));
}

#[test]
fn another_life_of_a_slow_copy_is_judged_anew() {
    let mut ring = three();
    writes(&mut ring, 60);
    ring.logs_at_once = true;
    ring.pass(100);
    let before = ring.nodes[&SLOW].incarnation;
    ring.start(SLOW, &Options::default(), Survived::Everything);
    assert!(ring.nodes[&SLOW].incarnation > before && before > Incarnation(0));
    ring.pass(2_500);
    assert!(ring.group.table().slot(SLOT).in_sync.contains(SLOW));
}
