//! The order in which a node takes events, and which messages from before its incarnation it drops.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::copies::GatheringRoom;
use crate::keyspaces::Keyspaces;
use crate::log::SlotLog;
use crate::loop_state::Choices;
use crate::peer::{PeerAddress, Peers};
use crate::table::SlotTable;
use atoll_disk::MemoryDisk;
use atoll_engine::Engine;
use atoll_keyspace::SLOTS;
use atoll_replica::{
    Change, Entry, Group, GroupOptions, KeyspaceRules, Message, Options, PlacementHints, Position, Sequence,
    SlotMessage, Survived,
};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Sender, channel};

#[test]
fn that_the_group_heard_this_node_is_taken_behind_the_newest_table() {
    let table = |version| {
        let table = Table { version: Version(version), ..Table::empty(1) };
        LoopEvent::Group(GroupEvent::Table(Arc::new(table)))
    };
    let heard = |us| LoopEvent::Group(GroupEvent::Heard(Moment(us), None));
    let told = vec![table(5), heard(1), LoopEvent::Synced(Ok(Vec::new())), heard(2), table(6), heard(3)];
    let taken = to_be_taken(told).into_iter().map(|one| match one {
        LoopEvent::Group(GroupEvent::Table(table)) => format!("table {}", table.version.0),
        LoopEvent::Group(GroupEvent::Heard(asked_at, _)) => format!("heard {}", asked_at.0),
        _ => "synced".to_owned(),
    });
    assert_eq!(taken.collect::<Vec<_>>(), ["synced", "table 6", "heard 1", "heard 2", "heard 3"]);
    assert_eq!(to_be_taken(vec![heard(1), LoopEvent::Synced(Ok(Vec::new()))]).len(), 2);
}

/// A node without an incarnation, and the channel that events come from.
fn node(me: NodeId, poll: &mio::Poll) -> (ReplicatedSlots, Sender<LoopEvent>) {
    let (node, tell, _) = node_at(me, poll);
    (node, tell)
}

/// The same, and the address at which other nodes reach it.
fn node_at(me: NodeId, poll: &mio::Poll) -> (ReplicatedSlots, Sender<LoopEvent>, SocketAddr) {
    let options = atoll_engine::Options { background: false, ..atoll_engine::Options::default() };
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options).unwrap();
    let keyspaces = Keyspaces::open(&engine, Persistence::Always).unwrap();
    let log = SlotLog::open(&engine, "log").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let peers = Peers::listen(me, (None, None), listener, poll.registry()).unwrap();
    let room = GatheringRoom::default();
    let copies = Copies::new(me, Options::default(), keyspaces, Some(log), peers, 1 << 20, room);
    let table = SlotTable::of(Arc::new(Table::empty(SLOTS.into())), me);
    let shared = Arc::new(Shared::new(Choices::of_test(Arc::new(SystemClock), at), table));
    let addresses = PeerAddresses::begin(at, |_| ()).unwrap();
    let (tell, told) = channel();
    let own = (me, Options::default().tick_us);
    (ReplicatedSlots::new(copies, told, None, shared, own, addresses), tell, at)
}

/// A ring of two nodes in their first incarnations, with a slot that the second one leads.
fn ring_of_two() -> (Arc<Table>, Slot) {
    let mut group = Group::new(GroupOptions { slots: SLOTS.into(), copies: 2 });
    for node in [1, 2].map(NodeId) {
        let (address, survived) = (String::new(), Survived::Nothing);
        group.apply(Change::Register { node, nonce: 1, address, hints: PlacementHints::default(), survived });
    }
    for change in group.plan(&[]) {
        group.apply(change);
    }
    let table = group.table();
    let led = |slot: &u32| table.slot(Slot(*slot)).primary == Some(NodeId(2));
    let slot = (0..u32::from(SLOTS)).find(led).unwrap();
    (table, Slot(slot))
}

#[test]
fn what_was_said_before_a_node_knows_its_ring_is_not_judged_by_the_table_that_came_with_it() {
    let poll = mio::Poll::new().unwrap();
    let (table, slot) = ring_of_two();
    let epoch = table.slot(slot).epoch;
    let body: Arc<[u8]> = b"\0*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n".as_slice().into();
    let append = || {
        let position = Position { epoch, sequence: Sequence(1) };
        let entries = vec![Entry { position, time_ms: 7, body: body.clone() }];
        let about =
            SlotMessage::Append { previous: Position::default(), entries, committed: Sequence::default() };
        (NodeId(2), Incarnation(1), Spoken::Message(Message::Slot { slot, epoch, about }))
    };
    let (mut node, tell) = node(NodeId(1), &poll);
    // The loop is late and finds all events in one pass: the sender may be the second node of another ring.
    node.heard.push(append());
    tell.send(LoopEvent::Group(GroupEvent::Registered(Incarnation(1), 7))).unwrap();
    tell.send(LoopEvent::Group(GroupEvent::Table(table))).unwrap();
    node.hear(SystemClock.now(), poll.registry()).unwrap();
    assert_eq!(node.copies.take_handed(), []);
    // From its own ring it takes the message.
    node.heard.push(append());
    node.hear(SystemClock.now(), poll.registry()).unwrap();
    assert_eq!(node.copies.take_handed().len(), 1);
}

/// A ring of two nodes with a keyspace that is flushed beside the first one, and a slot of each keyspace that
/// the second node leads.
fn ring_with_keyspace() -> (Arc<Table>, [Slot; 2]) {
    let mut group = Group::new(GroupOptions { slots: SLOTS.into(), copies: 2 });
    for node in [1, 2].map(NodeId) {
        let (address, survived) = (String::new(), Survived::Nothing);
        group.apply(Change::Register { node, nonce: 1, address, hints: PlacementHints::default(), survived });
    }
    let (name, durability) = ("quick".into(), Some(Persistence::EverySecond));
    group.apply(Change::Keyspace(KeyspaceRules {
        name,
        copies: 0,
        in_sync_min: 0,
        latency_ms: 0,
        durability,
    }));
    for change in group.plan(&[]) {
        group.apply(change);
    }
    let table = group.table();
    let led = |keyspace: u32| {
        let mut slots = (0..u32::from(SLOTS)).map(|number| Slot(keyspace * u32::from(SLOTS) + number));
        slots.find(|slot| table.slot(*slot).primary == Some(NodeId(2))).unwrap()
    };
    let slots = [led(0), led(1)];
    (table, slots)
}

/// Has a node log an entry of each of these slots. Returns the slots whose entries waited for a sync.
fn waited(table: &Arc<Table>, slots: &[Slot]) -> Vec<Slot> {
    let poll = mio::Poll::new().unwrap();
    let (mut node, tell) = node(NodeId(1), &poll);
    let (sender, synced) = channel();
    let engine = node.copies.keyspaces.engine().clone();
    let told = move |done: Result<Logged, EngineError>| drop(sender.send(done.unwrap_or_default()));
    node.syncer = Some(Syncer::start(engine, None, told).unwrap());
    tell.send(LoopEvent::Group(GroupEvent::Registered(Incarnation(1), 7))).unwrap();
    tell.send(LoopEvent::Group(GroupEvent::Table(table.clone()))).unwrap();
    node.hear(SystemClock.now(), poll.registry()).unwrap();
    for &slot in slots {
        let epoch = table.slot(slot).epoch;
        let body: Arc<[u8]> = b"\0*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n".as_slice().into();
        let position = Position { epoch, sequence: Sequence(1) };
        let entries = vec![Entry { position, time_ms: 7, body }];
        let (previous, committed) = (Position::default(), Sequence::default());
        let about = SlotMessage::Append { previous, entries, committed };
        let message = Spoken::Message(Message::Slot { slot, epoch, about });
        node.heard.push((NodeId(2), Incarnation(1), message));
    }
    let now = SystemClock.now();
    node.hear(now, poll.registry()).unwrap();
    node.settle(now, poll.registry()).unwrap();
    // What was logged at once is logged: nothing of it is left to be handed over.
    assert_eq!(node.copies.take_handed(), []);
    // The thread ends when everything that it was handed is synced.
    node.syncer = None;
    synced.try_iter().flatten().map(|(slot, ..)| slot).collect()
}

#[test]
fn entries_wait_for_a_sync_where_their_own_keyspace_asks_for_one() {
    let (table, [synced, flushed]) = ring_with_keyspace();
    assert_eq!(waited(&table, &[synced, flushed]), [synced]);
    assert_eq!(waited(&table, &[flushed, synced]), [synced]);
    assert_eq!(waited(&table, &[synced]), [synced]);
    assert_eq!(waited(&table, &[flushed]), []);
}

#[test]
fn a_node_in_memory_does_not_begin_where_writes_have_to_outlive_it() {
    let poll = mio::Poll::new().unwrap();
    let (table, _) = ring_with_keyspace();
    let (mut node, tell) = node(NodeId(1), &poll);
    let chosen =
        Choices { keeps: false, ..Choices::of_test(Arc::new(SystemClock), "127.0.0.1:1".parse().unwrap()) };
    let seen = SlotTable::of(Arc::new(Table::empty(SLOTS.into())), NodeId(1));
    node.shared = Arc::new(Shared::new(chosen, seen));
    tell.send(LoopEvent::Group(GroupEvent::Registered(Incarnation(1), 7))).unwrap();
    tell.send(LoopEvent::Group(GroupEvent::Table(table.clone()))).unwrap();
    let refused = node.hear(SystemClock.now(), poll.registry());
    assert!(matches!(refused, Err(NodeError::KeepsNothing { .. })), "{refused:?}");
    // One that serves already when the keyspace is made goes on with the others.
    let before = Table { version: Version(1), ..Table::empty(SLOTS.into()) };
    tell.send(LoopEvent::Group(GroupEvent::Table(Arc::new(before)))).unwrap();
    node.hear(SystemClock.now(), poll.registry()).unwrap();
    tell.send(LoopEvent::Group(GroupEvent::Table(table))).unwrap();
    node.hear(SystemClock.now(), poll.registry()).unwrap();
}

/// Another node, which only talks, and the poll of its sockets.
fn talker(me: NodeId, to: (NodeId, Option<PeerAddress>)) -> (Peers, mio::Poll) {
    let poll = mio::Poll::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peers = Peers::listen(me, (None, None), listener, poll.registry()).unwrap();
    peers.begin(Incarnation(1), 7, poll.registry());
    peers.set_addresses(&BTreeMap::from([to]), poll.registry());
    (peers, poll)
}

/// Sends what waits; returns whether the poll of the node tells of anything, and handles that if asked to.
fn turn(
    (talker, of_talker): &mut (Peers, mio::Poll),
    (node, poll): (&mut ReplicatedSlots, &mut mio::Poll),
    takes: bool,
) -> bool {
    let (now, wait) = (SystemClock.now(), Some(Duration::from_millis(2)));
    talker.flush(now.moment, now.date_ms, of_talker.registry());
    let mut events = mio::Events::with_capacity(64);
    of_talker.poll(&mut events, wait).unwrap();
    events.iter().for_each(|event| talker.notice(event, of_talker.registry(), &mut |_, _, _| ()));
    poll.poll(&mut events, wait).unwrap();
    if takes {
        events.iter().for_each(|event| node.notice(event, poll.registry()));
        node.settle(now, poll.registry()).unwrap();
    }
    !events.is_empty()
}

#[test]
fn what_comes_after_the_clock_was_read_waits_for_the_next_reading() {
    let mut poll = mio::Poll::new().unwrap();
    let (mut node, tell, at) = node_at(NodeId(1), &poll);
    tell.send(LoopEvent::Group(GroupEvent::Registered(Incarnation(1), 7))).unwrap();
    tell.send(LoopEvent::Group(GroupEvent::Table(ring_of_two().0))).unwrap();
    node.hear(SystemClock.now(), poll.registry()).unwrap();
    let mut talker = talker(NodeId(2), (NodeId(1), PeerAddress::new([at], String::new())));
    let is_heard = (0..5_000).any(|_| {
        turn(&mut talker, (&mut node, &mut poll), true);
        !node.heard.is_empty()
    });
    assert!(is_heard, "it begins with its clock");
    node.hear(SystemClock.now(), poll.registry()).unwrap();
    assert!(node.heard.is_empty());
    // A question comes behind the reading of the clock.
    let now = SystemClock.now();
    talker.0.say(NodeId(1), &Message::TableIs { version: Version(1) });
    assert!((0..5_000).any(|_| turn(&mut talker, (&mut node, &mut poll), false)));
    node.copies.peers.leave_rest();
    node.hear(now, poll.registry()).unwrap();
    assert!(node.heard.is_empty() && node.copies.peers.has_rest(), "it is not judged by that reading");
    node.receive(poll.registry());
    assert!(!node.heard.is_empty() && !node.copies.peers.has_rest());
}
