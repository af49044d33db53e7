//! A crowd at the head: the ranks of a step end at the same moment, and each wants to write the next version.
//!
//! One of those who write at the same time wins, and all others have read and written in vain. Who tried in vain rests for a
//! random time, which doubles, so that many find room one after the other. Nobody waits for the head to change: all
//! would wake at once, to be refused again.

use super::Ledger;
use crate::protocol::EditId;
use atoll_store::{Cell, Expectation};
use std::time::Duration;
use twox_hash::XxHash3_64;

/// No rest is longer than two to this power, in milliseconds.
const DOUBLINGS_MAX: u32 = 10;

impl Ledger {
    /// Rests after so many tries that were refused.
    pub(super) async fn give_way(&self, id: EditId, refused: usize) {
        let rest = rest(id, refused);
        if !rest.is_zero() {
            // Nobody writes there, so the wait ends when the time has run out; and whoever writes the head is not asked.
            let partition = [self.partition.as_slice(), b"/rest"].concat();
            let cell = Cell::new(&partition, b"");
            // Where the store is gone, the next look says so.
            let _ = self.store.wait(cell, Expectation::Differs(None), rest).await;
        }
    }
}

/// The first refusal is an accident; from then on each doubles the time of which a part is rested.
fn rest(id: EditId, refused: usize) -> Duration {
    let Some(doublings) = refused.checked_sub(1).filter(|doublings| *doublings > 0) else {
        return Duration::ZERO;
    };
    let most_us = 1000_u64 << doublings.min(DOUBLINGS_MAX as usize);
    let mut text = [0; 24];
    text[..16].copy_from_slice(&id.session.0.to_le_bytes());
    text[16..].copy_from_slice(&id.sequence.to_le_bytes());
    Duration::from_micros(XxHash3_64::oneshot_with_seed(refused as u64, &text) % most_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SessionId;

    #[test]
    fn rests_differ_and_become_longer_up_to_a_second() {
        let of = |refused| {
            let all = (0..1000_u64).map(move |rank| {
                rest(EditId { session: SessionId(u128::from(rank) * 0x9e37_79b9), sequence: rank }, refused)
            });
            let mut all: Vec<Duration> = all.collect();
            all.sort();
            (all[500], all[999])
        };
        assert_eq!(of(1).1, Duration::ZERO);
        for (refused, longest_ms) in [(2, 2), (5, 16), (11, 1024), (1000, 1024)] {
            let (middle, longest) = of(refused);
            let most = Duration::from_millis(longest_ms);
            assert!(middle > most * 2 / 5 && middle < most * 3 / 5, "{refused}: {middle:?}");
            assert!(longest > most * 9 / 10 && longest < most, "{refused}: {longest:?}");
        }
    }
}
