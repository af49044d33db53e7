//! Rings of real processes on this machine's loopback, each node with an address of its own, and what clients
//! need to know.
//!
//! Invariant: nothing that was started here outlives the bench.

mod follower;
mod ring;
mod share;
mod status;

pub use follower::{Follower, HOPS_MAX};
pub use ring::{Keeping, LocalRing};
pub use share::percentile;
pub use status::{Status, ask, ask_openly};

use crate::client::SpeakError;
use crate::cut::CutError;
use crate::servers::StartError;
use std::io;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// This build has no such server, or none was named.
    #[error("not offered yet: {0}")]
    NotOffered(&'static str),
    /// A thread of the bench's own ended early.
    #[error("{0} of this bench ended by a panic")]
    Died(&'static str),
    /// A node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A look at the ring from outside.
    #[error(transparent)]
    Look(#[from] CutError),
    /// A connection of the bench's own.
    #[error(transparent)]
    Speak(#[from] SpeakError),
    /// The system said no.
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
    /// A verb of the command said no.
    #[error("{what} failed: {words}")]
    Command {
        /// Which.
        what: String,
        /// What it said.
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
