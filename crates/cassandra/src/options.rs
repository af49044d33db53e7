//! What can be chosen about a store on Cassandra.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Whose majority a call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// A majority of all replicas; conditional writes and reads are serial over all data centres.
    #[default]
    Quorum,
    /// A majority of the replicas in the local data centre, and serial within it: every client of a keyspace
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

/// How a store on Cassandra is reached and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Contact points, each `host` or `host:port`; one that answers is enough.
    pub contacts: Vec<String>,
    /// The keyspace: letters, digits and underscores, at most 48.
    pub keyspace: String,
    /// User and password, where the cluster asks for them.
    pub credentials: Option<Credentials>,
    /// Whose majority a call waits for.
    pub consistency: Consistency,
    /// The data centre that is near; that of the first contact point for none.
    pub datacenter: Option<String>,
    /// The node beside this program, which is asked first for what any replica may answer; for none the one
    /// on this machine, if there is just one.
    pub beside: Option<IpAddr>,
    /// Copies of a keyspace that has to be created; as many as the data centre has nodes, at most 3, for
    /// none.
    pub replication: Option<u32>,
    /// How connections are encrypted.
    pub tls: Tls,
    /// Whether keyspace and tables that are not there are created.
    pub create: bool,
    /// Whether the store refuses to write.
    pub read_only: bool,
    /// How long connecting may take.
    pub connect_time_out: Duration,
    /// How long a call is tried again while the cluster does not answer as it should.
    pub request_time_out: Duration,
    /// For how long a request id is remembered.
    pub request_memory: Duration,
    /// How many waits may be open at once.
    pub waiters_max: usize,
    /// Bytes of a chunk, of which large values are made; a read of part of a value reads whole chunks.
    pub chunk_bytes: usize,
    /// Bytes of what never changes that are kept in memory after they were read.
    pub memory_bytes: u64,
    /// Put in front of every partition key, so that several stores share a keyspace; at most 64 bytes. None
    /// may begin with another one, or the two would share partitions: give all of a keyspace the same length,
    /// and none of them an empty one.
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

/// Longest name of a keyspace that Cassandra takes.
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

    /// The keyspace as statements name it, whatever its case.
    pub(crate) fn keyspace_quoted(&self) -> String {
        format!("\"{}\"", self.keyspace)
    }

    /// How the store is called in messages: never with a password.
    #[must_use]
    pub fn place(&self) -> String {
        format!("cassandra://{}/{}", self.contacts.join(","), self.keyspace)
    }
}

/// Rows of request ids end by the clocks of the replicas, which differ a little; less than they are kept is
/// promised.
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
