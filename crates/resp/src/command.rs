//! Commands: those of Redis that make sense on a map of sorted maps, parsed but not executed.
//!
//! A command is a row of [`COMMANDS`]: its name, its number of arguments, the positions of its keys, and the
//! function that parses it. Names, arguments and error texts are those of Redis 7.0, and of Valkey where
//! Redis has nothing.

mod arguments;
mod class;
mod connection;
mod describe;
mod error;
mod expiry;
mod hashes;
mod keys;
mod keyspace;
mod names;
mod once;
mod own;
mod ring;
mod server;
mod slot_table;
mod strings;
mod table;
mod watch;

pub use class::LatencyClass;
pub use connection::{Authentication, ClientRequest, ClientSelection, Hello};
pub use error::CommandError;
pub use expiry::{Deadline, ExpiryRule, Unit};
pub use keyspace::KeyspaceRequest;
pub use names::{find, find_place};
pub use once::Once;
pub use own::{FieldBatch, FieldCondition, FieldMutation, FieldRange, OwnCommand, Part, RangeRequest};
pub use ring::RingRequest;
pub use server::{
    AccessRequest, ClusterRequest, CommandRequest, PATTERN_BYTES_MAX, PREFIX_BYTES_MAX, ScanRequest,
};
pub use slot_table::TableVersion;
pub use strings::{SetAnswer, SetCondition, SetLifetime, SetRequest};
pub use table::{COMMANDS, Flag, Group, Keys, Specification};
pub use watch::{Expected, WatchRequest};

use crate::Request;

/// Keys or fields with their values.
pub type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// A parsed command. Bytes are slices of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    // The connection.
    /// `HELLO`: the protocol version, optionally with credentials.
    Hello(Hello<'a>),
    /// `AUTH`.
    Auth(Authentication<'a>),
    /// `PING`, answered with the message if there is one.
    Ping(Option<&'a [u8]>),
    /// `ECHO`.
    Echo(&'a [u8]),
    /// `QUIT`: answers, then ends the connection.
    Quit,
    /// `RESET`: restores the initial state of the connection.
    Reset,
    /// `SELECT`: switches to another keyspace.
    Select(u32),
    /// `AT.KEYSPACE`.
    Keyspace(KeyspaceRequest<'a>),
    /// `CLIENT`.
    Client(ClientRequest<'a>),
    /// `ASKING`, `READONLY`, `READWRITE`: accepted without effect, because only primaries answer and a slot
    /// is never split between nodes.
    Accepted,

    // The server.
    /// `COMMAND`.
    Command(CommandRequest<'a>),
    /// `CONFIG GET`, with the patterns.
    ConfigGet(Vec<&'a [u8]>),
    /// `INFO`, with the sections; all of them if none is named.
    Info(Vec<&'a [u8]>),
    /// `ACL`.
    Access(AccessRequest<'a>),
    /// `CLUSTER`.
    Cluster(ClusterRequest<'a>),
    /// `AT.RING`.
    Ring(RingRequest),
    /// `AT.TABLE`, with the version that the client knows.
    SlotTable(Option<TableVersion<'a>>),
    /// `DBSIZE`.
    DbSize,
    /// `FLUSHALL` and `FLUSHDB`.
    FlushAll,
    /// `SCAN`.
    Scan(ScanRequest<'a>),
    /// `AT.SCAN`: like `SCAN`, in the order of slots, up to the first slot that this node does not have.
    ScanRun(ScanRequest<'a>),
    /// `TIME`.
    Time,
    /// `WAIT`: waits until this many copies have this connection's writes, or this many milliseconds; 0 waits
    /// for ever.
    Wait {
        /// How many copies.
        copies: u64,
        /// The timeout in milliseconds.
        timeout: u64,
    },

    // Strings.
    /// `GET`.
    Get(&'a [u8]),
    /// `SET` and its variants.
    Set(SetRequest<'a>),
    /// `GETDEL`.
    GetDelete(&'a [u8]),
    /// `GETEX`: returns the value and changes its lifetime.
    GetExpire {
        /// The key.
        key: &'a [u8],
        /// The lifetime.
        lifetime: SetLifetime,
    },
    /// `APPEND`.
    Append {
        /// The key.
        key: &'a [u8],
        /// The bytes to append.
        value: &'a [u8],
    },
    /// `STRLEN`.
    Length(&'a [u8]),
    /// `GETRANGE`: bytes from one offset to another, inclusive; negative offsets count from the end.
    GetRange {
        /// The key.
        key: &'a [u8],
        /// The offset of the first byte.
        start: i64,
        /// The offset of the last byte.
        end: i64,
    },
    /// `INCR`, `DECR`, `INCRBY`, `DECRBY`.
    Increment {
        /// The key.
        key: &'a [u8],
        /// The increment.
        by: i64,
    },
    /// `MGET`.
    GetMany(Vec<&'a [u8]>),
    /// `MSET`.
    SetMany(Pairs<'a>),

    // Keys.
    /// `DEL` and `UNLINK`.
    Delete(Vec<&'a [u8]>),
    /// `DELIFEQ`, and `DELEX` with `IFEQ`: deletes a key that has this value.
    DeleteIfEqual {
        /// The key.
        key: &'a [u8],
        /// The value that it must have.
        value: &'a [u8],
    },
    /// `EXISTS` and `TOUCH`: counts the keys that exist.
    Exists(Vec<&'a [u8]>),
    /// `EXPIRE` and its variants.
    Expire {
        /// The key.
        key: &'a [u8],
        /// When the key is deleted.
        deadline: Deadline,
        /// The condition.
        rule: ExpiryRule,
    },
    /// `TTL` and its variants.
    Lifetime {
        /// The key.
        key: &'a [u8],
        /// The unit of the answer.
        unit: Unit,
        /// Whether to answer the deadline and not the remaining time.
        is_absolute: bool,
    },
    /// `PERSIST`.
    Persist(&'a [u8]),
    /// `TYPE`.
    Type(&'a [u8]),

    // Hashes.
    /// `HSET` and `HMSET`.
    HashSet {
        /// The key.
        key: &'a [u8],
        /// Fields and their values.
        pairs: Pairs<'a>,
        /// Whether to answer `OK` and not the number of new fields.
        says_ok: bool,
    },
    /// `HSETNX`.
    HashSetAbsent {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// `HGET`.
    HashGet {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
    },
    /// `HMGET`.
    HashGetMany {
        /// The key.
        key: &'a [u8],
        /// The fields.
        fields: Vec<&'a [u8]>,
    },
    /// `HDEL`.
    HashDelete {
        /// The key.
        key: &'a [u8],
        /// The fields.
        fields: Vec<&'a [u8]>,
    },
    /// `HEXISTS`.
    HashExists {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
    },
    /// `HLEN`.
    HashCount(&'a [u8]),
    /// `HSTRLEN`.
    HashLength {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
    },
    /// `HGETALL`, `HKEYS` and `HVALS`.
    HashAll {
        /// The key.
        key: &'a [u8],
        /// Whether to answer fields.
        fields: bool,
        /// Whether to answer values.
        values: bool,
    },
    /// `HINCRBY`.
    HashIncrement {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
        /// The increment.
        by: i64,
    },

    // The store contract.
    /// `AT.ID`: a write that is done once, however often it is repeated.
    Once(Once<'a>),
    /// `AT.CLASS`: sets the latency class of this connection, or asks for it.
    Class(Option<LatencyClass>),
    /// `AT.WAIT` and `AT.WATCH`: wait until a field, or the string at a key, has an expected value.
    Watch(WatchRequest<'a>),
    /// `AT.UNWATCH`: cancels the watch of this connection with this id.
    Unwatch(u64),
    /// Commands that Redis does not have.
    Own(OwnCommand<'a>),
}

impl<'a> Command<'a> {
    /// Parses a request, which must not be empty.
    ///
    /// # Errors
    /// [`CommandError`], in the words of Redis: nothing was done.
    pub fn of(request: &Request<'a>) -> Result<Self, CommandError> {
        let known = request.get(0).and_then(find);
        known.ok_or_else(|| CommandError::unknown(request))?.read(request)
    }

    /// Whether this one only reads, although commands of its name may write.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::GetExpire { lifetime: SetLifetime::Kept, .. })
    }
}

#[cfg(test)]
mod tests;
