//! Latency classes: many clients that can wait half a second, beside a few that cannot, at two rings of three nodes.
//!
//! One ring executes everything when it comes; the other one gives its clients the class of 500 ms, but for those few, which say
//! that they have 5 ms. Both are in memory and on the loopback, get the same load from the same client, and take turns.
//!
//! Invariant: the few ask at moments that do not hang on when they were answered, as long as they are answered in time.

use super::{Findings, Scale, Side, in_turn, with_sources};
use crate::client::{
    Choice, Heard, Histogram, LoadError, Operation, Pieces, SpeakError, Speaker, unexpected,
};
use crate::phases::Ask;
use crate::report::{Row, median};
use crate::servers::{Durability, Kind, Place, Ring, ServerError, leader_of};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const AT_ONCE: &str = "at once";
const GATHERED: &str = "500 ms";
const NODES: usize = 3;
/// Clients that can wait, each with one request under way.
const PATIENT: u32 = 300;
/// Clients that cannot, and how often each asks.
const BRISK: usize = 9;
const BRISK_EVERY: Duration = Duration::from_millis(10);
/// What the class promises, in microseconds.
const PROMISE_US: f64 = 500_000.0;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
enum ClassesError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot learn who leads what")]
    Leaders(#[from] io::Error),
    #[error("the clients that can wait")]
    Patient(#[from] LoadError),
    #[error("a client that cannot wait")]
    Brisk(#[from] SpeakError),
}

/// One ring with what it is asked.
struct Subject {
    side: Side,
    /// Where the few ask, and about which key.
    brisk: Vec<(SocketAddr, Vec<u8>)>,
    _ring: Ring,
}

/// What the few saw in one round.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Brisk {
    /// At which ring.
    pub server: String,
    /// From 1 on.
    pub round: usize,
    /// Microseconds.
    pub p99_us: f64,
}

/// What the phase found.
#[derive(Default, serde::Serialize)]
pub struct Found {
    /// Of those that can wait.
    pub patient: Findings,
    /// Of those that cannot.
    pub brisk: Vec<Brisk>,
}

/// Measures both rings, round by round; `told` hears of each step.
pub fn run(scale: Scale, place: &Place, told: &mut dyn FnMut(&str)) -> Found {
    let mut found = Found::default();
    if let Err(error) = run_all(scale, place, &mut found, told) {
        found.patient.missing.push((Kind::Atoll, with_sources(&error)));
    }
    found
}

fn run_all(
    scale: Scale,
    place: &Place,
    found: &mut Found,
    told: &mut dyn FnMut(&str),
) -> Result<(), ClassesError> {
    let pieces = Pieces::seeded(3);
    let mut subjects = [subject(AT_ONCE, &[], scale, place)?, subject(GATHERED, &["500"], scale, place)?];
    for round in 0..scale.rounds {
        told(&format!("classes, round {} of {}", round + 1, scale.rounds));
        for subject in in_turn(&mut subjects, round) {
            run_one(subject, round, scale, &pieces, found)?;
        }
    }
    // Every acknowledged write is looked up.
    for subject in &mut subjects {
        let ask = Ask { operation: Operation::Get, depth: 1, choice: Choice::EachOnce, seed: 0 };
        let (_, outcome) = subject.side.run(&ask, &pieces)?;
        found.patient.heed(Kind::Atoll, &outcome);
    }
    Ok(())
}

fn subject(name: &'static str, class: &[&str], scale: Scale, place: &Place) -> Result<Subject, ClassesError> {
    let more: Vec<&str> = class.iter().flat_map(|class| ["--latency-class", class]).collect();
    let ring = Ring::start_as(name, (NODES, Durability::Memory), place, &more)?;
    let leaders = ring.leaders()?;
    let key_at = |node: usize, client: usize| {
        let mut keys = (0..).map(|number| format!("brisk-{client}-{number}").into_bytes());
        keys.find(|key| leader_of(key, &leaders) == node).unwrap_or_default()
    };
    let brisk = (0..BRISK).map(|client| (ring.addresses[client % NODES], key_at(client % NODES, client)));
    let brisk = brisk.collect();
    Ok(Subject { side: Side::of_ring(name, &ring, scale.keys, PATIENT)?, brisk, _ring: ring })
}

fn run_one(
    subject: &mut Subject,
    round: usize,
    scale: Scale,
    pieces: &Pieces,
    found: &mut Found,
) -> Result<(), ClassesError> {
    let ask = Ask { operation: Operation::Set, depth: 1, choice: scale.choice(), seed: round as u64 };
    let (is_over, name) = (AtomicBool::new(false), subject.side.name);
    let (side, brisk) = (&mut subject.side, &subject.brisk);
    let (patient, seen) = std::thread::scope(|scope| {
        let ask_at = |(address, key): &(SocketAddr, Vec<u8>)| {
            let (address, key, is_over) = (*address, key.clone(), &is_over);
            scope.spawn(move || ask_again_and_again(address, &key, is_over))
        };
        let threads: Vec<_> = brisk.iter().map(ask_at).collect();
        let patient = side.run(&ask, pieces);
        is_over.store(true, Ordering::Release);
        let seen: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        (patient, seen)
    });
    let (work, outcome) = patient?;
    found.patient.add_as(name, Kind::Atoll, round + 1, &work, outcome);
    let mut latency = Histogram::default();
    for times in seen {
        times?.into_iter().for_each(|nanoseconds| latency.add(nanoseconds, 1));
    }
    let p99_us = latency.microseconds_at(0.99).unwrap_or(f64::NAN);
    found.brisk.push(Brisk { server: name.to_owned(), round: round + 1, p99_us });
    Ok(())
}

/// Sets a key again and again; how long each took, in nanoseconds from the moment at which it was due.
fn ask_again_and_again(
    address: SocketAddr,
    key: &[u8],
    is_over: &AtomicBool,
) -> Result<Vec<u64>, SpeakError> {
    let mut speaker = Speaker::connect(address)?;
    let class: [&[u8]; 2] = [b"AT.CLASS", b"5"];
    match speaker.say(&class)? {
        Heard::Status(_) => {}
        heard => return Err(unexpected(&class, &heard)),
    }
    let (mut times, mut due) = (Vec::new(), Instant::now());
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let words: [&[u8]; 3] = [b"SET", key, &[b'v'; 132]];
        match speaker.say(&words)? {
            Heard::Status(_) => times.push(due.elapsed().as_nanos() as u64),
            heard => return Err(unexpected(&words, &heard)),
        }
        due += BRISK_EVERY;
    }
    Ok(times)
}

impl Found {
    /// Whether nothing wrong came, and nobody waited for longer than was promised.
    pub fn is_right(&self) -> bool {
        self.patient.wrong.is_empty() && self.late().is_none()
    }

    fn late(&self) -> Option<String> {
        let measured = self.patient.of(GATHERED, Operation::Set, 1);
        let slowest = measured.map(|measured| measured.p999_us).fold(0.0, f64::max);
        (slowest > PROMISE_US)
            .then(|| format!("one in a thousand of the 500 ms class took {:.0} ms", slowest / 1e3))
    }

    fn spoiled(&self) -> Option<String> {
        self.patient.spoiled().or_else(|| self.late())
    }
}

/// The bars of this phase.
pub fn rows(found: &Found) -> Vec<Row> {
    let bar = "latency classes: mixed load, throughput of the 500 ms class over alone-at-once";
    let throughput = Row::at_least(bar, "x", 1.3, Some(1.5));
    let of = |name| found.patient.of(name, Operation::Set, 1).map(|one| (one.round, one.kilo_operations));
    let throughput =
        compared(throughput, of(AT_ONCE).collect(), of(GATHERED).collect(), |ratio| ratio, found);
    let moves = Row::at_most("latency classes: p99 of the 5 ms class moves", "%", 20.0, Some(10.0));
    let of =
        |name| found.brisk.iter().filter(move |one| one.server == name).map(|one| (one.round, one.p99_us));
    let as_percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let moves = compared(moves, of(AT_ONCE).collect(), of(GATHERED).collect(), as_percent, found);
    vec![throughput, moves]
}

fn compared(
    mut row: Row,
    at_once: Vec<(usize, f64)>,
    gathered: Vec<(usize, f64)>,
    figure: fn(f64) -> f64,
    found: &Found,
) -> Row {
    for (name, all) in [(AT_ONCE, &at_once), (GATHERED, &gathered)] {
        row.peers.extend(median(all.iter().map(|(_, one)| *one)).map(|middle| (name.to_owned(), middle)));
    }
    let ratios = gathered.iter().filter_map(|(round, one)| {
        let (_, other) = at_once.iter().find(|(other, _)| other == round)?;
        Some(one / other)
    });
    row.judged(median(ratios).map(figure), found.spoiled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_few_are_held_against_those_of_the_same_round_and_what_was_not_measured_does_not_hold() {
        let mut found = Found::default();
        for (server, round, p99_us) in [(AT_ONCE, 1, 100.0), (GATHERED, 1, 110.0), (AT_ONCE, 2, 200.0)] {
            found.brisk.push(Brisk { server: server.to_owned(), round, p99_us });
        }
        let told = rows(&found);
        assert!(told[0].figure.is_none() && !told[0].holds);
        assert!(told[1].figure.is_some_and(|moved| (moved - 10.0).abs() < 1e-9) && told[1].holds);
        found.patient.missing.push((Kind::Atoll, "not offered".to_owned()));
        assert!(rows(&found).iter().all(|row| !row.holds));
    }
}
