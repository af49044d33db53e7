//! One node lent to tests: started for them, named in their environment, and gone when they are done.

use super::cluster::{Cluster, FOLDER};
use super::shape::{Heap, Shape};
use super::{jars, java, machine};
use crate::failure::Failure;
use crate::lock::Lock;
use crate::{requirements, workspace};
use std::path::PathBuf;

/// The room whose tests it is lent to.
pub const ROOM: &str = "cassandra";
/// How files of tests begin that run in that room, whatever their crate.
pub const FILE_OF_TESTS: &str = "cassandra";

/// Where they find the program that kills and starts nodes.
pub const CONTROL: &str = "ATOLL_CASSANDRA_CONTROL";

const FOLDER_NAME: &str = "cassandra-for-tests";
/// Away from the port of developers' clusters.
const PORT_FROM: u16 = 19_542;

/// A node that runs for as long as this lives.
pub struct Lent {
    cluster: Cluster,
    shape: Shape,
    folder: PathBuf,
    /// Checkouts may share the folder of their builds: a node there may be another run's.
    _lock: Lock,
}

impl Lent {
    /// Why this machine cannot start one; none if it can.
    pub fn hindrance() -> Option<String> {
        let told = |failure: &Failure| {
            let hint = failure.hint().map_or(String::new(), |hint| format!("; {hint}"));
            format!("{failure}{hint}")
        };
        let java = java::java().map(drop);
        let maven = if jars::SERVER.is_there() { Ok(()) } else { requirements::maven() };
        java.and(maven).err().as_ref().map(told)
    }

    /// Starts it, in place of one that a killed run left.
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

    /// What its tests find in their environment.
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
