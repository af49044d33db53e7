//! Networks of large machines: how far nodes are from each other, and how full the links are.
//!
//! What they are made of stands in `topology.toml`, with sources.

use super::ScaleError;

/// All that the file says.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Topologies {
    torus: Links,
    fat_tree: Links,
    dragonfly: Links,
    message: MessageBytes,
    pub churn: Churn,
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
struct Links {
    /// Between neighbours.
    first_us: f64,
    /// For each further link or switch.
    further_us: f64,
    gigabytes_per_second: f64,
    ports: Option<u32>,
    nodes_max: Option<usize>,
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
struct MessageBytes {
    request_bytes: f64,
    answer_bytes: f64,
    empty_bytes: f64,
}

/// What happens to slots.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub struct Churn {
    /// How often a slot goes to another node.
    pub moves_per_slot_per_day: f64,
}

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Torus,
    FatTree,
    Dragonfly,
}

impl Shape {
    pub const ALL: [Self; 3] = [Self::Torus, Self::FatTree, Self::Dragonfly];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Torus => "torus",
            Self::FatTree => "fat tree",
            Self::Dragonfly => "dragonfly",
        }
    }
}

/// A network between so many nodes that ask each other so often.
#[derive(Clone, Debug)]
pub struct Network {
    links: Links,
    /// Sides of a torus; of others none.
    sides: [u64; 3],
    /// Switches on a way; of a torus none.
    switches: u64,
    message: MessageBytes,
    /// Mean microseconds that a message waits at each link.
    wait_us: f64,
}

impl Topologies {
    /// Those of the file.
    pub fn read() -> Result<Self, ScaleError> {
        Ok(toml::from_str(include_str!("topology.toml"))?)
    }

    /// A network between so many nodes, each of which is asked so many times a second.
    pub fn network(
        &self,
        shape: Shape,
        nodes: usize,
        each_per_second: f64,
        connecting_share: f64,
    ) -> Network {
        let links = match shape {
            Shape::Torus => self.torus,
            Shape::FatTree => self.fat_tree,
            Shape::Dragonfly => self.dragonfly,
        };
        let sides = if shape == Shape::Torus { sides(nodes) } else { [1; 3] };
        let switches = switches(shape, &links, nodes);
        let mut network = Network { links, sides, switches, message: self.message, wait_us: 0.0 };
        // Each end of the handshake and of the end of a connection: six segments, three each way.
        let empty = 6.0 * self.message.empty_bytes * connecting_share;
        let bytes = self.message.request_bytes + self.message.answer_bytes + empty;
        let load = network.load(each_per_second * bytes);
        let mean = (self.message.request_bytes + self.message.answer_bytes) / 2.0;
        // A queue that messages of about one length join at random; where more comes than links carry, none
        // is steady.
        network.wait_us = load / (2.0 * (1.0 - load.min(0.98))) * mean / (links.gigabytes_per_second * 1e3);
        network
    }
}

impl Network {
    /// The share of what links carry, where each node sends so many bytes a second to nodes drawn at random.
    fn load(&self, bytes_per_second: f64) -> f64 {
        let capacity = self.links.gigabytes_per_second * 1e9;
        if self.switches > 0 {
            // Full bisection: a link carries what one node sends.
            return bytes_per_second / capacity;
        }
        let way: f64 = self.sides.iter().map(|&side| mean_way(side)).sum();
        // Six links lead out of each node.
        bytes_per_second * way / (6.0 * capacity)
    }

    /// One way, between nodes drawn at random.
    pub fn way_us(&self, is_request: bool, random: &mut fastrand::Rng) -> f64 {
        let hops = match self.switches {
            0 => {
                let along = |side: u64, random: &mut fastrand::Rng| {
                    let way = random.u64(..side);
                    way.min(side - way)
                };
                self.sides.iter().map(|&side| along(side, random)).sum::<u64>().max(1)
            }
            switches => switches,
        } as f64;
        let bytes = if is_request { self.message.request_bytes } else { self.message.answer_bytes };
        let sending_us = bytes / (self.links.gigabytes_per_second * 1e3);
        self.links.first_us + self.links.further_us * (hops - 1.0) + sending_us + self.wait_us * hops
    }
}

/// Sides of a torus that are as alike as can be.
fn sides(nodes: usize) -> [u64; 3] {
    let mut sides = [1_u64; 3];
    while sides.iter().product::<u64>() < nodes as u64 {
        if let Some(least) = sides.iter_mut().min() {
            *least *= 2;
        }
    }
    sides
}

fn mean_way(side: u64) -> f64 {
    (0..side).map(|way| way.min(side - way) as f64).sum::<f64>() / side as f64
}

/// Switches that the longest way passes, which is nearly every way.
fn switches(shape: Shape, links: &Links, nodes: usize) -> u64 {
    match shape {
        Shape::Torus => 0,
        Shape::FatTree => {
            // Levels of switches with so many ports join 2 (ports / 2)^levels nodes.
            let half = u64::from(links.ports.unwrap_or(64) / 2).max(2);
            let mut levels = 1;
            while 2 * half.pow(levels) < nodes as u64 {
                levels += 1;
            }
            u64::from(2 * levels - 1)
        }
        // Two in the group of each end; beyond the largest that there are, groups have two floors.
        Shape::Dragonfly if links.nodes_max.is_some_and(|most| nodes > most) => 6,
        Shape::Dragonfly => 4,
    }
}
