//! Three copies of everything, compared with Cassandra: CPU time of all nodes together per operation, each
//! system measured alone.
//!
//! Both acknowledge a write when a majority of three nodes has it in its log, and leave writing that log to
//! the operating system: Cassandra syncs it every ten seconds, Atoll (`flushed`) every second. Cassandra
//! reads at a quorum, as it must to see acknowledged writes.
//!
//! Fifty requests are under way at a time, and clients share connections in the way of drivers, for Redis
//! Cluster as for Cassandra, which spares the nodes system calls. On both systems a connection sends new
//! requests as answers arrive, as many as one receive brought, without waiting for all five. Otherwise five
//! requests would travel together, and a node would receive and answer them with one call.
//!
//! Invariant: while one system is measured, the other does not run.

mod cluster;
mod frames;
mod load;
mod report;

pub use report::{print, rows};

use crate::client::{Choice, LoadError, Operation, Outcome, Pieces, Refill};
use crate::phases::{
    Ask, CLIENTS, Findings as Measurements, Measured, Scale, Side, is_failure, with_sources,
};
use crate::servers::{BenchPaths, Durability, Kind, Ring, ServerError};
use cluster::{Cluster, ClusterError};
use load::{Connection, CqlError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const ATOLL: &str = "atoll";
const CASSANDRA: &str = "cassandra";
const OPERATIONS: [Operation; 2] = [Operation::Set, Operation::Get];
/// Connections that all clients share: three or four to each node.
const CONNECTIONS: u32 = 10;
/// How many clients share a connection, each with one request under way.
const SHARE: usize = (CLIENTS / CONNECTIONS) as usize;
const COPIES: usize = cluster::NODES as usize;
/// How long one load of the warm-up takes.
const WARM_TURN: Duration = Duration::from_secs(5);

const KEYSPACE: &str =
    "CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";
const TABLE: &str = "CREATE TABLE bench.cells (name blob PRIMARY KEY, value blob)";
const INSERT: &str = "INSERT INTO bench.cells (name, value) VALUES (?, ?)";
const SELECT: &str = "SELECT value FROM bench.cells WHERE name = ?";

/// The results.
#[derive(Default, serde::Serialize)]
pub struct Findings {
    /// Measurements of both systems.
    pub both: Measurements,
    /// Wrong answers of Cassandra: how many, and the first.
    pub rival_wrong: Option<(u64, String)>,
    /// How many requests timed out at Cassandra and were sent again.
    pub rival_timed_out: u64,
    /// Why Cassandra was not measured, if it was not asked for or not offered.
    pub rival_missing: Option<String>,
    /// How long Cassandra was warmed up before the first round.
    pub warm_seconds: u64,
    /// How long the bar says that it must be.
    pub warm_seconds_meant: u64,
}

/// Why a system has no figure.
#[derive(Debug, thiserror::Error)]
enum AloneError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot learn who leads what")]
    Leaders(#[from] io::Error),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Cql(#[from] CqlError),
}

/// Measures Atoll, and then Cassandra if `control` can start it; `told` is called at each step.
pub fn run(
    scale: Scale,
    place: &BenchPaths,
    peers: bool,
    control: Option<&Path>,
    told: &mut dyn FnMut(&str),
) -> Findings {
    let warm = warm(scale);
    let mut findings = Findings {
        warm_seconds: warm.as_secs(),
        warm_seconds_meant: self::warm(Scale::FULL).as_secs(),
        ..Findings::default()
    };
    if let Err(error) = run_atoll(scale, place, &mut findings.both, told) {
        findings.both.missing.push((Kind::Atoll, with_sources(&error)));
    }
    if !peers {
        findings.rival_missing = Some("rivals were not asked for (--peers)".to_owned());
    } else if let Err(error) = run_cassandra(scale, (place, control), &mut findings, told) {
        findings.rival_ended(with_sources(&error));
    }
    findings
}

/// How long a Java virtual machine needs until it has compiled its hot code.
fn warm(scale: Scale) -> Duration {
    Duration::from_secs(match scale.measured_ms {
        2_000.. => 300,
        1_000.. => 45,
        _ => 1,
    })
}

/// A load is measured for twice as long as in other phases, because the system counts CPU time in
/// hundredths of a second.
fn measured(scale: Scale) -> Duration {
    Duration::from_millis(2 * scale.measured_ms)
}

fn run_atoll(
    scale: Scale,
    place: &BenchPaths,
    findings: &mut Measurements,
    told: &mut dyn FnMut(&str),
) -> Result<(), AloneError> {
    let ring = Ring::start(COPIES, Durability::Flushed, place)?;
    let mut side = Side::of_ring(ATOLL, &ring, scale.keys, CONNECTIONS)?;
    let pieces = Pieces::seeded(1);
    let whole = |operation| ask_atoll(operation, Choice::EachOnce, 0);
    findings.heed(Kind::Atoll, &side.run(&whole(Operation::Set), &pieces)?.1);
    for round in 0..scale.rounds {
        told(&format!("three copies, atoll alone, round {} of {}", round + 1, scale.rounds));
        for (number, operation) in OPERATIONS.into_iter().enumerate() {
            let warm = Duration::from_millis(scale.warm_ms);
            let choice = Choice::Random { warm, measured: measured(scale) };
            let ask = ask_atoll(operation, choice, (round * 10 + number) as u64);
            let (work, outcome) = side.run(&ask, &pieces)?;
            findings.add_as(ATOLL, Kind::Atoll, round + 1, (work.operation, work.depth), outcome);
        }
    }
    // Every acknowledged write is looked up.
    findings.heed(Kind::Atoll, &side.run(&whole(Operation::Get), &pieces)?.1);
    Ok(())
}

/// The load for Atoll: on each connection the same as [`load`] makes of those of Cassandra.
fn ask_atoll(operation: Operation, choice: Choice, seed: u64) -> Ask {
    Ask { operation, depth: SHARE, refill: Refill::AsAnswered, choice, seed }
}

fn run_cassandra(
    scale: Scale,
    (place, control): (&BenchPaths, Option<&Path>),
    findings: &mut Findings,
    told: &mut dyn FnMut(&str),
) -> Result<(), AloneError> {
    told("three copies, start cassandra");
    let cluster = Cluster::start(control, &place.folder)?;
    let processes = cluster.processes()?;
    let mut connections = connections(&cluster, scale.keys)?;
    let pieces = Pieces::seeded(1);
    let mut load = |operation, times: Option<(Instant, Instant)>, seed| {
        let ask = load::Ask { operation, clients: CLIENTS, times, seed };
        load::run(&mut connections, ask, &pieces, &processes)
    };
    findings.heed(&load(Operation::Set, None, 0)?);
    told(&format!("three copies, warm cassandra for {} s", findings.warm_seconds));
    let (start, warm) = (Instant::now(), warm(scale));
    for turn in 0.. {
        let now = Instant::now();
        let left = warm.saturating_sub(now - start);
        if left.is_zero() {
            break;
        }
        let operation = OPERATIONS[turn % OPERATIONS.len()];
        findings.heed(&load(operation, Some((now, now + left.min(WARM_TURN))), turn as u64)?);
    }
    for round in 0..scale.rounds {
        told(&format!("three copies, cassandra alone, round {} of {}", round + 1, scale.rounds));
        for (number, operation) in OPERATIONS.into_iter().enumerate() {
            let from = Instant::now() + Duration::from_millis(scale.warm_ms);
            let times = Some((from, from + measured(scale)));
            let outcome = load(operation, times, (round * 10 + number) as u64)?;
            findings.heed(&outcome);
            findings.both.measured.push(Measured::of(CASSANDRA, round + 1, (operation, SHARE), &outcome));
        }
    }
    findings.heed(&load(Operation::Get, None, 0)?);
    findings.rival_timed_out = connections.iter().map(Connection::timed_out).sum();
    Ok(())
}

impl Findings {
    /// Records why Cassandra was not measured to the end. If it was offered, it has failed, and so has the
    /// bench: figures of the rounds before are dropped, because nothing read them to the end.
    fn rival_ended(&mut self, why: String) {
        if is_failure(&why) {
            self.both.fail_beside(CASSANDRA, why);
        } else {
            self.rival_missing = Some(why);
        }
    }

    fn heed(&mut self, outcome: &Outcome) {
        if let Some(first) = &outcome.first_wrong {
            let (count, _) = self.rival_wrong.get_or_insert((0, first.clone()));
            *count += outcome.wrong;
        }
    }
}

/// Creates the keyspace and the table, and opens connections, over which clients are distributed in turn.
fn connections(cluster: &Cluster, keys: u32) -> Result<Vec<Connection>, AloneError> {
    let addresses = cluster.addresses();
    let open = |number: u32| {
        let clients = (0..CLIENTS).filter(|client| client % CONNECTIONS == number).collect();
        Connection::open(addresses[number as usize % addresses.len()], clients, keys)
    };
    let mut all = (0..CONNECTIONS).map(open).collect::<Result<Vec<_>, _>>()?;
    if let Some(first) = all.first_mut() {
        first.query(KEYSPACE)?;
        first.query(TABLE)?;
    }
    all.iter_mut().try_for_each(|connection| connection.prepare(INSERT, SELECT))?;
    Ok(all)
}
