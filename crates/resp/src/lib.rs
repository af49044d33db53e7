//! The Redis serialization protocol, RESP2 and RESP3: bytes in, requests or replies or a typed error out; no
//! I/O.
//!
//! What a request asks for, [`Command`] understands, with the names and errors of Redis; to do it is for
//! others.
//!
//! A server reads with [`RequestParser`] and answers with [`ReplyWriter`]; a client asks with
//! [`write_request`] and reads with [`ReplyParser`]. Arguments of a request are slices of what arrived:
//! nothing is copied before somebody keeps it.
//!
//! Source: the protocol's specification (redis.io, "Redis serialization protocol specification"); what it
//! leaves open is as Redis 7.0 does it, texts of errors as well, for clients look at them.
//!
//! Invariant: bytes from a peer never cause a panic, nor memory beyond the stated [`Limits`]: what is claimed
//! is not allocated before it has arrived.
//! Invariant: the same bytes give the same answers however they are cut into pieces.

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
    AccessRequest, Authentication, COMMANDS, ClientRequest, ClusterRequest, Command, CommandError,
    CommandRequest, Deadline, Expected, ExpiryRule, FieldBatch, FieldCondition, FieldMutation, FieldRange,
    Flag, Group, Hello, Keys, KeyspaceRequest, LatencyClass, Once, OwnCommand, PATTERN_BYTES_MAX,
    PREFIX_BYTES_MAX, Pairs, Part, RangeRequest, RingRequest, ScanRequest, SetAnswer, SetCondition,
    SetLifetime, SetRequest, Specification, Unit, WatchRequest, find, find_place,
};
pub use error::ProtocolError;
pub use limits::Limits;
pub use number::parse_integer;
pub use reader::ReplyParser;
pub use request::{Request, RequestParser, keys_ahead, write_request};
pub use value::Value;
pub use writer::{Protocol, ReplyWriter};
