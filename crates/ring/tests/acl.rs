//! Users of the list: what they may do, over sockets, and what happens to them when the list is reloaded.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use atoll_errors::ErrorKind;
use atoll_keyspace::SESSIONS_MAX;
use atoll_replica::{GroupOptions, NodeId, Options};
use atoll_ring::{AccessFile, LocalGroup, Node, NodeError, NodeOptions, Others, Token};
use std::fs::Permissions;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Client, Put, options, show};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef";
/// The SHA-256 of `secret`.
const SECRET: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
const NO_KEY: &str = "-NOPERM No permissions to access a key";

struct Listed {
    folder: TempDir,
    node: Node,
}

impl Listed {
    fn start(list: &str) -> Self {
        Self::start_with(list, options())
    }

    fn start_with(list: &str, options: NodeOptions) -> Self {
        let folder = TempDir::new().unwrap();
        let path = write(&folder, list, 0o600);
        let access = Some(AccessFile::at(&path));
        let token = Token::new(TOKEN.as_bytes());
        Self { node: Node::start(NodeOptions { token, access, ..options }).unwrap(), folder }
    }

    fn client(&self, user: &str) -> Client {
        let mut client = Client::connect(self.node.address());
        assert_eq!(client.say(&format!("AUTH {user} secret")), "OK");
        client
    }

    /// Makes the node load another list.
    fn load(&self, list: &str) {
        write(&self.folder, list, 0o600);
        assert_eq!(self.operator().say("ACL LOAD"), "OK");
    }

    fn operator(&self) -> Client {
        let mut client = Client::connect(self.node.address());
        assert_eq!(client.say(&format!("AUTH {TOKEN}")), "OK");
        client
    }
}

fn write(folder: &TempDir, list: &str, mode: u32) -> PathBuf {
    let path = folder.path().join("users");
    std::fs::write(&path, list).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

fn may_not(user: &str, command: &str) -> String {
    // Quotation marks are shown escaped.
    format!(r"-NOPERM User {user} has no permissions to run the \'{command}\' command")
}

#[test]
fn a_user_does_what_it_is_granted_on_the_keys_it_is_granted_and_nothing_else() {
    let listed = Listed::start(&format!(
        "user ana on {SECRET} ~run:* %R~shared +@read +@write\nuser bob on {SECRET} ~*"
    ));
    let mut ana = listed.client("ana");
    assert_eq!(ana.say("ACL WHOAMI"), "ana");
    assert_eq!(ana.say("SET run:1 a"), "OK");
    assert_eq!(ana.say("GET run:1"), "a");
    assert_eq!(ana.say("GET shared"), "nil");
    for request in
        ["SET shared a", "GET other", "MGET {run:1}x run:1", "DEL other", "HSET other a b", "AT.GET other f"]
    {
        assert_eq!(ana.say(request), NO_KEY, "{request}");
    }
    // A command without keys is about all of them.
    for request in ["SCAN 0", "AT.SCAN 0", "FLUSHALL", "CLUSTER GETKEYSINSLOT 1 10"] {
        assert_eq!(ana.say(request), NO_KEY, "{request}");
    }
    for (request, command) in [
        ("CONFIG GET *", "config"),
        ("AT.RING STATUS", "at.ring"),
        ("CLIENT LIST", "client"),
        ("ACL LIST", "acl"),
        ("ACL USERS", "acl"),
        ("ACL LOAD", "acl"),
    ] {
        assert_eq!(ana.say(request), may_not("ana", command), "{request}");
    }
    // A named write counts as the write that it names.
    assert_eq!(ana.say("AT.ID 0123456789abcdef0123456789abcdef 1 0 SET other a"), NO_KEY);
    let mut bob = listed.client("bob");
    assert_eq!(bob.say("AT.ID 0123456789abcdef0123456789abcdef 1 0 SET a a"), may_not("bob", "at.id"));
    assert_eq!(bob.say("GET a"), may_not("bob", "get"));
    for request in ["CLUSTER SLOTS", "AT.TABLE"] {
        assert!(bob.say(request).contains("16383"), "who was let in finds the way: {request}");
    }
    assert_eq!(bob.say("PING"), "PONG");
    let mut operator = listed.operator();
    assert_eq!(operator.say("GET run:1"), "a");
    assert_eq!(operator.say("DBSIZE"), "1");
    assert!(operator.say("INFO stats").contains("access_refused:"));
}

#[test]
fn who_is_not_in_the_list_or_has_another_password_is_not_let_in() {
    let listed = Listed::start(&format!("user ana on {SECRET} ~* +@all\nuser off off {SECRET} ~* +@all"));
    for login in ["ana wrong", "ana Secret", "off secret", "nobody secret", "default secret"] {
        let mut client = Client::connect(listed.node.address());
        assert_eq!(client.say(&format!("AUTH {login}")), WRONG, "{login}");
        assert_eq!(client.say("GET a"), "-NOAUTH Authentication required.");
    }
    let mut client = Client::connect(listed.node.address());
    assert_eq!(client.say("AUTH ana wrong"), WRONG);
    assert_eq!(client.say("GET a"), "-NOAUTH Authentication required.");
    assert!(client.say("HELLO 3 AUTH ana secret").contains("proto: 3"));
    assert_eq!(client.say("ACL WHOAMI"), "ana");
    assert_eq!(client.say(&format!("AUTH {TOKEN}")), "OK");
    assert_eq!(client.say("ACL WHOAMI"), "default");
    assert_eq!(client.say("RESET"), "RESET");
    assert_eq!(client.say("ACL WHOAMI"), "-NOAUTH Authentication required.");
}

#[test]
fn another_list_counts_at_once_and_a_wrong_one_not_at_all() {
    let listed = Listed::start(&format!("user ana on {SECRET} ~* +@all\nuser bob on {SECRET} ~* +@all"));
    let (mut ana, mut bob, mut operator) = (listed.client("ana"), listed.client("bob"), listed.operator());
    write(
        &listed.folder,
        &format!("user ana on {SECRET} ~* +@read\nuser bob on {SECRET} ~* +@nothing"),
        0o600,
    );
    let told = operator.say("ACL LOAD");
    assert!(told.contains("line 2") && told.contains("@nothing") && told.contains("stays"), "{told}");
    assert_eq!(ana.say("SET a 1"), "OK");
    write(&listed.folder, &format!("user ana on {SECRET} ~* +@read\nuser bob on {SECRET} ~* +@all"), 0o600);
    assert_eq!(operator.say("ACL LOAD"), "OK");
    assert_eq!(bob.say("SET a 2"), "OK", "nothing about it was changed");
    // It is asked to authenticate, or finds its connection ended.
    ana.send(&["SET", "a", "3"]);
    let told = ana.reply().map(|reply| show(&reply));
    assert!(told.is_none_or(|told| told == "-NOAUTH Authentication required."));
    assert_eq!(bob.say("GET a"), "2");
    let mut ana = listed.client("ana");
    assert_eq!(ana.say("SET a 3"), may_not("ana", "set"));
    assert_eq!(operator.say("ACL USERS"), "[ana bob default]");
}

/// All replies of a connection until it ends.
fn rest(client: &mut Client) -> Vec<String> {
    std::iter::from_fn(|| client.reply().map(|reply| show(&reply))).collect()
}

#[test]
fn what_somebody_waits_for_is_not_told_once_the_user_is_gone() {
    let list = format!("user ana on {SECRET} ~* +@all\nuser bob on {SECRET} ~* +@all");
    let listed = Listed::start(&list);
    let watch = || {
        let mut client = listed.client("ana");
        assert!(client.say("HELLO 3").contains("proto: 3"));
        assert_eq!(client.say("AT.WATCH 1 60000 k f PRESENT"), "OK");
        client
    };
    let (mut silent, mut asks) = (watch(), watch());
    let mut waits = listed.client("ana");
    waits.send(&["AT.WAIT", "60000", "k", "f", "PRESENT"]);
    let mut bob = listed.client("bob");
    let mut operator = listed.operator();
    while !operator.say("INFO clients").contains("blocked_clients:3") {
        std::thread::yield_now();
    }
    listed.load(&format!("user bob on {SECRET} ~* +@all"));
    // A later request does not keep it alive.
    asks.send(&["PING"]);
    assert_eq!(bob.say("HSET k f told"), "1");
    for told in [rest(&mut silent), rest(&mut waits), rest(&mut asks)] {
        assert!(told.iter().all(|told| told == "-NOAUTH Authentication required."), "{told:?}");
    }
    assert_eq!(bob.say("HGET k f"), "told");
}

#[test]
fn what_one_user_waits_for_is_not_told_to_the_next_one_on_a_connection() {
    let listed = Listed::start(&format!("user ana on {SECRET} ~* +@all\nuser bob on {SECRET} ~own:* +@all"));
    let mut bob = listed.client("ana");
    assert!(bob.say("HELLO 3").contains("proto: 3"));
    assert_eq!(bob.say("AT.WATCH 7 60000 k f PRESENT"), "OK");
    assert_eq!(bob.say("AUTH ana secret"), "OK");
    assert_eq!(bob.say("AUTH bob secret"), "OK");
    assert_eq!(show(&bob.reply().unwrap()), "[at.watch 7 0 nil]", "its time is over");
}

#[test]
fn what_one_user_waits_for_is_not_pushed_to_the_next_one_who_understands_no_pushes() {
    let listed = Listed::start(&format!("user ana on {SECRET} ~* +@all\nuser bob on {SECRET} ~* +@all"));
    // In one request, in two, and for somebody who has yet to say who it is.
    let ways: [(&[&str], &str); 3] = [
        (&["HELLO 2 AUTH bob secret"], "PONG"),
        (&["AUTH bob secret", "HELLO 2"], "PONG"),
        (&["AUTH bob secret", "RESET"], "-NOAUTH Authentication required."),
    ];
    for (requests, last) in ways {
        let mut client = listed.client("ana");
        assert!(client.say("HELLO 3").contains("proto: 3"));
        assert_eq!(client.say("AT.WATCH 7 60000 k f PRESENT"), "OK");
        // In one packet, so that the user and the version change in one round.
        let lines: String = requests.iter().map(|request| format!("{request}\r\n")).collect();
        client.socket.write_all(lines.as_bytes()).unwrap();
        for request in requests {
            let told = show(&client.reply().unwrap());
            assert!(!told.starts_with('-') && !told.contains("at.watch"), "{request}: {told}");
        }
        assert_eq!(client.say("PING"), last, "{requests:?}");
    }
}

#[test]
fn who_waits_for_a_string_may_read_its_key_and_may_get_strings() {
    let listed = Listed::start(&format!(
        "user ana on {SECRET} ~run:* %R~shared +@read\nuser bob on {SECRET} ~* +@hash\n\
         user cem on {SECRET} ~* +at.wait +get"
    ));
    let mut operator = listed.operator();
    for set in ["SET run:7 done", "SET shared done", "SET other done", "HSET h f v"] {
        assert!(["OK", "1"].contains(&operator.say(set).as_str()), "{set}");
    }
    let mut ana = listed.client("ana");
    assert_eq!(ana.say("AT.WAIT 0 run:7 AS STRING EQ done"), "[1 done]");
    assert_eq!(ana.say("AT.WAIT 0 shared AS STRING EQ done"), "[1 done]");
    // Only the key is one: neither the value nor another argument opens the door.
    assert_eq!(ana.say("AT.WAIT 0 other AS STRING EQ run:7"), NO_KEY);
    assert_eq!(ana.say("AT.WATCH 1 0 other AS STRING EQ run:7"), NO_KEY);
    assert!(ana.say("HELLO 3").contains("proto: 3"));
    assert_eq!(ana.say("AT.WATCH 1 60000 run:7 AS STRING EQ done"), "OK");
    assert_eq!(show(&ana.reply().unwrap()), "[at.watch 1 1 done]");
    let mut bob = listed.client("bob");
    assert_eq!(bob.say("AT.WAIT 0 h f EQ v"), "[1 v]");
    assert_eq!(bob.say("AT.WAIT 0 other AS STRING EQ done"), may_not("bob", "at.wait"));
    assert_eq!(bob.say("AT.WATCH 1 0 other AS STRING EQ done"), may_not("bob", "at.watch"));
    let mut cem = listed.client("cem");
    assert_eq!(cem.say("AT.WAIT 0 other AS STRING EQ done"), "[1 done]");
}

#[test]
fn what_somebody_waited_for_is_not_told_to_whoever_begins_anew() {
    let listed = Listed::start(&format!("user ana on {SECRET} ~* +@all"));
    let mut nobody = listed.client("ana");
    assert!(nobody.say("HELLO 3").contains("proto: 3"));
    assert_eq!(nobody.say("AT.WATCH 8 60000 k f PRESENT"), "OK");
    assert_eq!(nobody.say("RESET"), "RESET");
    assert_eq!(listed.operator().say("HSET k f told"), "1");
    assert_eq!(nobody.say("AUTH ana secret"), "OK");
    assert_eq!(nobody.say("HGET k f"), "told");
}

#[test]
fn whoever_changes_its_own_line_is_told_so_and_has_to_come_again() {
    let listed = Listed::start(&format!("user root on {SECRET} ~* +@all"));
    let mut root = listed.client("root");
    write(&listed.folder, &format!("user root on {SECRET} ~* +@read"), 0o600);
    assert_eq!(root.say("ACL LOAD"), "OK");
    assert!(root.is_ended());
    let mut root = listed.client("root");
    assert_eq!(root.say("ACL LOAD"), may_not("root", "acl"));
    assert_eq!(root.say("GET k"), "nil");
}

#[test]
fn operators_are_told_of_users_and_nobody_else_is() {
    let listed =
        Listed::start(&format!("user ana on {SECRET} ~run:* %R~shared +@read -hgetall\nuser bob off"));
    let mut operator = listed.operator();
    let hash = SECRET.trim_start_matches('#');
    let keys = "commands: +@read -hgetall, keys: ~run:* %R~shared, channels: , selectors: []";
    assert!(operator.say("HELLO 3").contains("proto: 3"));
    assert_eq!(operator.say("ACL GETUSER ana"), format!("{{flags: [on], passwords: [{hash}], {keys}}}"));
    assert!(operator.say("ACL GETUSER bob").starts_with("{flags: [off], passwords: [], commands: , keys: ,"));
    let default = operator.say("ACL GETUSER default");
    assert!(default.starts_with("{flags: [on], passwords: [], commands: +@all, keys: ~*,"), "{default}");
    assert_eq!(operator.say("ACL GETUSER nobody"), "nil");
    assert_eq!(operator.say("ACL GETUSER"), r"-ERR wrong number of arguments for \'acl|getuser\' command");
    let mut ana = listed.client("ana");
    assert_eq!(ana.say("ACL GETUSER ana"), may_not("ana", "acl"));
    // Ending a watch and waiting for copies touch no data.
    assert_eq!((ana.say("AT.UNWATCH 1"), ana.say("WAIT 0 0")), ("0".to_owned(), "0".to_owned()));
    assert!(operator.say("ACL CAT").contains("dangerous"));
    assert!(operator.say("ACL CAT string").contains("getrange"));
}

#[test]
fn a_node_does_not_begin_with_a_list_that_cannot_be_kept() {
    let folder = TempDir::new().unwrap();
    let start = |path: &PathBuf, token: Option<Token>| {
        let error = Node::start(NodeOptions { token, access: Some(AccessFile::at(path)), ..options() })
            .err()
            .unwrap();
        assert!(error.hint().is_some() || matches!(error, NodeError::Option { .. }), "{error}");
        (error.kind(), error.to_string())
    };
    let token = || Token::new(TOKEN.as_bytes());
    let path = write(&folder, "user ana on\n", 0o600);
    let (kind, told) = start(&path, token());
    assert!(
        kind == ErrorKind::InvalidInput && told.contains("line 1") && told.contains("no password"),
        "{told}"
    );
    assert_eq!(start(&path, None).0, ErrorKind::InvalidInput);
    let path = write(&folder, "user ana off\n", 0o640);
    assert!(start(&path, token()).1.contains("chmod 600"));
    assert_eq!(start(&folder.path().join("none"), token()).0, ErrorKind::NotFound);
    std::fs::write(&path, b"\xff\xfe").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(start(&path, token()).1.contains("not a list of users"));
    let socket = folder.path().join("socket");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(start(&socket, token()).1.contains("not a list of users"));
}

/// Writes of these clients to one slot, some at a time because writes under way count. Returns the replies.
fn write_as(client: &mut Client, names: Range<u64>, sequence: &str, write: &[&str]) -> Vec<String> {
    let mut answers = Vec::new();
    for first in names.clone().step_by(64) {
        let each = first..names.end.min(first + 64);
        for name in each.clone() {
            client.send(&[&["AT.ID", &format!("{name:x}"), sequence, "0"], write].concat());
        }
        answers.extend(each.map(|_| show(&client.reply().unwrap())));
    }
    answers
}

const SET: [&str; 3] = ["SET", "run:{t}", "v"];
/// How many clients of one user a slot remembers if no other user has any.
const OF_ONE: u64 = SESSIONS_MAX / 32 * 27;

fn places(options: NodeOptions) -> Listed {
    Listed::start_with(&format!("user ana on {SECRET} ~run:* +@write"), options)
}

#[test]
fn a_user_leaves_places_of_a_slot_to_the_clients_of_others() {
    let listed = places(options());
    let mut ana = listed.client("ana");
    let answers = write_as(&mut ana, 0..SESSIONS_MAX, "1", &SET);
    let refused = answers.iter().find(|answer| *answer != "[0 OK]").unwrap();
    assert!(refused.starts_with("-TRYAGAIN ") && refused.contains("of this user"), "{refused}");
    assert_eq!(ana.say("AT.ID 7 2 0 SET run:{t} w"), "[0 OK]", "who is remembered goes on");
    assert_eq!(ana.say("AT.ID fffff 1 0 SET run:{u} w"), "[0 OK]", "another slot has places");
    assert_eq!(listed.operator().say("AT.ID ffffe 1 0 SET {t} v"), "[0 OK]");
}

#[test]
fn while_the_clients_of_a_user_are_remembered_time_alone_brings_no_places_back() {
    let clock = Arc::new(Put::default());
    let listed = places(NodeOptions { clock: clock.clone(), ..options() });
    let mut ana = listed.client("ana");
    write_as(&mut ana, 0..OF_ONE, "1", &SET);
    // None of them is silent long enough to be forgotten.
    for sequence in ["2", "3"] {
        clock.0.fetch_add(390_000_000, Ordering::Relaxed);
        write_as(&mut ana, 0..OF_ONE, sequence, &SET);
    }
    let answers = write_as(&mut ana, OF_ONE..SESSIONS_MAX, "1", &SET);
    let taken = answers.iter().filter(|answer| *answer == "[0 OK]").count();
    assert_eq!(taken, 0, "of places that were left to others");
    // Once they are forgotten there are places again.
    clock.0.fetch_add(900_000_000, Ordering::Relaxed);
    let asked_at = Instant::now();
    while ana.say("AT.ID fffff 1 0 SET run:{t} w") != "[0 OK]" {
        assert!(asked_at.elapsed() < LONG, "nobody was forgotten");
    }
}

#[test]
fn who_is_not_remembered_has_no_place_of_its_user() {
    let listed = places(options());
    assert_that_only_the_remembered_have_places(&listed);
}

#[test]
fn nor_where_answers_come_later() {
    let group = LocalGroup::start(GroupOptions { slots: 16_384, copies: 1 }, LONG).unwrap();
    let others = Others {
        me: NodeId(1),
        listen: "127.0.0.1:0".parse().unwrap(),
        group: Arc::new(group.clone()),
        options: Options { in_sync_min: 1, ..Options::default() },
    };
    let listed = places(NodeOptions { others: Some(others), ..options() });
    assert!(group.wait(LONG, |table| table.slots.iter().all(|slot| slot.primary.is_some())));
    let mut operator = listed.operator();
    let asked_at = Instant::now();
    while operator.say("SET {t} v") != "OK" {
        assert!(asked_at.elapsed() < LONG, "the node does not lead");
    }
    assert_that_only_the_remembered_have_places(&listed);
}

fn assert_that_only_the_remembered_have_places(listed: &Listed) {
    let mut ana = listed.client("ana");
    write_as(&mut ana, 0..OF_ONE - 100, "1", &SET);
    // Neither of these writes leaves a trace.
    let fails = ["AT.BATCH", "run:{t}hash", "IFEQ", "f", "2", "PUT", "f", "3"];
    let answers = write_as(&mut ana, OF_ONE..OF_ONE + 1_000, "1", &fails);
    assert!(answers.iter().all(|answer| answer.starts_with("[0 [0 ")), "{:?}", answers.last());
    let errs = ["HSET", "run:{t}", "f", "v"];
    let answers = write_as(&mut ana, OF_ONE..OF_ONE + 1_000, "1", &errs);
    assert!(answers.iter().all(|answer| answer.starts_with("-")), "{:?}", answers.last());
    assert_eq!(write_as(&mut ana, OF_ONE..OF_ONE + 1, "1", &SET), ["[0 OK]"]);
    // A client that asks again and again counts once.
    for sequence in 2..200 {
        assert_eq!(ana.say(&format!("AT.ID fffff {sequence} 0 SET run:{{t}} v")), "[0 OK]");
    }
    assert_eq!(write_as(&mut ana, OF_ONE + 1..OF_ONE + 31, "1", &SET), ["[0 OK]"; 30]);
}
