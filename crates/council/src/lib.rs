//! The configuration group of a ring: a few nodes that agree on who has which slot. Never on the path of a
//! request.
//!
//! [`Council`] is a node's part in it: it registers the node, tells the group that it is there, and hands on
//! each new table as a [`CouncilEvent`]. Where the node is a member of the group, it also carries the log by
//! which the members agree, which is openraft's. What is decided is `atoll_replica::Group`: the log holds its
//! changes.
//!
//! Invariant: a node is told that it was heard only by who is certain to lead the group then, and only after
//! it was given every table that the group had decided by then.
//! Invariant: a member answers for what it has logged, and whom it voted for, only after both are where they
//! will survive.
//! Invariant: all queues are bounded; beyond that, proposals are dropped and changes are refused.

// What is said and kept.
mod codec;
mod types;

// A member of the group.
mod founding;
mod leader;
mod log;
mod machine;
mod member;
mod peers;
mod places;
mod seldom;

// What nodes use.
mod agent;
mod chance;
mod council;
mod error;
mod options;

#[cfg(test)]
mod simulation;

pub use codec::Update as TableUpdate;
pub use council::{Council, CouncilClock, CouncilEvent};
pub use error::CouncilError;
pub use options::{CouncilOptions, CouncilTls, Listen, MemberAddress, Secret};
