//! The store contract: a map of sorted maps, `partition key -> (sort key -> value)`, all bytes.
//!
//! [`Store`] is the only interface between the engines below and the models above. Code written against it
//! runs unchanged in memory, on a folder, on a ring, or on an existing wide-column database.
//!
//! Invariant: operations on one partition key are linearizable on every implementation.
//! Invariant: a call ends as done, refused (nothing happened) or unknown, and the type says which.
//! Invariant: a call beyond a limit writes nothing.

pub mod age;
mod batch;
mod capabilities;
pub mod clock;
mod create;
mod deadline;
mod error;
mod key;
pub mod lease;
mod read;
mod store;
mod token;
pub mod watch;

pub use atoll_buffer::Buffer;
pub use atoll_errors::ErrorKind;
pub use batch::{Batch, Condition, Durability, Mutation, RequestId, WriteOptions, Written};
pub use capabilities::{Capabilities, Limits};
pub use create::create_conditionally;
pub use deadline::within;
pub use error::{Conflict, Outcome, Source, StoreError};
pub use key::{Cell, PartitionKey, SortKey, SortRange};
pub use read::{
    ByteRange, Direction, Expectation, PartitionPage, PartitionQuery, Place, Projection, Read, ReadOptions,
    ScanEntry, ScanPage, ScanRequest, Split, Timestamp, Token, Waited,
};
pub use store::{Store, StoreFuture, StoreStream};
