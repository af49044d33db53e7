//! The configuration group of several processes, as a [`GroupDoor`]: a seat in `atoll-council`, or a client
//! of the nodes that have one.
//!
//! Invariant: a node receives its tables, its incarnation and the group's answers in the order in which the
//! council sent them.

use crate::NodeError;
use crate::group::{GroupDoor, GroupEvent, GroupMember, Joining};
use crate::token::Token;
use atoll_council::{
    Council, CouncilError, CouncilEvent, CouncilOptions, CouncilTls, Listen, MemberAddress, Secret,
};
use atoll_replica::{Change, GroupOptions, Moment, NodeId, Proposal};
use atoll_tls::PeerTls;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The configuration group, and this node's part in it.
#[derive(Clone, Debug)]
pub struct CouncilGroup {
    /// The members of the group and where they listen for it: the same on all nodes, ideally 3 or 5.
    pub members: Vec<(NodeId, MemberAddress)>,
    /// Where this node listens, if it is a member.
    pub listen: Option<SocketAddr>,
    /// Where the log of the group lies, if this node is a member; without it the log is in memory.
    pub folder: Option<PathBuf>,
    /// Options of the ring that never change.
    pub ring: GroupOptions,
    /// How many nodes must have joined before slots are first assigned.
    pub founding_nodes: usize,
    /// The host names of the members. Their certificates must be for these names, and a name is looked up
    /// again when its member is not reached at the known address.
    pub hosts: BTreeMap<NodeId, String>,
    /// What members encrypt with, if anything.
    pub tls: Option<PeerTls>,
    /// The token that all nodes share.
    pub token: Option<Token>,
}

impl GroupDoor for CouncilGroup {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        let Joining { node, address, hints, survived, of_ring, clock, on_event } = joining;
        let mut options = CouncilOptions::new(node, self.members.clone(), self.ring, address);
        options.my_listen = self.listen.map(Listen::On);
        options.folder = self.folder.clone();
        options.founding_nodes = self.founding_nodes;
        options.of_ring = of_ring;
        options.hints = hints;
        options.token = self.token.as_ref().and_then(|token| Secret::new(token.text()));
        let hosts = self.hosts.clone();
        options.names = hosts.clone();
        options.tls = self.tls.clone().map(|peers| CouncilTls { peers, hosts });
        let events = move |event| match event {
            CouncilEvent::Registered { incarnation, ring } => {
                on_event(GroupEvent::Registered(incarnation, ring))
            }
            CouncilEvent::Table(table) => on_event(GroupEvent::Table(table)),
            CouncilEvent::Heard { asked_at, leader } => on_event(GroupEvent::Heard(asked_at, Some(leader))),
            CouncilEvent::Left => tracing::info!("this node has left the ring, and may stop"),
            CouncilEvent::Seated => tracing::info!("this node has a seat in the configuration group"),
            CouncilEvent::Failed(error) => {
                tracing::error!(%error, "this node takes no part in the configuration group until it is restarted");
                on_event(GroupEvent::SeatLost);
            }
            CouncilEvent::LacksRoom(is_waiting) => on_event(GroupEvent::SeatWaits(is_waiting)),
            CouncilEvent::Trouble(error @ CouncilError::Replaced { .. }) => {
                on_event(GroupEvent::Lost(error.to_string()));
            }
            CouncilEvent::Trouble(CouncilError::NumberTaken { address, .. }) => {
                on_event(GroupEvent::NumberTaken(address));
            }
            CouncilEvent::Trouble(CouncilError::OtherRing) => on_event(GroupEvent::OtherRing),
            CouncilEvent::Trouble(error) => {
                tracing::warn!(%error, "the configuration group does not work as it should");
            }
        };
        let council = Council::start(
            options,
            std::sync::Arc::new(move || clock.now().moment),
            survived,
            Box::new(events),
        )?;
        Ok(Box::new(council))
    }

    fn keeps_on_disk(&self) -> bool {
        self.folder.is_some()
    }
}

impl GroupMember for Council {
    fn propose(&self, proposals: Vec<Proposal>) {
        Self::propose(self, proposals);
    }

    fn ask(&self, changes: Vec<Change>) {
        let failed: Vec<_> = changes.into_iter().filter_map(|change| Self::ask(self, change).err()).collect();
        if let Some(error) = failed.first() {
            tracing::warn!(%error, changes = failed.len(), "the configuration group could not be asked");
        }
    }

    fn fetch_table(&self) {
        Self::fetch_table(self);
    }

    fn at_work(&self, now: Moment) {
        Self::at_work(self, now);
    }
}
