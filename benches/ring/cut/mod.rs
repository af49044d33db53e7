//! Cut and heal: a host with a primary is cut off while a client beside it goes on writing, and comes back
//! later.
//!
//! Three hosts on a bridge, each with a primary; a client beside the primary that is cut off writes as fast
//! as it can, another one on the majority's side asks at a fixed pace. After the network has healed, every
//! acknowledged write is looked up. Nothing but namespaces that the bench made is touched, and every wait has
//! an end.

mod atoll_ring;
mod beside;
mod child;
mod cluster;
mod count;
mod experiment;
mod hosts;
mod node;
mod paced;
mod pacer;
mod redis_cluster;
mod report;
mod slots;
#[cfg(test)]
mod tests;

pub use atoll_ring::AtollRing;
pub use beside::authentication;
pub use child::{before, read, spawn, text, wait_for};
pub use cluster::{Cluster, HOSTS, wait_until_well};
pub use experiment::{Findings, Times, Whose, inside, run};
pub use hosts::{Hosts, possible};
pub use report::{is_right, print, rows};
pub use slots::{SLOTS, keys_of_all_slots, moved, slot_of, table};

use crate::servers::StartError;
use std::io;
use std::path::{Path, PathBuf};

/// What one of the bench's own children does inside a host.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Writes beside the primary that will be cut off.
    Beside(beside::Spec),
    /// Asks at a fixed pace.
    Paced(paced::Spec),
    /// Looks acknowledged writes up.
    Count(count::Spec),
}

/// Does it, and writes what came of it to the file.
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
    /// A server or a host did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A program said no.
    #[error("{what} failed: {words}")]
    Command {
        /// Which.
        what: String,
        /// What it said.
        words: String,
    },
    /// The system said no.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: String,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// This machine makes no hosts for whoever runs the bench.
    #[error("not offered here: hosts cannot be made")]
    NoHosts(#[source] Box<CutError>),
    /// A rival is not there.
    #[error("not offered here: {program} is not installed: apt-get install redis-server")]
    NotInstalled {
        /// What of it.
        program: &'static str,
    },
    /// A node ended by itself.
    #[error("the node of host {host} ended by itself: {how}")]
    Ended {
        /// Where.
        host: usize,
        /// How, and its last words.
        how: String,
    },
    /// Something did not come to its end.
    #[error("{what} took more than {seconds} s")]
    TooLong {
        /// What.
        what: String,
        /// How long it may take.
        seconds: u64,
    },
    /// A child wrote something else than its result.
    #[error("the result in {file} cannot be read")]
    Result {
        /// Where.
        file: PathBuf,
        #[source]
        /// Why.
        source: serde_json::Error,
    },
    /// The client beside the primary found no slot there.
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

/// Milliseconds since 1970: all hosts share this machine's clock.
pub fn milliseconds_now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

/// The name of a key, which is its value as well: 15 bytes.
pub fn key(client: char, number: u64) -> String {
    format!("{client}{number:014}")
}
