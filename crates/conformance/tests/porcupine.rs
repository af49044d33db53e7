//! The suite's checker agrees with porcupine, an independent checker, on 1,000 random histories.
//!
//! Needs Go and its module proxy or cache; where they are missing the test says `SKIPPED [go]` and why.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use atoll_conformance::linearizability::{
    Action, Answer, Cells, Explained, Operation, explain, honest_answer, step,
};
use fastrand::Rng;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HISTORIES: u64 = 1000;
const CELLS: u8 = 3;

fn random_action(random: &mut Rng, number: usize) -> Action {
    let (cell, value) = (random.u8(0..CELLS), format!("{number}."));
    let expected = Some(format!("{}.", random.usize(0..=number))).filter(|_| random.bool());
    match random.u8(0..12) {
        0..=3 => Action::Get(cell),
        4 => Action::Scan,
        5 => Action::Put(vec![cell], value),
        6 => Action::Put((0..CELLS).collect(), value),
        7..=8 => Action::Append(cell, value),
        9..=10 => Action::Swap(cell, expected, value),
        _ => Action::Delete(cell),
    }
}

/// A history of a correct store: each operation takes effect at one moment between its call and its return.
fn honest(random: &mut Rng) -> Vec<Operation> {
    let count = random.usize(1..16);
    // Effects are 10 moments apart. A call and its return lie up to `reach` moments before and after the
    // effect, so that operations overlap little or much.
    let reach = random.u64(1..40);
    let mut cells = Cells::new();
    let mut history = Vec::new();
    for number in 0..count {
        let effect = 1000 + 10 * number as u64;
        let action = random_action(random, number);
        let is_read = matches!(action, Action::Get(_) | Action::Scan);
        let is_unknown = !is_read && random.u8(0..6) == 0;
        let answer = if is_unknown { Answer::Unknown } else { honest_answer(&cells, &action) };
        if !is_unknown || random.bool() {
            cells = step(&cells, &action, &answer).unwrap();
        }
        let (called, returned) = (effect - 1 - random.u64(0..reach), effect + 1 + random.u64(0..reach));
        history.push(Operation { action, answer, called, returned });
    }
    distinct_moments(random, &mut history);
    history
}

/// Spreads moments so that no two are equal, without changing the order of different ones.
fn distinct_moments(random: &mut Rng, history: &mut [Operation]) {
    let mut moments: Vec<(u64, u64, usize, bool)> = Vec::new();
    for (at, operation) in history.iter().enumerate() {
        moments.push((operation.called, random.u64(..), at, false));
        moments.push((operation.returned, random.u64(..), at, true));
    }
    moments.sort_unstable();
    for (moment, (_, _, at, is_return)) in moments.into_iter().enumerate() {
        match is_return {
            false => history[at].called = moment as u64,
            true => history[at].returned = moment as u64,
        }
    }
}

/// Changes an answer of the history, or its time.
fn corrupt(random: &mut Rng, history: &mut Vec<Operation>) {
    let at = random.usize(0..history.len());
    let other = format!("{}.", random.usize(0..history.len()));
    let operation = &mut history[at];
    match &mut operation.answer {
        Answer::Value(value) | Answer::Conflict(value) => {
            *value = Some(other).filter(|_| random.bool());
        }
        Answer::Cells(cells) => drop(cells.insert(random.u8(0..CELLS), other)),
        Answer::Unknown => operation.answer = Answer::Done,
        // As if the write had never been made.
        Answer::Done => drop(history.remove(at)),
    }
}

fn histories(seed: u64) -> Vec<Vec<Operation>> {
    let history = |number: u64| {
        let mut random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut history = honest(&mut random);
        for _ in 0..number % 3 {
            if !history.is_empty() {
                corrupt(&mut random, &mut history);
            }
        }
        history
    };
    (0..HISTORIES).map(history).collect()
}

fn to_json(client: usize, Operation { action, answer, called, returned }: &Operation) -> Value {
    let (action, keys, value, expected) = match action {
        Action::Get(key) => ("get", vec![*key], "", &None),
        Action::Scan => ("scan", vec![], "", &None),
        Action::Put(keys, value) => ("put", keys.clone(), value.as_str(), &None),
        Action::Append(key, value) => ("append", vec![*key], value.as_str(), &None),
        Action::Swap(key, expected, value) => ("swap", vec![*key], value.as_str(), expected),
        Action::Delete(key) => ("delete", vec![*key], "", &None),
    };
    let (answer, found, cells) = match answer {
        Answer::Value(value) => ("value", value.clone(), None),
        Answer::Cells(cells) => ("cells", None, Some(cells)),
        Answer::Done => ("done", None, None),
        Answer::Conflict(value) => ("conflict", value.clone(), None),
        Answer::Unknown => ("unknown", None, None),
    };
    let keys: Vec<_> = keys.iter().map(u8::to_string).collect();
    json!({
        "client": client, "called": called, "returned": returned, "action": action, "keys": keys,
        "value": value, "expected": expected, "answer": answer, "found": found, "cells": cells,
    })
}

/// Builds and runs the Go program; none, with the reason, where that cannot be done.
fn porcupine(input: &str) -> Result<Output, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/porcupine");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("porcupine");
    let build = Command::new("go")
        .arg("build")
        .arg("-buildvcs=false")
        .arg("-o")
        .arg(&program)
        .current_dir(folder)
        .output();
    let built = build.map_err(|error| format!("go cannot be run: {error}"))?;
    if !built.status.success() {
        let reason = String::from_utf8_lossy(&built.stderr).trim().replace('\n', "; ");
        return Err(format!("go cannot build tests/porcupine: {reason}"));
    }
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ok(child.wait_with_output().unwrap())
}

#[test]
fn the_checker_agrees_with_porcupine_on_1000_random_histories() {
    let seed = std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    let histories = histories(seed);
    let ours: Vec<bool> =
        histories.iter().map(|history| matches!(explain(history), Explained::By(_))).collect();
    let linearizable = ours.iter().filter(|verdict| **verdict).count();
    // Agreement would prove nothing if either kind were missing.
    assert!((200..=900).contains(&linearizable), "{linearizable} of {HISTORIES} are linearizable");
    for (number, verdict) in ours.iter().enumerate().step_by(3) {
        assert!(verdict, "history {number} is of an honest store; seed {seed}");
    }
    let all: Vec<Vec<Value>> = histories
        .iter()
        .map(|history| history.iter().enumerate().map(|(at, one)| to_json(at, one)).collect())
        .collect();
    let output = match porcupine(&json!(all).to_string()) {
        Ok(output) => output,
        Err(reason) => return println!("SKIPPED [go] comparison with porcupine: {reason}"),
    };
    assert!(output.status.success(), "porcupine ended with {}", output.status);
    let theirs: Vec<bool> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(theirs.len(), ours.len());
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let replay = format!("CONFORMANCE_SEED={seed} cargo test -p atoll-conformance --test porcupine");
        let history = &histories[number];
        assert_eq!(ours, theirs, "history {number} (ours, porcupine's): {history:#?}\nreplay: {replay}");
    }
    println!("{linearizable} of {HISTORIES} histories are linearizable, by both checkers; seed {seed}");
}
