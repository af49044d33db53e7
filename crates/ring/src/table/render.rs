//! What `CLUSTER` answers about the table.
//!
//! Clients learn the primaries only, for nobody else answers; a node without slots is told of all the same, since they may
//! ask it where slots are.

use super::{SlotRange, SlotTable};
use crate::group::GroupHeard;
use atoll_keyspace::SLOTS;
use atoll_replica::NodeId;
use atoll_resp::{Protocol, ReplyWriter};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Ranges of slots that nobody answers for, of which a status tells at most.
const DOWN_MAX: usize = 256;

impl SlotTable {
    /// `CLUSTER SLOTS`, which each client asks for whenever it was told to go elsewhere: written once.
    pub(crate) fn slots_reply(&self, protocol: Protocol) -> &[u8] {
        let [second, third] = &self.rendered;
        let rendered = if protocol == Protocol::Resp2 { second } else { third };
        rendered.get_or_init(|| {
            let mut reply = Vec::new();
            self.write_slots(&mut ReplyWriter::new(&mut reply, protocol));
            reply.into_boxed_slice()
        })
    }

    fn write_slots(&self, writer: &mut ReplyWriter<'_>) {
        let of_node = |place| self.slots_of(place).map(move |range| (place, range));
        let mut ranges: Vec<_> = (0..self.nodes.len()).flat_map(of_node).collect();
        ranges.sort_unstable_by_key(|&(_, (first, _))| first);
        writer.array(ranges.len());
        for (place, (first, last)) in ranges {
            let Some(node) = self.nodes.get(place) else { continue };
            writer.array(3);
            writer.integer(first.into());
            writer.integer(last.into());
            writer.array(4);
            writer.string(node.address.clients.host.as_bytes());
            writer.integer(node.address.clients.port.into());
            writer.string(node.address.name.as_str().as_bytes());
            writer.map(0);
        }
    }

    /// `CLUSTER SHARDS`.
    pub(crate) fn write_shards(&self, writer: &mut ReplyWriter<'_>) {
        writer.array(self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            writer.map(2);
            writer.string(b"slots");
            let ranges: Vec<_> = self.slots_of(place).collect();
            writer.array(ranges.len() * 2);
            for (first, last) in ranges {
                writer.integer(first.into());
                writer.integer(last.into());
            }
            writer.string(b"nodes");
            writer.array(1);
            writer.map(7);
            let host = node.address.clients.host.as_bytes();
            let mut text = |name: &str, value: &[u8]| {
                writer.string(name.as_bytes());
                writer.string(value);
            };
            text("id", node.address.name.as_str().as_bytes());
            text("ip", host);
            text("endpoint", host);
            text("role", b"master");
            text("health", if node.is_up { b"online" } else { b"fail" });
            for (name, number) in [("port", node.address.clients.port.into()), ("replication-offset", 0)] {
                writer.string(name.as_bytes());
                writer.integer(number);
            }
        }
    }

    /// `CLUSTER NODES`.
    pub(crate) fn nodes_text(&self) -> String {
        let mut text = String::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let is_me = self.me.map(usize::from) == Some(place);
            let flags = match (is_me, node.is_up) {
                (true, _) => "myself,master",
                (false, true) => "master",
                (false, false) => "master,fail",
            };
            let link = if is_me || node.is_up { "connected" } else { "disconnected" };
            let address = &node.address;
            // Clients take the number in brackets apart from the right, so it stands here without them, as with Redis.
            let (host, port) = (&address.clients.host, address.clients.port);
            let peers = address.peers.port;
            let epoch = node.epoch;
            let _ = write!(text, "{} {host}:{port}@{peers} {flags} - 0 0 {epoch} {link}", address.name);
            for (first, last) in self.slots_of(place) {
                let _ =
                    if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
            }
            text.push('\n');
        }
        text
    }

    /// `AT.RING STATUS`, of a node that heard the configuration group last as is told, and that knows how many entries other
    /// nodes lack of what it leads.
    pub(crate) fn write_status(
        &self,
        group: GroupHeard,
        behind: &BTreeMap<NodeId, u64>,
        writer: &mut ReplyWriter<'_>,
    ) {
        let number = |writer: &mut ReplyWriter<'_>, name: &str, number: u64| {
            writer.string(name.as_bytes());
            writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
        };
        let me = self.me.and_then(|place| self.nodes.get(usize::from(place)));
        writer.map(10);
        number(writer, "node", me.map_or(0, |node| node.id.0.into()));
        number(writer, "version", self.version.0);
        let silent_ms = u64::try_from(group.silence.as_millis()).unwrap_or(u64::MAX);
        number(writer, "group_silent_ms", silent_ms);
        number(writer, "group_leader", group.leader.map_or(0, |leader| leader.0.into()));
        number(writer, "slots", self.routes.len() as u64);
        number(writer, "served", self.served().1);
        let copies = self.ranges.iter().map(|range| range.in_sync.len()).min().unwrap_or(0);
        number(writer, "copies_in_sync_min", copies as u64);
        writer.string(b"nodes");
        writer.array(self.nodes.len());
        for node in &self.nodes {
            writer.map(7);
            number(writer, "node", node.id.0.into());
            writer.string(b"address");
            writer.string(node.address.clients.to_string().as_bytes());
            number(writer, "up", node.is_up.into());
            number(writer, "leaving", node.is_leaving.into());
            number(writer, "leads", node.leads.into());
            number(writer, "in_sync", node.in_sync.into());
            number(writer, "catching_up", node.joining.into());
        }
        writer.string(b"behind");
        writer.array(behind.len());
        for (node, &entries) in behind {
            writer.array(2);
            writer.integer(node.0.into());
            writer.integer(i64::try_from(entries).unwrap_or(i64::MAX));
        }
        self.write_down(writer);
    }

    /// The first ranges of slots that nobody answers for: first, last, and the nodes that had their last copies.
    fn write_down(&self, writer: &mut ReplyWriter<'_>) {
        // The last copy of a slot stays its primary while its node is down: nobody else may take its place.
        let is_up = |place| self.nodes.get(usize::from(place)).is_some_and(|node| node.is_up);
        let is_down = |range: &&SlotRange| !range.primary.is_some_and(is_up);
        writer.string(b"down");
        writer.array(self.ranges.iter().filter(is_down).take(DOWN_MAX).count());
        for range in self.ranges.iter().filter(is_down).take(DOWN_MAX) {
            writer.array(2 + range.in_sync.len());
            writer.integer(range.first.into());
            writer.integer(range.last.into());
            range.in_sync.iter().for_each(|node| writer.integer(node.0.into()));
        }
    }

    /// `CLUSTER INFO`.
    pub(crate) fn info_text(&self) -> String {
        let assigned = self.routes.iter().filter(|&&place| place != super::NONE).count();
        let is_whole = assigned == usize::from(SLOTS);
        let size = (0..self.nodes.len()).filter(|&place| self.slots_of(place).next().is_some()).count();
        let epochs = self.nodes.iter().map(|node| node.epoch);
        let own = self.me.and_then(|place| self.nodes.get(usize::from(place))).map_or(0, |node| node.epoch);
        let copies = self.ranges.iter().map(|range| range.in_sync.len()).min().unwrap_or(0);
        let state = if is_whole { "ok" } else { "fail" };
        [
            format!("cluster_state:{state}"),
            format!("cluster_slots_assigned:{assigned}"),
            format!("cluster_slots_ok:{assigned}"),
            "cluster_slots_pfail:0".to_owned(),
            "cluster_slots_fail:0".to_owned(),
            format!("cluster_known_nodes:{}", self.nodes.len()),
            format!("cluster_size:{size}"),
            format!("cluster_current_epoch:{}", epochs.max().unwrap_or(0)),
            format!("cluster_my_epoch:{own}"),
            // Not a word of Redis: how many copies in sync the slot has that has fewest.
            format!("cluster_copies_in_sync_min:{copies}"),
            "cluster_stats_messages_sent:0".to_owned(),
            "cluster_stats_messages_received:0".to_owned(),
            "total_cluster_links_buffer_limit_exceeded:0".to_owned(),
            String::new(),
        ]
        .join("\r\n")
    }
}
