//! A real process, a real file, and kill -9.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_crash::kill::{Program, run_rounds};
use atoll_crash::{EngineSubject, Subject, Toy};

const ROUNDS: u64 = 20;

fn survives_kills<S: Subject>(writer: &str) {
    let program =
        Program { path: env!("CARGO_BIN_EXE_atoll-crash").into(), arguments: vec![writer.to_owned()] };
    let folder = tempfile::tempdir().unwrap();
    let rounds = run_rounds::<S>(&program, folder.path(), 1, ROUNDS)
        .expect("replay: cargo run --release -p atoll-crash -- kill --seed-from 1 --rounds 20");
    println!("{rounds:?}");
    assert!(rounds.kills == ROUNDS && rounds.acknowledged > 1000 && rounds.replays > 0, "{rounds:?}");
}

#[test]
fn nothing_acknowledged_is_lost_and_no_batch_is_torn_when_the_process_is_killed() {
    survives_kills::<EngineSubject>("write");
}

#[test]
fn the_harness_of_kills_passes_a_sound_store() {
    survives_kills::<Toy>("write-toy");
}
