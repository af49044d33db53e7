//! A node with a certificate serves clients that encrypt, and no others; and nodes that talk encrypted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;
#[path = "support/tls.rs"]
mod tls;

use atoll_replica::{GroupOptions, Moment, NodeId, Options};
use atoll_resp::write_request;
use atoll_ring::{
    Clock, ConnectionLimits, CouncilGroup, HostPort, LocalGroup, Node, NodeError, NodeOptions, Now, Others,
    Persistence, RingShape, SlotStorage, SystemClock, TlsError,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Client, options};
use tls::{Certificates, Waits};

const LONG: Duration = Duration::from_secs(60);

fn node(certificates: &Certificates) -> Node {
    Node::start(NodeOptions { tls: Some(certificates.node("node")), ..options() }).unwrap()
}

fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

fn ask(stream: &mut Waits, arguments: &[&[u8]], expected: &[u8]) {
    let mut request = Vec::new();
    write_request(&mut request, arguments);
    stream.write_all(&request).unwrap();
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).unwrap();
    assert!(reply == expected, "{:?}", reply.escape_ascii().to_string());
}

/// The bytes that arrive until the other side ends the connection.
fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => rest,
    }
}

#[test]
fn who_encrypts_is_served_as_ever() {
    let certificates = Certificates::new();
    let node = node(&certificates);
    let mut client = certificates.connect(socket(node.address()));
    ask(&mut client, &[b"SET", b"a", b"1"], b"+OK\r\n");
    // More than all buffers on the way hold, in both directions.
    let large = vec![b'x'; 5 << 20];
    ask(&mut client, &[b"SET", b"large", &large], b"+OK\r\n");
    let expected = [b"$5242880\r\n", large.as_slice(), b"\r\n"].concat();
    ask(&mut client, &[b"GET", b"large"], &expected);
    let mut many = Vec::new();
    (0..10_000).for_each(|_| write_request(&mut many, &["GET", "a"]));
    let mut sender = client.sock.try_clone().unwrap();
    drop(sender.flush());
    client.write_all(&many).unwrap();
    let mut replies = vec![0; 7 * 10_000];
    client.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(7).all(|reply| reply == b"$1\r\n1\r\n"));
    // It ends as TLS demands: with a close notification, after the last reply.
    ask(&mut client, &[b"QUIT"], b"+OK\r\n");
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn who_reads_slowly_gets_everything_and_holds_nobody_up() {
    let certificates = Certificates::new();
    let node = node(&certificates);
    let mut slow = certificates.connect(socket(node.address()));
    ask(&mut slow, &[b"SET", b"key", &vec![b'x'; 1 << 20]], b"+OK\r\n");
    let mut many = Vec::new();
    (0..30).for_each(|_| write_request(&mut many, &["GET", "key"]));
    slow.write_all(&many).unwrap();
    let mut other = certificates.connect(socket(node.address()));
    (0..100).for_each(|_| ask(&mut other, &[b"PING"], b"+PONG\r\n"));
    let one = [b"$1048576\r\n".as_slice(), &vec![b'x'; 1 << 20], b"\r\n"].concat();
    for _ in 0..30 {
        let mut reply = vec![0; one.len()];
        slow.read_exact(&mut reply).unwrap();
        assert!(reply == one);
    }
}

#[test]
fn who_does_not_encrypt_is_told_so_and_nothing_is_done() {
    let certificates = Certificates::new();
    let node = node(&certificates);
    for words in
        [&b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"[..], b"SET a 1\r\n", b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut plain = socket(node.address());
        plain.write_all(words).unwrap();
        assert_eq!(rest(&mut plain), b"-ERR this node speaks TLS, and nothing else\r\n");
    }
    let mut client = certificates.connect(socket(node.address()));
    ask(&mut client, &[b"EXISTS", b"a"], b":0\r\n");
}

#[test]
fn who_encrypts_where_nobody_does_is_sent_away_and_does_not_wait() {
    let certificates = Certificates::new();
    let node = support::node();
    for _ in 0..50 {
        let mut client = certificates.connect(socket(node.address()));
        let error = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut [0])).unwrap_err();
        assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
    assert_eq!(Client::connect(node.address()).say("PING"), "PONG");
}

#[test]
fn strangers_to_the_authority_are_found_out_by_both_sides() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let node = node(&ours);
    let mut client = theirs.connect(socket(node.address()));
    let error = client.write_all(b"PING\r\n").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// A clock that can be advanced.
#[derive(Default)]
struct Put(AtomicU64);

impl Clock for Put {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        Now { moment: Moment(now.moment.0 + self.0.load(Ordering::Relaxed)), ..now }
    }
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    let (certificates, clock) = (Certificates::new(), Arc::new(Put::default()));
    let tls = Some(certificates.node("node"));
    let node = Node::start(NodeOptions { tls, clock: clock.clone(), ..options() }).unwrap();
    let mut silent = socket(node.address());
    let mut half = socket(node.address());
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    let mut client = certificates.connect(socket(node.address()));
    ask(&mut client, &[b"PING"], b"+PONG\r\n");
    clock.0.fetch_add(11_000_000, Ordering::Relaxed);
    assert_eq!(
        (rest(&mut silent).as_slice(), rest(&mut half).is_empty()),
        (&[21, 3, 3, 0, 2, 1, 0][..], false)
    );
    ask(&mut client, &[b"PING"], b"+PONG\r\n");
}

#[test]
fn handshakes_count_as_connections_and_as_memory() {
    let certificates = Certificates::new();
    let few = ConnectionLimits { connections_max: 3, ..ConnectionLimits::default() };
    let tls = Some(certificates.node("node"));
    let node = Node::start(NodeOptions { tls: tls.clone(), limits: few, ..options() }).unwrap();
    let mut client = certificates.connect(socket(node.address()));
    ask(&mut client, &[b"PING"], b"+PONG\r\n");
    let waiting: Vec<_> = (0..2).map(|_| socket(node.address())).collect();
    assert_eq!(rest(&mut socket(node.address())), atoll_tls::FULL, "one more is told");
    let error = certificates.connect(socket(node.address())).write_all(b"PING\r\n").unwrap_err();
    assert!(atoll_tls::is_of_full(&error), "{error}");
    drop(waiting);
    let little = ConnectionLimits { memory_bytes_max: 200 << 10, ..ConnectionLimits::default() };
    let node = Node::start(NodeOptions { tls, limits: little, ..options() }).unwrap();
    let mut sockets: Vec<_> = (0..20).map(|_| socket(node.address())).collect();
    assert!(sockets.iter_mut().any(|socket| {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        !matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }));
}

#[test]
fn random_bytes_at_a_port_with_tls_end_their_own_connection_alone() {
    let certificates = Certificates::new();
    let node = node(&certificates);
    let mut good = certificates.connect(socket(node.address()));
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes: Vec<u8> = (0..random.usize(1..5000)).map(|_| random.u8(..)).collect();
        if random.bool() {
            // Begins like a handshake, so that more of it is parsed.
            let head = [0x16, 3, 1, (bytes.len() >> 8) as u8, bytes.len() as u8, 1];
            bytes.splice(..0, head);
        }
        let mut bad = socket(node.address());
        // The connection may end before everything is sent.
        drop(bad.write_all(&bytes));
        drop(bad.shutdown(std::net::Shutdown::Write));
        rest(&mut bad);
        ask(&mut good, &[b"PING"], b"+PONG\r\n");
    }
}

/// Three nodes that know each other by certificates; the third may have some of its own.
fn three(certificates: &Certificates, third: &Certificates) -> (LocalGroup, Vec<Node>) {
    let shape = GroupOptions { slots: 16_384, copies: 3 };
    let group = LocalGroup::start(shape, Duration::from_millis(300)).unwrap();
    let begin = |number: u32| {
        let trusted = if number == 3 { third } else { certificates };
        let others = Others {
            me: NodeId(number),
            listen: "127.0.0.1:0".parse().unwrap(),
            group: Arc::new(group.clone()),
            // A machine that is busy with other tests must not make a copy count as lost.
            options: Options { suspect_us: 20_000_000, ..Options::default() },
        };
        let tls = Some(trusted.node(&format!("node-{number}")));
        let place = SlotStorage::Memory;
        Node::start(NodeOptions { place, memory_bytes: 64 << 20, others: Some(others), tls, ..options() })
            .unwrap()
    };
    let nodes = (1..=3).map(begin).collect();
    (group, nodes)
}

fn copies(group: &LocalGroup, copies: usize, patience: Duration) -> bool {
    group.wait(patience, |table| {
        table.slots.iter().all(|slot| slot.in_sync.len() == copies && slot.primary.is_some())
    })
}

#[test]
fn nodes_with_certificates_keep_copies_and_take_over() {
    let certificates = Certificates::new();
    let (group, mut nodes) = three(&certificates, &certificates);
    assert!(copies(&group, 3, LONG));
    let write = |nodes: &[Node]| {
        for number in 0..20 {
            let key = format!("key{number}");
            let until = std::time::Instant::now() + LONG;
            let ask = |node: &Node| {
                let mut client = certificates.connect(socket(node.address()));
                let mut request = Vec::new();
                write_request(&mut request, &["SET", &key, "value"]);
                client.write_all(&request).unwrap();
                let mut reply = [0; 1];
                client.read_exact(&mut reply).unwrap();
                reply[0] == b'+'
            };
            // Until leases are granted, no client is answered.
            while !nodes.iter().any(ask) {
                assert!(std::time::Instant::now() < until, "{key}");
            }
        }
    };
    write(&nodes);
    nodes.remove(0).stop().unwrap();
    assert!(copies(&group, 2, LONG));
    write(&nodes);
}

#[test]
fn a_node_of_another_authority_gets_no_copies() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let (group, _nodes) = three(&ours, &theirs);
    let apart = group.wait(LONG, |table| {
        let mut slots = table.slots.iter();
        slots.all(|slot| !slot.in_sync.contains(NodeId(3)) || slot.in_sync.len() == 1)
    });
    assert!(apart, "a stranger keeps what is ours");
}

#[test]
fn nodes_of_several_need_an_authority() {
    let certificates = Certificates::new();
    let group = LocalGroup::start(GroupOptions { slots: 16, copies: 1 }, LONG).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let others = Others { me: NodeId(1), listen, group: Arc::new(group), options: Options::default() };
    let tls = atoll_ring::NodeTls { peers: None, ..certificates.node("node") };
    let error = Node::start(NodeOptions { tls: Some(tls), others: Some(others), ..options() }).err().unwrap();
    assert!(matches!(error, NodeError::Tls(TlsError::NoAuthority)), "{error}");
    assert!(error.hint().unwrap().contains("--tls-authority"));
}

/// Free ports below those that the system hands out, so that none of them is given to a process that asks for
/// any port.
fn ports(count: usize) -> Vec<SocketAddr> {
    let first = 19_000 + (std::process::id() % 90 * 10) as u16;
    let mut free = (first..19_999).map(|port| TcpListener::bind(("127.0.0.1", port)));
    let held: Vec<_> = free.by_ref().filter_map(Result::ok).take(count).collect();
    assert_eq!(held.len(), count, "ports from {first} to 19,999 that are free");
    held.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

#[test]
fn the_configuration_group_is_encrypted_as_well() {
    let certificates = Certificates::new();
    let members: Vec<_> = (1..).map(NodeId).zip(ports(3)).collect();
    let begin = |number: u32| {
        let tls = certificates.node(&format!("node-{number}"));
        let group = CouncilGroup {
            members: members.iter().map(|&(node, address)| (node, address.into())).collect(),
            hosts: (1..=3).map(|node| (NodeId(node), "127.0.0.1".to_owned())).collect(),
            tls: tls.peers.clone(),
            listen: Some(members[number as usize - 1].1),
            folder: None,
            ring: RingShape { slots: 16_384, copies: 3 },
            founding_nodes: 3,
            token: None,
        };
        let listen = "127.0.0.1:0".parse().unwrap();
        let others =
            Others { me: NodeId(number), listen, group: Arc::new(group), options: Options::default() };
        let announce = None::<HostPort>;
        let persistence = Persistence::Off;
        Node::start(NodeOptions { others: Some(others), tls: Some(tls), announce, persistence, ..options() })
            .unwrap()
    };
    let nodes: Vec<_> = (1..=3).map(begin).collect();
    let until = std::time::Instant::now() + LONG;
    loop {
        let mut client = certificates.connect(socket(nodes[0].address()));
        client.write_all(b"CLUSTER INFO\r\nQUIT\r\n").unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        if told.contains("cluster_state:ok") {
            break;
        }
        assert!(std::time::Instant::now() < until, "{told}");
    }
    // A peer that does not encrypt is not heard there either.
    let mut plain = socket(members[0].1);
    plain.write_all(b"hello, who are you?").unwrap();
    let said = rest(&mut plain);
    assert!(said.is_empty() || said[0] == 21, "an alert at most: {said:?}");
}

/// Whether the client is still served.
fn is_served(client: &mut Waits) -> bool {
    let mut reply = [0; 7];
    let told = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut reply));
    told.is_ok() && reply == *b"+PONG\r\n"
}

#[test]
fn who_is_small_ends_for_no_newcomer() {
    let certificates = Certificates::new();
    // Room for about ten.
    let limits = ConnectionLimits { memory_bytes_max: 10 * (24 << 10), ..ConnectionLimits::default() };
    let tls = Some(certificates.node("node"));
    let node = Node::start(NodeOptions { tls, limits, ..options() }).unwrap();
    let mut served = Vec::new();
    for _ in 0..20 {
        let mut client = certificates.connect(socket(node.address()));
        if is_served(&mut client) {
            // Each is a little larger than the next client.
            ask(&mut client, &[b"CLIENT", b"SETNAME", &[b'n'; 1024]], b"+OK\r\n");
            served.push(client);
        }
    }
    assert!((2..20).contains(&served.len()), "{} are served", served.len());
    for (at, client) in served.iter_mut().enumerate() {
        assert!(is_served(client), "client {at}");
    }
}
