//! The shape of a cluster, stored in its folder so that later commands need not be told again.

use crate::arguments::Arguments;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The most nodes that make sense on a developer's machine.
const NODES_MAX: usize = 9;
/// The smallest heap with which Cassandra does not spend its time collecting garbage.
const HEAP_MIB_MIN: u64 = 256;

/// The port for clients when none is named.
pub const PORT: u16 = 19_042;

/// A cluster's shape, as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many nodes; they use 127.0.0.1 and the addresses after it.
    pub nodes: usize,
    /// The Java heap of each node.
    pub heap: Heap,
    /// Where every node listens for clients; the ports after it are for the nodes themselves.
    pub port: u16,
    /// Whether clients need a password.
    pub auth: bool,
    /// Whether clients must connect by TLS.
    pub tls: bool,
}

impl Shape {
    /// Parses the options of `up`.
    pub fn taken(arguments: &mut Arguments) -> Result<Self, Failure> {
        let shape = Self {
            nodes: arguments.option("--nodes")?.unwrap_or(1),
            heap: arguments.option("--heap")?.unwrap_or(Heap { mib: 768 }),
            port: arguments.option("--port")?.unwrap_or(PORT),
            auth: arguments.flag("--auth"),
            tls: arguments.flag("--tls"),
        };
        if !(1..=NODES_MAX).contains(&shape.nodes) {
            return Err(arguments.wrong(format!("--nodes is 1 to {NODES_MAX}, not {}", shape.nodes)));
        }
        if shape.heap.mib < HEAP_MIB_MIN {
            return Err(arguments.wrong(format!("--heap is {HEAP_MIB_MIN}M at least, not {}", shape.heap)));
        }
        let last = usize::from(shape.port) + shape.ports_in_all();
        if shape.port < 1_024 || last > usize::from(u16::MAX) {
            return Err(arguments.wrong(format!("--port {} leaves no room for the nodes", shape.port)));
        }
        Ok(shape)
    }

    /// Every node's number, from 1.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        1..=self.nodes
    }

    /// Where a node listens for clients.
    pub fn clients(&self, node: usize) -> SocketAddr {
        (address(node), self.port).into()
    }

    /// Where a node listens for other nodes.
    pub fn storage_port(&self) -> u16 {
        self.port + 1
    }

    /// Where a node would listen for other nodes with TLS.
    pub fn secure_storage_port(&self) -> u16 {
        self.port + 2
    }

    /// Where a node listens for administration commands; all nodes share one address for it.
    pub fn administration_port(&self, node: usize) -> u16 {
        self.port + 2 + u16::try_from(node).unwrap_or_default()
    }

    /// Every address that must be free before a node starts.
    pub fn listens(&self, node: usize) -> [SocketAddr; 3] {
        let administration = (Ipv4Addr::LOCALHOST, self.administration_port(node)).into();
        [self.clients(node), (address(node), self.storage_port()).into(), administration]
    }

    /// How many consecutive ports a cluster takes.
    pub fn ports_in_all(&self) -> usize {
        3 + self.nodes
    }

    /// The URL to give to `atoll`.
    pub fn url(&self) -> String {
        let user = if self.auth { "cassandra@" } else { "" };
        format!("cassandra://{user}{}/atoll", self.contact_points())
    }

    /// Every node's address for clients.
    pub fn contact_points(&self) -> String {
        let each: Vec<String> = self.numbers().map(|node| self.clients(node).to_string()).collect();
        each.join(",")
    }

    /// The shape as JSON, for the file in the cluster's folder.
    pub fn as_json(&self) -> Value {
        json!({
            "nodes": self.nodes, "heap_mib": self.heap.mib, "port": self.port, "auth": self.auth, "tls": self.tls,
        })
    }

    /// The shape from that file's JSON.
    pub fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let flag = |name: &str| value.get(name).and_then(Value::as_bool);
        Some(Self {
            nodes: usize::try_from(number("nodes")?).ok()?,
            heap: Heap { mib: number("heap_mib")? },
            port: u16::try_from(number("port")?).ok()?,
            auth: flag("auth")?,
            tls: flag("tls")?,
        })
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = if self.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        write!(f, "{nodes}, port {}, heap {}", self.port, self.heap)?;
        f.write_str(if self.auth { ", passwords" } else { "" })?;
        f.write_str(if self.tls { ", TLS" } else { "" })
    }
}

/// A node's own address.
pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, u8::try_from(node).unwrap_or(u8::MAX))
}

/// A heap size in Java's notation: `768M` or `2G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// In mebibytes.
    pub mib: u64,
}

impl FromStr for Heap {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, factor) = match text.strip_suffix(['G', 'g']) {
            Some(number) => (number, 1_024),
            None => (text.strip_suffix(['M', 'm']).ok_or(())?, 1),
        };
        let number: u64 = number.parse().map_err(drop)?;
        Ok(Self { mib: number.checked_mul(factor).ok_or(())? })
    }
}

impl std::fmt::Display for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}M", self.mib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(words: &[&str]) -> Result<Shape, Failure> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut arguments = Arguments::new("cargo xtask cassandra up", &words);
        Shape::taken(&mut arguments)
    }

    #[test]
    fn options_become_a_shape_that_a_file_keeps() {
        let shape = taken(&["--nodes", "3", "--heap=1G", "--auth"]).unwrap();
        assert_eq!((shape.nodes, shape.heap.mib, shape.port), (3, 1_024, PORT));
        assert_eq!(
            shape.url(),
            "cassandra://cassandra@127.0.0.1:19042,127.0.0.2:19042,127.0.0.3:19042/atoll"
        );
        assert_eq!(Shape::from_json(&shape.as_json()), Some(shape));
        assert_eq!(Shape::from_json(&json!({"nodes": 3})), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for words in
            [["--nodes", "0"], ["--nodes", "10"], ["--heap", "5"], ["--heap", "64M"], ["--port", "65533"]]
        {
            assert!(taken(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn nodes_of_one_cluster_never_want_the_same_address() {
        let shape = taken(&["--nodes", "9"]).unwrap();
        let mut all: Vec<SocketAddr> = shape.numbers().flat_map(|node| shape.listens(node)).collect();
        let highest = all.iter().map(SocketAddr::port).max().unwrap();
        assert!(usize::from(highest - shape.port) < shape.ports_in_all());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 27);
    }
}
