//! Decides what became of a try whose answer was lost, by the traces that tries leave.
//!
//! Invariant: a try counts as dead only if the head that it expects is gone; one that may still be in a queue
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
    /// Whether its outcome is unknown.
    pub(crate) is_doubtful: bool,
    /// A moment before it was first sent.
    pub(crate) since: Moment,
}

impl Attempt {
    /// The version that the attempt makes.
    pub(crate) fn version(&self) -> u64 {
        self.expected.map_or(0, |head| head.version) + 1
    }

    /// Whether the row of its request id, if it has one, certainly still exists: it is kept for `memory`. A
    /// client that slept longer may find no row although the try was applied.
    pub(crate) fn is_remembered(&self, memory: Duration) -> bool {
        self.since.age() < memory
    }

    pub(crate) fn next(&self, is_compound: bool) -> PartitionHead {
        let flags = self.expected.map_or(0, |head| head.flags) | if is_compound { FLAG_COMPOUND } else { 0 };
        PartitionHead { version: self.version(), attempt: self.number, flags }
    }
}

/// The rows that identify who made a version.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traces {
    /// The version made by the write with this request id, if there was one.
    pub(crate) request: Option<PartitionHead>,
    /// The version recorded in the slot of the last try.
    pub(crate) winner: Option<PartitionHead>,
}

/// The outcome of the last try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was applied.
    Applied,
    /// It was not applied, and never will be.
    Dead,
    /// It may still be applied.
    Stands,
    /// The outcome can no longer be determined.
    Lost,
}

/// Whether a try was applied, as far as that can be told without another try. It can always be told if the
/// try had a request id whose row still exists, because that row is written together with the try.
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
        // Another writer made the version that this try was for.
        (_, Some(_)) => Verdict::Dead,
        _ if head == last.expected => Verdict::Stands,
        _ if has_request || !last.is_doubtful => Verdict::Dead,
        // The slot was reused, because 256 or more writes followed.
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

/// Turns an error after a doubtful try into `unknown`.
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
        // The slot holds an older version or nothing: the try may be in a queue.
        assert_eq!(of(doubtful(), head(3, 1), None), Verdict::Stands);
        assert_eq!(of(doubtful(), head(3, 1), head(0, MINE)), Verdict::Stands);
        // The slot was reused.
        assert_eq!(of(doubtful(), head(300, 2), head(260, MINE)), Verdict::Lost);
        let certain = Attempt { is_doubtful: false, ..doubtful() };
        assert_eq!(of(certain, head(300, 2), head(260, 2)), Verdict::Dead);
    }

    #[test]
    fn with_a_request_id_the_verdict_is_exact_however_many_writes_went_by() {
        let of = |request, winner| verdict(doubtful(), head(300, 2), Traces { request, winner }, true);
        // It is this write's own try: none of its chunks may be deleted.
        assert_eq!(of(head(4, MINE), head(260, 2)), Verdict::Applied);
        // Another call with the same id made it.
        assert_eq!(of(head(4, 8), head(260, 2)), Verdict::Dead);
        assert_eq!(of(head(200, MINE), head(260, 2)), Verdict::Dead);
        // No call did.
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
