//! What `CLUSTER` answers about the table.
//!
//! Clients learn of primaries only, since no other node answers. A node without slots is listed as well,
//! because clients may ask it where slots are.

use super::SlotTable;
use super::count::Counts;
use crate::address::{HostPort, NodeAddress};
use crate::group::GroupHeard;
use crate::metrics::OthersSeen;
use crate::setup::RingSetup;
use atoll_replica::{Configuration, Epoch, NodeId};
use atoll_resp::{Protocol, ReplyWriter};
use std::fmt::Write;

/// The list of `AT.TABLE` for a keyspace that does not exist.
const NOBODY: &[u8] = b"$5\r\nnodes\r\n*0\r\n$5\r\nslots\r\n*0\r\n";

impl SlotTable {
    /// `CLUSTER SLOTS`, which clients of Redis ask for after each redirection: rendered once.
    pub(crate) fn slots_reply(&self, keyspace: u8, protocol: Protocol) -> &[u8] {
        let Some([second, third, _]) = self.rendered.get(usize::from(keyspace)) else { return b"*0\r\n" };
        let rendered = if protocol == Protocol::Resp2 { second } else { third };
        rendered.get_or_init(|| {
            let mut reply = Vec::new();
            self.write_slots(keyspace, &mut ReplyWriter::new(&mut reply, protocol));
            reply.into_boxed_slice()
        })
    }

    fn write_slots(&self, keyspace: u8, writer: &mut ReplyWriter<'_>) {
        writer.array(self.ranges(keyspace).count());
        // Parsed once: most nodes have few ranges, but a node may come up many times.
        let addresses: Vec<Option<NodeAddress>> = self.addresses();
        for (first, last, place) in self.ranges(keyspace) {
            let Some(Some(address)) = addresses.get(place) else { continue };
            writer.array(3);
            writer.integer(number(first));
            writer.integer(number(last));
            writer.array(4);
            writer.string(address.clients.host.as_bytes());
            writer.integer(address.clients.port.into());
            writer.string(address.name.as_str().as_bytes());
            writer.map(0);
        }
    }

    /// The part of `AT.TABLE` behind the version, for a client that has another table: its pairs `nodes` and
    /// `slots`, rendered once. They are the same in both versions of the protocol.
    pub(crate) fn leaders_reply(&self, keyspace: u8) -> &[u8] {
        let Some([.., listed]) = self.rendered.get(usize::from(keyspace)) else { return NOBODY };
        listed.get_or_init(|| {
            let mut reply = Vec::new();
            self.write_leaders(keyspace, &mut ReplyWriter::new(&mut reply, Protocol::Resp2));
            reply.into_boxed_slice()
        })
    }

    /// Names each node once: with scattered slots there are far more ranges than nodes.
    fn write_leaders(&self, keyspace: u8, writer: &mut ReplyWriter<'_>) {
        let mut places: Vec<usize> = self.ranges(keyspace).map(|(.., place)| place).collect();
        places.sort_unstable();
        places.dedup();
        let leaders = places.into_iter().filter_map(|place| Some((place, self.address(place)?.clients)));
        let leaders: Vec<(usize, HostPort)> = leaders.collect();
        writer.string(b"nodes");
        writer.array(leaders.len());
        for (_, HostPort { host, port }) in &leaders {
            writer.array(2);
            writer.string(host.as_bytes());
            writer.integer((*port).into());
        }
        let range = |(first, last, place): (usize, usize, usize)| {
            let leader = leaders.binary_search_by_key(&place, |(place, _)| *place).ok()?;
            Some([first, last, leader])
        };
        let ranges: Vec<[usize; 3]> = self.ranges(keyspace).filter_map(range).collect();
        writer.string(b"slots");
        writer.array(ranges.len() * 3);
        ranges.iter().flatten().for_each(|&one| writer.integer(number(one)));
    }

    /// The address of each node. All of them are readable.
    fn addresses(&self) -> Vec<Option<NodeAddress>> {
        (0..self.nodes.len()).map(|place| self.address(place)).collect()
    }

    /// Each node with its address and its ranges of a keyspace.
    fn described(&self, keyspace: u8) -> impl Iterator<Item = (Counts, NodeAddress, Vec<(usize, usize)>)> {
        let nodes = self.counts().iter().copied().zip(self.addresses()).zip(self.ranges_of_nodes(keyspace));
        nodes.filter_map(|((node, address), ranges)| Some((node, address?, ranges)))
    }

    /// `CLUSTER SHARDS`.
    pub(crate) fn write_shards(&self, keyspace: u8, writer: &mut ReplyWriter<'_>) {
        let nodes: Vec<_> = self.described(keyspace).collect();
        writer.array(nodes.len());
        for (node, address, ranges) in nodes {
            writer.map(2);
            writer.string(b"slots");
            writer.array(ranges.len() * 2);
            for (first, last) in ranges {
                writer.integer(number(first));
                writer.integer(number(last));
            }
            writer.string(b"nodes");
            writer.array(1);
            writer.map(7);
            let host = address.clients.host.as_bytes();
            let mut text = |name: &str, value: &[u8]| {
                writer.string(name.as_bytes());
                writer.string(value);
            };
            text("id", address.name.as_str().as_bytes());
            text("ip", host);
            text("endpoint", host);
            text("role", b"master");
            text("health", if node.is_up { b"online" } else { b"fail" });
            for (name, number) in [("port", address.clients.port.into()), ("replication-offset", 0)] {
                writer.string(name.as_bytes());
                writer.integer(number);
            }
        }
    }

    /// `CLUSTER NODES`.
    pub(crate) fn nodes_text(&self, keyspace: u8) -> String {
        let mut text = String::new();
        for (place, (node, address, ranges)) in self.described(keyspace).enumerate() {
            let is_me = self.me.map(usize::from) == Some(place);
            let flags = match (is_me, node.is_up) {
                (true, _) => "myself,master",
                (false, true) => "master",
                (false, false) => "master,fail",
            };
            let link = if is_me || node.is_up { "connected" } else { "disconnected" };
            // Clients split host and port from the right, so an IPv6 address stands here without brackets, as
            // in Redis.
            let (host, port) = (&address.clients.host, address.clients.port);
            let peers = address.peers.port;
            let epoch = node.epoch;
            let _ = write!(text, "{} {host}:{port}@{peers} {flags} - 0 0 {epoch} {link}", address.name);
            for (first, last) in ranges {
                let _ =
                    if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
            }
            text.push('\n');
        }
        text
    }

    /// `AT.RING STATUS`, given the last answer of the configuration group and what this node knows of the
    /// others and of the setup of its ring. Slots are counted over the whole ring; the number of copies and
    /// the slots that are down are of one keyspace.
    pub(crate) fn write_status(
        &self,
        keyspace: u8,
        group: GroupHeard,
        others: &OthersSeen,
        setup: Option<&RingSetup>,
        writer: &mut ReplyWriter<'_>,
    ) {
        let number = |writer: &mut ReplyWriter<'_>, name: &str, number: u64| {
            writer.string(name.as_bytes());
            writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
        };
        let me = self.me.and_then(|place| self.nodes.get(usize::from(place)));
        writer.map(17);
        number(writer, "node", me.map_or(0, |node| node.0.into()));
        number(writer, "version", self.version().0);
        let silent_ms = u64::try_from(group.silence.as_millis()).unwrap_or(u64::MAX);
        number(writer, "group_silent_ms", silent_ms);
        number(writer, "group_leader", group.leader.map_or(0, |leader| leader.0.into()));
        number(writer, "group_seat_lost", group.is_seat_lost.into());
        writer.string(b"clock_off_ms");
        writer.integer(others.clock.off_ms);
        number(writer, "clock_doubted", others.clock.is_doubted.into());
        number(writer, "slots", self.routes.len() as u64);
        number(writer, "served", self.served().1);
        number(writer, "copies_in_sync_min", self.seen_of(keyspace).1);
        writer.string(b"nodes");
        let nodes: Vec<_> = self.described(keyspace).collect();
        writer.array(nodes.len());
        for (node, address, _) in nodes {
            writer.map(9);
            number(writer, "node", node.id.0.into());
            writer.string(b"address");
            writer.string(address.clients.to_string().as_bytes());
            number(writer, "up", node.is_up.into());
            number(writer, "leaving", node.is_leaving.into());
            number(writer, "leads", node.leads.into());
            number(writer, "in_sync", node.in_sync.into());
            number(writer, "catching_up", node.joining.into());
            let member = self.table.members.get(&node.id);
            let zone = member.and_then(|member| self.table.zones.name(member.zone?));
            writer.string(b"zone");
            writer.string(zone.unwrap_or_default().as_bytes());
            number(writer, "weight", member.map_or(1, |member| member.weight.get().into()));
        }
        writer.string(b"behind");
        writer.array(others.behind.len());
        for (node, &entries) in &others.behind {
            writer.array(2);
            writer.integer(node.0.into());
            writer.integer(i64::try_from(entries).unwrap_or(i64::MAX));
        }
        writer.string(b"unreached");
        writer.array(others.unreached.len());
        others.unreached.iter().for_each(|node| writer.integer(node.0.into()));
        self.write_down(keyspace, writer);
        self.write_down_left(keyspace, writer);
        writer.string(b"keyspaces");
        let all: Vec<u8> = (0..=u8::MAX).take(self.table.keyspace_count()).collect();
        self.write_keyspaces(&all, writer);
        writer.string(b"setup");
        match setup {
            Some(setup) => setup.write(writer),
            None => writer.null(),
        }
    }

    /// Writes all ranges of slots without a live primary: first, last, and the numbers of the nodes that have
    /// their last copies.
    pub(super) fn write_down(&self, keyspace: u8, writer: &mut ReplyWriter<'_>) {
        let down = self.down(keyspace);
        writer.string(b"down");
        writer.array(down.len());
        for (first, last, left) in down {
            writer.array(2 + left.had_by.len());
            writer.integer(number(first));
            writer.integer(number(last));
            left.had_by.iter().for_each(|node| writer.integer(node.0.into()));
        }
    }

    /// Writes for each of these ranges what else is known of it: whether any node ever had it, and the nodes
    /// whose copies are behind.
    fn write_down_left(&self, keyspace: u8, writer: &mut ReplyWriter<'_>) {
        let down = self.down(keyspace);
        writer.string(b"down_left");
        writer.array(down.len());
        for (.., left) in down {
            writer.array(1 + left.catching_up.len());
            writer.integer(left.is_founded.into());
            left.catching_up.iter().for_each(|node| writer.integer(node.0.into()));
        }
    }

    /// All ranges of slots without a live primary: first, last, and what is left of them.
    fn down(&self, keyspace: u8) -> Vec<(usize, usize, Left)> {
        // The last copy of a slot stays its primary while its node is down: no other node may take over.
        let is_up = |node: NodeId| self.table.members.get(&node).is_some_and(|member| member.is_up);
        let is_down = |slot: &Configuration| !slot.primary.is_some_and(is_up);
        let mut down: Vec<(usize, usize, Left)> = Vec::new();
        for (at, slot) in self.slots_of(keyspace).enumerate().filter(|(_, slot)| is_down(slot)) {
            let left = Left::of(&slot);
            match down.last_mut().filter(|(_, last, of)| *last + 1 == at && *of == left) {
                Some((_, last, _)) => *last = at,
                None => down.push((at, at, left)),
            }
        }
        down
    }

    /// `CLUSTER INFO`.
    pub(crate) fn info_text(&self, keyspace: u8) -> String {
        let routes = self.routes_of(keyspace);
        let assigned = routes.iter().filter(|&&place| place != super::NONE).count();
        // A node that is down still leads the slots of which it has the last copy, and does not answer.
        let (served, copies) = self.seen_of(keyspace);
        let failed = (assigned as u64).saturating_sub(served);
        // A failed state would tell clients that nothing is served here at all, and some would not even ask.
        let is_whole = assigned == routes.len();
        let counts = self.counts();
        let size = counts.iter().filter(|node| node.leads > 0).count();
        let epochs = counts.iter().map(|node| node.epoch);
        let own = self.me.and_then(|place| counts.get(usize::from(place))).map_or(0, |node| node.epoch);
        let state = if is_whole { "ok" } else { "fail" };
        [
            format!("cluster_state:{state}"),
            format!("cluster_slots_assigned:{assigned}"),
            format!("cluster_slots_ok:{served}"),
            "cluster_slots_pfail:0".to_owned(),
            format!("cluster_slots_fail:{failed}"),
            format!("cluster_known_nodes:{}", self.nodes.len()),
            format!("cluster_size:{size}"),
            format!("cluster_current_epoch:{}", epochs.max().unwrap_or(0)),
            format!("cluster_my_epoch:{own}"),
            // Not a field of Redis: the fewest in-sync copies that any slot has.
            format!("cluster_copies_in_sync_min:{copies}"),
            "cluster_stats_messages_sent:0".to_owned(),
            "cluster_stats_messages_received:0".to_owned(),
            "total_cluster_links_buffer_limit_exceeded:0".to_owned(),
            String::new(),
        ]
        .join("\r\n")
    }
}

/// What is left of a slot without a live primary.
#[derive(PartialEq, Eq)]
struct Left {
    /// Whether any node ever had it.
    is_founded: bool,
    /// The nodes with its last copies. None if each of them came back without its copy.
    had_by: Vec<NodeId>,
    /// The nodes whose copies are behind those, the one that was in sync last before the others.
    catching_up: Vec<NodeId>,
}

impl Left {
    fn of(slot: &Configuration) -> Self {
        let mut had_by: Vec<NodeId> = slot.in_sync.iter().collect();
        had_by.sort_unstable();
        Self { is_founded: slot.epoch != Epoch(0), had_by, catching_up: slot.joining.iter().collect() }
    }
}

fn number(slot: usize) -> i64 {
    i64::try_from(slot).unwrap_or(i64::MAX)
}
