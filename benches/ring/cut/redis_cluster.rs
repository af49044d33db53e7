//! Redis 7 as its users set it up: three primaries, three replicas, made by `redis-cli --cluster create`.

use super::cluster::{Cluster, HOSTS, wait_until_well};
use super::{CutError, Hosts};
use crate::servers::KeptProcess;
use atoll_hosts::output;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The ports of a host's primary and of its replica of another host's primary.
const PORTS: [u16; 2] = [7001, 7002];
const NODE_TIMEOUT_MS: &str = "5000";
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The cluster.
pub struct RedisCluster {
    hosts: Hosts,
    folder: PathBuf,
    servers: Vec<KeptProcess>,
}

impl RedisCluster {
    /// A cluster that is not started yet.
    pub fn on(hosts: Hosts, folder: PathBuf) -> Self {
        Self { hosts, folder, servers: Vec::new() }
    }

    fn all() -> impl Iterator<Item = (usize, u16)> {
        PORTS.into_iter().flat_map(|port| (0..HOSTS).map(move |host| (host, port)))
    }

    fn start_server(&mut self, host: usize, port: u16) -> Result<(), CutError> {
        let folder = self.folder.join(format!("redis-{host}-{port}"));
        std::fs::create_dir_all(&folder).map_err(CutError::io("make a folder for Redis"))?;
        let mut command = self.hosts.within(host)?;
        let (address, port) = (Hosts::address(host).to_string(), port.to_string());
        let words = ["redis-server", "--bind", &address, "--port", &port, "--protected-mode", "no"];
        command.extend(words.map(OsString::from));
        let words = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--save", ""];
        command.extend(words.map(OsString::from));
        command.extend(["--appendonly", "no", "--dir"].map(OsString::from));
        command.push(folder.clone().into());
        self.servers.push(KeptProcess::start(&command, &folder.join("log"))?);
        Ok(())
    }

    /// Sends a command to one server, from its own host.
    fn ask(&self, host: usize, port: u16, words: &[&str]) -> Result<String, CutError> {
        let mut command = self.hosts.within(host)?;
        let (address, port) = (Hosts::address(host).to_string(), port.to_string());
        command.extend(["redis-cli", "-h", &address, "-p", &port].map(OsString::from));
        command.extend(words.iter().map(OsString::from));
        Ok(output(&command)?)
    }

    fn create(&self) -> Result<(), CutError> {
        let mut command = self.hosts.within(1)?;
        command.extend(["redis-cli", "--cluster", "create"].map(OsString::from));
        let addresses = Self::all().map(|(host, port)| format!("{}:{port}", Hosts::address(host)));
        command.extend(addresses.map(OsString::from));
        command.extend(["--cluster-replicas", "1", "--cluster-yes"].map(OsString::from));
        output(&command)?;
        Ok(())
    }
}

impl Cluster for RedisCluster {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    fn start(&mut self) -> Result<(), CutError> {
        for (host, port) in Self::all() {
            self.start_server(host, port)?;
        }
        wait_until_well("the start of six servers", START_TIME_MAX, || {
            Self::all().try_for_each(|(host, port)| self.ask(host, port, &["PING"]).map(drop)).map(|()| true)
        })?;
        self.create()?;
        wait_until_well("the making of a cluster of Redis", START_TIME_MAX, || self.is_whole())
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        (0..HOSTS).map(|host| (Hosts::address(host), PORTS[0]).into()).collect()
    }

    fn is_whole(&self) -> Result<bool, CutError> {
        let mut primaries = 0;
        for (host, port) in Self::all() {
            let cluster = self.ask(host, port, &["CLUSTER", "INFO"])?;
            let is_told = |line: &str| cluster.lines().any(|one| one.trim() == line);
            let lines =
                ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6", "cluster_size:3"];
            if !lines.into_iter().all(is_told) {
                return Ok(false);
            }
            let replication = self.ask(host, port, &["INFO", "replication"])?;
            let is_primary = replication.contains("role:master");
            primaries += usize::from(is_primary);
            // A primary counts as copied only if a replica hears it.
            let is_copied = if is_primary { "state=online" } else { "master_link_status:up" };
            if !replication.contains(is_copied) {
                return Ok(false);
            }
        }
        Ok(primaries == HOSTS)
    }

    fn stop(&mut self) {
        self.servers.clear();
    }
}
