//! Random queries at random moments. Meanwhile runs write and restart, packers pack, rows are deleted,
//! sessions end and processes vanish. Every answer must equal that of plain loops over the rows of that
//! moment.
//!
//! Processes take turns at every operation on the store, in random order ([`episode`]). The oracle knows only
//! rows, runs and steps, and when each edit became true ([`world`], [`truth`]).
//!
//! `ATOLL_QUERIES=100000 cargo test -p atoll-tables --features planted --test moments` asks more than the
//! 5,000 queries of a test. `ATOLL_SEED` sets the first seed or, alone, replays one episode. `cargo xtask
//! soak queries` continues indefinitely with fresh seeds.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[path = "moments/actors.rs"]
mod actors;
#[path = "moments/ask.rs"]
mod ask;
#[path = "queries/asked.rs"]
mod asked;
#[path = "queries/conditions.rs"]
mod conditions;
#[path = "moments/episode.rs"]
mod episode;
#[path = "moments/line.rs"]
mod line;
#[path = "queries/packs.rs"]
mod packs;
#[path = "queries/particles.rs"]
mod particles;
#[path = "moments/truth.rs"]
mod truth;
#[path = "moments/world.rs"]
mod world;

use episode::{QUERIES, Tally};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seed of an episode is the number of its first query.
#[test]
fn random_queries_at_random_moments_equal_brute_force() {
    let first = setting("ATOLL_SEED");
    let queries = setting("ATOLL_QUERIES").unwrap_or(if first.is_some() { QUERIES } else { 5000 });
    let first = first.unwrap_or(0);
    let mut told = Tally::default();
    for seed in (first..first + queries).step_by(QUERIES as usize) {
        let replay = Replay(seed);
        told = told.and(episode::live(seed));
        drop(replay);
    }
    println!("{} queries of {} versions", told.queries, told.versions);
    assert!(told.queries >= queries);
    // A single episode may be a quiet one.
    if queries > 10 * QUERIES {
        told.judge();
    }
}

#[test]
fn an_episode_goes_the_same_way_again() {
    for seed in (0..10 * QUERIES).step_by(QUERIES as usize) {
        assert_eq!(episode::live(seed), episode::live(seed), "the episode of seed {seed}");
    }
}

/// Prints how to replay an episode that fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: ATOLL_SEED={} cargo test -p atoll-tables --features planted --test moments",
                self.0
            );
        }
    }
}
