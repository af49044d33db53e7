//! The contract on a ring of nodes: each call is a command to the node that has the slot of its partition.
//!
//! A partition is a hash to clients of Redis, and its sort keys are the fields.
//!
//! Invariant: a write is sent once. Whoever answered that it is not the one to ask, or that nothing happened, is asked
//! again; where nobody answered, the outcome is unknown.

mod answer;
mod connection;
mod listing;
mod nodes;
mod options;
mod request;
mod scan;
mod store;
mod wait;

pub use options::RingOptions;
pub use store::RingStore;
