//! Planted bugs: mistakes that this engine could have, switched on one at a time to prove that the tests
//! would catch them. Without the feature `planted`, unit tests aside, none of this is compiled in.

/// A mistake, named after its effect.
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
    /// Space is freed before the commit that releases it is durable.
    SpaceReusedEarly,
    /// Space is freed although a named snapshot needs it.
    SnapshotNotKept,
    /// Space is freed although a reader needs it.
    ReaderNotKept,
    /// A page is used whatever its checksum.
    PageChecksumIgnored,
    /// A value is used whatever its checksum.
    ValueChecksumIgnored,
    /// A log group is used whatever its checksum.
    GroupChecksumIgnored,
    /// A log group is used although it is not chained to the one before.
    ChainIgnored,
    /// The log is cut although it was synced beyond that point.
    CutBelowSyncedEnd,
    /// Groups read behind the last known sync are relied on as they are, although the medium may not have
    /// them.
    TailNotWrittenAgain,
    /// A group is replayed although a large value that it names was never written.
    ExtentNotVerified,
    /// Replay does not claim the space of large values.
    ExtentNotClaimed,
    /// Replay does not claim the space of log segments.
    SegmentNotClaimed,
    /// Values in the log are not counted, so that their segment is freed.
    LogValuesNotCounted,
    /// A checkpoint forgets the last tree.
    TreeForgotten,
    /// A changed leaf still counts as written.
    HomeKept,
    /// Appends are replayed twice.
    AppendReplayedTwice,
    /// Range deletes are not logged.
    RangeDeleteNotLogged,
    /// Cleaning frees a segment before the commit that has the new places.
    CleanedSegmentFreedEarly,
    /// Cleaning moves a value although its key was written since.
    MovedWithoutLook,
    /// Cleaning forgets the other pieces of a value.
    MovedAlone,
    /// Values in a cold segment are not counted, so that it is freed.
    ColdNotCounted,
    /// Space is given back to the file system before the commit that releases it is durable.
    ReleasedEarly,
    /// The last leaf of a tree that was split still leaves out the prefix that its former separators shared.
    EdgeNotOpened,
    /// A node that was split still counts as written.
    CutNodeKept,
    /// A range moves in replay before the changes that were logged before it.
    RangeMovedEarly,
    /// Absorbed ranges are not logged.
    RangeMoveNotLogged,
    /// A checkpoint forgets the records beside a leaf.
    DeltaForgotten,
    /// Values that a delta replaced are never retired.
    ReplacedForgotten,
    /// The records written for a delta leave out those of the deltas below it.
    OlderRecordsLost,
    /// The page below a delta is freed although the delta still lies on it.
    PageBelowFreed,
    /// The page of a leaf is read without the records beside it.
    SecondPageIgnored,
    /// Inner nodes count as written before what they lead to is.
    InnerSettledFirst,
    /// A placing write does not take its lock against *alone*.
    PlacingUnlocked,
    /// A *still* holder does not take its locks.
    StillUnlocked,
    /// A writer of a leaf does not take its latch.
    LeafUnlatched,
    /// A lookup does not take the latch of the leaf.
    LookUnlatched,
    /// A reader of the trees does not take their lock.
    ForestUnlocked,
    /// A sync counts what was handed to the disk while it ran.
    SyncCountedAfter,
    /// A waiter for another caller's sync is not woken when that sync ends.
    SyncEndUntold,
    /// A page that a lookup is about to read is not pinned.
    ReadUnpinned,
    /// A page below a delta is used as it was read although the delta has a page of its own by then. Not
    /// among the bugs that a test must catch: the page below becomes free only a whole checkpoint later,
    /// which no order of a model meets.
    DeltaReadOnce,
    /// A lookup misses records beside a leaf that another lookup brought in after it had looked there.
    BroughtInUnseen,
    /// A writer that waits for room is not woken when a checkpoint ends.
    RoomUntold,
    /// Closing does not wait for writers of large values.
    CloseUnlocked,
    /// A hot record is shown although it was changed during the read.
    HotTorn,
    /// Hot records stay as they were when their whole tree changes.
    HotAgeKept,
    /// Hot records stay as they were when a batch changes them.
    HotNotForgotten,
    /// A hot record keeps its value when another one is put in place.
    HotNotChanged,
    /// A group that the disk refused is handed to it once more, although the write is reported as refused.
    RefusedButLogged,
    /// A change in place panics when the log has it. Not among the bugs that a simulation must catch: its
    /// first write would panic.
    ChangePanics,
}

impl Bug {
    /// Bugs between threads; a single thread never meets them.
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

    /// All bugs that a single thread can meet.
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

/// Whether this bug is planted for the current thread.
#[cfg(any(test, feature = "planted"))]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted: never, in an ordinary build.
#[cfg(not(any(test, feature = "planted")))]
#[inline(always)]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
