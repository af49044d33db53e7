//! Requests with a latency class wait for each other, and are still answered in time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use atoll_replica::Moment;
use atoll_ring::{Clock, Now, SystemClock};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Client, node, options, show};

/// A clock that stands still until it is advanced.
struct Standing(Now, AtomicU64);

impl Clock for Standing {
    fn now(&self) -> Now {
        Now { moment: Moment(self.0.moment.0 + self.1.load(Ordering::SeqCst)), ..self.0 }
    }
}

/// A node whose clock stands still.
fn standing() -> (atoll_ring::Node, Arc<Standing>) {
    let clock = Arc::new(Standing(SystemClock.now(), AtomicU64::new(0)));
    let node = atoll_ring::Node::start(atoll_ring::NodeOptions { clock: clock.clone(), ..options() });
    (node.unwrap(), clock)
}

/// Whether a client has no reply although later requests of others were answered.
fn still_waits(client: &Client, other: &mut Client) -> bool {
    // The first round may still be under way when its first reply arrives.
    (0..2).for_each(|_| assert_eq!(other.say("PING"), "PONG"));
    client.socket.set_nonblocking(true).unwrap();
    let arrived = client.socket.peek(&mut [0]);
    client.socket.set_nonblocking(false).unwrap();
    arrived.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Turns of connections that had waited for others.
fn gathered(node: &atoll_ring::Node) -> u64 {
    let text = node.metrics_text();
    let line = text.lines().find(|line| line.starts_with("atoll_ring_gathered_turns_total")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_connection_says_how_long_its_requests_may_take_and_takes_it_back() {
    let node = node();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("AT.CLASS"), "nil");
    assert_eq!(client.say("AT.CLASS 500"), "OK");
    assert_eq!(client.say("at.class"), "500");
    let wrong = "-ERR a latency class is 5, 50 or 500, in milliseconds, or NONE";
    assert_eq!(client.say("AT.CLASS 100"), wrong);
    assert_eq!(client.say("AT.CLASS"), "500", "what was wrong changed nothing");
    assert_eq!(client.say("RESET"), "RESET");
    assert_eq!(client.say("AT.CLASS"), "nil");
}

#[test]
fn a_node_may_give_everybody_a_class() {
    let mut options = options();
    options.limits.latency_class = atoll_resp::LatencyClass::Fifty;
    let node = atoll_ring::Node::start(options).unwrap();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("AT.CLASS"), "50");
    assert_eq!(client.say("AT.CLASS NONE"), "OK");
    assert_eq!(client.say("AT.CLASS"), "nil");
}

#[test]
fn a_request_that_has_time_waits_for_others_and_is_answered_within_it() {
    let (node, clock) = standing();
    let mut hurried = Client::connect(node.address());
    let mut all: Vec<Client> = Vec::new();
    for _ in 0..8 {
        let mut comes = Client::connect(node.address());
        assert_eq!(comes.say("AT.CLASS 500"), "OK");
        // Known clients are waited for, so no request is answered before all of them have asked. The unknown
        // one asks first.
        comes.send(&["SET", "known", "1"]);
        assert_eq!(hurried.say("PING"), "PONG");
        all.iter_mut().for_each(|client| client.send(&["SET", "known", "1"]));
        all.push(comes);
        all.iter_mut().for_each(|client| assert_eq!(show(&client.reply().unwrap()), "OK"));
    }
    let before = gathered(&node);
    // The others were active lately and may come again, so it is not executed at once, but a hundredth of its
    // time later.
    all[0].send(&["SET", "k", "v"]);
    assert_eq!(hurried.say("GET known"), "1");
    assert!(still_waits(&all[0], &mut hurried));
    clock.1.store(4_999, Ordering::SeqCst);
    assert!(still_waits(&all[0], &mut hurried));
    assert_eq!(hurried.say("GET k"), "nil");
    clock.1.store(5_000, Ordering::SeqCst);
    assert_eq!(show(&all[0].reply().unwrap()), "OK");
    assert_eq!(gathered(&node) - before, 1);
    assert_eq!(hurried.say("GET k"), "v");
}

#[test]
fn requests_on_one_connection_are_answered_in_their_order_though_they_wait() {
    let node = node();
    let mut others: Vec<_> = (0..4).map(|_| Client::connect(node.address())).collect();
    for other in &mut others {
        assert_eq!(other.say("AT.CLASS 50"), "OK");
        assert_eq!(other.say("PING"), "PONG");
    }
    let client = &mut others[0];
    for number in 0..200 {
        client.send(&["APPEND", "log", "x"]);
        client.send(&["STRLEN", "log"]);
        if number % 50 == 0 {
            client.send(&["PING"]);
        }
    }
    for number in 0..200 {
        for _ in 0..2 {
            assert_eq!(show(&client.reply().unwrap()), (number + 1).to_string());
        }
        if number % 50 == 0 {
            assert_eq!(show(&client.reply().unwrap()), "PONG");
        }
    }
}

#[test]
fn who_goes_while_it_waits_is_not_waited_for() {
    // No time passes, so a client that is waited for after it has gone is waited for for ever.
    let (node, _) = standing();
    let mut stays = Client::connect(node.address());
    assert_eq!(stays.say("AT.CLASS 500"), "OK");
    for _ in 0..20 {
        let mut goes = Client::connect(node.address());
        assert_eq!(goes.say("AT.CLASS 500"), "OK");
        goes.send(&["SET", "gone", "1"]);
        drop(goes);
        assert_eq!(stays.say("PING"), "PONG");
    }
}
