//! The phases: measurements round by round, with all servers in turn.

mod always;
mod bare;
mod classes;
mod copies;
mod side;
mod throughput;

pub use always::{rows as always_rows, run as always};
pub use classes::{rows as classes_rows, run as classes};
pub use copies::{rows as copies_rows, run as copies};
pub use side::{Ask, Side};
pub use throughput::{rows as throughput_rows, run as throughput};

use crate::client::{Choice, LoadError, Model, Operation, Outcome, Pieces, Refill, Work};
use crate::cut::Times;
use crate::machine::processors;
use crate::report::median;
use crate::servers::{Kind, Server};
use std::error::Error;
use std::time::Duration;

/// How many clients send requests at the same time.
pub const CLIENTS: u32 = 50;
/// How many requests a pipelining client sends before it waits.
pub const DEPTH: usize = 16;
/// The operations, in this order. Appends are last: they run for a time and not for a count, so a faster
/// server has longer values afterwards.
const OPERATIONS: [Operation; 3] = [Operation::Set, Operation::Get, Operation::Append];

/// The prefix of a reason that is not a failure of Atoll's: there was nothing to measure, or it could not
/// run here.
pub const NOT_OFFERED: &str = "not offered";

/// Whether the reason is a failure, as opposed to not being offered: then the bench fails.
pub fn is_failure(why: &str) -> bool {
    !why.starts_with(NOT_OFFERED)
}

/// The scale of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Scale {
    /// How many keys.
    pub keys: u32,
    /// How many rounds; figures are medians over them.
    pub rounds: usize,
    /// Milliseconds of each load that do not count.
    pub warm_ms: u64,
    /// Milliseconds of each load that count.
    pub measured_ms: u64,
}

impl Scale {
    /// The scale that the bars are about.
    pub const FULL: Self = Self { keys: 100_000, rounds: 5, warm_ms: 300, measured_ms: 2_000 };
    /// The scale of a first look.
    pub const QUICK: Self = Self { rounds: 2, measured_ms: 1_000, ..Self::FULL };

    /// A very short round, to try the bench itself.
    pub const fn trial(keys: u32) -> Self {
        Self { keys, rounds: 1, warm_ms: 20, measured_ms: 100 }
    }

    /// The durations of cut and heal.
    pub const fn cut_times(self) -> Times {
        // Redis recovers after its timeout of 5 s and an election; a shorter cut would not show that.
        match self.measured_ms {
            2_000.. => Times { before_ms: 3_000, cut_ms: 17_000 },
            _ => Times { before_ms: 2_000, cut_ms: 12_000 },
        }
    }

    pub const fn choice(self) -> Choice {
        Choice::Random {
            warm: Duration::from_millis(self.warm_ms),
            measured: Duration::from_millis(self.measured_ms),
        }
    }
}

/// The figures of one load on one server.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Measured {
    /// The server.
    pub server: String,
    /// The round, from 1 on.
    pub round: usize,
    /// The operation.
    pub operation: Operation,
    /// How many requests a client sends before it waits.
    pub depth: usize,
    /// Thousands of operations a second.
    pub kilo_operations: f64,
    /// In microseconds.
    pub p50_us: f64,
    /// In microseconds.
    pub p99_us: f64,
    /// In microseconds.
    pub p999_us: f64,
    /// Microseconds of the server's CPU time per operation.
    pub server_cpu_us: Option<f64>,
    /// How many processors the server used.
    pub server_processors: Option<f64>,
    /// How many processors the client used; it has one thread.
    pub client_processors: Option<f64>,
    /// Share of the machine that other processes used.
    pub others: f64,
    /// Share of the machine that its host took.
    pub stolen: f64,
}

impl Measured {
    /// The figures of a load's outcome.
    pub fn of(server: &str, round: usize, (operation, depth): (Operation, usize), outcome: &Outcome) -> Self {
        let at = |share| outcome.latency.microseconds_at(share).unwrap_or(f64::NAN);
        let seconds = outcome.machine.seconds;
        let both = outcome.server_cpu_seconds.unwrap_or(0.0) + outcome.client_cpu_seconds.unwrap_or(0.0);
        Self {
            server: server.to_owned(),
            round,
            operation,
            depth,
            kilo_operations: outcome.kilo_operations_per_second(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            server_cpu_us: outcome.server_cpu_seconds.map(|cpu| cpu * 1e6 / outcome.operations as f64),
            server_processors: outcome.server_cpu_seconds.map(|cpu| cpu / seconds),
            client_processors: outcome.client_cpu_seconds.map(|cpu| cpu / seconds),
            others: (outcome.machine.busy - both / seconds / processors() as f64).max(0.0),
            stolen: outcome.machine.stolen,
        }
    }
}

/// The results of a phase.
#[derive(Default, serde::Serialize)]
pub struct Findings {
    /// Every load that counted.
    pub measured: Vec<Measured>,
    /// Wrong replies, by server: how many, and the first.
    pub wrong: Vec<(Kind, u64, String)>,
    /// Servers that could not be measured, and why.
    pub missing: Vec<(Kind, String)>,
    /// Other servers that failed on the way, and why.
    pub failed: Vec<(String, String)>,
}

impl Findings {
    /// Records the outcome of a load.
    fn add(&mut self, kind: Kind, round: usize, work: &Work, outcome: Outcome) {
        self.add_as(kind.name(), kind, round, (work.operation, work.depth), outcome);
    }

    /// The same for one of several servers of a kind.
    pub fn add_as(
        &mut self,
        name: &str,
        kind: Kind,
        round: usize,
        (operation, depth): (Operation, usize),
        outcome: Outcome,
    ) {
        self.heed(kind, &outcome);
        self.measured.push(Measured::of(name, round, (operation, depth), &outcome));
    }

    /// Records only wrong replies.
    pub fn heed(&mut self, kind: Kind, outcome: &Outcome) {
        if let Some(first) = &outcome.first_wrong {
            self.wrong.push((kind, outcome.wrong, first.clone()));
        }
    }

    /// Records that a server did not start: an available one has failed; one that is not offered is left out.
    fn did_not_start(&mut self, kind: Kind, why: String) {
        if is_failure(&why) {
            self.fail(kind, why);
        } else {
            self.missing.push((kind, why));
        }
    }

    /// Records that a server failed on the way; a rival's figures of earlier rounds are dropped.
    fn fail(&mut self, kind: Kind, why: String) {
        if kind == Kind::Atoll {
            self.missing.push((kind, why));
        } else {
            self.fail_beside(kind.name(), why);
        }
    }

    /// The same for something measured beside Atoll, by its name in tables.
    pub fn fail_beside(&mut self, name: &str, why: String) {
        self.measured.retain(|measured| measured.server != name);
        self.failed.push((name.to_owned(), why));
    }

    /// Why a server that failed on the way has no figure.
    pub fn failure_of(&self, name: &str) -> Option<String> {
        let failed = self.failed.iter().find(|(failed, _)| failed == name);
        failed.map(|(name, why)| format!("{name} failed: {why}"))
    }

    /// Whether Atoll gave no wrong reply and finished everything that it was available for, and no rival
    /// failed on the way.
    pub fn is_right(&self) -> bool {
        let of_atoll = self.missing.iter().filter(|(kind, _)| *kind == Kind::Atoll);
        self.wrong.iter().all(|(kind, ..)| *kind != Kind::Atoll)
            && of_atoll.into_iter().all(|(_, why)| !is_failure(why))
            && self.failed.is_empty()
    }

    /// The reason that spoils every bar, if there is one: wrong replies of Atoll, or a failure to measure
    /// it.
    pub fn spoiled(&self) -> Option<String> {
        let count: u64 =
            self.wrong.iter().filter(|(kind, ..)| *kind == Kind::Atoll).map(|(_, count, _)| count).sum();
        if count > 0 {
            return Some(format!("{count} wrong replies of atoll"));
        }
        self.missing.iter().find(|(kind, _)| *kind == Kind::Atoll).map(|(_, why)| format!("atoll: {why}"))
    }

    /// The loads of one server for which `is_meant` holds, round by round.
    pub fn of<'a>(
        &'a self,
        server: &'a str,
        operation: Operation,
        depth: usize,
    ) -> impl Iterator<Item = &'a Measured> {
        let is_meant = move |measured: &&Measured| {
            measured.server == server && measured.operation == operation && measured.depth == depth
        };
        self.measured.iter().filter(is_meant)
    }

    /// The largest share of the machine that other processes and the host took during one load.
    pub fn most_disturbed(&self) -> (f64, f64) {
        let most = |figure: fn(&Measured) -> f64| self.measured.iter().map(figure).fold(0.0, f64::max);
        (most(|measured| measured.others), most(|measured| measured.stolen))
    }
}

/// A server, and its expected contents.
struct Subject {
    server: Server,
    model: Model,
}

impl Subject {
    fn new(server: Server, scale: Scale) -> Self {
        Self { server, model: Model::empty(scale.keys) }
    }

    fn work(&self, operation: Operation, depth: usize, choice: Choice, seed: u64) -> Work {
        Work {
            address: self.server.address,
            protocol: self.server.kind.protocol(depth),
            operation,
            connections: CLIENTS,
            depth,
            refill: Refill::WhenAllAnswered,
            choice,
            processes: vec![self.server.process()],
            only: None,
            seed,
        }
    }

    /// Sets every key, so that each holds one piece.
    fn fill(&mut self, pieces: &Pieces, findings: &mut Findings) -> Result<(), LoadError> {
        self.each_once(Operation::Set, pieces, findings)
    }

    /// Reads every key, to check that no acknowledged write is missing.
    fn check(&mut self, pieces: &Pieces, findings: &mut Findings) -> Result<(), LoadError> {
        self.each_once(Operation::Get, pieces, findings)
    }

    fn each_once(
        &mut self,
        operation: Operation,
        pieces: &Pieces,
        findings: &mut Findings,
    ) -> Result<(), LoadError> {
        let work = self.work(operation, DEPTH, Choice::EachOnce, 0);
        let outcome = crate::client::run(&work, pieces, &mut self.model)?;
        findings.heed(self.server.kind, &outcome);
        Ok(())
    }
}

/// The throughput of one relative to the other: the median over the rounds that both finished.
fn ratio(findings: &Findings, (own, other): (&str, &str), operation: Operation, depth: usize) -> Option<f64> {
    let ratios = findings.of(own, operation, depth).filter_map(|mine| {
        let theirs = findings.of(other, operation, depth).find(|theirs| theirs.round == mine.round)?;
        Some(mine.kilo_operations / theirs.kilo_operations)
    });
    median(ratios)
}

/// The largest share of the machine that other processes used during one of these loads.
pub fn others_beside<'a>(loads: impl IntoIterator<Item = &'a Measured>) -> f64 {
    loads.into_iter().map(|load| load.others).fold(0.0, f64::max)
}

/// An error with all its causes.
pub fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// All items, beginning with another one in every round.
fn in_turn<T>(all: &mut [T], round: usize) -> impl Iterator<Item = &mut T> {
    let (before, after) = all.split_at_mut(round % all.len().max(1));
    after.iter_mut().chain(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atoll_fails_by_a_wrong_reply_or_by_not_coming_to_an_end_and_not_by_being_absent() {
        let found =
            |kind, why: &str| Findings { missing: vec![(kind, why.to_owned())], ..Findings::default() };
        assert!(Findings::default().is_right());
        assert!(!found(Kind::Atoll, "the server was silent for 10 s").is_right());
        assert!(found(Kind::Redis, "the server was silent for 10 s").is_right());
        let absent = crate::servers::ServerError::NotOffered { what: "no program of Atoll was named" };
        assert!(found(Kind::Atoll, &with_sources(&absent)).is_right());
        let wrong = |kind| Findings { wrong: vec![(kind, 1, "a reply".to_owned())], ..Findings::default() };
        assert!(!wrong(Kind::Atoll).is_right() && wrong(Kind::Memcached).is_right());
    }

    #[test]
    fn a_rival_that_is_installed_and_does_not_start_has_failed_and_one_that_is_not_is_left_out() {
        let mut findings = Findings::default();
        let absent = crate::servers::ServerError::NotInstalled { program: "memcached", package: "memcached" };
        findings.did_not_start(Kind::Memcached, with_sources(&absent));
        findings.did_not_start(Kind::Atoll, format!("{NOT_OFFERED} yet: no program of Atoll was named"));
        assert!(findings.is_right() && findings.missing.len() == 2);
        findings.did_not_start(Kind::Redis, "redis did not answer: it ended with signal 11".to_owned());
        assert!(!findings.is_right() && findings.missing.len() == 2);
        assert!(findings.failure_of("redis").is_some_and(|why| why.contains("signal 11")));
    }

    #[test]
    fn everybody_goes_first_once_in_as_many_rounds() {
        let mut all = [1, 2, 3];
        let firsts: Vec<i32> = (0..3).filter_map(|round| in_turn(&mut all, round).next().copied()).collect();
        assert_eq!(firsts, [1, 2, 3]);
        assert_eq!(in_turn(&mut all, 4).map(|one| *one).collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!(in_turn(&mut [0; 0], 4).count(), 0);
    }
}
