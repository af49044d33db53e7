//! Several processes at one table in one folder, any of them killed at any moment: no row is lost or doubled, no
//! step is seen in part, and nobody is stuck.
//!
//! The test program starts itself again as its workers, told by the environment what to be. Four of them write,
//! each a run of its own: whenever one starts, it begins the next attempt at the last complete step, writes that
//! step anew and goes on, several appends at a time; now and then it deletes its old steps. Two read: one beside
//! them, one without the right to write. The driver kills one after the other and starts it again; in the end it
//! opens the folder and counts.
//!
//! `ATOLL_ROUNDS=50 cargo test -p atoll-tables --test processes` runs more rounds than the 8 of a test, `ATOLL_SEED`
//! takes another seed, `ATOLL_AT` another folder.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "processes/driver.rs"]
mod driver;
#[path = "processes/workers.rs"]
mod workers;

use driver::Driver;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Not a test: what this program does when it was started as a worker.
#[test]
fn worker() {
    if let Ok(role) = std::env::var("ATOLL_WORKER") {
        workers::work(&role);
    }
}

fn run(rounds: u64, seed: u64, is_planted: bool) {
    // In memory where there is such a place: what survives the end of a process does not depend on the disk.
    let place = match std::env::var("ATOLL_AT") {
        Ok(folder) => tempfile::tempdir_in(folder).expect("the folder that ATOLL_AT names"),
        Err(_) => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(),
    };
    println!("replay with ATOLL_SEED={seed}; the order of processes is the system's own");
    let mut random = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(workers::prepare(place.path()));
    let mut driver = Driver::start(place.path(), is_planted);
    driver.listen(100);
    for _ in 0..rounds {
        let index = random.usize(..driver.workers());
        driver.kill(index);
        driver.listen(random.usize(50..300));
    }
    driver.end();
    let steps = runtime.block_on(workers::judge(place.path(), driver.told()));
    println!("{steps} steps acknowledged, longest silence {:?}", driver.slowest());
    assert!(steps > 50);
}

#[test]
fn whoever_is_killed_no_row_is_lost_or_doubled_and_nobody_is_stuck() {
    if std::env::var("ATOLL_WORKER").is_err() {
        run(setting("ATOLL_ROUNDS", 8), setting("ATOLL_SEED", 1), false);
    }
}

#[test]
fn a_writer_that_claims_a_step_too_early_is_found_out() {
    if std::env::var("ATOLL_WORKER").is_err() {
        let outcome = std::panic::catch_unwind(|| run(8, 2, true));
        let message = outcome.expect_err("the planted claim was not noticed");
        let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.contains("which was acknowledged"), "{message}");
    }
}
