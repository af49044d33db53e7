//! One side of a comparison: a node, or several that hold copies for each other.

use crate::client::{Choice, LoadError, Model, Operation, Outcome, Pieces, Refill, Work, run_at, shared_out};
use crate::servers::{Kind, Ring, leader_of};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A node, or several nodes.
pub struct Side {
    /// Its name in tables.
    pub name: &'static str,
    addresses: Vec<SocketAddr>,
    processes: Vec<u32>,
    connections: u32,
    model: Model,
    only: Arc<[u32]>,
}

/// A load for a side.
pub struct Ask {
    /// The operation.
    pub operation: Operation,
    /// The most requests that a connection has under way.
    pub depth: usize,
    /// When it sends more of them.
    pub refill: Refill,
    /// Which keys, and for how long.
    pub choice: Choice,
    /// The seed of the order of keys.
    pub seed: u64,
}

impl Side {
    /// All nodes of a ring that is empty and gets this many connections.
    pub fn of_ring(name: &'static str, ring: &Ring, keys: u32, connections: u32) -> io::Result<Self> {
        let leaders = ring.leaders()?;
        let home = |key| leader_of(&Pieces::key(key), &leaders);
        let only = shared_out(keys, (connections, ring.addresses.len()), home);
        let (addresses, processes) = (ring.addresses.clone(), ring.processes());
        Ok(Self { name, addresses, processes, connections, model: Model::empty(keys), only })
    }

    /// A node of a test, with one connection for all keys.
    #[cfg(test)]
    pub fn of_one(name: &'static str, address: SocketAddr, keys: u32) -> Self {
        let (addresses, model, only) = (vec![address], Model::empty(keys), (0..keys).collect());
        Self { name, addresses, processes: Vec::new(), connections: 1, model, only }
    }

    /// A single node that gets the same keys.
    pub fn beside(&self, name: &'static str, address: SocketAddr, process: u32) -> Self {
        let (addresses, processes) = (vec![address], vec![process]);
        let model = Model::empty(self.model.keys());
        let (connections, only) = (self.connections, self.only.clone());
        Self { name, addresses, processes, connections, model, only }
    }

    /// Runs a load.
    pub fn run(&mut self, ask: &Ask, pieces: &Pieces) -> Result<(Work, Outcome), LoadError> {
        let work = Work {
            address: self.addresses[0],
            protocol: Kind::Atoll.protocol(ask.depth),
            operation: ask.operation,
            connections: self.connections,
            depth: ask.depth,
            refill: ask.refill,
            choice: ask.choice,
            processes: self.processes.clone(),
            only: Some(self.only.clone()),
            seed: ask.seed,
        };
        let outcome = run_at(&work, &self.addresses, pieces, &mut self.model)?;
        Ok((work, outcome))
    }
}
