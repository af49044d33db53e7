//! What the store relies on while it is open, as the nodes told when they were asked last.
//!
//! Invariant: while a node is known to read without what was decided before, no call is made. It is known
//! until every node that is up has told that it does not, or is gone.

use crate::settings::{ClusterSettings, Found};
use atoll_store::StoreError;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the nodes' settings allow at present.
pub(crate) struct Guarantees {
    /// Whether the refusal of a conditional batch means that nothing of it was proposed. Paxos v1 may refuse
    /// to commit what a majority has accepted.
    is_refusal_final: AtomicBool,
    /// Whether a write is acknowledged only once it is synced. This can turn false, and then stays false: the
    /// warning about it is logged once.
    is_synced: AtomicBool,
    /// Why no call can keep what the contract promises.
    broken: Mutex<Option<StoreError>>,
}

impl Guarantees {
    pub(crate) fn new(settings: ClusterSettings) -> Self {
        Self {
            is_refusal_final: AtomicBool::new(settings.is_paxos_v2),
            is_synced: AtomicBool::new(settings.is_synced),
            broken: Mutex::new(None),
        }
    }

    /// Applies what the nodes told when they were asked again; returns whether calls fail from now on that
    /// did not before.
    pub(crate) fn heed(&self, place: &str, found: Result<Found, StoreError>) -> bool {
        match found {
            Ok(found) => {
                self.apply(place, found.weakest);
                if found.is_whole && self.broken.lock().take().is_some() {
                    tracing::info!(place, "every node reads what was decided before: calls are made again");
                }
                false
            }
            Err(error) => {
                // The error is about the variant of Paxos alone. It tells nothing about syncing, and what is
                // synced would not be promised again once the variant is right.
                self.is_refusal_final.store(false, Ordering::Relaxed);
                let mut broken = self.broken.lock();
                if broken.is_none() {
                    tracing::warn!(%error, "a node is configured differently: no calls are made");
                }
                broken.replace(error).is_none()
            }
        }
    }

    /// Takes over the weakest settings; none if no node told any.
    fn apply(&self, place: &str, weakest: Option<ClusterSettings>) {
        self.is_refusal_final.store(weakest.is_some_and(|told| told.is_paxos_v2), Ordering::Relaxed);
        if weakest.is_some_and(|told| !told.is_synced) && self.is_synced.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                place,
                "a node acknowledges writes that it has not synced, so none is reported as synced"
            );
        }
    }

    /// Whether the refusal of a conditional batch is final.
    pub(crate) fn is_refusal_final(&self) -> bool {
        self.is_refusal_final.load(Ordering::Relaxed)
    }

    /// Whether a write is acknowledged only once it is synced.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::Relaxed)
    }

    /// The error of every call while a node reads without what was decided before.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRONG: ClusterSettings = ClusterSettings {
        is_synced: true,
        mutation_bytes_max: Some(16 << 20),
        is_paxos_v2: true,
        is_linearizable: true,
    };

    fn told(weakest: Option<ClusterSettings>, is_whole: bool) -> Result<Found, StoreError> {
        Ok(Found { weakest, is_whole })
    }

    fn wrong() -> Result<Found, StoreError> {
        Err(StoreError::Unavailable { place: "here".to_owned(), reason: "10.0.0.7".to_owned(), source: None })
    }

    #[test]
    fn calls_fail_from_the_answer_of_a_wrong_node_until_every_node_has_told_that_it_is_right() {
        let guarantees = Guarantees::new(STRONG);
        assert!(guarantees.check().is_ok() && guarantees.is_synced() && guarantees.is_refusal_final());
        assert!(guarantees.heed("here", wrong()));
        assert!(!guarantees.heed("here", wrong()), "it was told before");
        let error = guarantees.check().unwrap_err();
        assert!(error.to_string().contains("10.0.0.7"), "{error}");
        // The wrong node may be the one that does not answer.
        for found in [told(None, false), told(Some(STRONG), false)] {
            assert!(!guarantees.heed("here", found));
            assert!(guarantees.check().is_err());
        }
        assert!(!guarantees.heed("here", told(Some(STRONG), true)));
        assert!(guarantees.check().is_ok());
        assert!(guarantees.is_synced() && guarantees.is_refusal_final(), "nothing else was wrong");
        assert!(guarantees.heed("here", wrong()), "again");
    }

    #[test]
    fn what_one_node_does_not_support_is_not_relied_on_and_is_not_promised_again() {
        let guarantees = Guarantees::new(STRONG);
        guarantees.heed("here", told(None, false));
        assert_eq!((guarantees.is_synced(), guarantees.is_refusal_final()), (true, false));
        guarantees.heed("here", told(Some(ClusterSettings { is_synced: false, ..STRONG }), true));
        assert_eq!((guarantees.is_synced(), guarantees.is_refusal_final()), (false, true));
        guarantees.heed("here", told(Some(STRONG), true));
        assert_eq!((guarantees.is_synced(), guarantees.is_refusal_final()), (false, true));
        guarantees.heed("here", wrong());
        assert!(!guarantees.is_refusal_final());
    }
}
