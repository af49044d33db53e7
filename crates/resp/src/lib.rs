//! The Redis serialization protocol, RESP2 and RESP3: turns bytes into requests, replies or typed errors; no
//! I/O.
//!
//! [`Command`] understands requests, with the names and errors of Redis, and does not execute them.
//!
//! A server reads with [`RequestParser`] and answers with [`ReplyWriter`]; a client asks with
//! [`write_request`] and reads with [`ReplyParser`]. The arguments of a request are slices of the received
//! bytes and are not copied.
//!
//! Source: the protocol's specification (redis.io, "Redis serialization protocol specification"). What it
//! leaves open follows Redis 7.0, including the texts of errors, because clients look at them.
//!
//! Invariant: bytes from a peer never cause a panic, nor memory use beyond the stated [`Limits`]: nothing is
//! allocated for data that has not arrived.
//! Invariant: the same bytes give the same results however they are split into pieces.

mod command;
mod error;
pub mod fuzz;
mod inline;
mod limits;
mod number;
mod reader;
mod request;
mod value;
mod writer;

pub use command::{
    AccessRequest, Authentication, COMMANDS, ClientRequest, ClientSelection, ClusterRequest, Command,
    CommandError, CommandRequest, Deadline, Expected, ExpiryRule, FieldBatch, FieldCondition, FieldMutation,
    FieldRange, Flag, Group, Hello, Keys, KeyspaceRequest, LatencyClass, Once, OwnCommand, PATTERN_BYTES_MAX,
    PREFIX_BYTES_MAX, Pairs, Part, RangeRequest, RingRequest, ScanRequest, SetAnswer, SetCondition,
    SetLifetime, SetRequest, Specification, TableVersion, Unit, WatchRequest, find, find_place,
};
pub use error::ProtocolError;
pub use limits::Limits;
pub use number::parse_integer;
pub use reader::ReplyParser;
pub use request::{Request, RequestParser, keys_ahead, write_request};
pub use value::Value;
pub use writer::{Protocol, ReplyWriter};
