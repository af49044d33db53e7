//! What a request asks for: commands of Redis that make sense on a map of sorted maps, understood but not
//! executed.
//!
//! A command is a row of [`COMMANDS`]: its name, how many arguments it takes, where its keys are, and the
//! function that reads them. Names, arguments and the texts of errors are those of Redis 7.0, and of Valkey
//! where Redis has nothing.

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
mod strings;
mod table;
mod watch;

pub use class::LatencyClass;
pub use connection::{Authentication, ClientRequest, Hello};
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
pub use strings::{SetAnswer, SetCondition, SetLifetime, SetRequest};
pub use table::{COMMANDS, Flag, Group, Keys, Specification};
pub use watch::{Expected, WatchRequest};

use crate::Request;

/// Keys or fields, and their values.
pub type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// What a request asks for. Bytes are slices of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    // The connection.
    /// `HELLO`: which version of the protocol, and perhaps who is there.
    Hello(Hello<'a>),
    /// `AUTH`.
    Auth(Authentication<'a>),
    /// `PING`, answered with the message if there is one.
    Ping(Option<&'a [u8]>),
    /// `ECHO`.
    Echo(&'a [u8]),
    /// `QUIT`: an answer, and the end of the connection.
    Quit,
    /// `RESET`: the connection as it was when it began.
    Reset,
    /// `SELECT`: another keyspace.
    Select(u32),
    /// `AT.KEYSPACE`.
    Keyspace(KeyspaceRequest<'a>),
    /// `CLIENT`.
    Client(ClientRequest<'a>),
    /// `ASKING`, `READONLY`, `READWRITE`: accepted, and without effect, since only primaries answer and no
    /// slot is ever half here.
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
    /// `DBSIZE`.
    DbSize,
    /// `FLUSHALL` and `FLUSHDB`.
    FlushAll,
    /// `SCAN`.
    Scan(ScanRequest<'a>),
    /// `AT.SCAN`: as `SCAN`, in the order of slots, up to the first one that this node does not have.
    ScanRun(ScanRequest<'a>),
    /// `TIME`.
    Time,
    /// `WAIT`: until so many copies have what this connection wrote, or so many milliseconds, 0 for ever.
    Wait {
        /// How many copies.
        copies: u64,
        /// Milliseconds.
        timeout: u64,
    },

    // Strings.
    /// `GET`.
    Get(&'a [u8]),
    /// `SET` and its kin.
    Set(SetRequest<'a>),
    /// `GETDEL`.
    GetDelete(&'a [u8]),
    /// `GETEX`: the value, and another lifetime for it.
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
        /// What is added.
        value: &'a [u8],
    },
    /// `STRLEN`.
    Length(&'a [u8]),
    /// `GETRANGE`: bytes from one place to another, both included, counted from the end if negative.
    GetRange {
        /// The key.
        key: &'a [u8],
        /// The first byte.
        start: i64,
        /// The last byte.
        end: i64,
    },
    /// `INCR`, `DECR`, `INCRBY`, `DECRBY`.
    Increment {
        /// The key.
        key: &'a [u8],
        /// By how much.
        by: i64,
    },
    /// `MGET`.
    GetMany(Vec<&'a [u8]>),
    /// `MSET`.
    SetMany(Pairs<'a>),

    // Keys.
    /// `DEL` and `UNLINK`.
    Delete(Vec<&'a [u8]>),
    /// `DELIFEQ`, and `DELEX` with `IFEQ`: delete what has this value.
    DeleteIfEqual {
        /// The key.
        key: &'a [u8],
        /// The value it must have.
        value: &'a [u8],
    },
    /// `EXISTS` and `TOUCH`: how many of the keys are there.
    Exists(Vec<&'a [u8]>),
    /// `EXPIRE` and its kin.
    Expire {
        /// The key.
        key: &'a [u8],
        /// When it is deleted.
        deadline: Deadline,
        /// Under which condition.
        rule: ExpiryRule,
    },
    /// `TTL` and its kin.
    Lifetime {
        /// The key.
        key: &'a [u8],
        /// In seconds or milliseconds.
        unit: Unit,
        /// Whether the date is asked for and not the rest.
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
        /// Whether `OK` is answered, and not how many fields are new.
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
        /// Whether fields are answered.
        fields: bool,
        /// Whether values are.
        values: bool,
    },
    /// `HINCRBY`.
    HashIncrement {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
        /// By how much.
        by: i64,
    },

    // The store contract.
    /// `AT.ID`: a write that is done once, however often it is asked for.
    Once(Once<'a>),
    /// `AT.CLASS`: says how long requests of this connection may take, or asks for that.
    Class(Option<LatencyClass>),
    /// `AT.WAIT` and `AT.WATCH`: until a field is as it has to be.
    Watch(WatchRequest<'a>),
    /// `AT.UNWATCH`: lets go of the watch of this connection that is called so.
    Unwatch(u64),
    /// What Redis does not have.
    Own(OwnCommand<'a>),
}

impl<'a> Command<'a> {
    /// Understands a request, which is not empty.
    ///
    /// # Errors
    /// [`CommandError`], in the words of Redis: nothing was done.
    pub fn of(request: &Request<'a>) -> Result<Self, CommandError> {
        let known = request.get(0).and_then(find);
        known.ok_or_else(|| CommandError::unknown(request))?.read(request)
    }
}

#[cfg(test)]
mod tests;
