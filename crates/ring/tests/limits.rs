//! Clients that read nothing, send too much, or say nothing: memory stays bounded, and the others are served.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use atoll_ring::{ConnectionLimits, Node, NodeOptions, Token};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Client, Put, node, options, show};

fn info(node: &Node, section: &str, name: &str) -> u64 {
    info_by(&mut Client::connect(node.address()), section, name)
}

fn info_by(client: &mut Client, section: &str, name: &str) -> u64 {
    let text = client.say(&format!("INFO {section}"));
    let line =
        text.split("\\r\\n").find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
    line.unwrap().parse().unwrap()
}

/// Waits until this is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
    }
}

/// Sends until the node accepts nothing for a while. Returns how many bytes were sent.
fn send_until_stopped(client: &mut Client, request: &[u8], most: usize) -> usize {
    client.socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0;
    while sent < most {
        match client.socket.write(&request[sent % request.len()..]) {
            Ok(count) => sent += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

#[test]
fn a_client_that_reads_nothing_is_not_listened_to_until_it_reads() {
    let node = node();
    Client::connect(node.address()).ask(&["SET", "key", &"x".repeat(100_000)]);
    let mut client = Client::connect(node.address());
    let most = 64 << 20;
    let request = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    let sent = send_until_stopped(&mut client, request, most);
    assert!(sent < most, "all was taken");
    // More than a million replies of 100 kB each are due. The waiting bytes are only a little above the
    // limit.
    let memory = info(&node, "clients", "clients_memory");
    assert!(memory < 8 << 20, "{memory} bytes");
    // Once it reads it gets all of its replies.
    for at in 0..sent / request.len() {
        if at == 2000 {
            return;
        }
        assert_eq!(show(&client.reply().unwrap()).len(), 100_000, "reply {at}");
    }
}

#[test]
fn a_client_that_reads_nothing_for_too_long_is_ended() {
    let clock = Arc::new(Put::default());
    let node = Node::start(NodeOptions { clock: clock.clone(), ..options() }).unwrap();
    Client::connect(node.address()).ask(&["SET", "key", &"x".repeat(1 << 20)]);
    let mut client = Client::connect(node.address());
    send_until_stopped(&mut client, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", 64 << 20);
    let mut idle = Client::connect(node.address());
    assert_eq!(idle.say("PING"), "PONG");
    assert_eq!(info(&node, "stats", "dropped_connections"), 0);
    clock.0.fetch_add(61_000_000, Ordering::Relaxed);
    until("who reads nothing is ended", || info(&node, "stats", "dropped_connections") > 0);
    client.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut room, mut received) = (vec![0; 1 << 20], 0);
    while let Ok(count @ 1..) = client.socket.read(&mut room) {
        received += count;
    }
    assert!(received < 32 << 20, "{received}");
    assert_eq!(idle.say("PING"), "PONG");
}

#[test]
fn who_does_not_say_who_it_is_is_ended_and_so_is_nobody_else() {
    let clock = Arc::new(Put::default());
    let token = Token::new(b"0123456789abcdef");
    let node = Node::start(NodeOptions { clock: clock.clone(), token, ..options() }).unwrap();
    let (mut silent, mut known) = (Client::connect(node.address()), Client::connect(node.address()));
    assert_eq!(known.say("AUTH 0123456789abcdef"), "OK");
    assert!(silent.say("PING").starts_with("-NOAUTH"));
    clock.0.fetch_add(11_000_000, Ordering::Relaxed);
    assert!(silent.is_ended());
    assert_eq!(known.say("PING"), "PONG");
}

#[test]
fn who_resets_a_connection_has_as_long_to_say_who_it_is_as_at_its_beginning() {
    let clock = Arc::new(Put::default());
    let token = Token::new(b"0123456789abcdef");
    let node = Node::start(NodeOptions { clock: clock.clone(), token, ..options() }).unwrap();
    let (mut pooled, mut other) = (Client::connect(node.address()), Client::connect(node.address()));
    assert_eq!(pooled.say("AUTH 0123456789abcdef"), "OK");
    assert_eq!(other.say("AUTH 0123456789abcdef"), "OK");
    clock.0.fetch_add(60_000_000, Ordering::Relaxed);
    assert_eq!(other.say("PING"), "PONG");
    assert_eq!(pooled.say("RESET"), "RESET");
    clock.0.fetch_add(8_000_000, Ordering::Relaxed);
    // Ticks pass meanwhile, and on a busy machine some of the time that is left.
    let mut newer = Client::connect(node.address());
    clock.0.fetch_add(500_000, Ordering::Relaxed);
    assert!(newer.say("PING").starts_with("-NOAUTH"));
    assert_eq!(other.say("PING"), "PONG");
    assert!(pooled.say("GET k").starts_with("-NOAUTH"), "it is a stranger");
    // A repeated `RESET` does not give it more time.
    assert_eq!(pooled.say("RESET"), "RESET");
    clock.0.fetch_add(2_000_000, Ordering::Relaxed);
    assert!(pooled.is_ended());
    assert_eq!(other.say("PING"), "PONG");
}

#[test]
fn requests_beyond_the_limits_get_the_error_that_clients_expect() {
    let node = node();
    for (request, reply) in [
        (&b"*1048577\r\n"[..], "-ERR Protocol error: invalid multibulk length"),
        (b"*2\r\n$3\r\nGET\r\n$67108865\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*1\r\n:1\r\n", "-ERR Protocol error: expected \\'$\\', got \\':\\'"),
        (b"SET a \"b\r\n", "-ERR Protocol error: unbalanced quotes in request"),
        (&[b'a'; 70_000], "-ERR Protocol error: too big inline request"),
    ] {
        let mut client = Client::connect(node.address());
        client.send(&["PING"]);
        client.socket.write_all(request).unwrap();
        assert_eq!(show(&client.reply().unwrap()), "PONG");
        assert_eq!(show(&client.reply().unwrap()), reply);
        assert!(client.is_ended(), "{reply}");
    }
    let mut client = Client::connect(node.address());
    let long = "x".repeat(17 << 10);
    let refused = client.say(&format!("SET {long} 1"));
    assert_eq!(refused.trim_end(), "-LIMIT a key: 17408; allowed are 16384");
    assert_eq!(client.say("PING"), "PONG");
}

#[test]
fn connections_together_take_no_more_memory_than_they_may() {
    let limits = ConnectionLimits { memory_bytes_max: 8 << 20, ..ConnectionLimits::default() };
    let node = Node::start(NodeOptions { limits, ..options() }).unwrap();
    // Each announces a value of 60 MB and sends one MB of it.
    let mut clients: Vec<_> = (0..30).map(|_| Client::connect(node.address())).collect();
    let mut ended = 0;
    for client in &mut clients {
        let value = vec![b'x'; 1 << 20];
        let head = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$60000000\r\n";
        let sent = client.socket.write_all(head).and_then(|()| client.socket.write_all(&value));
        if sent.is_err() {
            ended += 1;
        }
        assert!(info(&node, "clients", "clients_memory") < 12 << 20);
    }
    assert!(info(&node, "stats", "dropped_connections") >= 20, "{ended}");
    // A client that needs little is served.
    assert_eq!(Client::connect(node.address()).say("SET a 1"), "OK");
}

/// A client that has sent one of the 60 MB that it announced.
fn half_a_request(node: &Node) -> Client {
    let mut client = Client::connect(node.address());
    let head = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$60000000\r\n";
    // The connection may end in between.
    drop(client.socket.write_all(head).and_then(|()| client.socket.write_all(&vec![b'x'; 1 << 20])));
    client
}

#[test]
fn who_sent_much_of_a_request_and_then_nothing_gives_way_to_others() {
    let clock = Arc::new(Put::default());
    let limits = ConnectionLimits { memory_bytes_max: 8 << 20, ..ConnectionLimits::default() };
    let node = Node::start(NodeOptions { limits, clock: clock.clone(), ..options() }).unwrap();
    let mut idle = Vec::new();
    while info(&node, "stats", "dropped_connections") == 0 {
        idle.push(half_a_request(&node));
    }
    // All of it arrives before they count as idle.
    for _ in 0..100 {
        info(&node, "clients", "clients_memory");
    }
    clock.0.fetch_add(5_000_000, Ordering::Relaxed);
    // Each needs more than is left.
    let value = vec![b'v'; 4 << 20];
    for key in ["a", "b", "c"] {
        let mut client = Client::connect(node.address());
        assert_eq!(show(&client.ask(&[b"SET", key.as_bytes(), &value])), "OK");
        assert_eq!(client.say("PING"), "PONG");
    }
    assert!(info(&node, "clients", "clients_memory") < 8 << 20);
}

#[test]
fn strangers_who_keep_much_together_end_nobody_who_is_known() {
    let memory_bytes_max = 2 << 20;
    let silent_us_max = 600_000_000;
    let limits = ConnectionLimits { memory_bytes_max, silent_us_max, ..ConnectionLimits::default() };
    let token = Token::new(b"0123456789abcdef");
    let node = Node::start(NodeOptions { limits, token, ..options() }).unwrap();
    let (mut known, mut observer) = (Client::connect(node.address()), Client::connect(node.address()));
    for client in [&mut known, &mut observer] {
        assert_eq!(client.say("AUTH 0123456789abcdef"), "OK");
    }
    // Each keeps far less than what counts as large for one who is known.
    let part = [&b"*2\r\n$4\r\nAUTH\r\n$16000\r\n"[..], &[b'x'; 15_000]].concat();
    let begin = |_| {
        let mut stranger = Client::connect(node.address());
        stranger.socket.write_all(&part).unwrap();
        stranger
    };
    let _strangers: Vec<_> = (0..200).map(begin).collect();
    let memory = |observer: &mut Client| info_by(observer, "clients", "clients_memory");
    until("the strangers keep too much", || memory(&mut observer) > memory_bytes_max);
    assert_eq!(info_by(&mut observer, "stats", "dropped_connections"), 0);
    // A request that does not arrive in one go.
    let value = vec![b'v'; 100_000];
    known.socket.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$200000\r\n").unwrap();
    known.socket.write_all(&value).unwrap();
    until("a stranger is ended", || info_by(&mut observer, "stats", "dropped_connections") > 0);
    known.socket.write_all(&value).and_then(|()| known.socket.write_all(b"\r\n")).unwrap();
    assert_eq!(show(&known.reply().unwrap()), "OK");
    assert_eq!(known.say("STRLEN a"), "200000");
    // Who comes later is let in.
    assert_eq!(Client::connect(node.address()).say("AUTH 0123456789abcdef"), "OK");
}

#[test]
fn the_words_of_a_request_that_is_not_whole_are_counted() {
    let node = node();
    let mut client = Client::connect(node.address());
    let words = b"$1\r\na\r\n".repeat(900_000);
    client.socket.write_all(b"*1000000\r\n").and_then(|()| client.socket.write_all(&words)).unwrap();
    // The record of where the words are takes more than twice as much memory as the words.
    until("the words are counted", || info(&node, "clients", "clients_memory") >= 18 << 20);
}

#[test]
fn a_store_without_room_says_so_and_goes_on_reading() {
    let node = Node::start(NodeOptions { memory_bytes: 4 << 20, ..options() }).unwrap();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("SET first 1"), "OK");
    let value = "x".repeat(60);
    let mut refused = None;
    for at in 0..100 {
        for more in 0..1000 {
            client.send(&["SET", &format!("key-{at}-{more}"), &value]);
        }
        let replies: Vec<_> = (0..1000).map(|_| show(&client.reply().unwrap())).collect();
        refused = refused.or_else(|| replies.into_iter().find(|reply| reply != "OK"));
    }
    assert_eq!(refused.unwrap(), "-OOM command not allowed when used memory > \\'maxmemory\\'.");
    assert!(info(&node, "memory", "used_memory_dataset") < 5 << 20);
    assert_eq!(client.say("GET first"), "1");
    // Deletions are accepted, also in the form that a store on this ring sends, which names each of its
    // writes.
    assert_eq!(client.say("AT.BATCH hash DEL f"), "OK");
    assert_eq!(client.say("AT.ID 1 1 0 AT.BATCH hash DEL f DELRANGE - +"), "[0 OK]");
    assert_eq!(client.say("AT.ID 1 2 0 DEL first"), "[0 1]");
    for adds in ["AT.BATCH hash DEL f PUT f v", "AT.ID 1 3 0 AT.BATCH hash APPEND f v", "AT.ID 1 3 0 SET k v"]
    {
        assert!(client.say(adds).starts_with("-OOM "), "{adds}");
    }
    // With room again, writes are accepted again.
    assert_eq!(client.say("FLUSHALL"), "OK");
    assert_eq!(client.say("SET first 2"), "OK");
}

#[test]
fn what_is_remembered_of_clients_that_are_gone_fills_a_node_no_longer_than_until_all_is_flushed() {
    let clock = Arc::new(Put::default());
    let options = NodeOptions { memory_bytes: 4 << 20, clock: clock.clone(), ..options() };
    let node = Node::start(options).unwrap();
    let mut client = Client::connect(node.address());
    let (mut number, mut is_full) = (0, false);
    while !is_full {
        (0..1_000).for_each(|more| {
            client.send(&["AT.ID", &format!("{:x}", number + more), "1", "0", "SET", "k", "v"])
        });
        number += 1_000;
        let replies: Vec<_> = (0..1_000).map(|_| show(&client.reply().unwrap())).collect();
        is_full = replies.iter().any(|reply| reply.starts_with("-OOM "));
    }
    // Deletions are accepted, and fill the memory by more than one key takes.
    for more in 0..100 {
        assert_eq!(client.say(&format!("AT.ID {:x} 1 0 DEL none", number + more)), "[0 0]");
    }
    assert_eq!(client.say("FLUSHALL"), "OK");
    assert!(client.say("SET k v").starts_with("-OOM "), "all of them may still ask again");
    clock.0.fetch_add(15 * 60_000_000, Ordering::Relaxed);
    assert_eq!(client.say("FLUSHALL"), "OK");
    assert_eq!(client.say("SET k v"), "OK");
}

#[test]
fn a_node_that_is_full_of_what_it_remembers_of_clients_and_idle_forgets_them_in_their_time() {
    let clock = Arc::new(Put::default());
    let options = NodeOptions { memory_bytes: 4 << 20, clock: clock.clone(), ..options() };
    let node = Node::start(options).unwrap();
    let mut client = Client::connect(node.address());
    let mut number = 0;
    while !client.say(&format!("AT.ID {number:x} 1 0 SET k{} v", number % 64)).starts_with("-OOM ") {
        number += 1;
    }
    assert!(client.say("SET k v").starts_with("-OOM "));
    clock.0.fetch_add(15 * 60_000_000, Ordering::Relaxed);
    let began = Instant::now();
    while client.say("SET k v") != "OK" {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing is forgotten");
    }
}

#[test]
fn deletions_with_names_take_no_more_than_a_little_of_what_is_not_there() {
    let limit = 4 << 20;
    let node = Node::start(NodeOptions { memory_bytes: limit, ..options() }).unwrap();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("AT.ID a 1 0 SET known 1"), "[0 OK]");
    let value = "x".repeat(60);
    let mut say_each = |words: &dyn Fn(usize) -> Vec<String>, from: usize| {
        (from..from + 1_000).for_each(|number| client.send(&words(number)));
        (0..1_000).map(|_| show(&client.reply().unwrap())).filter(|reply| reply.starts_with("-OOM ")).count()
    };
    let set = |number| vec!["SET".to_owned(), format!("key-{number}"), value.clone()];
    assert!((0..100).any(|turn| say_each(&set, turn * 1_000) > 0));
    let delete = |number| {
        ["AT.ID", &format!("{:x}", number + 16), "1", "0", "DEL", &format!("no-{number}")]
            .map(str::to_owned)
            .to_vec()
    };
    let refused = (0..20).map(|turn| say_each(&delete, turn * 1_000)).sum::<usize>();
    let used = info(&node, "memory", "used_memory_dataset");
    assert!(used < limit + limit / 16, "{used}");
    assert!(refused > 15_000, "{refused}");
    // A remembered client needs no more room, and a write without a name is not remembered.
    assert_eq!(client.say("AT.ID a 2 0 DEL known"), "[0 1]");
    assert_eq!(client.say("DEL none"), "0");
    // As soon as there is room again, everything is as before.
    assert!(client.say("AT.ID b 1 0 DEL none").starts_with("-OOM "));
    assert_eq!(client.say("FLUSHALL"), "OK");
    assert_eq!(client.say("AT.ID b 1 0 DEL none"), "[0 0]");
}

#[test]
fn deletions_that_make_room_for_their_names_go_on_on_a_full_node() {
    let node = Node::start(NodeOptions { memory_bytes: 16 << 20, ..options() }).unwrap();
    let mut client = Client::connect(node.address());
    let value = "x".repeat(1_000);
    let mut full = 0;
    while !client.say(&format!("SET key-{full} {value}")).starts_with("-OOM ") {
        full += 1;
    }
    assert!(full > 1_000, "{full}");
    for number in 0..1_000 {
        let deleted = client.say(&format!("AT.ID {:x} 1 0 DEL key-{number}", number + 16));
        assert_eq!(deleted, "[0 1]", "{number}");
    }
}
