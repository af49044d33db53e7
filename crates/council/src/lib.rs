//! The configuration group of a ring: a few nodes that agree on which node has which slot. It is never on the
//! path of a request.
//!
//! [`Council`] is a node's handle to the group: it registers the node, sends its heartbeats, and delivers
//! each new table as a [`CouncilEvent`]. On a member of the group it also runs the replicated log by which
//! the members agree, which is openraft's. The state machine is `atoll_replica::Group`; the log holds its
//! changes.
//!
//! Invariant: a heartbeat is confirmed only by a member that is certain to lead the group at that time, and
//! the confirmation is delivered only after every table that the group had decided by then.
//! Invariant: a member acknowledges entries and votes only after they are where they will survive.
//! Invariant: all queues are bounded; beyond that, proposals are dropped and changes are refused.

// Messages and stored records.
mod codec;
mod types;

// A member of the group.
mod founding;
mod leader;
mod log;
mod machine;
mod member;
mod peers;
mod receiving;
mod resolver;
mod seldom;

// The node's side.
mod agent;
mod council;
mod error;
mod options;
mod random_id;

// For fuzzers.
pub mod fuzz;

#[cfg(test)]
mod simulation;

pub use codec::Update as TableUpdate;
pub use council::{Council, CouncilClock, CouncilEvent};
pub use error::CouncilError;
pub use options::{CouncilOptions, CouncilTls, Listen, MemberAddress, Secret};
