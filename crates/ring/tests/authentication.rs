//! With a token, only clients that show it are served; without one, only clients on this machine.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use atoll_errors::ErrorKind;
use atoll_replica::{GroupOptions, NodeId, Options};
use atoll_ring::{HostPort, LocalGroup, Node, NodeError, NodeOptions, Others, Token};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use support::{Client, options};

const TOKEN: &str = "0123456789abcdef";

fn node() -> Node {
    Node::start(NodeOptions { token: Token::new(TOKEN.as_bytes()), ..options() }).unwrap()
}

#[test]
fn nothing_is_answered_before_the_token_is_shown() {
    let node = node();
    let mut client = Client::connect(node.address());
    let of_keys = ["GET a", "SET a 1", "FLUSHALL"];
    let of_the_server = ["PING", "CLUSTER SLOTS", "AT.TABLE", "INFO", "COMMAND", "CLIENT LIST"];
    for request in of_keys.into_iter().chain(of_the_server) {
        assert_eq!(client.say(request), "-NOAUTH Authentication required.", "{request}");
    }
    assert!(client.say("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for password in ["", "0123456789abcdeX", "0123456789abcde", "0123456789abcdef0", "wrong"] {
        let mut client = Client::connect(node.address());
        assert_eq!(client.say(&format!("AUTH {password}")), wrong, "{password}");
        assert_eq!(client.say(&format!("HELLO 3 AUTH default {password}")), wrong);
        assert_eq!(client.say("PING"), "-NOAUTH Authentication required.");
    }
    assert_eq!(client.say(&format!("AUTH somebody {TOKEN}")), wrong);
    assert_eq!(client.say("PING"), "-NOAUTH Authentication required.");
    assert_eq!(client.say(&format!("AUTH {TOKEN}")), "OK");
    assert_eq!(client.say("PING"), "PONG");
    // A wrong token does not revoke an authentication, but `RESET` does.
    assert_eq!(client.say("AUTH wrong"), wrong);
    assert_eq!(client.say("PING"), "PONG");
    assert_eq!(client.say("RESET"), "RESET");
    assert_eq!(client.say("PING"), "-NOAUTH Authentication required.");
    assert!(client.say(&format!("HELLO 3 AUTH default {TOKEN} SETNAME me")).contains("proto: 3"));
    assert_eq!(client.say("CLIENT GETNAME"), "me");
    assert_eq!(client.say("QUIT"), "OK");
}

#[test]
fn who_shows_three_wrong_passwords_is_ended() {
    let node = node();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for request in ["AUTH wrong", "AUTH somebody wrong", "HELLO 3 AUTH default wrong"] {
        let mut client = Client::connect(node.address());
        for _ in 0..3 {
            assert_eq!(client.say(request), wrong);
        }
        assert!(client.is_ended(), "{request}");
    }
    // An authenticated client may try wrong ones no more often.
    let mut client = Client::connect(node.address());
    for _ in 0..2 {
        assert_eq!(client.say("AUTH wrong"), wrong);
        assert_eq!(client.say(&format!("AUTH {TOKEN}")), "OK");
    }
    client.send(&["AUTH", "wrong"]);
    client.send(&["PING"]);
    assert_eq!(support::show(&client.reply().unwrap()), wrong);
    assert!(client.is_ended());
}

#[test]
fn strangers_may_send_little() {
    let node = node();
    let mut client = Client::connect(node.address());
    client.send(&["a"; 11]);
    assert_eq!(
        support::show(&client.reply().unwrap()),
        "-ERR Protocol error: unauthenticated multibulk length"
    );
    assert!(client.is_ended());
    let mut client = Client::connect(node.address());
    client.send(&["SET", "a", &"x".repeat(20_000)]);
    assert_eq!(support::show(&client.reply().unwrap()), "-ERR Protocol error: unauthenticated bulk length");
    // Sent together with the authentication, the same request is accepted.
    let mut client = Client::connect(node.address());
    client.send(&["AUTH", TOKEN]);
    client.send(&["SET", "a", &"x".repeat(20_000)]);
    assert_eq!(support::show(&client.reply().unwrap()), "OK");
    assert_eq!(support::show(&client.reply().unwrap()), "OK");
}

#[test]
fn beyond_this_machine_a_node_does_not_start_without_a_token() {
    let open = NodeOptions { listen: "0.0.0.0:0".parse().unwrap(), ..options() };
    let error = Node::start(open.clone()).err().unwrap();
    assert!(matches!(error, NodeError::Open { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.hint().unwrap().contains("--token-file"));
    // Clients cannot connect to "all addresses".
    let with_token = NodeOptions { token: Token::new(TOKEN.as_bytes()), ..open };
    assert!(matches!(Node::start(with_token.clone()), Err(NodeError::Option { option: "announce", .. })));
    let announce = Some(HostPort { host: "node-1".to_owned(), port: 7379 });
    let node = Node::start(NodeOptions { announce, ..with_token }).unwrap();
    let mut client = Client::connect(([127, 0, 0, 1], node.address().port()).into());
    client.say(&format!("AUTH {TOKEN}"));
    assert!(client.say("CLUSTER SLOTS").starts_with("[[0 16383 [node-1 7379 "));
}

/// A node of several, with this address for the others.
fn of_several(peers: &str, options: Options) -> NodeOptions {
    let group = LocalGroup::start(GroupOptions { slots: 16, copies: 1 }, Duration::from_secs(60)).unwrap();
    let listen = peers.parse().unwrap();
    let others = Others { me: NodeId(1), listen, group: Arc::new(group), options };
    NodeOptions { others: Some(others), ..self::options() }
}

#[test]
fn beyond_this_machine_a_node_listens_to_no_other_one_without_a_token() {
    let open = of_several("0.0.0.0:0", Options::default());
    match open.validate() {
        Err(NodeError::Open { address }) => assert_eq!(address.to_string(), "0.0.0.0:0"),
        other => panic!("{other:?}"),
    }
    assert!(NodeOptions { token: Token::new(TOKEN.as_bytes()), ..open }.validate().is_ok());
    assert!(of_several("127.0.0.1:0", Options::default()).validate().is_ok());
}

#[test]
fn how_copies_agree_has_to_make_sense_before_a_node_starts() {
    for options in [
        Options { tick_us: 0, ..Options::default() },
        Options { lease_us: Options::default().tick_us, ..Options::default() },
    ] {
        let validated = of_several("127.0.0.1:0", options).validate();
        assert!(matches!(validated, Err(NodeError::Option { option: "lease_us", .. })), "{validated:?}");
    }
}

#[test]
fn what_a_node_of_the_same_number_left_behind_keeps_no_token_from_being_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    // Each container has a process 1.
    std::fs::write(folder.path().join(format!(".token.{}", std::process::id())), "begun").unwrap();
    Token::of_file(&path).unwrap();
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "what it wrote first is gone: {names:?}");
}

#[test]
fn a_token_file_is_made_once_and_only_its_owner_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let made = Token::of_file(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.trim().len(), 64);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(format!("{made:?}"), "Token");
    Token::of_file(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Token::of_file(&path), Err(NodeError::Token { .. })));
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    for wrong in ["", "short", "with spaces in the middle of it"] {
        std::fs::write(&path, wrong).unwrap();
        assert!(matches!(Token::of_file(&path), Err(NodeError::Token { .. })), "{wrong}");
    }
    let nowhere = folder.path().join("no/such/folder");
    assert_eq!(Token::of_file(&nowhere).unwrap_err().kind(), ErrorKind::NotFound);
}
