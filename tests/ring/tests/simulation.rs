//! The ring in a failing world: what clients are told can be explained, and everything recovers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use atoll_ring_simulation::soak::{Tally, run_seeds, shows};
use atoll_ring_simulation::{Case, Flaw, Reads, run_seed, tell_seed};

const SEEDS: u64 = 2000;
/// The number of seeds with confirmed reads and with clocks that cannot be trusted.
const CONFIRMED_SEEDS: u64 = 500;
/// The percentage of runs in which enough must happen for them to prove something.
const ENOUGH_PERCENT_MIN: u64 = 90;
/// The number of seeds that are run twice.
const TWICE: u64 = 20;

fn assert_nothing_broken(tally: &Tally, asked: u64) {
    for violation in &tally.violations {
        eprintln!(
            "{violation}\n  replay: cargo run --release -p atoll-ring-simulation -- --seed {}",
            violation.seed
        );
    }
    assert_eq!(tally.violations.len(), 0, "seeds that broke a promise");
    assert_eq!(tally.seeds, asked);
}

#[test]
fn what_clients_are_told_has_an_order_everything_comes_back_and_every_fault_occurs() {
    let tally = run_seeds(0, SEEDS, &Case::default(), false);
    for (name, count) in tally.counts.all() {
        println!("{name:40} {count}");
    }
    let Tally { operations, definite, too_little, seeds, .. } = &tally;
    println!(
        "{definite} of {operations} operations ended definitely, {too_little} of {seeds} runs prove too little"
    );
    assert_nothing_broken(&tally, SEEDS);
    let never = tally.counts.never();
    assert!(never.is_empty(), "never occurred in {SEEDS} seeds: {never:?}");
    let enough = seeds - too_little;
    assert!(enough * 100 >= seeds * ENOUGH_PERCENT_MIN, "only {enough} of {seeds} runs prove anything");
}

#[test]
fn clocks_may_go_as_they_like_where_reads_are_confirmed() {
    let case = Case { reads: Some(Reads::Confirmed), ..Case::default() };
    assert_nothing_broken(&run_seeds(SEEDS, CONFIRMED_SEEDS, &case, false), CONFIRMED_SEEDS);
}

/// The number of seeds without faults, and how many moves of a slot in a thousand must be as short as is
/// promised.
const PEACE_SEEDS: u64 = 200;
const SHORT_THOUSANDTHS: usize = 990;
/// The longest time for which a moving slot is not served.
const PAUSE_US_MAX: u64 = 50_000;

#[test]
fn where_nothing_fails_nodes_join_and_leave_and_every_request_is_answered_soon() {
    let tally = run_seeds(0, PEACE_SEEDS, &Case::planned(), false);
    println!("{}", tally.pauses_in_words());
    assert_nothing_broken(&tally, PEACE_SEEDS);
    for name in ["nodes_left", "restarts", "slots_handed_over", "copies_dropped"] {
        assert!(tally.counts.of(name) > PEACE_SEEDS, "{name}: {}", tally.counts.of(name));
    }
    assert_eq!(tally.counts.of("writes_unknown_to_a_former_primary"), 0);
    assert!(tally.pauses_us.len() as u64 > 10 * PEACE_SEEDS);
    assert!(tally.pause_us(SHORT_THOUSANDTHS) <= PAUSE_US_MAX, "{}", tally.pauses_in_words());
}

/// The number of seeds after which a mistake around the protocol counts as missed.
const FLAW_SEEDS: u64 = 20_000;

/// Mistakes that the protocol's own assertions detect first.
const ASSERTING: [Flaw; 0] = [];

#[test]
fn what_breaks_what_the_protocol_relies_on_is_seen() {
    let (mut missed, mut doubted) = (Vec::new(), Vec::new());
    for flaw in Flaw::ALL {
        let tally = run_seeds(0, FLAW_SEEDS, &Case::flawed(flaw), true);
        match tally.violations.first() {
            Some(violation) => {
                println!("{flaw:?}: seen after {} seeds: {violation}", tally.seeds);
                let sound = Case { flaw: None, ..Case::flawed(flaw) };
                let shown = shows(violation, ASSERTING.contains(&flaw), |seed| run_seed(seed, &sound));
                doubted.extend(shown.err().map(|why| (flaw, why)));
            }
            None => missed.push(flaw),
        }
    }
    assert!(doubted.is_empty(), "not shown to be seen: {doubted:#?}");
    assert!(missed.is_empty(), "not seen in {FLAW_SEEDS} seeds: {missed:?}");
}

#[test]
fn a_seed_repeats_itself_step_by_step() {
    for seed in 0..TWICE {
        // Another thread seeds its hashers differently: nothing may depend on their order.
        let other = std::thread::spawn(move || tell_seed(seed, &Case::default()));
        let story = tell_seed(seed, &Case::default());
        let other = other.join().unwrap();
        let parted = story.lines.iter().zip(&other.lines).find(|(one, other)| one != other);
        assert_eq!(parted, None, "seed {seed} took another course");
        assert_eq!(story.lines.len(), other.lines.len(), "seed {seed} took another course");
        assert_eq!(story.outcome.unwrap(), other.outcome.unwrap(), "seed {seed} ended otherwise");
    }
}

#[test]
fn a_seed_does_the_same_whether_it_is_told_or_not() {
    for seed in 0..TWICE {
        let told = tell_seed(seed, &Case::default()).outcome.unwrap();
        assert_eq!(told, run_seed(seed, &Case::default()).unwrap(), "seed {seed}");
    }
}
