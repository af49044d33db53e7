//! Requests that have time wait for each other, and are answered in time all the same.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::time::{Duration, Instant};
use support::{Client, node, options, show};

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
    let node = node();
    let mut all: Vec<_> = (0..8).map(|_| Client::connect(node.address())).collect();
    for client in &mut all {
        assert_eq!(client.say("AT.CLASS 500"), "OK");
        assert_eq!(client.say("SET known 1"), "OK");
    }
    let before = gathered(&node);
    // The others were here lately and may come again, so it is not executed at once; but in time.
    let began = Instant::now();
    all[0].send(&["SET", "k", "v"]);
    let mut hurried = Client::connect(node.address());
    assert_eq!(hurried.say("GET known"), "1");
    assert_eq!(show(&all[0].reply().unwrap()), "OK");
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
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
    let node = node();
    let mut stays = Client::connect(node.address());
    assert_eq!(stays.say("AT.CLASS 500"), "OK");
    for _ in 0..20 {
        let mut goes = Client::connect(node.address());
        assert_eq!(goes.say("AT.CLASS 500"), "OK");
        goes.send(&["SET", "gone", "1"]);
        drop(goes);
        let began = Instant::now();
        assert_eq!(stays.say("PING"), "PONG");
        assert!(began.elapsed() < Duration::from_millis(500));
    }
}
