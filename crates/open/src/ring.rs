//! `ring://host:port,host:port/KEYSPACE?user=...&token-file=...`: the URL of a ring of nodes.
//!
//! Invariant: no URL holds a token, so a URL can be printed, logged and kept in a history.

use crate::cassandra::is_contact;
use crate::query::{self, decoded};
use crate::url::{UrlError, read_mode, shortened};
use crate::{Mode, OpenOptions};
use atoll_options::{OptionValue, ValueError};
use std::path::PathBuf;
use std::time::Duration;

/// Some nodes of a ring, and the options in the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingUrl {
    /// Nodes to contact first, each `host:port`.
    pub nodes: Vec<String>,
    /// The keyspace by name or number, unless it is the one where nodes put clients that name none.
    pub keyspace: Option<String>,
    /// Whether the store is opened for writing.
    pub mode: Option<Mode>,
    /// The user whose password the token file holds, if it does not hold the token of the ring.
    pub user: Option<String>,
    /// A file that holds the token of the ring, or the password of the user.
    pub token_file: Option<PathBuf>,
    /// A file with the certificate authority of the nodes; without it nothing is encrypted.
    pub tls_authority: Option<PathBuf>,
    /// How long a call is retried.
    pub time_out: Option<Duration>,
    /// How long requests may take, as one of the latency classes of a ring.
    pub latency: Option<Duration>,
}

const KEYS: [&str; 6] = ["mode", "user", "token-file", "tls-authority", "time-out", "latency"];

/// The port at which a node listens by default.
const PORT: u16 = 7379;

impl RingUrl {
    /// Parses what follows `ring:`. No error contains what may be a token or a password, wherever its
    /// characters end up.
    pub(crate) fn parse(rest: &str) -> Result<Self, UrlError> {
        Self::read(rest).map_err(|error| if may_hold_secret(rest) { UrlError::TokenInUrl } else { error })
    }

    fn read(rest: &str) -> Result<Self, UrlError> {
        let (text, query) = query::split(rest)?;
        let text = text.strip_prefix("//").ok_or(UrlError::NoNode)?;
        let (hosts, behind) = text.split_once('/').unwrap_or((text, ""));
        if hosts.contains('@') {
            return Err(UrlError::TokenInUrl);
        }
        let behind = decoded(behind)?;
        let keyspace = behind.strip_suffix('/').unwrap_or(&behind);
        if !keyspace.is_empty() && !is_keyspace(keyspace) {
            return Err(UrlError::RingKeyspace { text: shortened(keyspace) });
        }
        let keyspace = Some(keyspace.to_owned()).filter(|name| !name.is_empty());
        let mut url = Self { keyspace, ..Self::default() };
        for host in hosts.split(',') {
            match host {
                "" => return Err(UrlError::NoNode),
                host if !is_contact(host) => return Err(UrlError::Contact { text: shortened(host) }),
                host => url.nodes.push(with_port(host)),
            }
        }
        query::read(query, KEYS, |key, value| url.set(key, value))?;
        Ok(url)
    }

    fn set(&mut self, key: &'static str, value: &str) -> Result<(), ValueError> {
        match key {
            "mode" => self.mode = Some(read_mode(value)?),
            "user" => self.user = Some(String::parse(value)?),
            "token-file" => self.token_file = Some(PathBuf::parse(value)?),
            "latency" => self.latency = Some(read_latency(value)?),
            "tls-authority" => self.tls_authority = Some(PathBuf::parse(value)?),
            _ => self.time_out = Some(Duration::parse(value)?),
        }
        Ok(())
    }

    /// Applies the query to the options.
    pub(crate) fn apply_to(&self, options: &mut OpenOptions) {
        options.mode = self.mode.unwrap_or(options.mode);
    }
}

/// Whether there is an `@` outside of option values, as after a token or a password.
fn may_hold_secret(rest: &str) -> bool {
    let is_value = |before: &str| KEYS.iter().any(|key| before.contains(&format!("{key}=")));
    rest.split_once('@').is_some_and(|(before, _)| !is_value(before))
}

/// Whether nodes accept this name of a keyspace; a number names one, too.
fn is_keyspace(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 64 && !text.starts_with('.') && text.bytes().all(is_plain)
}

/// Parses a latency class: a ring has three.
fn read_latency(value: &str) -> Result<Duration, ValueError> {
    let latency = Duration::parse(value)?;
    match latency.as_millis() {
        5 | 50 | 500 if latency.subsec_nanos().is_multiple_of(1_000_000) => Ok(latency),
        _ => Err(ValueError::Form { text: shortened(value), expected: "5ms, 50ms or 500ms" }),
    }
}

/// Adds the default port to a contact, for which `is_contact` holds: a colon after the host starts a port.
fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_options_are_read() {
        let url =
            RingUrl::parse("//a,b:1,[::1]:2,[::1]/?token-file=./t&tls-authority=./a&time-out=3s&mode=read")
                .unwrap();
        assert_eq!(url.nodes, ["a:7379", "b:1", "[::1]:2", "[::1]:7379"]);
        assert_eq!((url.token_file, url.tls_authority), (Some("./t".into()), Some("./a".into())));
        assert_eq!((url.time_out, url.mode), (Some(Duration::from_secs(3)), Some(Mode::Read)));
        let url = RingUrl::parse("//a/?latency=500ms").unwrap();
        assert_eq!((url.latency, url.user), (Some(Duration::from_millis(500)), None));
        assert_eq!(RingUrl::parse("//a/?user=job%207&token-file=t").unwrap().user.as_deref(), Some("job 7"));
        for secret in
            ["//tok@h/", "//tok/en@h:1/", "//u:pa#ss@h/", "//u:pa?ss@h/", "//u:pa%ss@h/", "//u:p/a/s@h/ring"]
        {
            assert_eq!(RingUrl::parse(secret).unwrap_err(), UrlError::TokenInUrl, "{secret}");
        }
        assert!(RingUrl::parse("//a/?token-file=./me@here/t").is_ok());
        let wrong = RingUrl::parse("//a/?token-file=./me@here/t&nope=1").unwrap_err();
        assert_ne!(wrong, UrlError::TokenInUrl);
        for wrong in ["//a/?latency=100ms", "//a/?latency=soon", "//a/?latency=500s"] {
            assert!(RingUrl::parse(wrong).is_err(), "{wrong}");
        }
        assert!(RingUrl::parse("//a").is_ok());
        let keyspace = |text: &str| RingUrl::parse(text).unwrap().keyspace;
        assert_eq!(keyspace("//a/scratch-1.x?user=u").as_deref(), Some("scratch-1.x"));
        assert_eq!(
            (keyspace("//a/3/").as_deref(), keyspace("//a/"), keyspace("//a")),
            (Some("3"), None, None)
        );
        for wrong in [
            "",
            "a:1",
            "//",
            "//a,,b/",
            "//a:x/",
            "//a/b/c",
            "//a/.b",
            "//a/b%20c",
            "//u:p@a/",
            "//a/?x=1",
            "//a/#f",
        ] {
            assert!(RingUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
