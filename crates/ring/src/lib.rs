//! A node of the ring: event loops, the Redis door, and slots on the engine.
//!
//! Start at [`Node`], which runs everything, and [`NodeOptions`], which says where it listens and what it may
//! use. Any client of a Redis Cluster can talk to a node. `atoll-keyspace` defines what commands do, and
//! `atoll-replica` how the copies of a slot agree.
//!
//! Invariant: bytes from a peer never cause a panic, nor memory use beyond the stated limits.
//! Invariant: every request gets exactly one reply, in request order, and no reply leaves before the write it
//! acknowledges is as durable as configured.
//! Invariant: a client on another machine gets no answer without a token.
//! Invariant: a node that has a certificate accepts only encrypted connections, at every door.

// Start-up, options and counters.
mod access;
mod address;
mod error;
mod metrics;
mod node;
mod options;
mod token;

// The event loop.
mod clients;
mod clock;
mod connection;
mod connections;
mod event_loop;
mod loop_state;
mod membership_log;
mod split_requests;

// Executing requests.
mod classes;
mod execute;
mod failures;
mod file_limit;
mod folder;
mod keyspaces;
mod listing;
mod log_rate_limit;
mod periodic_sync;
mod room;
mod shares;
mod slots;
mod table;
#[cfg(test)]
mod warned;
mod watches;

// A node of a ring of several.
mod alone;
mod copies;
mod council;
mod dates;
mod group;
mod listening;
mod log;
mod others;
mod peer;
mod peer_addresses;
mod reliance;
mod replicated_slots;
mod setup;
mod syncer;

// For fuzzers.
pub mod fuzz;

// Parts of the options of a node of several.
pub use atoll_council::MemberAddress;
pub use atoll_disk::RING_FILE;
pub use atoll_keyspace::SLOTS;
pub use atoll_replica::{
    COPIES_MAX, GroupOptions as RingShape, NodeId, Options as RingOptions, PlacementHints, Reads, Weight,
    problem_of_zone,
};
pub use atoll_resp::LatencyClass;

pub use access::{AccessError, AccessFile};
pub use address::{AddressError, HostPort, NodeAddress, NodeName};
pub use clock::{Clock, Now, SystemClock};
pub use council::CouncilGroup;
pub use error::NodeError;
pub use group::{GroupDoor, GroupEvent, GroupMember, Joining, LocalGroup, OnGroupEvent};
pub use log::LogError;
pub use node::{Node, NodeEnding};
pub use options::{ConnectionLimits, NodeOptions, Persistence, SlotStorage};
pub use others::Others;
pub use setup::RingSetup;
pub use table::SlotTable;
pub use token::Token;
// What a node encrypts with.
pub use atoll_tls::{NodeTls, PeerTls, TlsError, TlsFiles};
