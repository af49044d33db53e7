//! The engine's errors: what failed, where, and what the caller can do about it.

use atoll_disk::{DiskError, Operation};
use atoll_errors::ErrorKind;

/// Why an operation of the engine failed. Nothing was changed, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes read back do not match their checksum, or make no sense although they do.
    #[error("{store} is damaged at offset {offset}: {problem}")]
    Corrupt {
        /// The file.
        store: String,
        /// Where in the file.
        offset: u64,
        /// What does not match.
        problem: Damage,
    },
    /// The file is not a store.
    #[error("{store} is not an Atoll store")]
    NotAStore {
        /// The file.
        store: String,
    },
    /// A store was begun there and never finished, as happens on a full disk; it never held anything. An
    /// opener that may write begins it anew.
    #[error("{store} was never completely created, and is not a store yet")]
    NotYetAStore {
        /// The file.
        store: String,
    },
    /// The store was opened for reading beside its owner, which freed a part of what was to be read during
    /// each of many attempts.
    #[error("{store} was changed by its owner faster than it could be opened for reading; try again")]
    Superseded {
        /// The file.
        store: String,
    },
    /// The file was written by a newer release.
    #[error("{store} has format {found}; this build reads up to {supported}")]
    NewerFormat {
        /// The file.
        store: String,
        /// Format found.
        found: u32,
        /// Newest format this build reads.
        supported: u32,
    },
    /// The file has a feature of a newer release.
    #[error(
        "{store} has feature bit {bit}, which a build must know to {} it: use a newer atoll",
        if *to_write { "write to" } else { "read" }
    )]
    NewerFeature {
        /// The file.
        store: String,
        /// The lowest bit that this build does not know.
        bit: u32,
        /// Whether it is one of the features needed to write; the store can then be opened for reading.
        to_write: bool,
    },
    /// The store was opened for reading.
    #[error("{store} is open for reading only")]
    ReadOnly {
        /// The file.
        store: String,
    },
    /// A key, value or batch is too long or too short.
    #[error("{what}: {actual} bytes; allowed are {min} to {max}")]
    Size {
        /// What is limited.
        what: &'static str,
        /// What was given.
        actual: u64,
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
    /// An option is out of its range.
    #[error("option {option}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is no snapshot of this name.
    #[error("there is no snapshot \"{name}\"")]
    NoSnapshot {
        /// The name.
        name: String,
    },
    /// There is a snapshot of this name already.
    #[error("there is a snapshot \"{name}\" already")]
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// Two states that are to be compared are not of one open store.
    #[error("a state of {store} cannot be compared with one of {other}")]
    OtherStore {
        /// The file of the newer state.
        store: String,
        /// The file of the older one.
        other: String,
    },
    /// Sorted input was not sorted.
    #[error("bulk load: key {index} is not above the key before it")]
    NotSorted {
        /// Which key, from 0.
        index: u64,
    },
    /// Another writer changed the tree while records were loaded into it past the log; nothing of the load
    /// was kept.
    #[error("tree \"{tree}\" was written to while it was loaded")]
    WrittenMeanwhile {
        /// The tree.
        tree: String,
    },
    /// A key range can be split off only into a tree without records.
    #[error(
        "tree \"{tree}\" holds records already; a range can be split off only into an empty tree or a new name"
    )]
    Occupied {
        /// The tree.
        tree: String,
    },
    /// Two trees can become one only where all keys of one are below all keys of the other.
    #[error(
        "trees \"{tree}\" and \"{from}\" both span the keys from \"{}\" to \"{}\"; split off the overlapping keys, or copy them",
        first.escape_ascii(), last.escape_ascii()
    )]
    Overlap {
        /// The tree that was to absorb the other.
        tree: String,
        /// The other.
        from: String,
        /// The least key that both reach over: the first of one of them.
        first: Vec<u8>,
        /// The greatest: the last of one of them.
        last: Vec<u8>,
    },
    /// A tree can absorb only trees of its own store.
    #[error("tree \"{tree}\" belongs to another store")]
    ForeignTree {
        /// The tree.
        tree: String,
    },
    /// A sync failed earlier: writes since the last successful sync may not be durable.
    #[error("a sync of {store} failed; it accepts no writes until it is opened again")]
    Poisoned {
        /// The file.
        store: String,
    },
    /// Another owner claims the store, by a greater token. This one acknowledges nothing as synced any more,
    /// and nothing that it writes from then on is seen.
    #[error(
        "{store} belongs to another owner by now: its token is {newest}, and the one here is {token}{}",
        if *may_be_kept { "; that owner may have found the write in the log, or not" } else { "" }
    )]
    Fenced {
        /// The file.
        store: String,
        /// The token of the one who is refused.
        token: u64,
        /// The other token; 0 if it could not be read.
        newest: u64,
        /// Whether the other owner may have what was refused here.
        may_be_kept: bool,
    },
    /// Each owner of a store has a greater token than those before.
    #[error("token {token} is not above {newest}, which an owner of {store} has or had")]
    StaleToken {
        /// The file.
        store: String,
        /// The token that was given.
        token: u64,
        /// The token of the store.
        newest: u64,
    },
    /// The store was never attached with a token, so its owner may be a build that knows none.
    #[error("{store} has no token and cannot be handed over; attach to it first")]
    NoToken {
        /// The file.
        store: String,
    },
    /// A store can move only to an empty place.
    #[error("{store} is not empty: a store cannot move there")]
    TargetInUse {
        /// The file.
        store: String,
    },
    /// The sync that was to cover this write failed: it is visible, but may not survive.
    #[error("the write took effect, but syncing {store} failed: it may not survive")]
    NotDurable {
        /// The file.
        store: String,
        /// The cause.
        #[source]
        source: DiskError,
    },
    /// The trees could not take in a write that the log has, or that could not be handed to the disk either;
    /// or they could not let go of a bulk load whose checkpoint failed. It may have taken effect; opening the
    /// store again shows whether it did. Until then the store answers nothing, because half of the write may
    /// be in the trees.
    #[error(
        "{store} may have the write on disk, but its trees do not agree: open the store again to see whether it took effect"
    )]
    Undecided {
        /// The file.
        store: String,
        /// The cause.
        #[source]
        source: Box<EngineError>,
    },
    /// An earlier operation failed half-way, so that memory may differ from what the log says.
    #[error("an operation on {store} ended half-way; open the store again")]
    Broken {
        /// The file.
        store: String,
    },
    /// Checkpoints fail one after the other, and what waits for one has filled the memory, or the file up to
    /// a limit. Writes go on as soon as a checkpoint succeeds; each refused write has one tried.
    #[error(
        "checkpoints of {store} fail, and there is no room for more that waits for one; the last failure: {cause}"
    )]
    CheckpointsFail {
        /// The file.
        store: String,
        /// The kind of the last failure.
        kind: ErrorKind,
        /// The last failure.
        cause: String,
    },
    /// The engine was closed.
    #[error("{store} was closed")]
    Closed {
        /// The file.
        store: String,
    },
}

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Both copies of the superblock.
    #[error("neither copy of the superblock is intact")]
    Superblocks,
    /// One copy of the superblock; the other is used.
    #[error("one copy of the superblock is damaged; opening the store for writing repairs it")]
    SuperblockCopy,
    /// A page of a tree or the commit's table.
    #[error("a page does not match its checksum")]
    PageChecksum,
    /// A page that matches its checksum but cannot be decoded.
    #[error("a page cannot be decoded")]
    PageContent,
    /// Bytes of a value.
    #[error("a value does not match its checksum")]
    ValueChecksum,
    /// The log, below the position up to which it was synced.
    #[error("the log is broken before its synced end")]
    LogBeforeSyncedEnd,
    /// A log record that matches its checksum but cannot be decoded.
    #[error("a log record cannot be decoded")]
    LogContent,
    /// The claim of an heir. Until [`Engine::withdraw`](crate::Engine::withdraw) was called with its token,
    /// nobody opens the store for writing.
    #[error("a claim to the store cannot be read; once its heir has certainly ended, withdraw it")]
    Fence,
    /// Two owners of the same space.
    #[error("space is used twice")]
    SpaceUsedTwice,
    /// A log segment whose live bytes are not those of the values in it.
    #[error("a log segment holds {found} bytes of values that are needed, but {counted} were counted")]
    LiveBytes {
        /// Bytes that the store counted.
        counted: u64,
        /// Bytes of values in it that a tree refers to, or that a reader may still need.
        found: u64,
    },
    /// Trees that hold a different number of records than the store counted.
    #[error("trees hold {found} records, but {counted} were counted")]
    RecordCount {
        /// Records that the store counted.
        counted: u64,
        /// Records that are there.
        found: u64,
    },
}

impl EngineError {
    /// Whether something on disk cannot be read back as it was written.
    pub(crate) fn is_damage(&self) -> bool {
        self.is_corrupt() || matches!(self, Self::Disk(error) if error.operation == Operation::Read)
    }

    /// Whether the bytes that were read differ from those that were written. Only this is permanent: a disk
    /// that fails a read may serve it later.
    pub(crate) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// The kind of error, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Disk(error) => error.kind(),
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::NotAStore { .. }
            | Self::Option { .. }
            | Self::NotSorted { .. }
            | Self::OtherStore { .. }
            | Self::NoToken { .. }
            | Self::ForeignTree { .. } => ErrorKind::InvalidInput,
            Self::NewerFormat { .. } | Self::NewerFeature { .. } => ErrorKind::NewerFormat,
            Self::ReadOnly { .. } => ErrorKind::ReadOnly,
            Self::Size { .. } => ErrorKind::Limit,
            Self::NotYetAStore { .. } | Self::NoSnapshot { .. } => ErrorKind::NotFound,
            Self::SnapshotExists { .. }
            | Self::Superseded { .. }
            | Self::WrittenMeanwhile { .. }
            | Self::Occupied { .. }
            | Self::StaleToken { .. }
            | Self::TargetInUse { .. }
            | Self::Overlap { .. } => ErrorKind::Conflict,
            Self::CheckpointsFail { kind: ErrorKind::OutOfSpace, .. } => ErrorKind::OutOfSpace,
            Self::CheckpointsFail { .. }
            | Self::Fenced { may_be_kept: false, .. }
            | Self::Poisoned { .. }
            | Self::Broken { .. }
            | Self::Closed { .. } => ErrorKind::Unavailable,
            Self::NotDurable { .. } | Self::Undecided { .. } | Self::Fenced { .. } => ErrorKind::TimedOut,
        }
    }

    /// Whether the write that failed may have taken effect.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::NotDurable { .. } | Self::Undecided { .. } | Self::Fenced { may_be_kept: true, .. }
        )
    }
}
