//! Fail-over: a primary is killed with -9 under load, repeatedly; measures how soon its slots accept
//! writes.
//!
//! One ring of three nodes with three copies lives through all rounds. In half of them the victim leads the
//! configuration group, in the others it does not. Every probed slot was led by the victim; the figure of a
//! round is that of the slowest slot.
//!
//! Invariant: no time is measured before every slot has three copies in sync and every node leads its
//! share.

mod report;
mod round;

pub use report::{is_right, print, rows};

use crate::local::{Keeping, LocalError, LocalRing};
use crate::phases::with_sources;
use crate::schedules::{Asker, Book, Counts, Lane, look_up};
use crate::servers::BenchPaths;
use round::Round;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How many rounds the bar is about.
pub const ROUNDS: usize = 40;
/// How many rounds make a first look.
pub const ROUNDS_QUICK: usize = 6;
const NODES: usize = 3;
/// How many clients run beside the probes.
const CLIENTS: usize = 12;
/// How long these wait for an answer.
const PATIENCE: Duration = Duration::from_millis(2_500);
const START_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(60);
const SEED: u64 = 29;

/// The results of the phase.
#[derive(Debug, Default, serde::Serialize)]
pub struct Findings {
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// What clients did and found.
    pub counts: Counts,
    /// Descriptions of the first wrong results.
    pub told: Vec<String>,
    /// Total duration in seconds.
    pub seconds: f64,
    /// Why rounds are missing, if any are.
    pub missing: Option<String>,
}

/// Runs this many rounds; `told` is called at each.
pub fn run(rounds: usize, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let begun_at = Instant::now();
    let mut findings = Findings::default();
    let book = Arc::new(Book::new(CLIENTS));
    let ended = measure(rounds, place, &book, &mut findings, told);
    findings.missing = ended.err().map(|error| with_sources(&error));
    (findings.counts, findings.told) = (book.counts(), book.told());
    findings.seconds = begun_at.elapsed().as_secs_f64();
    findings
}

fn measure(
    rounds: usize,
    place: &BenchPaths,
    book: &Arc<Book>,
    findings: &mut Findings,
    told: &mut dyn FnMut(&str),
) -> Result<(), LocalError> {
    let mut ring =
        LocalRing::new(&place.folder.join("failover"), place.atoll.as_deref(), Keeping::Flushed, NODES)?;
    for node in 0..NODES {
        ring.start_node(node)?;
    }
    ring.wait_until_whole(START_TIME_MAX)?;
    let mut random = fastrand::Rng::with_seed(SEED);
    let (stop, addresses) = (AtomicBool::new(false), ring.addresses());
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let seed = SEED.wrapping_mul(1_000).wrapping_add(number as u64);
            let asker = Asker::new(&addresses, LocalRing::TOKEN, PATIENCE, seed);
            let lane = Lane::new(number, asker, Arc::clone(book), seed);
            let stop = &stop;
            scope.spawn(move || lane.run(stop));
        }
        let played = (0..rounds).try_for_each(|number| {
            let round = round::run(&mut ring, number, &mut random)?;
            told(&format!("fail-over, round {} of {rounds}: {round}", number + 1));
            findings.rounds.push(round);
            Ok::<(), LocalError>(())
        });
        stop.store(true, SeqCst);
        played
    })?;
    let mut asker = Asker::new(&addresses, LocalRing::TOKEN, PATIENCE, SEED);
    look_up(&mut asker, book, LOOK_UP_TIME_MAX);
    Ok(())
}
