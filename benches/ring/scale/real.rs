//! Rings of real processes on this machine, each a node with a client: the model is fitted to them and
//! compared with them.
//!
//! Invariant: every answer is judged, and a wrong one fails the phase.

use super::clients::{self, ClientTotals, ConnectionMode};
use super::cold::{self, Cold};
use super::waking::{self, Waking};
use super::{FITTED_MOST, ScaleError};
use crate::local::Status;
use crate::machine::processors;
use crate::servers::{BenchPaths, KeptProcess};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

const PORT: u16 = 7379;
const SLOTS: u64 = 16_384;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long slots may take to spread over all nodes.
const SPREAD_TIME_MAX: Duration = Duration::from_secs(300);

/// The measurements of one number of processes.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// How many nodes; there are as many clients.
    pub nodes: usize,
    /// Operations a second, of all clients together.
    pub throughput: f64,
    /// The mean microseconds of an operation, as a client sees it.
    pub latency_us: f64,
    /// The median and the 99th percentile of the same.
    pub p50_us: f64,
    /// One operation in a hundred takes longer.
    pub p99_us: f64,
    /// Microseconds of processor time of all nodes per operation.
    pub node_us: f64,
    /// The same for all clients.
    pub client_us: f64,
    /// How many processors all nodes use while idle.
    pub idle_processors: f64,
    /// How many processors nodes, clients and other processes used under load.
    pub busy_processors: f64,
    /// How many processors other processes used.
    pub others: f64,
    /// Microseconds of one operation without any other load; kept for information, unknown to the model.
    pub alone_us: f64,
    /// The same clients, making a connection for each operation.
    pub connecting: Connecting,
    /// The costs of eviction; only for the largest number of nodes that the model is fitted on.
    pub cold: Option<Cold>,
    /// The costs of waking a processor, measured with these.
    pub waking: Option<Waking>,
}

/// The measurements with a connection for each operation.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Connecting {
    /// Operations a second, of all clients together.
    pub throughput: f64,
    /// The mean microseconds of an operation with its connection, as a client sees it.
    pub latency_us: f64,
    /// Microseconds of processor time of all nodes per operation.
    pub node_us: f64,
    /// The same for all clients.
    pub client_us: f64,
}

impl Connecting {
    fn of(asked: &ClientTotals) -> Self {
        let operations = asked.operations as f64;
        Self {
            throughput: operations / asked.seconds,
            latency_us: asked.latency_us,
            node_us: asked.node_seconds * 1e6 / operations,
            client_us: asked.client_seconds * 1e6 / operations,
        }
    }
}

/// Nodes on the loopback.
pub struct Processes {
    nodes: Vec<KeptProcess>,
    addresses: Vec<SocketAddr>,
}

impl Processes {
    /// Starts this many nodes with one copy of every slot, and waits until each leads its share.
    pub fn start(count: usize, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Result<Self, ScaleError> {
        let program = place.atoll.as_deref().ok_or(ScaleError::NoProgram)?;
        let folder = place.folder.join(format!("scale-{count}"));
        std::fs::create_dir_all(&folder).map_err(ScaleError::io("make a folder for a ring"))?;
        let own = (std::process::id() % 250 + 1) as u8;
        let address = |at: usize| SocketAddr::from((Ipv4Addr::new(127, 78, own, at as u8 + 1), PORT));
        let addresses: Vec<SocketAddr> = (0..count).map(address).collect();
        let listed = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let mut processes = Self { nodes: Vec::new(), addresses };
        for at in 0..count {
            let node = processes.start_node(at, program, &listed, &folder)?;
            processes.nodes.push(node);
        }
        processes.wait_until_spread(told)?;
        Ok(processes)
    }

    fn start_node(
        &self,
        at: usize,
        program: &Path,
        listed: &str,
        folder: &Path,
    ) -> Result<KeptProcess, ScaleError> {
        let address = self.addresses[at].to_string();
        let mut command: Vec<OsString> = vec![program.into()];
        let words = ["ring", "serve", "--listen", &address, "--nodes", listed, "--copies", "1", "--memory"];
        command.extend(words.map(OsString::from));
        Ok(KeptProcess::start(&command, &folder.join(format!("node-{at}.log")))?)
    }

    fn wait_until_spread(&mut self, told: &mut dyn FnMut(&str)) -> Result<(), ScaleError> {
        let (start, mut told_at) = (Instant::now(), Instant::now());
        loop {
            for (at, node) in self.nodes.iter_mut().enumerate() {
                if let Some(how) = node.ended() {
                    return Err(ScaleError::Ended { node: at + 1, how, last_words: node.last_words() });
                }
            }
            let status = crate::local::ask_openly(self.addresses[0]);
            let problem = match status {
                Ok(status) if self.is_spread(&status) => return Ok(()),
                Ok(status) => {
                    let most = status.nodes.iter().map(|node| node.leads).max().unwrap_or(0);
                    format!(
                        "{} slots served, {} nodes there, one leads {most}",
                        status.served,
                        status.nodes.len()
                    )
                }
                Err(error) => crate::phases::with_sources(&error),
            };
            if start.elapsed() > SPREAD_TIME_MAX {
                return Err(ScaleError::NotSpread { nodes: self.nodes.len(), problem });
            }
            if told_at.elapsed() > Duration::from_secs(10) {
                told(&format!(
                    "scale, {} processes, waits until slots are spread: {problem}",
                    self.nodes.len()
                ));
                told_at = Instant::now();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether every node leads about its share, and no slot is moving.
    fn is_spread(&self, status: &Status) -> bool {
        let share = SLOTS / self.nodes.len() as u64;
        status.served == SLOTS
            && status.nodes.len() == self.nodes.len()
            && status
                .nodes
                .iter()
                .all(|node| node.catching_up == 0 && node.leads.abs_diff(share) <= share / 8 + 2)
    }

    fn cold(&self, leaders: &[usize], idle: f64, time: Duration) -> Result<Cold, ScaleError> {
        let nodes: Vec<_> =
            self.addresses.iter().copied().zip(self.nodes.iter().map(KeptProcess::process)).collect();
        // Measured for longer than anything else, because these are small differences of varying
        // quantities.
        cold::measure(&nodes, leaders, (idle / nodes.len() as f64, time * 4))
    }

    fn cpu_seconds(&self) -> f64 {
        self.nodes.iter().filter_map(|node| threads_seconds(node.process())).sum()
    }

    /// Runs every client for the given time, after a warm-up that does not count.
    pub fn measure(&self, warm: Duration, measured: Duration, seed: u64) -> Result<Measured, ScaleError> {
        let leaders = leaders(&self.addresses).map_err(ScaleError::io("learn who leads what"))?;
        let idle_from = (Instant::now(), self.cpu_seconds());
        std::thread::sleep(measured);
        let idle_processors = (self.cpu_seconds() - idle_from.1) / idle_from.0.elapsed().as_secs_f64();
        let alone_us = clients::alone_us(&self.addresses, &leaders, measured / 2, seed)?;
        let all = |lines| -> Result<ClientTotals, ScaleError> {
            clients::all(&self.addresses, &leaders, lines, || self.cpu_seconds(), (warm, measured), seed)
        };
        let asked = all(ConnectionMode::Kept)?;
        let operations = asked.operations as f64;
        let is_last_fitted = self.nodes.len() == FITTED_MOST;
        Ok(Measured {
            nodes: self.nodes.len(),
            throughput: operations / asked.seconds,
            latency_us: asked.latency_us,
            p50_us: asked.p50_us,
            p99_us: asked.p99_us,
            node_us: asked.node_seconds * 1e6 / operations,
            client_us: asked.client_seconds * 1e6 / operations,
            idle_processors,
            busy_processors: asked.machine_busy,
            others: (asked.machine_busy - (asked.node_seconds + asked.client_seconds) / asked.seconds)
                .max(0.0),
            alone_us,
            connecting: Connecting::of(&all(ConnectionMode::Made)?),
            cold: is_last_fitted.then(|| self.cold(&leaders, idle_processors, measured)).transpose()?,
            waking: is_last_fitted.then(|| waking::measure(processors(), measured)).transpose()?,
        })
    }
}

/// Seconds for which the threads of a process ran, to the nanosecond: an idle node uses less than the
/// system's ticks can show.
pub fn threads_seconds(process: u32) -> Option<f64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let ran = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    Some(ran.sum::<f64>() / 1e9)
}

/// For each slot, the index of the node that leads it.
fn leaders(addresses: &[SocketAddr]) -> std::io::Result<Vec<usize>> {
    let serves = crate::cut::table(addresses[0], None)?;
    let place = |address: &SocketAddr| addresses.iter().position(|one| one == address);
    let places: Option<Vec<usize>> = serves.iter().map(place).collect();
    places.ok_or_else(|| std::io::Error::other("a slot is led by a node that is none of the bench's"))
}
