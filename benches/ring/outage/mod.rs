//! Total outage: all nodes are killed with -9 under load and started again; every acknowledged write must
//! survive.
//!
//! One ring of three nodes for each durability lives through all its rounds: start, write to every slot,
//! look up every write that was ever acknowledged, apply load, kill at a random moment.
//!
//! This detects what is lost with a process, not what is lost with the power: the page cache stays, so a
//! node that never syncs would pass as well. With respect to lost writes both durabilities are the same
//! experiment.
//!
//! Invariant: there are no writes while acknowledged ones are looked up, so a missing write is lost.

mod report;

pub use report::{is_right, print, rows};

use crate::local::{Keeping, LocalError, LocalRing};
use crate::phases::with_sources;
use crate::schedules::{Asker, Book, Counts, Lane, look_up, write_every_slot};
use crate::servers::BenchPaths;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How many rounds of each durability the bar is about.
pub const ROUNDS: usize = 25;
/// How many rounds make a first look.
pub const ROUNDS_QUICK: usize = 3;
const NODES: usize = 3;
const CLIENTS: usize = 16;
/// How long clients wait for an answer.
const PATIENCE: Duration = Duration::from_millis(2_500);
/// The limit until every slot accepts writes again.
const SERVED_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(60);
/// How long the load lasts before all nodes are killed.
const LOAD_MS: std::ops::Range<u64> = 150..1_500;
/// All signals are sent within this time.
const KILL_SPAN_MS: u64 = 30;
const SEED: u64 = 25;

/// One round.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Round {
    /// How long clients wrote before the kill.
    pub load_ms: u64,
    /// Writes acknowledged in this round.
    pub acknowledged: u64,
    /// Seconds from restarting the killed processes until every slot accepted a write.
    pub seconds: f64,
}

/// The results for one durability.
#[derive(Debug, serde::Serialize)]
pub struct OfKeeping {
    /// The durability.
    pub keeping: Keeping,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// What clients did and found.
    pub counts: Counts,
    /// Descriptions of the first wrong results.
    pub told: Vec<String>,
    /// Why rounds are missing, if any are.
    pub missing: Option<String>,
}

/// The results of the phase.
#[derive(Debug, Default, serde::Serialize)]
pub struct Findings {
    /// By durability.
    pub measured: Vec<OfKeeping>,
    /// Total duration in seconds.
    pub seconds: f64,
}

/// Runs this many rounds of each durability; `told` is called at each.
pub fn run(rounds: usize, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let begun_at = Instant::now();
    let measured = [Keeping::Synced, Keeping::Flushed].map(|keeping| {
        let book = Arc::new(Book::new(CLIENTS));
        let mut of = OfKeeping {
            keeping,
            rounds: Vec::new(),
            counts: Counts::default(),
            told: Vec::new(),
            missing: None,
        };
        let ended = measure(rounds, place, &book, &mut of, told);
        of.missing = ended.err().map(|error| with_sources(&error));
        (of.counts, of.told) = (book.counts(), book.told());
        of
    });
    Findings { measured: measured.into(), seconds: begun_at.elapsed().as_secs_f64() }
}

fn measure(
    rounds: usize,
    place: &BenchPaths,
    book: &Arc<Book>,
    of: &mut OfKeeping,
    told: &mut dyn FnMut(&str),
) -> Result<(), LocalError> {
    let folder = place.folder.join(format!("outage-{}", of.keeping.name()));
    let mut ring = LocalRing::new(&folder, place.atoll.as_deref(), of.keeping, NODES)?;
    let mut random = fastrand::Rng::with_seed(SEED ^ of.keeping as u64);
    start(&mut ring)?;
    for number in 0..rounds {
        let (load_ms, acknowledged) = kill_under_load(&mut ring, book, &mut random)?;
        let seconds = start(&mut ring)?;
        let mut asker = asker(&ring, SEED + number as u64);
        look_up(&mut asker, book, LOOK_UP_TIME_MAX);
        let lost = book.counts().lost;
        told(&format!(
            "total outage, {}, round {} of {rounds}: {acknowledged} writes in {load_ms} ms, served after {seconds:.2} s, lost {lost}",
            of.keeping.name(),
            number + 1,
        ));
        of.rounds.push(Round { load_ms, acknowledged, seconds });
        ring.look_for_crashes()?;
    }
    Ok(())
}

fn asker(ring: &LocalRing, seed: u64) -> Asker {
    Asker::new(&ring.addresses(), LocalRing::TOKEN, PATIENCE, seed)
}

/// Starts all nodes; returns the seconds until every slot accepted a write.
fn start(ring: &mut LocalRing) -> Result<f64, LocalError> {
    let started_at = Instant::now();
    for node in 0..NODES {
        ring.start_node(node)?;
    }
    write_every_slot(&mut asker(ring, SEED), NODES, SERVED_TIME_MAX)?;
    Ok(started_at.elapsed().as_secs_f64())
}

/// Lets clients write until all nodes are killed; returns how long that was, and how many writes were
/// acknowledged.
fn kill_under_load(
    ring: &mut LocalRing,
    book: &Arc<Book>,
    random: &mut fastrand::Rng,
) -> Result<(u64, u64), LocalError> {
    let before = book.counts().acknowledged;
    let load_ms = random.u64(LOAD_MS);
    let mut order: Vec<usize> = (0..NODES).collect();
    random.shuffle(&mut order);
    let gaps: Vec<u64> = order.iter().map(|_| random.u64(..KILL_SPAN_MS / NODES as u64)).collect();
    let stop = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let lane = Lane::new(number, asker(ring, random.u64(..)), Arc::clone(book), random.u64(..));
            let stop = &stop;
            scope.spawn(move || lane.run(stop));
        }
        std::thread::sleep(Duration::from_millis(load_ms));
        let killed = order.iter().zip(&gaps).try_for_each(|(node, gap_ms)| {
            std::thread::sleep(Duration::from_millis(*gap_ms));
            ring.kill(&[*node]).map(drop)
        });
        // By then the writes under way at the death of the last node have been reported as unknown.
        let buried = killed.and_then(|()| ring.bury(&order));
        stop.store(true, SeqCst);
        buried
    });
    killed?;
    Ok((load_ms, book.counts().acknowledged - before))
}
