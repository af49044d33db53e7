//! Scale: a model of nodes and clients that is fitted on two and four real processes, compared with 8, 16
//! and 32, and extrapolated to a million nodes.
//!
//! `real` starts and measures processes, and `clients` has their clients. `cold` and `waking` measure the
//! cost of a processor that was used by others or idle, and `pinned` keeps threads on one processor for
//! that. `costs` fits, `events` is the model, `processor` one of its processors, `network` the network
//! between hosts, and `large` extrapolates to a million.
//!
//! Invariant: the measurements of 8, 16 and 32 processes enter no constant of the model.

mod clients;
mod cold;
mod costs;
mod events;
mod large;
mod network;
mod pinned;
mod processor;
mod real;
mod report;
mod resident;
mod tables;
#[cfg(test)]
mod tests;
mod waking;

pub use report::{is_right, print, rows};
pub use resident::hold;

use crate::client::SpeakError;
use crate::machine::processors;
use crate::phases::Scale;
use crate::servers::{BenchPaths, StartError};
use atoll_ring::NodeError;
use costs::Costs;
use events::{Machine, Outcome};
use large::{Connections, Effort, Size};
use network::{Shape, Topologies};
use real::{Measured, Processes};
use std::io;
use std::time::Duration;

/// The numbers of processes; the model knows the first two.
const COUNTS: [usize; 5] = [2, 4, 8, 16, 32];
/// On how many of these it is fitted.
const FITTED: usize = 2;
/// The largest of those.
const FITTED_MOST: usize = 4;
/// How many connections a node accepts by default.
const CONNECTIONS_MAX: usize = 10_000;
/// Simulated seconds for these numbers of processes.
const SECONDS: f64 = 2.0;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// There is no program to start.
    #[error("not offered: no program of Atoll was named; name one with --atoll")]
    NoProgram,
    /// A node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system refused.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// A node ended by itself.
    #[error("node {node} {how}; its last words: {last_words}")]
    Ended {
        /// Its number.
        node: usize,
        /// How it ended.
        how: String,
        /// The end of its output.
        last_words: String,
    },
    /// Slots did not spread over the nodes.
    #[error("slots did not spread over {nodes} nodes in time: {problem}")]
    NotSpread {
        /// How many nodes.
        nodes: usize,
        /// The state at the last check.
        problem: String,
    },
    /// An answer was wrong.
    #[error("{key} was answered by {heard:?}")]
    Wrong {
        /// The key.
        key: String,
        /// The answer.
        heard: String,
    },
    /// The file of networks is malformed.
    #[error("topology.toml cannot be read")]
    Topology(#[from] toml::de::Error),
    /// A table was wrong.
    #[error("a table is not what it must be: {0}")]
    Table(&'static str),
    /// A node of the bench failed.
    #[error("a node with a large table does not work")]
    Node(#[from] NodeError),
    /// A connection of the bench failed.
    #[error(transparent)]
    Speak(#[from] SpeakError),
    /// A thread of the bench ended.
    #[error("a client ended by itself")]
    ClientEnded,
}

impl ScaleError {
    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// The results.
#[derive(Default, serde::Serialize)]
pub struct Findings {
    /// Each number of processes, in each round.
    pub processes: Vec<Vec<Compared>>,
    /// The fitted costs.
    pub costs: Option<Costs>,
    /// Up to a million nodes, each on its own host, by network and by whether connections are kept.
    pub large: Vec<(Shape, bool, Vec<Size>)>,
    /// The efficiency of a million nodes in the torus, with connections kept and not, if waking an idle
    /// processor cost nothing: with its cost on this machine two nodes are slow, so every larger number
    /// looks good relative to them.
    pub without_waking: Option<(f64, f64)>,
    /// Sizes of tables.
    pub tables: Vec<tables::TableCosts>,
    /// Megabytes of a node with a table of a thousand nodes.
    pub resident_mb: Option<f64>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
    /// Whether an answer was wrong.
    pub is_wrong: bool,
}

/// One number of processes in one round, and the model's prediction from two and four processes of that
/// round.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Compared {
    /// The measurements.
    pub real: Measured,
    /// The prediction for kept connections.
    pub kept: Outcome,
    /// The prediction for connections that are made for each operation.
    pub connecting: Outcome,
}

impl Compared {
    fn new(real: Measured, costs: Costs) -> Self {
        let machine = |connecting_share| Machine {
            connecting_share,
            ..Machine::shared(costs, real.nodes, processors())
        };
        let run = |connecting_share| events::run(&machine(connecting_share), SECONDS, real.nodes as u64);
        let (kept, connecting) = (run(0.0), run(1.0));
        Self { real, kept, connecting }
    }

    /// The model's error, in percent of the measurement.
    fn kept_off(&self) -> f64 {
        (self.kept.throughput / self.real.throughput - 1.0) * 100.0
    }

    fn connecting_off(&self) -> f64 {
        (self.connecting.throughput / self.real.connecting.throughput - 1.0) * 100.0
    }
}

/// All numbers of processes in one round, in ascending order.
type Round = [Measured; COUNTS.len()];

/// Compares each round with a model that is fitted anew: a machine that is slower for a while is slower for
/// all numbers of processes.
fn compared(rounds: &[Round]) -> Vec<Vec<Compared>> {
    let fitted: Vec<Costs> =
        rounds.iter().map(|round| Costs::fitted(&round[0], &round[1], processors())).collect();
    let all = |place: usize| {
        let pairs = rounds.iter().zip(&fitted);
        pairs.map(|(round, costs)| Compared::new(round[place], *costs)).collect()
    };
    (0..COUNTS.len()).map(all).collect()
}

/// The median item.
fn middle<T: Copy>(all: &[T], by: impl Fn(&T) -> f64) -> Option<T> {
    let mut all = all.to_vec();
    all.sort_by(|one, other| by(one).total_cmp(&by(other)));
    all.get(all.len() / 2).copied()
}

/// Measures, fits and extrapolates; `told` is called at each step.
pub fn run(scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let mut findings = Findings::default();
    for step in [Findings::look_at_tables, Findings::model] {
        if let Err(error) = step(&mut findings, scale, place, told) {
            findings.is_wrong |= matches!(error, ScaleError::Wrong { .. } | ScaleError::Table(_));
            findings.missing.push(crate::phases::with_sources(&error));
        }
    }
    findings
}

impl Findings {
    fn look_at_tables(
        &mut self,
        scale: Scale,
        place: &BenchPaths,
        told: &mut dyn FnMut(&str),
    ) -> Result<(), ScaleError> {
        told("scale, tables");
        self.tables = tables::run(is_trial(scale))?;
        self.resident_mb = Some(resident::measure(&place.folder.join("resident"))?);
        Ok(())
    }

    fn model(
        &mut self,
        scale: Scale,
        place: &BenchPaths,
        told: &mut dyn FnMut(&str),
    ) -> Result<(), ScaleError> {
        let rounds = measured(scale, place, told)?;
        self.processes = compared(&rounds);
        let of = |place: usize| {
            let all: Vec<Measured> = rounds.iter().map(|round| round[place]).collect();
            middle(&all, |one| one.throughput)
        };
        let (Some(two), Some(four)) = (of(0), of(1)) else { return Ok(()) };
        let costs = Costs::fitted(&two, &four, processors());
        self.costs = Some(costs);
        let effort = match scale.measured_ms {
            _ if is_trial(scale) => Effort::TRIAL,
            time if time < Scale::FULL.measured_ms => Effort::QUICK,
            _ => Effort::FULL,
        };
        let topologies = Topologies::read()?;
        for shape in Shape::ALL {
            told(&format!("scale, a million nodes, {}", shape.name()));
            for connections in [Connections::Kept, Connections::AtMost(CONNECTIONS_MAX)] {
                let sizes = large::up(&topologies, shape, (costs, processors()), connections, effort);
                self.large.push((shape, connections == Connections::Kept, sizes));
            }
        }
        let costs = Costs { wake_us: 0.0, waking_us: 0.0, ..costs };
        let million = |connections| {
            let sizes = large::up(&topologies, Shape::Torus, (costs, processors()), connections, effort);
            sizes.last().map(|last| last.efficiency)
        };
        self.without_waking = million(Connections::Kept).zip(million(Connections::AtMost(CONNECTIONS_MAX)));
        Ok(())
    }
}

fn is_trial(scale: Scale) -> bool {
    scale.measured_ms < Scale::QUICK.measured_ms
}

/// Measures all numbers of processes in each round.
fn measured(scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Result<Vec<Round>, ScaleError> {
    let (warm, time) = (Duration::from_millis(scale.warm_ms), Duration::from_millis(scale.measured_ms));
    let mut rounds = vec![Round::default(); scale.rounds];
    for (number, round) in rounds.iter_mut().enumerate() {
        for (count, measured) in COUNTS.into_iter().zip(round) {
            told(&format!("scale, round {} of {}, {count} processes", number + 1, scale.rounds));
            let processes = Processes::start(count, place, told)?;
            *measured = processes.measure(warm, time, number as u64)?;
        }
    }
    Ok(rounds)
}
