//! A node of several before it has learned the state of its ring: it reports no ring, rather than an empty
//! one.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use atoll_replica::{Change, GroupOptions, Moment, NodeId, Options, Proposal};
use atoll_ring::{
    AccessFile, GroupDoor, GroupMember, Joining, LocalGroup, Node, NodeError, NodeOptions, Others, Token,
};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Client, Put, options};

const LONG: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef";
/// The SHA-256 of `secret`.
const SECRET: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

type Member = Box<dyn GroupMember>;

/// A group that answers no node until it begins.
struct Late {
    group: LocalGroup,
    waits: Mutex<Option<Joining>>,
    joined: Arc<Mutex<Option<Member>>>,
}

impl Late {
    fn new() -> Arc<Self> {
        let options = GroupOptions { slots: 16_384, copies: 1 };
        let group = LocalGroup::start(options, Duration::from_secs(1)).unwrap();
        Arc::new(Self { group, waits: Mutex::default(), joined: Arc::default() })
    }

    fn begin(&self) {
        let joining = self.waits.lock().unwrap().take().unwrap();
        *self.joined.lock().unwrap() = Some(self.group.join(joining).unwrap());
    }
}

impl GroupDoor for Late {
    fn join(&self, joining: Joining) -> Result<Member, NodeError> {
        *self.waits.lock().unwrap() = Some(joining);
        Ok(Box::new(Line(Arc::clone(&self.joined))))
    }
}

/// The group handle of a node that may not have joined yet.
struct Line(Arc<Mutex<Option<Member>>>);

impl Line {
    fn with(&self, does: impl FnOnce(&Member)) {
        if let Some(member) = &*self.0.lock().unwrap() {
            does(member);
        }
    }
}

impl GroupMember for Line {
    fn propose(&self, proposals: Vec<Proposal>) {
        self.with(|member| member.propose(proposals));
    }

    fn ask(&self, changes: Vec<Change>) {
        self.with(|member| member.ask(changes));
    }

    fn fetch_table(&self) {
        self.with(|member| member.fetch_table());
    }

    fn at_work(&self, now: Moment) {
        self.with(|member| member.at_work(now));
    }
}

fn start(group: Arc<Late>, options: NodeOptions) -> Node {
    let listen = "127.0.0.1:0".parse().unwrap();
    let others = Others { me: NodeId(1), listen, group, options: Options::default() };
    Node::start(NodeOptions { others: Some(others), ..options }).unwrap()
}

#[test]
fn a_node_tells_of_no_ring_until_it_has_heard_what_its_ring_is() {
    let group = Late::new();
    let node = start(Arc::clone(&group), options());
    let mut client = Client::connect(node.address());
    for request in [
        "CLUSTER SLOTS",
        "CLUSTER NODES",
        "CLUSTER INFO",
        "AT.TABLE",
        "AT.RING STATUS",
        "AT.RING LEAVE 4",
        "AT.KEYSPACE LIST",
        "AT.KEYSPACE USE one",
        "AT.KEYSPACE CREATE one",
        "SELECT 1",
        "GET a",
        "SET a 1",
        "AT.WATCH 1 1000 a b PRESENT",
        "DBSIZE",
        "FLUSHALL",
        "SCAN 0",
        "WAIT 1 1",
        "TIME",
    ] {
        let told = client.say(request);
        assert!(told.starts_with("-LOADING "), "{request}: {told}");
    }
    assert!(client.say("INFO persistence").contains("loading:1"));
    assert_eq!((client.say("PING").as_str(), client.say("AT.CLASS 50").as_str()), ("PONG", "OK"));
    assert!(client.say("HELLO 3").contains("proto: 3"));
    assert!(client.say("CONFIG GET appendonly").contains("appendonly"));
    assert!(node.metrics_text().contains("kind=\"LOADING\"} 18"), "{}", node.metrics_text());
    group.begin();
    let began = Instant::now();
    while client.say("GET a") != "nil" {
        assert!(began.elapsed() < LONG, "{}", client.say("GET a"));
    }
    assert!(client.say("INFO persistence").contains("loading:0"));
    assert!(client.say("AT.RING STATUS").contains("node: 1"));
    assert_eq!(client.say("QUIT"), "OK");
}

/// The node's metric with this name.
fn gauge(node: &Node, name: &str) -> f64 {
    let text = node.metrics_text();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_group_that_never_answered_is_silent_for_no_longer_than_the_node_runs() {
    // The machine has been up for a long time.
    let clock = Arc::new(Put(AtomicU64::new(1_000_000_000_000)));
    let metrics = Some("127.0.0.1:0".parse().unwrap());
    let node = start(Late::new(), NodeOptions { clock, metrics, ..options() });
    let began = Instant::now();
    let silence = loop {
        // Before the loop's first report there is no value.
        match gauge(&node, "atoll_ring_group_silence_seconds") {
            0.0 => assert!(began.elapsed() < LONG, "{}", node.metrics_text()),
            silence => break silence,
        }
    };
    let up = gauge(&node, "atoll_ring_uptime_seconds");
    assert!(silence <= up, "{silence} s of {up} s");
}

#[test]
fn a_user_with_a_keyspace_is_told_to_wait_where_it_is_not_known_yet_which_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    let list = format!(
        "user ana on {SECRET} ~* +@all keyspace=one\nuser bob on {SECRET} ~* +@all\nuser eve on {SECRET} ~* +@all allkeyspaces\n"
    );
    std::fs::write(&path, list).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (access, token) = (Some(AccessFile::at(&path)), Token::new(TOKEN.as_bytes()));
    let group = Late::new();
    let node = start(Arc::clone(&group), NodeOptions { access, token, ..options() });
    let mut client = Client::connect(node.address());
    for login in ["AUTH ana secret", "HELLO 3 AUTH ana secret"] {
        let told = client.say(login);
        assert!(told.starts_with("-LOADING "), "{login}: {told}");
    }
    assert!(client.say("AUTH ana wrong").starts_with("-WRONGPASS "));
    for login in ["AUTH bob secret", "AUTH eve secret"] {
        assert_eq!(client.say(login), "OK", "{login}");
    }
    group.begin();
    let began = Instant::now();
    while !client.say("AUTH ana secret").starts_with("-NOPERM User ana begins in keyspace") {
        assert!(began.elapsed() < LONG, "{}", client.say("AUTH ana secret"));
    }
}
