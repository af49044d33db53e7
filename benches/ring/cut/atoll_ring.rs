//! Atoll as its users set it up: three nodes, three copies of everything, in memory or in folders.

use super::cluster::{Cluster, HOSTS, wait_until_well};
use super::{CutError, Hosts};
use crate::local;
use crate::schedules::{Keeping, cluster_info};
use crate::servers::KeptProcess;
use rustix::process::Signal;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PORT: u16 = 7379;
/// The token, on a network that only the bench uses.
const TOKEN: &str = "a-token-of-the-bench-alone";
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a node may take to answer a status request.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a killed process may take to disappear.
const GONE_TIME_MAX: Duration = Duration::from_secs(10);

/// The ring.
pub struct AtollRing {
    hosts: Hosts,
    folder: PathBuf,
    program: PathBuf,
    keeping: Keeping,
    nodes: [Option<KeptProcess>; HOSTS],
    /// How often each node was started.
    lives: [u32; HOSTS],
}

impl AtollRing {
    /// A ring of which no node is started yet.
    pub fn on(hosts: Hosts, folder: PathBuf, program: PathBuf, keeping: Keeping) -> Self {
        Self { hosts, folder, program, keeping, nodes: Default::default(), lives: [0; HOSTS] }
    }

    /// The token that clients show.
    pub const TOKEN: &str = TOKEN;

    /// Starts a node, for the first time or with the data that it kept; each life writes a log of its own.
    pub fn start_node(&mut self, host: usize) -> Result<(), CutError> {
        let mut command = self.hosts.within(host)?;
        command.push(self.program.clone().into());
        let listen = format!("{}:{PORT}", Hosts::address(host));
        let nodes: Vec<_> = self.addresses().iter().map(SocketAddr::to_string).collect();
        let words = ["ring", "serve", "--listen", &listen, "--nodes", &nodes.join(","), "--token-file"];
        command.extend(words.map(OsString::from));
        command.push(self.folder.join("token").into());
        match self.keeping {
            Keeping::Memory => command.push("--memory".into()),
            Keeping::Flushed => {
                command.extend(["--durability", "flushed", "--store"].map(OsString::from));
                command.push(self.folder.join(format!("store-{host}")).into());
            }
        }
        self.lives[host] += 1;
        let log = self.folder.join(format!("node-{host}-life-{}.log", self.lives[host]));
        self.nodes[host] = Some(KeptProcess::start(&command, &log)?);
        Ok(())
    }

    /// Kills a node and waits until its process has disappeared.
    pub fn kill_node(&mut self, host: usize) -> Result<(), CutError> {
        let Some(mut node) = self.nodes[host].take() else { return Ok(()) };
        node.signal(Signal::KILL).map_err(CutError::io(format!("kill the node of host {host}")))?;
        let start = Instant::now();
        while node.ended().is_none() {
            if start.elapsed() > GONE_TIME_MAX {
                let what = format!("the end of the node of host {host}");
                return Err(CutError::TooLong { what, seconds: GONE_TIME_MAX.as_secs() });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Sends a node a signal, if it runs.
    pub fn signal_node(&mut self, host: usize, signal: Signal) -> Result<(), CutError> {
        let Some(node) = &mut self.nodes[host] else { return Ok(()) };
        node.signal(signal).map_err(CutError::io(format!("send a signal to the node of host {host}")))
    }

    /// Nodes that ended by themselves, with the end of their logs.
    pub fn ended(&mut self) -> Vec<(usize, String)> {
        let nodes = self.nodes.iter_mut().enumerate();
        let told = nodes.filter_map(|(host, node)| {
            let node = node.as_mut()?;
            Some((host, format!("{}; its last words: {}", node.ended()?, node.last_words())))
        });
        told.collect()
    }

    /// The ring's status according to the node of a host.
    fn info(&self, host: usize) -> Result<String, CutError> {
        let ask = |address| cluster_info(address, TOKEN, LOOK_TIME_MAX);
        self.on_host(host, ask)?.map_err(CutError::io(format!("ask the node of host {host}")))
    }

    /// The status of the ring and its nodes according to each node, as text.
    pub fn states(&self) -> Vec<String> {
        let state = |host| {
            let status = self.on_host(host, |address| local::ask(address, TOKEN));
            format!("host {host}: {status:?}; {:?}", self.info(host))
        };
        (0..HOSTS).map(state).collect()
    }

    /// Talks to the node of a host from that very host, which no cut affects.
    fn on_host<T: Send>(&self, host: usize, ask: impl FnOnce(SocketAddr) -> T + Send) -> Result<T, CutError> {
        let network = self.hosts.network(host)?;
        let asked = || network.enter().map(|()| ask((Hosts::address(host), PORT).into()));
        let said = std::thread::scope(|scope| scope.spawn(asked).join());
        let said = said.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        said.map_err(CutError::io(format!("enter host {host}")))
    }
}

impl Cluster for AtollRing {
    fn name(&self) -> &'static str {
        "atoll"
    }

    fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    fn start(&mut self) -> Result<(), CutError> {
        let mut token = std::fs::OpenOptions::new();
        token.write(true).create(true).truncate(true).mode(0o600);
        let token = token.open(self.folder.join("token"));
        let written = token.and_then(|mut file| std::io::Write::write_all(&mut file, TOKEN.as_bytes()));
        written.map_err(CutError::io("write a token"))?;
        for host in 0..HOSTS {
            self.start_node(host)?;
        }
        wait_until_well("the making of a ring of Atoll", START_TIME_MAX, || {
            if let Some((host, how)) = self.ended().into_iter().next() {
                return Err(CutError::Ended { host, how });
            }
            self.is_whole()
        })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        (0..HOSTS).map(|host| (Hosts::address(host), PORT).into()).collect()
    }

    fn token(&self) -> Option<String> {
        Some(TOKEN.to_owned())
    }

    /// Whether every slot has its primary and three copies in sync.
    fn is_whole(&self) -> Result<bool, CutError> {
        for host in 0..HOSTS {
            let info = self.info(host)?;
            let is_told = |line: &str| info.lines().any(|one| one.trim() == line);
            let lines = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_copies_in_sync_min:3"];
            if !lines.into_iter().all(is_told) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stop(&mut self) {
        self.nodes = Default::default();
    }
}
