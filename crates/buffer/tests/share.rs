//! Tests that a value accounts for the part of the run that its block takes, and that longer values are the
//! allocator's.

// Under sanitizers there are no blocks.
#![cfg(not(any(miri, atoll_plain_memory)))]

use atoll_buffer::{Buffer, run_bytes};

/// Bytes of a run.
const RUN: usize = 16 << 10;

// The only test in its process, whose blocks are therefore all there are.
#[test]
fn a_block_takes_its_share_of_a_run_and_values_above_4032_bytes_are_the_allocators() {
    for (len, in_a_run) in [(256, 51), (300, 42), (1_000, 15), (2_000, 7), (3_265, 4), (4_032, 4)] {
        let before = run_bytes();
        let value = Buffer::copy_from(&vec![7; len]);
        assert_eq!(run_bytes() - before, RUN, "{len} bytes are the first of their length");
        assert_eq!(value.allocated_bytes(), RUN / in_a_run, "{len} bytes");
        assert_eq!(value.to_owned_alone().as_ptr(), value.as_ptr(), "it holds nothing else");
    }
    let before = run_bytes();
    for len in [1, 255, 4_033, 4_096] {
        let value = Buffer::copy_from(&vec![7; len]);
        assert_eq!((run_bytes(), value.to_owned_alone().as_ptr()), (before, value.as_ptr()), "{len} bytes");
        assert!((len + 63..len + 128).contains(&value.allocated_bytes()), "{len} bytes");
    }
}
