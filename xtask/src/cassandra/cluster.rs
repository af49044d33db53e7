//! A cluster: its folder, its shape, and operations on all its nodes.
//!
//! Invariant: nodes join one at a time, each after the previous one answers.
//! Invariant: two programs never change the same cluster at once; a lock in its folder prevents it.

use super::node::Node;
use super::shape::Shape;
use super::{certificates, jars, java, machine};
use crate::console::{Step, Verdict};
use crate::failure::{Failure, shown};
use crate::workspace;
use std::fs::File;
use std::path::PathBuf;

/// The environment variable that names another folder for the cluster.
pub const FOLDER: &str = "ATOLL_CASSANDRA_FOLDER";
const SHAPE: &str = "cluster.json";

/// A cluster, running or not.
pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// The cluster of this checkout, or the one that the environment names.
    pub fn here() -> Result<Self, Failure> {
        let named = std::env::var_os(FOLDER).map(PathBuf::from);
        let folder = named.map_or_else(|| Ok(workspace::target_dir()?.join("cassandra")), Ok)?;
        Ok(Self { folder })
    }

    /// The cluster in this folder.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The shape that it was created with.
    pub fn shape(&self) -> Result<Shape, Failure> {
        self.known()?.ok_or_else(|| Failure::Refused {
            problem: format!("there is no cluster in {}", shown(&self.folder)),
            hint: "start one with: cargo xtask cassandra up".to_owned(),
        })
    }

    /// One of its nodes.
    pub fn node<'a>(&self, shape: &'a Shape, number: usize) -> Node<'a> {
        Node::of(shape, &self.folder, number)
    }

    /// The certificate authority that TLS clients trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join(certificates::AUTHORITY)
    }

    /// Starts the nodes of this shape that are not running. A cluster of another shape in the same folder
    /// is an error.
    pub fn up(&self, shape: &Shape) -> Result<(), Failure> {
        if let Some(known) = self.known()?.filter(|known| known != shape) {
            let runs = known.numbers().any(|number| self.node(&known, number).process().is_some());
            let lies = if runs { "runs" } else { "lies" };
            return Err(Failure::Refused {
                problem: format!("another cluster {lies} in {}: {known}", shown(&self.folder)),
                hint: "end it and remove its data with: cargo xtask cassandra down".to_owned(),
            });
        }
        let numbers: Vec<usize> = shape.numbers().collect();
        self.start(shape, &numbers, 0)
    }

    /// Starts those of the given nodes that are not running, with their clocks `ahead` seconds ahead. Waits
    /// until they answer and every running node sees all others.
    pub fn start(&self, shape: &Shape, numbers: &[usize], ahead: i64) -> Result<(), Failure> {
        let absent = || numbers.iter().filter(|number| self.node(shape, **number).process().is_none());
        if absent().next().is_some() {
            let (java, jars) = (java::java()?, jars::SERVER.folder()?);
            let _turn = self.turn()?;
            machine::has_memory(shape, absent().count())?;
            absent().try_for_each(|number| machine::has_addresses(shape, *number))?;
            self.remember(shape)?;
            if shape.tls {
                certificates::make(&java::beside(&java, "keytool"), &self.folder, shape)?;
            }
            for number in absent() {
                let node = self.node(shape, *number);
                let mut step = Step::start(format!("start node {number} at {}", node.address()));
                let child = node.start(&java, &jars, ahead)?;
                node.wait_until_ready(child, &mut step)?;
                step.end(Verdict::Passed, "it answers");
            }
        }
        let running: Vec<Node<'_>> = shape
            .numbers()
            .map(|number| self.node(shape, number))
            .filter(|node| node.process().is_some())
            .collect();
        // While some nodes are down on purpose, the cluster cannot be complete.
        if running.len() < shape.nodes {
            return Ok(());
        }
        let mut step = Step::quiet("wait until every node sees every other one");
        running.iter().try_for_each(|node| node.wait_until_joined(&mut step))?;
        if shape.auth && !shape.tls { running[0].spread_roles() } else { Ok(()) }
    }

    /// Stops all nodes and returns how many were running. Removes the cluster unless `keeps` is set.
    pub fn down(&self, keeps: bool) -> Result<usize, Failure> {
        let Some(shape) = self.known()? else { return Ok(0) };
        let turn = self.turn()?;
        // A cluster that is thrown away needs no clean shutdown.
        let signal = if keeps { "TERM" } else { "KILL" };
        let mut ended = 0;
        for number in shape.numbers() {
            ended += usize::from(self.node(&shape, number).end(signal)?);
        }
        if !keeps {
            std::fs::remove_dir_all(&self.folder)
                .map_err(Failure::io(format!("remove {}", shown(&self.folder))))?;
        }
        drop(turn);
        Ok(ended)
    }

    fn known(&self) -> Result<Option<Shape>, Failure> {
        let Ok(text) = std::fs::read_to_string(self.folder.join(SHAPE)) else { return Ok(None) };
        let shape = serde_json::from_str(&text).ok().and_then(|value| Shape::from_json(&value));
        shape.map(Some).ok_or_else(|| Failure::Refused {
            problem: format!("{} is damaged", shown(&self.folder.join(SHAPE))),
            hint: format!("end what still runs, and remove {}", shown(&self.folder)),
        })
    }

    fn remember(&self, shape: &Shape) -> Result<(), Failure> {
        let (file, unfinished) = (self.folder.join(SHAPE), self.folder.join("cluster.part"));
        std::fs::write(&unfinished, shape.as_json().to_string())
            .and_then(|()| std::fs::rename(&unfinished, &file))
            .map_err(Failure::io(format!("write {}", shown(&file))))
    }

    /// Waits until no other program changes this cluster, and locks it.
    fn turn(&self) -> Result<File, Failure> {
        let doing = || format!("lock {}", shown(&self.folder));
        std::fs::create_dir_all(&self.folder).map_err(Failure::io(doing()))?;
        let file = File::create(self.folder.join("lock")).map_err(Failure::io(doing()))?;
        file.lock().map_err(Failure::io(doing()))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cassandra::shape::Heap;

    fn shape(nodes: usize) -> Shape {
        Shape { nodes, heap: Heap { mib: 512 }, port: 19_042, auth: false, tls: false }
    }

    fn scratch(name: &str) -> Cluster {
        let folder = std::env::temp_dir().join(format!("atoll-cassandra-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Cluster::at(folder)
    }

    #[test]
    fn a_cluster_of_another_shape_is_not_touched() {
        let cluster = scratch("shape");
        cluster.remember(&shape(3)).unwrap();
        assert_eq!(cluster.shape().unwrap(), shape(3));
        let failure = cluster.up(&shape(1)).unwrap_err();
        assert!(failure.to_string().contains("3 nodes"), "{failure}");
        assert!(failure.hint().unwrap().contains("down"));
        assert_eq!(cluster.down(false).unwrap(), 0);
        assert!(cluster.shape().is_err(), "nothing is left");
    }

    #[test]
    fn a_number_that_belongs_to_somebody_else_is_no_node() {
        let cluster = scratch("number");
        let shape = shape(1);
        cluster.remember(&shape).unwrap();
        let folder = cluster.folder.join("node-1");
        std::fs::create_dir_all(&folder).unwrap();
        // The process of this test: it is alive, but it is not a node.
        std::fs::write(folder.join("pid"), std::process::id().to_string()).unwrap();
        assert_eq!(cluster.node(&shape, 1).process(), None);
        assert_eq!(cluster.down(false).unwrap(), 0, "and nobody is ended");
    }

    #[test]
    fn a_damaged_note_is_an_error_and_no_new_cluster() {
        let cluster = scratch("damaged");
        std::fs::write(cluster.folder.join(SHAPE), "{").unwrap();
        assert!(cluster.shape().unwrap_err().to_string().contains("damaged"));
        assert!(cluster.down(false).is_err());
        std::fs::remove_dir_all(&cluster.folder).unwrap();
    }
}
