//! Cut and heal: a host with a primary is cut off while a client next to it keeps writing, and comes back
//! later.
//!
//! Three hosts on a bridge, each with a primary. A client next to the primary that is cut off writes as
//! fast as it can; another one on the majority's side sends requests at a fixed pace. After the network has
//! healed, every acknowledged write is looked up. Only namespaces that the bench made are touched, and
//! every wait is bounded.

mod atoll_ring;
mod beside;
mod child;
mod cluster;
mod count;
mod experiment;
mod node;
mod paced;
mod pacer;
mod redis_cluster;
mod report;
mod slots;
#[cfg(test)]
mod tests;

pub use atoll_hosts::{Hosts, before};
pub use atoll_ring::AtollRing;
pub use beside::authentication;
pub use child::{read, spawn, text, wait_for};
pub use cluster::{Cluster, HOSTS, wait_until_well};
pub use experiment::{ClusterKind, Findings, Times, inside, run};
pub use paced::{BIN_MS, Bin, Report as PacedReport, Spec as PacedSpec, run_until};
pub use report::{is_right, print, rows};
pub use slots::{SLOTS, keys_of_all_slots, moved, slot_of, table};

use crate::servers::StartError;
use atoll_hosts::HostsError;
use std::io;
use std::path::{Path, PathBuf};

/// What a child of the bench does on a host.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Writes next to the primary that will be cut off.
    Beside(beside::Spec),
    /// Sends requests at a fixed pace.
    Paced(paced::Spec),
    /// Looks up acknowledged writes.
    Count(count::Spec),
}

/// Performs the task and writes its result to the file.
pub fn perform(task: &Task, out: &Path) -> Result<(), CutError> {
    let text = match task {
        Task::Beside(spec) => serde_json::to_string(&beside::run(spec)),
        Task::Paced(spec) => serde_json::to_string(&paced::run(spec).map_err(CutError::io("ask at a pace"))?),
        Task::Count(spec) => serde_json::to_string(&count::run(spec)?),
    };
    let text = text.map_err(|error| CutError::Io { doing: "tell".to_owned(), source: error.into() })?;
    std::fs::write(out, text).map_err(CutError::io(format!("write {}", out.display())))
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// A server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The hosts did not start, or did not do what they were told.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A program failed.
    #[error("{what} failed: {words}")]
    Command {
        /// The program.
        what: String,
        /// Its output.
        words: String,
    },
    /// The system refused.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: String,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// Namespaces may not be made here.
    #[error("not offered here: hosts cannot be made")]
    NoHosts(#[source] Box<CutError>),
    /// A rival is not installed.
    #[error("not offered here: {program} is not installed: apt-get install redis-server")]
    NotInstalled {
        /// The missing program.
        program: &'static str,
    },
    /// A node ended by itself.
    #[error("the node of host {host} ended by itself: {how}")]
    Ended {
        /// Its host.
        host: usize,
        /// How it ended, and the end of its log.
        how: String,
    },
    /// Something took too long.
    #[error("{what} took more than {seconds} s")]
    TooLong {
        /// What.
        what: String,
        /// How long it may take.
        seconds: u64,
    },
    /// The result of a child cannot be parsed.
    #[error("the result in {file} cannot be read")]
    Result {
        /// The file.
        file: PathBuf,
        #[source]
        /// The cause.
        source: serde_json::Error,
    },
    /// The node that is cut off serves no slot.
    #[error("the node that is cut off serves no slot")]
    NothingServed,
}

impl CutError {
    /// For `map_err`: an I/O error while `doing`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Whether the bench may make network namespaces.
pub fn possible() -> Result<(), CutError> {
    atoll_hosts::possible().map_err(|error| CutError::NoHosts(Box::new(error.into())))
}

/// Milliseconds since 1970: all hosts share this machine's clock.
pub fn milliseconds_now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

/// The name of a key, which is also its value: 15 bytes.
pub fn key(client: char, number: u64) -> String {
    format!("{client}{number:014}")
}
