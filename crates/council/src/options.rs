//! Options for taking part in the group, as a member or as a node that only asks.

use crate::CouncilError;
use atoll_replica::{COPIES_MAX, GroupOptions, NodeId, PlacementHints, SLOTS_MAX};
use atoll_tls::PeerTls;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// Options of a node's part in the configuration group.
#[derive(Debug)]
pub struct CouncilOptions {
    /// This node.
    pub me: NodeId,
    /// The members of the group and the addresses on which they listen: the same list on all nodes, at most
    /// 9, ideally 3 or 5.
    pub members: Vec<(NodeId, MemberAddress)>,
    /// The host names of members. A member that is not reached at its address is looked up again; a member
    /// without a name keeps its address.
    pub names: BTreeMap<NodeId, String>,
    /// Where this node listens, if it is a member.
    pub my_listen: Option<Listen>,
    /// Where the log of the group lies, if this node is a member; always synced. None: in memory. A member
    /// that lost its memory comes back on another seat, which the other members have to agree to, so more
    /// than half of them must not restart at once.
    pub folder: Option<PathBuf>,
    /// Options of the ring that never change.
    pub ring: GroupOptions,
    /// How long a silent node counts as up, in milliseconds. Must be longer than the lease of the ring on the
    /// worst pair of clocks.
    pub node_timeout_ms: u64,
    /// The same for a node whose connection ended, most likely because its process did.
    pub lost_timeout_ms: u64,
    /// How long a node must be down, in milliseconds, before its copies are made elsewhere.
    pub gone_after_ms: u64,
    /// The interval between heartbeats of a node, in milliseconds.
    pub heartbeat_ms: u64,
    /// After how much silence of the leader another member may lead, in milliseconds, at the earliest; at the
    /// latest after a bit more than three times that.
    pub election_ms: u64,
    /// After how many entries of the log a member makes a snapshot and cuts the log. It keeps half as many
    /// entries behind the snapshot, so that a member that was away for a moment is sent these.
    ///
    /// An entry holds what was decided at one time: a node that is given up, or up to 256 slots that move. By
    /// the encoding, a snapshot of 16,384 slots has about 230 KB, so with the default it costs some 230 bytes
    /// for each entry: a tenth of what an entry with many moves takes itself. More entries would only make
    /// starts longer.
    pub snapshot_entries: u64,
    /// How many nodes there should be before slots are first assigned.
    pub founding_nodes: usize,
    /// How long to wait for that many, in milliseconds, before slots are assigned to those that are there.
    pub founding_wait_ms: u64,
    /// The ring that this node's data belong to: in another ring it does not register.
    pub of_ring: Option<u64>,
    /// A secret that all nodes share: each connection shows it.
    pub token: Option<Secret>,
    /// Encrypts the connections between nodes, if given; unencrypted ones are refused then.
    pub tls: Option<CouncilTls>,
    /// Where clients and nodes reach this node, as text for the table.
    pub address: String,
    /// What the placement of copies takes into account of this node.
    pub hints: PlacementHints,
}

/// The address of a member of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberAddress {
    /// A known address.
    At(SocketAddr),
    /// An address that its name resolves to, once a lookup succeeds.
    Named {
        /// The port.
        port: u16,
        /// Addresses of this one's family are tried first.
        like: IpAddr,
    },
}

/// The encryption of connections.
#[derive(Clone, Debug)]
pub struct CouncilTls {
    /// This node's certificates and trust.
    pub peers: PeerTls,
    /// The host names of members, which their certificates have to be valid for.
    pub hosts: BTreeMap<NodeId, String>,
}

/// Where a member listens.
#[derive(Debug)]
pub enum Listen {
    /// On this address.
    On(SocketAddr),
    /// On a socket that is listening already.
    Bound(TcpListener),
}

/// Bytes that only nodes of the ring know. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// More members make each change slower and none safer.
const MEMBERS_MAX: usize = 9;

const SECRET_BYTES_MAX: usize = 1024;

/// With fewer, snapshots are all that a member does.
const SNAPSHOT_ENTRIES_MIN: u64 = 10;

impl CouncilOptions {
    /// Options with the usual times, in memory, without a secret.
    #[must_use]
    pub fn new(
        me: NodeId,
        members: Vec<(NodeId, impl Into<MemberAddress>)>,
        ring: GroupOptions,
        address: String,
    ) -> Self {
        Self {
            me,
            members: members.into_iter().map(|(node, address)| (node, address.into())).collect(),
            names: BTreeMap::new(),
            my_listen: None,
            folder: None,
            ring,
            node_timeout_ms: 1_500,
            lost_timeout_ms: 400,
            gone_after_ms: 30_000,
            heartbeat_ms: 100,
            election_ms: 250,
            snapshot_entries: 1_000,
            founding_nodes: ring.copies,
            founding_wait_ms: 10_000,
            of_ring: None,
            token: None,
            tls: None,
            address,
            hints: PlacementHints::default(),
        }
    }

    /// Checks that the options make sense together.
    ///
    /// # Errors
    /// [`CouncilError::Option`], naming the option.
    pub fn validate(&self) -> Result<(), CouncilError> {
        let wrong = |option, problem| Err(CouncilError::Option { option, problem });
        let nodes: BTreeSet<_> = self.members.iter().map(|(node, _)| *node).collect();
        if nodes.is_empty() || nodes.len() != self.members.len() || nodes.len() > MEMBERS_MAX {
            return wrong("members", "1 to 9 nodes, each once");
        }
        let is_found =
            |(node, at): &(NodeId, MemberAddress)| at.known().is_some() || self.name(*node).is_some();
        if !self.members.iter().all(is_found) {
            return wrong("members", "an address for each, or a name in names to find it by");
        }
        if self.my_listen.is_some() != nodes.contains(&self.me) {
            return wrong("my_listen", "given by members of the group, and only by them");
        }
        if self.token.is_none() && self.my_listen.as_ref().is_some_and(Listen::is_beyond_this_machine) {
            return wrong("token", "given where my_listen can be reached from other machines");
        }
        if self.ring.slots == 0 || self.ring.slots > SLOTS_MAX {
            return wrong("ring.slots", "from 1 to 1,048,576");
        }
        if self.ring.copies == 0 || self.ring.copies > COPIES_MAX {
            return wrong("ring.copies", "from 1 to 7");
        }
        if self.heartbeat_ms == 0 || self.node_timeout_ms < 3 * self.heartbeat_ms {
            return wrong("node_timeout_ms", "at least three times heartbeat_ms");
        }
        if self.election_ms < 20 {
            return wrong("election_ms", "at least 20");
        }
        if self.snapshot_entries < SNAPSHOT_ENTRIES_MIN {
            return wrong("snapshot_entries", "at least 10");
        }
        let is_named = |tls: &CouncilTls| nodes.iter().all(|node| tls.hosts.contains_key(node));
        if !self.tls.as_ref().is_none_or(is_named) {
            return wrong("tls.hosts", "a host for each of the members");
        }
        if self.address.len() > ADDRESS_BYTES_MAX {
            return wrong("address", "at most 1,024 bytes");
        }
        if let Some(problem) = self.hints.problem() {
            return wrong("hints.zone", problem);
        }
        Ok(())
    }

    /// The name to look a member up by, if it has one that is not an address.
    pub(crate) fn name(&self, member: NodeId) -> Option<&String> {
        self.names.get(&member).filter(|name| name.parse::<IpAddr>().is_err())
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        Duration::from_millis(self.node_timeout_ms)
    }

    pub(crate) fn lost_timeout(&self) -> Duration {
        Duration::from_millis(self.lost_timeout_ms)
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }

    /// The configuration of the consensus. Every member syncs every entry, so a heartbeat may take as long as
    /// a slow disk.
    pub(crate) fn consensus(&self) -> openraft::Config {
        openraft::Config {
            cluster_name: "atoll".to_owned(),
            heartbeat_interval: self.election_ms * 2 / 5,
            election_timeout_min: self.election_ms,
            election_timeout_max: self.election_ms * 9 / 5,
            // For each piece of a snapshot; the last one is answered when all of them are on disk.
            install_snapshot_timeout: 10_000,
            max_payload_entries: 256,
            replication_lag_threshold: 5_000,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(self.snapshot_entries),
            max_in_snapshot_log_to_keep: self.snapshot_entries / 2,
            ..openraft::Config::default()
        }
    }
}

impl MemberAddress {
    /// The address, if it is known.
    pub(crate) fn known(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Named { .. } => None,
        }
    }

    /// Addresses that are found for the member get this port, and those of this family are tried first.
    pub(crate) fn like(self) -> SocketAddr {
        match self {
            Self::At(address) => address,
            Self::Named { port, like } => SocketAddr::new(like, port),
        }
    }
}

impl From<SocketAddr> for MemberAddress {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl Listen {
    /// Whether other machines can reach it, as far as that can be told.
    fn is_beyond_this_machine(&self) -> bool {
        let address = match self {
            Self::On(address) => Ok(*address),
            Self::Bound(listener) => listener.local_addr(),
        };
        address.is_ok_and(|address| !address.ip().is_loopback())
    }
}

/// Longest address of a node that is accepted into the table.
pub(crate) const ADDRESS_BYTES_MAX: usize = 1024;

impl Secret {
    /// A secret of 1 to 1,024 bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=SECRET_BYTES_MAX).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether `shown` is this secret. The time this takes depends on the secret's length alone.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let mut difference = usize::from(shown.len() != self.0.len());
        for (at, byte) in self.0.iter().enumerate() {
            let other = shown.get(at).copied().unwrap_or(!byte);
            difference |= usize::from(std::hint::black_box(byte ^ other));
        }
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(members: &[u32]) -> CouncilOptions {
        let members =
            members.iter().map(|&node| (NodeId(node), SocketAddr::from(([127, 0, 0, 1], 1)))).collect();
        let ring = GroupOptions { slots: 16, copies: 3 };
        CouncilOptions::new(NodeId(9), members, ring, "here".to_owned())
    }

    fn named(options: &CouncilOptions) -> Option<&'static str> {
        match options.validate() {
            Err(CouncilError::Option { option, .. }) => Some(option),
            _ => None,
        }
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        assert_eq!(named(&options(&[1, 2, 3])), None);
        assert_eq!(named(&options(&[])), Some("members"));
        assert_eq!(named(&options(&[1, 1])), Some("members"));
        assert_eq!(named(&options(&[1, 9])), Some("my_listen"), "a member that does not listen");
        assert_eq!(named(&CouncilOptions { node_timeout_ms: 200, ..options(&[1]) }), Some("node_timeout_ms"));
        assert_eq!(named(&CouncilOptions { snapshot_entries: 9, ..options(&[1]) }), Some("snapshot_entries"));
        let ring = GroupOptions { slots: 0, copies: 1 };
        assert_eq!(named(&CouncilOptions { ring, ..options(&[1]) }), Some("ring.slots"));
    }

    #[test]
    fn a_member_has_an_address_or_a_name_to_find_it_by() {
        let named_as = |name: &str| {
            let mut options = options(&[1, 2]);
            options.members[1].1 = MemberAddress::Named { port: 1, like: [127, 0, 0, 1].into() };
            options.names.insert(NodeId(2), name.to_owned());
            named(&options)
        };
        assert_eq!(named_as("member"), None);
        assert_eq!(named_as("10.0.0.1"), Some("members"), "a number that nobody looks up");
    }

    #[test]
    fn beyond_this_machine_a_member_listens_only_with_a_token() {
        let listening = |at: &str, token| {
            let my_listen = Some(Listen::On(at.parse().unwrap()));
            named(&CouncilOptions { my_listen, token, ..options(&[1, 9]) })
        };
        assert_eq!(listening("0.0.0.0:27379", None), Some("token"));
        assert_eq!(listening("127.0.0.1:27379", None), None);
        assert_eq!(listening("0.0.0.0:27379", Secret::new(b"0123456789abcdef")), None);
    }

    #[test]
    fn times_of_the_consensus_fit_together() {
        for election_ms in [20, 250, 10_000] {
            let options = CouncilOptions { election_ms, ..options(&[1]) };
            assert!(options.consensus().validate().is_ok(), "{election_ms}");
        }
    }

    #[test]
    fn a_secret_is_not_shown_and_only_it_is_it() {
        let secret = Secret::new(b"abc").unwrap();
        assert!(secret.is(b"abc") && !secret.is(b"abd") && !secret.is(b"ab") && !secret.is(b"abcd"));
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(Secret::new(b"").is_none());
    }
}
