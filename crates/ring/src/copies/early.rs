//! What clients ask a node that begins, before it knows whether its clock is right: it waits, in its order.
//!
//! Invariant: what waits here is of the list of all that is waited for, and bounded with that. All of it is
//! let go at once: of reads whose replies together are more than may wait, some are refused as at any other
//! time.

use super::Copies;
use crate::NodeError;
use crate::clock::Now;
use atoll_replica::Input;

impl Copies {
    /// Takes what a client asks, once the clock of this node is known to be right.
    pub(super) fn enter(&mut self, now: Now, input: Input) -> Result<(), NodeError> {
        if self.early.is_empty() && !self.dates.is_early(now.moment) {
            return self.step(now, input);
        }
        self.early.push_back(input);
        Ok(())
    }

    /// Takes what was asked too early, by the date that this node goes by since it knows: `now` was dated
    /// before others told of their clocks.
    pub(crate) fn take_early(&mut self, now: Now) -> Result<(), NodeError> {
        let now = self.dates.again(now);
        while !self.dates.is_early(now.moment)
            && let Some(mut input) = self.early.pop_front()
        {
            if let Input::Write { time_ms, .. } = &mut input {
                *time_ms = now.date_ms;
            }
            self.step(now, input)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
