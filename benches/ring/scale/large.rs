//! From two nodes to a million, each on its own host: latency, throughput, and efficiency as ZHT defines
//! it.
//!
//! Efficiency is the throughput per node relative to that of two nodes: section 2.3.7 of the paper about
//! ZHT. Up to some thousand nodes every message is simulated. Beyond that a subset is simulated that stands
//! for all: each node sends requests to random nodes and receives requests from random nodes, so none of
//! them would meet anything else among all the others, as long as distances are those of the whole network
//! and links are as loaded as all nodes would load them.

use super::costs::Costs;
use super::events::{self, Machine, Outcome};
use super::network::{Shape, Topologies};

/// A million, as a power of two.
pub const SIZE_MAX: usize = 1 << 20;
/// The least number of simulated operations per node.
const EACH_MIN: f64 = 30.0;
/// Requests per node and second, before a first result is known.
const EACH_GUESSED: f64 = 20_000.0;
/// How many slots the wide table has.
const SLOTS: f64 = 1_048_576.0;

/// The connections of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// One to every node, all the time, as in ZHT's own simulation.
    Kept,
    /// To at most this many nodes, as many as a node accepts; for others one is made each time.
    AtMost(usize),
}

/// The extent of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The most nodes that are simulated.
    pub played_max: usize,
    /// The approximate number of operations of all of them.
    pub operations: f64,
}

impl Effort {
    pub const FULL: Self = Self { played_max: 4096, operations: 200_000.0 };
    pub const QUICK: Self = Self { played_max: 1024, operations: 50_000.0 };
    pub const TRIAL: Self = Self { played_max: 128, operations: 4_000.0 };
}

/// The results for one number of nodes.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Size {
    /// How many.
    pub nodes: usize,
    /// The results of all of them together.
    pub outcome: Outcome,
    /// The throughput per node relative to that of two nodes.
    pub efficiency: f64,
    /// The share of operations for which a connection was made.
    pub connecting_share: f64,
}

/// All powers of two, up to [`SIZE_MAX`].
pub fn up(
    topologies: &Topologies,
    shape: Shape,
    (costs, processors): (Costs, usize),
    connections: Connections,
    effort: Effort,
) -> Vec<Size> {
    let mut sizes: Vec<Size> = Vec::new();
    let mut nodes = 2;
    while nodes <= SIZE_MAX {
        let each = sizes.last().map_or(0.0, |size| size.outcome.throughput / size.nodes as f64);
        let connecting_share = match connections {
            Connections::Kept => 0.0,
            Connections::AtMost(most) => 1.0 - (most as f64 / nodes as f64).min(1.0),
        };
        let mut machine = Machine {
            costs,
            nodes,
            played: nodes.min(effort.played_max),
            is_shared: false,
            processors,
            network: Some(topologies.network(shape, nodes, each, connecting_share)),
            connecting_share,
            stale_share: 0.0,
        };
        let mut outcome = play(&machine, each, effort);
        // The load of links and the share of redirected requests depend on the throughput, so they are
        // computed again from the result.
        for _ in 0..2 {
            let each = outcome.throughput / nodes as f64;
            let moves = topologies.churn.moves_per_slot_per_day * SLOTS / 86_400.0;
            machine.stale_share = (moves / each).min(1.0);
            machine.network = Some(topologies.network(shape, nodes, each, connecting_share));
            outcome = play(&machine, each, effort);
        }
        let of_two = sizes.first().map_or(outcome.throughput, |two| two.outcome.throughput) / 2.0;
        let efficiency = outcome.throughput / nodes as f64 / of_two;
        sizes.push(Size { nodes, outcome, efficiency, connecting_share });
        nodes *= 2;
    }
    sizes
}

fn play(machine: &Machine, each_per_second: f64, effort: Effort) -> Outcome {
    let each = (effort.operations / machine.played as f64).max(EACH_MIN);
    let seconds = each / if each_per_second > 0.0 { each_per_second } else { EACH_GUESSED };
    events::run(machine, seconds, machine.nodes as u64)
}
