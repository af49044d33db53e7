//! `CLUSTER`, `AT.TABLE` and `AT.RING`: which node has which slots.

use super::Executor;
use crate::keyspaces::slot_at;
use atoll_keyspace::slot_of;
use atoll_replica::{Change, NodeId, Version};
use atoll_resp::{ClusterRequest, RingRequest, TableVersion};

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
                let shared = self.here.shared.clone();
                let setup = shared.chosen.setup.as_deref();
                return table.write_status(keyspace, heard, &others, setup, &mut self.writer());
            }
            RingRequest::Leave(node) => vec![Change::Leave { node: NodeId(*node) }],
            RingRequest::Stay(node) => vec![Change::Stay { node: NodeId(*node) }],
            RingRequest::Recover { version, slots } => {
                let seen = Version(*version);
                let slots = slots.iter().map(|&slot| slot_at(self.session.keyspace, slot));
                slots.map(|slot| Change::Recover { slot, seen }).collect()
            }
        };
        match self.here.slots.ask_group(changes) {
            Ok(()) => self.writer().ok(),
            Err(problem) => self.error("ERR", problem),
        }
    }

    /// `AT.TABLE`, for a client that knows this version of the table. If this node's own table is older, the
    /// client is told of no nodes and slots either: it knows better.
    pub(super) fn slot_table(&mut self, known: Option<TableVersion<'_>>) {
        let (table, keyspace) = (self.here.table.clone(), self.session.keyspace);
        let of = self.ring_name().map(|ring| format!("{ring}.{keyspace}"));
        let version = of.as_ref().map(|of| TableVersion { of: of.as_bytes(), number: table.version().0 });
        let mut writer = self.writer();
        writer.map(3);
        writer.string(b"version");
        match version {
            Some(version) => writer.string(&version.text()),
            None => writer.null(),
        }
        if known.zip(version).is_some_and(|(known, version)| known.is_at_least(&version)) {
            for name in ["nodes", "slots"] {
                writer.string(name.as_bytes());
                writer.null_array();
            }
        } else {
            self.outbox.target().extend_from_slice(table.leaders_reply(keyspace));
        }
    }

    /// What no other ring is called; none until the configuration group told it. Tables of a node that is the
    /// whole ring are counted from 0 by each process, so each of them is a ring of its own here.
    fn ring_name(&self) -> Option<String> {
        match self.here.slots.is_alone() {
            true => Some(self.here.shared.chosen.run_id.to_string()),
            false => self.here.slots.ring().map(|ring| format!("{ring:016x}")),
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
            _ => self.error("ERR", "this node does not do that"),
        }
    }
}
