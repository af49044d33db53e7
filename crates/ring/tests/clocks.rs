//! Three nodes, one with a wrong clock: keys stay, and expire when they should.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use atoll_replica::{GroupOptions, NodeId, Options};
use atoll_ring::{Clock, LocalGroup, Node, NodeOptions, Now, Others, SystemClock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::Client;

/// Three nodes at a time are enough for two processors.
static ALONE: Mutex<()> = Mutex::new(());

const LONG: Duration = Duration::from_secs(60);
const YEAR_MS: u64 = 365 * 86_400_000;

/// A clock that is ahead by this many milliseconds.
#[derive(Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        Now { date_ms: now.date_ms + self.0.load(Ordering::SeqCst), ..now }
    }
}

fn begin(node: u32, group: &LocalGroup, clock: Arc<Ahead>) -> Node {
    let others = Others {
        me: NodeId(node),
        listen: "127.0.0.1:0".parse().unwrap(),
        group: Arc::new(group.clone()),
        // A machine that is busy with other tests must not make a copy count as lost.
        options: Options { suspect_us: 20_000_000, ..Options::default() },
    };
    let metrics = Some("127.0.0.1:0".parse().unwrap());
    let memory_bytes = 64 << 20;
    Node::start(NodeOptions { others: Some(others), clock, metrics, memory_bytes, ..support::options() })
        .unwrap()
}

/// The reply of the node that leads the slot.
fn ask(clients: &mut [Client], words: &str) -> String {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < LONG, "nobody answers {words}");
        for client in &mut *clients {
            let said = client.say(words);
            // On a busy machine a copy may count as lost for a while.
            if !["-MOVED", "-CLUSTERDOWN", "-LOADING", "-UNKNOWN", "-NOREPLICAS"]
                .iter()
                .any(|word| said.starts_with(word))
            {
                return said;
            }
        }
    }
}

#[test]
fn a_clock_that_jumps_a_year_ahead_makes_no_key_go_and_is_told_of() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let group =
        LocalGroup::start(GroupOptions { slots: 16_384, copies: 3 }, Duration::from_millis(300)).unwrap();
    let clock = Arc::new(Ahead::default());
    let nodes =
        [begin(1, &group, clock.clone()), begin(2, &group, Arc::default()), begin(3, &group, Arc::default())];
    let is_whole = group.wait(LONG, |table| {
        let leads = |node| table.slots.iter().filter(|slot| slot.primary == Some(NodeId(node))).count();
        table.slots.iter().all(|slot| slot.in_sync.len() == 3) && (1..=3).all(|node| leads(node) > 4_000)
    });
    assert!(is_whole, "{:?}", group.table().members);
    let mut clients: Vec<_> = nodes.iter().map(|node| Client::connect(node.address())).collect();
    let began_ms = SystemClock.now().date_ms;
    (0..30).for_each(|key| assert_eq!(ask(&mut clients, &format!("set key{key} value ex 1000")), "OK"));
    clock.0.store(YEAR_MS, Ordering::SeqCst);
    for key in 0..30 {
        assert_eq!(ask(&mut clients, &format!("get key{key}")), "value", "key{key}");
        assert_eq!(ask(&mut clients, &format!("set key{key} value ex 2000")), "OK");
        let ends_ms: u64 = ask(&mut clients, &format!("pexpiretime key{key}")).parse().unwrap();
        assert!(ends_ms < began_ms + YEAR_MS / 2, "key{key} stays for {} ms", ends_ms - began_ms);
    }
    // The metrics are at most a second old.
    let started = Instant::now();
    while !nodes[0].metrics_text().contains("atoll_ring_clock_doubted 1") {
        assert!(started.elapsed() < LONG, "{}", nodes[0].metrics_text());
    }
    assert!(nodes[1].metrics_text().contains("atoll_ring_clock_doubted 0"));
    assert!(nodes[1].metrics_text().contains("atoll_ring_entries_ahead_total 0"));
}

#[test]
fn a_node_that_begins_with_a_clock_a_year_ahead_writes_none_of_its_dates() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let group =
        LocalGroup::start(GroupOptions { slots: 16_384, copies: 3 }, Duration::from_millis(300)).unwrap();
    let clock = |ahead_ms| Arc::new(Ahead(AtomicU64::new(ahead_ms)));
    let nodes = [YEAR_MS, 0, 0].map(clock);
    let nodes: Vec<_> = (1..).zip(nodes).map(|(node, clock)| begin(node, &group, clock)).collect();
    // Requests begin when the node knows that there are others.
    let started = Instant::now();
    while !nodes[0].metrics_text().contains("atoll_ring_node_up{node=\"3\"") {
        assert!(started.elapsed() < LONG, "{}", nodes[0].metrics_text());
    }
    let mut clients: Vec<_> = nodes.iter().map(|node| Client::connect(node.address())).collect();
    let began_ms = SystemClock.now().date_ms;
    for key in 0..30 {
        assert_eq!(ask(&mut clients, &format!("set key{key} value ex 1000")), "OK");
        let ends_ms: u64 = ask(&mut clients, &format!("pexpiretime key{key}")).parse().unwrap();
        assert!(ends_ms < began_ms + YEAR_MS / 2, "key{key} stays for {} ms", ends_ms - began_ms);
    }
}

#[test]
fn clients_that_were_silent_for_long_are_forgotten_by_all_copies_though_nobody_writes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let group =
        LocalGroup::start(GroupOptions { slots: 16_384, copies: 3 }, Duration::from_millis(300)).unwrap();
    let clock = Arc::new(Ahead::default());
    let mut nodes: Vec<_> = (1..=3).map(|node| begin(node, &group, clock.clone())).collect();
    assert!(group.wait(LONG, |table| table.slots.iter().all(|slot| slot.in_sync.len() == 3)));
    let mut clients: Vec<_> = nodes.iter().map(|node| Client::connect(node.address())).collect();
    let named = |clients: &mut [Client], key: u32| ask(clients, &format!("AT.ID a 1 0 INCR key{key}"));
    for key in 0..30 {
        // The reply may have been lost with a connection.
        named(&mut clients, key);
        assert_eq!(named(&mut clients, key), "[1 1]", "key{key}");
    }
    clock.0.store(15 * 60_000, Ordering::SeqCst);
    let started = Instant::now();
    for key in 0..30 {
        while named(&mut clients, key) == "[1 1]" {
            assert!(started.elapsed() < LONG, "key{key} is remembered");
        }
        assert_eq!(named(&mut clients, key), "[1 2]", "key{key} was done anew, once");
    }
    // The same at the other nodes, whichever leads by then.
    drop(clients.remove(0));
    nodes.remove(0).stop().unwrap();
    (0..30).for_each(|key| assert_eq!(named(&mut clients, key), "[1 2]", "key{key}"));
}
