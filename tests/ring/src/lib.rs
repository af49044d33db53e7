//! The ring in a simulation: nodes, network, disks and clocks that fail from a seed.
//!
//! [`run_seed`] has a few nodes serve a few clients through faults of all kinds, then heals everything, and
//! judges what clients were told: by the search for an order that explains it (`atoll_linearizability`), slot
//! by slot, and by the order in which writes were committed. Nothing but the protocol core, `atoll_replica`,
//! is the real one; what runs around it here is what a node does around it there.
//!
//! Invariant: one seed is one run, whatever the number of threads; a failure names the seed that replays it.
//! Invariant: no thread, no real clock, and no order that hangs on a hash.

#![allow(missing_docs, reason = "a test crate: names say it, and nobody links against it")]

// What a seed decides, and what goes wrong on purpose.
mod case;
mod settings;

// The parts of the world.
mod book;
mod cells;
mod clock;
mod council;
mod disk;
mod network;
mod node;
mod operation;
mod queue;

// What happens in it.
mod clients;
mod ending;
mod faults;
mod holding;
mod importing;
mod lives;
mod losses;
mod peace;
mod runtime;
mod serving;
mod world;

// What is made of it.
mod counts;
mod judge;
mod run;
pub mod soak;

#[cfg(feature = "planted")]
pub use atoll_replica::Bug;
pub use atoll_replica::Reads;
pub use case::{Case, Flaw};
pub use counts::Counts;
pub use run::{Outcome, Story, Violation, run_seed, tell_seed};
