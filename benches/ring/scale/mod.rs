//! Scale: a model of nodes and clients that is fitted on two and four real processes, held against 8, 16 and 32, and asked about
//! up to a million nodes.
//!
//! `real` starts and measures processes, `asking` is their clients, `costs` fits, `events` is the model, `network` what lies
//! between hosts, and `large` goes up to a million.
//!
//! Invariant: what was measured on 8, 16 and 32 processes enters no constant of the model.

mod asking;
mod costs;
mod events;
mod large;
mod network;
mod real;
mod report;
mod resident;
mod tables;
#[cfg(test)]
mod tests;

pub use report::{is_right, print, rows};
pub use resident::hold;

use crate::client::SpeakError;
use crate::machine::processors;
use crate::phases::Scale;
use crate::servers::{Place, StartError};
use atoll_ring::NodeError;
use costs::Costs;
use events::{Machine, Outcome};
use large::{Connections, Effort, Size};
use network::{Shape, Topologies};
use real::{Measured, Processes};
use std::io;
use std::time::Duration;

/// Numbers of processes: the model knows the first two.
const COUNTS: [usize; 5] = [2, 4, 8, 16, 32];
/// How many of them it is fitted on.
const FITTED: usize = 2;
/// And the most of these.
const FITTED_MOST: usize = 4;
/// Connections that a node takes, if nobody says something else.
const CONNECTIONS_MAX: usize = 10_000;
/// Seconds that so many processes are played for.
const SECONDS: f64 = 2.0;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// Nothing to start.
    #[error("no program of Atoll was named; name one with --atoll")]
    NoProgram,
    /// A node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system said no.
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
        /// How.
        how: String,
        /// What it said.
        last_words: String,
    },
    /// Slots stayed where they were.
    #[error("slots did not spread over {nodes} nodes in time: {problem}")]
    NotSpread {
        /// How many nodes.
        nodes: usize,
        /// At the last look.
        problem: String,
    },
    /// An answer was not what it must be.
    #[error("{key} was answered by {heard:?}")]
    Wrong {
        /// About which key.
        key: String,
        /// What was said.
        heard: String,
    },
    /// The file of networks is not what it must be.
    #[error("topology.toml cannot be read")]
    Topology(#[from] toml::de::Error),
    /// A table was not what it must be.
    #[error("a table is not what it must be: {0}")]
    Table(&'static str),
    /// A node of the bench's own.
    #[error("a node with a large table does not work")]
    Node(#[from] NodeError),
    /// A connection of the bench's own.
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

/// What was found.
#[derive(Default, serde::Serialize)]
pub struct Findings {
    /// Each number of processes, and what the model says of it.
    pub processes: Vec<(Measured, Outcome)>,
    /// What the model was fitted to.
    pub costs: Option<Costs>,
    /// Up to a million, each on a host of its own: by the network, and by whether connections are kept.
    pub large: Vec<(Shape, bool, Vec<Size>)>,
    /// Tables.
    pub tables: Vec<tables::Taken>,
    /// Megabytes of a node with a table of a thousand nodes.
    pub resident_mb: Option<f64>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
    /// Whether an answer was wrong.
    pub is_wrong: bool,
}

/// Measures, fits, and goes up; `told` hears of each step.
pub fn run(scale: Scale, place: &Place, told: &mut dyn FnMut(&str)) -> Findings {
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
        place: &Place,
        told: &mut dyn FnMut(&str),
    ) -> Result<(), ScaleError> {
        told("scale, tables");
        self.tables = tables::run(is_trial(scale))?;
        self.resident_mb = Some(resident::measure(&place.folder.join("resident"))?);
        Ok(())
    }

    fn model(&mut self, scale: Scale, place: &Place, told: &mut dyn FnMut(&str)) -> Result<(), ScaleError> {
        let measured = measured(scale, place, told)?;
        let costs = Costs::fitted(&measured[0], &measured[1], processors());
        self.costs = Some(costs);
        for of_real in measured {
            let machine = Machine::shared(costs, of_real.nodes, processors());
            let of_model = events::run(&machine, SECONDS, of_real.nodes as u64);
            self.processes.push((of_real, of_model));
        }
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
        Ok(())
    }
}

fn is_trial(scale: Scale) -> bool {
    scale.measured_ms < Scale::QUICK.measured_ms
}

/// Each number of processes: the round in the middle, by throughput. In each round all numbers have their turn.
fn measured(scale: Scale, place: &Place, told: &mut dyn FnMut(&str)) -> Result<Vec<Measured>, ScaleError> {
    let (warm, time) = (Duration::from_millis(scale.warm_ms), Duration::from_millis(scale.measured_ms));
    let mut rounds: [Vec<Measured>; COUNTS.len()] = Default::default();
    for round in 0..scale.rounds {
        for (count, rounds) in COUNTS.into_iter().zip(&mut rounds) {
            told(&format!("scale, round {} of {}, {count} processes", round + 1, scale.rounds));
            let processes = Processes::start(count, place, told)?;
            rounds.push(processes.measure(warm, time, round as u64)?);
        }
    }
    let middle = |mut rounds: Vec<Measured>| {
        rounds.sort_by(|one, other| one.throughput.total_cmp(&other.throughput));
        let middle = rounds.len() / 2;
        rounds.into_iter().nth(middle)
    };
    Ok(rounds.into_iter().filter_map(middle).collect())
}
