//! Users of an access control list, in the program itself: at a node with such a list, and in `ring://` URLs.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use support::Workspace;

/// The SHA-256 of `secret`.
const SECRET: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A file that only its owner may read.
fn keep(place: &Workspace, name: &str, text: &str) {
    place.write(name, text);
    std::fs::set_permissions(place.folder.path().join(name), Permissions::from_mode(0o600)).unwrap();
}

/// Starts a node with a token and a list of users, which ends with its input; returns its address.
fn node(place: &Workspace, list: &str) -> (Child, String) {
    keep(place, "users", list);
    let all = ["--json", "ring", "serve", "--until-input-ends", "--memory", "--listen", "127.0.0.1:0"];
    let mut node = place.spawn(&[&all[..], &["--token-file", "token", "--acl-file", "users"]].concat());
    let started = support::started(&mut node);
    (node, started["listening"].as_str().unwrap().to_owned())
}

#[test]
fn a_program_of_atoll_is_a_user_that_its_url_names() {
    let place = Workspace::new();
    let rules = "+@read +@write +config";
    let list = format!("user job7 on {SECRET} ~run:7:* {rules}\nuser few on {SECRET} ~* +@read +@write");
    let (mut node, address) = node(&place, &list);
    keep(&place, "password", "secret\n");
    keep(&place, "wrong", "Secret\n");
    let run = |verb: &[&str], query: &str, rest: &[&str]| {
        place.run(&[verb, &["--store", &format!("ring://{address}/?{query}")], rest].concat())
    };
    let job = "user=job7&token-file=password";
    run(&["kv", "put"], job, &["run:7:step", "code", "1"]).text();
    assert_eq!(run(&["kv", "get"], job, &["run:7:step", "code"]).text().trim(), "1");
    // A wait uses another kind of connection.
    run(&["kv", "wait"], job, &["run:7:step", "code", "--exists"]).text();
    for (verb, query, rest, told) in [
        (&["kv", "put"][..], job, &["run:8:step", "code", "1"][..], "No permissions to access a key"),
        (&["kv", "get"], job, &["run:8:step", "code"], "No permissions to access a key"),
        (&["kv", "wait"], job, &["run:8:step", "code", "--exists"], "No permissions to access a key"),
        (&["ls"], job, &[], "No permissions to access a key"),
        (&["ring", "status"], job, &[], "permissions to run the 'at.ring' command"),
        (
            &["kv", "get"],
            "user=few&token-file=password",
            &["a", "b"],
            "permissions to run the 'config' command",
        ),
        (&["kv", "get"], "user=job7&token-file=wrong", &["run:7:step", "code"], "token-file=PATH"),
        (&["kv", "get"], "user=nobody&token-file=password", &["run:7:step", "code"], "token-file=PATH"),
        (&["kv", "get"], "token-file=password", &["run:7:step", "code"], "token-file=PATH"),
    ] {
        let failed = run(verb, query, rest);
        assert_eq!(failed.exit, Some(15), "{verb:?} {query}: {}", failed.stderr);
        assert!(failed.stderr.contains(told), "{verb:?} {query}: {}", failed.stderr);
    }
    let without = run(&["kv", "get"], "user=job7", &["run:7:step", "code"]);
    assert!(without.fails(12).contains("token-file=PATH"));
    assert_eq!(run(&["kv", "get"], "token-file=token", &["run:7:step", "code"]).text().trim(), "1");
    drop(node.stdin.take());
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn a_wrong_list_of_users_is_reported_with_its_line() {
    let place = Workspace::new();
    keep(&place, "users", "# people\nuser ana on nopass ~* +@all\n");
    let arguments = ["ring", "serve", "--memory", "--listen", "127.0.0.1:0", "--acl-file", "users"];
    let failed = place.run(&[&arguments[..], &["--token-file", "token"]].concat());
    assert!(failed.fails(12).contains("users, line 2: users without a password are not supported"));
    assert_eq!(place.run(&arguments).exit, Some(2), "only with a token");
}

#[test]
fn a_job_hands_its_nodes_the_list() {
    let place = Workspace::new();
    let slurm = |more: &[&str]| {
        let all = [&["ring", "slurm", "--store", "ring"], more, &["--", "true"]].concat();
        place.run(&all).text().to_owned()
    };
    let script = slurm(&["--acl-file", "my users"]);
    let path = std::path::absolute(place.folder.path().join("my users")).unwrap();
    assert!(script.contains(&format!("\nusers='{}'\n", path.display())), "{script}");
    assert!(
        script.contains(r#"${users:+--acl-file "$users"}"#)
            && script.contains("export atoll folder port token users")
    );
    assert!(slurm(&[]).contains("\nusers=\n"), "without one nodes are handed none");
}
