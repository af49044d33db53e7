//! Random queries at random moments catch every bug planted in the tables.
//!
//! `cargo test -p atoll-tables --features planted --test planted -- --nocapture` prints what caught each.
//! `ATOLL_BUG` selects a single bug.

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

use atoll_tables::{Bug, plant};
use episode::{QUERIES, Tally};
use std::panic::{catch_unwind, set_hook, take_hook};

/// Episodes after which a bug counts as missed.
const EPISODES: u64 = 100;

/// The episode in which a bug was caught, and the failure.
fn caught(bug: Bug) -> Option<(u64, String)> {
    plant(Some(bug));
    let noticed = (0..EPISODES).find_map(|episode| {
        let panic = catch_unwind(|| episode::live(episode * QUERIES)).err()?;
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let line = text.unwrap_or_default().lines().next().unwrap_or_default().chars().take(150).collect();
        Some((episode + 1, line))
    });
    plant(None);
    noticed
}

#[test]
fn every_bug_planted_in_the_tables_is_caught() {
    // Without a bug, nothing fails.
    plant(None);
    let told = (0..10).map(|episode| episode::live(episode * QUERIES)).fold(Tally::default(), Tally::and);
    told.judge();
    let only = std::env::var("ATOLL_BUG").ok();
    let hook = take_hook();
    // Planted bugs cause dozens of failures.
    set_hook(Box::new(|_| {}));
    let bugs =
        Bug::ALL.into_iter().filter(|bug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}")));
    let outcomes: Vec<_> = bugs.map(|bug| (bug, caught(bug))).collect();
    set_hook(hook);
    let mut missed = Vec::new();
    for (bug, outcome) in outcomes {
        match outcome {
            Some((episodes, text)) => println!("{bug:?}: caught after {episodes} episodes: {text}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not caught in {EPISODES} episodes: {missed:?}");
}
