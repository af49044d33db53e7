//! The ring in a world that fails: what clients are told can be explained, and everything comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use atoll_ring_simulation::soak::{Tally, run_seeds};
use atoll_ring_simulation::{Case, tell_seed};

const SEEDS: u64 = 500;
/// Seeds that are run twice.
const TWICE: u64 = 20;

fn assert_nothing_broken(tally: &Tally) {
    for violation in &tally.violations {
        eprintln!(
            "{violation}\n  replay: cargo run --release -p atoll-ring-simulation -- --seed {}",
            violation.seed
        );
    }
    assert_eq!(tally.violations.len(), 0, "seeds that broke a promise");
}

#[test]
fn what_clients_are_told_has_an_order_and_everything_comes_back() {
    assert_nothing_broken(&run_seeds(0, SEEDS, &Case::default(), false));
}

#[test]
fn a_seed_repeats_itself_step_by_step() {
    for seed in 0..TWICE {
        // In another thread hashers are seeded differently: nothing may hang on their order.
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
        assert_eq!(told, atoll_ring_simulation::run_seed(seed, &Case::default()).unwrap(), "seed {seed}");
    }
}
