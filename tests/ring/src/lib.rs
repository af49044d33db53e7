//! The ring in a simulation: nodes, network, disks and clocks that fail from a seed.
//!
//! [`run_seed`] has a few nodes serve a few clients through faults of all kinds, then heals everything, and
//! judges the replies to clients slot by slot: by a search for an order that explains them
//! (`atoll_linearizability`), and by the order in which writes were committed. Only the protocol core,
//! `atoll_replica`, is the real one; everything around it is simulated here.
//!
//! Invariant: a seed determines the whole run, whatever the number of threads; a failure names the seed that
//! replays it.
//! Invariant: no threads, no real clock, and no order that depends on a hash.

#![allow(missing_docs, reason = "a test crate: names say it, and nobody links against it")]

// What a seed decides, and which bug is planted.
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

// What happens in the world.
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

// The results.
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
