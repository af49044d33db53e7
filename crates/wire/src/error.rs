//! What can be wrong with a connection or with the bytes from it.

use atoll_errors::ErrorKind;

/// Why a connection cannot be used, or cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The peer speaks another protocol.
    #[error("the peer does not speak Atoll's protocol: it began with \"{}\"", found.escape_ascii())]
    NotAtoll {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// This build and the peer have no version of the protocol in common.
    #[error(
        "the peer speaks versions {theirs_lowest} to {theirs_highest} of the protocol, this build {ours_lowest} to {ours_highest}"
    )]
    Version {
        /// Oldest version of the peer.
        theirs_lowest: u16,
        /// Newest version of the peer.
        theirs_highest: u16,
        /// Oldest version of this build.
        ours_lowest: u16,
        /// Newest version of this build.
        ours_highest: u16,
    },
    /// The peer refuses this connection.
    #[error("the peer refused: {reason}")]
    Refused {
        /// The reason, in the peer's words.
        reason: String,
    },
    /// The bytes of a frame do not match their checksum.
    #[error("checksum of {part} does not match: {found:#018x} instead of {expected:#018x}")]
    Checksum {
        /// Which part.
        part: &'static str,
        /// The checksum of the bytes.
        found: u64,
        /// The checksum that was sent.
        expected: u64,
    },
    /// A length exceeds a limit.
    #[error("{part} of {bytes} B exceeds the limit of {max} B")]
    TooLarge {
        /// Which part.
        part: &'static str,
        /// The announced length.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The peer violated the protocol.
    #[error("the peer broke the protocol: {problem} (stream {stream})")]
    Protocol {
        /// The violation.
        problem: &'static str,
        /// The stream.
        stream: u64,
    },
    /// The stream of bytes ends within a frame.
    #[error("the connection ended within a frame, {bytes} B into it")]
    Torn {
        /// How much of the frame had arrived.
        bytes: usize,
    },
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// The transport failed.
    #[error("cannot {action}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl WireError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAtoll { .. } => ErrorKind::InvalidInput,
            Self::Version { .. } => ErrorKind::Unsupported,
            Self::Refused { .. } => ErrorKind::Unauthenticated,
            Self::Checksum { .. } | Self::Torn { .. } => ErrorKind::Corrupt,
            Self::TooLarge { .. } => ErrorKind::Limit,
            Self::Protocol { .. } => ErrorKind::Internal,
            Self::Closed | Self::Io { .. } => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn io(action: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}
