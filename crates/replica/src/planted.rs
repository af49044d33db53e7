//! Planted bugs: mistakes that this protocol could have, switched on one at a time to prove that the
//! simulation would see them. Without the feature `planted` none of this is compiled in.

/// A mistake, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A copy applies what it gets before it is committed.
    AppliedOnReceipt,
    /// A copy keeps what it has where the primary's log has something else.
    NotTruncated,
    /// A new primary answers reads before its tail is committed.
    ReadBeforeRecommit,
    /// A copy says that it has entries before they are logged.
    SaidBeforeLogged,
    /// A primary counts its own entries before they are logged.
    CountedBeforeLogged,
    /// A primary commits what all copies but one have.
    CommittedWithoutOne,
    /// A primary without other copies takes and commits writes though the group does not hear it.
    CommittedUnheard,
    /// A primary goes on without a copy that it does not hear, and asks nobody.
    DismissedAlone,
    /// Whoever promised takes a newer table at once.
    PromiseBroken,
    /// A promise is not lengthened by what clocks may be off.
    PromiseNotLengthened,
    /// A primary counts a promise from when it hears of it.
    LeaseFromHearing,
    /// A primary counts promises whatever table they were made under.
    LeaseOfAnyTable,
    /// A primary answers reads without a promise.
    ReadWithoutLease,
    /// A primary answers reads though it knows a table that takes the slot from it.
    ReadAfterRenouncing,
    /// A primary has a copy counted in and goes on without it meanwhile.
    AdmittedAlone,
    /// A primary asks for a copy to be counted in that lacks something.
    AdmittedEarly,
    /// A copy takes entries from whoever was primary before.
    OldPrimaryHeard,
    /// Logs are compared by places without epochs.
    EpochsNotCompared,
    /// A copy does not look whether it has the entry before those that come.
    PreviousIgnored,
    /// What was said about another epoch's log counts in this one.
    MatchedKept,
    /// The end of a write to the log counts for an entry that took the place of the one written.
    LoggedOfAnother,
    /// A copy says that it has all it has, also what the primary does not.
    UnverifiedSaid,
    /// Cells that came are installed over newer ones.
    InstalledOverNewer,
    /// A copy whose cells are gone goes on as if it had them.
    EmptiedKept,
    /// A primary takes no notice where a copy says that it has nothing any more.
    EmptiedUnheard,
    /// Who begins again keeps no promise of the life before.
    QuietSkipped,
    /// A node that lost what it had still counts as in sync.
    LossForgotten,
    /// What a former life says counts.
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
    /// Writes that are under way when somebody else leads are refused, as if they could not happen any more.
    UnderWayRefused,
    /// A node that leaves is taken out of the table with the copies that it has.
    RemovedWithCopies,
}

impl Bug {
    /// All of them.
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

/// Plants one bug, or none, for what this thread runs.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted here.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted here: never, in an ordinary build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
