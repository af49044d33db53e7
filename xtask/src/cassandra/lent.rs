//! One Cassandra node lent to tests: started for them, announced in their environment, and stopped after
//! them.

use super::cluster::{Cluster, FOLDER};
use super::shape::{Heap, Shape};
use super::{jars, java, machine};
use crate::failure::Failure;
use crate::lock::Lock;
use crate::{requirements, workspace};
use std::path::PathBuf;

/// The room whose tests get the node.
pub const ROOM: &str = "cassandra";
/// The file name prefix of tests that run in that room, whatever their crate.
pub const FILE_OF_TESTS: &str = "cassandra";

/// The variable that names the program with which tests kill and start nodes.
pub const CONTROL: &str = "ATOLL_CASSANDRA_CONTROL";

const FOLDER_NAME: &str = "cassandra-for-tests";
/// The first port to try, away from that of developers' clusters.
const PORT_FROM: u16 = 19_542;

/// A node that runs until this is dropped.
pub struct Lent {
    cluster: Cluster,
    shape: Shape,
    folder: PathBuf,
    /// Checkouts may share a target folder, so a node there may belong to another run.
    _lock: Lock,
}

impl Lent {
    /// Why this machine cannot start a node; `None` if it can.
    pub fn hindrance() -> Option<String> {
        let told = |failure: &Failure| {
            let hint = failure.hint().map_or(String::new(), |hint| format!("; {hint}"));
            format!("{failure}{hint}")
        };
        let java = java::java().map(drop);
        let maven = if jars::SERVER.is_there() { Ok(()) } else { requirements::maven() };
        java.and(maven).err().as_ref().map(told)
    }

    /// Starts the node, replacing one that a killed run left behind.
    pub fn start() -> Result<Self, Failure> {
        let folder = workspace::target_dir()?.join(FOLDER_NAME);
        let lock = Lock::take(&folder.with_extension("lock"), "start a node there")?;
        let cluster = Cluster::at(folder.clone());
        cluster.down(false)?;
        let port = machine::free_port(PORT_FROM).ok_or_else(|| Failure::Refused {
            problem: format!("no ports are free from {PORT_FROM} on"),
            hint: "end what listens there".to_owned(),
        })?;
        let shape = Shape { nodes: 1, heap: Heap { mib: 768 }, port, auth: false, tls: false };
        let lent = Self { cluster, shape, folder, _lock: lock };
        lent.cluster.up(&lent.shape)?;
        Ok(lent)
    }

    /// The environment variables for its tests.
    pub fn environment(&self) -> Result<Vec<(&'static str, String)>, Failure> {
        let control = std::env::current_exe().map_err(Failure::io("find this program"))?;
        Ok(vec![
            ("ATOLL_CASSANDRA", self.shape.contact_points()),
            ("ATOLL_CASSANDRA_NODES", self.shape.nodes.to_string()),
            (CONTROL, control.to_string_lossy().into_owned()),
            (FOLDER, self.folder.to_string_lossy().into_owned()),
        ])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Err(failure) = self.cluster.down(false) {
            eprintln!("the node of the tests may still run: {failure}");
        }
    }
}
