//! What can go wrong with the configuration group.

use atoll_errors::ErrorKind;
use atoll_replica::NodeId;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the group cannot be asked, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CouncilError {
    /// An option makes no sense.
    #[error("option {option}: {problem}")]
    Option {
        /// Which.
        option: &'static str,
        /// What would be right.
        problem: &'static str,
    },
    /// It cannot listen there.
    #[error("cannot listen on {address} for the configuration group")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Something of the operating system failed.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file of the group cannot be used.
    #[error("cannot use {path}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process has the folder.
    #[error("another process uses {path}")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A file of the group was damaged, not merely cut short.
    #[error("{path} is damaged at byte {at}: {problem}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A member of the group does not let this node in.
    #[error("{member} of the configuration group refuses this node: {reason}")]
    Refused {
        /// Which.
        member: NodeId,
        /// In its words.
        reason: String,
    },
    /// Nobody leads the group now, or nobody who does can be reached. Nothing happened.
    #[error("no member of the configuration group leads it")]
    NoLeader,
    /// No answer came in time: the change was made, or was not, or will be.
    #[error("the configuration group did not answer in time")]
    Unanswered,
    /// The change is none that anybody may ask for.
    #[error("not a change that is asked for: {problem}")]
    NotAsked {
        /// Why.
        problem: &'static str,
    },
    /// Too much is waiting already. Nothing happened.
    #[error("too many requests wait for the configuration group")]
    Busy,
    /// The table has another life of this node: it was started again elsewhere, or this ring is another one.
    #[error("another life of {node} was registered; this one does not count any more")]
    Replaced {
        /// This node.
        node: NodeId,
    },
    /// What this node has is of another ring, and it was not registered in this one.
    #[error("what this node has is of another ring than that of the configuration group")]
    OtherRing,
    /// More than half of the members came back without their logs: nobody can know any more what was decided.
    #[error("members of the group {lost:?} came back without their log, and {kept:?} alone cannot go on")]
    QuorumLost {
        /// Who lost it.
        lost: Vec<NodeId>,
        /// Who still has it.
        kept: Vec<NodeId>,
    },
    /// The consensus of this member stopped.
    #[error("this member of the group stopped: {problem}")]
    Member {
        /// Why, in its words.
        problem: String,
    },
    /// This handle was stopped.
    #[error("stopped")]
    Stopped,
}

impl CouncilError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Option { .. } | Self::NotAsked { .. } | Self::OtherRing => ErrorKind::InvalidInput,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Refused { .. } => ErrorKind::Unauthenticated,
            Self::Unanswered => ErrorKind::TimedOut,
            Self::Busy => ErrorKind::Limit,
            Self::Replaced { .. } => ErrorKind::Conflict,
            Self::Member { .. } => ErrorKind::Internal,
            Self::Folder { source, .. } | Self::System { source, .. } => kind_of(source),
            Self::Listen { .. }
            | Self::InUse { .. }
            | Self::NoLeader
            | Self::QuorumLost { .. }
            | Self::Stopped => ErrorKind::Unavailable,
        }
    }
}

fn kind_of(source: &io::Error) -> ErrorKind {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        _ => ErrorKind::Unavailable,
    }
}
