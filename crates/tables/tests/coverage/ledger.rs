//! Tallies that add up: a run prints its tallies in one line, and many lines are judged together.
//!
//! A line belongs to the soak ledger; it has the answers, the right ones and the doubted ones of each cell.
//!
//! Invariant: only lines of the newest format are added up.

use crate::Tallies;
use crate::cells::{Cell, Tally, all};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Incremented whenever an estimator, a cell or the rule changes, so that the count starts again.
const FORMAT: u64 = 1;

/// The tallies of some seeds, as a line.
pub fn ledger_line(tallies: &Tallies, seeds: &Range<u64>) -> String {
    let cell = |(cell, tally): (&Cell, &Tally)| {
        (cell.to_string(), json!([tally.answers, tally.right, tally.flagged]))
    };
    let cells: Map<String, Value> = tallies.iter().map(cell).collect();
    let (from, count) = (seeds.start, seeds.end - seeds.start);
    json!({
        "soak": "coverage", "format": FORMAT, "seed_from": from, "seeds": count, "failures": 0, "cells": cells,
    })
    .to_string()
}

/// The tallies of all lines of a ledger together, and the number of their seeds.
pub fn total(ledger: &str) -> (Tallies, u64) {
    let names: BTreeMap<String, Cell> = all().into_iter().map(|cell| (cell.to_string(), cell)).collect();
    let lines = ledger.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let lines: Vec<Value> = lines.collect();
    let newest = lines.iter().map(|line| line["format"].as_u64().expect("a format")).max();
    let (mut tallies, mut seeds, mut ran) = (Tallies::new(), 0, BTreeSet::new());
    for line in lines.iter().filter(|line| line["format"].as_u64() == newest) {
        let [from, count] = ["seed_from", "seeds"].map(|name| line[name].as_u64().expect("a number"));
        let is_fresh = (from..from + count).all(|seed| ran.insert(seed));
        assert!(is_fresh, "seeds from {from} on are counted twice");
        seeds += count;
        for (name, numbers) in line["cells"].as_object().expect("cells") {
            let number = |place: usize| numbers[place].as_u64().expect("a number");
            let tally = Tally { answers: number(0), right: number(1), flagged: number(2) };
            assert_eq!(tally.answers, count, "{name} was asked of every seed");
            tallies.entry(names[name]).or_default().join(&tally);
        }
    }
    (tallies, seeds)
}
