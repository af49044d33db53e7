//! Commands about the connection itself.

use super::arguments::{Arguments, is_word};
use super::error::told;
use super::{Command, CommandError};
use crate::Protocol;

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The protocol version from here on; none keeps the current one.
    pub protocol: Option<Protocol>,
    /// The credentials, if given.
    pub authentication: Option<Authentication<'a>>,
    /// The name of the connection.
    pub name: Option<&'a [u8]>,
}

/// Credentials. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Authentication<'a> {
    /// The user; none for the default user.
    pub user: Option<&'a [u8]>,
    /// The password.
    pub password: &'a [u8],
}

impl std::fmt::Debug for Authentication<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authentication")
            .field("user", &self.user.map(<[u8]>::escape_ascii))
            .finish_non_exhaustive()
    }
}

/// `CLIENT` and its subcommands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientRequest<'a> {
    /// `ID`.
    Id,
    /// `GETNAME`.
    GetName,
    /// `SETNAME`.
    SetName(&'a [u8]),
    /// `SETINFO LIB-NAME`.
    LibraryName(&'a [u8]),
    /// `SETINFO LIB-VER`.
    LibraryVersion(&'a [u8]),
    /// `INFO`: this connection.
    Info,
    /// `LIST`.
    List(ClientSelection),
    /// `NO-EVICT` and `NO-TOUCH`: accepted, and without effect.
    Accepted,
}

/// Which connections a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSelection {
    /// All of them.
    All,
    /// Those with these ids, which are in order, each once.
    Ids(Vec<u64>),
}

impl ClientSelection {
    /// Whether the connection with this id is shown.
    #[must_use]
    pub fn shows(&self, id: u64) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.binary_search(&id).is_ok(),
        }
    }
}

pub(super) fn hello<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let mut hello = Hello::default();
    if let Some(version) = arguments.optional() {
        hello.protocol = Some(match crate::parse_integer(version).ok_or(CommandError::NoProtocol)? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(CommandError::Protocol),
        });
    }
    while let Some(option) = arguments.optional() {
        match option {
            word if is_word(word, "AUTH") && arguments.left() >= 2 => {
                let (user, password) = (Some(arguments.next()), arguments.next());
                hello.authentication = Some(Authentication { user, password });
            }
            word if is_word(word, "SETNAME") && arguments.left() >= 1 => {
                hello.name = Some(plain(arguments.next(), "Client names")?);
            }
            other => return Err(CommandError::HelloOption(told(other))),
        }
    }
    Ok(Command::Hello(hello))
}

/// `AUTH [user] password`.
pub(super) fn auth<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    match arguments.rest().as_slice() {
        [password] => Ok(Command::Auth(Authentication { user: None, password })),
        [user, password] => Ok(Command::Auth(Authentication { user: Some(user), password })),
        _ => Err(CommandError::Syntax),
    }
}

pub(super) fn ping<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let message = arguments.optional();
    if arguments.left() > 0 {
        return Err(CommandError::Arity { name: "ping".to_owned() });
    }
    Ok(Command::Ping(message))
}

pub(super) fn echo<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Echo(arguments.next()))
}

pub(super) fn quit<'a>(_: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Quit)
}

pub(super) fn reset<'a>(_: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Reset)
}

/// How many keyspaces there can be.
const KEYSPACES_MAX: i64 = 16;

pub(super) fn select<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let index = arguments.integer()?;
    let index = u32::try_from(index).ok().filter(|&index| i64::from(index) < KEYSPACES_MAX);
    index.map(Command::Select).ok_or(CommandError::KeyspaceRange)
}

pub(super) fn accepted<'a>(_: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Accepted)
}

pub(super) fn client<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let part = arguments.next();
    let count = arguments.left();
    let takes = |wanted: usize, name: &str| {
        let name = format!("client|{name}");
        if count == wanted { Ok(()) } else { Err(CommandError::Arity { name }) }
    };
    let request = match part {
        word if is_word(word, "ID") => takes(0, "id").map(|()| ClientRequest::Id)?,
        word if is_word(word, "GETNAME") => takes(0, "getname").map(|()| ClientRequest::GetName)?,
        word if is_word(word, "SETNAME") => {
            takes(1, "setname")?;
            ClientRequest::SetName(plain(arguments.next(), "Client names")?)
        }
        word if is_word(word, "SETINFO") => {
            takes(2, "setinfo")?;
            information(arguments)?
        }
        word if is_word(word, "INFO") => takes(0, "info").map(|()| ClientRequest::Info)?,
        word if is_word(word, "LIST") => ClientRequest::List(selection(arguments)?),
        word if is_word(word, "NO-EVICT") => takes(1, "no-evict").and_then(|()| switch(arguments))?,
        word if is_word(word, "NO-TOUCH") => takes(1, "no-touch").and_then(|()| switch(arguments))?,
        other => return Err(CommandError::UnknownPart { name: told(other), command: "CLIENT" }),
    };
    Ok(Command::Client(request))
}

/// `[TYPE type | ID id ...]`.
fn selection(arguments: &mut Arguments<'_>) -> Result<ClientSelection, CommandError> {
    let Some(option) = arguments.optional() else { return Ok(ClientSelection::All) };
    match arguments.left() {
        1 if is_word(option, "TYPE") => {
            let wanted = arguments.next();
            let is = |kind: &str| is_word(wanted, kind);
            match wanted {
                _ if is("NORMAL") => Ok(ClientSelection::All),
                // No connection of a client is one of these.
                _ if ["MASTER", "SLAVE", "REPLICA", "PUBSUB"].into_iter().any(is) => {
                    Ok(ClientSelection::Ids(Vec::new()))
                }
                other => Err(CommandError::ClientKind(told(other))),
            }
        }
        1.. if is_word(option, "ID") => {
            let id = |text| crate::parse_integer(text).ok_or(CommandError::ClientId);
            let ids = arguments.rest().into_iter().map(id).collect::<Result<Vec<i64>, _>>()?;
            let mut ids: Vec<u64> = ids.into_iter().filter_map(|id| u64::try_from(id).ok()).collect();
            ids.sort_unstable();
            ids.dedup();
            Ok(ClientSelection::Ids(ids))
        }
        _ => Err(CommandError::Syntax),
    }
}

/// `ON` or `OFF`, without effect.
fn switch<'a>(arguments: &mut Arguments<'_>) -> Result<ClientRequest<'a>, CommandError> {
    let word = arguments.next();
    let is_known = is_word(word, "ON") || is_word(word, "OFF");
    if is_known { Ok(ClientRequest::Accepted) } else { Err(CommandError::Syntax) }
}

fn information<'a>(arguments: &mut Arguments<'a>) -> Result<ClientRequest<'a>, CommandError> {
    match arguments.next() {
        word if is_word(word, "LIB-NAME") => {
            Ok(ClientRequest::LibraryName(plain(arguments.next(), "lib-name")?))
        }
        word if is_word(word, "LIB-VER") => {
            Ok(ClientRequest::LibraryVersion(plain(arguments.next(), "lib-ver")?))
        }
        other => Err(CommandError::ClientAttribute(told(other))),
    }
}

/// Lists of clients show each name on one line.
fn plain<'a>(name: &'a [u8], what: &'static str) -> Result<&'a [u8], CommandError> {
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if is_plain { Ok(name) } else { Err(CommandError::ClientText { what }) }
}
