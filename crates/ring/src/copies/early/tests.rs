//! Requests that were held until clocks were known are dated by the majority of the clocks.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::copies::{GatheringRoom, WriteExtra};
use crate::keyspaces::Keyspaces;
use crate::peer::{Peers, Spoken};
use atoll_engine::Engine;
use atoll_replica::{
    Configuration, Epoch, Incarnation, Member, Moment, NodeId, Options, Slot, Table, Ticket, Version,
};
use atoll_resp::{Limits, Protocol, RequestParser, write_request};
use std::net::TcpListener;
use std::sync::Arc;

const ME: NodeId = NodeId(1);
const SLOT: Slot = Slot(5);
const NUMBER: u16 = 5;
const TODAY: u64 = 1_800_000_000_000;
const YEAR: u64 = 365 * 86_400_000;

/// A table of three nodes in which this one has the only copy of a slot.
fn table() -> Table {
    let mut table = Table::empty(16_384);
    table.version = Version(1);
    for node in 1..=3 {
        let (incarnation, is_up, is_leaving) = (Incarnation(1), true, false);
        let member = Member { incarnation, is_up, is_leaving, ..Member::new("".into()) };
        table.members.insert(NodeId(node), member);
    }
    let configuration = Configuration {
        epoch: Epoch(1),
        since: table.version,
        primary: Some(ME),
        in_sync: atoll_replica::Copies::of(&[ME]),
        ..Configuration::default()
    };
    table.slots.change_each(|slot, one| {
        if slot == SLOT {
            *one = configuration;
        }
    });
    table
}

/// A node that has begun an incarnation at this date of its clock, and the poll of its sockets.
fn begun(now: Now) -> (Copies, mio::Poll) {
    let engine = Engine::in_memory(atoll_engine::Options::default()).unwrap();
    let (poll, listener) = (mio::Poll::new().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let peers = Peers::listen(ME, (None, None), listener, poll.registry()).unwrap();
    let keyspaces = Keyspaces::open(&engine, crate::options::Persistence::EverySecond).unwrap();
    let log = crate::log::SlotLog::open(&engine, "log").unwrap();
    let gathering = GatheringRoom { slot_bytes_max: 30_000, bytes_max: 60_000 };
    let options = Options { in_sync_min: 1, ..Options::default() };
    let mut copies = Copies::new(ME, options, keyspaces, Some(log), peers, 1 << 20, gathering);
    copies.dates.adjusted(now);
    copies.begin(now, (Incarnation(1), 0), poll.registry()).unwrap();
    let table = Arc::new(table());
    copies.dates.follow(&table);
    copies.step(now, Input::Table(table)).unwrap();
    copies.step(now, Input::GroupHeard { asked_at: now.moment }).unwrap();
    (copies, poll)
}

fn settle(copies: &mut Copies, now: Now) {
    loop {
        copies.write_log().unwrap();
        let handed = copies.take_handed();
        if handed.is_empty() {
            return;
        }
        copies.logged(now, handed).unwrap();
    }
}

fn write(copies: &mut Copies, now: Now, ticket: u64) {
    let mut bytes = Vec::new();
    write_request(&mut bytes, &["set", "key", "value"]);
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let (asked, extra) = ((Ticket(ticket), Protocol::Resp2), WriteExtra::default());
    copies.write(SLOT, now, &request, [1].into_iter(), asked, extra).unwrap();
}

#[test]
fn a_write_that_was_held_has_the_date_of_most_clocks_and_not_of_the_wrong_one_that_held_it() {
    let now = Now { moment: Moment(1_000_000), date_ms: TODAY + YEAR };
    let (mut copies, _poll) = begun(now);
    write(&mut copies, now, 7);
    settle(&mut copies, now);
    assert!(copies.take_answers().is_empty(), "it waits");
    for node in [2, 3] {
        copies.hear(now, NodeId(node), Incarnation(1), Spoken::Date(TODAY)).unwrap();
    }
    copies.take_early(now).unwrap();
    settle(&mut copies, now);
    assert_eq!(copies.take_answers(), [(Ticket(7), b"+OK\r\n".to_vec())]);
    let time_ms = copies.keyspaces.of(SLOT).0.time_ms(NUMBER);
    assert!(time_ms.abs_diff(TODAY) < 1_000, "{time_ms}");
}

#[test]
fn clocks_of_nodes_that_are_not_of_the_ring_do_not_count() {
    let now = Now { moment: Moment(1_000_000), date_ms: TODAY };
    let (mut copies, _poll) = begun(now);
    for (node, life) in [(4, 1), (5, 1), (6, 1), (2, 2)] {
        copies.hear(now, NodeId(node), Incarnation(life), Spoken::Date(TODAY + YEAR)).unwrap();
    }
    assert!(copies.dates.is_early(now.moment) && !copies.dates.seen().is_doubted);
    for node in [2, 3] {
        copies.hear(now, NodeId(node), Incarnation(1), Spoken::Date(TODAY)).unwrap();
    }
    assert!(!copies.dates.is_early(now.moment) && !copies.dates.seen().is_doubted);
}

#[test]
fn keys_are_listed_only_once_it_is_known_what_is_over() {
    let now = Now { moment: Moment(1_000_000), date_ms: TODAY + YEAR };
    let (mut copies, _poll) = begun(now);
    settle(&mut copies, now);
    assert!(!copies.may_read(SLOT, now));
    for node in [2, 3] {
        copies.hear(now, NodeId(node), Incarnation(1), Spoken::Date(TODAY)).unwrap();
    }
    assert!(copies.may_read(SLOT, now));
}
