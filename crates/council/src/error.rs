//! What can go wrong with the configuration group.

use atoll_errors::ErrorKind;
use atoll_replica::NodeId;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the group could not be asked, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CouncilError {
    /// An option makes no sense.
    #[error("option {option}: {problem}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// What values are allowed.
        problem: &'static str,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for the configuration group")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A call to the operating system failed.
    #[error("cannot {action}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file of the group cannot be used.
    #[error("cannot use {path}")]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("another process uses {path}")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A file of the group was damaged, not merely cut short.
    #[error("{path} is damaged at byte {at}: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the damage.
        at: u64,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A member of the group refuses this node.
    #[error("{member} of the configuration group refuses this node: {reason}")]
    Refused {
        /// The member.
        member: NodeId,
        /// The reason, in the member's words.
        reason: String,
    },
    /// No member leads the group at present, or the leader cannot be reached. Nothing happened.
    #[error("no member of the configuration group leads it")]
    NoLeader,
    /// No answer came in time: the change was made, or was not, or will be.
    #[error("the configuration group did not answer in time")]
    Unanswered,
    /// Nodes and operators may not submit this change.
    #[error("not a change that can be requested: {problem}")]
    NotAsked {
        /// The reason.
        problem: &'static str,
    },
    /// Too many requests are waiting already. Nothing happened.
    #[error("too many requests wait for the configuration group")]
    Busy,
    /// The table has another life of this node: it was started again elsewhere, or this is another ring.
    #[error("a later start of {node} was registered and has replaced this one")]
    Replaced {
        /// This node.
        node: NodeId,
    },
    /// The number of this node belongs to another store, which has not left the ring. It was not registered.
    #[error("number {} in the ring is that of the node at {address}", .node.0)]
    NumberTaken {
        /// This node.
        node: NodeId,
        /// Where clients reach the other one when it is up.
        address: String,
    },
    /// This node's data belong to another ring, and it was not registered in this one.
    #[error("the data of this node belongs to another ring than that of the configuration group")]
    OtherRing,
    /// More than half of the members came back without their logs: what was decided cannot be known any more.
    #[error("members of the group {lost:?} came back without their log, and {kept:?} alone cannot go on")]
    QuorumLost {
        /// The members that lost their logs.
        lost: Vec<NodeId>,
        /// The members that still have theirs.
        kept: Vec<NodeId>,
    },
    /// The consensus of this member stopped.
    #[error("this member of the group stopped: {problem}")]
    Member {
        /// The reason, in the words of the consensus.
        problem: String,
    },
    /// This member cannot use the snapshot that another one sends it, so it lacks what was decided meanwhile.
    #[error("this member of the group cannot catch up with the others: {problem}")]
    SnapshotRefused {
        /// What is wrong with the snapshot.
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
            Self::Damaged { .. } | Self::SnapshotRefused { .. } => ErrorKind::Corrupt,
            Self::Refused { .. } => ErrorKind::Unauthenticated,
            Self::Unanswered => ErrorKind::TimedOut,
            Self::Busy => ErrorKind::Limit,
            Self::Replaced { .. } | Self::NumberTaken { .. } => ErrorKind::Conflict,
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
