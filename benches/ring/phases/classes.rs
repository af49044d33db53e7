//! Latency classes: many calls that can wait half a second beside a few clients that cannot, at two rings
//! of three nodes.
//!
//! The patient calls are made by one program, with Atoll's own client: at one ring each call is sent at
//! once, on its own connection; at the other the calls have the class of 500 ms. The few others have their
//! own connections and declare the class of 5 ms. Both rings are in memory and on the loopback, get the
//! same load, and take turns.
//!
//! Invariant: the few clients send requests at times that do not depend on when earlier ones were answered,
//! as long as they are answered in time.

mod callers;

use super::{Findings, Scale, in_turn, with_sources};
use crate::client::{Choice, Histogram, Incoming, Operation, SpeakError, Speaker, unexpected};
use crate::report::{Row, median};
use crate::servers::{BenchPaths, Durability, Kind, Ring, ServerError, leader_of};
use atoll_ring_client::LatencyClass;
use callers::{CallError, CallMix, Callers};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const AT_ONCE: &str = "at once";
const GATHERED: &str = "500 ms";
/// The loads of patient calls and their names; the bars are about the last.
const LOADS: [(CallMix, &str); 2] =
    [(CallMix::Only(Operation::Set), ", sets"), (CallMix::SetOrGet, ", sets and gets")];
const SETS: &str = LOADS[0].1;
const MIXED: &str = LOADS[1].1;
const NODES: usize = 3;
/// How many patient calls are under way at a time.
const PATIENT: u32 = 300;
/// How many clients cannot wait, and the interval of their requests.
const BRISK: usize = 9;
const BRISK_EVERY: Duration = Duration::from_millis(10);
/// The deadline of the class, in microseconds.
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

/// One ring with its load.
struct Subject {
    name: &'static str,
    patient: Callers,
    /// The node and the key of each client that cannot wait.
    brisk: Vec<(SocketAddr, Vec<u8>)>,
    _ring: Ring,
}

/// The latencies of clients that cannot wait in one round.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Brisk {
    /// The ring.
    pub server: String,
    /// The round, from 1 on.
    pub round: usize,
    /// In microseconds.
    pub p99_us: f64,
}

/// The results of the phase.
#[derive(Default, serde::Serialize)]
pub struct ClassFindings {
    /// Results of patient calls.
    pub patient: Findings,
    /// Results of clients that cannot wait.
    pub brisk: Vec<Brisk>,
}

/// Measures both rings, round by round; `told` is called at each step.
pub fn run(scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> ClassFindings {
    let mut found = ClassFindings::default();
    if let Err(error) = run_all(scale, place, &mut found, told) {
        found.patient.missing.push((Kind::Atoll, with_sources(&error)));
    }
    found
}

fn run_all(
    scale: Scale,
    place: &BenchPaths,
    found: &mut ClassFindings,
    told: &mut dyn FnMut(&str),
) -> Result<(), ClassesError> {
    let mut subjects = [
        subject(AT_ONCE, LatencyClass::None, scale, place)?,
        subject(GATHERED, LatencyClass::FiveHundred, scale, place)?,
    ];
    for Subject { patient, .. } in &mut subjects {
        patient.run(CallMix::Only(Operation::Set), Choice::EachOnce, 0)?;
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
        let outcome = subject.patient.run(CallMix::Only(Operation::Get), Choice::EachOnce, 0)?;
        found.patient.heed(Kind::Atoll, &outcome);
    }
    Ok(())
}

fn subject(
    name: &'static str,
    latency: LatencyClass,
    scale: Scale,
    place: &BenchPaths,
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
    (wanted, load): (CallMix, &str),
    round: usize,
    scale: Scale,
    found: &mut ClassFindings,
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

/// The latencies that each of the few clients saw.
fn times_of(
    threads: Vec<ScopedJoinHandle<'_, Result<Vec<u64>, SpeakError>>>,
) -> Result<Vec<Vec<u64>>, ClassesError> {
    // All threads are joined before the first error is returned.
    let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    ended.into_iter().map(|times| Ok(times.map_err(|_| ClassesError::Panicked)??)).collect()
}

/// Sets a key repeatedly; returns the nanoseconds from the due time of each set until it was answered.
fn ask_again_and_again(
    address: SocketAddr,
    key: &[u8],
    is_over: &AtomicBool,
) -> Result<Vec<u64>, SpeakError> {
    let mut speaker = Speaker::connect(address)?;
    let class: [&[u8]; 2] = [b"AT.CLASS", b"5"];
    match speaker.say(&class)? {
        Incoming::Status(_) => {}
        heard => return Err(unexpected(&class, &heard)),
    }
    let (mut times, mut due) = (Vec::new(), Instant::now());
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let words: [&[u8]; 3] = [b"SET", key, &[b'v'; 132]];
        match speaker.say(&words)? {
            Incoming::Status(_) => times.push(due.elapsed().as_nanos() as u64),
            heard => return Err(unexpected(&words, &heard)),
        }
        due += BRISK_EVERY;
    }
    Ok(times)
}

impl ClassFindings {
    /// Whether there was no wrong answer, everything finished, and no call waited beyond its deadline.
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
pub fn rows(found: &ClassFindings) -> Vec<Row> {
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
    found: &ClassFindings,
) -> Row {
    for name in [AT_ONCE, GATHERED] {
        let all = of(&format!("{name}{MIXED}"));
        row.peers.extend(median(all.iter().map(|(_, one)| *one)).map(|middle| (name.to_owned(), middle)));
    }
    let mixed = found.patient.measured.iter().filter(|load| load.server.ends_with(MIXED));
    row.judged(ratio(MIXED, of).map(figure), found.spoiled()).beside(super::others_beside(mixed))
}

/// The median over the rounds of gathered relative to at once, for one load.
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
        let mut found = ClassFindings::default();
        for (server, round, p99_us) in [(AT_ONCE, 1, 100.0), (GATHERED, 1, 110.0), (AT_ONCE, 2, 200.0)] {
            found.brisk.push(Brisk { server: format!("{server}{MIXED}"), round, p99_us });
            found.brisk.push(Brisk { server: format!("{server}{SETS}"), round, p99_us: 1.0 });
        }
        let told = rows(&found);
        assert!(told[0].figure.is_none() && !told[0].holds());
        assert!(told[1].figure.is_some_and(|moved| (moved - 10.0).abs() < 1e-9) && told[1].holds());
        assert!(found.is_right());
        found.patient.missing.push((Kind::Atoll, "a client that cannot wait: it was refused".to_owned()));
        assert!(rows(&found).iter().all(|row| !row.holds()) && !found.is_right());
    }
}
