//! What an operation costs, as the model has it: fitted on two and four real processes.
//!
//! Processor time is divided into what an operation takes when its process finds the processor as it left it (`warm`), and what
//! it takes more each time others ran there meanwhile (`cold`): caches, address translations, the switch itself.

use super::events::{self, Machine};
use super::real::Measured;

/// Processes whose work a processor still has at hand. Two processes are two nodes and two clients: with these all is warm.
pub const AT_HAND: usize = 4;
const STEPS: usize = 6;
const SECONDS: f64 = 0.5;
const WAKE_US_MAX: f64 = 200.0;
const FACTOR_MAX: f64 = 10.0;

/// Microseconds, unless something else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// A node, for each operation.
    pub node_warm_us: f64,
    /// A node, more for each time it gets a processor that others had.
    pub node_cold_us: f64,
    /// A client, for each operation.
    pub client_warm_us: f64,
    /// A client, more for each time it gets a processor that others had.
    pub client_cold_us: f64,
    /// Until an idle processor runs what it is woken for.
    pub wake_us: f64,
    /// Processors that two nodes use for ticks and the configuration while nobody asks.
    pub idle_two: f64,
    /// The power of the number of nodes that this grows with: processors that are seldom idle are woken for less.
    pub idle_power: f64,
    /// More for a connection that is made for one operation: of the node, and of the client.
    pub connect_us: (f64, f64),
}

impl Costs {
    /// The share of a processor that one of so many nodes uses while nobody asks.
    pub fn idle_of_one(&self, nodes: usize) -> f64 {
        self.idle_two * (nodes as f64 / 2.0).powf(self.idle_power) / nodes as f64
    }

    /// What makes the model do on two and on four processes as these did.
    pub fn fitted(two: &Measured, four: &Measured, processors: usize) -> Self {
        let idle_two = two.idle_processors.max(0.0);
        let idle_power = (four.idle_processors / idle_two.max(1e-6)).max(1.0).log2().min(1.0);
        let mut costs = Self { idle_two, idle_power, ..Self::default() };
        // Ticks go on beside operations, and belong to none.
        let own = |nodes: usize, node_us: f64, throughput: f64| {
            (node_us - costs.idle_of_one(nodes) * nodes as f64 * 1e6 / throughput).max(0.1)
        };
        let (node_two, client_two) = (own(2, two.node_us, two.throughput), two.client_us);
        let (node_four, client_four) = (own(4, four.node_us, four.throughput), four.client_us);
        let made = two.connecting;
        let node_made = own(2, made.node_us, made.throughput);
        costs.connect_us = ((node_made - node_two).max(0.0), (made.client_us - client_two).max(0.0));
        costs.node_warm_us = node_two;
        costs.client_warm_us = client_two;
        let run = |costs: &Self, nodes| events::run(&Machine::shared(*costs, nodes, processors), SECONDS, 1);
        for _ in 0..STEPS {
            let (at_two, at_four) = (run(&costs, 2), run(&costs, 4));
            let solve = |two: f64, four: f64, share_two: f64, share_four: f64| {
                let cold = ((four - two) / (share_four - share_two).max(0.05)).max(0.0);
                ((two - cold * share_two).max(0.1), cold)
            };
            (costs.node_warm_us, costs.node_cold_us) =
                solve(node_two, node_four, at_two.node_cold_share, at_four.node_cold_share);
            (costs.client_warm_us, costs.client_cold_us) =
                solve(client_two, client_four, at_two.client_cold_share, at_four.client_cold_share);
        }
        // What is not seen in anybody's processor time: interrupts, and processors that wait though there is work.
        costs.scale_to(four.throughput, |costs| run(costs, 4).throughput);
        let wake_us =
            bisected(two.throughput, WAKE_US_MAX, |wake_us| run(&Self { wake_us, ..costs }, 2).throughput);
        // One client alone waits for no processor, but is woken and has its node woken: more than half of what that takes
        // beside the work is somebody else's doing.
        let beside_us = (two.alone_us - costs.node_warm_us - costs.client_warm_us).max(0.0);
        costs.wake_us = wake_us.min(beside_us / 2.0);
        costs.scale_to(four.throughput, |costs| run(costs, 4).throughput);
        costs.connections_scaled(four.connecting.throughput, |costs| {
            let machine = Machine { connecting_share: 1.0, ..Machine::shared(*costs, 4, processors) };
            events::run(&machine, SECONDS, 1).throughput
        })
    }

    /// With connections that take as much longer, or shorter, that the model does as much with them as was measured.
    fn connections_scaled(self, throughput: f64, run: impl Fn(&Self) -> f64) -> Self {
        let with = |factor: f64| Self {
            connect_us: (self.connect_us.0 * factor, self.connect_us.1 * factor),
            ..self
        };
        let factor = bisected(throughput, FACTOR_MAX, |factor| run(&with(factor)));
        with(factor)
    }

    /// Lengthens everything until the model does as much as was measured.
    fn scale_to(&mut self, throughput: f64, run: impl Fn(&Self) -> f64) {
        for _ in 0..STEPS {
            let factor = run(self) / throughput;
            for cost in [
                &mut self.node_warm_us,
                &mut self.node_cold_us,
                &mut self.client_warm_us,
                &mut self.client_cold_us,
            ] {
                *cost *= factor;
            }
        }
    }
}

/// How large that is which leaves so much to be done; nothing if less is done without it.
fn bisected(throughput: f64, most: f64, run: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, most);
    if run(low) <= throughput {
        return 0.0;
    }
    for _ in 0..20 {
        let middle = (low + high) / 2.0;
        if run(middle) > throughput { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}
