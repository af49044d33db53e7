//! Back-off of contending commits: the ranks of a step finish at the same moment, and all want to write the
//! next version.
//!
//! Of several concurrent writers one wins; all others have read and written in vain. A loser backs off for a
//! random time whose bound doubles, so that many writers find room one after the other. Nobody waits for the
//! head to change, since all would wake at once and be refused again. Back-offs stay short, and start over: a
//! writer that competes with a few others that write without a pause, as a packer does, needs many tries
//! rather than long rests.

use super::Ledger;
use crate::protocol::EditId;
use std::time::Duration;
use twox_hash::XxHash3_64;

/// How often the bound of the back-off doubles; the next try then comes without a back-off.
const DOUBLINGS_MAX: usize = 5;

/// The bound before it doubles, in microseconds.
const BOUND_FIRST_US: u64 = 2_000;

impl Ledger {
    /// Backs off after `refused` refusals in a row.
    pub(super) async fn back_off(&self, id: EditId, refused: usize) {
        let delay = backoff(id, refused);
        if !delay.is_zero() {
            self.store.rest(delay).await;
        }
    }
}

/// The first refusal is taken for an accident and causes no back-off; each further one doubles the bound.
fn backoff(id: EditId, refused: usize) -> Duration {
    let doublings = refused.saturating_sub(1) % (DOUBLINGS_MAX + 1);
    if doublings == 0 {
        return Duration::ZERO;
    }
    let most_us = BOUND_FIRST_US << doublings;
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
    fn rests_differ_become_longer_and_begin_anew() {
        let of = |refused| {
            let all = (0..1000_u64).map(move |rank| {
                backoff(
                    EditId { session: SessionId(u128::from(rank) * 0x9e37_79b9), sequence: rank },
                    refused,
                )
            });
            let mut all: Vec<Duration> = all.collect();
            all.sort();
            (all[500], all[999])
        };
        for refused in [1, 7, 13] {
            assert_eq!(of(refused).1, Duration::ZERO);
        }
        for (refused, longest_ms) in [(2, 4), (5, 32), (6, 64), (8, 4), (12, 64)] {
            let (middle, longest) = of(refused);
            let most = Duration::from_millis(longest_ms);
            assert!(middle > most * 2 / 5 && middle < most * 3 / 5, "{refused}: {middle:?}");
            assert!(longest > most * 9 / 10 && longest < most, "{refused}: {longest:?}");
        }
    }
}
