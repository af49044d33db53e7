//! Latency classes: many clients that can wait half a second, beside a few that cannot, at two rings of three
//! nodes.
//!
//! Those who can wait are calls of one program, by the client that Atoll has: at one ring each call asks at
//! once, on a connection to itself; at the other they have the class of 500 ms. The few have connections of
//! their own and say that they have 5 ms. Both rings are in memory and on the loopback, get the same load,
//! and take turns.
//!
//! Invariant: the few ask at moments that do not hang on when they were answered, as long as they are
//! answered in time.

mod callers;

use super::{Findings, Scale, in_turn, with_sources};
use crate::client::{Choice, Heard, Histogram, Operation, SpeakError, Speaker, unexpected};
use crate::report::{Row, median};
use crate::servers::{Durability, Kind, Place, Ring, ServerError, leader_of};
use atoll_ring_client::LatencyClass;
use callers::{CallError, Callers, Wanted};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const AT_ONCE: &str = "at once";
const GATHERED: &str = "500 ms";
/// What the calls that can wait ask for, and how it is called; the bars are about the last.
const LOADS: [(Wanted, &str); 2] =
    [(Wanted::Only(Operation::Set), ", sets"), (Wanted::SetOrGet, ", sets and gets")];
const SETS: &str = LOADS[0].1;
const MIXED: &str = LOADS[1].1;
const NODES: usize = 3;
/// Calls that can wait, under way at a time.
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
    #[error("the calls that can wait")]
    Patient(#[from] CallError),
    #[error("a client that cannot wait")]
    Brisk(#[from] SpeakError),
    #[error("a client that cannot wait panicked: what it saw is missing from the p99 of all of them")]
    Panicked,
}

/// One ring with what it is asked.
struct Subject {
    name: &'static str,
    patient: Callers,
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
    let mut subjects = [
        subject(AT_ONCE, LatencyClass::None, scale, place)?,
        subject(GATHERED, LatencyClass::FiveHundred, scale, place)?,
    ];
    for Subject { patient, .. } in &mut subjects {
        patient.run(Wanted::Only(Operation::Set), Choice::EachOnce, 0)?;
    }
    for round in 0..scale.rounds {
        told(&format!("classes, round {} of {}", round + 1, scale.rounds));
        for load in LOADS {
            for subject in in_turn(&mut subjects, round) {
                run_one(subject, load, round, scale, found)?;
            }
        }
    }
    // Every acknowledged write is looked up.
    for subject in &mut subjects {
        let outcome = subject.patient.run(Wanted::Only(Operation::Get), Choice::EachOnce, 0)?;
        found.patient.heed(Kind::Atoll, &outcome);
    }
    Ok(())
}

fn subject(
    name: &'static str,
    latency: LatencyClass,
    scale: Scale,
    place: &Place,
) -> Result<Subject, ClassesError> {
    let ring = Ring::start_as(name, (NODES, Durability::Memory), place, &[])?;
    let leaders = ring.leaders()?;
    let key_at = |node: usize, client: usize| {
        let mut keys = (0..).map(|number| format!("brisk-{client}-{number}").into_bytes());
        keys.find(|key| leader_of(key, &leaders) == node).unwrap_or_default()
    };
    let brisk = (0..BRISK).map(|client| (ring.addresses[client % NODES], key_at(client % NODES, client)));
    let brisk = brisk.collect();
    let patient = Callers::of((&ring.addresses, ring.processes()), latency, (PATIENT, scale.keys))?;
    Ok(Subject { name, patient, brisk, _ring: ring })
}

fn run_one(
    subject: &mut Subject,
    (wanted, load): (Wanted, &str),
    round: usize,
    scale: Scale,
    found: &mut Found,
) -> Result<(), ClassesError> {
    let is_over = AtomicBool::new(false);
    let Subject { name, patient, brisk, .. } = subject;
    let (patient, seen) = std::thread::scope(|scope| {
        let ask_at = |(address, key): &(SocketAddr, Vec<u8>)| {
            let (address, key, is_over) = (*address, key.clone(), &is_over);
            scope.spawn(move || ask_again_and_again(address, &key, is_over))
        };
        let threads: Vec<_> = brisk.iter().map(ask_at).collect();
        let patient = patient.run(wanted, scale.choice(), round as u64);
        is_over.store(true, Ordering::Release);
        (patient, times_of(threads))
    });
    let name = format!("{name}{load}");
    found.patient.add_as(&name, Kind::Atoll, round + 1, (Operation::Set, 1), patient?);
    let mut latency = Histogram::default();
    for nanoseconds in seen?.into_iter().flatten() {
        latency.add(nanoseconds, 1);
    }
    let p99_us = latency.microseconds_at(0.99).unwrap_or(f64::NAN);
    found.brisk.push(Brisk { server: name, round: round + 1, p99_us });
    Ok(())
}

/// What each of the few saw.
fn times_of(
    threads: Vec<ScopedJoinHandle<'_, Result<Vec<u64>, SpeakError>>>,
) -> Result<Vec<Vec<u64>>, ClassesError> {
    // All are waited for before one of them is told.
    let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    ended.into_iter().map(|times| Ok(times.map_err(|_| ClassesError::Panicked)??)).collect()
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
    /// Whether nothing wrong came, all came to its end, and nobody waited for longer than was promised.
    pub fn is_right(&self) -> bool {
        self.patient.is_right() && self.late().is_none()
    }

    fn late(&self) -> Option<String> {
        let measured = self.patient.measured.iter().filter(|one| one.server.starts_with(GATHERED));
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
    let mut throughput = Row::at_least(bar, "x", 1.3, Some(1.5));
    let kilo = |name: &str| -> Vec<(usize, f64)> {
        let all = found.patient.measured.iter().filter(|one| one.server == name);
        all.map(|one| (one.round, one.kilo_operations)).collect()
    };
    throughput.peers.extend(ratio(SETS, kilo).map(|ratio| ("sets alone, x".to_owned(), ratio)));
    let throughput = compared(throughput, kilo, |ratio| ratio, found);
    let moves = Row::at_most("latency classes: p99 of the 5 ms class moves", "%", 20.0, Some(10.0));
    let p99 = |name: &str| -> Vec<(usize, f64)> {
        found.brisk.iter().filter(|one| one.server == name).map(|one| (one.round, one.p99_us)).collect()
    };
    let moves = compared(moves, p99, |ratio| (ratio - 1.0) * 100.0, found);
    vec![throughput, moves]
}

/// A row about the mixed load.
fn compared(
    mut row: Row,
    of: impl Fn(&str) -> Vec<(usize, f64)>,
    figure: fn(f64) -> f64,
    found: &Found,
) -> Row {
    for name in [AT_ONCE, GATHERED] {
        let all = of(&format!("{name}{MIXED}"));
        row.peers.extend(median(all.iter().map(|(_, one)| *one)).map(|middle| (name.to_owned(), middle)));
    }
    row.judged(ratio(MIXED, of).map(figure), found.spoiled())
}

/// The median over the rounds of gathered over at once, of one load.
fn ratio(load: &str, of: impl Fn(&str) -> Vec<(usize, f64)>) -> Option<f64> {
    let [at_once, gathered] = [AT_ONCE, GATHERED].map(|name| of(&format!("{name}{load}")));
    median(gathered.iter().filter_map(|(round, one)| {
        let (_, other) = at_once.iter().find(|(other, _)| other == round)?;
        Some(one / other)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_panics_does_not_vanish_from_what_the_few_saw() {
        let ended = |panics: bool| {
            std::thread::scope(|scope| {
                let well = scope.spawn(|| Ok(vec![7]));
                let other =
                    scope.spawn(move || if panics { panic!("a client is broken") } else { Ok(vec![9]) });
                times_of(vec![well, other])
            })
        };
        assert!(ended(false).is_ok_and(|times| times == [[7], [9]]));
        assert!(matches!(ended(true), Err(ClassesError::Panicked)));
    }

    #[test]
    fn the_few_are_held_against_those_of_the_same_round_and_what_was_not_measured_does_not_hold() {
        let mut found = Found::default();
        for (server, round, p99_us) in [(AT_ONCE, 1, 100.0), (GATHERED, 1, 110.0), (AT_ONCE, 2, 200.0)] {
            found.brisk.push(Brisk { server: format!("{server}{MIXED}"), round, p99_us });
            found.brisk.push(Brisk { server: format!("{server}{SETS}"), round, p99_us: 1.0 });
        }
        let told = rows(&found);
        assert!(told[0].figure.is_none() && !told[0].holds);
        assert!(told[1].figure.is_some_and(|moved| (moved - 10.0).abs() < 1e-9) && told[1].holds);
        assert!(found.is_right());
        found.patient.missing.push((Kind::Atoll, "a client that cannot wait: it was refused".to_owned()));
        assert!(rows(&found).iter().all(|row| !row.holds) && !found.is_right());
    }
}
