//! Atoll as its users set it up: three nodes in memory, three copies of everything.

use super::CutError;
use super::cluster::{Cluster, HOSTS, wait_until};
use super::hosts::{Hosts, output};
use crate::servers::Kept;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 7379;
/// For a bench alone, on a network that only the bench is on.
const TOKEN: &str = "a-token-of-the-bench-alone";
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The ring.
pub struct AtollRing {
    hosts: Hosts,
    folder: PathBuf,
    program: PathBuf,
    servers: Vec<Kept>,
}

impl AtollRing {
    /// Not started yet.
    pub fn on(hosts: Hosts, folder: PathBuf, program: PathBuf) -> Self {
        Self { hosts, folder, program, servers: Vec::new() }
    }

    fn start_node(&mut self, host: usize, nodes: &str) -> Result<(), CutError> {
        let mut command = self.hosts.within(host);
        command.push(self.program.clone().into());
        let listen = format!("{}:{PORT}", Hosts::address(host));
        let words = ["ring", "serve", "--memory", "--listen", &listen, "--nodes", nodes, "--token-file"];
        command.extend(words.map(OsString::from));
        command.push(self.folder.join("token").into());
        self.servers.push(Kept::start(&command, &self.folder.join(format!("node-{host}.log")))?);
        Ok(())
    }

    fn ask(&self, host: usize, words: &[&str]) -> Result<String, CutError> {
        let mut command = self.hosts.within(host);
        let (address, port) = (Hosts::address(host).to_string(), PORT.to_string());
        let program = ["redis-cli", "--no-auth-warning", "-a", TOKEN, "-h", &address, "-p", &port];
        command.extend(program.map(OsString::from));
        command.extend(words.iter().map(OsString::from));
        output(&command)
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
        let nodes: Vec<_> = self.addresses().iter().map(SocketAddr::to_string).collect();
        for host in 0..HOSTS {
            self.start_node(host, &nodes.join(","))?;
        }
        wait_until("the making of a ring of Atoll", START_TIME_MAX, || Ok(self.is_whole().unwrap_or(false)))
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        (0..HOSTS).map(|host| (Hosts::address(host), PORT).into()).collect()
    }

    fn token(&self) -> Option<String> {
        Some(TOKEN.to_owned())
    }

    /// Every slot has its primary, and three copies in sync.
    fn is_whole(&self) -> Result<bool, CutError> {
        for host in 0..HOSTS {
            let info = self.ask(host, &["CLUSTER", "INFO"])?;
            let is_told = |line: &str| info.lines().any(|one| one.trim() == line);
            let lines = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_copies_in_sync_min:3"];
            if !lines.into_iter().all(is_told) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stop(&mut self) {
        self.servers.clear();
    }
}
