//! Mistakes that one could make in the protocol; each is planted in the explored processes, one at a time.

use super::scenario::{self, Scenario};

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A pack says that it heeded every tombstone up to the version in which it became true.
    PackIgnoresDelete,
    /// A pack becomes true though its inputs were superseded.
    PackIgnoresSupersede,
    /// A pack does not cut the range that it took out of the piece that had it.
    PackLeavesRange,
    /// A pack takes the tombstones of all pieces with it.
    PackTakesTombstones,
    /// A packer that does not know whether it won discards its objects.
    PackerDiscardsInDoubt,
    /// An append of unknown outcome is repeated under a new name, and nobody looks whether it is there.
    AppendWithoutLooking,
    /// A step is visible with the first rank's block.
    PublishBeforeAllRanks,
    /// A rank goes on though it has not written a step of which others' blocks are there.
    SkipPasses,
    /// A step counts as acknowledged when the outcome of its append is unknown.
    AcknowledgeInDoubt,
    /// A writer uses the column that it adds though it does not know whether it is there.
    ColumnUsedInDoubt,
    /// A load becomes true though an earlier step is arriving.
    LoadPassesArriving,
    /// An attempt begins behind a step that was the last one when somebody looked, and is not any more.
    BeginOverlooksSteps,
    /// The new attempt's step becomes visible in one version, the old one's goes in the next.
    SupersedeInTwoWrites,
    /// An edit becomes true whatever the head is by now.
    CommitWithoutHead,
    /// An edit becomes true though its session has ended.
    CommitWithoutSession,
    /// A process puts its session again when it does not know whether it is there.
    PutSessionAgain,
    /// A reader resolves its blocks at one version and its cubes at another.
    ResolveInTwoReads,
    /// A reader resolves its version first and writes its session then.
    ResolveBeforeSession,
    /// A snapshot is written whatever the head is by now.
    SnapshotWithoutHead,
    /// A vacuum does not heed sessions.
    VacuumIgnoresSessions,
    /// A vacuum does not heed snapshots.
    VacuumIgnoresSnapshots,
    /// A vacuum looks who reads what before it raises the floor.
    VacuumLooksBeforeFloor,
    /// A vacuum takes the history that somebody in doubt will ask for.
    VacuumTrimsTooMuch,
    /// A sweep takes every object that no version names.
    SweepIgnoresSessions,
    /// A sweep looks who is there before it lists the objects.
    SweepListsAfterLooking,
}

impl Mistake {
    /// All of them, each with a scenario in which it must be caught.
    pub fn all() -> Vec<(Self, Scenario)> {
        vec![
            (Self::PackIgnoresDelete, scenario::deletes()),
            (Self::PackIgnoresSupersede, scenario::restart()),
            (Self::PackLeavesRange, scenario::three_packers()),
            (Self::PackTakesTombstones, scenario::deletes()),
            (Self::PackerDiscardsInDoubt, scenario::three_packers()),
            (Self::AppendWithoutLooking, scenario::two_writers()),
            (Self::AppendWithoutLooking, scenario::loads()),
            (Self::PublishBeforeAllRanks, scenario::two_writers()),
            (Self::SkipPasses, scenario::skipped_step()),
            (Self::AcknowledgeInDoubt, scenario::two_writers()),
            (Self::ColumnUsedInDoubt, scenario::columns()),
            (Self::BeginOverlooksSteps, scenario::beginners()),
            (Self::SupersedeInTwoWrites, scenario::restart()),
            (Self::SupersedeInTwoWrites, scenario::loads()),
            (Self::LoadPassesArriving, scenario::loads_beside_ranks()),
            (Self::CommitWithoutHead, scenario::two_writers()),
            (Self::CommitWithoutSession, scenario::slow_processes()),
            (Self::PutSessionAgain, scenario::slow_processes()),
            (Self::ResolveInTwoReads, scenario::restart()),
            (Self::ResolveBeforeSession, scenario::vacuum()),
            (Self::SnapshotWithoutHead, scenario::snapshots()),
            (Self::VacuumIgnoresSessions, scenario::vacuum()),
            (Self::VacuumIgnoresSnapshots, scenario::snapshots()),
            (Self::VacuumLooksBeforeFloor, scenario::vacuum()),
            (Self::VacuumTrimsTooMuch, scenario::late_writes()),
            (Self::SweepIgnoresSessions, scenario::slow_processes()),
            (Self::SweepListsAfterLooking, scenario::slow_processes()),
        ]
    }
}
