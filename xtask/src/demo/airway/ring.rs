//! The demo's store as a ring: nodes on this machine, each a process with a folder, one of which is killed
//! and comes back.
//!
//! Invariant: no node outlives the demo, however it ends: each node exits when its standard input, which we
//! hold, closes.

use crate::console::seconds;
use crate::failure::{Failure, shown};
use crate::{cargo, run};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A ring of fewer nodes cannot continue without one of them.
pub const NODES_MIN: u16 = 3;
pub const NODES_MAX: u16 = 9;

/// A node dies at the first step, long after a rank did, and comes back at the second.
const NODE_KILLED_AT: u64 = 2_200;
const NODE_BACK_AT: u64 = 3_000;

/// Where ports are taken from. A node takes its port and others a fixed distance above; all are below the
/// range from which the system assigns ports.
const PORTS: std::ops::Range<u16> = 10_000..12_700;
const ABOVE: [u16; 3] = [0, 10_000, 20_000];

/// How often the nodes' status is polled, and for how long.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

/// How long calls are retried: on a busy machine, failover takes its time.
const TIME_OUT: &str = "60s";
/// Short, because the caller polls.
const STATUS_TIME_OUT: &str = "2s";

/// The nodes of the ring, alive or dead.
pub struct Ring {
    program: PathBuf,
    folder: PathBuf,
    addresses: Vec<SocketAddr>,
    running: Vec<Option<Child>>,
    /// Which node was killed, counted from 1.
    killed: Option<usize>,
    back_since: Option<Instant>,
    served_again: Option<Duration>,
    caught_up: Option<Duration>,
}

impl Ring {
    /// Builds the program that the nodes run.
    pub fn program() -> Result<PathBuf, Failure> {
        cargo::program("atoll", &["--release", "--package", "atoll"])
    }

    /// Starts `nodes` nodes of this program and waits until they serve.
    pub fn start(program: PathBuf, folder: &Path, nodes: u16) -> Result<Self, Failure> {
        let addresses = free_addresses(nodes)?;
        std::fs::create_dir_all(folder).map_err(Failure::io("make the folder of the ring"))?;
        let mut ring = Self {
            program,
            folder: folder.to_path_buf(),
            addresses,
            running: Vec::new(),
            killed: None,
            back_since: None,
            served_again: None,
            caught_up: None,
        };
        for number in 1..=usize::from(nodes) {
            let node = ring.begin(number)?;
            ring.running.push(Some(node));
        }
        ring.wait("serve", |status| served(status) && copies_of_all(status))?;
        ring.show("atoll ring status")?;
        Ok(ring)
    }

    /// The URL that programs open.
    pub fn url(&self) -> String {
        self.url_of(&self.addresses, TIME_OUT)
    }

    fn url_of(&self, addresses: &[SocketAddr], time_out: &str) -> String {
        let nodes: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        let token = self.folder.join("token").to_string_lossy().replace('%', "%25");
        let token = token.replace('&', "%26").replace('#', "%23").replace('?', "%3F").replace('*', "%2A");
        format!("ring://{}/?time-out={time_out}&token-file={token}", nodes.join(","))
    }

    /// The folder with the nodes' data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Called with each step that was written. Kills a node at one of them, restarts it at another, and
    /// from then on checks whether it has caught up.
    pub fn at_step(&mut self, step: u64) -> Result<(), Failure> {
        match (self.killed, self.back_since) {
            (None, _) if step >= NODE_KILLED_AT => self.kill_node(step),
            (Some(number), None) if step >= NODE_BACK_AT => self.bring_back(number, step),
            (Some(_), Some(_))
                if self.caught_up.is_none() && self.status().is_ok_and(|it| self.is_whole(&it)) =>
            {
                self.has_caught_up()
            }
            _ => Ok(()),
        }
    }

    /// Kills the leader of the council, because its death disturbs the ring most, whichever slots it led.
    fn kill_node(&mut self, step: u64) -> Result<(), Failure> {
        let leader = self.status()?["group_leader"].as_u64().and_then(|node| usize::try_from(node).ok());
        let number = leader.filter(|number| (1..=self.running.len()).contains(number)).unwrap_or(1);
        let Some(mut node) = self.running[number - 1].take() else {
            return Err(malformed(format!("node {number} does not run")));
        };
        println!("       step {step}: kill -9 {}, which is node {number} of the ring", node.id());
        let started = Instant::now();
        node.kill().map_err(Failure::io(format!("kill node {number}")))?;
        node.wait().map_err(Failure::io(format!("wait for node {number}")))?;
        self.killed = Some(number);
        self.wait("serve again", |status| !is_up(status, number) && served(status))?;
        self.served_again = Some(started.elapsed());
        let others = self.running.len() - 1;
        println!(
            "       {} later the other {others} answer for all that it led; nobody was told to start again",
            seconds(started.elapsed())
        );
        self.show("atoll ring status, without it")
    }

    fn bring_back(&mut self, number: usize, step: u64) -> Result<(), Failure> {
        self.back_since = Some(Instant::now());
        self.running[number - 1] = Some(self.begin(number)?);
        println!("       step {step}: node {number} is started again");
        Ok(())
    }

    /// Whether the killed node is up and every slot has all its copies.
    fn is_whole(&self, status: &Value) -> bool {
        self.killed.is_none_or(|number| is_up(status, number)) && served(status) && copies_of_all(status)
    }

    fn has_caught_up(&mut self) -> Result<(), Failure> {
        let took = self.back_since.map(|since| since.elapsed()).unwrap_or_default();
        self.caught_up = Some(took);
        println!("       {} later it has caught up with all that was written", seconds(took));
        self.show("atoll ring status, with it")
    }

    /// Fails unless a node was killed, came back and has caught up.
    pub fn seen(&mut self) -> Result<Value, Failure> {
        let (Some(served_again), Some(_)) = (self.served_again, self.back_since) else {
            return Err(malformed("no node was killed and came back before the run ended".to_owned()));
        };
        self.wait("have all copies again", |status| self.is_whole(status))?;
        if self.caught_up.is_none() {
            self.has_caught_up()?;
        }
        let caught_up = self.caught_up.unwrap_or_default();
        Ok(json!({
            "nodes": self.running.len(),
            "killed": self.killed,
            "served_again_s": served_again.as_secs_f64(),
            "caught_up_s": caught_up.as_secs_f64(),
        }))
    }

    /// Starts a node, and waits until it listens.
    fn begin(&self, number: usize) -> Result<Child, Failure> {
        let log = self.folder.join(format!("node-{number}.log"));
        let log = File::options().create(true).append(true).open(log).map_err(Failure::io("open a log"))?;
        let nodes: Vec<_> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let mut command = Command::new(&self.program);
        command.args(["--json", "ring", "serve", "--until-input-ends", "--nodes", &nodes.join(",")]);
        command.args(["--listen", &nodes[number - 1], "--token-file"]).arg(self.folder.join("token"));
        command.arg("--store").arg(self.folder.join(format!("node-{number}")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut node = command.spawn().map_err(Failure::io("start a node"))?;
        let mut line = String::new();
        if let Some(said) = node.stdout.take() {
            let mut said = BufReader::new(said);
            said.read_line(&mut line).map_err(Failure::io("hear from a node"))?;
            // The node prints nothing more. The pipe stays open so that a write would not fail.
            node.stdout = Some(said.into_inner());
        }
        if line.is_empty() {
            let ended = node.wait().map_err(Failure::io("wait for a node"))?;
            let what = format!(
                "node {number}, whose log is {},",
                shown(&self.folder.join(format!("node-{number}.log")))
            );
            return Err(Failure::Command { what, ended: run::ended(ended) });
        }
        Ok(node)
    }

    /// Polls a node's status until `is_so` holds.
    fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<(), Failure> {
        let started = Instant::now();
        let mut last = Value::Null;
        while started.elapsed() < PATIENCE {
            if let Ok(status) = self.status() {
                if is_so(&status) {
                    return Ok(());
                }
                last = status;
            }
            // The state of other processes can only be polled.
            thread::sleep(POLL_INTERVAL);
        }
        let waited = seconds(PATIENCE);
        Err(malformed(format!("it does not {what} within {waited}; it says {last}")))
    }

    /// The ring's status, from the nodes that run. It is available even where slots are not served.
    fn status(&self) -> Result<Value, Failure> {
        let output = self.asked(&["--json", "ring", "status"])?;
        serde_json::from_str(&output).map_err(|error| malformed(error.to_string()))
    }

    fn show(&self, title: &str) -> Result<(), Failure> {
        println!("     $ {title}");
        self.asked(&["ring", "status"])?.lines().for_each(|line| println!("       {line}"));
        Ok(())
    }

    fn asked(&self, words: &[&str]) -> Result<String, Failure> {
        let running = self.addresses.iter().zip(&self.running).filter(|(_, node)| node.is_some());
        let alive: Vec<SocketAddr> = running.map(|(address, _)| *address).collect();
        let mut command = Command::new(&self.program);
        command.args(words).arg("--store").arg(self.url_of(&alive, STATUS_TIME_OUT)).stdin(Stdio::null());
        let output = command.output().map_err(Failure::io("start atoll ring status"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // All at once, so that they flush what they have in parallel.
        self.running.iter_mut().flatten().for_each(|node| drop(node.stdin.take()));
        for node in self.running.iter_mut().flatten() {
            drop(node.wait());
        }
    }
}

fn served(status: &Value) -> bool {
    status["served"].as_u64().is_some_and(|served| Some(served) == status["slots"].as_u64())
}

/// Whether every slot has as many copies as a ring keeps by default.
fn copies_of_all(status: &Value) -> bool {
    status["copies_in_sync_min"].as_u64().is_some_and(|copies| copies >= 3)
}

fn is_up(status: &Value, number: usize) -> bool {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let mut found = nodes.filter(|node| node["node"].as_u64() == u64::try_from(number).ok());
    found.next().is_some_and(|node| node["up"].as_bool() == Some(true))
}

/// Loopback addresses for `nodes` nodes whose ports are free at the moment.
fn free_addresses(nodes: u16) -> Result<Vec<SocketAddr>, Failure> {
    let is_free =
        |port: &u16| ABOVE.iter().all(|above| TcpListener::bind((Ipv4Addr::LOCALHOST, port + above)).is_ok());
    // Not at the start of the range, where another demo or test that starts at the same moment would look.
    let from =
        PORTS.start + u16::try_from(std::process::id() % u32::from(PORTS.end - PORTS.start)).unwrap_or(0);
    let free: Vec<u16> =
        (from..PORTS.end).chain(PORTS.start..from).filter(is_free).take(usize::from(nodes)).collect();
    if free.len() < usize::from(nodes) {
        return Err(Failure::Refused {
            problem: format!("too few free ports for {nodes} nodes"),
            hint: format!("end what listens from port {} on", PORTS.start),
        });
    }
    Ok(free.into_iter().map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect())
}

fn malformed(problem: String) -> Failure {
    Failure::Malformed { what: "what the ring says".to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_whole_when_all_is_served_and_copied() {
        let status = |served: u64, copies: u64, up: bool| json!({ "slots": 16_384, "served": served, "copies_in_sync_min": copies, "nodes": [{ "node": 2, "up": up }] });
        let whole = status(16_384, 3, true);
        assert!(served(&whole) && copies_of_all(&whole) && is_up(&whole, 2));
        assert!(!is_up(&whole, 1) && !is_up(&status(16_384, 3, false), 2));
        assert!(!served(&status(16_383, 3, true)) && !served(&Value::Null));
        assert!(!copies_of_all(&status(16_384, 2, true)) && !copies_of_all(&Value::Null));
    }

    #[test]
    fn nodes_get_ports_of_their_own() {
        let addresses = free_addresses(3).unwrap();
        let ports: std::collections::BTreeSet<_> = addresses.iter().map(SocketAddr::port).collect();
        assert!(ports.len() == 3 && ports.iter().all(|port| PORTS.contains(port)));
    }
}
