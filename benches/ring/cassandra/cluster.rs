//! A Cassandra cluster that `cargo xtask cassandra` starts and stops.
//!
//! Invariant: the cluster ends with the bench, however that ends: a guard process waits for the end of a
//! pipe and then stops the nodes.

use crate::servers::{StartError, own_child};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How many nodes; each has a copy of everything.
pub const NODES: u8 = 3;
/// Heap of each node: enough that nothing the bench writes leaves memory for want of room.
const HEAP: &str = "1G";
/// The variable that names the cluster's folder to the program that starts it.
const FOLDER: &str = "ATOLL_CASSANDRA_FOLDER";
/// Away from the ports of developers' clusters and of tests.
const PORTS: std::ops::Range<u16> = 20_042..21_042;
/// How many consecutive ports a cluster takes.
const PORTS_EACH: u16 = 6;
const LAST_WORDS_BYTES: usize = 600;

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No program that starts nodes was named.
    #[error(
        "not offered here: no program was named that starts nodes of cassandra; \
         `cargo xtask bench ring --peers` names it"
    )]
    NotNamed,
    /// Its guard could not be started.
    #[error(transparent)]
    Guard(#[from] StartError),
    /// The system refused.
    #[error("cannot {doing}")]
    System {
        /// What was tried.
        doing: &'static str,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// A node did not start.
    #[error("cassandra did not start: {last_words}")]
    Failed {
        /// The end of its output.
        last_words: String,
    },
}

/// A running cluster.
pub struct Cluster {
    folder: PathBuf,
    port: u16,
    guard: Child,
}

impl Cluster {
    /// Starts a cluster in a folder of the bench with this program, node after node.
    pub fn start(control: Option<&Path>, place: &Path) -> Result<Self, ClusterError> {
        let control = control.ok_or(ClusterError::NotNamed)?;
        let system = |doing| move |source| ClusterError::System { doing, source };
        let folder = place.join("cassandra");
        let log = place.join("cassandra.log");
        let port =
            free_port().ok_or_else(|| system("find ports for a cluster")(io::ErrorKind::AddrInUse.into()))?;
        let mut guard = own_child(&[])?;
        guard.arg("afterwards").arg("--").arg(control).args(["cassandra", "down"]).env(FOLDER, &folder);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = guard.spawn().map_err(system("start a guard of the cluster"))?;
        let cluster = Self { folder, port, guard };
        let output = std::fs::File::create(&log).map_err(system("make a log"))?;
        let errors = output.try_clone().map_err(system("make a log"))?;
        let (nodes, port) = (NODES.to_string(), port.to_string());
        let mut command = Command::new(control);
        command.args(["cassandra", "up", "--nodes", &nodes, "--heap", HEAP, "--port", &port]);
        command.env(FOLDER, &cluster.folder).stdin(Stdio::null()).stdout(output).stderr(errors);
        let status = command.status().map_err(system("start nodes of cassandra"))?;
        if status.success() {
            Ok(cluster)
        } else {
            Err(ClusterError::Failed { last_words: last_words(&log) })
        }
    }

    /// The addresses of its nodes for clients.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        (1..=NODES).map(|node| (Ipv4Addr::new(127, 0, 0, node), self.port).into()).collect()
    }

    /// The process ids of its nodes.
    pub fn processes(&self) -> Result<Vec<u32>, ClusterError> {
        let read = |node| {
            let text = std::fs::read_to_string(self.folder.join(format!("node-{node}")).join("pid"))?;
            text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        let all: io::Result<_> = (1..=NODES).map(read).collect();
        all.map_err(|source| ClusterError::System { doing: "learn the processes of the nodes", source })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // The guard stops the nodes and then itself; reporting an error here would not help.
        let _ = self.guard.wait();
    }
}

fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let from = text.len().saturating_sub(LAST_WORDS_BYTES);
    String::from_utf8_lossy(&text[from..]).trim().to_owned()
}

/// The first of enough consecutive free ports at the addresses of all nodes.
fn free_port() -> Option<u16> {
    let is_free =
        |port| (1..=NODES).all(|node| TcpListener::bind((Ipv4Addr::new(127, 0, 0, node), port)).is_ok());
    PORTS.step_by(usize::from(PORTS_EACH)).find(|&from| (from..from + PORTS_EACH).all(is_free))
}
