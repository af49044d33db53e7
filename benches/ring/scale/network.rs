//! Networks of large machines: distances between nodes, and the load of the links.
//!
//! Their parameters are in `topology.toml`, with sources.

use super::ScaleError;

/// The contents of the file.
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
    /// The delay between neighbours.
    first_us: f64,
    /// The delay for each further link or switch.
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

/// How slots move.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub struct Churn {
    /// How often a slot goes to another node.
    pub moves_per_slot_per_day: f64,
}

/// The shape of a network.
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

/// A network between a given number of nodes with a given request rate.
#[derive(Clone, Debug)]
pub struct Network {
    links: Links,
    /// The sides of a torus; unused for other shapes.
    sides: [u64; 3],
    /// The switches on a path; unused for a torus.
    switches: u64,
    message: MessageBytes,
    /// The mean microseconds for which a message waits at each link.
    wait_us: f64,
}

impl Topologies {
    /// Reads the networks of the file.
    pub fn read() -> Result<Self, ScaleError> {
        Ok(toml::from_str(include_str!("topology.toml"))?)
    }

    /// A network between this many nodes, each of which receives this many requests a second.
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
        // The segments of a handshake and of the end of a connection: six, three in each direction.
        let empty = 6.0 * self.message.empty_bytes * connecting_share;
        let bytes = self.message.request_bytes + self.message.answer_bytes + empty;
        let load = network.load(each_per_second * bytes);
        let mean = (self.message.request_bytes + self.message.answer_bytes) / 2.0;
        // An M/D/1 queue: messages of about one length that arrive at random. Above the capacity of the
        // links no queue is steady.
        network.wait_us = load / (2.0 * (1.0 - load.min(0.98))) * mean / (links.gigabytes_per_second * 1e3);
        network
    }
}

impl Network {
    /// The load of the links relative to their capacity, if each node sends this many bytes a second to
    /// random nodes.
    fn load(&self, bytes_per_second: f64) -> f64 {
        let capacity = self.links.gigabytes_per_second * 1e9;
        if self.switches > 0 {
            // Full bisection bandwidth: a link carries what one node sends.
            return bytes_per_second / capacity;
        }
        let way: f64 = self.sides.iter().map(|&side| mean_way(side)).sum();
        // Six links lead out of each node.
        bytes_per_second * way / (6.0 * capacity)
    }

    /// The time of one message between random nodes.
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

/// The sides of a torus, as equal as possible.
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

/// The switches on the longest path, which nearly every path is.
fn switches(shape: Shape, links: &Links, nodes: usize) -> u64 {
    match shape {
        Shape::Torus => 0,
        Shape::FatTree => {
            // Switches with this many ports in `levels` levels connect 2 (ports / 2)^levels nodes.
            let half = u64::from(links.ports.unwrap_or(64) / 2).max(2);
            let mut levels = 1;
            while 2 * half.pow(levels) < nodes as u64 {
                levels += 1;
            }
            u64::from(2 * levels - 1)
        }
        // Two in the group at each end; beyond the largest existing networks, groups have two levels.
        Shape::Dragonfly if links.nodes_max.is_some_and(|most| nodes > most) => 6,
        Shape::Dragonfly => 4,
    }
}
