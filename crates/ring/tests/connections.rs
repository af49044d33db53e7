//! Commands about the connection itself, and connections that go wrong.
#![allow(clippy::unwrap_used)]

mod support;

use atoll_resp::Value;
use atoll_ring::{ConnectionLimits, Node, NodeOptions};
use std::io::Write;
use support::{Client, node, options, show};

#[test]
fn connections_are_listed_by_type_and_by_id() {
    let node = node();
    let (mut one, mut other) = (Client::connect(node.address()), Client::connect(node.address()));
    let (mine, others) = (one.say("CLIENT ID"), other.say("CLIENT ID"));
    let listed = |client: &mut Client, request: &str| {
        let text = client.say(request);
        [&mine, &others].map(|id| text.contains(&format!("id={id} ")))
    };
    for (request, expected) in [
        ("CLIENT LIST".to_owned(), [true, true]),
        ("CLIENT LIST TYPE normal".to_owned(), [true, true]),
        ("CLIENT LIST TYPE pubsub".to_owned(), [false, false]),
        (format!("CLIENT LIST ID {others}"), [false, true]),
        (format!("CLIENT LIST ID {others} {mine} {others} 9999"), [true, true]),
        ("CLIENT LIST ID 9999".to_owned(), [false, false]),
    ] {
        assert_eq!(listed(&mut one, &request), expected, "{request}");
    }
    assert_eq!(one.say("CLIENT LIST TYPE foo"), "-ERR Unknown client type \\'foo\\'");
}

#[test]
fn a_connection_says_which_protocol_and_who_it_is() {
    let node = node();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("CLIENT GETNAME"), "nil");
    let hello = client.say("HELLO 3 SETNAME me");
    assert!(hello.starts_with("{server: redis, version: 7.2."), "{hello}");
    assert!(
        hello.contains("proto: 3, ") && hello.contains("mode: cluster, role: master, modules: []"),
        "{hello}"
    );
    assert!(matches!(client.ask(&["HGETALL", "h"]), Value::Map(_)));
    assert_eq!(client.say("CLIENT GETNAME"), "me");
    assert_eq!(client.say("CLIENT SETINFO LIB-NAME lib"), "OK");
    assert_eq!(client.say("CLIENT SETINFO LIB-VER 1"), "OK");
    let id = client.say("CLIENT ID");
    let text = client.say("CLIENT INFO");
    assert!(
        text.contains(&format!("id={id} ")) && text.contains(" name=me ") && text.contains(" lib-name=lib ")
    );
    assert_eq!(client.say("SELECT 0"), "OK");
    assert_eq!(client.say("SELECT 1"), "-ERR DB index is out of range", "nobody made another keyspace");
    assert_eq!(client.say("CLIENT KILL 1"), "-ERR unknown subcommand \\'KILL\\'. Try CLIENT HELP.");
    assert_eq!(client.say("HELLO 4"), "-NOPROTO unsupported protocol version");
    assert_eq!(client.say("READONLY"), "OK");
    assert_eq!(client.say("WAIT 0 0"), "0");
    assert_eq!(client.say("RESET"), "RESET");
    assert_eq!(client.say("CLIENT GETNAME"), "nil");
    assert!(matches!(client.ask(&["HGETALL", "h"]), Value::Array(_)));
    let long = "x".repeat(2000);
    assert!(client.say(&format!("CLIENT SETNAME {long}")).starts_with("-ERR "));
}

#[test]
fn all_connections_are_listed_and_replies_behind_the_list_wait_for_it() {
    let node = node();
    let mut others: Vec<_> = (0..5).map(|_| Client::connect(node.address())).collect();
    for (at, other) in others.iter_mut().enumerate() {
        other.say(&format!("CLIENT SETNAME other-{at}"));
    }
    let mut client = Client::connect(node.address());
    for request in ["SET a 1", "CLIENT LIST", "GET a", "CLIENT LIST", "GET b"] {
        client.send(&request.split(' ').collect::<Vec<_>>());
    }
    let replies: Vec<_> = (0..5).map(|_| show(&client.reply().unwrap())).collect();
    assert_eq!([&replies[0], &replies[2], &replies[4]], ["OK", "1", "nil"]);
    for list in [&replies[1], &replies[3]] {
        assert_eq!(list.matches("id=").count(), 6, "{list}");
        assert!((0..5).all(|at| list.contains(&format!("name=other-{at} "))), "{list}");
    }
}

#[test]
fn one_connection_too_many_is_told_so_and_the_others_go_on() {
    let limits = ConnectionLimits { connections_max: 3, ..ConnectionLimits::default() };
    let node = Node::start(NodeOptions { limits, ..options() }).unwrap();
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(node.address())).collect();
    assert!(clients.iter_mut().all(|client| client.say("PING") == "PONG"));
    let mut refused = Client::connect(node.address());
    assert_eq!(show(&refused.reply().unwrap()), "-ERR max number of clients reached");
    assert!(refused.is_ended());
    assert!(clients.iter_mut().all(|client| client.say("PING") == "PONG"));
    // The place of a client that left is free again.
    let mut gone = clients.pop().unwrap();
    assert_eq!(gone.say("QUIT"), "OK");
    assert!(gone.is_ended());
    assert_eq!(Client::connect(node.address()).say("PING"), "PONG");
    assert!(clients[0].say("INFO stats").contains("rejected_connections:1"));
}

#[test]
fn a_client_that_sends_no_more_gets_all_its_replies() {
    let node = node();
    let mut client = Client::connect(node.address());
    for _ in 0..1000 {
        client.send(&["ECHO", &"x".repeat(1000)]);
    }
    client.socket.write_all(b"*2\r\n$4\r\nECHO\r\n").unwrap();
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(std::iter::from_fn(|| client.reply()).count(), 1000);
}

#[test]
fn a_client_that_speaks_as_to_a_web_server_is_ended() {
    let node = node();
    let mut client = Client::connect(node.address());
    client.socket.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nSET a stolen\r\n").unwrap();
    assert!(client.is_ended());
    assert_eq!(Client::connect(node.address()).say("GET a"), "nil");
}

#[test]
fn many_idle_connections_take_little() {
    const COUNT: usize = 1000;
    let node = node();
    let mut idle: Vec<_> = (0..COUNT).map(|_| Client::connect(node.address())).collect();
    // Each has been active, with large requests in pieces.
    for client in &mut idle {
        client.send(&["SET", "key", &"x".repeat(100_000)]);
        client.socket.write_all(b"*1\r\n$4\r\n").unwrap();
    }
    for client in &mut idle {
        assert_eq!(show(&client.reply().unwrap()), "OK");
        client.socket.write_all(b"PING\r\n").unwrap();
        assert_eq!(show(&client.reply().unwrap()), "PONG");
    }
    let clients = idle[0].say("INFO clients");
    let field = |name: &str| {
        let line = clients.split("\\r\\n").find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').parse::<usize>().unwrap()
    };
    assert_eq!(field("connected_clients"), COUNT);
    let each = field("clients_memory") / COUNT;
    assert!(each < 1024, "{each} bytes for each idle connection");
}

#[test]
fn what_a_node_counts_can_be_read_by_machines() {
    let node = node();
    let mut client = Client::connect(node.address());
    client.say("SET a 1");
    client.say("GET a");
    client.say("GET");
    let text = node.metrics_text();
    for line in [
        "# TYPE atoll_ring_commands_total counter",
        "atoll_ring_commands_total 3",
        "atoll_ring_connections 1",
        "atoll_ring_calls_total{command=\"get\",result=\"done\"} 1",
        "atoll_ring_calls_total{command=\"get\",result=\"error\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}
