//! Planted bugs: mistakes that this engine could have, switched on one at a time to prove that the tests
//! would see them. Without the feature `planted`, unit tests aside, none of this is compiled in.

/// A mistake, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A synced write is acknowledged without a sync.
    SyncSkipped,
    /// A flushed write is acknowledged without being handed to the disk.
    FlushSkipped,
    /// The superblock is written without a sync behind the pages it refers to.
    SuperblockBeforePages,
    /// Only the first copy of the superblock is written.
    SecondSuperblockSkipped,
    /// Space is given back before the commit that lets go of it is durable.
    SpaceReusedEarly,
    /// Space is given back although a named snapshot needs it.
    SnapshotNotKept,
    /// Space is given back although a reader needs it.
    ReaderNotKept,
    /// A page is used whatever its checksum.
    PageChecksumIgnored,
    /// A value is used whatever its checksum.
    ValueChecksumIgnored,
    /// A log group is used whatever its checksum.
    GroupChecksumIgnored,
    /// A log group is used although it is not chained to the one before.
    ChainIgnored,
    /// The log is cut although it was synced beyond.
    CutBelowSyncedEnd,
    /// What was read behind the last sync that is known is relied on as it is, though the medium may not have
    /// it.
    TailNotWrittenAgain,
    /// A group is replayed although a large value that it names was never written.
    ExtentNotVerified,
    /// Replay does not take the space of large values.
    ExtentNotClaimed,
    /// Replay does not take the space of log segments.
    SegmentNotClaimed,
    /// Values in the log are not counted, so that their segment is given back.
    LogValuesNotCounted,
    /// A checkpoint forgets the last tree.
    TreeForgotten,
    /// A changed leaf still counts as written.
    HomeKept,
    /// Appends are replayed twice.
    AppendReplayedTwice,
    /// Range deletes are not logged.
    RangeDeleteNotLogged,
    /// Cleaning gives a segment back before the commit that has the new places.
    CleanedSegmentFreedEarly,
    /// Cleaning moves a value although its key was written since.
    MovedWithoutLook,
    /// Cleaning forgets the other pieces of a value.
    MovedAlone,
    /// Values in a cold segment are not counted, so that it is given back.
    ColdNotCounted,
    /// Space is given back to the file system before the commit that lets go of it is durable.
    ReleasedEarly,
    /// The leaf at the end of a tree that was cut still leaves out what its former separators shared.
    EdgeNotOpened,
    /// A node that was cut still counts as written.
    CutNodeKept,
    /// A range moves in replay before the changes that were logged before it.
    RangeMovedEarly,
    /// Ranges that are absorbed are not logged.
    RangeMoveNotLogged,
    /// A checkpoint forgets what was put beside a leaf.
    DeltaForgotten,
    /// Values that a delta replaced are never let go of.
    ReplacedForgotten,
    /// What is written of a delta leaves out what it lies on.
    OlderRecordsLost,
    /// The page below a delta is given back though the delta still lies on it.
    PageBelowFreed,
    /// The page of a leaf is read without the records beside it.
    SecondPageIgnored,
    /// Inner nodes count as written before what they lead to is.
    InnerSettledFirst,
    /// Who places does not take the lock against those who are alone.
    PlacingUnlocked,
    /// Who wants stillness does not take its locks.
    StillUnlocked,
    /// Who writes into a leaf does not take its latch.
    LeafUnlatched,
    /// Who looks a key up does not take the latch of its leaf.
    LookUnlatched,
    /// Who reads the trees does not take their lock.
    ForestUnlocked,
    /// A sync counts what was handed to the disk while it ran.
    SyncCountedAfter,
    /// Who waits for the sync of somebody else is not told that it ended.
    SyncEndUntold,
    /// A page that a lookup is about to read is not kept.
    ReadUnpinned,
    /// A page below a delta is taken for what it was although the delta has a page of its own by then. Not
    /// among those that a test must see: the page below is free a whole checkpoint later than it was, and no
    /// order of a model meets that.
    DeltaReadOnce,
    /// A lookup goes past records beside a leaf that another lookup brought in after it had looked there.
    BroughtInUnseen,
    /// Who waits for room is not told that a checkpoint ended.
    RoomUntold,
    /// Closing does not wait for who writes large values.
    CloseUnlocked,
    /// A hot record is shown though somebody changed it meanwhile.
    HotTorn,
    /// Hot records stay as they were when their tree changes as a whole.
    HotAgeKept,
    /// Hot records stay as they were when a batch changes them.
    HotNotForgotten,
    /// A hot record keeps its value when another one is put in place.
    HotNotChanged,
    /// A group that the disk refused is handed to it once more, and the write told as refused all the same.
    RefusedButLogged,
    /// A change in place panics when the log has it. Not among those that a simulation must see: it would
    /// with the first write.
    ChangePanics,
}

impl Bug {
    /// Those between threads: one thread alone never meets them.
    pub const BETWEEN_THREADS: [Self; 12] = [
        Self::PlacingUnlocked,
        Self::StillUnlocked,
        Self::LeafUnlatched,
        Self::LookUnlatched,
        Self::ForestUnlocked,
        Self::SyncCountedAfter,
        Self::SyncEndUntold,
        Self::ReadUnpinned,
        Self::BroughtInUnseen,
        Self::RoomUntold,
        Self::CloseUnlocked,
        Self::HotTorn,
    ];

    /// All that a single thread can meet.
    pub const ALL: [Self; 40] = [
        Self::SyncSkipped,
        Self::FlushSkipped,
        Self::SuperblockBeforePages,
        Self::SecondSuperblockSkipped,
        Self::SpaceReusedEarly,
        Self::SnapshotNotKept,
        Self::ReaderNotKept,
        Self::PageChecksumIgnored,
        Self::ValueChecksumIgnored,
        Self::GroupChecksumIgnored,
        Self::ChainIgnored,
        Self::CutBelowSyncedEnd,
        Self::TailNotWrittenAgain,
        Self::ExtentNotVerified,
        Self::ExtentNotClaimed,
        Self::SegmentNotClaimed,
        Self::LogValuesNotCounted,
        Self::TreeForgotten,
        Self::HomeKept,
        Self::AppendReplayedTwice,
        Self::RangeDeleteNotLogged,
        Self::CleanedSegmentFreedEarly,
        Self::MovedWithoutLook,
        Self::MovedAlone,
        Self::ColdNotCounted,
        Self::ReleasedEarly,
        Self::EdgeNotOpened,
        Self::CutNodeKept,
        Self::RangeMovedEarly,
        Self::RangeMoveNotLogged,
        Self::DeltaForgotten,
        Self::ReplacedForgotten,
        Self::OlderRecordsLost,
        Self::PageBelowFreed,
        Self::SecondPageIgnored,
        Self::InnerSettledFirst,
        Self::HotAgeKept,
        Self::HotNotForgotten,
        Self::HotNotChanged,
        Self::RefusedButLogged,
    ];
}

#[cfg(any(test, feature = "planted"))]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants one bug, or none, for engines that this thread runs.
#[cfg(any(test, feature = "planted"))]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted here.
#[cfg(any(test, feature = "planted"))]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted here: never, in an ordinary build.
#[cfg(not(any(test, feature = "planted")))]
#[inline(always)]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
