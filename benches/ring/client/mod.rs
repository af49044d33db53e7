//! The one client that measures every server: a thread, a set of connections, a closed loop.
//!
//! `load` runs it, `connection` is one of its connections, `protocol` has the requests and replies,
//! `content` is the expected content of each key, and `histogram` counts how long each request took.

mod connection;
mod content;
mod histogram;
mod load;
mod memcached;
mod protocol;
mod resp;
mod speaker;
#[cfg(test)]
pub mod stub;
#[cfg(test)]
mod tests;

pub use content::{Model, Pieces};
pub use histogram::Histogram;
pub use load::{Choice, LoadError, Outcome, Refill, Tally, Usage, Work, run, run_at, shared_out};
pub use protocol::{Operation, Protocol, Reply};
#[cfg(test)]
pub use resp::parse_command;
pub use speaker::{Incoming, SpeakError, Speaker, unexpected};
