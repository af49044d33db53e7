//! Nodes, network, logs and clocks that fail from a seed, against one question: does one order explain all
//! answers?
//!
//! Every write adds its number to a list, and every read returns the list. So an order exists exactly if all
//! lists that were ever read are prefixes of each other, hold what was acknowledged before the read was
//! asked, and hold nothing that was asked after its answer. `ATOLL_SEED=7 cargo test -p atoll-replica --test
//! random -- --nocapture` shows one seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

#[path = "random/faults.rs"]
mod faults;
#[path = "random/history.rs"]
mod history;
#[path = "random/schedule.rs"]
mod schedule;
#[path = "random/world.rs"]
mod world;

use faults::Faults;
use world::World;

/// How many runs there are of each kind.
const RUNS: u64 = 200;

fn run(kind: &str, faults: &Faults) {
    let chosen: Option<u64> = std::env::var("ATOLL_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = chosen.map_or(0..RUNS, |seed| seed..seed + 1);
    let mut total = faults::Counts::default();
    for seed in seeds {
        let mut world = World::new(seed, faults, chosen.is_some());
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        match judged {
            Ok(Ok(())) => total.add(&world.counts),
            Ok(Err(wrong)) => panic!("{kind}, seed {seed}: {wrong}"),
            Err(_) => panic!("{kind}, seed {seed}: a panic"),
        }
    }
    println!("{kind}: {total:?}");
    if chosen.is_none() {
        total.check_that_everything_happened(kind, faults);
    }
}

#[test]
fn answers_have_one_order_with_logs_that_survive() {
    run("logged", &Faults::LOGGED);
}

#[test]
fn answers_have_one_order_when_nothing_survives_a_crash() {
    run("memory", &Faults::MEMORY);
}

#[test]
fn answers_have_one_order_whatever_clocks_do_when_reads_are_confirmed() {
    run("confirmed", &Faults::CONFIRMED);
}

#[test]
fn clocks_beyond_the_stated_error_are_noticed() {
    // A failure here is not a fault of the protocol: it shows that this test would see one.
    let found = (0..1000).any(|seed| World::new(seed, &Faults::WILD_CLOCKS, false).run().is_err());
    assert!(found, "no seed of 1,000 saw that clocks may not be trusted that much");
}
