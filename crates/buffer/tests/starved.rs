//! Tests that values can be made as long as the allocator has memory, even where the system maps no more
//! slabs.

// Under sanitizers there are no slabs, and much more is mapped than is used.
#![cfg(all(target_os = "linux", not(miri), not(atoll_plain_memory)))]
#![allow(clippy::unwrap_used)]

use atoll_buffer::{Buffer, Counted};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;

/// Set for the starved child process.
const STARVED: &str = "ATOLL_TEST_STARVED";

#[test]
fn values_are_the_allocators_where_no_slab_can_be_mapped() {
    if std::env::var_os(STARVED).is_some() {
        return starve();
    }
    let name = "values_are_the_allocators_where_no_slab_can_be_mapped";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let ended = child.args(["--exact", name]).env(STARVED, "1").output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    // A test of another name would be none, and end well.
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("1 passed"), "{name} is not the name of this test: {said}");
}

/// Limits this process to hardly more addresses than it has: fewer than mapping a slab takes before it is
/// trimmed.
fn starve() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let most = mapped.unwrap().parse::<u64>().unwrap() * 1024 + (3 << 20);
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(most), maximum }).unwrap();
    let values: Vec<Buffer> = (0..1_000).map(|mark| Buffer::copy_from(&[mark as u8; 1_000])).collect();
    let counted: Vec<Counted<[usize; 20]>> = (0..1_000).map(|mark| Counted::read([mark; 20])).collect();
    assert_eq!(atoll_buffer::run_bytes(), 0, "a slab could be mapped");
    assert!(values.iter().enumerate().all(|(mark, value)| **value == [mark as u8; 1_000]));
    assert!(counted.iter().enumerate().all(|(mark, value)| **value == [mark; 20]));
}
