//! Ranges of seeds: which of them fail, and how often each thing came about.
//!
//! `ATOLL_SEED=N ATOLL_SEEDS=M` selects M seeds from N on, which then run on all cores; `cargo xtask soak
//! council` goes on with fresh ones. A run prints a line for the ledger.

use super::{Mistake, ran};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Raised when what happens to members or what is checked changes, so that the count starts again.
const FORMAT: u64 = 2;

/// How many seeds run by default.
const SEEDS: u64 = 40;

/// In fewer seeds than these, something may never come about by chance.
const SEEDS_TO_SEE_ALL: u64 = 20;

/// What must come about. A soak in which one of these never did proves little.
const EXPECTED: [&str; 23] = [
    "changes answered",
    "changes not answered",
    "cuts",
    "cuts one way",
    "healed",
    "leaders crashed",
    "leaders elected",
    "leads confirmed",
    "leads not confirmed",
    "logs cut",
    "logs lost",
    "members back",
    "members crashed",
    "messages cut off",
    "messages doubled",
    "messages late",
    "messages lost",
    "seats replaced",
    "snapshots installed",
    "snapshots made",
    "snapshots sent",
    "starts from a snapshot",
    "votes asked for",
];

/// The results of some seeds.
#[derive(Default)]
struct Tally {
    failed: Vec<u64>,
    counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Runs a seed and adds its result.
    fn take(&mut self, seed: u64) {
        match ran(seed, Mistake::None) {
            Ok(counts) => self.add(Self { failed: Vec::new(), counts }),
            Err(_) => {
                eprintln!("seed {seed} fails; replay it with {}", replay(seed));
                self.failed.push(seed);
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.failed.extend(other.failed);
        self.failed.sort_unstable();
        for (what, times) in other.counts {
            *self.counts.entry(what).or_default() += times;
        }
    }

    /// What never came about, although it must.
    fn never(&self) -> Vec<&'static str> {
        EXPECTED.into_iter().filter(|what| !self.counts.contains_key(what)).collect()
    }

    /// A line for the ledger. What never came about is in it too.
    fn line(&self, seeds: &Range<u64>) -> String {
        let mut counts: BTreeMap<_, _> = EXPECTED.into_iter().map(|what| (what, 0)).collect();
        counts.extend(&self.counts);
        serde_json::json!({
            "soak": "council",
            "format": FORMAT,
            "seed_from": seeds.start,
            "seeds": seeds.end - seeds.start,
            "failures": self.failed.len(),
            "failed_seeds": self.failed,
            "counts": counts,
        })
        .to_string()
    }
}

fn replay(seed: u64) -> String {
    format!(
        "ATOLL_SEED={seed} ATOLL_SEEDS=1 cargo test -p atoll-council --lib simulation::soak -- --nocapture"
    )
}

/// Runs all of these seeds.
fn run(seeds: &Range<u64>, threads: usize) -> Tally {
    let (next, mut total) = (AtomicU64::new(seeds.start), Tally::default());
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return tally;
            }
            tally.take(seed);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| total.add(worker.join().unwrap()));
    });
    total
}

/// The seeds to run, and on how many threads. Unless somebody asks for seeds, one thread is left to the other
/// tests, some of which measure time.
#[allow(clippy::disallowed_methods, reason = "a test reads which seeds it is asked for")]
fn asked() -> (Range<u64>, usize) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, count) = (number("ATOLL_SEED"), number("ATOLL_SEEDS"));
    let is_asked = first.is_some() || count.is_some();
    let threads = if is_asked { thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    let first = first.unwrap_or(0);
    (first..first + count.unwrap_or(SEEDS), threads)
}

#[test]
fn members_apply_the_same_whatever_happens_to_them() {
    let (seeds, threads) = asked();
    let count = seeds.end - seeds.start;
    let tally = run(&seeds, threads);
    println!("{}", tally.line(&seeds));
    assert!(tally.failed.is_empty(), "{} of {count} seeds fail: {:?}", tally.failed.len(), tally.failed);
    let never = tally.never();
    assert!(never.is_empty() || count < SEEDS_TO_SEE_ALL, "never came about in {count} seeds: {never:?}");
}

#[test]
fn mistakes_are_noticed() {
    for mistake in [Mistake::SeatKept, Mistake::LeadNotConfirmed, Mistake::SnapshotBehind] {
        assert!((0..60).any(|seed| ran(seed, mistake).is_err()), "{mistake:?}");
    }
}

#[test]
fn a_line_says_which_seeds_failed_and_what_never_came_about() {
    let mut tally = Tally { failed: vec![9], counts: BTreeMap::from([("cuts", 3)]) };
    tally.add(Tally { failed: vec![7], counts: BTreeMap::from([("cuts", 1), ("healed", 2)]) });
    let line: serde_json::Value = serde_json::from_str(&tally.line(&(5..10))).unwrap();
    let told = ["seed_from", "seeds", "failures"].map(|name| line[name].as_u64().unwrap());
    assert_eq!(told, [5, 5, 2]);
    assert_eq!(line["failed_seeds"], serde_json::json!([7, 9]));
    let counted = ["cuts", "healed", "seats replaced"].map(|what| line["counts"][what].as_u64().unwrap());
    assert_eq!(counted, [4, 2, 0]);
    let never = tally.never();
    assert!(never.contains(&"seats replaced") && !never.contains(&"cuts"), "{never:?}");
    assert_eq!(never.len(), EXPECTED.len() - 2);
}
