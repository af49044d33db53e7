//! The table of all commands: their description for clients, and how their arguments are parsed.

use super::arguments::Arguments;
use super::{
    Command, CommandError, OwnCommand, class, connection, expiry, find, hashes, keys, keyspace, once, own,
    ring, server, slot_table, strings, watch,
};
use crate::Request;

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Specification {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its number of arguments, including the name; the minimum, if negative.
    pub arity: i32,
    /// Its effect on keys and servers.
    pub flags: &'static [Flag],
    /// The positions of its keys.
    pub keys: Keys,
    /// Its subject.
    pub group: Group,
    /// Its effect, in a sentence.
    pub summary: &'static str,
    pub(super) read: Read,
}

pub(super) type Read = for<'a> fn(&mut Arguments<'a>) -> Result<Command<'a>, CommandError>;

/// The effect of a command on keys and servers, in the terms of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// It changes nothing.
    ReadOnly,
    /// It may change something.
    Write,
    /// It may need more memory.
    DenyOom,
    /// Its time does not depend on the number of keys.
    Fast,
    /// It may wait.
    Blocking,
    /// It is for operators of the server.
    Admin,
    /// It is permitted before authentication.
    NoAuth,
    /// It works while the server is loading.
    Loading,
}

impl Flag {
    /// Its name, as clients know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "readonly",
            Self::Write => "write",
            Self::DenyOom => "denyoom",
            Self::Fast => "fast",
            Self::Blocking => "blocking",
            Self::Admin => "admin",
            Self::NoAuth => "no_auth",
            Self::Loading => "loading",
        }
    }
}

/// The positions of a command's keys among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The position of the first key; 0 for none.
    pub first: u8,
    /// The position of the last key; counted from the end if negative.
    pub last: i8,
    /// The distance from one key to the next.
    pub step: u8,
}

impl Keys {
    pub(super) const NONE: Self = Self { first: 0, last: 0, step: 0 };
    const ONE: Self = Self { first: 1, last: 1, step: 1 };
    const SECOND: Self = Self { first: 2, last: 2, step: 1 };
    const THIRD: Self = Self { first: 3, last: 3, step: 1 };
    const ALL: Self = Self { first: 1, last: -1, step: 1 };
    const PAIRS: Self = Self { first: 1, last: -1, step: 2 };
    /// The key of a command that follows four other arguments, if it is a typical one with one key as its
    /// first argument.
    pub(super) const OF_INNER: Self = Self { first: 5, last: 5, step: 1 };

    /// The same keys, for a command that follows this many arguments.
    fn behind(self, arguments: u8) -> Self {
        let last = if self.last < 0 { self.last } else { self.last.saturating_add_unsigned(arguments) };
        Self { first: self.first.saturating_add(arguments), last, ..self }
    }

    /// The positions of the keys in a request of this many arguments, including the name.
    pub fn places(self, arguments: usize) -> impl Iterator<Item = usize> {
        let last = match usize::try_from(self.last) {
            Ok(last) => last,
            Err(_) => arguments.saturating_sub(usize::from(self.last.unsigned_abs())),
        };
        let first = usize::from(self.first);
        let end = if first == 0 { 0 } else { last.min(arguments.saturating_sub(1)) + 1 };
        (first..end).step_by(usize::from(self.step.max(1)))
    }
}

/// The subject of a command, in the terms of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The connection.
    Connection,
    /// The server.
    Server,
    /// The cluster.
    Cluster,
    /// Keys of any type.
    Generic,
    /// The string at a key.
    String,
    /// Fields of a key.
    Hash,
}

impl Group {
    /// Its name, as clients know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Cluster => "cluster",
            Self::Generic => "generic",
            Self::String => "string",
            Self::Hash => "hash",
        }
    }
}

impl Specification {
    /// Parses a request for this command.
    ///
    /// # Errors
    /// As [`Command::of`].
    pub fn read<'a>(&self, request: &Request<'a>) -> Result<Command<'a>, CommandError> {
        if !self.takes(request.len()) {
            return Err(CommandError::Arity { name: self.name.to_owned() });
        }
        let mut arguments = Arguments::of(*request);
        arguments.next();
        (self.read)(&mut arguments)
    }

    /// Whether it takes this many arguments, including the name.
    #[must_use]
    pub fn takes(&self, arguments: usize) -> bool {
        let count = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= count } else { arguments == count }
    }

    /// The positions of the keys in a request for this command.
    #[must_use]
    pub fn keys_of(&self, request: &Request<'_>) -> Keys {
        if self.keys != Keys::OF_INNER {
            return self.keys;
        }
        let inner = request.get(once::ARGUMENTS_BEFORE.into()).and_then(find);
        inner.map_or(self.keys, |inner| inner.keys.behind(once::ARGUMENTS_BEFORE))
    }

    /// The name of the command that a request for this one executes under a name of its own.
    #[must_use]
    pub fn inner<'a>(&self, request: &Request<'a>) -> Option<&'a [u8]> {
        (self.keys == Keys::OF_INNER).then(|| request.get(once::ARGUMENTS_BEFORE.into()))?
    }

    /// Whether a parsed request for this command may need space when there is none: one that only deletes
    /// does not, however it is written.
    #[must_use]
    pub fn adds(&self, request: &Request<'_>, command: &Command<'_>) -> bool {
        match command {
            Command::Once(once) => {
                let inner = self.inner(request).and_then(find);
                inner.is_none_or(|inner| inner.adds(request, &once.command))
            }
            Command::Own(OwnCommand::Batch(batch)) => batch.adds(),
            _ => self.flags.contains(&Flag::DenyOom),
        }
    }

    /// Whether it may change anything.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags.contains(&Flag::Write)
    }
}

const fn row(
    name: &'static str,
    arity: i32,
    flags: &'static [Flag],
    keys: Keys,
    group: Group,
    summary: &'static str,
    read: Read,
) -> Specification {
    Specification { name, arity, flags, keys, group, summary, read }
}

const READ: &[Flag] = &[Flag::ReadOnly, Flag::Fast];
const READ_ALL: &[Flag] = &[Flag::ReadOnly];
const WAIT: &[Flag] = &[Flag::ReadOnly, Flag::Blocking];
const SET: &[Flag] = &[Flag::Write, Flag::DenyOom];
const SET_FAST: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::Fast];
const CHANGE: &[Flag] = &[Flag::Write, Flag::Fast];
const REMOVE: &[Flag] = &[Flag::Write];
const ADMIN: &[Flag] = &[Flag::Admin];
const ANYBODY: &[Flag] = &[Flag::Fast, Flag::NoAuth, Flag::Loading];
const FAST: &[Flag] = &[Flag::Fast];
const ALWAYS: &[Flag] = &[Flag::Fast, Flag::Loading];

/// All commands, sorted by name.
#[rustfmt::skip]
pub const COMMANDS: &[Specification] = &[
    row("acl", -2, &[Flag::Loading], Keys::NONE, Group::Server, "Lists users, and reloads their list.", server::access),
    row("append", 3, SET_FAST, Keys::ONE, Group::String, "Appends bytes to a value.", strings::append),
    row("asking", 1, ALWAYS, Keys::NONE, Group::Cluster, "Accepted without effect: slots are never split between nodes.", connection::accepted),
    row("at.batch", -2, SET, Keys::ONE, Group::Hash, "Changes fields atomically, if conditions hold.", own::own),
    row("at.class", -1, ALWAYS, Keys::NONE, Group::Connection, "Sets how long requests of this connection may take.", class::class),
    row("at.expire", -3, CHANGE, Keys::PAIRS, Group::Generic, "Deletes keys that have these deadlines.", own::own),
    row("at.get", -3, READ, Keys::ONE, Group::Hash, "Returns the value of a field, or some of its bytes.", own::own),
    row("at.id", -6, SET, Keys::OF_INNER, Group::Generic, "Executes a write once, however often it is sent.", once::once),
    row("at.keyspace", -2, FAST, Keys::NONE, Group::Connection, "Creates, lists and selects keyspaces.", keyspace::keyspace),
    row("at.range", -4, READ_ALL, Keys::ONE, Group::Hash, "Returns a page of fields in order.", own::own),
    row("at.ring", -2, ADMIN, Keys::NONE, Group::Cluster, "Describes the ring, and makes nodes leave it.", ring::ring),
    row("at.scan", -2, READ_ALL, Keys::NONE, Group::Generic, "Iterates over the keys of adjacent slots.", server::scan_run),
    row("at.table", -1, READ_ALL, Keys::NONE, Group::Cluster, "Returns which node has which slots, unless the client knows.", slot_table::slot_table),
    row("at.unwatch", 2, FAST, Keys::NONE, Group::Hash, "Cancels a watch.", watch::unwatch),
    row("at.wait", -5, WAIT, Keys::SECOND, Group::Hash, "Waits until a field or string has the expected value.", watch::wait),
    row("at.watch", -6, WAIT, Keys::THIRD, Group::Hash, "Reports when a field or string has the expected value.", watch::watch),
    row("auth", -2, ANYBODY, Keys::NONE, Group::Connection, "Authenticates the connection.", connection::auth),
    row("client", -2, ALWAYS, Keys::NONE, Group::Connection, "Names this connection, and lists all connections.", connection::client),
    row("cluster", -2, READ_ALL, Keys::NONE, Group::Cluster, "Describes which node has which slots.", server::cluster),
    row("command", -1, &[Flag::ReadOnly, Flag::Loading], Keys::NONE, Group::Server, "Describes commands.", server::command),
    row("config", -2, &[Flag::Admin, Flag::Loading], Keys::NONE, Group::Server, "Returns options.", server::config),
    row("dbsize", 1, READ, Keys::NONE, Group::Server, "Counts the keys on this node.", server::dbsize),
    row("decr", 2, SET_FAST, Keys::ONE, Group::String, "Decrements a number by one.", strings::decr),
    row("decrby", 3, SET_FAST, Keys::ONE, Group::String, "Decrements a number by the given amount.", strings::decrby),
    row("del", -2, REMOVE, Keys::ALL, Group::Generic, "Deletes keys.", keys::del),
    row("delex", -2, CHANGE, Keys::ONE, Group::String, "Deletes a key if it has this value.", keys::delex),
    row("delifeq", 3, CHANGE, Keys::ONE, Group::String, "Deletes a key if it has this value.", keys::delifeq),
    row("echo", 2, ALWAYS, Keys::NONE, Group::Connection, "Returns its argument.", connection::echo),
    row("exists", -2, READ, Keys::ALL, Group::Generic, "Counts how many of these keys exist.", keys::exists),
    row("expire", -3, CHANGE, Keys::ONE, Group::Generic, "Deletes a key after some seconds.", expiry::seconds),
    row("expireat", -3, CHANGE, Keys::ONE, Group::Generic, "Deletes a key at a date, in seconds.", expiry::at_seconds),
    row("expiretime", 2, READ, Keys::ONE, Group::Generic, "Returns the date at which a key is deleted, in seconds.", expiry::expiretime),
    row("flushall", -1, REMOVE, Keys::NONE, Group::Server, "Deletes all keys.", server::flushall),
    row("flushdb", -1, REMOVE, Keys::NONE, Group::Server, "Deletes all keys of the keyspace.", server::flushall),
    row("get", 2, READ, Keys::ONE, Group::String, "Returns the value of a key.", strings::get),
    row("getdel", 2, CHANGE, Keys::ONE, Group::String, "Returns the value of a key, and deletes the key.", strings::getdel),
    row("getex", -2, CHANGE, Keys::ONE, Group::String, "Returns the value of a key, and changes its lifetime.", strings::getex),
    row("getrange", 4, READ_ALL, Keys::ONE, Group::String, "Returns a part of a value.", strings::getrange),
    row("getset", 3, SET_FAST, Keys::ONE, Group::String, "Sets a key, and returns its former value.", strings::getset),
    row("hdel", -3, CHANGE, Keys::ONE, Group::Hash, "Deletes fields.", hashes::hdel),
    row("hello", -1, ANYBODY, Keys::NONE, Group::Connection, "Negotiates the version of the protocol.", connection::hello),
    row("hexists", 3, READ, Keys::ONE, Group::Hash, "Checks whether a field exists.", hashes::hexists),
    row("hget", 3, READ, Keys::ONE, Group::Hash, "Returns the value of a field.", hashes::hget),
    row("hgetall", 2, READ_ALL, Keys::ONE, Group::Hash, "Returns all fields and their values.", hashes::hgetall),
    row("hincrby", 4, SET_FAST, Keys::ONE, Group::Hash, "Increments the number in a field.", hashes::hincrby),
    row("hkeys", 2, READ_ALL, Keys::ONE, Group::Hash, "Returns all fields.", hashes::hkeys),
    row("hlen", 2, READ, Keys::ONE, Group::Hash, "Counts the fields.", hashes::hlen),
    row("hmget", -3, READ, Keys::ONE, Group::Hash, "Returns the values of fields.", hashes::hmget),
    row("hmset", -4, SET_FAST, Keys::ONE, Group::Hash, "Sets fields.", hashes::hmset),
    row("hset", -4, SET_FAST, Keys::ONE, Group::Hash, "Sets fields, and counts the new ones.", hashes::hset),
    row("hsetnx", 4, SET_FAST, Keys::ONE, Group::Hash, "Sets a field unless it exists.", hashes::hsetnx),
    row("hstrlen", 3, READ, Keys::ONE, Group::Hash, "Returns the length of the value of a field.", hashes::hstrlen),
    row("hvals", 2, READ_ALL, Keys::ONE, Group::Hash, "Returns the values of all fields.", hashes::hvals),
    row("incr", 2, SET_FAST, Keys::ONE, Group::String, "Increments a number by one.", strings::incr),
    row("incrby", 3, SET_FAST, Keys::ONE, Group::String, "Increments a number by the given amount.", strings::incrby),
    row("info", -1, &[Flag::ReadOnly, Flag::Loading], Keys::NONE, Group::Server, "Describes the server.", server::info),
    row("mget", -2, READ, Keys::ALL, Group::String, "Returns the values of keys, all of one slot.", strings::mget),
    row("mset", -3, SET, Keys::PAIRS, Group::String, "Sets keys, all of one slot, atomically.", strings::mset),
    row("persist", 2, CHANGE, Keys::ONE, Group::Generic, "Removes the lifetime of a key.", expiry::persist),
    row("pexpire", -3, CHANGE, Keys::ONE, Group::Generic, "Deletes a key after some milliseconds.", expiry::milliseconds),
    row("pexpireat", -3, CHANGE, Keys::ONE, Group::Generic, "Deletes a key at a date, in milliseconds.", expiry::at_milliseconds),
    row("pexpiretime", 2, READ, Keys::ONE, Group::Generic, "Returns the date at which a key is deleted, in milliseconds.", expiry::pexpiretime),
    row("ping", -1, ALWAYS, Keys::NONE, Group::Connection, "Answers PONG.", connection::ping),
    row("psetex", 4, SET, Keys::ONE, Group::String, "Sets a key that is deleted after some milliseconds.", strings::psetex),
    row("pttl", 2, READ, Keys::ONE, Group::Generic, "Returns the remaining lifetime of a key, in milliseconds.", expiry::pttl),
    row("quit", -1, ANYBODY, Keys::NONE, Group::Connection, "Ends the connection.", connection::quit),
    row("readonly", 1, ALWAYS, Keys::NONE, Group::Cluster, "Accepted without effect: only primaries answer.", connection::accepted),
    row("readwrite", 1, ALWAYS, Keys::NONE, Group::Cluster, "Accepted without effect: only primaries answer.", connection::accepted),
    row("reset", 1, ANYBODY, Keys::NONE, Group::Connection, "Returns the connection to its initial state.", connection::reset),
    row("scan", -2, READ_ALL, Keys::NONE, Group::Generic, "Iterates over the keys of this node.", server::scan),
    row("select", 2, FAST, Keys::NONE, Group::Connection, "Selects a keyspace.", connection::select),
    row("set", -3, SET, Keys::ONE, Group::String, "Sets a key.", strings::set),
    row("setex", 4, SET, Keys::ONE, Group::String, "Sets a key that is deleted after some seconds.", strings::setex),
    row("setnx", 3, SET_FAST, Keys::ONE, Group::String, "Sets a key unless it exists.", strings::setnx),
    row("strlen", 2, READ, Keys::ONE, Group::String, "Returns the length of a value.", strings::strlen),
    row("time", 1, FAST, Keys::NONE, Group::Server, "Returns the date, by the clock of this node.", server::time),
    row("touch", -2, READ, Keys::ALL, Group::Generic, "Counts how many of these keys exist.", keys::exists),
    row("ttl", 2, READ, Keys::ONE, Group::Generic, "Returns the remaining lifetime of a key, in seconds.", expiry::ttl),
    row("type", 2, READ, Keys::ONE, Group::Generic, "Returns the type of a key.", keys::kind),
    row("unlink", -2, CHANGE, Keys::ALL, Group::Generic, "Deletes keys.", keys::del),
    row("wait", 3, &[Flag::Blocking], Keys::NONE, Group::Generic, "Waits until copies have the earlier writes.", server::wait),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_no_command_both_reads_only_and_writes() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for row in COMMANDS {
            assert!(!(row.flags.contains(&Flag::ReadOnly) && row.is_write()), "{}", row.name);
        }
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let places = |name: &str, arguments| {
            find(name.as_bytes())
                .map(|row| row.keys.places(arguments).collect::<Vec<_>>())
                .unwrap_or_default()
        };
        assert_eq!(places("get", 2), [1]);
        assert_eq!(places("mget", 4), [1, 2, 3]);
        assert_eq!(places("mset", 5), [1, 3]);
        assert_eq!(places("hset", 6), [1]);
        assert_eq!(places("ping", 2), [0; 0]);
        // AT.WAIT ms key AS STRING EQ value, and AT.WATCH with an id.
        assert_eq!(places("at.wait", 7), [2]);
        assert_eq!(places("at.watch", 8), [3]);
    }
}
