//! The parameters of a run beside its seed: a bug planted in the protocol or around it, or the mode of
//! reads.

use atoll_replica::Reads;

/// A bug in what runs around the protocol: each breaks something that the protocol relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// Clocks run at rates beyond the stated error while reads trust promises.
    WildClocks,
    /// A clock stops while its node is paused.
    ClockStandsStill,
    /// The clock is read before a pause, and the reading is used after it.
    NowBeforePause,
    /// With `always`, an entry counts as logged once it is written, before it is synced.
    SaidBeforeSynced,
    /// Entries count as logged when those of the first keyspace do, whatever their own asks for.
    SaidAtFirstClass,
    /// A node that lost its data registers as if it had kept everything.
    LossDenied,
    /// A node that lost the data of some keyspaces registers as if it had kept everything.
    LossDeniedForOthers,
    /// Received cells are put in place without checking whether they are newer.
    OldCellsInstalled,
    /// The protocol is told that received cells are durable before they are on the disk.
    CellsSaidBeforeSynced,
    /// Entries are applied before the removal of the entries that they replace is on the disk.
    AppliedBeforeCut,
    /// A process takes cells for complete although only some had arrived when the previous process ended.
    HalfBelieved,
    /// A client repeats a write whose outcome it does not know.
    WrittenAgain,
    /// A primary notifies clients that wait for a value when the write of it is requested, before it is
    /// committed.
    ToldBeforeCommitted,
    /// A write that is held to be gathered with others is acknowledged on arrival.
    HeldAcknowledged,
    /// Held requests are forgotten when their slot changes hands.
    HeldForgotten,
    /// Requests are held beyond their deadline.
    DeadlineIgnored,
    /// While faults are active, the primary of a slot with an accepted loss answers reads from the state
    /// before the last write.
    StaleBehindLoss,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Self; 17] = [
        Self::WildClocks,
        Self::ClockStandsStill,
        Self::NowBeforePause,
        Self::SaidBeforeSynced,
        Self::SaidAtFirstClass,
        Self::LossDenied,
        Self::LossDeniedForOthers,
        Self::OldCellsInstalled,
        Self::CellsSaidBeforeSynced,
        Self::AppliedBeforeCut,
        Self::HalfBelieved,
        Self::WrittenAgain,
        Self::ToldBeforeCommitted,
        Self::HeldAcknowledged,
        Self::HeldForgotten,
        Self::DeadlineIgnored,
        Self::StaleBehindLoss,
    ];
}

/// How a seed is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// A bug around the protocol.
    pub flaw: Option<Flaw>,
    /// The mode of reads, if the seed is not to choose.
    pub reads: Option<Reads>,
    /// Nothing fails; nodes join and leave, and slots move.
    pub is_planned: bool,
    /// A bug in the protocol.
    #[cfg(feature = "planted")]
    pub bug: Option<atoll_replica::Bug>,
}

impl Case {
    /// A run with a bug around the protocol. A bug that only makes clients wait is detected only where
    /// nothing else fails.
    #[must_use]
    pub fn flawed(flaw: Flaw) -> Self {
        let is_planned = matches!(flaw, Flaw::HeldForgotten | Flaw::DeadlineIgnored);
        Self { flaw: Some(flaw), is_planned, ..Self::default() }
    }

    /// A run in which nothing fails.
    #[must_use]
    pub fn planned() -> Self {
        Self { is_planned: true, ..Self::default() }
    }

    /// Whether no bug is planted.
    pub(crate) fn is_sound(&self) -> bool {
        #[cfg(feature = "planted")]
        if self.bug.is_some() {
            return false;
        }
        self.flaw.is_none()
    }

    /// Plants the protocol's bug in this thread, or removes it.
    pub(crate) fn plant(&self, is_planted: bool) {
        #[cfg(feature = "planted")]
        atoll_replica::plant(self.bug.filter(|_| is_planted));
        let _ = is_planted;
    }
}
