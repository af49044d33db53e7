//! The effect of an entry reaches the disk after the log's record of it, whenever the process ends; a read
//! that fails does not end the node; a watch begins as a read does; and what writes return is bounded.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::copies::full::Full;
use crate::copies::{GatheringRoom, WriteExtra};
use crate::keyspaces::Keyspaces;
use crate::log::SlotLog;
use crate::options::Persistence;
use crate::peer::{Peers, Spoken};
use crate::warned;
use crate::watches::Waiter;
use atoll_disk::{FaultPlan, SimDisk};
use atoll_engine::{Direction, Engine};
use atoll_replica::{
    Configuration, Effect, Epoch, Found, Incarnation, Input, Member, Message, Moment, NodeId, Options,
    Sequence, SlotMessage, Table, Version,
};
use atoll_resp::{Expected, WatchRequest, write_request};
use std::net::TcpListener;
use std::ops::{Bound, ControlFlow, RangeInclusive};
use std::sync::Arc;

const ME: NodeId = NodeId(2);
const SLOT: Slot = Slot(5);
const NOW: Now = Now { moment: Moment(1), date_ms: 1 };

/// The leader of an epoch: a different node than in the epoch before.
fn primary_of(epoch: u64) -> NodeId {
    NodeId(if epoch.is_multiple_of(2) { 3 } else { 1 })
}

/// A table in which a slot is in this epoch, and this node is to catch up.
fn table(epoch: u64) -> Arc<Table> {
    table_of(epoch, primary_of(epoch), &[ME], 1..=3)
}

/// The same with a given leader, a copy that catches up, and a number of nodes.
fn table_of(epoch: u64, primary: NodeId, joining: &[NodeId], nodes: RangeInclusive<u32>) -> Arc<Table> {
    let mut table = Table::empty(16_384);
    table.version = Version(epoch);
    for node in nodes {
        let (incarnation, is_up, is_leaving) = (Incarnation(1), true, false);
        let member = Member { incarnation, is_up, is_leaving, ..Member::new("".into()) };
        table.members.insert(NodeId(node), member);
    }
    let configuration = Configuration {
        epoch: Epoch(epoch),
        since: table.version,
        primary: Some(primary),
        in_sync: atoll_replica::Copies::of(&[primary]),
        joining: atoll_replica::Copies::of(joining),
        ..Configuration::default()
    };
    table.slots.change_each(|slot, one| {
        if slot == SLOT {
            *one = configuration;
        }
    });
    Arc::new(table)
}

/// A node that has a copy, and the poll of its sockets.
fn begun(engine: &Engine) -> (Copies, mio::Poll) {
    let (poll, listener) = (mio::Poll::new().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let peers = Peers::listen(ME, (None, None), listener, poll.registry()).unwrap();
    let keyspaces = Keyspaces::open(engine, Persistence::Always).unwrap();
    let log = SlotLog::open(engine, "log").unwrap();
    let gathering = GatheringRoom { slot_bytes_max: 30_000, bytes_max: 60_000 };
    let options = Options { in_sync_min: 1, ..Options::default() };
    let mut copies = Copies::new(ME, options, keyspaces, Some(log), peers, 1 << 20, gathering);
    copies.begin(NOW, (Incarnation(1), 0), poll.registry()).unwrap();
    copies.step(NOW, Input::Table(table(1))).unwrap();
    (copies, poll)
}

/// A node that leads a slot and has its only copy.
fn leading(engine: &Engine) -> (Copies, mio::Poll) {
    let (mut copies, poll) = begun(engine);
    let table = table_of(2, ME, &[], 2..=2);
    copies.dates.adjusted(NOW);
    copies.dates.follow(&table);
    copies.step(NOW, Input::Table(table)).unwrap();
    copies.step(NOW, Input::GroupHeard { asked_at: NOW.moment }).unwrap();
    (copies, poll)
}

/// Makes all entries durable, those included that follow from others.
fn settle(copies: &mut Copies, now: Now) {
    while copies.write_log().unwrap() {
        let handed = copies.take_handed();
        if handed.is_empty() {
            break;
        }
        copies.logged(now, handed).unwrap();
    }
}

/// The reply to a request.
fn ask(copies: &mut Copies, words: &[&str]) -> String {
    let mut bytes = Vec::new();
    write_request(&mut bytes, words);
    let mut parser = atoll_resp::RequestParser::new(atoll_resp::Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let asked = (Ticket(7), Protocol::Resp2);
    match words[0] {
        "set" | "hset" | "pexpireat" => {
            copies.write(SLOT, NOW, &request, [1].into_iter(), asked, WriteExtra::default()).unwrap();
        }
        _ => copies.read(SLOT, NOW, &request, [1].into_iter(), asked).unwrap(),
    }
    settle(copies, NOW);
    copies.take_answers().into_iter().map(|(_, reply)| String::from_utf8(reply).unwrap()).collect()
}

fn at(epoch: u64, sequence: u64) -> Position {
    Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

/// The leader of one epoch sends entries of an epoch, which may be an earlier one, after a position.
fn hear(copies: &mut Copies, leads: u64, previous: Position, (epoch, through): (u64, u64), committed: u64) {
    let mut body = vec![0];
    write_request(&mut body, &["set", "key", "value"]);
    let body: Arc<[u8]> = body.into();
    let entry = |sequence| Entry { position: at(epoch, sequence), time_ms: sequence, body: body.clone() };
    let entries = (previous.sequence.0 + 1..=through).map(entry).collect();
    let about = SlotMessage::Append { previous, entries, committed: Sequence(committed) };
    let message = Message::Slot { slot: SLOT, epoch: Epoch(leads), about };
    copies.hear(NOW, primary_of(leads), Incarnation(1), Spoken::Message(message)).unwrap();
}

#[test]
fn entries_that_contradict_a_copy_are_counted_and_reported_once_a_second() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = begun(&engine);
    hear(&mut copies, 1, Position::default(), (1, 5), 5);
    assert_eq!(copies.contradictions.count(), 0);
    // The leader begins again where this copy has applied what it was sent before, in a later epoch.
    copies.step(NOW, Input::Table(table(2))).unwrap();
    let warned = warned::times(|| {
        (0..3).for_each(|_| hear(&mut copies, 2, Position::default(), (2, 3), 0));
    });
    assert_eq!((copies.contradictions.count(), warned), (3, 1));
    assert_eq!(crate::copies::applied_position(&copies.keyspaces, SLOT), at(1, 5));
}

/// What is found when the store is opened again.
fn found_again(engine: &Engine) -> Vec<Found> {
    let keyspaces = Keyspaces::open(engine, Persistence::Always).unwrap();
    SlotLog::open(engine, "log").unwrap().found(crate::copies::applied(&keyspaces)).unwrap()
}

#[test]
fn nothing_is_applied_before_it_is_written_that_what_was_logged_in_its_place_is_cut_off() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = begun(&engine);
    hear(&mut copies, 1, Position::default(), (1, 5), 5);
    hear(&mut copies, 1, at(1, 5), (1, 9), 5);
    copies.write_log().unwrap();
    assert_eq!(found_again(&engine)[0].entries.len(), 4, "logged, and not committed");
    copies.step(NOW, Input::Table(table(2))).unwrap();
    hear(&mut copies, 2, at(1, 5), (2, 7), 7);
    // The round does not complete.
    let found = found_again(&engine);
    assert_eq!((found[0].base, found[0].entries.len()), (at(2, 7), 0));
}

#[test]
fn what_is_cut_off_may_be_of_a_later_epoch_than_what_is_applied_in_its_place() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = begun(&engine);
    hear(&mut copies, 1, Position::default(), (1, 5), 5);
    copies.step(NOW, Input::Table(table(2))).unwrap();
    hear(&mut copies, 2, at(1, 5), (2, 8), 5);
    copies.write_log().unwrap();
    // The next leader never heard of the second epoch, and has an entry of the first that this copy lacks.
    copies.step(NOW, Input::Table(table(3))).unwrap();
    hear(&mut copies, 3, at(1, 5), (1, 6), 6);
    let found = found_again(&engine);
    assert_eq!((found[0].base, found[0].entries.len()), (at(1, 6), 0));
}

#[test]
fn what_cannot_be_read_is_an_error_for_who_reads_it_and_for_nobody_else() {
    let disk = SimDisk::seeded(1);
    let engine = Engine::open(Arc::new(disk.clone()), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    assert_eq!(ask(&mut copies, &["set", "long", &"v".repeat(100_000)]), "+OK\r\n");
    assert_eq!(ask(&mut copies, &["set", "short", "v"]), "+OK\r\n");
    disk.set_plan(FaultPlan { unreadable: Some(0..u64::MAX), ..FaultPlan::default() });
    let told = ask(&mut copies, &["get", "long"]);
    assert!(told.starts_with('-') && told.contains("cannot read"), "{told}");
    assert_eq!(ask(&mut copies, &["get", "short"]), "$1\r\nv\r\n");
}

#[test]
fn a_slot_that_cannot_be_read_is_not_sent_for_a_while_and_told_of_once() {
    let disk = SimDisk::seeded(1);
    let engine = Engine::open(Arc::new(disk.clone()), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    ask(&mut copies, &["set", "long", &"v".repeat(100_000)]);
    let mut send = |moment| {
        let now = Now { moment: Moment(moment), ..NOW };
        copies.perform(now, Effect::Transfer { slot: SLOT, to: NodeId(3) }).unwrap();
        let (mut one, mut has_sent) = (copies.moves.outgoing.take(), false);
        let warned = warned::times(|| {
            has_sent = one.first_mut().is_some_and(|one| copies.next_piece(now, one).is_some());
        });
        copies.moves.outgoing.put_back(Vec::new(), &[(SLOT, NodeId(3))]);
        (has_sent, warned)
    };
    disk.set_plan(FaultPlan { unreadable: Some(0..u64::MAX), ..FaultPlan::default() });
    assert_eq!([1, 2].map(&mut send), [(false, 1), (false, 0)]);
    disk.set_plan(FaultPlan::default());
    assert_eq!([60_000_000, 60_000_001].map(&mut send), [(false, 0), (true, 0)]);
}

/// Waits for the absence of a field of a key, or of the string at it.
fn wait_for_absence(copies: &mut Copies, now: Now, field: Option<&[u8]>) {
    let (ticket, protocol) = (Ticket(8), Protocol::Resp2);
    let waiter = Waiter { ticket, connection: 0, session: 1, users: 0, protocol, id: None };
    let expected = Expected::Equals(None);
    let request = WatchRequest { id: None, milliseconds: 1, key: b"key", field, expected };
    copies.watch(SLOT, now, Watch::new(&request, 0, waiter, now)).unwrap();
}

#[test]
fn a_watch_that_meets_an_expired_key_begins_once_that_is_deleted() {
    let hash: [&[&str]; 2] = [&["hset", "key", "f", "v"], &["pexpireat", "key", "50"]];
    let string: [&[&str]; 2] = [&["set", "key", "v"], &["pexpireat", "key", "50"]];
    for (writes, field) in [(hash, Some(b"f".as_slice())), (string, None), (hash, None)] {
        let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
        let (mut copies, _poll) = leading(&engine);
        for words in writes {
            let told = ask(&mut copies, words);
            assert!(told == ":1\r\n" || told == "+OK\r\n", "{words:?}: {told}");
        }
        let keys = |copies: &Copies| {
            let (keyspace, number) = copies.keyspaces.of(SLOT);
            keyspace.keys_in(number)
        };
        // Before its time it is simply there.
        wait_for_absence(&mut copies, NOW, field);
        assert!(matches!(&copies.take_watched()[..], [(_, None)]));
        let later = Now { date_ms: 100, ..NOW };
        // What cannot be deleted now would be found again.
        copies.full = Some(Full::default());
        wait_for_absence(&mut copies, later, field);
        let watched = copies.take_watched();
        assert!(matches!(&watched[..], [(_, Some(why))] if why.starts_with("TRYAGAIN ")), "{watched:?}");
        copies.full = None;
        wait_for_absence(&mut copies, later, field);
        assert!(copies.take_watched().is_empty(), "the deletion is not logged yet");
        assert_eq!(keys(&copies), 1);
        settle(&mut copies, later);
        assert!(matches!(&copies.take_watched()[..], [(_, None)]));
        assert_eq!(keys(&copies), 0);
    }
}

/// The longest record in the logs of slots.
fn longest_logged(engine: &Engine) -> u64 {
    let mut longest = 0;
    let all = (Bound::Unbounded, Bound::Unbounded);
    let logs = engine.tree("log").unwrap();
    logs.scan(all, Direction::Forward, |_, value| {
        longest = longest.max(value.len());
        ControlFlow::Continue(())
    })
    .unwrap();
    longest
}

#[test]
fn an_expired_key_that_a_read_names_a_million_times_is_deleted_once() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    assert_eq!(ask(&mut copies, &["set", "key", "v"]), "+OK\r\n");
    assert_eq!(ask(&mut copies, &["pexpireat", "key", "50"]), ":1\r\n");
    let words = [vec!["exists"], vec!["key"; 1_000_000]].concat();
    let mut bytes = Vec::new();
    write_request(&mut bytes, &words);
    let mut parser = atoll_resp::RequestParser::new(atoll_resp::Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let later = Now { date_ms: 100, ..NOW };
    copies.read(SLOT, later, &request, [1].into_iter(), (Ticket(7), Protocol::Resp2)).unwrap();
    copies.write_log().unwrap();
    let longest = longest_logged(&engine);
    assert!((1..100).contains(&longest), "{longest} bytes are logged");
    settle(&mut copies, later);
    assert_eq!(copies.take_answers(), [(Ticket(7), b":0\r\n".to_vec())]);
}

/// Asks for a write under a ticket, as it is executed. Returns how many bytes are set aside for its reply.
fn write(copies: &mut Copies, ticket: u64, words: &[&str]) -> usize {
    let mut bytes = Vec::new();
    write_request(&mut bytes, words);
    let mut parser = atoll_resp::RequestParser::new(atoll_resp::Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let command = Command::of(&request).unwrap();
    let returned = copies.returned_by(SLOT, &command);
    let (asked, extra) = ((Ticket(ticket), Protocol::Resp2), WriteExtra::of(&command, returned));
    copies.write(SLOT, NOW, &request, [1].into_iter(), asked, extra).unwrap();
    returned
}

/// The same for a write that is alone. Returns its reply as well.
fn write_alone(copies: &mut Copies, words: &[&str]) -> (usize, Vec<u8>) {
    let returned = write(copies, 7, words);
    settle(copies, NOW);
    (returned, copies.take_answers().remove(0).1)
}

#[test]
fn what_a_write_returns_is_known_before_it_is_taken() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    let long = "v".repeat(10_000);
    ask(&mut copies, &["set", "key", &long]);
    ask(&mut copies, &["hset", "hash", "f", &long[..3_000]]);
    let alone: [(&[&str], usize); 8] = [
        (&["getex", "key", "px", "100000"], 10_000),
        (&["set", "key", &long, "xx", "get"], 10_000),
        (&["set", "key", &long], 0),
        (&["getdel", "no"], 0),
        (&["at.batch", "hash", "ifabsent", "f", "put", "g", "1"], 3_000),
        (&["at.id", "a", "1", "0", "at.batch", "hash", "ifabsent", "x", "ifeq", "f", "1", "del", "g"], 3_000),
        (&["at.batch", "hash", "put", "g", "1"], 0),
        (&["getdel", "key"], 10_000),
    ];
    for (words, expected) in alone {
        let (returned, reply) = write_alone(&mut copies, words);
        assert!((expected..expected + 20).contains(&returned), "{words:?}: {returned}");
        assert!(reply.len() > expected && reply.len() < expected + 100, "{words:?}: {}", reply.len());
    }
    ask(&mut copies, &["hset", "hash", "f", &"v".repeat(2 << 20)]);
    let (returned, _) = write_alone(&mut copies, &["at.batch", "hash", "ifabsent", "f", "put", "g", "1"]);
    assert_eq!(returned, 1 << 20, "a condition returns no more");
    for (conditions, expected) in [(16, 0), (17, 1 << 20)] {
        let mut words = vec!["at.batch", "no"];
        words.extend(["ifabsent", "f"].repeat(conditions));
        words.extend(["put", "g", "1"]);
        let (returned, reply) = write_alone(&mut copies, &words);
        assert!((expected..expected + 20).contains(&returned), "{conditions}: {returned}");
        assert_eq!(reply, b"+OK\r\n");
    }
    assert_eq!((copies.returned_bytes(), copies.waiting.appended_keys()), (0, 0));
}

#[test]
fn what_a_write_returns_may_still_be_on_its_way() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    let long = "v".repeat(20_000);
    let refused: &[&str] = &["at.batch", "hash", "ifabsent", "f", "del", "g"];
    let cases: [[&[&str]; 3]; 4] = [
        [&["set", "key", &long], &["set", "key", "short"], &["getdel", "key"]],
        [&["append", "key", &long], &["append", "key", &long], &["getdel", "key"]],
        [&["hset", "hash", "f", &long], &["set", "key", "v"], refused],
        [&["at.batch", "hash", "append", "f", &long], &["del", "key"], refused],
    ];
    for writes in cases {
        let returned = [1, 2, 3].map(|ticket| write(&mut copies, ticket, writes[ticket as usize - 1]));
        settle(&mut copies, NOW);
        let last = copies.take_answers().remove(2).1;
        assert_eq!(returned[..2], [0, 0], "{:?}", writes[2]);
        assert!(returned[2] + 40 >= last.len(), "{:?}: {} of {}", writes[2], returned[2], last.len());
        assert!((20_000..70_000).contains(&returned[2]), "{:?}: {}", writes[2], returned[2]);
    }
}

#[test]
fn what_is_appended_to_other_keys_is_not_set_aside() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    let long = "v".repeat(20_000);
    ask(&mut copies, &["set", "key", "v"]);
    for ticket in 1..=10 {
        let key = format!("other{ticket}");
        write(&mut copies, ticket, &["append", &key, &long]);
        write(&mut copies, 10 + ticket, &["at.batch", &format!("hash{ticket}"), "append", "f", &long]);
    }
    let refused: &[&str] = &["at.batch", "hash", "ifabsent", "f", "del", "g"];
    for (ticket, words) in [(30, &["getdel", "key"][..]), (31, refused)] {
        let returned = write(&mut copies, ticket, words);
        // Each of these writes may have put a value of its own length there.
        assert!(returned < 21_000, "{words:?}: {returned}");
    }
    let returned = write(&mut copies, 32, &["getdel", "other1"]);
    assert!((40_000..42_000).contains(&returned), "{returned}");
    settle(&mut copies, NOW);
    assert_eq!((copies.take_answers().len(), copies.waiting.appended_keys()), (23, 0));
}

/// Asks for a read under ticket 9, as it is executed. Returns how many bytes are expected of its reply if it
/// waits.
fn read(copies: &mut Copies, words: &[&str]) -> usize {
    let mut bytes = Vec::new();
    write_request(&mut bytes, words);
    let mut parser = atoll_resp::RequestParser::new(atoll_resp::Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let command = Command::of(&request).unwrap();
    copies.read(SLOT, NOW, &request, [1].into_iter(), (Ticket(9), Protocol::Resp2)).unwrap();
    copies.expected_of(SLOT, Ticket(9), &command)
}

#[test]
fn what_a_read_that_waits_will_answer_is_known_before_more_is_taken() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    let long = "v".repeat(10_000);
    ask(&mut copies, &["set", "key", &long]);
    ask(&mut copies, &["hset", "hash", "f", &long, "g", &long]);
    // The write that each waits for, the read, and about how long its reply is.
    let cases: [(&[&str], &[&str], usize); 12] = [
        (&["expire", "key", "100"], &["get", "key"], 10_000),
        (&["expire", "key", "100"], &["getex", "key"], 10_000),
        (&["expire", "key", "100"], &["getrange", "key", "0", "99"], 100),
        (&["append", "key", &long], &["get", "key"], 20_000),
        (&["set", "other", &long], &["get", "other"], 10_000),
        (&["expire", "key", "100"], &["mget", "key", "key", "no"], 40_000),
        (&["hset", "hash", "h", "1"], &["hgetall", "hash"], 20_000),
        (&["hset", "hash", "h", &long], &["hvals", "hash"], 30_000),
        (&["hset", "hash", "i", "1"], &["hmget", "hash", "f", "g"], 20_000),
        (&["hset", "hash", "i", "2"], &["at.get", "hash", "f"], 10_000),
        (&["hset", "hash", "i", "3"], &["at.range", "hash", "-", "(h"], 30_000),
        (&["hset", "hash", "i", "4"], &["hlen", "hash"], 0),
    ];
    for (first, then, expected) in cases {
        write(&mut copies, 8, first);
        let told = read(&mut copies, then);
        settle(&mut copies, NOW);
        let answers = copies.take_answers();
        let (_, reply) = answers.iter().find(|(ticket, _)| *ticket == Ticket(9)).unwrap();
        assert!((expected..expected + 300).contains(&told), "{then:?}: {told}");
        assert!(told + 300 >= reply.len(), "{then:?}: {told} of {}", reply.len());
        assert_eq!(read(&mut copies, then), 0, "{then:?}: it waits for nothing");
        assert_eq!(copies.take_answers().len(), 1);
    }
}

#[test]
fn writes_that_return_more_than_there_is_room_for_are_refused_before_they_happen() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    ask(&mut copies, &["set", "key", &"v".repeat(1_000)]);
    copies.waiting.returned_max = 5_000;
    for ticket in 1..=8 {
        write(&mut copies, ticket, &["getex", "key", "px", "100000"]);
    }
    settle(&mut copies, NOW);
    let (refused, answered): (Vec<_>, Vec<_>) =
        copies.take_answers().into_iter().partition(|(_, reply)| reply.starts_with(b"-TRYAGAIN "));
    assert_eq!((answered.len(), refused.len()), (4, 4));
    assert!(answered.iter().all(|(_, reply)| reply.len() > 1_000));
    assert_eq!(copies.returned_bytes(), 0);
    assert!(write_alone(&mut copies, &["getdel", "key"]).1.len() > 1_000, "there is room again");
}

#[test]
fn a_reply_that_became_too_long_and_was_refused_takes_no_memory() {
    let engine = Engine::open(Arc::new(SimDisk::seeded(1)), atoll_engine::Options::default()).unwrap();
    let (mut copies, _poll) = leading(&engine);
    ask(&mut copies, &["set", "key", &"v".repeat(1 << 20)]);
    let (returned, reply) = write_alone(&mut copies, &["at.id", "a", "1", "0", "getdel", "key"]);
    assert!(returned == 0 && reply.starts_with(b"-LIMIT "), "{returned}: {}", reply.escape_ascii());
    assert!(reply.capacity() < 100_000, "{}", reply.capacity());
}
