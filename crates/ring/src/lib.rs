//! A node of the ring: event loops, the Redis door, and slots on the engine.
//!
//! [`Node`] is all of it; [`NodeOptions`] says where it listens and what it may take. Any client of a Redis
//! Cluster can talk to it. What commands do is for `atoll-keyspace`, how copies of a slot agree for
//! `atoll-replica`.
//!
//! Invariant: bytes from a peer never cause a panic, nor memory beyond the stated limits.
//! Invariant: a request is answered once, in its place, and not before what it wrote is as durable as was
//! chosen.
//! Invariant: nobody beyond this machine is answered without a token.
//! Invariant: where a node has a certificate, nothing that is not encrypted is listened to, at none of its
//! doors.

// What is opened, chosen and counted.
mod access;
mod address;
mod error;
mod metrics;
mod node;
mod options;
mod token;

// The loop.
mod clients;
mod clock;
mod comings;
mod connection;
mod connections;
mod event_loop;
mod gathered;
mod here;

// What requests do.
mod execute;
mod failures;
mod files;
mod folder;
mod keyspaces;
mod room;
mod seldom;
mod shares;
mod slots;
mod syncing;
mod table;
#[cfg(test)]
mod warned;
mod watches;

// What a node of several does.
mod alone;
mod copied;
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
mod syncer;

// What the options of a node of several are made of.
pub use atoll_council::MemberAddress;
pub use atoll_keyspace::SLOTS;
pub use atoll_replica::{COPIES_MAX, GroupOptions as RingShape, NodeId, Options as RingOptions};
pub use atoll_resp::LatencyClass;

pub use access::{AccessError, AccessFile};
pub use address::{AddressError, HostPort, NodeAddress, NodeName};
pub use clock::{Clock, Now, SystemClock};
pub use council::CouncilGroup;
pub use error::NodeError;
pub use group::{GroupDoor, GroupMember, GroupSaid, Joining, LocalGroup, Said};
pub use log::LogError;
pub use node::{Node, NodeEnding};
pub use options::{ConnectionLimits, NodeOptions, Persistence, Place};
pub use others::Others;
pub use table::SlotTable;
pub use token::Token;
// What a node encrypts with.
pub use atoll_tls::{NodeTls, PeerTls, TlsError, TlsFiles};
