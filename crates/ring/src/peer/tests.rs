//! Nodes that reach each other, or another node than they meant.
#![allow(clippy::disallowed_methods, reason = "a test has sockets of its own")]

use super::*;
use crate::warned;
use atoll_replica::Version;
use std::io::Write;
use std::net::SocketAddr;

fn peers(registry: &Registry) -> (Peers, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Peers::listen(NodeId(1), (None, None), listener, registry).unwrap(), address)
}

/// A node of ring 7 in some incarnation, and what it received.
struct Node {
    peers: Peers,
    poll: mio::Poll,
    at: SocketAddr,
    heard: Vec<(NodeId, Incarnation, Spoken)>,
}

impl Node {
    fn begin(node: u32, life: u64) -> Self {
        let poll = mio::Poll::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut peers = Peers::listen(NodeId(node), (None, None), listener, poll.registry()).unwrap();
        peers.begin(Incarnation(life), 7, poll.registry());
        Self { peers, poll, at, heard: Vec::new() }
    }

    /// Sets the addresses of these nodes.
    fn told(&mut self, nodes: &[(u32, SocketAddr)]) {
        let address = |at| PeerAddress::new([at], String::new());
        let addresses = nodes.iter().map(|&(node, at)| (NodeId(node), address(at))).collect();
        self.peers.set_addresses(&addresses, self.poll.registry());
    }

    /// Does the work that is due at this moment.
    fn turn(&mut self, now: Moment) {
        self.peers.flush(now, 0, self.poll.registry());
        let mut events = mio::Events::with_capacity(64);
        self.poll.poll(&mut events, Some(std::time::Duration::from_millis(1))).unwrap();
        let heard = &mut self.heard;
        let hear = &mut |from, life, spoken| heard.push((from, life, spoken));
        events.iter().for_each(|event| self.peers.notice(event, self.poll.registry(), hear));
    }

    /// The connections on which nodes are heard, with their incarnations.
    fn heard_on(&self) -> Vec<(usize, Incarnation)> {
        let greeted = |(&token, heard): (&usize, &Accepted)| Some((token, heard.greeting()?.incarnation));
        self.peers.accepted.iter().filter_map(greeted).collect()
    }
}

#[test]
fn a_node_that_is_taken_for_another_one_as_well_hears_what_is_meant_for_it_alone() {
    let (mut first, mut third) = (Node::begin(1, 1), Node::begin(3, 1));
    third.told(&[(1, first.at), (2, first.at)]);
    let mut on = Vec::new();
    for round in 1..=200 {
        for node in [2, 1] {
            third.peers.say(NodeId(node), &Message::TableIs { version: Version(node.into()) });
        }
        let now = Moment(round * 10_000);
        third.turn(now);
        first.turn(now);
        on.extend(first.heard_on());
    }
    on.dedup();
    assert_eq!(on.len(), 1, "it stays on one connection: {on:?}");
    let said = |(_, _, spoken): &(_, _, Spoken)| match spoken {
        Spoken::Message(Message::TableIs { version }) => Some(version.0),
        _ => None,
    };
    let heard: Vec<_> = first.heard.iter().filter_map(said).collect();
    assert!(heard.len() > 50 && heard.iter().all(|version| *version == 1), "{heard:?}");
}

#[test]
fn a_former_life_of_a_node_does_not_end_what_its_present_one_says() {
    let mut first = Node::begin(1, 1);
    let (mut present, mut former) = (Node::begin(2, 5), Node::begin(2, 4));
    let (mut now, mut on) = (Moment(1), Vec::new());
    let warned = warned::times(|| {
        present.told(&[(1, first.at)]);
        while first.heard_on().is_empty() {
            now = now.after(10_000);
            present.turn(now);
            first.turn(now);
        }
        on = first.heard_on();
        former.told(&[(1, first.at)]);
        for _ in 0..100 {
            now = now.after(10_000);
            former.turn(now);
            present.turn(now);
            first.turn(now);
            assert!(first.heard_on().contains(&on[0]), "{:?}", first.heard_on());
        }
    });
    assert!(first.peers.accepted_last > 3 && warned <= 3, "{} tries, {warned}", first.peers.accepted_last);
    // A new incarnation is let in at once, and ends the connection of the one before.
    let mut next = Node::begin(2, 6);
    next.told(&[(1, first.at)]);
    while first.heard_on().iter().all(|(_, life)| *life != Incarnation(6)) {
        now = now.after(10_000);
        next.turn(now);
        first.turn(now);
    }
    assert_eq!(first.heard_on().len(), 1);
}

#[test]
fn who_greeted_as_a_node_of_another_ring_is_heard_no_more_once_a_node_knows_its_own() {
    let (mut first, mut second) = (Node::begin(1, 0), Node::begin(2, 1));
    second.told(&[(1, first.at)]);
    let mut now = Moment(1);
    while first.heard_on().is_empty() {
        now = now.after(10_000);
        second.turn(now);
        first.turn(now);
    }
    first.peers.begin(Incarnation(1), 7, first.poll.registry());
    assert_eq!(first.heard_on().len(), 1);
    first.peers.begin(Incarnation(1), 8, first.poll.registry());
    assert_eq!(first.heard_on(), []);
}

#[test]
fn a_node_is_reached_at_whichever_of_its_addresses_it_listens_and_is_sought_only_while_it_is_not() {
    let (mut first, mut second) = (Node::begin(1, 1), Node::begin(2, 1));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = PeerAddress::new([nobody, first.at], String::new());
    second.peers.set_addresses(&BTreeMap::from([(NodeId(1), address)]), second.poll.registry());
    let mut now = Moment(1);
    let mut turn = |first: Option<&mut Node>, second: &mut Node| {
        now = now.after(100_000);
        second.turn(now);
        first.into_iter().for_each(|first| first.turn(now));
        second.peers.take_lost()
    };
    let is_heard = (0..100).any(|_| {
        turn(Some(&mut first), &mut second);
        !first.heard_on().is_empty()
    });
    assert!(is_heard && second.peers.unreached().count() == 0);
    let sought: Vec<_> = (0..50).flat_map(|_| turn(Some(&mut first), &mut second)).collect();
    assert_eq!(sought, []);
    drop(first);
    let sought: Vec<_> = (0..50).flat_map(|_| turn(None, &mut second)).collect();
    assert_eq!(sought, [NodeId(1)], "once in three seconds");
}

#[test]
fn a_node_that_nobody_finds_is_not_reached() {
    let mut first = Node::begin(1, 1);
    let nobody = BTreeMap::from([(NodeId(1), None), (NodeId(2), None)]);
    first.peers.set_addresses(&nobody, first.poll.registry());
    assert_eq!(first.peers.unreached().collect::<Vec<_>>(), [NodeId(2)]);
}

#[test]
fn who_could_not_be_accepted_is_accepted_later_though_the_poll_tells_of_nothing() {
    let poll = mio::Poll::new().unwrap();
    let (mut peers, address) = peers(poll.registry());
    peers.flush(Moment(1_000_000), 0, poll.registry());
    let _dialled = std::net::TcpStream::connect(address).unwrap();
    peers.flush(Moment(1_000_001), 0, poll.registry());
    assert_eq!(peers.accepted.len(), 0, "it costs a call of the system");
    peers.flush(Moment(1_200_000), 0, poll.registry());
    assert_eq!(peers.accepted.len(), 1);
}

#[test]
fn of_any_number_of_strangers_little_is_said_in_the_log() {
    let mut poll = mio::Poll::new().unwrap();
    let (mut peers, address) = peers(poll.registry());
    let mut events = mio::Events::with_capacity(64);
    let warned = warned::times(|| {
        peers.flush(Moment(1_000_000), 0, poll.registry());
        for _ in 0..50 {
            let mut stranger = std::net::TcpStream::connect(address).unwrap();
            stranger.write_all(&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4)).unwrap();
            peers.accept(poll.registry());
            while !peers.accepted.is_empty() {
                poll.poll(&mut events, None).unwrap();
                events.iter().for_each(|event| peers.notice(event, poll.registry(), &mut |_, _, _| ()));
            }
        }
        peers.flush(Moment(2_000_000), 0, poll.registry());
        peers.flush(Moment(4_000_000), 0, poll.registry());
    });
    assert_eq!(warned, 2, "the first one, and how many came behind it");
}

#[test]
fn of_those_who_dial_so_many_are_accepted_at_a_time() {
    let poll = mio::Poll::new().unwrap();
    let (mut peers, address) = peers(poll.registry());
    let _dialled: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    peers.accept(poll.registry());
    assert_eq!(peers.accepted_last, 64);
    peers.flush(Moment(0), 0, poll.registry());
    assert_eq!(peers.accepted_last, 100);
}

#[test]
fn as_many_nodes_are_heard_as_the_table_has_and_no_number_of_sockets_beyond_a_limit() {
    for others in [0, 2, 1_025, 1_500, 10_000] {
        assert!(accepted_max(others) >= others + STRANGERS_MAX, "{others}");
    }
    assert_eq!(accepted_max(usize::MAX), 65_536);
}
