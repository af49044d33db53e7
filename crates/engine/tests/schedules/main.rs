//! The engine under a scheduler: small programs of two to four threads on the code that ships, in thousands
//! of orders.
//!
//! Each batch of orders follows from a seed; half of them are drawn step by step, half have few thread
//! switches (probabilistic concurrency testing). A failure prints how to repeat it: `ATOLL_SEED=N
//! ATOLL_SCHEDULES=50 cargo test -p atoll-engine --features schedules --test schedules NAME`.
//! `ATOLL_SCHEDULES` is the number of orders of each kind that a model goes through. Memory orders are not
//! weakened here: all threads agree on one order of steps.
//!
//! For each planted bug of [`Bug::BETWEEN_THREADS`] a model must fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod disk;
mod durable;
mod hot;
mod memory;
mod small;

use atoll_engine::{Bug, plant};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The name of a model, and what each of its orders runs.
type Model = (&'static str, fn());

/// Orders that follow from one seed.
const BATCH: usize = 50;

/// Orders of each kind that a model goes through by default.
const USUAL: usize = 2000;

/// Orders of each kind within which a planted bug must show.
const TO_SEE_A_BUG: usize = 8000;

/// Thread switches in orders that have few.
const DEPTH: usize = 4;

/// Steps after which a model counts as endless.
const STEPS_MAX: usize = 400_000;

/// What the scheduler says then.
const NO_END: &str = "max_steps";

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
}

/// The seed and the kind of the first batch in which a model fails.
fn first_failure(model: fn(), seed: u64, orders: usize) -> Option<(u64, &'static str)> {
    for batch in 0..orders.div_ceil(BATCH) as u64 {
        let seed = seed + batch;
        let drawn = || Runner::new(RandomScheduler::new_from_seed(seed, BATCH), config()).run(model);
        let few = || Runner::new(PctScheduler::new_from_seed(seed, DEPTH, BATCH), config()).run(model);
        if catch_unwind(AssertUnwindSafe(drawn)).is_err() {
            return Some((seed, "drawn"));
        }
        if catch_unwind(AssertUnwindSafe(few)).is_err() {
            return Some((seed, "of few changes"));
        }
    }
    None
}

#[track_caller]
fn explore((name, model): Model) {
    let seed = number_from("ATOLL_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let orders = number_from("ATOLL_SCHEDULES").map_or(USUAL, |orders| orders as usize);
    println!("ATOLL_SEED={seed}");
    if let Some((seed, kind)) = first_failure(model, seed, orders) {
        panic!("{name} fails in an order {kind}; repeat it with ATOLL_SEED={seed} ATOLL_SCHEDULES={BATCH}");
    }
}

thread_local! {
    /// The first message of a panic on this thread, which runs planted bugs; none on other threads.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the messages of this thread's panics instead of showing them.
fn listen() {
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_planted = SAID.with_borrow_mut(|said| {
            let said = said.as_mut()?;
            if said.is_empty() {
                *said = panic.payload_as_str().unwrap_or("a panic without words").lines().take(2).collect();
            }
            Some(())
        });
        if is_planted.is_none() {
            show(panic);
        }
    }));
}

/// Whether the model fails with the bug planted, and in the same orders not without it; that an order has no
/// end in sight is a sign of no bug here. A thread that ran a failure has seen panics that did not end, so it
/// is not used again.
fn is_seen(bug: Bug, model: fn()) -> bool {
    let run = move || {
        SAID.set(Some(String::new()));
        plant(Some(bug));
        (first_failure(model, 1, TO_SEE_A_BUG), SAID.take().unwrap_or_default())
    };
    let (found, said) = std::thread::spawn(run).join().unwrap();
    let Some((batch, kind)) = found else {
        println!("{bug:?}: NOT SEEN");
        return false;
    };
    println!("{bug:?}: seen in batch {batch}, in an order {kind}: {said}");
    let without = std::thread::spawn(move || first_failure(model, batch, BATCH)).join().unwrap();
    if let Some((_, kind)) = without {
        println!("{bug:?}: NOT SHOWN: an order {kind} of the same batch fails without it");
    }
    without.is_none() && !said.contains(NO_END)
}

macro_rules! models {
    ($($name:ident: $model:path;)*) => {
        $(#[test] fn $name() { explore((stringify!($name), $model)); })*
    };
}

models! {
    a_reader_finds_everything_while_a_leaf_splits: small::reader_against_split;
    writers_of_one_leaf_agree_with_the_log: small::writers_of_one_leaf;
    readers_of_many_leaves_see_a_state_between_two_commits: small::stillness;
    updates_decide_on_what_is_there: small::updates;
    what_is_let_go_of_is_read_back_the_same: memory::eviction;
    a_long_reader_keeps_its_pages: memory::reclamation;
    what_is_put_beside_absent_leaves_is_read_with_them: memory::deltas;
    lookups_beside_leaves_find_what_others_bring_in: memory::lookups_beside;
    values_that_are_moved_are_those_that_are_there: memory::cleaning;
    writers_who_wait_for_room_go_on: memory::room;
    hot_records_are_those_of_the_tree: hot::put_in_place;
    hot_records_show_no_part_of_a_batch: hot::batches;
    hot_records_of_two_leaves_do_not_hide_each_other: hot::of_two_trees;
    what_was_synced_survives: durable::synced;
    nothing_is_written_once_a_store_is_closed: durable::close;
    a_store_is_closed_by_two_threads_at_once: durable::close_at_once;
}

/// The bugs that models must catch, each with its model.
const PLANTED: &[(Bug, fn())] = &[
    (Bug::ForestUnlocked, small::reader_against_split),
    (Bug::LookUnlatched, small::reader_against_split),
    (Bug::LeafUnlatched, small::writers_of_one_leaf),
    (Bug::PlacingUnlocked, small::updates),
    (Bug::StillUnlocked, small::stillness),
    (Bug::ForestUnlocked, memory::eviction),
    (Bug::ReadUnpinned, memory::reclamation),
    (Bug::ReaderNotKept, memory::reclamation),
    (Bug::BroughtInUnseen, memory::lookups_beside),
    (Bug::LeafUnlatched, memory::cleaning),
    (Bug::MovedWithoutLook, memory::cleaning),
    (Bug::RoomUntold, memory::room),
    (Bug::HotTorn, hot::put_in_place),
    (Bug::HotNotChanged, hot::put_in_place),
    (Bug::HotNotForgotten, hot::batches),
    (Bug::SyncCountedAfter, durable::synced),
    (Bug::SyncEndUntold, durable::synced),
    (Bug::SyncSkipped, durable::synced),
    (Bug::CloseUnlocked, durable::close),
];

#[test]
fn each_planted_bug_is_seen() {
    listen();
    let unseen: Vec<Bug> =
        PLANTED.iter().filter(|(bug, model)| !is_seen(*bug, *model)).map(|(bug, _)| *bug).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
    let has_a_model = |bug: &Bug| PLANTED.iter().any(|(planted, _)| planted == bug);
    assert!(Bug::BETWEEN_THREADS.iter().all(has_a_model));
}
