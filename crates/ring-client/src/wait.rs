//! Waits: the node that leads the cell reports when it is as expected.
//!
//! Invariant: a wait outlives the node at which it waits, and goes on at the node that leads the cell by
//! then.
//! Invariant: only a redirection to another node is followed at once, and only a few in a row; any other
//! trouble is followed by a pause, whatever other calls have learned meanwhile.
//! Invariant: closing the store ends a wait at once, whatever it waits for until its time is over.

use crate::answer::{Refused, meaning};
use crate::nodes::HOPS_MAX;
use crate::store::Shared;
use crate::watch_connections::WatchEnd;
use atoll_keyspace::slot_of;
use atoll_store::watch::Watch;
use atoll_store::{Buffer, Cell, Expectation, StoreError, Waited};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the final read may take, after the time is over.
const LAST_LOOK: Duration = Duration::from_millis(200);

/// Pause before a node is asked again that could not wait.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The contract's `wait`.
pub(crate) async fn wait(
    shared: &Arc<Shared>,
    cell: Cell<'_>,
    expectation: Expectation,
    time_out: Duration,
) -> Result<Waited, StoreError> {
    let watch = shared.watches.watch(cell)?;
    let ends = Instant::now().checked_add(time_out);
    // The first read happens however short the time is.
    let current = tokio::select! {
        biased;
        error = closed(shared, &watch) => return Err(error),
        current = shared.get(cell, expectation.range()) => current?,
    };
    if expectation.is_met(current.as_deref()) {
        return Ok(Waited::Met(current));
    }
    let watching = async {
        tokio::select! {
            biased;
            error = closed(shared, &watch) => Err(error),
            met = watch_for(shared, cell, &expectation, ends) => met,
        }
    };
    let Some(ends) = ends else { return watching.await };
    match tokio::time::timeout_at(ends, watching).await {
        Ok(watched) => watched,
        // A caller that only asks for the present state has its answer from the first read.
        Err(_) if time_out.is_zero() => Ok(Waited::TimedOut),
        Err(_) => Ok(last_look(shared, cell, &expectation).await),
    }
}

/// Ends with an error when the store is closed: nothing else wakes its watches.
async fn closed(shared: &Shared, watch: &Watch<'_>) -> StoreError {
    watch.changed().await.err().unwrap_or_else(|| shared.unavailable("the store was closed"))
}

/// Reads the cell when the time is over, since the change may not have been reported. A node that does not
/// answer soon does not delay the caller.
async fn last_look(shared: &Arc<Shared>, cell: Cell<'_>, expectation: &Expectation) -> Waited {
    let look = tokio::time::timeout(LAST_LOOK, shared.get(cell, expectation.range()));
    match look.await {
        Ok(Ok(current)) if expectation.is_met(current.as_deref()) => Waited::Met(current),
        _ => Waited::TimedOut,
    }
}

async fn watch_for(
    shared: &Arc<Shared>,
    cell: Cell<'_>,
    expectation: &Expectation,
    ends: Option<Instant>,
) -> Result<Waited, StoreError> {
    let (slot, nodes) = (slot_of(cell.partition), &shared.nodes);
    let mut words: Vec<&[u8]> = vec![cell.partition, cell.sort];
    match expectation {
        Expectation::Equals(Some(value)) => words.extend([&b"EQ"[..], value]),
        Expectation::Differs(Some(value)) => words.extend([&b"NE"[..], value]),
        Expectation::Equals(None) => words.push(b"ABSENT"),
        Expectation::Differs(None) => words.push(b"PRESENT"),
    }
    let mut troubles = Troubles::default();
    loop {
        let turn = nodes.watch_connections.turn(&nodes.options);
        let left = ends.map_or(turn, |ends| ends.saturating_duration_since(Instant::now())).min(turn);
        // Rounded up, because this side decides when the time is over.
        let milliseconds = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let target = nodes.owner_or_anyone(slot);
        let (asked_at, mut is_sent_on) = (Instant::now(), false);
        let trouble = match nodes.watch_connections.wait(&nodes.options, &target, milliseconds, &words).await
        {
            WatchEnd::Met(value) => return Ok(Waited::Met(value.map(Buffer::from))),
            WatchEnd::Long => {
                let current = shared.get(cell, expectation.range()).await?;
                if expectation.is_met(current.as_deref()) {
                    return Ok(Waited::Met(current));
                }
                continue;
            }
            WatchEnd::TimeOut => {
                troubles.are_over();
                continue;
            }
            WatchEnd::Refused(text) => match meaning(&text, "wait", &nodes.place) {
                Refused::Failed(error) => return Err(error),
                Refused::Moved(address) => {
                    is_sent_on = address != *target;
                    nodes.set_owner(Some(slot), &Arc::from(address));
                    troubles.hops += 1;
                    "the nodes redirect it to each other".to_owned()
                }
                Refused::Later(reason) | Refused::Unknown(reason) => reason,
            },
            WatchEnd::Elsewhere(why) => format!("{target} has no such keyspace yet: {why}"),
            WatchEnd::Lost(reason) => {
                nodes.forget(&target, asked_at);
                reason
            }
            WatchEnd::Silent(reason) => {
                nodes.forget(&target, asked_at);
                // It should have reported by then, unless it was this process that stood still.
                let due = asked_at + Duration::from_millis(milliseconds);
                troubles.began_by(due.max(Instant::now() - nodes.options.connect_time_out));
                reason
            }
        };
        nodes.unlearn(Some(slot), &target);
        if troubles.go_on_for(nodes.options.patience, asked_at, Instant::now()) {
            return Err(shared.unavailable(&trouble));
        }
        if !is_sent_on || troubles.take_a_breath() {
            tokio::time::sleep(troubles.pause()).await;
            nodes.refresh_within(troubles.left(nodes.options.patience, Instant::now())).await;
        }
    }
}

/// Trouble in finding a node to wait at.
#[derive(Default)]
struct Troubles {
    since: Option<Instant>,
    pauses: u32,
    /// Redirections since the last pause.
    hops: usize,
    /// Whether the last trouble began before it was noticed.
    is_old: bool,
}

impl Troubles {
    /// A node answered as it should.
    fn are_over(&mut self) {
        *self = Self::default();
    }

    /// A node should have answered at this moment, and did not.
    fn began_by(&mut self, moment: Instant) {
        self.since.get_or_insert(moment);
        self.is_old = true;
    }

    /// Records trouble with a node that was asked at `asked_at`. Returns whether there was nothing but
    /// trouble for longer than `patience`.
    fn go_on_for(&mut self, patience: Duration, asked_at: Instant, now: Instant) -> bool {
        // All was well between two troubles that are this far apart, unless the node was silent all the
        // while.
        if !std::mem::take(&mut self.is_old) && now - asked_at > patience {
            self.are_over();
        }
        now - *self.since.get_or_insert(now) > patience
    }

    /// Whether there were so many redirections that nodes may disagree.
    fn take_a_breath(&mut self) -> bool {
        let is_due = self.hops >= HOPS_MAX;
        self.hops %= HOPS_MAX;
        is_due
    }

    /// How long the trouble may go on.
    fn left(&self, patience: Duration, now: Instant) -> Duration {
        patience.saturating_sub(self.since.map_or(Duration::ZERO, |since| now - since))
    }

    /// How long to pause before a node is asked again.
    fn pause(&mut self) -> Duration {
        let pause = PAUSE_FIRST * 2_u32.pow(self.pauses.min(8));
        self.pauses += 1;
        pause.min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_that_hangs_is_as_good_as_none_however_long_a_turn_is() {
        let (begin, mut troubles) = (Instant::now(), Troubles::default());
        // It was asked to wait for ten seconds, and had three more to report their end.
        troubles.began_by(after(begin, 10));
        assert!(!troubles.go_on_for(PATIENCE, begin, after(begin, 13)));
        troubles.began_by(after(begin, 23));
        assert!(troubles.go_on_for(PATIENCE, after(begin, 13), after(begin, 26)));
    }

    #[test]
    fn what_was_well_for_long_between_two_troubles_ends_the_first() {
        let (begin, mut troubles) = (Instant::now(), Troubles::default());
        assert!(!troubles.go_on_for(PATIENCE, begin, after(begin, 1)));
        assert!(!troubles.go_on_for(PATIENCE, after(begin, 1), after(begin, 4)));
        // A line that broke after nine seconds had worked until then.
        assert!(!troubles.go_on_for(PATIENCE, after(begin, 4), after(begin, 13)));
        assert!(troubles.go_on_for(PATIENCE, after(begin, 14), after(begin, 19)));
        troubles.are_over();
        assert!(!troubles.go_on_for(PATIENCE, after(begin, 19), after(begin, 20)));
        assert_eq!((troubles.pause(), troubles.pause()), (PAUSE_FIRST, 2 * PAUSE_FIRST));
        for _ in 0..20 {
            troubles.pause();
        }
        assert_eq!(troubles.pause(), PAUSE_MAX);
    }
}
