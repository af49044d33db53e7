//! Mistakes that are possible in the protocol; the explored processes make them, one at a time.

use super::scenario::{self, Scenario};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A pack claims to have heeded every tombstone up to the version in which it became true.
    PackIgnoresDelete,
    /// A pack becomes true although its inputs were superseded.
    PackIgnoresSupersede,
    /// A pack does not cut the range that it packed out of the piece that held it.
    PackLeavesRange,
    /// A pack removes the tombstones of all pieces.
    PackTakesTombstones,
    /// A packer whose commit has an unknown outcome discards its objects.
    PackerDiscardsInDoubt,
    /// An append of unknown outcome is repeated under a new name, without a check whether it is there.
    AppendWithoutLooking,
    /// A step is visible with the first rank's block.
    PublishBeforeAllRanks,
    /// A rank continues although it has not written a step of which other ranks' blocks are there.
    SkipPasses,
    /// A step counts as acknowledged when the outcome of its append is unknown.
    AcknowledgeInDoubt,
    /// A writer uses the column that it adds although the outcome is unknown.
    ColumnUsedInDoubt,
    /// A load becomes true although an earlier step is arriving.
    LoadPassesArriving,
    /// An attempt begins after a step that was the last one when its writer looked, and no longer is.
    BeginOverlooksSteps,
    /// The new attempt's step becomes visible in one version, and the old one's step vanishes in the next.
    SupersedeInTwoWrites,
    /// An edit becomes true whatever the head is.
    CommitWithoutHead,
    /// An edit becomes true although its session has ended.
    CommitWithoutSession,
    /// A process puts its session again after an unknown outcome.
    PutSessionAgain,
    /// A reader resolves its blocks at one version and its cubes at another.
    ResolveInTwoReads,
    /// A reader resolves its version before it writes its session.
    ResolveBeforeSession,
    /// A snapshot is written whatever the head is.
    SnapshotWithoutHead,
    /// A vacuum ignores sessions.
    VacuumIgnoresSessions,
    /// A vacuum ignores snapshots.
    VacuumIgnoresSnapshots,
    /// A vacuum looks for readers before it raises the floor.
    VacuumLooksBeforeFloor,
    /// A vacuum removes history that a process in doubt will ask for.
    VacuumTrimsTooMuch,
    /// A sweep removes every object that no version names.
    SweepIgnoresSessions,
    /// A sweep looks for sessions before it lists the objects.
    SweepListsAfterLooking,
}

impl Mistake {
    /// All mistakes, each with a scenario that must catch it.
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
