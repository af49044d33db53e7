//! Where the nodes of a table are reached by each other: names are looked up once for each life of a node.
//!
//! Invariant: whose name cannot be looked up, or names several places, stays where it was as long as it says the same.

use crate::address::NodeAddress;
use crate::peer::PeerAddress;
use atoll_replica::{Incarnation, Member, NodeId, Table};
use std::collections::BTreeMap;
use std::net::ToSocketAddrs;

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct PeerAddresses {
    found: BTreeMap<NodeId, PeerAddress>,
    /// What each said when that was found, and in which life.
    said: BTreeMap<NodeId, (Box<str>, Incarnation)>,
}

impl PeerAddresses {
    /// Looks up whoever says something new; whose address says nothing is left out.
    pub(crate) fn follow(&mut self, table: &Table) {
        for (&node, member) in table.members.iter() {
            let said = (Box::from(member.address.to_string()), member.incarnation);
            if self.said.get(&node) == Some(&said) {
                continue;
            }
            match address(member) {
                Some(address) => {
                    self.found.insert(node, address);
                    self.said.insert(node, said);
                }
                // It is looked up again with the next table, and is reached where it was until then.
                None => drop(self.said.remove(&node)),
            }
        }
        self.found.retain(|node, _| table.members.get(node).is_some());
        self.said.retain(|node, _| table.members.get(node).is_some());
    }

    pub(crate) fn all(&self) -> &BTreeMap<NodeId, PeerAddress> {
        &self.found
    }
}

fn address(member: &Member) -> Option<PeerAddress> {
    let NodeAddress { peers, clients, .. } = member.address.parse().ok()?;
    let at = (peers.host.as_str(), peers.port).to_socket_addrs().ok()?.next()?;
    Some(PeerAddress { at, host: clients.host })
}
