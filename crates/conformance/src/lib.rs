//! The conformance suite: whether a store keeps the promises of the contract.
//!
//! Implement [`Subject`] for the store; [`run`] then reports the promises that it breaks, each by the name of
//! its check, with the facts and a seed that replays it. [`broken`] holds stores with one planted fault each,
//! which prove that the suite finds what it looks for.
//!
//! ```
//! use atoll_conformance::{Memory, Size, run};
//!
//! let report = run(&Memory::default(), Size::Quick);
//! assert!(report.is_clean(), "{report}");
//! ```
//!
//! Invariant: a check judges only by the promises of the contract, so that any correct store passes.
//! Invariant: all randomness follows from the seed; only the interleaving of threads does not.

pub mod broken;
mod checks;
mod context;
mod flaky;
pub mod killed;
mod memory;
mod relay;
mod report;
mod reused;
mod subject;
mod suite;

pub use atoll_linearizability as linearizability;
pub use flaky::Flaky;
pub use memory::Memory;
pub use relay::{Relay, Relayed};
pub use report::{Checked, Outcome, Report};
pub use reused::{Renamed, empty};
pub use subject::{Ending, SharedStore, Subject};
pub use suite::{SEED_DEFAULT, Size, check_names, run, run_check, run_seeded};
