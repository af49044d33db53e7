//! The costs of an operation in the model, fitted on two and four real processes.
//!
//! The processor time of an operation is divided into three parts: its time when its process finds
//! everything in the caches, the additional time to load again what others evicted (`cold`), and the time
//! to wake an idle processor. The last two are measured separately, on those processes and on this machine;
//! the model says how often they occur. So no throughput enters it.

use super::cold::{Cold, OTHERS, SideCosts, TOUCHED_KB};
use super::events::{self, Machine};
use super::processor::CacheState;
use super::real::Measured;

const STEPS: usize = 6;
const SECONDS: f64 = 0.5;
const LEAST_US: f64 = 0.1;

/// Costs, in microseconds unless something else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// The time of a node per operation.
    pub node_us: f64,
    /// The time of a client per operation.
    pub client_us: f64,
    /// The delay until an idle processor runs the woken thread.
    pub wake_us: f64,
    /// Processor time of the waking thread.
    pub waking_us: f64,
    /// Processors that two idle nodes use for ticks and the configuration.
    pub idle_two: f64,
    /// The power of the number of nodes with which this grows: processors that are seldom idle are woken
    /// more cheaply.
    pub idle_power: f64,
    /// The additional time for a connection that is made for one operation: of the node, and of the client.
    pub connect_us: (f64, f64),
    /// The additional time after eviction by others.
    pub cold: Cold,
    /// How that changes when the number of nodes on one processor doubles.
    pub doubling: SideCosts,
}

impl Costs {
    /// The share of a processor that one of this many nodes uses while idle.
    pub fn idle_of_one(&self, nodes: usize) -> f64 {
        self.idle_two * (nodes as f64 / 2.0).powf(self.idle_power) / nodes as f64
    }

    /// The additional time of a node or a client for the state in which it finds its processor. Nodes that
    /// ran on that processor have evicted its data from the processor's own caches, and nodes on all
    /// processors have evicted it from the shared one. A thread that comes from another processor finds
    /// nothing in the former.
    pub fn cold_us(&self, is_node: bool, found: CacheState) -> f64 {
        let side = |both: SideCosts| if is_node { both.node_us } else { both.client_us };
        let spaces = if found.is_out { side(self.cold.spaces) } else { 0.0 };
        // When the client was measured, the node that it uses had always run.
        let others = |ran: u64| if is_node { ran } else { ran.saturating_sub(1) } as usize;
        let here = found.here.map_or(OTHERS, others);
        let own = side(self.doubling) * (here as f64 + 1.0).log2();
        let touched = self.cold.touched.map(side);
        let shared = beyond_own(others(found.anywhere) as f64 * self.cold.pushed_kb, &touched);
        spaces + own + shared
    }

    /// Fits the costs to the measurements of two and four processes.
    pub fn fitted(two: &Measured, four: &Measured, processors: usize) -> Self {
        let idle_two = two.idle_processors.max(0.0);
        let idle_power = (four.idle_processors / idle_two.max(1e-6)).max(1.0).log2().min(1.0);
        let (cold, waking) = (four.cold.unwrap_or_default(), four.waking.unwrap_or_default());
        let mut costs = Self {
            wake_us: waking.wake_us,
            waking_us: waking.waking_us,
            idle_two,
            idle_power,
            cold,
            doubling: doubling(&cold),
            ..Self::default()
        };
        // Ticks continue during operations, and belong to none of them.
        let own = |measured: &Measured, node_us: f64, throughput: f64| {
            let idle = costs.idle_of_one(measured.nodes) * measured.nodes as f64;
            node_us - idle * 1e6 / throughput
        };
        let seen = [two, four].map(|one| (one, own(one, one.node_us, one.throughput), one.client_us));
        let made = [two, four].map(|one| {
            let made = one.connecting;
            (own(one, made.node_us, made.throughput), made.client_us)
        });
        for _ in 0..STEPS {
            let mut sums = [0.0; 4];
            for ((measured, node_us, client_us), (node_made_us, client_made_us)) in seen.iter().zip(made) {
                let machine = Machine::shared(costs, measured.nodes, processors);
                let beside = |connecting_share| {
                    let machine = Machine { connecting_share, ..machine.clone() };
                    let played = events::run(&machine, SECONDS, 1);
                    let woken = |wakes: f64| wakes * costs.waking_us;
                    (
                        played.node_cold_us + woken(played.node_wakes),
                        played.client_cold_us + woken(played.client_wakes),
                    )
                };
                let (kept, connecting) = (beside(0.0), beside(1.0));
                sums[0] += node_us - kept.0;
                sums[1] += client_us - kept.1;
                sums[2] += node_made_us - connecting.0;
                sums[3] += client_made_us - connecting.1;
            }
            let [node_us, client_us, node_made_us, client_made_us] = sums.map(|sum| sum / 2.0);
            costs.node_us = node_us.max(LEAST_US);
            costs.client_us = client_us.max(LEAST_US);
            costs.connect_us = ((node_made_us - node_us).max(0.0), (client_made_us - client_us).max(0.0));
        }
        costs
    }
}

/// Fitted by least squares to the measurements after one node, two and three. That the trend continues is
/// an assumption.
fn doubling(cold: &Cold) -> SideCosts {
    let doublings: [f64; OTHERS] = std::array::from_fn(|at| (at as f64 + 2.0).log2());
    let squares: f64 = doublings.iter().map(|one| one * one).sum();
    let fitted = |side: fn(&SideCosts) -> f64| {
        let products = cold.asked.iter().zip(doublings).map(|(seen, doublings)| side(seen) * doublings);
        products.sum::<f64>() / squares
    };
    SideCosts { node_us: fitted(|both| both.node_us), client_us: fitted(|both| both.client_us) }
}

/// The cost of this much memory beyond what evicts everything from a processor's own caches, which was the
/// first measurement; beyond the last one it does not grow.
fn beyond_own(kibibytes: f64, touched_us: &[f64; TOUCHED_KB.len()]) -> f64 {
    let own_us = touched_us[0];
    let (mut below_kb, mut below_us) = (TOUCHED_KB[0] as f64, own_us);
    for (kb, us) in TOUCHED_KB.into_iter().zip(*touched_us) {
        let (kb, us) = (kb as f64, us.max(below_us));
        if kibibytes < kb {
            let share = (kibibytes - below_kb).max(0.0) / (kb - below_kb).max(1.0);
            return below_us + (us - below_us) * share - own_us;
        }
        (below_kb, below_us) = (kb, us);
    }
    below_us - own_us
}
