//! What became of a try whose answer was lost, told by the traces that tries leave.
//!
//! Invariant: a try is taken for one that never applies only if its head is gone; one that may lie in a queue
//! stands.

use crate::codec::{FLAG_COMPOUND, PartitionHead};
use atoll_store::StoreError;
use atoll_store::age::Moment;
use std::sync::Arc;
use std::time::Duration;

/// A try that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) expected: Option<PartitionHead>,
    pub(crate) number: u128,
    /// Whether it is not known what became of it.
    pub(crate) is_doubtful: bool,
    /// Before it was sent first.
    pub(crate) since: Moment,
}

impl Attempt {
    /// The version that the attempt makes.
    pub(crate) fn version(&self) -> u64 {
        self.expected.map_or(0, |head| head.version) + 1
    }

    /// Whether the row of its request id, if it has one, is surely still there: it is kept for `memory`.
    /// Whoever slept for longer may find none of a try that applied.
    pub(crate) fn is_remembered(&self, memory: Duration) -> bool {
        self.since.age() < memory
    }

    pub(crate) fn next(&self, is_compound: bool) -> PartitionHead {
        let flags = self.expected.map_or(0, |head| head.flags) | if is_compound { FLAG_COMPOUND } else { 0 };
        PartitionHead { version: self.version(), attempt: self.number, flags }
    }
}

/// What tells who wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traces {
    /// The version that the write with this request id made, if there was one.
    pub(crate) request: Option<PartitionHead>,
    /// The version in the slot of the last try.
    pub(crate) winner: Option<PartitionHead>,
}

/// What became of the last try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It applied.
    Applied,
    /// It did not, and never will.
    Dead,
    /// It may yet.
    Stands,
    /// Nobody can tell any more.
    Lost,
}

/// Whether a try applied, as far as this needs no other try. With a request id whose row is still there it
/// can always be told: it is written with the try.
pub(crate) fn verdict(
    last: Attempt,
    head: Option<PartitionHead>,
    traces: Traces,
    has_request: bool,
) -> Verdict {
    let is_mine = |made: PartitionHead| made.version == last.version() && made.attempt == last.number;
    let winner = traces.winner.filter(|winner| winner.version == last.version());
    match (traces.request, winner) {
        (Some(made), _) if is_mine(made) => Verdict::Applied,
        (_, Some(winner)) if is_mine(winner) => Verdict::Applied,
        // Somebody else made the version that this try was for.
        (_, Some(_)) => Verdict::Dead,
        _ if head == last.expected => Verdict::Stands,
        _ if has_request || !last.is_doubtful => Verdict::Dead,
        // So many writes went by that the row of the version was used again.
        _ => Verdict::Lost,
    }
}

pub(crate) fn lost_track() -> StoreError {
    StoreError::Unknown {
        what: "write",
        reason: "its answer was lost, and too many other writes came before it could be looked for".into(),
        source: None,
    }
}

/// An error after a doubtful try means that the outcome is unknown.
pub(crate) fn honest(last: Option<Attempt>, error: StoreError) -> StoreError {
    match last {
        Some(Attempt { is_doubtful: true, .. }) => StoreError::Unknown {
            what: "write",
            reason: "its answer was lost, and the cluster could not be asked again".into(),
            source: Some(Arc::new(error)),
        },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::Outcome;

    const MINE: u128 = 7;

    fn head(version: u64, attempt: u128) -> Option<PartitionHead> {
        Some(PartitionHead { version, attempt, flags: 0 })
    }

    fn of(last: Attempt, now: Option<PartitionHead>, winner: Option<PartitionHead>) -> Verdict {
        verdict(last, now, Traces { request: None, winner }, false)
    }

    fn doubtful() -> Attempt {
        Attempt { expected: head(3, 1), number: MINE, is_doubtful: true, since: Moment::now() }
    }

    #[test]
    fn the_row_of_the_version_tells_who_made_it() {
        assert_eq!(of(doubtful(), head(9, 2), head(4, MINE)), Verdict::Applied);
        assert_eq!(of(doubtful(), head(9, 2), head(4, 8)), Verdict::Dead);
        // A row of an earlier round, or none: the try may lie in a queue.
        assert_eq!(of(doubtful(), head(3, 1), None), Verdict::Stands);
        assert_eq!(of(doubtful(), head(3, 1), head(0, MINE)), Verdict::Stands);
        // The row was used again.
        assert_eq!(of(doubtful(), head(300, 2), head(260, MINE)), Verdict::Lost);
        let certain = Attempt { is_doubtful: false, ..doubtful() };
        assert_eq!(of(certain, head(300, 2), head(260, 2)), Verdict::Dead);
    }

    #[test]
    fn with_a_request_id_the_verdict_is_exact_however_many_writes_went_by() {
        let of = |request, winner| verdict(doubtful(), head(300, 2), Traces { request, winner }, true);
        // It is this write's own try: nothing of it may be given back.
        assert_eq!(of(head(4, MINE), head(260, 2)), Verdict::Applied);
        // Another call with the same id did it.
        assert_eq!(of(head(4, 8), head(260, 2)), Verdict::Dead);
        assert_eq!(of(head(200, MINE), head(260, 2)), Verdict::Dead);
        // Nobody did.
        assert_eq!(of(None, head(260, 2)), Verdict::Dead);
    }

    #[test]
    fn a_row_that_may_have_expired_meanwhile_tells_nothing() {
        let last = doubtful();
        assert!(last.is_remembered(Duration::from_secs(600)));
        let slept = Attempt { since: last.since.earlier(Duration::from_secs(700)), ..last };
        assert!(!slept.is_remembered(Duration::from_secs(600)));
        let traces = Traces { request: None, winner: head(260, 2) };
        let has_request = slept.is_remembered(Duration::from_secs(600));
        assert_eq!(verdict(slept, head(300, 2), traces, has_request), Verdict::Lost);
    }

    #[test]
    fn whatever_fails_after_a_doubtful_try_is_unknown() {
        let conflict = || StoreError::closed("here".to_owned());
        assert_eq!(honest(Some(doubtful()), conflict()).outcome(), Outcome::Unknown);
        let certain = Attempt { is_doubtful: false, ..doubtful() };
        assert_eq!(honest(Some(certain), conflict()).outcome(), Outcome::Refused);
        assert_eq!(honest(None, conflict()).outcome(), Outcome::Refused);
    }
}
