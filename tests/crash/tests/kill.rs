//! A real process, a real file, and kill -9.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_crash::kill::{Program, Rounds, run_rounds};
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

/// The result of rounds with a child that exits by itself.
fn rounds_of(program: &str, arguments: &[&str]) -> Result<Rounds, String> {
    let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
    let program = Program { path: program.into(), arguments };
    run_rounds::<Toy>(&program, tempfile::tempdir().unwrap().path(), 1, ROUNDS)
}

#[test]
fn a_child_that_ends_by_itself_is_no_kill() {
    let failed = rounds_of("/bin/false", &[]).unwrap_err();
    assert!(failed.contains("ended by itself") && failed.contains("exit status: 1"), "{failed}");
    let well = rounds_of("/bin/true", &[]).unwrap_err();
    assert!(well.contains("ended by itself"), "{well}");
}

#[test]
fn what_a_child_said_before_it_ended_by_itself_is_told() {
    let failed = rounds_of("/bin/sh", &["-c", "echo 0; echo a page is gone >&2; kill -ABRT $$"]).unwrap_err();
    assert!(failed.contains("behind 1 events: a page is gone"), "{failed}");
}
