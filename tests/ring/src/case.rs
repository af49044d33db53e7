//! What is asked of a run beside its seed: a mistake planted in the protocol or around it, or how reads make
//! sure.

use atoll_replica::Reads;

/// A mistake of what runs around the protocol: each breaks something that the protocol relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// Clocks go at rates beyond the stated error while reads trust promises.
    WildClocks,
    /// A clock stands still while its node is paused.
    ClockStandsStill,
    /// The clock is read before a pause, and what it said is used behind it.
    NowBeforePause,
    /// With `always`, an entry counts as logged when it is written, before it is synced.
    SaidBeforeSynced,
    /// A node that lost what it had registers as if it had kept everything.
    LossDenied,
    /// Cells that came are put in place without asking whether they are newer.
    OldCellsInstalled,
    /// Cells that came are not on the disk when the protocol is told that they are.
    CellsSaidBeforeSynced,
    /// Entries are applied before it is on the disk that others are gone which they came in place of.
    AppliedBeforeCut,
    /// Cells of which some came when a process ended are taken for all of them by the next one.
    HalfBelieved,
    /// A client sends a write again whose outcome it does not know.
    WrittenAgain,
    /// A primary tells who waits for a value when the value is asked for, before it is committed.
    ToldBeforeCommitted,
    /// A write that waits for others is acknowledged when it comes.
    HeldAcknowledged,
    /// Requests that wait for others are forgotten when their slot changes hands.
    HeldForgotten,
    /// Requests wait for others beyond their time.
    DeadlineIgnored,
    /// While things break, whoever leads a slot behind a loss that was accepted answers reads from before the
    /// last write.
    StaleBehindLoss,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::WildClocks,
        Self::ClockStandsStill,
        Self::NowBeforePause,
        Self::SaidBeforeSynced,
        Self::LossDenied,
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
    /// A mistake around the protocol.
    pub flaw: Option<Flaw>,
    /// How reads make sure, if the seed is not to choose.
    pub reads: Option<Reads>,
    /// Nothing fails; nodes join and leave, and slots move.
    pub is_planned: bool,
    /// A mistake of the protocol.
    #[cfg(feature = "planted")]
    pub bug: Option<atoll_replica::Bug>,
}

impl Case {
    /// A mistake around the protocol. One that only makes clients wait is seen where nothing else does.
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

    /// Whether nothing is planted.
    pub(crate) fn is_sound(&self) -> bool {
        #[cfg(feature = "planted")]
        if self.bug.is_some() {
            return false;
        }
        self.flaw.is_none()
    }

    /// Plants the mistake of the protocol in this thread, or takes it out again.
    pub(crate) fn plant(&self, is_planted: bool) {
        #[cfg(feature = "planted")]
        atoll_replica::plant(self.bug.filter(|_| is_planted));
        let _ = is_planted;
    }
}
