//! Why a node does not start, or stopped.

use crate::access::AccessError;
use crate::log::LogError;
use atoll_council::CouncilError;
use atoll_disk::DiskError;
use atoll_engine::EngineError;
use atoll_errors::ErrorKind;
use atoll_keyspace::KeyspaceError;
use atoll_tls::TlsError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a node does not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// An option is invalid.
    #[error("option {option}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// What would be right.
        problem: &'static str,
    },
    /// The node would be reachable from other machines without a token.
    #[error("{address} can be reached from other machines, and there is no token")]
    Open {
        /// The address to listen on.
        address: SocketAddr,
    },
    /// The node cannot listen on its address.
    #[error("cannot listen on {address}")]
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
        /// What was tried.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The folder or a file in it cannot be used.
    #[error("cannot use {path}")]
    Folder {
        /// The path.
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
    /// The folder holds the store of a single program, none of which a node would serve.
    #[error("{path} holds the store of a single program, which a node cannot serve")]
    OfStore {
        /// The folder.
        path: PathBuf,
    },
    /// The token in a file cannot be used.
    #[error("the token in {path} cannot be used: {problem}")]
    Token {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: &'static str,
    },
    /// The list of users cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file of the store cannot be opened.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The cells of a slot cannot be read.
    #[error(transparent)]
    Keyspace(#[from] KeyspaceError),
    /// What the store records about its node is invalid.
    #[error("{what} in the store is invalid")]
    Corrupt {
        /// What it should have been.
        what: &'static str,
    },
    /// The log of a slot cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configuration group does not accept this node any more.
    #[error("the configuration group does not accept this node any more: {why}")]
    Group {
        /// The group's reason.
        why: String,
    },
    /// The configuration group cannot be joined.
    #[error(transparent)]
    Council(#[from] CouncilError),
    /// The store in the folder belongs to another node.
    #[error("the folder belongs to node {kept} of its ring, but was opened as node {asked}")]
    OtherNode {
        /// The node that the store belongs to.
        kept: u32,
        /// The node that opened it.
        asked: u32,
    },
    /// The store in the folder holds copies of another ring.
    #[error("the folder holds the data of this node in another ring")]
    OtherRing,
    /// This number of the ring belongs to another store, whose node has not left.
    #[error("number {number} in the ring is that of the node at {address}")]
    NumberTaken {
        /// The number.
        number: u32,
        /// Where clients reach the other node when it is up.
        address: String,
    },
    /// The store in the folder belongs to a node of a ring, and was opened without the other nodes.
    #[error("the folder belongs to node {kept} of a ring, but was opened without the other nodes")]
    OfRing {
        /// The node that the store belongs to.
        kept: u32,
    },
    /// The store in the folder holds what a node wrote that was the whole ring.
    #[error("the folder holds the data of a node without other nodes")]
    OfNoRing,
    /// The store in the folder holds durable data, and the options would keep nothing.
    #[error("the folder holds durable data, and durability buffered would keep none of it")]
    Kept,
    /// The ring has a keyspace whose writes outlive their process, and the node keeps everything in memory.
    #[error(
        "keyspace {keyspace} has writes that outlive their node, and this node keeps everything in memory"
    )]
    KeepsNothing {
        /// The name of the keyspace.
        keyspace: String,
    },
    /// Another process has started as the same node.
    #[error("another process started as the same node and has replaced this one")]
    Superseded,
    /// A loop ended because of a bug.
    #[error("an event loop ended because of a bug")]
    Loop,
}

impl NodeError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Option { .. } | Self::Open { .. } | Self::Token { .. } => ErrorKind::InvalidInput,
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrNotAvailable => {
                ErrorKind::InvalidInput
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ErrorKind::Unauthenticated
            }
            Self::Listen { .. } | Self::System { .. } | Self::InUse { .. } => ErrorKind::Unavailable,
            Self::Folder { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                io::ErrorKind::StorageFull => ErrorKind::OutOfSpace,
                io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
                io::ErrorKind::PermissionDenied => ErrorKind::Unauthenticated,
                _ => ErrorKind::Unavailable,
            },
            Self::Access(AccessError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Self::Access(AccessError::Read { .. }) => ErrorKind::Unavailable,
            Self::Access(_) => ErrorKind::InvalidInput,
            Self::Tls(error) => error.kind(),
            Self::Disk(error) => error.kind(),
            Self::Engine(error) => error.kind(),
            Self::Keyspace(error) => error.kind(),
            Self::Log(error) => error.kind(),
            Self::Group { .. } => ErrorKind::Unavailable,
            Self::Council(error) => error.kind(),
            Self::OtherNode { .. }
            | Self::OtherRing
            | Self::OfRing { .. }
            | Self::OfNoRing
            | Self::OfStore { .. }
            | Self::Kept
            | Self::KeepsNothing { .. } => ErrorKind::InvalidInput,
            Self::Superseded | Self::NumberTaken { .. } => ErrorKind::Conflict,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Loop => ErrorKind::Internal,
        }
    }

    /// What would help, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Open { .. } => Some(
                "name a token file with --token-file FILE, which is made if absent; or listen on 127.0.0.1",
            ),
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another process listens there; choose another port with --listen")
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("ports below 1024 are for the administrator; choose another port with --listen")
            }
            Self::Folder { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("check who may read and write there with `ls -l`")
            }
            Self::InUse { .. } => Some("end that process first, or name another folder with --store"),
            Self::Council(CouncilError::Listen { .. }) => {
                Some("another process listens there; choose other ports in --nodes")
            }
            Self::OfStore { .. } => Some(
                "name another folder with --store; `atoll table copy` and `atoll kv export` bring over what the store has",
            ),
            Self::OtherNode { .. } => Some(
                "name the nodes in --nodes in the order in which they first started; or another folder with --store, if this one is of another ring",
            ),
            Self::OtherRing => Some(
                "name another folder with --store, or the nodes of that ring with --nodes; the age of its data is unknown, so a newly founded ring makes new copies",
            ),
            Self::NumberTaken { .. } => Some(
                "start a new node with --join, once more if another new one was faster, or on a new folder if it was in the ring before; or name in --nodes those that joined, each at the place of its number; if that node is gone for good, `atoll ring leave` with its number takes it out first",
            ),
            Self::OfRing { .. } => {
                Some("name all nodes of that ring with --nodes; or another folder with --store")
            }
            Self::OfNoRing => Some(
                "start it without --nodes and move its data into a ring of new folders with `atoll kv export` and `atoll kv import`, tables with `atoll table export`; data that Redis clients wrote has to be read by such a client",
            ),
            Self::Kept => {
                Some("choose --durability flushed or synced; or another folder with --store, or --memory")
            }
            Self::KeepsNothing { .. } => Some("name a folder with --store, and not --memory"),
            Self::Tls(error) => Some(error.hint()),
            Self::Access(error) => Some(error.hint()),
            Self::Token { .. } => Some("delete the file, and a new token is made"),
            error if error.kind() == ErrorKind::OutOfSpace => Some(
                "free some space where the store lies and start the node again; nothing that was acknowledged is lost",
            ),
            _ => None,
        }
    }
}
