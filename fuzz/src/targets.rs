//! The fuzz targets: each takes any bytes and must come back without a panic.
//!
//! A target is a function and a row in [`TARGETS`]. `cargo xtask fuzz NAME` looks for an input that breaks
//! it, and the system tests replay `fuzz/seeds/NAME/` and `fuzz/findings/NAME/` without any fuzzer.
//!
//! Invariant: a target depends on its input alone, so that a finding fails again wherever it is replayed.

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name that `cargo xtask fuzz` knows.
pub const TARGETS: &[(&str, Target)] = &[("url", url), ("options", options)];

/// A store URL, as a person types it.
fn url(input: &[u8]) {
    // Whether it is accepted does not matter here: a URL that means nothing is an error, not a finding.
    let _ = atoll_open::fuzz::url(input);
}

/// Options from a file and from the environment.
fn options(input: &[u8]) {
    let _ = atoll_options::fuzz::options(input);
}
