//! Sending to a node that does not listen, refuses, or is slow.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test has sockets of its own, and certificates that are good today"
)]

use super::*;
use crate::peer::{Peers, Spoken};
use crate::warned;
use atoll_replica::{
    Entry, Epoch, Incarnation, Message, NodeId, Position, Sequence, Slot, SlotMessage, Version,
};
use atoll_tls::{Authority, NodeTls, TlsFiles, Use};
use atoll_wire::Decoder;
use mio::{Events, Poll};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const OTHER: NodeId = NodeId(2);

fn address_of(at: SocketAddr) -> PeerAddress {
    PeerAddress::new([at], "127.0.0.1".to_owned()).unwrap()
}

fn showing(tls: Option<&PeerTls>) -> Showing<'_> {
    let greeting = Greeting { node: NodeId(1), incarnation: Incarnation(1), ring: 7, to: OTHER };
    Showing { greeting, secret: None, tls, date_ms: 7 }
}

/// A node that shows a certificate of one authority and trusts these.
fn node_of(authority: &Authority, trusted: &[&Authority], folder: &Path) -> PeerTls {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let issued = authority.sign(&["127.0.0.1"], Use::Node, now).unwrap();
    let all: String = trusted.iter().map(|one| one.issued(now).unwrap().certificate).collect();
    let files = TlsFiles {
        certificate: write("node.pem", &issued.certificate),
        key: write("node.key", &issued.key),
        authority: Some(write("authority.pem", &all)),
    };
    NodeTls::of_files(&files, "127.0.0.1", now).unwrap().peers.unwrap()
}

/// Refuses clients that show a certificate of another authority, and waits until they have gone.
fn refuse_all(listener: &TcpListener, serve: &Arc<rustls::ServerConfig>) {
    for socket in listener.incoming() {
        let Ok(mut socket) = socket else { return };
        let mut connection = rustls::ServerConnection::new(Arc::clone(serve)).unwrap();
        while connection.complete_io(&mut socket).is_ok_and(|_| connection.is_handshaking()) {}
        while socket.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
    }
}

#[test]
fn a_node_that_refuses_the_certificate_of_this_one_is_told_of_once_and_left_alone_for_longer() {
    let (ours, theirs) = (Authority::make().unwrap(), Authority::make().unwrap());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let dials = node_of(&ours, &[&ours, &theirs], folders[0].path());
    let refuses = node_of(&theirs, &[&theirs], folders[1].path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut dialled = Dialled::new(address_of(listener.local_addr().unwrap()));
    std::thread::spawn(move || refuse_all(&listener, &refuses.serve));
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    let mut dials_made = 0;
    let warned = warned::times(|| {
        for tenth in 1..=25 {
            let now = Moment(tenth * 100_000);
            dialled.flush(&showing(Some(&dials)), mio::Token(1), now, poll.registry());
            dials_made += u64::from(dialled.socket.is_some());
            while dialled.socket.is_some() {
                poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
                assert!(!events.is_empty(), "it is never refused");
                events.iter().for_each(|event| dialled.notice(event, poll.registry()));
                if dialled.socket.is_some() {
                    dialled.flush(&showing(Some(&dials)), mio::Token(1), now, poll.registry());
                }
            }
        }
    });
    assert_eq!(warned, 1);
    assert!(dials_made <= 4, "{dials_made} times in 2.5 s");
    // After it was reachable for a while, a new failure is logged again.
    (dialled.is_open, dialled.retry_at) = (true, Moment(u64::MAX));
    dialled.flush(&showing(None), mio::Token(1), dialled.open_by.after(SETTLED_US), poll.registry());
    assert_eq!(dialled.trouble, None);
}

#[test]
fn the_room_of_a_long_message_is_not_kept() {
    let mut dialled = Dialled::new(address_of(([127, 0, 0, 1], 1).into()));
    assert!(dialled.put(|out| out.resize(32 << 20, 7)));
    assert!(dialled.body.capacity() <= UNCONNECTED_BYTES_MAX, "{}", dialled.body.capacity());
}

/// Node 1, which has an incarnation and knows the other node's address.
fn speaking_to(at: SocketAddr, poll: &Poll) -> Peers {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peers = Peers::listen(NodeId(1), (None, None), listener, poll.registry()).unwrap();
    peers.begin(Incarnation(1), 7, poll.registry());
    peers.set_addresses(&[(OTHER, Some(address_of(at)))].into(), poll.registry());
    peers
}

/// The next events of the poll.
fn notice(peers: &mut Peers, poll: &mut Poll) {
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
    assert!(!events.is_empty(), "nothing happens");
    events.iter().for_each(|event| peers.notice(event, poll.registry(), &mut |_, _, _| ()));
}

#[test]
fn what_is_lost_with_a_connection_counts_as_given_up_and_what_went_out_as_sent() {
    let mut poll = Poll::new().unwrap();
    // No other process takes a port on this address after it is freed.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let mut peers = speaking_to(at, &poll);
    let say = |peers: &mut Peers, count: u64| {
        (0..count).for_each(|one| peers.say(OTHER, &Message::TableIs { version: Version(one) }));
    };
    say(&mut peers, 10);
    peers.flush(Moment(1_000_000), 7, poll.registry());
    while peers.dropped == 0 {
        notice(&mut peers, &mut poll);
        peers.flush(Moment(1_000_001), 7, poll.registry());
    }
    assert_eq!((peers.said, peers.dropped), (0, 10));
    let listener = TcpListener::bind(at).unwrap();
    say(&mut peers, 4);
    while peers.said == 0 {
        peers.flush(Moment(1_200_000), 7, poll.registry());
        notice(&mut peers, &mut poll);
        peers.flush(Moment(1_200_001), 7, poll.registry());
    }
    assert_eq!((peers.said, peers.dropped), (4, 10));
    // Its address is not known any more.
    peers.set_addresses(&[].into(), poll.registry());
    say(&mut peers, 1);
    assert_eq!((peers.said, peers.dropped), (4, 11));
    drop(listener);
}

fn append(slot: u32, behind: u64, bodies: &[usize]) -> Message {
    let position = |sequence| Position { epoch: Epoch(3), sequence: Sequence(sequence) };
    let entry = |(at, bytes): (u64, &usize)| Entry {
        position: position(at),
        time_ms: 7,
        body: vec![7; *bytes].into(),
    };
    let entries = (behind + 1..).zip(bodies).map(entry).collect();
    let about = SlotMessage::Append { previous: position(behind), entries, committed: Sequence(behind) };
    Message::Slot { slot: Slot(slot), epoch: Epoch(3), about }
}

/// A short name for a message, to be compared.
fn name_of(spoken: &Spoken) -> String {
    match spoken {
        Spoken::Date(_) => "date".to_owned(),
        Spoken::Message(Message::LeaseAsk { round, .. }) => format!("ask {round}"),
        Spoken::Message(Message::Slot { about: SlotMessage::Appended { matched }, .. }) => {
            format!("has {}", matched.0)
        }
        Spoken::Message(Message::Slot {
            slot, about: SlotMessage::Append { previous, entries, .. }, ..
        }) => {
            format!("slot {}: {} behind {}", slot.0, entries.len(), previous.sequence.0)
        }
        other => panic!("{other:?}"),
    }
}

/// The names of the next `count` messages, in order.
fn hear(socket: &mut std::net::TcpStream, count: usize) -> Vec<String> {
    let (mut decoder, mut room, mut heard) = (Decoder::new(LIMITS), vec![0; 1 << 20], Vec::new());
    let mut is_greeted = false;
    while heard.len() < count {
        let read = socket.read(&mut room).unwrap();
        assert!(read > 0, "it hung up behind {heard:?}");
        decoder.feed(&room[..read]);
        while let Some(frame) = decoder.next_frame().unwrap() {
            if std::mem::replace(&mut is_greeted, true) {
                heard.push(name_of(&codec::decode(&frame.body).unwrap()));
            }
        }
    }
    heard
}

/// The single moment at which everything is sent to the slow node.
const AT: Moment = Moment(1_000_000);

/// A connected node that reads nothing before its connection is accepted.
fn connected(poll: &mut Poll) -> (Peers, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peers = speaking_to(listener.local_addr().unwrap(), poll);
    peers.flush(AT, 7, poll.registry());
    notice(&mut peers, poll);
    (peers, listener)
}

fn ask(peers: &mut Peers, round: u64) {
    let (asked_in, known) = (Incarnation(1), Version(1));
    peers.say(OTHER, &Message::LeaseAsk { asked_in, round, asked_at: AT, known });
}

#[test]
fn a_promise_goes_before_any_number_of_words_that_wait_behind_a_long_frame() {
    let mut poll = Poll::new().unwrap();
    let (mut peers, listener) = connected(&mut poll);
    peers.say(OTHER, &append(4, 7, &[20 << 20]));
    peers.flush(AT, 7, poll.registry());
    peers.say(OTHER, &append(5, 2, &[20 << 20]));
    for matched in (1..=30_000).map(Sequence) {
        let about = SlotMessage::Appended { matched };
        peers.say(OTHER, &Message::Slot { slot: Slot(6), epoch: Epoch(3), about });
    }
    ask(&mut peers, 1);
    let hears = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        (hear(&mut socket, 4), socket)
    });
    let mut events = Events::with_capacity(8);
    while !hears.is_finished() {
        poll.poll(&mut events, Some(Duration::from_millis(10))).unwrap();
        events.iter().for_each(|event| peers.notice(event, poll.registry(), &mut |_, _, _| ()));
        peers.flush(AT, 7, poll.registry());
    }
    let (heard, _) = hears.join().unwrap();
    assert_eq!(heard[..4], ["date", "slot 4: 1 behind 7", "ask 1", "has 1"]);
}

#[test]
fn promises_go_before_entries_that_wait_and_those_wait_once() {
    let mut poll = Poll::new().unwrap();
    let (mut peers, listener) = connected(&mut poll);
    let at = AT;
    peers.say(OTHER, &append(4, 7, &[20 << 20]));
    ask(&mut peers, 1);
    // Much of it is under way, and is not read.
    peers.flush(at, 7, poll.registry());
    peers.say(OTHER, &append(5, 2, &[20 << 20, 1 << 20]));
    ask(&mut peers, 2);
    let waiting = peers.waiting_bytes(OTHER).unwrap();
    assert!(waiting > 30 << 20, "{waiting}");
    // All of it is sent again, as it would be to a slow node.
    for _ in 0..10 {
        peers.say(OTHER, &append(4, 7, &[20 << 20]));
        peers.say(OTHER, &append(5, 3, &[1 << 20]));
    }
    let more = peers.waiting_bytes(OTHER).unwrap() - waiting;
    assert!(more < 4_000, "{more} bytes more");
    // New entries are no repeat, and neither are those of another slot.
    peers.say(OTHER, &append(5, 4, &[10]));
    peers.say(OTHER, &append(6, 4, &[10]));
    let hears = std::thread::spawn(move || hear(&mut listener.accept().unwrap().0, 27));
    while peers.waiting_bytes(OTHER).unwrap() > 0 {
        notice(&mut peers, &mut poll);
        peers.flush(at, 7, poll.registry());
    }
    let heard = hears.join().unwrap();
    assert_eq!(heard[..5], ["date", "ask 1", "slot 4: 1 behind 7", "ask 2", "slot 5: 2 behind 2"]);
    // Each repeat became a question whether the entries came, which the other node answers.
    let asked = ["slot 4: 0 behind 8", "slot 5: 0 behind 4"];
    assert!(heard[5..25].chunks(2).all(|pair| pair == asked), "{heard:?}");
    assert_eq!(heard[25..], ["slot 5: 1 behind 4", "slot 6: 1 behind 4"]);
    // It does not wait any more, so it may be sent again.
    peers.say(OTHER, &append(4, 7, &[20 << 20]));
    assert!(peers.waiting_bytes(OTHER).unwrap() > 20 << 20);
}

#[test]
fn what_a_clock_says_goes_before_entries_that_wait() {
    let mut poll = Poll::new().unwrap();
    let (mut peers, listener) = connected(&mut poll);
    peers.say(OTHER, &append(4, 7, &[20 << 20]));
    peers.flush(AT, 7, poll.registry());
    peers.say(OTHER, &append(5, 2, &[20 << 20]));
    let later = AT.after(10_000_000);
    peers.flush(later, 17, poll.registry());
    let hears = std::thread::spawn(move || hear(&mut listener.accept().unwrap().0, 4));
    while peers.waiting_bytes(OTHER).unwrap() > 0 {
        notice(&mut peers, &mut poll);
        peers.flush(later, 17, poll.registry());
    }
    let heard = hears.join().unwrap();
    assert_eq!(heard, ["date", "slot 4: 1 behind 7", "date", "slot 5: 1 behind 2"]);
}
