//! Clients that contend for a few keys, and the check that some order of their operations explains the
//! replies.
//!
//! Invariant: every operation that may have happened is in the history, and no other one.
//! Invariant: the bytes of each write are unique, so that a reader can tell whose they are.

mod caller;
mod contender;
mod history;
mod reply;
mod subject;
#[cfg(test)]
mod tests;
mod verdict;

pub use caller::Caller;
pub use contender::Contender;
pub use history::History;
pub use verdict::{Judged, judge};
