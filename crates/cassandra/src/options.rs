//! The options of a store on Cassandra.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Whose majority a call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// A majority of all replicas; conditional writes and reads are serial over all data centres.
    #[default]
    Quorum,
    /// A majority of the replicas in the local data centre, and serial within it. Every client of a keyspace
    /// must then name the same data centre.
    LocalQuorum,
}

/// How connections are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Not at all.
    #[default]
    Off,
    /// With certificates that the system trusts.
    System,
    /// With certificates that the authorities in this PEM file signed.
    Authorities(PathBuf),
}

/// User and password; the password never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The role that Cassandra knows.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How to reach a store on Cassandra, and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Contact points, each `host` or `host:port`; one that answers is enough.
    pub contacts: Vec<String>,
    /// The keyspace: letters, digits and underscores, at most 48.
    pub keyspace: String,
    /// User and password, if the cluster asks for them.
    pub credentials: Option<Credentials>,
    /// Whose majority a call waits for.
    pub consistency: Consistency,
    /// The near data centre; if none is named, the only one of the cluster, if it has just one.
    pub datacenter: Option<String>,
    /// The node next to this program, which is asked first for anything that any replica may answer; if none
    /// is named, the node on this machine, provided there is exactly one.
    pub beside: Option<IpAddr>,
    /// The number of copies for a keyspace that has to be created; if none is given, the number of nodes in
    /// the data centre, at most 3.
    pub replication: Option<u32>,
    /// How connections are encrypted.
    pub tls: Tls,
    /// Whether to create the keyspace and tables if they do not exist.
    pub create: bool,
    /// Whether the store refuses to write.
    pub read_only: bool,
    /// How long connecting may take.
    pub connect_time_out: Duration,
    /// How long a call is retried while the cluster does not answer properly.
    pub request_time_out: Duration,
    /// How long a request id is remembered.
    pub request_memory: Duration,
    /// How many waits may be open at once.
    pub waiters_max: usize,
    /// The length of the chunks that make up large values; reading part of a value reads whole chunks.
    pub chunk_bytes: usize,
    /// The size of the in-memory cache of data that never changes.
    pub memory_bytes: u64,
    /// A prefix of every partition key, so that several stores can share a keyspace; at most 64 bytes. No
    /// namespace may be a prefix of another, or the two stores would share partitions: give all namespaces of
    /// a keyspace the same length, and leave none of them empty.
    pub namespace: Vec<u8>,
}

/// What is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {option} of a store on Cassandra must be {wanted}")]
pub struct OptionsError {
    /// Which option.
    pub option: &'static str,
    /// What it must be.
    pub wanted: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            contacts: Vec::new(),
            keyspace: "atoll".to_owned(),
            credentials: None,
            consistency: Consistency::default(),
            datacenter: None,
            beside: None,
            replication: None,
            tls: Tls::default(),
            create: true,
            read_only: false,
            connect_time_out: Duration::from_secs(10),
            request_time_out: Duration::from_secs(15),
            request_memory: Duration::from_secs(600),
            waiters_max: 100_000,
            chunk_bytes: 256 << 10,
            memory_bytes: 256 << 20,
            namespace: Vec::new(),
        }
    }
}

/// The longest keyspace name that Cassandra accepts.
const KEYSPACE_CHARACTERS_MAX: usize = 48;

impl Options {
    /// The options for a keyspace reached through these contact points.
    #[must_use]
    pub fn of(contacts: impl IntoIterator<Item = impl Into<String>>, keyspace: impl Into<String>) -> Self {
        let contacts = contacts.into_iter().map(Into::into).collect();
        Self { contacts, keyspace: keyspace.into(), ..Self::default() }
    }

    /// Checks that a store can work with these options.
    ///
    /// # Errors
    /// Names the first option that is wrong.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let second = Duration::from_secs(1);
        let checks = [
            (!self.contacts.is_empty(), "contacts", "at least one host"),
            (is_keyspace(&self.keyspace), "keyspace", "1 to 48 letters, digits or underscores"),
            (self.replication != Some(0), "replication", "at least 1"),
            (self.connect_time_out >= second / 10, "connect_time_out", "at least 100 ms"),
            (self.request_time_out >= second, "request_time_out", "at least 1 s"),
            (self.request_memory >= 2 * REQUEST_MEMORY_MARGIN, "request_memory", "at least 2 minutes"),
            (self.request_memory <= 86_400 * 365 * second, "request_memory", "at most a year"),
            (self.waiters_max > 0, "waiters_max", "at least 1"),
            ((4 << 10..=1 << 20).contains(&self.chunk_bytes), "chunk_bytes", "4 KiB to 1 MiB"),
            (self.namespace.len() <= 64, "namespace", "at most 64 bytes"),
        ];
        match checks.into_iter().find(|(holds, ..)| !holds) {
            Some((_, option, wanted)) => Err(OptionsError { option, wanted }),
            None => Ok(()),
        }
    }

    /// The data centre that every coordinator must lie in; none if that does not matter.
    pub(crate) fn within(&self) -> Option<&str> {
        self.datacenter.as_deref().filter(|_| self.consistency == Consistency::LocalQuorum)
    }

    /// The keyspace as quoted in statements, which preserves its case.
    pub(crate) fn keyspace_quoted(&self) -> String {
        format!("\"{}\"", self.keyspace)
    }

    /// The name of the store in messages, without the password.
    #[must_use]
    pub fn place(&self) -> String {
        format!("cassandra://{}/{}", self.contacts.join(","), self.keyspace)
    }
}

/// Rows of request ids expire by the clocks of the replicas, which differ slightly. So they are kept this
/// much longer than the store promises.
pub(crate) const REQUEST_MEMORY_MARGIN: Duration = Duration::from_secs(60);

fn is_keyspace(name: &str) -> bool {
    (1..=KEYSPACE_CHARACTERS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let credentials = Some(Credentials { user: "ada".into(), password: "hunter2".into() });
        let options = Options { credentials, ..Options::of(["a"], "k") };
        let shown = format!("{options:?} {}", options.place());
        assert!(shown.contains("ada") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn each_wrong_option_is_named() {
        let right = || Options::of(["a"], "k");
        assert_eq!(right().validate(), Ok(()));
        let wrong = [
            ("contacts", Options { contacts: vec![], ..right() }),
            ("keyspace", Options { keyspace: String::new(), ..right() }),
            ("keyspace", Options { keyspace: "a-b".into(), ..right() }),
            ("keyspace", Options { keyspace: "k".repeat(49), ..right() }),
            ("replication", Options { replication: Some(0), ..right() }),
            ("connect_time_out", Options { connect_time_out: Duration::ZERO, ..right() }),
            ("request_time_out", Options { request_time_out: Duration::ZERO, ..right() }),
            ("request_memory", Options { request_memory: Duration::ZERO, ..right() }),
            ("waiters_max", Options { waiters_max: 0, ..right() }),
            ("chunk_bytes", Options { chunk_bytes: 4095, ..right() }),
            ("chunk_bytes", Options { chunk_bytes: (1 << 20) + 1, ..right() }),
            ("namespace", Options { namespace: vec![0; 65], ..right() }),
        ];
        for (option, options) in wrong {
            assert_eq!(options.validate().unwrap_err().option, option);
        }
    }
}
