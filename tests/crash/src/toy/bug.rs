//! Mistakes that can be planted in the toy; the harness must see each.

/// What can be wrong with a toy.
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
    /// What could not be read once cannot be read again.
    ReadErrorKept,
    /// Once a write was refused everything reads as damaged.
    RefusalSpoilsReads,
    /// Once a write was refused every other one is.
    RefusedForEver,
    /// Where the log was cut, and a page is damaged, all that can still be read is garbage.
    GarbageBehindCut,
    /// To let go of a snapshot panics.
    SnapshotPanics,
}

impl ToyBug {
    /// All of them.
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
