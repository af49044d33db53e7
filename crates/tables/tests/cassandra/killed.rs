//! Several processes at one table on one cluster, any of which may be killed at any moment: the counterpart
//! of `processes.rs`, which does the same on a folder.
//!
//! Four processes write, two read, one packs and one sweeps, each with a store of its own; only consensus
//! orders them.

use crate::contacts;
use crate::workers::{self, Reports, WRITERS};
use atoll_conformance::killed::{self, Driver, Workers};
use std::path::Path;
use std::time::Duration;

/// The longest silence of a worker. All workers compete for one partition, where one of several dozen
/// attempts a second wins, and an attempt whose process died blocks the others for a while.
const STUCK: Duration = Duration::from_secs(40);

/// The most lines to hear between two kills.
const LINES: usize = 120;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn run(rounds: u64, seed: u64, plant: Option<&'static str>) {
    println!("replay with ATOLL_SEED={seed}; the order of processes is the system's own");
    let name = format!("cassandra:processes_{:x}", fastrand::u64(..));
    let (place, mut random) = (Path::new(&name), fastrand::Rng::with_seed(seed));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(workers::prepare(place));
    let writers = (0..WRITERS).map(|number| format!("write {number}"));
    let others = ["read 0", "look 0"].map(str::to_owned).into_iter();
    let others = others.chain(["pack", "sweep"].map(|role| format!("{role} {seed}")));
    let roles = writers.chain(others).collect();
    let environment = plant.map(|plant| ("ATOLL_PLANT", plant)).into_iter().collect();
    let workers = Workers { roles, folder: place.to_owned(), environment, silence_max: STUCK };
    let mut driver = Driver::start(workers, Reports::default(), workers::hear);
    driver.listen(LINES);
    for _ in 0..rounds {
        driver.kill(random.usize(..driver.workers()));
        driver.listen(random.usize(LINES / 4..LINES));
    }
    for _ in 0..100 {
        if driver.told.trees > 0 && driver.told.ended > 0 {
            break;
        }
        driver.listen(LINES / 4);
    }
    driver.end();
    let told = &driver.told;
    let steps = runtime.block_on(workers::judge(place, told));
    told.sum_up(steps, driver.slowest());
}

#[test]
fn whoever_is_killed_on_a_cluster_no_row_is_lost_or_doubled_and_nobody_is_stuck() {
    if !killed::is_worker() && contacts().is_some() {
        run(setting("ATOLL_ROUNDS", 8), setting("ATOLL_SEED", 1), None);
    }
}

#[test]
fn a_writer_on_a_cluster_that_claims_a_step_too_early_is_found_out() {
    if killed::is_worker() || contacts().is_none() {
        return;
    }
    let outcomes = (2..8).map(|seed| std::panic::catch_unwind(|| run(8, seed, Some("early claim"))));
    let message = outcomes.filter_map(Result::err).next().expect("what was planted was not noticed");
    let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("which was acknowledged"), "{message}");
}
