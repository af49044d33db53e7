//! Planted bugs: mistakes that an implementation of this protocol could make, switched on one at a time to
//! prove that the simulation would catch them. Without the feature `planted` none of this is compiled in.

/// A planted bug, named for what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A copy applies entries on receipt, before they are committed.
    AppliedOnReceipt,
    /// A copy keeps its own entries where the primary's log has others.
    NotTruncated,
    /// A new primary answers reads before its tail is committed.
    ReadBeforeRecommit,
    /// A copy reports entries before they are logged.
    SaidBeforeLogged,
    /// A primary counts its own entries before they are logged.
    CountedBeforeLogged,
    /// A primary commits entries that one copy still lacks.
    CommittedWithoutOne,
    /// A primary without other copies accepts and commits writes though the group does not hear it.
    CommittedUnheard,
    /// A primary drops a copy that it does not hear on its own, without asking the group.
    DismissedAlone,
    /// A node that gave a promise accepts a newer table at once.
    PromiseBroken,
    /// A promise is not lengthened by the error that clocks may have.
    PromiseNotLengthened,
    /// A primary counts a promise from when it arrives.
    LeaseFromHearing,
    /// A primary counts promises whatever table they were made under.
    LeaseOfAnyTable,
    /// A primary answers reads without a promise.
    ReadWithoutLease,
    /// A primary answers reads though it knows a table that takes the slot from it.
    ReadAfterRenouncing,
    /// A primary proposes a copy for admission and meanwhile goes on without it.
    AdmittedAlone,
    /// A primary proposes a copy for admission that lacks entries.
    AdmittedEarly,
    /// A copy accepts entries from a former primary.
    OldPrimaryHeard,
    /// Logs are compared by places without epochs.
    EpochsNotCompared,
    /// A copy does not check whether it has the entry before those that arrive.
    PreviousIgnored,
    /// What a copy said about its log in an earlier epoch counts in this one.
    MatchedKept,
    /// The completion of a write to the log counts for an entry that replaced the one written.
    LoggedOfAnother,
    /// A copy reports its whole log, including entries that the primary does not have.
    UnverifiedSaid,
    /// Cells are installed over newer ones.
    InstalledOverNewer,
    /// A copy whose cells were dropped continues as if it had them.
    EmptiedKept,
    /// A primary ignores a copy's report that it has lost everything.
    EmptiedUnheard,
    /// A restarted node keeps no promise of its former life.
    QuietSkipped,
    /// A node that lost what it had still counts as in sync.
    LossForgotten,
    /// Messages from a former life of a node count.
    FormerLifeHeard,
    /// A proposal of an earlier epoch counts.
    OldProposalTaken,
    /// A slot is led by a copy that is not in sync.
    LedByJoining,
    /// A slot is handed over to a copy that is not in sync.
    HandedToAny,
    /// A primary hands over while writes are under way.
    HandedOverEarly,
    /// A primary takes writes though it has asked for its successor to lead.
    TakenBehindHandOver,
    /// When another node takes over, writes under way are refused, as if they could not happen any more.
    UnderWayRefused,
    /// A leaving node is removed from the table while it still has copies.
    RemovedWithCopies,
}

impl Bug {
    /// All planted bugs.
    pub const ALL: [Self; 35] = [
        Self::AppliedOnReceipt,
        Self::NotTruncated,
        Self::ReadBeforeRecommit,
        Self::SaidBeforeLogged,
        Self::CountedBeforeLogged,
        Self::CommittedWithoutOne,
        Self::CommittedUnheard,
        Self::DismissedAlone,
        Self::PromiseBroken,
        Self::PromiseNotLengthened,
        Self::LeaseFromHearing,
        Self::LeaseOfAnyTable,
        Self::ReadWithoutLease,
        Self::ReadAfterRenouncing,
        Self::AdmittedAlone,
        Self::AdmittedEarly,
        Self::OldPrimaryHeard,
        Self::EpochsNotCompared,
        Self::PreviousIgnored,
        Self::MatchedKept,
        Self::LoggedOfAnother,
        Self::UnverifiedSaid,
        Self::InstalledOverNewer,
        Self::EmptiedKept,
        Self::EmptiedUnheard,
        Self::QuietSkipped,
        Self::LossForgotten,
        Self::FormerLifeHeard,
        Self::OldProposalTaken,
        Self::LedByJoining,
        Self::HandedToAny,
        Self::HandedOverEarly,
        Self::TakenBehindHandOver,
        Self::UnderWayRefused,
        Self::RemovedWithCopies,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants one bug, or none, in this thread.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted in this thread.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted: never, in an ordinary build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
