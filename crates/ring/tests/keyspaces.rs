//! Keyspaces of one node: creating and entering them, permissions, and that their keys are separate.
#![allow(clippy::unwrap_used)]

mod support;

use atoll_ring::{AccessFile, Node, NodeOptions, Persistence, SlotStorage, Token};
use std::os::unix::fs::PermissionsExt;
use support::{Client, node, options};

#[test]
fn keys_of_one_keyspace_are_no_others() {
    let node = node();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("SELECT 1"), "-ERR DB index is out of range");
    assert_eq!(client.say("AT.KEYSPACE CREATE scratch CLASS 50"), "OK");
    assert_eq!(client.say("AT.KEYSPACE CREATE scratch CLASS 50"), "OK", "it is there as it is wished for");
    assert!(client.say("AT.KEYSPACE CREATE scratch").starts_with("-CONFLICT "));
    client.say("SET key first");
    assert_eq!(client.say("AT.CLASS"), "nil");
    assert_eq!(client.say("SELECT 1"), "OK");
    assert_eq!(client.say("AT.CLASS"), "50", "what is usual in that keyspace");
    assert_eq!(client.say("GET key"), "nil");
    for request in ["SET key scratch", "HSET {key}h a b", "SET gone x PX 1"] {
        client.say(request);
    }
    while client.say("EXISTS gone") != "0" {}
    assert_eq!(client.say("DBSIZE"), "2");
    assert_eq!(client.say("CLUSTER COUNTKEYSINSLOT 12539"), "2");
    assert_eq!(client.say("CLUSTER GETKEYSINSLOT 12539 10"), "[key {key}h]");
    assert!(client.say("SCAN 0 TYPE hash").contains("{key}h"));
    let info = client.say("INFO keyspace");
    assert!(info.contains("db0:keys=1") && info.contains("db1:keys=2"), "{info}");
    assert!(client.say("CONFIG GET databases").contains("16"));
    let mut other = Client::connect(node.address());
    assert_eq!(other.say("GET key"), "first");
    assert_eq!(other.say("AT.KEYSPACE USE scratch"), "OK");
    assert_eq!(other.say("GET key"), "scratch");
    assert_eq!(other.say("AT.KEYSPACE USE 0"), "OK");
    assert_eq!(other.say("GET key"), "first");
    assert!(other.say("AT.KEYSPACE USE nothing").starts_with("-NOTFOUND there is no keyspace"));
    assert_eq!(other.say("SELECT 1"), "OK");
    assert_eq!(other.say("RESET"), "RESET");
    assert_eq!(other.say("GET key"), "first", "a connection begins in the first one");
    let listed = other.say("AT.KEYSPACE LIST");
    assert!(
        listed.contains("name scratch copies nil in_sync_min nil latency_ms 50 served 16384"),
        "{listed}"
    );
    assert_eq!(client.say("FLUSHDB"), "OK");
    assert_eq!((client.say("DBSIZE"), other.say("DBSIZE")), ("0".to_owned(), "1".to_owned()));
    client.say("SET key again");
    assert_eq!(other.say("FLUSHALL"), "OK");
    assert_eq!((client.say("DBSIZE"), other.say("DBSIZE")), ("0".to_owned(), "0".to_owned()));
}

#[test]
fn who_waits_in_a_keyspace_is_told_of_that_one() {
    let node = node();
    let mut client = Client::connect(node.address());
    client.say("AT.KEYSPACE CREATE scratch");
    let mut waiting = Client::connect(node.address());
    waiting.say("SELECT 1");
    waiting.send(&["AT.WAIT", "10000", "key", "field", "PRESENT"]);
    // A reply to a later request on another connection shows that the wait has begun.
    let mut seen = Client::connect(node.address());
    while !seen.say("INFO clients").contains("blocked_clients:1") {}
    assert_eq!(client.say("HSET key field first"), "1");
    assert_eq!(client.say("SELECT 1"), "OK");
    assert_eq!(client.say("HSET key field scratch"), "1");
    assert_eq!(support::show(&waiting.reply().unwrap()), "[1 scratch]");
}

#[test]
fn what_makes_no_sense_is_refused_and_makes_nothing() {
    let node = node();
    let mut client = Client::connect(node.address());
    for request in [
        "AT.KEYSPACE",
        "AT.KEYSPACE FORGET x",
        "AT.KEYSPACE USE",
        "AT.KEYSPACE CREATE",
        "AT.KEYSPACE CREATE 12",
        "AT.KEYSPACE CREATE .x",
        "AT.KEYSPACE CREATE x COPIES",
        "AT.KEYSPACE CREATE x COPIES 0",
        "AT.KEYSPACE CREATE x COPIES 8",
        "AT.KEYSPACE CREATE x COPIES 2",
        "AT.KEYSPACE CREATE x MINSYNC 1",
        "AT.KEYSPACE CREATE x COPIES 1 MINSYNC 2",
        "AT.KEYSPACE CREATE x CLASS 7",
        "AT.KEYSPACE CREATE x DURABILITY",
        "AT.KEYSPACE CREATE x DURABILITY strong",
        "AT.KEYSPACE CREATE x DURABILITY always",
        // A node in memory has nothing that outlives it.
        "AT.KEYSPACE CREATE x DURABILITY flushed",
        "AT.KEYSPACE CREATE x DURABILITY synced",
        "AT.KEYSPACE CREATE x y",
        "SELECT -1",
        "SELECT 16",
        "SELECT x",
    ] {
        assert!(client.say(request).starts_with("-ERR "), "{request}: {}", client.say(request));
    }
    assert!(client.say("AT.KEYSPACE LIST").matches("keyspace ").count() == 1);
    for number in 1..16 {
        assert_eq!(client.say(&format!("AT.KEYSPACE CREATE k{number}")), "OK");
    }
    assert_eq!(client.say("AT.KEYSPACE CREATE k16"), "-LIMIT a ring has at most 16 keyspaces");
    assert_eq!(client.say("SELECT 15"), "OK");
    assert_eq!(client.say("SET key last"), "OK");
}

#[test]
fn keyspaces_and_what_they_hold_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let begin = || {
        let place = SlotStorage::Folder(folder.path().to_owned());
        Node::start(NodeOptions { place, persistence: Persistence::Always, ..options() }).unwrap()
    };
    let node = begin();
    let mut client = Client::connect(node.address());
    client.say("AT.KEYSPACE CREATE empty");
    client.say("AT.KEYSPACE CREATE full CLASS 500");
    client.say("SELECT 2");
    assert_eq!(client.say("SET key value"), "OK");
    node.stop().unwrap();
    let node = begin();
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("AT.KEYSPACE USE full"), "OK");
    assert_eq!((client.say("GET key"), client.say("AT.CLASS")), ("value".to_owned(), "500".to_owned()));
    assert_eq!(client.say("AT.KEYSPACE USE empty"), "OK");
    assert_eq!(client.say("DBSIZE"), "0");
}

#[test]
fn each_keyspace_survives_what_it_was_made_for() {
    let folder = tempfile::tempdir().unwrap();
    let on = |persistence| {
        let place = SlotStorage::Folder(folder.path().to_owned());
        Node::start(NodeOptions { place, persistence, ..options() })
    };
    let node = on(Persistence::EverySecond).unwrap();
    let mut client = Client::connect(node.address());
    for rules in ["scratch DURABILITY buffered", "safe DURABILITY synced", "usual"] {
        for _ in 0..2 {
            assert_eq!(client.say(&format!("AT.KEYSPACE CREATE {rules}")), "OK", "{rules}");
        }
    }
    assert!(client.say("AT.KEYSPACE CREATE scratch DURABILITY synced").starts_with("-CONFLICT "));
    assert!(client.say("AT.KEYSPACE CREATE usual DURABILITY flushed").starts_with("-CONFLICT "));
    let listed = client.say("AT.KEYSPACE LIST");
    assert!(listed.contains("durability buffered") && listed.contains("durability synced"), "{listed}");
    assert_eq!(listed.matches("durability nil").count(), 2, "{listed}");
    let classes = [("0", "everysec"), ("1", "no"), ("2", "always"), ("3", "everysec")];
    for (number, class) in classes {
        assert_eq!(client.say(&format!("SELECT {number}")), "OK");
        assert_eq!(client.say("CONFIG GET appendfsync"), format!("[appendfsync {class}]"));
        let is_kept = if class == "no" { "no" } else { "yes" };
        assert_eq!(client.say("CONFIG GET appendonly"), format!("[appendonly {is_kept}]"));
        let info = client.say("INFO persistence");
        assert!(info.contains(&format!("persistence:{class}\\r\\n")), "{info}");
        assert_eq!(client.say("SET key value"), "OK");
        assert_eq!(client.say("SCAN 0"), "[0 [key]]");
    }
    node.stop().unwrap();
    let node = on(Persistence::Always).unwrap();
    let mut client = Client::connect(node.address());
    for (number, class) in classes {
        let (class, found) = match class {
            "no" => ("no", "nil"),
            // What a node was started with counts where a keyspace says nothing.
            _ => ("always", "value"),
        };
        assert_eq!(client.say(&format!("SELECT {number}")), "OK");
        assert_eq!(client.say("CONFIG GET appendfsync"), format!("[appendfsync {class}]"));
        assert_eq!(client.say("GET key"), found, "keyspace {number}");
        assert_eq!(client.say("DBSIZE"), if found == "nil" { "0" } else { "1" });
    }
    node.stop().unwrap();
    assert!(on(Persistence::Off).is_err(), "the first keyspace has what was kept");
}

#[test]
fn a_keyspace_is_kept_on_a_node_that_keeps_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let begin = || {
        let place = SlotStorage::Folder(folder.path().to_owned());
        Node::start(NodeOptions { place, persistence: Persistence::Off, ..options() }).unwrap()
    };
    for life in 0..3 {
        let node = begin();
        let mut client = Client::connect(node.address());
        assert_eq!(client.say("AT.KEYSPACE CREATE safe DURABILITY synced"), "OK");
        assert_eq!(client.say("APPEND log x"), "1", "life {life}");
        assert_eq!(client.say("SELECT 1"), "OK");
        assert_eq!(client.say("APPEND log x"), (life + 1).to_string());
        node.stop().unwrap();
    }
}

/// The SHA-256 of `secret`.
const SECRET: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
const TOKEN: &str = "0123456789abcdef";

#[test]
fn a_user_is_in_the_keyspace_it_was_given_and_in_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    let users = format!(
        "user ana on {SECRET} keyspace=scratch ~* +@all -at.ring\n\
         user bob on {SECRET} ~* +@all\n\
         user cy on {SECRET} allkeyspaces ~* +@all -at.ring\n"
    );
    std::fs::write(&path, users).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (token, access) = (Token::new(TOKEN.as_bytes()), Some(AccessFile::at(&path)));
    let node = Node::start(NodeOptions { token, access, ..options() }).unwrap();
    let mut client = Client::connect(node.address());
    let refused = client.say("AUTH ana secret");
    assert!(refused.starts_with("-NOPERM User ana begins in keyspace"), "{refused}");
    assert!(client.say("GET key").starts_with("-NOAUTH"), "nobody was let in");
    assert_eq!(client.say(&format!("AUTH {TOKEN}")), "OK");
    for request in ["AT.KEYSPACE CREATE scratch", "AT.KEYSPACE CREATE other", "SET key first"] {
        assert_eq!(client.say(request), "OK");
    }
    let user = |name: &str| {
        let mut client = Client::connect(node.address());
        assert_eq!(client.say(&format!("AUTH {name} secret")), "OK");
        client
    };
    let mut ana = user("ana");
    assert_eq!(ana.say("GET key"), "nil");
    assert_eq!(ana.say("SET key scratch"), "OK");
    for request in ["SELECT 0", "SELECT 2", "AT.KEYSPACE USE other"] {
        assert!(ana.say(request).starts_with("-NOPERM User ana has no permissions to enter"), "{request}");
    }
    assert_eq!(ana.say("SELECT 1"), "OK");
    let told = ana.say("CLIENT INFO");
    assert!(told.contains(" db=1 ") && told.contains(" user=ana "), "{told}");
    let listed = ana.say("AT.KEYSPACE LIST");
    assert!(listed.contains("scratch") && !listed.contains("other"), "{listed}");
    assert!(!ana.say("INFO keyspace").contains("db0"));
    assert!(ana.say("AT.KEYSPACE CREATE mine").starts_with("-NOPERM "));
    assert_eq!(ana.say("FLUSHALL"), "OK", "of what it may enter");
    assert_eq!(client.say("GET key"), "first");
    let mut bob = user("bob");
    assert_eq!(bob.say("GET key"), "first");
    assert!(bob.say("SELECT 1").starts_with("-NOPERM "));
    let mut cy = user("cy");
    assert_eq!((cy.say("SELECT 2"), cy.say("GET key")), ("OK".to_owned(), "nil".to_owned()));
    // A client that becomes another user is moved to that user's home keyspace.
    assert_eq!(cy.say("AUTH ana secret"), "OK");
    assert_eq!(cy.say("SET key of-ana"), "OK");
    assert_eq!(user("ana").say("GET key"), "of-ana");
    assert!(client.say("ACL LIST").contains("keyspace=scratch"));
}
