//! Store URLs: a bare path, `file:PATH?key=value`, `mem:`, `cassandra://HOST/KEYSPACE` and
//! `ring://HOST:PORT/KEYSPACE`.
//!
//! A bare path is taken as it is, byte for byte. After `file:` the path is percent-decoded, and a query may
//! follow: `mode=read|write|salvage`, `create=true|false`, `memory=SIZE`, `checkpoint=SIZE`, `keep=DURATION`.
//!
//! Invariant: parsing is total; every text gives a location or a typed error with a hint.

use crate::cassandra::CassandraUrl;
use crate::query::{self, percent_decoded};
use crate::ring::RingUrl;
use crate::{Mode, OpenOptions};
use atoll_errors::nearest;
use atoll_options::{OptionValue, Size, ValueError};
use atoll_store::StoreError;
use std::path::PathBuf;
use std::time::Duration;

/// A parsed store URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    /// Which store.
    pub location: Location,
    query: Vec<Setting>,
}

/// Which store a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Folder(PathBuf),
    /// The memory of this process.
    Memory,
    /// A keyspace of a Cassandra cluster.
    Cassandra(Box<CassandraUrl>),
    /// A ring of nodes.
    Ring(Box<RingUrl>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Setting {
    Mode(Mode),
    Create(bool),
    Memory(Size),
    Checkpoint(Size),
    Keep(Duration),
}

const KEYS: [&str; 5] = ["mode", "create", "memory", "checkpoint", "keep"];
const SCHEMES: [&str; 4] = ["file", "mem", "cassandra", "ring"];

/// Why a text names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The scheme is not known.
    #[error("\"{scheme}:\" is not a kind of store{}", suggestion(.nearest))]
    Scheme {
        /// The scheme found.
        scheme: String,
        /// The most similar one that exists.
        nearest: Option<&'static str>,
    },
    /// A bare path with a question mark, which could be part of the path or begin a query.
    #[error("\"{text}\" could be a path or a path with a query")]
    Ambiguous {
        /// The text.
        text: String,
    },
    /// The path is missing.
    #[error("no path follows \"{scheme}:\"")]
    NoPath {
        /// The scheme.
        scheme: &'static str,
    },
    /// A host other than this machine.
    #[error("\"{host}\" is another host, and `file:` names folders of this one")]
    Host {
        /// The host found.
        host: String,
    },
    /// Text where none is allowed.
    #[error("nothing may follow \"mem:\" but a query; found \"{text}\"")]
    Trailing {
        /// What was found.
        text: String,
    },
    /// A percent sign without two hexadecimal digits, or an escaped zero byte.
    #[error("\"{text}\" is not a percent escape that a path can hold")]
    Escape {
        /// What was found.
        text: String,
    },
    /// A fragment, which a store URL cannot have.
    #[error("\"#{fragment}\" is a fragment, and a store has none")]
    Fragment {
        /// What follows the number sign.
        fragment: String,
    },
    /// No host follows `cassandra://`.
    #[error("no host follows \"cassandra://\"")]
    NoContact,
    /// A contact point that is neither a host nor a host with a port.
    #[error("\"{text}\" is not a host or host:port")]
    Contact {
        /// What was found.
        text: String,
    },
    /// No node follows `ring://`.
    #[error("no node follows \"ring://\"")]
    NoNode,
    /// Not a valid name for a keyspace of a ring.
    #[error(
        "\"{text}\" is not the name of a keyspace: 1 to 64 letters, digits, '-', '_' or '.', or a number"
    )]
    RingKeyspace {
        /// What was found.
        text: String,
    },
    /// No keyspace follows the hosts.
    #[error("no keyspace follows the hosts")]
    NoKeyspace,
    /// Not a valid name for a Cassandra keyspace.
    #[error("\"{text}\" is not the name of a keyspace: 1 to 48 letters, digits or underscores")]
    Keyspace {
        /// What was found.
        text: String,
    },
    /// A password, which would be printed and stored wherever the URL is.
    #[error("a password must not be in a URL")]
    Password,
    /// A user name or a token before the nodes.
    #[error("no name and no token may be in the URL of a ring")]
    TokenInUrl,
    /// A part of the query without an equals sign.
    #[error("\"{part}\" in the query is not key=value")]
    NotAPair {
        /// The part.
        part: String,
    },
    /// The key is not known.
    #[error("there is no query key \"{key}\"{}", suggestion(.nearest))]
    UnknownKey {
        /// The key.
        key: String,
        /// The most similar one that exists.
        nearest: Option<&'static str>,
    },
    /// The key is given twice.
    #[error("query key \"{key}\" is given twice")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// The value does not have the type of its key.
    #[error("query key \"{key}\": {source}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        source: ValueError,
    },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}

impl UrlError {
    /// What to write instead.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty | Self::NoPath { .. } => {
                "name a folder, such as ./data or file:/scratch/data, `mem:`, or cassandra: or ring: with hosts"
            }
            Self::Scheme { .. } => {
                "a store is a path, file:PATH, mem:, cassandra://HOST/KEYSPACE or ring://HOST:PORT/; write ./NAME for a path \
                 with a colon"
            }
            Self::Ambiguous { .. } => {
                "write file:PATH?key=value for a query, or file:PATH with %3F for a question mark in a name"
            }
            Self::Host { .. } => "write file:/absolute/path or file:relative/path",
            Self::Trailing { .. } => "a memory store has no name: write mem:",
            Self::Escape { .. } => "write %25 for a percent sign in a name",
            Self::Fragment { .. } => "write %23 for a number sign in a name",
            Self::TokenInUrl => {
                "write ring://HOST:PORT/?user=NAME&token-file=PATH, or without the user for the token of the ring"
            }
            Self::NoNode => "write ring://HOST:PORT,HOST:PORT/",
            Self::RingKeyspace { .. } => {
                "write ring://HOST:PORT,HOST:PORT/KEYSPACE; without it for the first one"
            }
            Self::Contact { .. } => {
                "a port is a number up to 65535: write ring://HOST:PORT,HOST:PORT/KEYSPACE, or \
                 cassandra://USER@HOST:PORT,HOST/KEYSPACE?consistency=quorum"
            }
            Self::NoContact | Self::NoKeyspace | Self::Keyspace { .. } => {
                "write cassandra://USER@HOST:PORT,HOST/KEYSPACE?consistency=quorum; user, port and query may be left out"
            }
            Self::Password => {
                "write cassandra://USER@HOST/KEYSPACE, and give the password in the environment variable \
                 ATOLL_CASSANDRA_PASSWORD or in a file with password-file=PATH"
            }
            Self::NotAPair { .. } | Self::UnknownKey { .. } | Self::Twice { .. } | Self::Value { .. } => {
                "query keys: mode=read|write|salvage, create=true|false, memory=SIZE, checkpoint=SIZE, keep=DURATION; for \
                 cassandra: mode, create, consistency=quorum|local-quorum, datacenter=NAME, beside=ADDRESS, \
                 replication=NUMBER, tls=on|PATH, password-file=PATH, connect-time-out=DURATION, time-out=DURATION, \
                 memory=SIZE; for ring: mode, user=NAME, token-file=PATH, \
                 tls-authority=PATH, time-out=DURATION, latency=5ms|50ms|500ms"
            }
        }
    }
}

impl From<UrlError> for StoreError {
    fn from(error: UrlError) -> Self {
        Self::InvalidInput { what: "store URL", problem: error.to_string(), hint: error.hint() }
    }
}

impl StoreUrl {
    /// Parses a store URL or a bare path.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        match split_scheme(text) {
            None => bare_path(text),
            Some(("file", rest)) => {
                let (path, query) = split_query(rest)?;
                Ok(Self { location: Location::Folder(file_path(path)?), query })
            }
            Some(("mem", rest)) => match split_query(rest)? {
                ("", query) => Ok(Self { location: Location::Memory, query }),
                (text, _) => Err(UrlError::Trailing { text: shortened(text) }),
            },
            Some(("cassandra", rest)) => {
                let location = Location::Cassandra(Box::new(CassandraUrl::parse(rest)?));
                Ok(Self { location, query: Vec::new() })
            }
            Some(("ring", rest)) => {
                let location = Location::Ring(Box::new(RingUrl::parse(rest)?));
                Ok(Self { location, query: Vec::new() })
            }
            Some((scheme, _)) => {
                Err(UrlError::Scheme { scheme: shortened(scheme), nearest: nearest(scheme, SCHEMES) })
            }
        }
    }

    /// Applies the query to the options.
    #[must_use]
    pub fn apply_to(&self, options: &OpenOptions) -> OpenOptions {
        let mut options = options.clone();
        for setting in &self.query {
            match setting {
                Setting::Mode(mode) => options.mode = *mode,
                Setting::Create(create) => options.create = *create,
                Setting::Memory(size) => options.memory_bytes = size.0,
                Setting::Checkpoint(size) => options.checkpoint_bytes = size.0,
                Setting::Keep(keep) => options.keep = *keep,
            }
        }
        if let Location::Cassandra(url) = &self.location {
            url.apply_to(&mut options);
        }
        if let Location::Ring(url) = &self.location {
            url.apply_to(&mut options);
        }
        options
    }
}

/// The scheme, if the text starts with one: a letter, then letters, digits or `+-.`, then a colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let starts_right = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (starts_right && is_scheme).then_some((scheme, rest))
}

fn bare_path(text: &str) -> Result<StoreUrl, UrlError> {
    if text.contains('?') {
        return Err(UrlError::Ambiguous { text: shortened(text) });
    }
    if text.contains('\0') {
        return Err(UrlError::Escape { text: "\\0".to_owned() });
    }
    Ok(StoreUrl { location: Location::Folder(PathBuf::from(text)), query: Vec::new() })
}

fn split_query(rest: &str) -> Result<(&str, Vec<Setting>), UrlError> {
    let (path, query) = query::split(rest)?;
    let mut settings = Vec::new();
    query::read(query, KEYS, |key, value| {
        settings.push(match key {
            "mode" if value == "salvage" => Setting::Mode(Mode::Salvage),
            "mode" => Setting::Mode(read_mode(value)?),
            "create" => Setting::Create(bool::parse(value)?),
            "memory" => Setting::Memory(Size::parse(value)?),
            "checkpoint" => Setting::Checkpoint(Size::parse(value)?),
            _ => Setting::Keep(Duration::parse(value)?),
        });
        Ok(())
    })?;
    Ok((path, settings))
}

pub(crate) fn read_mode(value: &str) -> Result<Mode, ValueError> {
    match value {
        "read" => Ok(Mode::Read),
        "write" => Ok(Mode::Write),
        _ => Err(ValueError::Form { text: shortened(value), expected: "read or write" }),
    }
}

/// The path after `file:`; `file:///p` and `file://localhost/p` are `/p`.
fn file_path(text: &str) -> Result<PathBuf, UrlError> {
    let path = match text.strip_prefix("//") {
        None => text,
        Some(authority) => {
            let (host, _) = authority.split_once('/').unwrap_or((authority, ""));
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                return Err(UrlError::Host { host: shortened(host) });
            }
            &authority[host.len()..]
        }
    };
    if path.is_empty() {
        return Err(UrlError::NoPath { scheme: "file" });
    }
    Ok(path_of(percent_decoded(path)?))
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    let text: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes);
    text.into()
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
