//! Clients that contend for a few keys, and whether what they were told can be explained by some order of
//! what they did.
//!
//! Invariant: every operation that may have happened is in the history, and no other one.
//! Invariant: each write's bytes are its own, so that whoever finds them knows whose they are.

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
