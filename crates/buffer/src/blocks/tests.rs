//! The guarantees of blocks. Each test uses lengths of its own, because classes belong to the whole process.
#![allow(clippy::expect_used)]

use super::*;
use crate::shared::{Shared, lines_for};
use std::collections::BTreeMap;

/// A block of a length that no other test uses, so that its class belongs to the test alone. While another
/// test takes a run there may be none, but not for long.
fn block(bytes: usize) -> Shared {
    let class = lines_for(bytes) - LINES_MIN;
    let found = (0..1_000_000).find_map(|_| {
        assert!(!BLOCKS[class].is_poisoned(), "a test failed with the lock of blocks of {bytes} bytes");
        let (taken, _) = Shared::allocate(bytes, Purpose::Writing);
        let is_block = taken.is_block();
        if !is_block {
            std::thread::yield_now();
        }
        is_block.then_some(taken)
    });
    found.expect("no test keeps the lock of the pool for as long")
}

#[test]
fn blocks_are_apart_in_their_run_and_come_back() {
    const BYTES: usize = 3_500;
    let most = RUN_BYTES / (lines_for(BYTES) * ALIGNMENT);
    let held: Vec<Shared> = (0..3 * most).map(|_| block(BYTES)).collect();
    let mut starts: Vec<usize> = held.iter().map(|block| block.as_ptr().addr()).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= BYTES + ALIGNMENT));
    let runs: BTreeMap<usize, usize> = starts.iter().fold(BTreeMap::new(), |mut runs, start| {
        *runs.entry(start / RUN_BYTES).or_default() += 1;
        runs
    });
    assert!(runs.len() == 3 && runs.values().all(|blocks| *blocks == most), "{runs:?}");
    let open_and_empty = || {
        let class = BLOCKS[lines_for(BYTES) - LINES_MIN].lock().expect("nobody failed");
        (class.open.len(), class.empty.len())
    };
    assert_eq!(open_and_empty(), (0, 0));
    drop(held);
    // While another test gives back a run, none of these goes; the rest then go with the next one.
    let is_given = (0..10_000).any(|_| {
        let was = open_and_empty();
        std::thread::yield_now();
        drop((0..=most).map(|_| block(BYTES)).collect::<Vec<_>>());
        was == (1, 1)
    });
    assert!(is_given, "one run is kept");
    assert!(starts.contains(&block(BYTES).as_ptr().addr()), "and used again");
}

#[test]
fn what_nobody_can_have_at_once_is_had_elsewhere_and_what_is_left_is_found() {
    const BYTES: usize = 3_000;
    let class = lines_for(BYTES) - LINES_MIN;
    let held: Vec<Shared> = (0..3).map(|_| block(BYTES)).collect();
    let starts: Vec<usize> = held.iter().map(|block| block.as_ptr().addr()).collect();
    let locked = BLOCKS[class].lock().expect("nobody failed");
    let elsewhere = Shared::allocate(BYTES, Purpose::Writing).0;
    assert!(
        !elsewhere.is_block()
            && elsewhere.len() == BYTES
            && take(lines_for(BYTES), Purpose::Writing).is_none()
    );
    drop(held);
    assert!(!LEFT[class].load(Ordering::Relaxed).is_null());
    drop(locked);
    let again: Vec<Shared> = (0..3).map(|_| block(BYTES)).collect();
    assert!(LEFT[class].load(Ordering::Relaxed).is_null());
    assert_eq!(again.iter().map(|block| block.as_ptr().addr()).collect::<Vec<_>>(), starts);
}

#[test]
fn a_block_keeps_what_was_written_while_others_come_and_go_on_two_threads() {
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let (mut state, mut held) = (seed + 1_u64, Vec::new());
                for step in 0..30_000_u32 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let drawn = (state >> 33) as usize;
                    if held.len() < 500 || (held.len() < 1000 && drawn.is_multiple_of(2)) {
                        let mut fresh = block(2_450 + drawn % 3 * 64);
                        fresh.get_mut().expect("nobody else has it").fill(step as u8);
                        held.push((fresh, step as u8));
                    } else {
                        let (block, mark) = held.swap_remove(drawn % held.len());
                        assert!(block.iter().all(|byte| *byte == mark), "seed {seed}, step {step}");
                    }
                }
            });
        }
    });
}

#[test]
fn runs_and_blocks_that_could_not_go_back_at_once_go_with_the_next_ending_or_the_next_run() {
    for (bytes, others) in [(3_700, None), (3_830, Some(3_900))] {
        let class = lines_for(bytes) - LINES_MIN;
        let behind = || {
            let empty = BLOCKS[class].lock().expect("nobody failed").empty.len();
            (empty, LEFT[class].load(Ordering::Relaxed).is_null())
        };
        // Three runs.
        let mut held: Vec<Shared> = (0..12).map(|_| block(bytes)).collect();
        let last = held.split_off(8);
        let pool = runs::busy();
        drop(held);
        assert_ne!(behind(), (1, true), "two runs are empty");
        let locked = BLOCKS[class].lock().expect("nobody failed");
        drop(last);
        assert!(!LEFT[class].load(Ordering::Relaxed).is_null());
        drop((locked, pool));
        // While another test has one of the locks, a later attempt will do.
        let is_done = (0..10_000).any(|_| {
            match others {
                None => drop(deferred::ending()),
                Some(others) => drop((0..9).map(|_| block(others)).collect::<Vec<_>>()),
            }
            std::thread::yield_now();
            behind() == (1, true)
        });
        assert!(is_done, "{:?} stay for good", behind());
    }
}

#[test]
fn a_lock_that_somebody_failed_with_stops_nobody_and_is_told_by_tests_that_want_a_block() {
    const BYTES: usize = 3_560;
    let class = lines_for(BYTES) - LINES_MIN;
    let held = block(BYTES);
    let failed = std::thread::spawn(move || {
        let _locked = BLOCKS[class].lock();
        assert_eq!(class, 0, "this test wants it to fail");
    });
    assert!(failed.join().is_err());
    assert!(!Shared::allocate(BYTES, Purpose::Writing).0.is_block(), "the allocator has memory");
    drop(held);
    assert!(std::panic::catch_unwind(|| block(BYTES)).is_err(), "nobody waits for ever");
}
