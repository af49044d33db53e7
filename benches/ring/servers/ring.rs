//! A ring of Atoll: several nodes on the loopback that hold copies of everything for each other.

use super::{BenchPaths, Durability, KeptProcess, ServerError};
use crate::client::{SpeakError, Speaker};
use crate::cut::{SLOTS, slot_of, table};
use crate::phases::with_sources;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// How long founding a ring may take.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A node uses its port and those at these distances above it.
const ABOVE: [u16; 3] = [0, 10_000, 20_000];
/// Where ports are taken from: below those that the system gives to clients, and far enough below the
/// maximum.
const PORTS: std::ops::Range<u16> = 11_000..12_700;
const NAME: &str = "a ring of atoll";

/// Nodes that hold copies for each other.
pub struct Ring {
    nodes: Vec<KeptProcess>,
    /// Where they listen.
    pub addresses: Vec<SocketAddr>,
    copies: usize,
}

impl Ring {
    /// Starts this many nodes, each with a copy of everything, and waits until all copies are in sync.
    pub fn start(nodes: usize, durability: Durability, place: &BenchPaths) -> Result<Self, ServerError> {
        Self::start_as("ring", (nodes, durability), place, &[])
    }

    /// The same, in a folder of this name, with additional arguments for each node.
    pub fn start_as(
        name: &str,
        (nodes, durability): (usize, Durability),
        place: &BenchPaths,
        more: &[&str],
    ) -> Result<Self, ServerError> {
        let prepare = |source| ServerError::Prepare { server: NAME, source };
        let program = super::offered(place.atoll.as_deref())?;
        let folder = place.folder.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(prepare)?;
        }
        std::fs::create_dir_all(&folder).map_err(prepare)?;
        let addresses = free_addresses(nodes).map_err(prepare)?;
        let listed = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let mut ring = Self { nodes: Vec::new(), addresses, copies: nodes };
        for (number, address) in ring.addresses.iter().enumerate() {
            let mut command: Vec<OsString> = vec![program.into()];
            let (address, copies) = (address.to_string(), nodes.to_string());
            let words = ["ring", "serve", "--listen", &address, "--nodes", &listed, "--copies", &copies];
            command.extend(words.map(Into::into));
            command.extend(more.iter().map(Into::into));
            command.extend(durability.words(&folder.join(format!("store-{number}"))));
            ring.nodes.push(KeptProcess::start(&command, &folder.join(format!("node-{number}.log")))?);
        }
        ring.wait_until_whole()?;
        Ok(ring)
    }

    /// The process ids of the nodes.
    pub fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(KeptProcess::process).collect()
    }

    /// For each slot, the index of the node that leads it.
    pub fn leaders(&self) -> io::Result<Vec<usize>> {
        let serves = table(self.addresses[0], None)?;
        let place = |address: &SocketAddr| self.addresses.iter().position(|one| one == address);
        let places: Option<Vec<usize>> = serves.iter().map(place).collect();
        places.ok_or_else(|| io::Error::other("a slot is led by a node that is none of the bench's"))
    }

    fn wait_until_whole(&mut self) -> Result<(), ServerError> {
        let start = Instant::now();
        loop {
            let problem = match self.is_whole() {
                Ok(true) => return Ok(()),
                Ok(false) => "not every slot has its copies in sync".to_owned(),
                Err(error) => with_sources(&error),
            };
            let ended = self.nodes.iter_mut().find_map(|node| Some((node.ended()?, node.last_words())));
            if ended.is_some() || start.elapsed() > START_TIME_MAX {
                let (problem, last_words) = ended.unwrap_or((problem, String::new()));
                return Err(ServerError::Silent { server: NAME, problem, last_words });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether all nodes report that every slot is served and has all its copies.
    fn is_whole(&self) -> Result<bool, SpeakError> {
        let copies = format!("cluster_copies_in_sync_min:{}", self.copies);
        let lines = ["cluster_state:ok", "cluster_slots_ok:16384", &copies];
        for address in &self.addresses {
            let info = Speaker::connect(*address)?.text(&[b"CLUSTER", b"INFO"])?;
            if !lines.iter().all(|line| info.lines().any(|one| one.trim() == *line)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The index of a key's leader, given the leaders of all slots.
pub fn leader_of(key: &[u8], leaders: &[usize]) -> usize {
    debug_assert_eq!(leaders.len(), SLOTS);
    leaders[slot_of(key)]
}

impl Durability {
    /// A node's arguments for this durability; `store` is its folder, if it has one.
    pub(super) fn words(self, store: &std::path::Path) -> Vec<OsString> {
        let class = match self {
            Self::Memory => return vec!["--memory".into()],
            Self::Flushed => "flushed",
            Self::Always => "synced",
        };
        vec!["--durability".into(), class.into(), "--store".into(), store.into()]
    }
}

/// Loopback ports that are free at the moment, for this many nodes.
fn free_addresses(nodes: usize) -> io::Result<Vec<SocketAddr>> {
    let is_free =
        |port: &u16| ABOVE.iter().all(|above| TcpListener::bind((Ipv4Addr::LOCALHOST, port + above)).is_ok());
    // A different place each time, so that a server that just used a port is not taken for a node of this
    // ring.
    let from = fastrand::u16(PORTS);
    let ports = (from..PORTS.end).chain(PORTS.start..from).filter(is_free);
    let addresses: Vec<SocketAddr> =
        ports.take(nodes).map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect();
    if addresses.len() < nodes { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(addresses) }
}
