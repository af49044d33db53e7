//! Tests that a store takes records as long as the allocator has memory, even where the system maps no more
//! slabs.

// Under sanitizers there are no slabs, and much more is mapped than is used.
#![cfg(all(target_os = "linux", not(atoll_plain_memory)))]
#![allow(clippy::unwrap_used)]

use atoll_engine::{Durability, Engine, Options};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;

/// Set for the starved child process.
const STARVED: &str = "ATOLL_TEST_STARVED";

#[test]
fn leaves_are_the_allocators_where_no_slab_can_be_mapped() {
    if std::env::var_os(STARVED).is_some() {
        return starve();
    }
    let name = "leaves_are_the_allocators_where_no_slab_can_be_mapped";
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
    let engine = Engine::in_memory(Options { background: false, ..Options::default() }).unwrap();
    let tree = engine.tree("records").unwrap();
    tree.put(b"first", b"in a slab", Durability::Buffered).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let most = mapped.unwrap().parse::<u64>().unwrap() * 1024 + (3 << 20);
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(most), maximum }).unwrap();
    let record = |number: u32| (number.to_be_bytes(), [number as u8; 200]);
    // Twice as many leaves as one slab has.
    for (key, value) in (0..20_000).map(record) {
        tree.put(&key, &value, Durability::Buffered).unwrap();
    }
    for (key, value) in (0..20_000).map(record) {
        assert!(tree.get_with(&key, |found| found.is_some_and(|found| *found == value)).unwrap());
    }
    let leaves = engine.stats().leaf_memory_bytes;
    assert!(leaves > atoll_buffer::slab::SLAB_BYTES as u64, "{leaves} bytes of leaves have room in one slab");
    // Leaves of both kinds go back where they came from.
    drop((tree, engine));
}
