//! Where a node is, as the table says it: its name, and where clients and other nodes reach it.

use crate::token::{fill_randomly, hexadecimal};
use std::fmt;
use std::io;
use std::str::FromStr;

/// The name by which clients know a node: 40 hexadecimal digits, chosen once and kept with its store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName([u8; 40]);

impl NodeName {
    /// Draws a name that no other node has.
    pub(crate) fn random() -> io::Result<Self> {
        let mut random = [0; 20];
        fill_randomly(&mut random)?;
        let mut name = [b'0'; 40];
        name.copy_from_slice(hexadecimal(&random).as_bytes());
        Ok(Self(name))
    }

    /// Makes a name of these digits, if they are 40 lower-case hexadecimal digits.
    #[must_use]
    pub fn new(digits: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let digits: [u8; 40] = digits.try_into().ok()?;
        digits.iter().all(is_digit).then_some(Self(digits))
    }

    /// Its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Always holds ASCII digits.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A host, by name or number, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Where a node is. Its text form, which the table keeps, is `NAME HOST:PORT HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The name by which clients know it.
    pub name: NodeName,
    /// Where clients reach it.
    pub clients: HostPort,
    /// Where other nodes reach it.
    pub peers: HostPort,
}

/// A text that is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is expected")]
pub struct AddressError {
    /// The expected form.
    pub what: &'static str,
}

impl FromStr for HostPort {
    type Err = AddressError;

    /// Parses `HOST:PORT`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = AddressError { what: "HOST:PORT" };
        let (host, port) = text.rsplit_once(':').ok_or(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or(wrong)?,
            None if host.contains(':') => return Err(wrong),
            None => host,
        };
        // Replies to clients separate their fields by spaces and commas, so a host may contain neither.
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_%".contains(&byte);
        if host.is_empty() || host.len() > 255 || !host.bytes().all(is_host) {
            return Err(wrong);
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| wrong)? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What follows `MOVED` in an error, as a Redis Cluster writes it: the port stands behind the last colon, and
/// an IPv6 address in no brackets.
pub(crate) fn moved_to(slot: u16, HostPort { host, port }: &HostPort) -> String {
    format!("{slot} {host}:{port}")
}

impl From<std::net::SocketAddr> for HostPort {
    fn from(address: std::net::SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for NodeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = AddressError { what: "NAME HOST:PORT HOST:PORT" };
        let mut parts = text.split(' ');
        let mut part = || parts.next().ok_or(wrong);
        let name = NodeName::new(part()?.as_bytes()).ok_or(wrong)?;
        let address = Self { name, clients: part()?.parse()?, peers: part()?.parse()? };
        if parts.next().is_some() { Err(wrong) } else { Ok(address) }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.clients, self.peers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_were_written_as() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        for hosts in ["127.0.0.1:7379 127.0.0.1:17379", "[::1]:1 node-7.cluster.local:65535"] {
            let text = format!("{name} {hosts}");
            assert_eq!(text.parse::<NodeAddress>().unwrap().to_string(), text);
        }
        let wrong = ["", "a:b", ":1", "::1:7", "[::1:7", "a b:7", "a,b:7", "a:65536", "a\n:7"];
        assert!(wrong.iter().all(|text| text.parse::<HostPort>().is_err()));
        let wrong = [format!("{name} a:1"), format!("{name} a:1 b:2 c:3"), format!("{} a:1 b:2", &name[1..])];
        assert!(wrong.iter().all(|text| text.parse::<NodeAddress>().is_err()));
    }

    #[test]
    fn a_redirection_names_a_host_as_a_redis_cluster_does() {
        for (to, told) in [("[::1]:7379", "5 ::1:7379"), ("10.0.0.1:7", "5 10.0.0.1:7"), ("a:7", "5 a:7")] {
            assert_eq!(moved_to(5, &to.parse().unwrap()), told);
        }
    }

    #[test]
    fn no_two_names_are_the_same() {
        assert_ne!(NodeName::random().unwrap(), NodeName::random().unwrap());
    }
}
