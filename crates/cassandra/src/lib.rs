//! The contract on Apache Cassandra: a cluster that a site runs already, as a store.
//!
//! [`CassandraStore::open`] takes [`Options`] and gives a [`Store`](atoll_store::Store). State that can
//! change is written by lightweight transactions and read at SERIAL; state that is created once is written at
//! a majority and read from any replica. The layout and its reasons are in docs/decisions/0018-cassandra.md.
//!
//! Invariant: a cell that can change is never written by a plain write or read by a plain read.
//! Invariant: a request whose effect must not happen twice is sent only once.

mod bind;
mod cells;
mod chunks;
mod clock;
mod codec;
mod connect;
mod create;
mod drift;
mod failure;
mod guarantees;
mod kept;
mod lanes;
mod leaving;
mod link;
mod listing;
mod near;
mod net;
mod numbers;
mod options;
mod plan;
mod profiles;
mod read;
mod recall;
mod scan;
mod schema;
mod settings;
mod settle;
mod size;
mod statements;
mod store;
mod sweep;
mod tls;
mod verdict;
mod wait;
mod write;

pub use options::{Consistency, Credentials, Options, OptionsError, Tls};
pub use store::CassandraStore;
pub use sweep::Swept;
