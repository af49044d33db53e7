//! Three copies of everything, against Cassandra: CPU time of all nodes together for an operation, each
//! alone.
//!
//! Both acknowledge a write when a majority of three nodes has it in its log, and let the operating system
//! write that log: Cassandra syncs it every ten seconds, Atoll (`flushed`) every second. Cassandra reads at a
//! quorum, as it must to see what was acknowledged.
//!
//! Fifty requests are under way at a time, and clients share connections as drivers have them do, those of
//! Redis Cluster as those of Cassandra: nodes are spared system calls. Of both a connection asks anew as
//! answers come, as many as one receive brought, and does not wait for all five: then five requests would
//! travel together, and a node would hear and answer them by one call.
//!
//! Invariant: while one is measured, the other does not run.

mod cluster;
mod frames;
mod load;
mod report;

pub use report::{print, rows};

use crate::client::{Choice, LoadError, Operation, Outcome, Pieces, Refill};
use crate::phases::{Ask, CLIENTS, Findings as Measurements, Measured, Scale, Side, with_sources};
use crate::servers::{Durability, Kind, Place, Ring, ServerError};
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
/// How many clients share one, each with one request under way.
const SHARE: usize = (CLIENTS / CONNECTIONS) as usize;
const COPIES: usize = cluster::NODES as usize;
/// How long one load of warming up takes.
const WARM_TURN: Duration = Duration::from_secs(5);

const KEYSPACE: &str =
    "CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";
const TABLE: &str = "CREATE TABLE bench.cells (name blob PRIMARY KEY, value blob)";
const INSERT: &str = "INSERT INTO bench.cells (name, value) VALUES (?, ?)";
const SELECT: &str = "SELECT value FROM bench.cells WHERE name = ?";

/// What was found.
#[derive(Default, serde::Serialize)]
pub struct Findings {
    /// Of both.
    pub both: Measurements,
    /// Wrong answers of Cassandra: how many, and the first.
    pub rival_wrong: Option<(u64, String)>,
    /// Why Cassandra was not measured.
    pub rival_missing: Option<String>,
    /// For how long Cassandra was asked before the first round.
    pub warm_seconds: u64,
    /// For how long the bar says.
    pub warm_seconds_meant: u64,
}

/// Why there is no figure of one of them.
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

/// Measures Atoll, and then Cassandra if `control` may start it; `told` hears of each step.
pub fn run(
    scale: Scale,
    place: &Place,
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
        findings.rival_missing = Some(with_sources(&error));
    }
    findings
}

/// How long a virtual machine needs until it has compiled what it runs.
fn warm(scale: Scale) -> Duration {
    Duration::from_secs(match scale.measured_ms {
        2_000.. => 300,
        1_000.. => 45,
        _ => 1,
    })
}

/// A load counts for twice as long as elsewhere: what is measured is CPU time, which the system counts in
/// hundredths.
fn measured(scale: Scale) -> Duration {
    Duration::from_millis(2 * scale.measured_ms)
}

fn run_atoll(
    scale: Scale,
    place: &Place,
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

/// What Atoll is asked: the same of each connection as [`load`] asks of those of Cassandra.
fn ask_atoll(operation: Operation, choice: Choice, seed: u64) -> Ask {
    Ask { operation, depth: SHARE, refill: Refill::AsAnswered, choice, seed }
}

fn run_cassandra(
    scale: Scale,
    (place, control): (&Place, Option<&Path>),
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
    Ok(())
}

impl Findings {
    fn heed(&mut self, outcome: &Outcome) {
        if let Some(first) = &outcome.first_wrong {
            let (count, _) = self.rival_wrong.get_or_insert((0, first.clone()));
            *count += outcome.wrong;
        }
    }
}

/// The keyspace, the table, and connections that may ask it; clients take their turns on them.
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
