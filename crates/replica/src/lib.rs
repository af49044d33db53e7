//! Replication of a slot: log, commit, leases and configurations, as a state machine without I/O.
//!
//! [`Replica`] is everything that a node does for its slots: it takes an [`Input`] and the time, and returns
//! [`Effect`]s. [`Group`] is the state machine of the configuration group, which decides one proposal after
//! the other. The [`Table`] is the result, which every node receives.
//!
//! Source: PacificA (Lin, Yang, Zhang, Zhou: "PacificA: Replication in Log-Based Distributed Storage
//! Systems", 2008), with logs matched as in Raft (Ongaro, Ousterhout 2014, section 5.3), and leases between
//! pairs of nodes.
//!
//! Invariant: no socket, no disk, no clock, no randomness and no thread; the same inputs give the same
//! effects.
//! Invariant: a write is acknowledged only when every in-sync copy has logged it, so each of them may become
//! primary.
//! Invariant: a read is answered only while every other in-sync copy promises that no other node is primary.

// Shared state, and how it is decided.
mod configurations;
mod durability;
mod group;
mod ids;
mod keyspaces;
mod members;
mod next_table;
mod placement;
mod table;
mod zones;

// The protocol between nodes.
mod copy;
mod gathering;
mod held_requests;
mod lease;
mod lengths;
mod log;
mod message;
mod options;
mod primary;
mod replica;

#[cfg_attr(not(feature = "planted"), allow(dead_code))]
mod planted;

pub use configurations::Configurations;
pub use durability::{KeyspaceSet, Persistence, Survived};
pub use gathering::Gathering;
pub use group::{Change, Decision, Group, GroupOptions, SavedGroup};
pub use ids::{Epoch, Incarnation, LogRun, Moment, NodeId, Position, Sequence, Slot, Ticket, Version};
pub use keyspaces::{KEYSPACES_MAX, KeyspaceRules, SLOTS_MAX, problem_of_name};
pub use members::{Address, Member, Members};
pub use message::{Contradiction, Effect, Entry, Input, Message, Proposal, Refusal, SlotMessage};
pub use options::{OptionError, Options, Reads};
#[cfg(feature = "planted")]
pub use planted::{Bug, plant};
pub use replica::{Found, Replica, UnderWay};
pub use table::{COPIES_MAX, Configuration, Copies, Table};
pub use zones::{PlacementHints, Weight, ZoneId, Zones, problem_of_zone};
