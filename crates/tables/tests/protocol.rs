//! The version protocol, explored: every interleaving of small scenarios, with crashes, writes of unknown
//! outcome and writes that land late, and every planted mistake caught.
//!
//! The processes use the protocol's own code for every decision ([`atoll_tables::protocol`]). Written here
//! are the store, the order of the processes' steps, and an oracle that knows neither objects nor tombstones.
//! `cargo test -p atoll-tables --test protocol -- --nocapture` prints how many states there were, and the
//! story by which each mistake was caught.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "protocol/explore.rs"]
mod explore;
#[path = "protocol/mistake.rs"]
mod mistake;
#[path = "protocol/model.rs"]
mod model;
#[path = "protocol/oracle.rs"]
mod oracle;
#[path = "protocol/readers.rs"]
mod readers;
#[path = "protocol/scenario.rs"]
mod scenario;
#[path = "protocol/state.rs"]
mod state;
#[path = "protocol/world.rs"]
mod world;
#[path = "protocol/writers.rs"]
mod writers;

use explore::{Counterexample, explore};
use mistake::Mistake;
use scenario::Scenario;

/// Explores a scenario in which no process makes a mistake; a violation fails with its story. All of these
/// endings of commits must occur, or the scenario does not show what it is for.
fn holds(scenario: Scenario, endings: &[&str]) {
    let name = scenario.name;
    match explore(scenario, None) {
        Ok(explored) => {
            println!("{name}: {explored}");
            let missing = endings.iter().find(|ending| !explored.endings.contains(**ending));
            assert!(explored.ends > 0 && missing.is_none(), "{name}: never {missing:?}");
        }
        Err(Counterexample { violation, story }) => {
            panic!("{name}: {}\n  {}", violation.0, story.join("\n  "))
        }
    }
}

#[test]
fn ranks_publish_whole_steps_once() {
    holds(scenario::two_writers(), &["Made"]);
}

#[test]
fn a_step_that_a_rank_skips_is_told_and_never_waits_for_ever() {
    holds(scenario::skipped_step(), &["Made", "Skipped"]);
}

#[test]
fn packers_on_the_same_blocks_neither_lose_nor_double_a_row() {
    holds(scenario::three_packers(), &["Made", "InputGone"]);
}

#[test]
fn what_was_deleted_stays_deleted_whatever_is_packed() {
    holds(scenario::deletes(), &["Made", "InputGone"]);
    holds(scenario::equal_deletes(), &["Made", "InputGone"]);
}

#[test]
fn a_version_has_the_columns_of_all_that_it_names() {
    holds(scenario::columns(), &["Made", "ColumnThere", "AlreadyDone"]);
}

#[test]
fn a_new_attempt_takes_over_in_one_version() {
    holds(scenario::restart(), &["Made", "InputGone", "StaleAttempt"]);
    holds(scenario::restart_over_cubes(), &["Made", "InputGone"]);
}

#[test]
fn who_begins_behind_a_step_takes_nothing_away_that_came_since() {
    holds(scenario::beginners(), &["Made", "RunWentOn", "StaleAttempt"]);
}

#[test]
fn a_load_becomes_true_as_a_whole() {
    holds(scenario::loads(), &["Made", "InputGone", "StaleAttempt"]);
    holds(scenario::loads_beside_ranks(), &["Made", "AlreadyDone", "StepArriving", "StepOrder"]);
    holds(scenario::slow_load(), &["Made", "Fenced", "Forgotten"]);
}

#[test]
fn a_vacuum_takes_nothing_from_under_a_reader() {
    holds(scenario::vacuum(), &["Made"]);
    holds(scenario::two_vacuums(), &["Made", "AlreadyDone"]);
}

#[test]
fn a_snapshot_keeps_its_version_whole() {
    holds(scenario::snapshots(), &["Made", "InputGone"]);
}

#[test]
fn a_process_whose_session_ended_makes_nothing_true() {
    holds(scenario::slow_processes(), &["Made", "Fenced", "Forgotten", "AlreadyDone"]);
}

#[test]
fn a_write_that_lands_late_is_counted_once_or_swept() {
    holds(scenario::late_writes(), &["Made"]);
}

#[test]
fn every_planted_mistake_is_caught() {
    let mut missed = Vec::new();
    for (mistake, scenario) in Mistake::all() {
        let name = scenario.name;
        match explore(scenario, Some(mistake)) {
            Err(Counterexample { violation, story }) => {
                println!("{mistake:?}, by {name}: {}\n  {}", violation.0, story.join("\n  "));
            }
            Ok(explored) => missed.push(format!("{mistake:?} in {name}: {explored}")),
        }
    }
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}
