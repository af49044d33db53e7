//! `cassandra://user@host:port,host/keyspace?consistency=...`: the URL of a keyspace of a cluster.
//!
//! Invariant: no URL holds a password, so a URL can be printed, logged and kept in a history.

use crate::query::{self, decoded};
use crate::url::{UrlError, read_mode, shortened};
use crate::{Mode, OpenOptions};
use atoll_options::{OptionValue, Size, ValueError};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A keyspace, how to reach it, and the options in the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CassandraUrl {
    /// The role to log in as.
    pub user: Option<String>,
    /// Contact points, each `host` or `host:port`.
    pub contacts: Vec<String>,
    /// The keyspace.
    pub keyspace: String,
    /// The query.
    pub query: CassandraQuery,
}

/// The query of a `cassandra:` URL; each field is none if it is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CassandraQuery {
    /// Whether the store is opened for writing.
    pub mode: Option<Mode>,
    /// Whether to create a store in a keyspace that has none.
    pub create: Option<bool>,
    /// Whether a majority of one data centre is enough.
    pub is_local: bool,
    /// The nearby data centre.
    pub datacenter: Option<String>,
    /// The node beside this program.
    pub beside: Option<IpAddr>,
    /// Copies of a keyspace that is created.
    pub replication: Option<u32>,
    /// Whether connections are encrypted, and the file with the certificate authorities.
    pub tls: Option<TlsChoice>,
    /// A file that holds the password.
    pub password_file: Option<PathBuf>,
    /// How long connecting may take.
    pub connect_time_out: Option<Duration>,
    /// How long a call is retried.
    pub time_out: Option<Duration>,
    /// Memory for data that never changes.
    pub memory_bytes: Option<u64>,
}

/// How connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsChoice {
    /// Not at all.
    Off,
    /// With certificates that the system trusts.
    On,
    /// With certificates that the authorities in this file signed.
    File(PathBuf),
}

const KEYS: [&str; 11] = [
    "mode",
    "create",
    "consistency",
    "datacenter",
    "beside",
    "replication",
    "tls",
    "password-file",
    "connect-time-out",
    "time-out",
    "memory",
];

impl CassandraUrl {
    /// Parses what follows `cassandra:`. No error contains what may be a password, wherever its characters
    /// end up.
    pub(crate) fn parse(rest: &str) -> Result<Self, UrlError> {
        Self::read(rest).map_err(|error| if may_hold_password(rest) { UrlError::Password } else { error })
    }

    fn read(rest: &str) -> Result<Self, UrlError> {
        let (text, query) = query::split(rest)?;
        let text = text.strip_prefix("//").ok_or(UrlError::NoContact)?;
        let (authority, keyspace) = text.split_once('/').ok_or(UrlError::NoKeyspace)?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => match decoded(user)? {
                user if user.contains(':') => return Err(UrlError::Password),
                user => (Some(user), hosts),
            },
            None => (None, authority),
        };
        let contacts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if let Some(wrong) = contacts.iter().find(|contact| !is_contact(contact)) {
            return match wrong.is_empty() {
                true => Err(UrlError::NoContact),
                false => Err(UrlError::Contact { text: shortened(wrong) }),
            };
        }
        let keyspace = keyspace.strip_suffix('/').unwrap_or(keyspace);
        if keyspace.is_empty() {
            return Err(UrlError::NoKeyspace);
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if keyspace.len() > 48 || !keyspace.bytes().all(is_name) {
            return Err(UrlError::Keyspace { text: shortened(keyspace) });
        }
        Ok(Self { user, contacts, keyspace: keyspace.to_owned(), query: CassandraQuery::parse(query)? })
    }

    /// Applies the query to the options.
    pub(crate) fn apply_to(&self, options: &mut OpenOptions) {
        options.mode = self.query.mode.unwrap_or(options.mode);
        options.create = self.query.create.unwrap_or(options.create);
        options.memory_bytes = self.query.memory_bytes.unwrap_or(options.memory_bytes);
    }
}

impl CassandraQuery {
    fn parse(text: &str) -> Result<Self, UrlError> {
        let mut query = Self::default();
        query::read(text, KEYS, |key, value| query.set(key, value))?;
        Ok(query)
    }

    fn set(&mut self, key: &'static str, value: &str) -> Result<(), ValueError> {
        match key {
            "mode" => self.mode = Some(read_mode(value)?),
            "create" => self.create = Some(bool::parse(value)?),
            "consistency" => self.is_local = read_consistency(value)?,
            "datacenter" => self.datacenter = Some(String::parse(value)?),
            "beside" => self.beside = Some(read_address(value)?),
            "replication" => self.replication = Some(u32::parse(value)?),
            "tls" => self.tls = Some(read_tls(value)?),
            "password-file" => self.password_file = Some(PathBuf::parse(value)?),
            "connect-time-out" => self.connect_time_out = Some(Duration::parse(value)?),
            "memory" => self.memory_bytes = Some(Size::parse(value)?.0),
            _ => self.time_out = Some(Duration::parse(value)?),
        }
        Ok(())
    }
}

/// Whether some text before the last `@` looks like `USER:PASSWORD`.
fn may_hold_password(rest: &str) -> bool {
    let before = rest.rsplit_once('@').map(|(before, _)| before.to_ascii_lowercase());
    before.is_some_and(|before| before.contains(':') || before.contains("%3a"))
}

fn read_consistency(value: &str) -> Result<bool, ValueError> {
    match value {
        "quorum" => Ok(false),
        "local-quorum" => Ok(true),
        _ => Err(ValueError::Form { text: shortened(value), expected: "quorum or local-quorum" }),
    }
}

fn read_address(value: &str) -> Result<IpAddr, ValueError> {
    value
        .parse()
        .map_err(|_| ValueError::Form { text: shortened(value), expected: "an address such as 10.0.0.7" })
}

fn read_tls(value: &str) -> Result<TlsChoice, ValueError> {
    match value {
        "on" => Ok(TlsChoice::On),
        "off" => Ok(TlsChoice::Off),
        path if path.contains(['/', '.']) => Ok(TlsChoice::File(PathBuf::from(path))),
        _ => Err(ValueError::Form { text: shortened(value), expected: "on, off or the path of a PEM file" }),
    }
}

/// Whether the text is a host or an address, possibly with a port: `host`, `host:9042`, `[::1]:9042`.
pub(crate) fn is_contact(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => match address.parse::<std::net::Ipv6Addr>() {
            Ok(_) => (address, port.strip_prefix(':').or((port.is_empty()).then_some("1"))),
            Err(_) => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("1")),
        },
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    !host.is_empty()
        && host.bytes().all(is_name)
        && port.and_then(|port| port.parse::<u16>().ok()).is_some_and(|port| port > 0)
}
