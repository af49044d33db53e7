//! Commands on the server, the cluster, and all keys.

use super::arguments::{Arguments, is_word};
use super::error::told;
use super::{Command, CommandError, find};

/// `COMMAND` and its subcommands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandRequest<'a> {
    /// All commands, or `INFO` of some.
    Info(Option<Vec<&'a [u8]>>),
    /// `COUNT`.
    Count,
    /// `DOCS`, of some commands or of all.
    Docs(Vec<&'a [u8]>),
    /// `LIST`.
    List,
    /// `GETKEYS`, with the keys that were found.
    Keys(Vec<&'a [u8]>),
}

/// `ACL` and its subcommands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessRequest<'a> {
    /// `WHOAMI`.
    WhoAmI,
    /// `CAT`: all categories, or the commands of one.
    Categories(Option<&'a [u8]>),
    /// `USERS`: their names.
    Users,
    /// `LIST`: one line for each user.
    List,
    /// `GETUSER`: the details of one user.
    User(&'a [u8]),
    /// `LOAD`: reads the list of users again.
    Load,
}

/// `CLUSTER` and its subcommands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterRequest<'a> {
    /// `SLOTS`.
    Slots,
    /// `SHARDS`.
    Shards,
    /// `NODES`.
    Nodes,
    /// `INFO`.
    Info,
    /// `MYID`.
    MyId,
    /// `KEYSLOT`.
    KeySlot(&'a [u8]),
    /// `COUNTKEYSINSLOT`.
    CountKeys(u16),
    /// `GETKEYSINSLOT`.
    Keys {
        /// The slot.
        slot: u16,
        /// Most keys to return.
        count: u64,
    },
}

/// Longest pattern of keys or options, in bytes: comparing it with each of them takes as many steps as the
/// product of both lengths.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Longest pattern that is a prefix and a star: the longest key with a backslash before each byte, and the
/// star.
pub const PREFIX_BYTES_MAX: usize = 2 * (16 << 10) + 1;

/// Most patterns of options: each option is compared with all of them.
const PATTERNS_MAX: usize = 64;

/// Most commands that are described at once: the answer is some hundred times as long as their names.
const NAMES_MAX: usize = 1024;

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest<'a> {
    /// Where to continue; 0 to begin.
    pub cursor: u64,
    /// The pattern of the wanted keys; none for all.
    pub pattern: Option<&'a [u8]>,
    /// Roughly how many keys to look at.
    pub count: u64,
    /// The type of the wanted keys, if given.
    pub kind: Option<&'a [u8]>,
}

/// Keys that a scan looks at if the request does not say how many.
const SCAN_COUNT: u64 = 10;

/// The slots that clients of Redis know.
const SLOTS: i64 = 16384;

pub(super) fn access<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let part = arguments.next();
    let request = match part {
        word if is_word(word, "WHOAMI") => AccessRequest::WhoAmI,
        word if is_word(word, "CAT") => AccessRequest::Categories(arguments.optional()),
        word if is_word(word, "USERS") => AccessRequest::Users,
        word if is_word(word, "LIST") => AccessRequest::List,
        word if is_word(word, "GETUSER") && arguments.left() != 1 => {
            return Err(CommandError::Arity { name: "acl|getuser".to_owned() });
        }
        word if is_word(word, "GETUSER") => AccessRequest::User(arguments.next()),
        word if is_word(word, "LOAD") => AccessRequest::Load,
        _ => return Err(CommandError::UnknownPart { name: told(part), command: "ACL" }),
    };
    match arguments.left() {
        0 => Ok(Command::Access(request)),
        _ => Err(CommandError::Arity { name: "acl".to_owned() }),
    }
}

pub(super) fn command<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let request = match arguments.optional() {
        None => CommandRequest::Info(None),
        Some(word) if is_word(word, "INFO") => {
            let names = names(arguments)?;
            CommandRequest::Info((!names.is_empty()).then_some(names))
        }
        Some(word) if is_word(word, "COUNT") => CommandRequest::Count,
        Some(word) if is_word(word, "DOCS") => CommandRequest::Docs(names(arguments)?),
        Some(word) if is_word(word, "LIST") => CommandRequest::List,
        Some(word) if is_word(word, "GETKEYS") && arguments.left() < 2 => {
            return Err(CommandError::Arity { name: "command|getkeys".to_owned() });
        }
        Some(word) if is_word(word, "GETKEYS") => keys(arguments)?,
        Some(other) => return Err(CommandError::UnknownPart { name: told(other), command: "COMMAND" }),
    };
    Ok(Command::Command(request))
}

fn names<'a>(arguments: &mut Arguments<'a>) -> Result<Vec<&'a [u8]>, CommandError> {
    at_most(NAMES_MAX, "names of commands", arguments)
}

/// The remaining arguments, if there are no more than `most`.
fn at_most<'a>(
    most: usize,
    what: &'static str,
    arguments: &mut Arguments<'a>,
) -> Result<Vec<&'a [u8]>, CommandError> {
    let count = arguments.left();
    if count <= most { Ok(arguments.rest()) } else { Err(CommandError::TooMany { what, count, most }) }
}

fn keys<'a>(arguments: &mut Arguments<'a>) -> Result<CommandRequest<'a>, CommandError> {
    let request = arguments.request();
    let found = request.get(0).and_then(find).ok_or(CommandError::InvalidCommand)?;
    if !found.takes(request.len()) {
        return Err(CommandError::InvalidArity);
    }
    let places = found.keys_of(&request).places(request.len());
    let keys: Vec<&[u8]> = places.filter_map(|place| request.get(place)).collect();
    if keys.is_empty() { Err(CommandError::NoKeys) } else { Ok(CommandRequest::Keys(keys)) }
}

/// `CONFIG GET pattern...`; options cannot be set this way.
pub(super) fn config<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    match arguments.next() {
        word if is_word(word, "GET") && arguments.left() == 0 => {
            Err(CommandError::Arity { name: "config|get".to_owned() })
        }
        word if is_word(word, "GET") => {
            let patterns = at_most(PATTERNS_MAX, "patterns", arguments)?;
            patterns.into_iter().map(pattern).collect::<Result<_, _>>().map(Command::ConfigGet)
        }
        other => Err(CommandError::UnknownPart { name: told(other), command: "CONFIG" }),
    }
}

pub(super) fn info<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Info(arguments.rest()))
}

pub(super) fn cluster<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let part = arguments.next();
    let count = arguments.left();
    let takes = |wanted: usize, name: &str| {
        let name = format!("cluster|{name}");
        if count == wanted { Ok(()) } else { Err(CommandError::Arity { name }) }
    };
    let request = match part {
        word if is_word(word, "SLOTS") => takes(0, "slots").map(|()| ClusterRequest::Slots)?,
        word if is_word(word, "SHARDS") => takes(0, "shards").map(|()| ClusterRequest::Shards)?,
        word if is_word(word, "NODES") => takes(0, "nodes").map(|()| ClusterRequest::Nodes)?,
        word if is_word(word, "INFO") => takes(0, "info").map(|()| ClusterRequest::Info)?,
        word if is_word(word, "MYID") => takes(0, "myid").map(|()| ClusterRequest::MyId)?,
        word if is_word(word, "KEYSLOT") => {
            takes(1, "keyslot")?;
            ClusterRequest::KeySlot(arguments.next())
        }
        word if is_word(word, "COUNTKEYSINSLOT") => {
            takes(1, "countkeysinslot")?;
            let slot = arguments.integer()?;
            ClusterRequest::CountKeys(slot_of(slot).ok_or(CommandError::CountedSlot)?)
        }
        word if is_word(word, "GETKEYSINSLOT") => {
            takes(2, "getkeysinslot")?;
            let (slot, count) = (arguments.integer()?, arguments.integer()?);
            let known = slot_of(slot).zip(u64::try_from(count).ok());
            let (slot, count) = known.ok_or(CommandError::ListedSlot)?;
            ClusterRequest::Keys { slot, count }
        }
        other => return Err(CommandError::UnknownPart { name: told(other), command: "CLUSTER" }),
    };
    Ok(Command::Cluster(request))
}

pub(super) fn slot(arguments: &mut Arguments<'_>) -> Result<u16, CommandError> {
    let number = arguments.integer()?;
    slot_of(number).ok_or(CommandError::Slot)
}

fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|_| number < SLOTS)
}

pub(super) fn dbsize<'a>(_: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::DbSize)
}

/// `FLUSHALL [ASYNC|SYNC]`.
pub(super) fn flushall<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let mode = arguments.optional();
    let is_known = mode.is_none_or(|mode| is_word(mode, "ASYNC") || is_word(mode, "SYNC"));
    if is_known && arguments.left() == 0 { Ok(Command::FlushAll) } else { Err(CommandError::Syntax) }
}

pub(super) fn scan<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    scan_request(arguments).map(Command::Scan)
}

/// `AT.SCAN`, with the arguments of `SCAN`.
pub(super) fn scan_run<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    scan_request(arguments).map(Command::ScanRun)
}

fn scan_request<'a>(arguments: &mut Arguments<'a>) -> Result<ScanRequest<'a>, CommandError> {
    let cursor = std::str::from_utf8(arguments.next()).ok().and_then(|text| text.parse().ok());
    let cursor = cursor.ok_or(CommandError::Cursor)?;
    let mut request = ScanRequest { cursor, pattern: None, count: SCAN_COUNT, kind: None };
    while let Some(option) = arguments.optional() {
        match option {
            word if is_word(word, "COUNT") => {
                let count = crate::parse_integer(arguments.behind_word()?).ok_or(CommandError::Integer)?;
                let count = u64::try_from(count).ok().filter(|&count| count > 0);
                request.count = count.ok_or(CommandError::Syntax)?;
            }
            word if is_word(word, "MATCH") => request.pattern = Some(pattern(arguments.behind_word()?)?),
            word if is_word(word, "TYPE") => request.kind = Some(arguments.behind_word()?),
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok(request)
}

fn pattern(pattern: &[u8]) -> Result<&[u8], CommandError> {
    let bytes = pattern.len();
    let is_short = bytes <= PATTERN_BYTES_MAX || bytes <= PREFIX_BYTES_MAX && is_prefix(pattern);
    if is_short { Ok(pattern) } else { Err(CommandError::Pattern { bytes }) }
}

/// Whether a pattern has no star before its last byte, so that comparing a key takes a single pass.
fn is_prefix(pattern: &[u8]) -> bool {
    let mut left = pattern;
    while let [first, rest @ ..] = left {
        match first {
            b'\\' => left = rest.get(1..).unwrap_or_default(),
            b'*' => return rest.is_empty(),
            _ => left = rest,
        }
    }
    true
}

pub(super) fn time<'a>(_: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Time)
}

/// `WAIT copies milliseconds`.
pub(super) fn wait<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    // A negative number means none.
    let copies = u64::try_from(arguments.integer()?.max(0)).unwrap_or(0);
    let timeout = arguments.integer().map_err(|_| CommandError::TimeOut)?;
    let timeout = u64::try_from(timeout).map_err(|_| CommandError::NegativeTimeOut)?;
    Ok(Command::Wait { copies, timeout })
}
