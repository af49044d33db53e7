//! The fuzzer: libFuzzer around the target that ATOLL_FUZZ_TARGET names.
//!
//! One program for all targets, so that they are built once.

#![no_main]

mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use targets::{TARGETS, Target};

static CHOSEN: OnceLock<Target> = OnceLock::new();

fn choose() -> Target {
    let name = std::env::var("ATOLL_FUZZ_TARGET").expect("ATOLL_FUZZ_TARGET names a target");
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("there is no target {name:?}")).1
}

fuzz_target!(init: { CHOSEN.get_or_init(choose); }, |input: &[u8]| {
    CHOSEN.get_or_init(choose)(input);
});
