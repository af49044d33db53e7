//! Three nodes, each a process of its own at an address of its own, and the ways to cut one of them off.

use crate::clients::Speaker;
use crate::support::Workspace;
use atoll_hosts::Hosts;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

pub const NODES: usize = 3;
pub const TOKEN: &str = "a-token-of-this-test-alone";
const PORT: u16 = 7379;

/// How much of a node's log a failed test shows.
const LAST_WORDS_BYTES: usize = 2_000;

/// Where the nodes are.
pub enum Network {
    /// On hosts of their own, which are network namespaces on a bridge.
    Hosts(Hosts),
    /// At this port of the first loopback addresses.
    Loopback(u16),
}

/// How a node is cut off.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Its host is off the network; on loopback addresses, it is stopped.
    Off,
    /// It hears the others and they do not hear it; on loopback addresses, it is killed.
    Unheard,
}

impl Network {
    pub fn address(&self, node: usize) -> SocketAddr {
        match self {
            Self::Hosts(_) => (Hosts::address(node), PORT).into(),
            Self::Loopback(port) => (Ipv4Addr::new(127, 0, 0, node as u8 + 1), *port).into(),
        }
    }

    /// The node at the end of a redirection.
    pub fn node_at(&self, moved: &str) -> usize {
        let told = moved.trim().rsplit(' ').next().unwrap();
        let found = (0..NODES).find(|node| self.address(*node).to_string() == told);
        found.unwrap_or_else(|| panic!("no node is at {moved:?}"))
    }

    /// Whether a node sends nothing more from the moment on at which its cut has returned. A process that is
    /// sent a signal may still be writing.
    pub fn is_cut_at_once(&self) -> bool {
        matches!(self, Self::Hosts(_))
    }

    /// Does something on the host of a node: what it opens or starts stays there.
    pub fn on_host<T: Send>(&self, node: usize, work: impl FnOnce() -> T + Send) -> T {
        let Self::Hosts(hosts) = self else { return work() };
        let network = hosts.network(node).unwrap();
        let on_host = move || {
            network.enter().unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(on_host).join()).unwrap()
    }
}

/// The nodes, with a copy of everything on each.
pub struct Nodes<'n> {
    network: &'n Network,
    place: Workspace,
    running: Vec<Child>,
}

impl<'n> Nodes<'n> {
    /// Starts them, and waits until every slot is served and copied.
    pub fn start(network: &'n Network) -> Self {
        let mut nodes = Self { network, place: Workspace::new(), running: Vec::new() };
        let token = nodes.place.folder.path().join("token");
        let mut token = File::options().write(true).create_new(true).mode(0o600).open(token).unwrap();
        token.write_all(TOKEN.as_bytes()).unwrap();
        for node in 0..NODES {
            let started = nodes.spawn(node);
            nodes.running.push(started);
        }
        (0..NODES).for_each(|node| nodes.wait_for_start(node));
        crate::wait_until("a ring of three nodes is made", || nodes.is_whole());
        nodes
    }

    fn log(&self, node: usize) -> PathBuf {
        self.place.folder.path().join(format!("node-{node}.log"))
    }

    fn spawn(&self, node: usize) -> Child {
        let address = |node| self.network.address(node).to_string();
        let all = (0..NODES).map(address).collect::<Vec<_>>().join(",");
        let (listen, store) = (address(node), format!("node-{node}"));
        let ring = ["--json", "ring", "serve", "--listen", &listen, "--nodes", &all, "--token-file", "token"];
        // The node ends when this test does, however that happens.
        let kept = ["--store", &store, "--durability", "flushed", "--until-input-ends"];
        let mut command = self.place.command(&[&ring[..], &kept[..]].concat());
        let log = File::options().create(true).append(true).open(self.log(node)).unwrap();
        // A stopped node sees no end of its input. In a group of its own it is ended by the system, as is
        // every stopped group that nobody is left to continue.
        command.stderr(log).process_group(0);
        self.network.on_host(node, move || command.spawn().unwrap())
    }

    fn wait_for_start(&mut self, node: usize) {
        let mut line = String::new();
        let stdout = self.running[node].stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let started: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("node {node} does not start: {}", self.last_words(node)));
        assert_eq!(started["listening"], self.network.address(node).to_string());
    }

    /// The node that leads the configuration group; the first one if nobody knows.
    pub fn group_leader(&self) -> usize {
        let store = format!("ring://{}/?token-file=token", self.network.address(0));
        let told = self.network.on_host(0, || {
            self.place.run(&["--json", "ring", "status", "--store", &store, "--deadline", "10s"])
        });
        let status: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
        let number = status["group_leader"].as_u64().unwrap_or(1) as usize;
        number.clamp(1, NODES) - 1
    }

    /// Whether, according to every node, each slot is served and has a copy in sync on all of them.
    pub fn is_whole(&self) -> bool {
        let wanted =
            ["cluster_state:ok\r\n", "cluster_slots_ok:16384\r\n", "cluster_copies_in_sync_min:3\r\n"];
        (0..NODES).all(|node| {
            let speaker = Speaker::connect(self.network, node, node, Duration::from_secs(1));
            let info = speaker.and_then(|mut speaker| speaker.say("CLUSTER INFO"));
            info.is_ok_and(|info| wanted.iter().all(|line| info.contains(line)))
        })
    }

    /// Cuts a node off from the others.
    pub fn cut(&mut self, node: usize, cut: Cut) {
        match (self.network, cut) {
            (Network::Hosts(hosts), Cut::Off) => hosts.cut(node).unwrap(),
            (Network::Hosts(hosts), Cut::Unheard) => block(hosts, node, true),
            (Network::Loopback(_), Cut::Off) => self.signal(node, Signal::STOP),
            (Network::Loopback(_), Cut::Unheard) => {
                self.running[node].kill().unwrap();
                self.running[node].wait().unwrap();
            }
        }
    }

    /// Undoes a cut.
    pub fn heal(&mut self, node: usize, cut: Cut) {
        match (self.network, cut) {
            (Network::Hosts(hosts), Cut::Off) => hosts.heal(node).unwrap(),
            (Network::Hosts(hosts), Cut::Unheard) => block(hosts, node, false),
            (Network::Loopback(_), Cut::Off) => self.signal(node, Signal::CONT),
            (Network::Loopback(_), Cut::Unheard) => {
                self.running[node] = self.spawn(node);
                self.wait_for_start(node);
            }
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.running[node]), signal).unwrap();
    }

    /// The end of what a node said.
    fn last_words(&self, node: usize) -> String {
        let log = std::fs::read(self.log(node)).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_WORDS_BYTES)..]).into_owned()
    }
}

impl Drop for Nodes<'_> {
    /// A failed test shows what the nodes said, and leaves nothing behind.
    fn drop(&mut self) {
        for node in &mut self.running {
            let _ = node.kill();
            let _ = node.wait();
        }
        if std::thread::panicking() {
            (0..NODES).for_each(|node| println!("node {node} said: {}", self.last_words(node)));
        }
    }
}

/// Lets nobody hear a host, or everybody.
fn block(hosts: &Hosts, host: usize, is_blocked: bool) {
    for other in (0..NODES).filter(|other| *other != host) {
        hosts.block(host, other, is_blocked).unwrap();
    }
}
