//! Crash tests of the engine.
//!
//! [`run_seed`] drives a store on a disk that loses power, tears writes and lies, all from one seed, and
//! judges what is left against the [`Oracle`]. [`kill`] does the same to a real process on a real file, and
//! [`fenced`] has one whose store another process takes over.
//! [`Toy`] is a small store that keeps its promises, so that the harness itself can be tested.
//!
//! Invariant: a seed determines the whole run, whatever the number of threads; a failure names the seed
//! that replays it.

#![allow(missing_docs, reason = "a test crate: names say it, and nobody links against it")]

pub mod counts;
pub mod damage;
mod engine;
pub mod fenced;
pub mod kill;
pub mod oracle;
mod read;
mod run;
pub mod soak;
pub mod state;
pub mod subject;
mod toy;
pub mod workload;

pub use counts::Counts;
pub use engine::{EngineBug, EngineSubject};
pub use oracle::Oracle;
pub use run::{Run, Violation, run_seed};
pub use subject::Subject;
pub use toy::{Toy, ToyBug};
