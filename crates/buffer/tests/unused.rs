//! Tests that the memory which blocks keep from values of other lengths is known, run by run.

// Under sanitizers there are no blocks.
#![cfg(not(any(miri, atoll_plain_memory)))]

use atoll_buffer::{Buffer, run_bytes, unused_bytes};

/// Bytes of a run.
const RUN: usize = 16 << 10;

// The only test in its process, whose blocks are therefore all there are.
#[test]
fn memory_that_few_values_keep_from_others_is_known_until_they_are_gone() {
    let values =
        |len: usize| -> Vec<Buffer> { (0..42 * 100).map(|_| Buffer::copy_from(&vec![7; len])).collect() };
    let held = values(300);
    assert_eq!(run_bytes(), 100 * RUN, "42 of 300 bytes in a run");
    assert!(unused_bytes() < 2 * RUN, "{} bytes beside 100 full runs", unused_bytes());
    let kept: Vec<Buffer> = held.into_iter().step_by(42).collect();
    let expected = 100 * RUN / 42 * 41;
    assert!(unused_bytes().abs_diff(expected) <= RUN, "{} bytes in place of {expected}", unused_bytes());
    let others = values(3_000);
    assert!(run_bytes() > 100 * RUN + others.len() * 3_000, "they have none of it");
    assert!(unused_bytes().abs_diff(expected) <= 2 * RUN, "{} bytes in place of {expected}", unused_bytes());
    drop(kept);
    assert!(unused_bytes() <= 3 * RUN, "{} bytes, though only others are left", unused_bytes());
    drop(others);
    assert_eq!(run_bytes(), 2 * RUN, "one run of each length is kept");
    assert!(unused_bytes().abs_diff(2 * RUN) < 2 * RUN, "{} bytes of two runs", unused_bytes());
}
