//! Rings of real processes on this machine's loopback, each node at its own address, and what their clients
//! need.
//!
//! Invariant: no process that was started here outlives the bench.

mod follower;
mod percentiles;
mod ring;
mod status;

pub use follower::{Follower, HOPS_MAX};
pub use percentiles::percentile;
pub use ring::{Keeping, LocalRing};
pub use status::{Status, ask, ask_openly};

use crate::client::SpeakError;
use crate::cut::CutError;
use crate::servers::StartError;
use std::io;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// This build has no such server, or no program was named.
    #[error("not offered yet: {0}")]
    NotOffered(&'static str),
    /// A thread of the bench panicked.
    #[error("{0} of this bench ended by a panic")]
    Died(&'static str),
    /// A node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A look at the ring from outside failed.
    #[error(transparent)]
    Look(#[from] CutError),
    /// A connection of the bench failed.
    #[error(transparent)]
    Speak(#[from] SpeakError),
    /// The system refused.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: String,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// A node ended by itself.
    #[error("node {node} ended by itself: {how}")]
    Ended {
        /// Its number.
        node: usize,
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
    /// A command of Atoll failed.
    #[error("{what} failed: {words}")]
    Command {
        /// The command.
        what: String,
        /// Its output.
        words: String,
    },
}

impl LocalError {
    /// For `map_err`: an I/O error while `doing`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
