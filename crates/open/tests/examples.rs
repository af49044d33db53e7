//! The programs in `examples/` do what they claim.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::error::Error;
use std::future::Future;

#[allow(dead_code)]
#[path = "../../../examples/simulation_results.rs"]
mod simulation_results;
#[allow(dead_code)]
#[path = "../../../examples/wait_for_result.rs"]
mod wait_for_result;

fn finish(run: impl Future<Output = Result<(), Box<dyn Error>>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run).unwrap();
}

fn lines(out: &[u8]) -> Vec<&str> {
    std::str::from_utf8(out).unwrap().lines().collect()
}

#[test]
fn a_simulation_that_runs_again_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("results").display().to_string();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    finish(simulation_results::run(&folder, &mut first));
    finish(simulation_results::run(&folder, &mut second));
    let end = ["energy/00017 = -1.267", "energy/00018 = -1.268", "energy/00019 = -1.269"];
    assert_eq!(lines(&first), [&["computed 20 steps"][..], &end].concat());
    assert_eq!(lines(&second), [&["computed 0 steps"][..], &end].concat());
}

#[test]
fn who_waits_is_given_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    finish(wait_for_result::run(&folder.path().join("jobs").display().to_string(), &mut out));
    assert_eq!(lines(&out), ["the job delivered 42"]);
}
