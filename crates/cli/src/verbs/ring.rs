//! `atoll ring`, or `atoll cluster`: runs a node that serves Redis clients, and operates a ring of several.

mod certificates;
mod hosts;
mod joining;
mod keyspace;
mod nodes;
mod operate;
mod recover;
mod slurm;
mod status;
mod up;

use crate::output::note;
use crate::text::quoted_path;
use crate::{Failure, Session};
use atoll_open::{Location, RING_CHANGE, StoreUrl};
use atoll_options::{OptionValue, Size};
use atoll_ring::{
    AccessFile, ConnectionLimits, HostPort, LatencyClass, Node, NodeError, NodeOptions, Persistence,
    RING_FILE, SlotStorage, Token,
};
use atoll_store::{Durability, StoreError};
use certificates::Certificates;
use clap::{Args, Subcommand};
use joining::{Learned, Newcomer};
use keyspace::KeyspaceVerb;
use nodes::RingNodes;
use operate::{Leave, Stay};
use recover::Recover;
use serde_json::{Value, json};
use slurm::Slurm;
use status::Status;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use up::RingUp;

/// `atoll ring`
#[derive(Subcommand, Debug)]
pub enum RingVerb {
    /// Run a node that serves Redis clients
    Serve(Box<RingServe>),
    /// Run a ring of several nodes on this machine
    Up(RingUp),
    /// Show the state of a ring: its nodes, and what each of them holds
    Status(Status),
    /// Remove a node from a ring without interrupting clients
    Leave(Leave),
    /// Keep a node that is leaving
    Stay(Stay),
    /// Recover slots that lost their last copies
    Recover(Recover),
    /// Manage the keyspaces of a ring, each with its own number of copies
    #[command(subcommand)]
    Keyspace(KeyspaceVerb),
    /// Write a batch script that runs a ring beside a command
    Slurm(Slurm),
}

/// `atoll ring serve`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring serve --memory
  atoll ring serve --store ./ring --durability synced
  atoll ring serve --store ./ring --listen 10.0.0.7:7379 --token-file ./token
  atoll ring serve --store ./ring --listen 10.0.0.7:7379 --token-file ./token --nodes @nodes.txt
  atoll ring serve --store ./ring --listen 10.0.0.8:7379 --token-file ./token --join 10.0.0.7:7379
  atoll ring serve --store ./ring --listen 10.0.0.7:7379 --token-file ./token \\
    --tls-certificate ./node.pem --tls-key ./node.key --tls-authority ./authority.pem
Any client of Redis Cluster can use it, such as redis-cli -c -p 7379.
With --durability buffered nothing survives the process. With flushed (the default) a loss of power costs at
most the last second of writes, and with synced no acknowledged write is lost.
Stops on Ctrl-C or SIGTERM, once everything is on disk.")]
pub struct RingServe {
    /// Address to listen on for clients; addresses beyond this machine require a token
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7379", value_parser = parse_address)]
    listen: SocketAddr,
    /// Address to announce to clients, if it differs from --listen
    #[arg(long, value_name = "HOST:PORT")]
    announce: Option<HostPort>,
    /// Keep all data in memory, and lose it when the node ends
    #[arg(long)]
    memory: bool,
    /// Number of event loops, the same on every node; best one for each processor core. Each loop is a node
    /// with slots of its own, at a port of its own: --listen and the ports above it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: u16,
    /// File with the token that clients must show; created if it is missing
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with users to let in as well, and their permissions, in the format of a Redis ACL file; requires
    /// a token
    #[arg(long, value_name = "FILE", requires = "token_file")]
    acl_file: Option<PathBuf>,
    #[command(flatten)]
    certificates: Certificates,
    #[command(flatten)]
    nodes: RingNodes,
    /// End cleanly when standard input ends; for a program that runs the node, and reads its address as JSON
    #[arg(long, hide = true)]
    until_input_ends: bool,
    /// Maximum number of connections of each event loop
    #[arg(long, value_name = "N", default_value_t = ConnectionLimits::default().connections_max)]
    connections: usize,
    /// Latency class in milliseconds for clients that choose none: 5, 50 or 500
    #[arg(long, value_name = "MS", value_parser = parse_class)]
    latency_class: Option<LatencyClass>,
    /// Serve Prometheus metrics at http://HOST:PORT/metrics; addresses beyond this machine require the token,
    /// and https if the node has a certificate
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// Memory budget, such as 4GiB; by default the option engine.memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_budget: Option<Size>,
}

fn parse_size(text: &str) -> Result<Size, String> {
    Size::parse(text).map_err(|error| error.to_string())
}

/// Parses an address to listen at, or a name that resolves to one. Of several addresses an IPv4 one is
/// chosen, since most clients try that first.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let is_whole =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !is_whole {
        return Err("it is not HOST:PORT, such as 127.0.0.1:7379 or [::1]:7379".to_owned());
    }
    let found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| "the name has no address".to_owned())
}

fn parse_class(text: &str) -> Result<LatencyClass, String> {
    let class = text.parse().ok().and_then(LatencyClass::of_milliseconds);
    class.ok_or_else(|| "a latency class is 5, 50 or 500, in milliseconds".to_owned())
}

impl RingVerb {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the node could not start, or failed.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let (ends, may_change) = match &self {
            Self::Serve(_) | Self::Up(_) | Self::Slurm(_) => (false, false),
            Self::Status(verb) => (!verb.runs_until_interrupted(), false),
            Self::Keyspace(KeyspaceVerb::List(_)) => (true, false),
            Self::Leave(_) | Self::Stay(_) | Self::Recover(_) | Self::Keyspace(_) => (true, true),
        };
        if may_change {
            session.will_change();
        }
        let deadline = session.write_options()?.deadline.filter(|_| ends);
        let Some(deadline) = deadline else { return self.go(session).await };
        let Ok(done) = tokio::time::timeout(deadline, self.go(session)).await else {
            let reason = format!("it was not done within {deadline:?}");
            return Err(match may_change {
                true => StoreError::Unknown { what: RING_CHANGE, reason, source: None },
                false => StoreError::Unavailable { place: session.store_url()?, reason, source: None },
            }
            .into());
        };
        done
    }

    async fn go(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Serve(verb) => verb.run(session).await,
            Self::Up(verb) => verb.run(session).await,
            Self::Status(verb) => verb.run(session).await,
            Self::Leave(verb) => verb.run(session).await,
            Self::Stay(verb) => verb.run(session).await,
            Self::Recover(verb) => verb.run(session).await,
            Self::Keyspace(verb) => verb.run(session).await,
            Self::Slurm(verb) => verb.run(session),
        }
    }
}

impl RingServe {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let storage = place(self.memory, session)?;
        let learned = self.learn(session, &storage).await?;
        let each = self.options(session, &storage, learned)?;
        let place = match &storage {
            SlotStorage::Memory => "memory".to_owned(),
            SlotStorage::Folder(folder) => folder.display().to_string(),
        };
        let is_encrypted = each.first().is_some_and(|options| options.tls.is_some());
        if self.is_plain_between_machines(is_encrypted) {
            note(
                "traffic between machines, including the token, is not encrypted: name a certificate with --tls-certificate, or accept that with --plain-text",
            );
        }
        let nodes = each.into_iter().map(Node::start).collect::<Result<Vec<_>, _>>()?;
        session.end_on_interrupt();
        let (text, value) = self.told(&nodes, &place);
        match self.until_input_ends {
            // A program reads it.
            true => session.output.json(&value)?,
            false => session.output.either(|| text, || value)?,
        }
        session.output.flush()?;
        // A node ends by itself only if it failed; otherwise a signal drops this future, and the nodes with
        // it. The others of its process end with it: whoever restarts the process restarts all.
        let endings = nodes.iter().map(Node::ending);
        let ends = endings.map(|ending| tokio::task::spawn_blocking(move || ending.wait()));
        let ended = futures::future::select_all(ends);
        match self.until_input_ends {
            true => {
                let (over, is_over) = tokio::sync::oneshot::channel();
                // A thread of its own: it is not waited for if the node ends first.
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                    let _ = over.send(());
                });
                drop(futures::future::select(ended, is_over).await);
            }
            false => {
                let _ = ended.await;
            }
        }
        let stopped = nodes.into_iter().map(Node::stop);
        Ok(stopped.fold(Ok(()), Result::and)?)
    }

    /// Whether others on the way can read the token, and nobody said that they may. Who scrapes the metrics
    /// from another machine shows the token as well.
    fn is_plain_between_machines(&self, is_encrypted: bool) -> bool {
        let mut doors = [Some(self.listen), self.metrics].into_iter().flatten();
        !is_encrypted && !self.certificates.plain_text && doors.any(|door| !door.ip().is_loopback())
    }

    /// What is printed once the nodes serve, as text and for programs.
    fn told(&self, nodes: &[Node], place: &str) -> (String, Value) {
        let address = nodes.first().map_or(self.listen, Node::address);
        let connect = format!("connect with: {}", self.how_to_connect(address));
        let describe = |node: &Node| {
            json!({
                "listening": node.address().to_string(),
                "node": node.name().as_str(),
                "metrics": node.metrics_address().map(|address| address.to_string()),
            })
        };
        let mut value = nodes.first().map_or(Value::Null, describe);
        value["store"] = place.into();
        value["pid"] = std::process::id().into();
        let name = nodes.first().map(Node::name);
        let text = match (nodes, name) {
            ([_], Some(name)) => format!("node {name} answers at {address}, from {place}, until Ctrl-C"),
            _ => {
                value["loops"] = nodes.iter().map(describe).collect();
                let last = nodes.last().map_or(address, Node::address);
                let count = nodes.len();
                format!(
                    "{count} nodes answer at {address} to port {}, from {place}, until Ctrl-C",
                    last.port()
                )
            }
        };
        (format!("{text}\n{connect}"), value)
    }

    /// What living nodes say of the ring that this process joins, if it does so by asking them.
    async fn learn(&self, session: &Session, storage: &SlotStorage) -> Result<Option<Learned>, Failure> {
        let Some(living) = &self.nodes.join else { return Ok(None) };
        let has_begun = |folder: &PathBuf| nodes::of_loop(folder, self.loops, 0).join(RING_FILE).exists();
        let newcomer = Newcomer {
            told: self.announce.clone().unwrap_or_else(|| self.listen.into()),
            loops: self.loops,
            is_new: !matches!(storage, SlotStorage::Folder(folder) if has_begun(folder)),
            token_file: self.token_file.clone(),
            tls_authority: self.certificates.authority(),
            patience: session.write_options()?.deadline,
        };
        newcomer.learn(living).await.map(Some)
    }

    /// The options of each node of this process.
    fn options(
        &self,
        session: &Session,
        storage: &SlotStorage,
        learned: Option<Learned>,
    ) -> Result<Vec<NodeOptions>, Failure> {
        let token = self.token_file.as_deref().map(Token::of_file).transpose()?;
        let memory_bytes = match self.memory_budget {
            Some(budget) => budget.0,
            None => session.settings.get::<Size>("engine.memory")?.0,
        };
        let folder = match storage {
            SlotStorage::Memory => None,
            SlotStorage::Folder(folder) => Some(folder.as_path()),
        };
        let told = self.announce.clone().unwrap_or_else(|| self.listen.into());
        let tls = self.certificates.read(&told.host)?;
        let shown = (token.as_ref(), tls.as_ref());
        let address = (self.listen, self.announce.as_ref());
        folder.map_or(Ok(()), |folder| nodes::prepare_folders(folder, self.loops))?;
        let part = self.nodes.part(address, self.loops, folder, shown, learned)?;
        let limits = ConnectionLimits {
            connections_max: self.connections,
            latency_class: self.latency_class.unwrap_or_default(),
            ..ConnectionLimits::default()
        };
        let only = NodeOptions {
            listen: self.listen,
            announce: self.announce.clone(),
            place: storage.clone(),
            persistence: persistence(session)?,
            token,
            access: self.acl_file.as_deref().map(AccessFile::at),
            metrics: self.metrics,
            tls,
            memory_bytes: memory_bytes / u64::from(self.loops),
            limits,
            ..NodeOptions::default()
        };
        let Some(part) = part else { return Ok(vec![only]) };
        let each = (0..self.loops).zip(part.own).map(|(number, others)| {
            let announced = self.announce.as_ref();
            let announced = announced.map(|told| {
                Ok::<_, Failure>(HostPort {
                    host: told.host.clone(),
                    port: nodes::raised(told.port, number)?,
                })
            });
            Ok(NodeOptions {
                listen: nodes::above(self.listen, number)?,
                announce: announced.transpose()?,
                place: match storage {
                    SlotStorage::Memory => SlotStorage::Memory,
                    SlotStorage::Folder(folder) => {
                        SlotStorage::Folder(nodes::of_loop(folder, self.loops, number))
                    }
                },
                metrics: self.metrics.map(|metrics| nodes::above(metrics, number)).transpose()?,
                others: Some(others),
                setup: Some(part.setup.clone()),
                hints: part.hints.clone(),
                ..only.clone()
            })
        });
        each.collect()
    }

    fn how_to_connect(&self, address: SocketAddr) -> String {
        let token = match &self.token_file {
            Some(file) => format!("REDISCLI_AUTH=$(cat {}) ", quoted_path(file)),
            None => String::new(),
        };
        let host =
            if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
        format!(
            "{token}redis-cli{} -c -h {host} -p {}",
            self.certificates.redis_cli_arguments(),
            address.port()
        )
    }
}

/// Where a node, or each node of a ring in a folder of its own, keeps its data.
fn place(in_memory: bool, session: &Session) -> Result<SlotStorage, Failure> {
    if in_memory && session.names_store() {
        return Err(Failure::Usage {
            problem: "--memory keeps nothing, but --store names a place to keep it".to_owned(),
            hint: "leave one of them out".to_owned(),
        });
    }
    if in_memory {
        return Ok(SlotStorage::Memory);
    }
    let Ok(url) = session.store_url() else {
        return Err(Failure::Usage {
            problem: "no place is named for the data of the ring".to_owned(),
            hint: "add --store ./ring, or --memory".to_owned(),
        });
    };
    match StoreUrl::parse(&url).map_err(StoreError::from)?.location {
        Location::Memory => Ok(SlotStorage::Memory),
        Location::Folder(folder) => Ok(SlotStorage::Folder(folder)),
        _ => Err(StoreError::Unsupported {
            what: format!("a node of a ring on {url}"),
            hint: "name a folder, such as --store ./ring",
        }
        .into()),
    }
}

fn persistence(session: &Session) -> Result<Persistence, Failure> {
    Ok(match session.write_options()?.durability {
        Some(Durability::Buffered) => Persistence::Off,
        None | Some(Durability::Flushed) => Persistence::EverySecond,
        Some(Durability::Synced) => Persistence::Always,
    })
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::Ring(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use clap::Parser;

    /// The arguments of `atoll ring serve`.
    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        serve: RingServe,
    }

    #[test]
    fn the_command_to_connect_can_be_typed_as_printed() {
        let files = ["--tls-certificate", "a", "--tls-key", "b", "--tls-authority", "my ring/authority.pem"];
        let typed = [&["serve", "--token-file", "./my token"][..], &files].concat();
        let told = Typed::parse_from(typed).serve.how_to_connect(([127, 0, 0, 1], 7379).into());
        assert_eq!(
            told,
            "REDISCLI_AUTH=$(cat './my token') redis-cli --tls --cacert 'my ring/authority.pem' -c -h 127.0.0.1 -p 7379"
        );
    }

    #[test]
    fn a_token_that_travels_in_plain_text_is_warned_of_at_every_door() {
        let warns = |arguments: &[&str], is_encrypted| {
            let typed = [&["serve", "--token-file", "t"][..], arguments].concat();
            Typed::parse_from(typed).serve.is_plain_between_machines(is_encrypted)
        };
        let (listen, metrics) = (["--listen", "10.0.0.7:7379"], ["--metrics", "0.0.0.0:9379"]);
        for beyond in [&listen[..], &metrics] {
            assert!(warns(beyond, false), "{beyond:?}");
            assert!(!warns(beyond, true), "{beyond:?}");
            assert!(!warns(&[beyond, &["--plain-text"]].concat(), false), "{beyond:?}");
        }
        assert!(!warns(&["--metrics", "127.0.0.1:9379"], false));
    }

    #[test]
    fn a_place_to_listen_at_is_an_address_or_a_name_that_has_one() {
        assert_eq!(parse_address("10.0.0.7:7379").unwrap(), "10.0.0.7:7379".parse().unwrap());
        assert_eq!(parse_address("[::1]:7379").unwrap(), "[::1]:7379".parse().unwrap());
        let local = parse_address("localhost:7390").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 7390, "{local}");
        for wrong in ["7379", "localhost", ":7379", "localhost:x", "localhost:70000", ""] {
            assert!(parse_address(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
    }
}
