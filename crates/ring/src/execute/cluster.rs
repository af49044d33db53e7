//! `CLUSTER` and `AT.RING`: which node has which slots, and which keys are in those of this node.

use super::Executor;
use crate::keyspaces::slot_at;
use atoll_keyspace::slot_of;
use atoll_replica::{Change, NodeId};
use atoll_resp::{ClusterRequest, RingRequest};

/// Most keys of a slot that are listed.
const KEYS_MAX: usize = 10_000;

impl Executor<'_> {
    /// `AT.RING`.
    pub(super) fn ring(&mut self, request: &RingRequest) {
        let changes = match request {
            RingRequest::Status => {
                self.session.is_tired = true;
                let table = self.here.table.clone();
                let heard = self.here.slots.group_heard(self.here.now);
                let others = self.here.slots.others_seen();
                let keyspace = self.session.keyspace;
                return table.write_status(keyspace, heard, &others, &mut self.writer());
            }
            RingRequest::Leave(node) => vec![Change::Leave { node: NodeId(*node) }],
            RingRequest::Stay(node) => vec![Change::Stay { node: NodeId(*node) }],
            RingRequest::Recover(slots) => {
                let slots = slots.iter().map(|&slot| slot_at(self.session.keyspace, slot));
                slots.map(|slot| Change::Recover { slot }).collect()
            }
        };
        match self.here.slots.ask_group(changes) {
            Ok(()) => self.writer().ok(),
            Err(problem) => self.error("ERR", problem),
        }
    }

    pub(super) fn cluster(&mut self, request: &ClusterRequest<'_>) {
        let (table, keyspace) = (self.here.table.clone(), self.session.keyspace);
        match *request {
            ClusterRequest::Slots => {
                let protocol = self.session.protocol;
                self.outbox.target().extend_from_slice(table.slots_reply(keyspace, protocol));
            }
            ClusterRequest::Shards => table.write_shards(keyspace, &mut self.writer()),
            ClusterRequest::Nodes => self.writer().text(&table.nodes_text(keyspace)),
            ClusterRequest::Info => self.writer().text(&table.info_text(keyspace)),
            ClusterRequest::MyId => {
                let name = self.here.shared.chosen.name;
                self.writer().string(name.as_str().as_bytes());
            }
            ClusterRequest::KeySlot(key) => self.writer().integer(slot_of(key).into()),
            ClusterRequest::CountKeys(slot) => self.count_keys(slot),
            ClusterRequest::Keys { slot, count } => {
                let most = usize::try_from(count).unwrap_or(KEYS_MAX).min(KEYS_MAX);
                self.keys_of_slot(slot, most);
            }
            _ => self.error("ERR", "this node does not do that"),
        }
    }
}
