//! A snapshot on its way to this member, in pieces.
//!
//! Invariant: at most one snapshot is held that is not whole, and no more of it than arrived; so what any
//! number of senders make this member hold is bounded.

use crate::codec::SnapshotPiece;
use crate::log::SNAPSHOT_BYTES_MAX;
use crate::types::{SnapshotBytes, SnapshotMetaOf, SnapshotOf, VoteOf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a part of a snapshot is held after the last piece of it came.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The snapshot that is being received, if any.
#[derive(Debug, Default)]
pub(crate) struct Receiving(Mutex<Option<Incoming>>);

#[derive(Debug)]
struct Incoming {
    vote: VoteOf,
    meta: SnapshotMetaOf,
    total: u64,
    bytes: Vec<u8>,
    /// When the last piece came.
    at: Instant,
}

impl Incoming {
    /// Whether a piece is the next one of this snapshot.
    fn continues(&self, piece: &SnapshotPiece) -> bool {
        let is_same = self.vote == piece.vote && self.meta == piece.meta && self.total == piece.total;
        is_same && self.bytes.len() as u64 == piece.at
    }
}

impl Receiving {
    fn incoming(&self) -> MutexGuard<'_, Option<Incoming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a piece; returns the snapshot that it completes. The first piece of any snapshot replaces what
    /// there is: its sender began again, or another member leads.
    pub(crate) fn take(
        &self,
        piece: SnapshotPiece,
        now: Instant,
    ) -> Result<Option<SnapshotOf>, &'static str> {
        if piece.total > SNAPSHOT_BYTES_MAX as u64 {
            return Err("a snapshot that is too long");
        }
        if piece.meta.last_log_id.is_none() {
            return Err("a snapshot of nothing");
        }
        let mut incoming = self.incoming();
        let mut whole = match incoming.take() {
            Some(begun) if piece.at > 0 && begun.continues(&piece) => begun,
            _ if piece.at == 0 => {
                let SnapshotPiece { vote, meta, total, .. } = &piece;
                Incoming { vote: *vote, meta: meta.clone(), total: *total, bytes: Vec::new(), at: now }
            }
            begun => {
                // Most likely a late repetition, which must not end what goes on.
                *incoming = begun;
                return Err("a piece of a snapshot that does not follow the one before");
            }
        };
        let length = whole.bytes.len() as u64 + piece.bytes.len() as u64;
        if length > whole.total || piece.bytes.is_empty() {
            return Err("a piece of a snapshot of another length than was said");
        }
        whole.bytes.extend_from_slice(&piece.bytes);
        whole.at = now;
        if length < whole.total {
            *incoming = Some(whole);
            return Ok(None);
        }
        let snapshot = Box::new(SnapshotBytes(Arc::new(whole.bytes)));
        Ok(Some(SnapshotOf { meta: whole.meta, snapshot }))
    }

    /// Forgets a part of a snapshot whose sender seems to be gone.
    pub(crate) fn forget_old(&self, now: Instant) {
        let is_old = |begun: &Incoming| now.saturating_duration_since(begun.at) > FORGET_AFTER;
        let mut incoming = self.incoming();
        if incoming.as_ref().is_some_and(is_old) {
            *incoming = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SeatId;
    use openraft::{LeaderId, LogId, Vote};

    const WHOLE: &[u8] = b"a snapshot in several pieces";

    fn piece(term: u64, at: usize, length: usize) -> SnapshotPiece {
        let last = LogId { leader_id: LeaderId::new(1, SeatId(1)), index: 9 };
        SnapshotPiece {
            vote: Vote::new_committed(term, SeatId(1)),
            meta: SnapshotMetaOf { last_log_id: Some(last), ..SnapshotMetaOf::default() },
            total: WHOLE.len() as u64,
            at: at as u64,
            bytes: WHOLE[at..WHOLE.len().min(at + length)].to_vec(),
        }
    }

    fn held(receiving: &Receiving) -> usize {
        receiving.incoming().as_ref().map_or(0, |begun| begun.bytes.len())
    }

    #[test]
    fn pieces_make_the_whole_in_whatever_sizes_they_come() {
        for length in 1..=WHOLE.len() {
            let (receiving, now) = (Receiving::default(), Instant::now());
            for at in (0..WHOLE.len()).step_by(length) {
                let is_last = at + length >= WHOLE.len();
                match receiving.take(piece(1, at, length), now).unwrap() {
                    None => assert!(!is_last, "{length}"),
                    Some(snapshot) => {
                        assert!(is_last, "{length}");
                        assert_eq!(snapshot.snapshot.0[..], *WHOLE);
                    }
                }
            }
            assert_eq!(held(&receiving), 0, "nothing is left behind");
        }
    }

    #[test]
    fn a_piece_that_does_not_follow_is_refused_and_disturbs_nothing() {
        let (receiving, now) = (Receiving::default(), Instant::now());
        assert!(receiving.take(piece(1, 5, 5), now).is_err(), "there is no beginning");
        assert!(receiving.take(piece(1, 0, 5), now).unwrap().is_none());
        for other in [piece(2, 5, 5), piece(1, 10, 5), piece(1, 4, 5)] {
            assert!(receiving.take(other, now).is_err());
            assert_eq!(held(&receiving), 5);
        }
        assert!(receiving.take(piece(1, 5, 5), now).unwrap().is_none());
        assert!(receiving.take(piece(1, 5, 5), now).is_err(), "it came already");
        assert!(receiving.take(piece(2, 0, 3), now).unwrap().is_none(), "another leader begins");
        assert_eq!(held(&receiving), 3);
        assert!(receiving.take(piece(2, 3, 100), now).unwrap().is_some());
    }

    #[test]
    fn no_more_is_held_than_may_be_and_not_for_ever() {
        let (receiving, now) = (Receiving::default(), Instant::now());
        let long = SnapshotPiece { total: SNAPSHOT_BYTES_MAX as u64 + 1, ..piece(1, 0, 5) };
        assert!(receiving.take(long, now).is_err());
        let short = SnapshotPiece { total: 4, ..piece(1, 0, 5) };
        assert!(receiving.take(short, now).is_err(), "longer than was said");
        let empty = SnapshotPiece { bytes: Vec::new(), ..piece(1, 0, 5) };
        assert!(receiving.take(empty, now).is_err());
        let nothing = SnapshotPiece { meta: SnapshotMetaOf::default(), ..piece(1, 0, 5) };
        assert!(receiving.take(nothing, now).is_err());
        assert_eq!(held(&receiving), 0);
        assert!(receiving.take(piece(1, 0, 5), now).unwrap().is_none());
        receiving.forget_old(now + FORGET_AFTER);
        assert_eq!(held(&receiving), 5);
        receiving.forget_old(now + FORGET_AFTER * 2);
        assert_eq!(held(&receiving), 0);
    }
}
