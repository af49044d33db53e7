//! How often intervals contain the truth: the grid of populations, quantities, sizes and ways of stopping,
//! through the estimators alone and through tables.
//!
//! Every test runs ten cells. `ATOLL_CELLS='Entity Mean'` runs the cells whose names contain that text,
//! `ATOLL_SEEDS=N` this many seeds, starting with `ATOLL_SEED=N`. `ATOLL_CELLS=all` runs all cells; through
//! tables it then judges nothing and prints its tallies in one line. `cargo xtask soak coverage --minutes N`
//! collects such lines, and every test judges what they say together.
#![allow(clippy::expect_used, clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "the environment may name the seeds")]

#[path = "coverage/calibrated.rs"]
mod calibrated;
#[path = "coverage/cells.rs"]
mod cells;
#[path = "coverage/ledger.rs"]
mod ledger;
#[path = "coverage/population.rs"]
mod population;
#[path = "coverage/pure.rs"]
mod pure;
#[path = "coverage/through_tables.rs"]
mod through_tables;

use cells::{Cell, Tally, all, ten};
use population::Population;
use std::collections::BTreeMap;
use std::ops::Range;

/// The seeds of each cell in a test.
const SEEDS: u64 = 200;

/// The cells of each kind that are shown.
const WORST: usize = 15;

type Tallies = BTreeMap<Cell, Tally>;

fn of_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

fn is_all() -> bool {
    std::env::var("ATOLL_CELLS").is_ok_and(|cells| cells == "all")
}

/// The selected cells: ten, all, or those whose names contain a text.
fn chosen() -> Vec<Cell> {
    match std::env::var("ATOLL_CELLS") {
        Err(_) => ten(),
        Ok(part) if part == "all" => all(),
        Ok(part) => all().into_iter().filter(|cell| cell.to_string().contains(&part)).collect(),
    }
}

/// The seeds that the environment selects.
fn seeds() -> Range<u64> {
    let first = of_environment("ATOLL_SEED").unwrap_or(1);
    first..first + of_environment("ATOLL_SEEDS").unwrap_or(SEEDS)
}

/// Runs the chosen cells of both populations, on both halves of the seeds in parallel.
fn tallied(run: impl Fn(&Population, &pure::Questions, Range<u64>) -> Tallies + Sync) -> Tallies {
    let Range { start: first, end } = seeds();
    let count = end - first;
    let what = std::env::var("ATOLL_CELLS").map_or(String::new(), |cells| format!("ATOLL_CELLS='{cells}' "));
    println!(
        "replay with {what}ATOLL_SEED={first} ATOLL_SEEDS={count} cargo test -p atoll-tables --test coverage"
    );
    let cells = chosen();
    let mut tallies = Tallies::new();
    for population in [Population::regular(1), Population::zipf(1)] {
        let questions = pure::questions(&population, &cells);
        let half = first + count / 2;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| run(&population, &questions, half..first + count));
            let own = run(&population, &questions, first..half);
            for (cell, tally) in own.into_iter().chain(other.join().expect("no panic")) {
                tallies.entry(cell).or_default().join(&tally);
            }
        });
    }
    tallies
}

fn judge(tallies: &Tallies) {
    let breaks = |(cell, tally): &(&Cell, &Tally)| !tally.holds(**cell) && !tally.is_mostly_flagged();
    let line = |(cell, tally): (&Cell, &Tally)| tally.line(*cell);
    let broken: Vec<String> = tallies.iter().filter(breaks).map(line).collect();
    let large = || tallies.iter().filter(|(cell, _)| cell.units >= 1000);
    let on_flags = large().filter(|(cell, tally)| !tally.holds(**cell) && tally.is_mostly_flagged()).count();
    println!(
        "{} cells, {} broken; of {} with 1000 units and more {on_flags} stand on their doubts",
        tallies.len(),
        broken.len(),
        large().count(),
    );
    assert!(broken.is_empty(), "these cells hold the truth too seldom or too often: {broken:#?}");
    assert!(5 * on_flags <= large().count(), "more than a fifth of the larger cells stand on their doubts");
}

/// Prints the cells that are nearest to breaking the rule; among those whose answers are mostly doubted, the
/// worst.
fn print_worst(tallies: &Tallies) {
    for (what, is_doubted) in [("nearest to breaking", false), ("standing on their doubts", true)] {
        let of_kind = tallies.iter().filter(|(_, tally)| tally.is_mostly_flagged() == is_doubted);
        let mut cells: Vec<(&Cell, &Tally)> = of_kind.collect();
        cells.sort_by(|(cell, tally), (other, of_other)| {
            tally.margin(**cell).total_cmp(&of_other.margin(**other))
        });
        println!("{what}, of {}:", cells.len());
        cells.iter().take(WORST).for_each(|(cell, tally)| println!("  {}", tally.line(**cell)));
    }
}

#[test]
fn intervals_of_samples_hold_the_truth_as_often_as_they_say() {
    judge(&tallied(pure::run));
}

#[test]
fn intervals_of_totals_of_which_a_part_is_counted_hold_the_truth_as_often_as_they_say() {
    let found = calibrated::run(seeds());
    judge(&found.tallies);
    // A sum that ignores what is counted has as good a coverage, from intervals that are wider.
    let (calibrated, alone) = found.widths;
    assert!(calibrated < 0.8 * alone, "{calibrated} on average, and {alone} without what is counted");
}

#[test]
fn intervals_of_tables_hold_the_truth_as_often_as_they_say() {
    let tallies = tallied(through_tables::run);
    if is_all() {
        println!("{}", ledger::ledger_line(&tallies, &seeds()));
    } else {
        judge(&tallies);
    }
}

#[test]
fn what_the_soak_has_tallied_so_far_holds() {
    let ledger = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results/soak/coverage.jsonl");
    let path = std::env::var("ATOLL_LEDGER").unwrap_or_else(|_| ledger.to_owned());
    let (tallies, seeds) = ledger::total(&std::fs::read_to_string(&path).expect("a ledger"));
    println!("{seeds} seeds");
    print_worst(&tallies);
    assert_eq!(tallies.len(), all().len(), "cells that were never asked");
    judge(&tallies);
}
