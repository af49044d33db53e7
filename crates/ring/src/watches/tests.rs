//! Watches by themselves: whose they are, when they end, and how long that takes for many.

#![allow(clippy::disallowed_methods, reason = "a test measures")]

use super::looking::LOOKS_MAX;
use super::watch::place_of;
use super::*;
use crate::clock::Now;
use crate::keyspaces::Keyspaces;
use crate::options::Persistence;
use crate::table::SlotTable;
use atoll_engine::{Engine, Options};
use atoll_keyspace::{Applied, SLOTS};
use atoll_replica::{Moment, NodeId, Slot, Table};
use atoll_resp::{
    Command, Deadline, Expected, ExpiryRule, FieldBatch, FieldMutation, OwnCommand, Protocol, SetAnswer,
    SetCondition, SetLifetime, SetRequest, WatchRequest,
};
use std::time::{Duration, Instant};

const BEGIN: Now = Now { moment: Moment(1), date_ms: 1 };

fn watch(users: u32, id: Option<u64>) -> Watch {
    watch_of(users, id, b"field", Expected::Equals(None))
}

fn watch_of(users: u32, id: Option<u64>, field: &[u8], expected: Expected<&[u8]>) -> Watch {
    watch_on(users, id, Some(field), expected)
}

/// A watch on a field, or on the string at the key.
fn watch_on(users: u32, id: Option<u64>, field: Option<&[u8]>, expected: Expected<&[u8]>) -> Watch {
    let ticket = Ticket(u64::from(users));
    let waiter = Waiter { ticket, connection: 3, session: 9, users, protocol: Protocol::Resp3, id };
    Watch::new(&WatchRequest { id, milliseconds: 1_000, key: b"key", field, expected }, 0, waiter, BEGIN)
}

/// A node that leads all slots, and its watches.
struct TestNode {
    keyspaces: Keyspaces,
    table: SlotTable,
    watches: Watches,
    touched: Touched,
}

impl TestNode {
    fn new() -> Self {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let keyspaces = Keyspaces::open(&engine, Persistence::Off).unwrap();
        let table = SlotTable::of(Arc::new(Table::empty(SLOTS.into())), NodeId(1));
        // No node leads it in the table, which does not matter to these tests.
        let watches = Watches { seen: table.version(), ..Watches::default() };
        Self { keyspaces, table, watches, touched: Touched::default() }
    }

    fn slot() -> Slot {
        watch(0, None).slot()
    }

    /// Sets a field of the key of all these watches.
    fn put(&mut self, field: &[u8], value: &[u8]) {
        let mutations = vec![FieldMutation::Put(field, value)];
        let batch = FieldBatch { key: b"key", conditions: Vec::new(), mutations };
        self.apply(1, &Command::Own(OwnCommand::Batch(batch)));
    }

    /// Applies a write to the key of all these watches.
    fn apply(&mut self, time_ms: u64, command: &Command<'_>) {
        let (keyspace, number) = self.keyspaces.of_mut(Self::slot());
        let (applied, mut reply) = (Applied::default(), Vec::new());
        keyspace.apply(number, applied, time_ms, command, Protocol::Resp2, &mut reply).unwrap();
        assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        let key = [b"key".as_slice()].into_iter();
        self.touched.wrote(Self::slot(), (keyspace, number, time_ms), command, key);
    }

    /// Records a write to the key.
    fn touch(&mut self) {
        self.touched.touch(Self::slot(), [b"key".as_slice()].into_iter());
    }

    /// How many watches end in a round.
    fn round(&mut self) -> usize {
        let failed = self.watches.look(BEGIN, &self.keyspaces, &self.table, &mut self.touched);
        assert_eq!(failed, 0);
        self.watches.take_pushes().len() + self.watches.take_answers().len()
    }
}

#[test]
fn what_another_user_asked_for_does_not_begin_late() {
    let mut watches = Watches::default();
    watches.begin(watch(0, Some(1)));
    watches.change_user(3, 1);
    assert_eq!((watches.len(), watches.take_pushes().len()), (0, 1), "its time is over");
    // These were still on their way: a waiting request is answered, and nothing is pushed to the next user.
    watches.begin(watch(0, Some(2)));
    watches.refuse(&watch(0, Some(3)), "MOVED");
    watches.begin(watch(0, None));
    assert_eq!((watches.len(), watches.take_pushes().len(), watches.take_answers().len()), (0, 0, 1));
    watches.begin(watch(1, Some(2)));
    assert_eq!(watches.len(), 1);
    // The next connection at this index is another one.
    watches.end_connection(3, 9);
    let mut of_next = watch(0, Some(2));
    of_next.waiter.session = 10;
    watches.begin(of_next);
    assert_eq!(watches.len(), 1);
}

#[test]
fn who_understands_no_pushes_any_more_waits_on_for_answers() {
    let mut watches = Watches::default();
    watches.begin(watch(0, None));
    watches.begin(watch(0, Some(1)));
    watches.end_pushes(3, 1);
    assert_eq!((watches.len(), watches.take_answers().len(), watches.take_pushes().len()), (1, 0, 0));
    // Watches that were on their way, and new ones.
    watches.begin(watch(0, None));
    watches.begin(watch(0, Some(2)));
    watches.begin(watch(1, None));
    assert_eq!((watches.len(), watches.take_answers().len(), watches.take_pushes().len()), (3, 0, 0));
    watches.begin_anew(3, 2);
    assert_eq!((watches.len(), watches.take_answers().len()), (0, 3));
}

#[test]
fn who_changes_the_user_and_understands_no_pushes_any_more_is_told_nothing_by_them() {
    let mut watches = Watches::default();
    let mut of_other = watch(0, Some(1));
    of_other.waiter.connection = 4;
    watches.begin(of_other);
    watches.begin(watch(0, Some(1)));
    watches.begin(watch(0, None));
    watches.change_user(4, 1);
    watches.change_user(3, 1);
    watches.end_pushes(3, 2);
    let told: Vec<_> = watches.take_pushes().into_iter().map(|push| push.connection).collect();
    assert_eq!((told, watches.take_answers().len()), (vec![4], 1));
}

/// A watch that will be pushed, whose request had this ticket.
fn asked(ticket: u64, id: u64) -> Watch {
    let mut asked = watch(0, Some(id));
    asked.waiter.ticket = Ticket(ticket);
    asked
}

#[test]
fn a_watch_that_is_ended_on_its_way_does_not_begin_and_a_later_one_with_its_id_does() {
    let mut watches = Watches::default();
    let all = [asked(1, 7), asked(2, 7), asked(3, 8), asked(4, 7)];
    watches.await_arrival(&all[0]);
    watches.await_arrival(&all[1]);
    assert_eq!((watches.end_id(3, 7), watches.end_id(3, 7)), (2, 0));
    watches.await_arrival(&all[2]);
    watches.await_arrival(&all[3]);
    assert_eq!((watches.end_id(4, 7), watches.end_id(3, 9)), (0, 0));
    // They arrive in any order. A refusal is not pushed either: the client may have given the id to another.
    let [first, second, other, last] = all;
    watches.arrive(second, Some("MOVED 1 a:1"));
    watches.arrive(last, None);
    watches.arrive(first, None);
    watches.arrive(other, None);
    assert_eq!((watches.len(), watches.take_pushes().len()), (2, 0));
    assert!(watches.under_way.is_empty());
    // One has begun, and the other one is on its way.
    let more = asked(5, 7);
    watches.await_arrival(&more);
    assert_eq!(watches.end_id(3, 7), 2);
    watches.arrive(more, None);
    assert_eq!(watches.len(), 1);
    assert!(watches.under_way.is_empty());
}

#[test]
fn what_is_refused_on_its_way_is_told_and_what_is_answered_has_no_id() {
    let mut watches = Watches::default();
    let (pushed, answered) = (asked(1, 7), watch(0, None));
    watches.await_arrival(&pushed);
    watches.await_arrival(&answered);
    assert_eq!(watches.end_id(3, 0), 0);
    watches.arrive(pushed, Some("MOVED 1 a:1"));
    watches.arrive(answered, None);
    assert_eq!((watches.len(), watches.take_pushes().len(), watches.take_answers().len()), (1, 1, 0));
}

#[test]
fn nothing_is_kept_of_watches_on_their_way_whose_connection_gave_them_up() {
    let ends: [fn(&mut Watches); 5] = [
        |watches| watches.end_connection(3, 9),
        |watches| watches.end_pushes(3, 1),
        |watches| watches.change_user(3, 1),
        |watches| watches.begin_anew(3, 1),
        |watches| watches.give_up(3),
    ];
    for end in ends {
        let mut watches = Watches::default();
        let late = asked(1, 7);
        watches.await_arrival(&late);
        end(&mut watches);
        assert!(watches.under_way.is_empty());
        assert_eq!(watches.end_id(3, 7), 0);
        watches.arrive(late, None);
        assert_eq!((watches.len(), watches.take_pushes().len()), (0, 0));
    }
}

/// Whether many watches of one connection and one key end by this in a time that does not grow with their
/// square.
fn ends_soon(end: impl FnOnce(&mut Watches)) -> bool {
    let mut watches = Watches::default();
    (0..30_000).for_each(|id| watches.begin(watch(0, Some(id))));
    assert_eq!(watches.len(), 30_000);
    let began = Instant::now();
    end(&mut watches);
    assert!(watches.is_empty());
    began.elapsed() < Duration::from_secs(5)
}

#[test]
fn many_watches_of_one_key_end_in_little_time() {
    assert!(ends_soon(|watches| (0..30_000).for_each(|id| assert_eq!(watches.end_id(3, id), 1))));
    assert!(ends_soon(|watches| watches.end_connection(3, 9)));
}

#[test]
fn a_watch_on_its_way_does_not_begin_when_its_connection_has_ended() {
    let mut watches = Watches::default();
    watches.end_connection(3, 9);
    watches.begin(watch(0, Some(1)));
    watches.refuse(&watch(0, None), "MOVED");
    assert_eq!((watches.len(), watches.take_pushes().len(), watches.take_answers().len()), (0, 0, 0));
    let mut of_next = watch(0, Some(1));
    of_next.waiter.session = 10;
    watches.begin(of_next);
    assert_eq!(watches.len(), 1);
}

#[test]
fn one_connection_does_not_take_the_watches_of_all_others() {
    let mut watches = Watches::default();
    (0..=100_000).for_each(|id| watches.begin(watch(0, Some(id))));
    assert_eq!(watches.len(), 100_000);
    let told = watches.take_pushes();
    assert!(String::from_utf8_lossy(&told[0].bytes).contains("LIMIT "), "{told:?}");
    let mut of_other = watch(0, Some(1));
    of_other.waiter.connection = 4;
    watches.begin(of_other);
    assert_eq!(watches.len(), 100_001);
}

#[test]
fn many_whose_time_is_over_at_once_are_told_some_with_each_round() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let keyspaces = Keyspaces::open(&engine, Persistence::Off).unwrap();
    let table = SlotTable::of(Arc::new(Table::empty(SLOTS.into())), NodeId(1));
    let mut watches = Watches::default();
    let count = LOOKS_MAX as u64 * 2 + 1;
    (0..count).for_each(|id| watches.begin(watch(0, Some(id))));
    watches.rest();
    watches.seen = table.version();
    let mut round = |at_us| {
        let now = Now { moment: Moment(at_us), date_ms: 1 };
        watches.look(now, &keyspaces, &table, &mut Touched::default());
        (watches.take_pushes().len(), watches.goes_on(now.moment))
    };
    assert_eq!(round(1_000_000), (0, false), "none is over before its time");
    let told = [1, 2, 3, 4].map(|_| round(2_000_000));
    assert_eq!(told, [(LOOKS_MAX, true), (LOOKS_MAX, true), (1, false), (0, false)]);
}

#[test]
fn what_another_node_has_by_now_is_not_looked_at_here() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let keyspaces = Keyspaces::open(&engine, Persistence::Off).unwrap();
    let mut table = Table::empty(SLOTS.into());
    table.version = Version(1);
    let table = SlotTable::of(Arc::new(table), NodeId(1));
    let mut watches = Watches::default();
    // The cells meet the watch, but this node does not lead them any more.
    watches.begin(watch(0, None));
    let mut touched = Touched { slots: HashSet::from([TestNode::slot()]), ..Touched::default() };
    watches.look(Now { moment: Moment(1), date_ms: 1 }, &keyspaces, &table, &mut touched);
    let told = watches.take_answers();
    assert!(told.len() == 1 && told[0].1.starts_with(b"-CLUSTERDOWN"), "{told:?}");
}

/// The answers and pushes to watches of two slots, of which `may_read` is asked at these seconds.
fn unread(seconds: &[u64], may_read: impl Fn(u64, Slot, u64) -> bool) -> Vec<(u64, Vec<u8>)> {
    let mut watches = Watches::default();
    watches.begin(watch(0, None));
    let mut other = watch(0, Some(1));
    other.place = place_of(0, b"another key").into();
    assert_ne!(other.slot(), TestNode::slot());
    watches.begin(other);
    let mut told = Vec::new();
    for &at in seconds {
        let may_read = |slot, round| may_read(at, slot, round);
        watches.end_unread(Moment(at * 1_000_000), (3_000_000, at), may_read);
        told.extend(watches.take_answers().into_iter().map(|(_, bytes)| (at, bytes)));
        told.extend(watches.take_pushes().into_iter().map(|push| (at, push.bytes)));
    }
    told
}

#[test]
fn who_waits_where_reads_are_refused_is_refused_as_late_as_they_are() {
    // One slot can be read at second 3 and then not any more, the other one at all times.
    let told = unread(&[1, 2, 3, 4, 5, 6, 7, 8, 9], |at, slot, _| slot != TestNode::slot() || at == 3);
    let [(8, bytes)] = told.as_slice() else { panic!("{told:?}") };
    assert!(bytes.starts_with(b"-CLUSTERDOWN the other copies"), "{}", bytes.escape_ascii());
}

#[test]
fn who_waits_where_other_copies_confirm_each_read_later_waits_on() {
    // All rounds before the coming one are answered.
    let told = unread(&[1, 2, 3, 4, 5, 6, 7, 8, 9], |at, _, round| round < at);
    assert!(told.is_empty(), "{told:?}");
    // None after second 2 is.
    let told = unread(&[1, 2, 3, 4, 5, 6, 7, 8, 9], |_, _, round| round < 3);
    assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [7, 7]);
}

#[test]
fn of_a_long_value_no_more_is_read_than_may_be_told() {
    let mut node = TestNode::new();
    let long = vec![b'v'; 32 << 20];
    node.put(b"f", &long);
    node.put(b"g", &long);
    let begun = Instant::now();
    for id in 0..1_000 {
        let field = if id % 2 == 0 { b"f" } else { b"g" };
        node.watches.begin(watch_of(0, Some(id), field, Expected::Equals(Some(b"x"))));
    }
    assert_eq!(node.round(), 0);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // The watch is met, and the value too long to be sent.
    node.watches.begin(watch_of(0, None, b"f", Expected::Differs(None)));
    node.watches.look(BEGIN, &node.keyspaces, &node.table, &mut node.touched);
    assert_eq!(node.watches.take_answers()[0].1, b"*2\r\n:2\r\n_\r\n");
}

#[test]
fn many_that_a_write_is_about_are_looked_at_some_with_each_round() {
    let mut node = TestNode::new();
    let count = LOOKS_MAX as u64 * 2 + 1;
    for id in 0..count {
        node.watches.begin(watch_of(0, Some(id), b"f", Expected::Differs(None)));
    }
    let round = |node: &mut TestNode| (node.round(), node.watches.goes_on(BEGIN.moment));
    let begun = [1, 2, 3, 4].map(|_| round(&mut node));
    assert_eq!(begun, [(0, true), (0, true), (0, false), (0, false)], "none is there yet");
    node.put(b"f", b"v");
    node.touch();
    let told = [1, 2, 3, 4].map(|_| round(&mut node));
    assert_eq!(told, [(LOOKS_MAX, true), (LOOKS_MAX, true), (1, false), (0, false)]);
}

#[test]
fn who_came_first_is_looked_at_before_any_number_of_those_who_come_later() {
    let mut node = TestNode::new();
    let long = vec![b'v'; 1 << 20];
    let names: Vec<String> = (0..17).map(|number| format!("a{number:02}")).collect();
    names.iter().for_each(|name| node.put(name.as_bytes(), &long));
    node.put(b"z", b"v");
    node.watches.begin(watch_of(0, Some(1_000), b"z", Expected::Differs(None)));
    // They want more in each round than a round may read, and all of them sort before it.
    let told: usize = (0..5_u64)
        .map(|round| {
            for (id, name) in (round * 17..).zip(&names) {
                let (name, expected) = (name.as_bytes(), Expected::Equals(Some(b"x".as_slice())));
                node.watches.begin(watch_of(0, Some(id), name, expected));
            }
            node.round()
        })
        .sum();
    assert_eq!(told, 1);
}

#[test]
fn those_that_ended_before_they_were_looked_at_take_no_place() {
    let mut node = TestNode::new();
    node.watches.begin(watch_of(0, Some(9_999), b"f", Expected::Differs(None)));
    for id in 0..2 * LOOKS_MAX as u64 {
        node.watches.begin(watch_of(0, Some(id), b"f", Expected::Differs(None)));
        node.watches.end_id(3, id);
    }
    assert_eq!((node.round(), node.watches.goes_on(BEGIN.moment)), (0, false));
}

#[test]
fn what_is_written_again_before_all_were_looked_at_is_looked_at_again() {
    let mut node = TestNode::new();
    let count = LOOKS_MAX as u64 + 1;
    for id in 0..count {
        let field = format!("{id:05}");
        node.watches.begin(watch_of(0, Some(id), field.as_bytes(), Expected::Differs(None)));
    }
    assert_eq!([node.round(), node.round()], [0, 0]);
    node.touch();
    assert_eq!((node.round(), node.watches.goes_on(BEGIN.moment)), (0, true));
    // The first one was checked, the last one was not.
    node.put(b"00000", b"v");
    node.put(format!("{:05}", count - 1).as_bytes(), b"v");
    node.touch();
    assert_eq!([node.round(), node.round(), node.round()], [2, 0, 0]);
}

#[test]
fn whose_time_is_over_before_it_was_looked_at_is_looked_at_first() {
    let mut node = TestNode::new();
    node.put(b"last", b"v");
    for id in 0..LOOKS_MAX as u64 {
        node.watches.begin(watch_of(0, Some(id), b"f", Expected::Differs(None)));
    }
    let mut last = watch_of(0, None, b"last", Expected::Differs(None));
    last.ends_us = BEGIN.moment.0;
    node.watches.begin(last);
    node.watches.look(BEGIN, &node.keyspaces, &node.table, &mut node.touched);
    assert_eq!(node.watches.take_answers()[0].1, b"*2\r\n:1\r\n$1\r\nv\r\n");
}

#[test]
fn a_round_reads_so_many_bytes_however_many_long_values_are_waited_for() {
    let mut node = TestNode::new();
    let value = vec![b'v'; 1 << 20];
    for id in 0..40 {
        let field = format!("{id}");
        node.put(field.as_bytes(), &value);
        node.watches.begin(watch_of(0, Some(id), field.as_bytes(), Expected::Differs(None)));
    }
    assert_eq!([1, 2, 3, 4].map(|_| node.round()), [16, 16, 8, 0]);
}

#[test]
fn many_watches_of_one_key_cost_a_write_to_one_field_nothing() {
    let mut node = TestNode::new();
    for id in 0..30_000 {
        let field = format!("{id:05}");
        node.watches.begin(watch_of(0, Some(id), field.as_bytes(), Expected::Differs(None)));
    }
    while node.watches.goes_on(BEGIN.moment) {
        assert_eq!(node.round(), 0);
    }
    let begun = Instant::now();
    for id in 0..1_000 {
        node.put(b"nobody waits for this one", b"v");
        assert_eq!(node.round(), 0);
        node.put(format!("{:05}", id * 30).as_bytes(), b"v");
        assert_eq!(node.round(), 1);
        assert!(!node.watches.goes_on(BEGIN.moment));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_write_to_one_field_of_a_key_whose_time_is_over_is_about_all_of_them() {
    let mut node = TestNode::new();
    node.put(b"f", b"v");
    node.put(b"g", b"v");
    node.watches.begin(watch_of(0, Some(1), b"g", Expected::Equals(None)));
    let (deadline, rule) = (Deadline::At(5), ExpiryRule::default());
    node.apply(1, &Command::Expire { key: b"key", deadline, rule });
    assert_eq!(node.round(), 0);
    // It has not been deleted yet.
    node.apply(9, &Command::HashSet { key: b"key", pairs: vec![(b"f", b"w")], says_ok: false });
    assert_eq!(node.round(), 1);
}

#[test]
fn what_empties_a_slot_is_about_the_watches_of_this_slot() {
    let mut node = TestNode::new();
    // More than are looked at in a round, so that it shows whether they are looked at.
    for id in 0..=LOOKS_MAX as u64 {
        node.watches.begin(watch_of(0, Some(id), b"f", Expected::Differs(None)));
    }
    while node.watches.goes_on(BEGIN.moment) {
        assert_eq!(node.round(), 0);
    }
    for (slot, are_looked_at) in [(Slot(TestNode::slot().0 ^ 1), false), (TestNode::slot(), true)] {
        node.touched.touch(slot, std::iter::empty());
        assert_eq!((node.round(), node.watches.goes_on(BEGIN.moment)), (0, are_looked_at), "{slot:?}");
    }
}

/// `SET` of the key of all these watches.
fn set(value: &[u8]) -> Command<'_> {
    Command::Set(SetRequest {
        key: b"key",
        value,
        condition: SetCondition::Always,
        lifetime: SetLifetime::Forever,
        answer: SetAnswer::Ok,
    })
}

#[test]
fn many_that_wait_for_a_string_are_looked_at_some_with_each_round() {
    let mut node = TestNode::new();
    let count = LOOKS_MAX as u64 * 2 + 1;
    for id in 0..count {
        node.watches.begin(watch_on(0, Some(id), None, Expected::Equals(Some(b"done"))));
    }
    let round = |node: &mut TestNode| (node.round(), node.watches.goes_on(BEGIN.moment));
    let begun = [1, 2, 3, 4].map(|_| round(&mut node));
    assert_eq!(begun, [(0, true), (0, true), (0, false), (0, false)], "none is there yet");
    node.apply(1, &set(b"done"));
    let told = [1, 2, 3, 4].map(|_| round(&mut node));
    assert_eq!(told, [(LOOKS_MAX, true), (LOOKS_MAX, true), (1, false), (0, false)]);
}

#[test]
fn whoever_waits_for_a_string_is_not_told_of_the_field_with_an_empty_name() {
    let mut node = TestNode::new();
    node.watches.begin(watch_on(0, Some(1), None, Expected::Differs(None)));
    node.watches.begin(watch_on(0, Some(2), Some(b""), Expected::Differs(None)));
    node.watches.begin(watch_on(0, Some(3), Some(b"f"), Expected::Differs(None)));
    assert_eq!(node.round(), 0);
    node.put(b"", b"v");
    node.watches.look(BEGIN, &node.keyspaces, &node.table, &mut node.touched);
    let told: Vec<_> = node.watches.take_pushes().into_iter().map(|push| push.bytes).collect();
    let [string, field] = told.as_slice() else { panic!("{told:?}") };
    assert!(string.starts_with(b">4\r\n$8\r\nat.watch\r\n:1\r\n:-1\r\n"), "{}", string.escape_ascii());
    assert_eq!(field.as_slice(), b">4\r\n$8\r\nat.watch\r\n:2\r\n:1\r\n$1\r\nv\r\n");
    assert_eq!(node.watches.len(), 1);
}
