//! The store contract on a ring of nodes: each call is a command to the node that leads the slot of its
//! partition.
//!
//! A partition is a hash to clients of Redis, and its sort keys are the fields.
//!
//! Every write has a name under which its slot does it once: the caller's request id, or one of our own. So a
//! write without an answer is sent again, to the node that leads the slot by then.
//!
//! Invariant: a write is never done twice. If no node answers until patience is over, the outcome is unknown.

mod answer;
mod connection;
mod dialling;
mod durability;
mod idle;
mod known_table;
mod lanes;
mod listing;
mod nodes;
mod operate;
mod options;
mod owners;
mod places;
mod refreshing;
mod request;
mod scan;
mod sending;
mod session;
mod store;
#[cfg(test)]
mod stub;
mod wait;
mod watch_connections;

pub use atoll_resp::LatencyClass;
pub use operate::{
    DownSlots, KeyspaceStatus, NewKeyspace, NodeStatus, RING_CHANGE, RingOperator, RingSetup, RingStatus,
};
pub use options::RingOptions;
pub use owners::Owners;
pub use store::RingStore;
