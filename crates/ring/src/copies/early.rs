//! Requests to a node that starts, before it knows whether its clock is right: they wait, in order.
//!
//! Invariant: these requests are part of the waiting list, and bounded with it. They are released all at
//! once; if the replies of reads exceed the limit for waiting replies, some are refused, as at any other
//! time.

use super::Copies;
use crate::NodeError;
use crate::clock::Now;
use atoll_replica::Input;

impl Copies {
    /// Takes a client's request once the clock of this node is known to be right.
    pub(super) fn enter(&mut self, now: Now, input: Input) -> Result<(), NodeError> {
        if self.early.is_empty() && !self.dates.is_early(now.moment) {
            return self.step(now, input);
        }
        if let Input::Write { body, .. } = &input {
            self.early_longest = self.early_longest.max(body.len());
        }
        self.early.push_back(input);
        Ok(())
    }

    /// Releases the requests that waited, with the date that this node has settled on: `now` was dated before
    /// the other nodes reported their clocks.
    pub(crate) fn take_early(&mut self, now: Now) -> Result<(), NodeError> {
        let now = self.dates.readjusted(now);
        while !self.dates.is_early(now.moment)
            && let Some(mut input) = self.early.pop_front()
        {
            if let Input::Write { time_ms, .. } = &mut input {
                *time_ms = now.date_ms;
            }
            self.step(now, input)?;
        }
        if self.early.is_empty() {
            self.early_longest = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
