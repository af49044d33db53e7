//! Members that end and restart: from their folders, or without what they had.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use atoll_council::{CouncilError, Listen};
use atoll_replica::{Change, Incarnation, KeyspaceRules, NodeId, Survived, Table};
use std::sync::Arc;
use support::{Node, group, is_founded, options};

fn listen(members: &[(NodeId, std::net::SocketAddr)], me: u32) -> Option<Listen> {
    Some(Listen::On(members[me as usize - 1].1))
}

#[test]
fn a_member_that_was_ended_goes_on_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, members) = group(3, 64, Some(folder.path()));
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    nodes[0].kill();
    nodes[1].until_table("it is given up", |table| !table.members[&NodeId(1)].is_up);
    nodes[0] = Node::start(options(1, &members, 64, listen(&members, 1), Some(folder.path())));
    nodes[0].until("it is heard, in another life", |told| {
        !told.heard.is_empty() && told.incarnation == Some(Incarnation(2))
    });
    // Without each other the other two cannot agree: so the one that came back counts.
    nodes[1].kill();
    nodes[2].until_table("the next one is given up", |table| !table.members[&NodeId(2)].is_up);
}

#[test]
fn a_table_outlives_all_members() {
    let folder = tempfile::tempdir().unwrap();
    let (nodes, members) = group(3, 1_000, Some(folder.path()));
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let (before, ring) = (nodes[0].table(), nodes[0].told(|told| told.ring));
    drop(nodes);
    for round in 2..4 {
        let nodes: Vec<_> = (1..=3)
            .map(|me| {
                let options = options(me, &members, 1_000, listen(&members, me), Some(folder.path()));
                Node::try_start(options, Survived::Everything).unwrap()
            })
            .collect();
        for node in &nodes {
            node.until("it begins another life", |told| told.incarnation == Some(Incarnation(round)));
            assert_eq!(node.told(|told| told.ring), ring);
            node.until_table("all are up", |table| is_all_of(table, &before));
        }
    }
}

/// Whether all nodes are up and have the copies that they had.
fn is_all_of(table: &Table, before: &Arc<Table>) -> bool {
    let same = table.slots.iter().zip(before.slots.iter());
    table.members.values().all(|member| member.is_up)
        && same.into_iter().all(|(now, before)| {
            now.primary.is_some()
                && now.epoch > before.epoch
                && before.in_sync.iter().all(|node| now.in_sync.contains(node))
        })
}

#[test]
fn a_node_of_another_ring_is_not_registered() {
    let (mut nodes, members) = group(3, 64, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let ring = nodes[0].told(|told| told.ring.unwrap());
    nodes[2].kill();
    nodes[0].until_table("it is given up", |table| !table.members[&NodeId(3)].is_up);
    let mut options = options(3, &members, 64, listen(&members, 3), None);
    options.of_ring = Some(ring + 1);
    nodes[2] = Node::try_start(options, Survived::Everything).unwrap();
    nodes[2].until("it is refused", |told| {
        told.troubles.iter().any(|trouble| matches!(trouble, CouncilError::OtherRing))
    });
    let third = nodes[0].table().members[&NodeId(3)].clone();
    assert_eq!((third.incarnation, third.is_up), (Incarnation(1), false), "it has said what it has");
}

#[test]
fn a_member_that_lost_its_memory_comes_back_and_counts() {
    let (mut nodes, members) = group(3, 16, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    // Each of them in turn, so that in the end no seat is left of those that founded the group.
    for me in 1..=3 {
        let at = me as usize - 1;
        nodes[at].kill();
        let another = if me == 1 { 1 } else { 0 };
        nodes[another].until_table("it is given up", |table| !table.members[&NodeId(me)].is_up);
        nodes[at] = Node::start(options(me, &members, 16, listen(&members, me), None));
        nodes[at].until("it is heard", |told| !told.heard.is_empty());
        nodes[at].until("it counts", |told| told.is_seated);
        nodes[another].until_table("it is up", |table| table.members.values().all(|member| member.is_up));
    }
}

#[test]
fn a_member_whose_old_folder_comes_back_counts_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, members) = group(3, 16, Some(folder.path()));
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    let (mounted, aside) = (folder.path().join("n2"), folder.path().join("aside"));
    let start = || Node::start(options(2, &members, 16, listen(&members, 2), Some(folder.path())));
    nodes[1].kill();
    // Its disk is missing when it restarts, and appears later.
    std::fs::rename(&mounted, &aside).unwrap();
    nodes[1] = start();
    nodes[1].until("it counts on another seat", |told| told.is_seated);
    nodes[1].kill();
    std::fs::remove_dir_all(&mounted).unwrap();
    std::fs::rename(&aside, &mounted).unwrap();
    nodes[1] = start();
    nodes[1].until("it counts on the seat that it had", |told| told.is_seated);
    nodes[0].kill();
    nodes[2].until_table("the other two decide", |table| !table.members[&NodeId(1)].is_up);
}

#[test]
fn a_group_of_which_more_than_half_lost_their_memory_says_so() {
    let (mut nodes, members) = group(3, 16, None);
    nodes.iter().for_each(|node| node.until_table("founded", |table| is_founded(table, 3)));
    nodes.iter().for_each(|node| node.until("it counts", |told| told.is_seated));
    nodes[0].kill();
    nodes[1].kill();
    for me in [1, 2] {
        nodes[me as usize - 1] = Node::start(options(me, &members, 16, listen(&members, me), None));
    }
    let lost = [NodeId(1), NodeId(2)];
    for node in &nodes[..2] {
        node.until("it is told", |told| {
            told.troubles.iter().any(|trouble| match trouble {
                CouncilError::QuorumLost { lost: named, kept } => {
                    named.len() == 2
                        && lost.iter().all(|node| named.contains(node))
                        && kept[..] == [NodeId(3)]
                }
                _ => false,
            })
        });
        assert!(
            node.told(|told| told.incarnation.is_none()),
            "a group of two founded itself beside the old one"
        );
    }
}

/// A group of one that has made several snapshots and cut its log, and has ended; and its address.
fn cut_log(folder: &std::path::Path) -> Vec<(NodeId, std::net::SocketAddr)> {
    let (listeners, members) = support::sockets(1);
    let listen = listeners.into_iter().next().map(Listen::Bound);
    let mut options = options(1, &members, 8, listen, Some(folder));
    options.snapshot_entries = 10;
    let node = Node::start(options);
    node.until_table("founded", |table| is_founded(table, 1));
    let rules =
        KeyspaceRules { name: "scratch".into(), copies: 1, in_sync_min: 1, latency_ms: 0, durability: None };
    node.council().change(Change::Keyspace(rules)).unwrap();
    for _ in 0..60 {
        node.council().change(Change::Stay { node: NodeId(9) }).unwrap();
    }
    members
}

/// Where the address of node 1 stands in its log: in its registration, and once in each snapshot.
fn places_of_address(log: &[u8]) -> Vec<usize> {
    let address = b"127.0.0.1:7001";
    (0..log.len()).filter(|&at| log[at..].starts_with(address)).collect()
}

#[test]
fn a_member_goes_on_from_a_log_that_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let members = cut_log(folder.path());
    for life in 2..4 {
        let node = Node::start(options(1, &members, 8, listen(&members, 1), Some(folder.path())));
        node.until("it begins another life", |told| told.incarnation == Some(Incarnation(life)));
        node.until_table("it knows what was decided before", |table| table.keyspaces.len() == 1);
        node.until("it counts", |told| told.is_seated);
    }
}

#[test]
fn a_damaged_snapshot_is_an_error_that_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let members = cut_log(folder.path());
    let path = folder.path().join("n1").join("log");
    let mut bytes = std::fs::read(&path).unwrap();
    let places = places_of_address(&bytes);
    assert!(places.len() >= 4, "it made several snapshots: {places:?}");
    // Not in the last one, which may be the last record: that could as well have been torn.
    let place = places[places.len() - 2];
    bytes[place] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let again =
        Node::try_start(options(1, &members, 8, listen(&members, 1), Some(folder.path())), Survived::Nothing);
    match again.err() {
        Some(CouncilError::Damaged { path: named, at, .. }) => {
            assert_eq!(named, path);
            assert!(at <= place as u64 && place as u64 - at < 1_000, "{at} is not where {place} is");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_folder_is_used_by_one_only() {
    let folder = tempfile::tempdir().unwrap();
    let (nodes, members) = group(1, 8, Some(folder.path()));
    let listen = Some(Listen::On("127.0.0.1:0".parse().unwrap()));
    let again = Node::try_start(options(1, &members, 8, listen, Some(folder.path())), Survived::Nothing);
    assert!(matches!(again.err(), Some(CouncilError::InUse { .. })));
    drop(nodes);
}

#[test]
fn a_damaged_log_is_an_error_that_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let (nodes, members) = group(1, 8, Some(folder.path()));
    nodes[0].until_table("founded", |table| is_founded(table, 1));
    drop(nodes);
    let path = folder.path().join("n1").join("log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let again =
        Node::try_start(options(1, &members, 8, listen(&members, 1), Some(folder.path())), Survived::Nothing);
    match again.err() {
        Some(CouncilError::Damaged { path: named, .. }) => assert_eq!(named, path),
        other => panic!("{other:?}"),
    }
}
