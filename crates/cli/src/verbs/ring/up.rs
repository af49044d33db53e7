//! `atoll ring up`: a ring of several nodes on this machine, each in a process of its own, until Ctrl-C.
//!
//! Invariant: no node outlives this process, however it ends.

use super::certificates::LocalAuthority;
use super::nodes::check_copies;
use super::{persistence, place};
use crate::output::note;
use crate::text::{quoted, quoted_path};
use crate::{Failure, Session};
use atoll_open::{RingOperator, RingUrl, operate_ring};
use atoll_ring::{Persistence, SlotStorage};
use atoll_store::StoreError;
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// `atoll ring up`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring up --memory
  atoll ring up --store ./ring --nodes 5 --durability synced
Nodes listen on --port and the ports above it, and keep their data in node-1, node-2, ... of the folder. The
file token beside them holds the token that clients must show. With --tls everything is encrypted, and clients
trust tls/authority.pem in the folder. Each node is a process of its own, which you may kill to see what
happens. Stops on Ctrl-C or SIGTERM, once everything is on disk.")]
pub struct RingUp {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Number of copies of all data; by default 3, or the number of nodes if that is less
    #[arg(long, value_name = "N")]
    copies: Option<usize>,
    /// Number of zones to divide the nodes into, to see copies go to different ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    zones: Option<u16>,
    /// Port of the first node for clients
    #[arg(long, value_name = "PORT", default_value_t = 7379)]
    port: u16,
    /// Keep all data in memory, and lose it when the ring ends
    #[arg(long)]
    memory: bool,
    /// File with users to let in as well, and their permissions, in the format of a Redis ACL file
    #[arg(long, value_name = "FILE", conflicts_with = "memory")]
    acl_file: Option<PathBuf>,
    /// Encrypt all connections, with certificates created in the folder
    #[arg(long, conflicts_with = "memory")]
    tls: bool,
}

/// How long a ring may take until it serves; with existing data that takes a few seconds.
const SERVES_TIME_MAX: Duration = Duration::from_secs(20);
/// Nodes are other processes, so their state has to be polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running node. It ends cleanly when this is dropped, and at the latest with this process, whose end
/// closes its standard input.
struct NodeProcess {
    process: Child,
    /// The command line that restarts it; none if its data was in memory only.
    back: Option<String>,
}

impl NodeProcess {
    /// How the node ended, and the command line that restarts it.
    fn end(&mut self, number: u32) -> String {
        let how = match self.process.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("was ended by signal {signal}"),
                None => format!("ended with {}", status.code().unwrap_or_default()),
            },
            Err(_) => "ended".to_owned(),
        };
        let back = self.back.as_ref();
        let back = back.map(|words| format!("; to restart it, run in another terminal: {words}"));
        format!("node {number} {how}{}", back.unwrap_or_default())
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl RingUp {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let folder = match place(self.memory, session)? {
            SlotStorage::Memory => None,
            SlotStorage::Folder(folder) => Some(folder),
        };
        self.copies.map_or(Ok(()), |copies| check_copies(copies, self.nodes.into()))?;
        let durability = persistence(session)?;
        let addresses = self.addresses()?;
        let made = folder.as_deref().filter(|_| self.tls).map(LocalAuthority::in_folder).transpose()?;
        let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
        let mut nodes = Vec::new();
        let mut told = Vec::new();
        for (number, address) in (1..).zip(&addresses) {
            let words =
                self.words((number, *address), &addresses, (folder.as_deref(), made.as_ref()), durability)?;
            let mut node = begin(&words, session.output.is_json())?;
            node.back = folder.as_ref().map(|_| typed(&words));
            let mut said = BufReader::new(node.process.stdout.take().ok_or(Failure::Node { number })?);
            let mut line = String::new();
            let read = said.read_line(&mut line);
            // The reason is on the screen already: the node shares our standard error.
            let value: Value =
                read.ok().and_then(|_| serde_json::from_str(&line).ok()).ok_or(Failure::Node { number })?;
            told.push(json!({ "number": number, "node": value["node"], "listening": value["listening"], "pid": value["pid"] }));
            nodes.push(node);
            let ended = ended.clone();
            // The thread ends when the node closes its output.
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut said, &mut std::io::sink());
                let _ = ended.send(number);
            });
        }
        drop(ended);
        session.end_on_interrupt();
        let ring = RingUrl {
            nodes: addresses.first().map(SocketAddr::to_string).into_iter().collect(),
            token_file: folder.as_deref().map(|folder| folder.join("token")),
            tls_authority: made.as_ref().map(LocalAuthority::trusted),
            ..RingUrl::default()
        };
        if !serves(&operate_ring(&ring)?).await {
            note("not every slot is served yet: copies are missing, or nodes are still being waited for");
        }
        self.tell(session, &addresses, (folder.as_deref(), made.as_ref()), &told)?;
        while let Some(number) = ends.recv().await {
            if let Some(node) = nodes.get_mut(number as usize - 1) {
                note(&node.end(number));
            }
        }
        Err(unavailable("no node is left"))
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let ports = (0..self.nodes).map(|at| self.port.checked_add(at));
        let ports: Option<Vec<u16>> = ports.collect();
        let ports = ports.filter(|_| self.port > 0).ok_or_else(|| Failure::Usage {
            problem: format!("--port {} for {} nodes", self.port, self.nodes),
            hint: "choose one from 1 to 45535".to_owned(),
        })?;
        Ok(ports.into_iter().map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect())
    }

    /// The arguments, after `atoll`, that run a node.
    fn words(
        &self,
        (number, address): (u32, SocketAddr),
        all: &[SocketAddr],
        (folder, made): (Option<&Path>, Option<&LocalAuthority>),
        durability: Persistence,
    ) -> Result<Vec<OsString>, Failure> {
        let nodes: Vec<_> = all.iter().map(SocketAddr::to_string).collect();
        let (address, nodes) = (address.to_string(), nodes.join(","));
        let mut typed: Vec<OsString> =
            ["ring", "serve", "--listen", &address, "--nodes", &nodes].map(OsString::from).into();
        if let Some(copies) = self.copies {
            typed.extend(["--copies".into(), copies.to_string().into()]);
        }
        if let Some(zones) = self.zones {
            let zone = (number - 1) % u32::from(zones) + 1;
            typed.extend(["--zone".into(), format!("zone-{zone}").into()]);
        }
        let mut files = Vec::new();
        match folder {
            None => typed.push("--memory".into()),
            Some(folder) => {
                std::fs::create_dir_all(folder).map_err(|source| file_failed("make", folder, source))?;
                typed.extend(["--durability".into(), words(durability).into()]);
                files.push(("--token-file", folder.join("token")));
                files.push(("--store", folder.join(format!("node-{number}"))));
            }
        }
        files.extend(self.acl_file.clone().map(|file| ("--acl-file", file)));
        if let Some(made) = made.map(|made| made.node(number)).transpose()? {
            files.push(("--tls-certificate", made.certificate));
            files.push(("--tls-key", made.key));
            files.extend(made.authority.map(|file| ("--tls-authority", file)));
        }
        for (option, file) in files {
            let file = std::path::absolute(&file).map_err(|source| file_failed("find", &file, source))?;
            typed.extend([option.into(), file.into()]);
        }
        Ok(typed)
    }

    fn tell(
        &self,
        session: &Session,
        addresses: &[SocketAddr],
        (folder, made): (Option<&Path>, Option<&LocalAuthority>),
        told: &[Value],
    ) -> Result<(), Failure> {
        let token =
            folder.map(|folder| format!("REDISCLI_AUTH=$(cat {}) ", quoted_path(&folder.join("token"))));
        let place = folder.map_or_else(|| "memory".to_owned(), |folder| folder.display().to_string());
        let mut lines = vec![format!("a ring of {} nodes, from {place}, until Ctrl-C", addresses.len())];
        lines.extend(told.iter().map(|node| {
            let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
            format!("  node {} at {}, process {}", node["number"], text("listening"), node["pid"])
        }));
        let tls =
            made.map(|made| format!(" --tls --cacert {}", quoted_path(&made.trusted()))).unwrap_or_default();
        lines.push(format!("connect with: {}redis-cli{tls} -c -p {}", token.unwrap_or_default(), self.port));
        session.output.either(|| lines.join("\n"), || json!({ "nodes": told, "store": place }))?;
        session.output.flush()
    }
}

fn file_failed(action: &'static str, file: &Path, source: std::io::Error) -> Failure {
    Failure::File { action, place: file.display().to_string(), source }
}

/// Starts a node. It reports to our standard error, as JSON if we do.
fn begin(words: &[OsString], as_json: bool) -> Result<NodeProcess, Failure> {
    let failed = |source| Failure::File { action: "run", place: "atoll ring serve".to_owned(), source };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words).arg("--until-input-ends");
    if as_json {
        command.arg("--json");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(NodeProcess { process: command.spawn().map_err(failed)?, back: None })
}

/// A command line of `atoll` as it is typed in a shell.
fn typed(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    format!("atoll {}", words.join(" "))
}

/// Whether every slot is served, according to a node; waits a while for that.
async fn serves(ring: &RingOperator) -> bool {
    let until = tokio::time::Instant::now() + SERVES_TIME_MAX;
    while tokio::time::Instant::now() < until {
        let told = tokio::time::timeout(SERVES_TIME_MAX, ring.status()).await;
        if matches!(told, Ok(Ok(status)) if status.served == status.slots) {
            return true;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    false
}

/// The durability as the command line of a node spells it.
pub(super) fn words(durability: Persistence) -> &'static str {
    match durability {
        Persistence::Off => "buffered",
        Persistence::EverySecond => "flushed",
        Persistence::Always => "synced",
    }
}

fn unavailable(reason: impl Into<String>) -> Failure {
    StoreError::Unavailable { place: "the ring".to_owned(), reason: reason.into(), source: None }.into()
}
