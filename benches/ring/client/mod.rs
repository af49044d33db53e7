//! The one client that measures every server: a thread, a set of connections, a closed loop.
//!
//! `load` runs it, `connection` is one connection of it, `protocol` is what it says and hears, `content` is
//! what each key must hold, and `histogram` is how long each request took.

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
pub use speaker::{Heard, SpeakError, Speaker, unexpected};
