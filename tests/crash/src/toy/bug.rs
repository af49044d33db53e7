//! Bugs that can be planted in the toy; the harness must detect each.

/// A bug of the toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToyBug {
    SyncDoesNothing,
    SuperblockBeforeDump,
    GroupHashNotChecked,
    ChainNotChecked,
    HoleSkipped,
    TailCutBelowSynced,
    LogReplayedTwice,
    TreeForgottenInCheckpoint,
    DeleteRangeNotLogged,
    TornGroupAccepted,
    SnapshotNotLogged,
    FlushedIsBuffered,
    RefusedButApplied,
    BatchReplayedBackwards,
    DumpHashNotChecked,
    BackwardScanSkipsLast,
    SnapshotSeesLater,
    SyncErrorForgotten,
    /// A place whose read failed once stays unreadable.
    ReadErrorKept,
    /// After a refused write everything reads as damaged.
    RefusalSpoilsReads,
    /// After a refused write every other write is refused.
    RefusedForEver,
    /// If the log was cut and a page is damaged, everything that can still be read is garbage.
    GarbageBehindCut,
    /// Dropping a snapshot panics.
    SnapshotPanics,
}

impl ToyBug {
    /// All bugs.
    pub const ALL: [Self; 23] = [
        Self::SyncDoesNothing,
        Self::SuperblockBeforeDump,
        Self::GroupHashNotChecked,
        Self::ChainNotChecked,
        Self::HoleSkipped,
        Self::TailCutBelowSynced,
        Self::LogReplayedTwice,
        Self::TreeForgottenInCheckpoint,
        Self::DeleteRangeNotLogged,
        Self::TornGroupAccepted,
        Self::SnapshotNotLogged,
        Self::FlushedIsBuffered,
        Self::RefusedButApplied,
        Self::BatchReplayedBackwards,
        Self::DumpHashNotChecked,
        Self::BackwardScanSkipsLast,
        Self::SnapshotSeesLater,
        Self::SyncErrorForgotten,
        Self::ReadErrorKept,
        Self::RefusalSpoilsReads,
        Self::RefusedForEver,
        Self::GarbageBehindCut,
        Self::SnapshotPanics,
    ];
}
